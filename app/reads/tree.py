"""listTree: a directory, or all files below it, in git's order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from orjson import dumps

from app.reads.base import Params, Rows, Tally, b64, from_b64, named
from app.reads.commit import commit_record
from app.reads.listing import directory, listing
from app.reads.scope import Scope
from app.reads.stat import submodule_urls
from pack.corpus import reason_of
from pack.errors import CorruptData, NotFound, PackhouseError, TooLarge, WrongType
from pack.lastcommit import last_commits
from pack.objects import BLOB, TREE, TYPE_NAMES
from pack.revision import locate, show
from pack.tree import DIRECTORY, GITLINK, SYMLINK, Entry, kind_of
from pack.treewalk import TreeWalk
from pack.view import View

KEY: Final = "entries"
LINK_BYTES: Final = 64 << 10
_TOGETHER: Final = 1000  # entries whose last commits are looked for in one walk

_Found = tuple[bytes, Entry, list[int]]


def pin(view: View, params: Params) -> dict[str, Any]:
    """The tree to list; WrongType where `rev` and `path` name something else."""
    place = locate(view, params["rev"], params["path"])
    if place.type != TREE:
        kind = "submodule" if place.mode == GITLINK else TYPE_NAMES[place.type].decode()
        what = "path" if params["path"] else "rev"
        raise WrongType(f"{show(params[what])} is a {kind}, not a directory", parameter=what)
    if params["last_commit"] and place.commit is None:
        raise WrongType(f"{show(params['rev'])} names a tree, which has no last commits", parameter="rev")
    Scope(b"", (), params["glob"])
    return {
        "commit": place.commit.hex() if place.commit is not None else None,
        "tree": place.oid.hex(),
        "root": place.root.hex() if place.root is not None else None,
        "below": b64(place.path),
    }


def head(view: View, params: Params, pin: dict[str, Any]) -> dict[str, Any]:
    return {"commit": pin["commit"]}


def rows(view: View, params: Params, pin: dict[str, Any], tally: Tally, position: Any) -> Rows:
    """A row an entry; a position is the entry's place in the walk."""
    scope = Scope(from_b64(pin["below"], "cursor"), (), params["glob"])
    recursive = params["recursive"]
    records = _Records(view, params, pin, tally)
    if recursive and not params["last_commit"]:
        tree, root = bytes.fromhex(pin["tree"]), pin["root"]
        yield from listing(view, tree, scope, params["sizes"], root, position, tally, records.encoded)
        return
    if not recursive and scope.whole and not params["last_commit"]:
        tree = bytes.fromhex(pin["tree"])
        yield from directory(view, tree, scope.prefix, params["sizes"], position, tally, records.encoded)
        return
    walk = TreeWalk(
        view,
        bytes.fromhex(pin["tree"]),
        prefix=scope.prefix,
        enter=scope.enter if recursive else _stay,
        lost=lambda path, place, error: tally.skip(path, reason_of(error)),
        after=position,
    )
    found = _wanted(walk, scope, recursive, tally)
    if not params["last_commit"]:
        for path, entry, place in found:
            yield records.record(path, entry), place
        return
    limit = min(params.get("limit") or _TOGETHER, _TOGETHER)
    while together := list(islice(found, limit)):
        last = records.last_commits(together)
        for path, entry, place in together:
            record = records.record(path, entry)
            record["last_commit"] = last.get(path)
            yield record, place


def _stay(folder: bytes) -> bool:
    return False


def _wanted(walk: TreeWalk, scope: Scope, recursive: bool, tally: Tally) -> Iterator[_Found]:
    """The entries to list: with `recursive` whatever is no directory, as `git ls-tree -r`."""
    whole = scope.whole
    visit = tally.visit
    for path, entry in walk:
        place = walk.place()
        if (whole or scope.want(path)) and not (recursive and entry.mode == DIRECTORY):
            yield path, entry, place
        if not visit():
            tally.stop(place)
            return


class _Records:
    """Entries as records."""

    def __init__(self, view: View, params: Params, pin: dict[str, Any], tally: Tally) -> None:
        self._view = view
        self._sizes: bool = params["sizes"]
        self._commit: str | None = pin["commit"]
        self._root: str | None = pin["root"]
        self._tally = tally
        self._urls: dict[bytes, bytes] | None = None

    def record(self, path: bytes, entry: Entry) -> dict[str, Any]:
        mode = entry.mode
        kind = kind_of(mode)
        record: dict[str, Any] = {
            **named("path", path),
            "mode": f"{mode:06o}",
            "type": TYPE_NAMES[kind].decode(),
            "oid": entry.oid.hex(),
        }
        if mode == GITLINK:
            record["submodule"] = {"commit": record["oid"], "url": self._url(path)}
        elif kind == BLOB and (self._sizes or mode == SYMLINK):
            self._look(path, entry, record)
        return record

    def encoded(self, path: bytes, entry: Entry) -> bytes:
        return dumps(self.record(path, entry))

    def _look(self, path: bytes, entry: Entry, record: dict[str, Any]) -> None:
        """Size and link target. Where the object is missing, only a size that was asked for is admitted as lost."""
        objects = self._view.objects
        try:
            size = objects.header(entry.oid)[1]
            if self._sizes:
                record["size"] = size
            if entry.mode == SYMLINK:
                if size > LINK_BYTES:
                    raise TooLarge(f"the link has {size} bytes")
                record |= named("link_target", objects.read_as(entry.oid, BLOB))
        except (NotFound, CorruptData, TooLarge, WrongType) as error:
            if self._sizes or not isinstance(error, NotFound):
                self._tally.skip(path, reason_of(error))

    def _url(self, path: bytes) -> str | None:
        if self._urls is None:
            root = bytes.fromhex(self._root) if self._root is not None else None
            self._urls = submodule_urls(self._view, root)
        url = self._urls.get(path)
        return url.decode("utf-8", "replace") if url is not None else None

    def last_commits(self, together: list[_Found]) -> dict[bytes, dict[str, Any]]:
        """Path → record of the commit; a path whose commit was not reached is admitted and has none."""
        assert self._commit is not None
        oids: dict[bytes, bytes] = {}
        lost: set[bytes] = set()

        def lose(path: bytes, error: PackhouseError) -> None:
            lost.add(path)
            self._tally.skip(path, reason_of(error))

        last_commits(
            self._view,
            bytes.fromhex(self._commit),
            [(path, entry) for path, entry, _ in together],
            oids.__setitem__,
            lost=lose,
            visit=self._tally.visit,
        )
        for path, _, _ in together:
            if path not in oids and path not in lost:
                self._tally.skip(path, "budget")
        records = {oid: commit_record(oid, self._view.commit(oid)) for oid in set(oids.values())}
        return {path: records[oid] for path, oid in oids.items()}
