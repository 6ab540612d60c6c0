"""log: commits in git's orders, filtered and simplified as `git log` does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from app.reads.base import BLOCK_BYTES, Batch, Params, Row, Rows, Tally, named
from app.reads.commit import commit_record
from app.reads.records import lines_of
from app.reads.revs import commit_of
from pack.errors import BadParameter
from pack.follow import Follow
from pack.match import commit_matcher
from pack.view import View
from pack.walk import Query, Walk

KEY: Final = "commits"


def pin(view: View, params: Params) -> dict[str, Any]:
    """The full ids of the revisions; patterns and combinations that cannot be are refused."""
    commit_matcher(params["author"], params["message"])
    if params["follow"] and (len(params["path"]) != 1 or not params["path"][0]):
        raise BadParameter("follow needs exactly one path, of a file", parameter="follow")
    return {
        "tips": [commit_of(view, rev, "rev").hex() for rev in params["rev"]],
        "not": [commit_of(view, rev, "not").hex() for rev in params["not"]],
    }


def head(view: View, params: Params, pin: dict[str, Any]) -> dict[str, Any]:
    return {"commit": pin["tips"][0]}


def rows(view: View, params: Params, pin: dict[str, Any], tally: Tally, position: Any) -> Rows:
    query = _query(params, pin)
    if params["follow"]:
        yield from _followed(view, query, tally, position)
        return
    walk = Walk(view, query, resume=position, visit=tally.visit, whole=tally.whole)
    if tally.whole:
        for numbers in walk.chunks():
            yield from batches(lines_of(walk.history, numbers), len(numbers), walk.mark())
    else:
        for n in walk.numbers():
            yield next(lines_of(walk.history, (n,))), walk.mark()
    if walk.cut:
        tally.stop(walk.position())


def batches(lines: Iterator[bytes], count: int, position: Any) -> Iterator[Batch]:
    """`count` lines in batches of a block each, made one by one: long ones would wait for each other on their way, and
    keep whoever makes them.
    """
    part: list[bytes] = []
    size = 0
    for line in lines:
        count -= 1
        part.append(line)
        size += len(line) + 1
        if size >= BLOCK_BYTES or not count:
            yield Batch(b"\n".join(part), len(part), None if count else position)
            part, size = [], 0


def _followed(view: View, query: Query, tally: Tally, position: Any) -> Iterator[Row]:
    follow = Follow(view, query, resume=position, visit=tally.visit, missing=tally.skip)
    for step in follow:
        record = commit_record(step.oid, view.commit(step.oid))
        yield {**record, **named("path", step.path)}, follow.position()
    if follow.cut:
        tally.stop(follow.position())


def _query(params: Params, pin: dict[str, Any]) -> Query:
    since = params["since"]
    return Query(
        tips=tuple(bytes.fromhex(oid) for oid in pin["tips"]),
        hidden=tuple(bytes.fromhex(oid) for oid in pin["not"]),
        order=params["order"],
        first_parent=params["first_parent"],
        paths=() if b"" in params["path"] else params["path"],
        author=params["author"],
        message=params["message"],
        # No commit is older than 1970 in git's walk: such a time bounds nothing.
        since=since if since is not None and since > 0 else None,
        until=params["until"],
    )
