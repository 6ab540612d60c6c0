"""Where a read is done: on the event loop what costs it less than handing the work over, in a worker all else."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from app.operations import Operation
from app.reads.base import HISTORIES, Params, by_snapshot
from pack.order import AUTHOR_DATE, DEFAULT
from pack.revision import locate

if TYPE_CHECKING:
    from pack.view import View

# Inflated bytes of an object, and records of a page, that the event loop may handle.
LOOP_BYTES: Final = 256 * 1024
LOOP_TREE_BYTES: Final = 32 * 1024
# As LOOP_BYTES for a commit or tag, and all that leads to it: those of many headers take 0.2 ms a KiB.
LOOP_TEXT_BYTES: Final = 64 * 1024
LOOP_RECORDS: Final = 1000
LOOP_COMMITS: Final = 100
LOOP_REVS: Final = 20
LOOP_HEADS: Final = 4
LOOP_TIPS: Final = 200
# Commits of a history all of which the event loop may look at.
LOOP_GRAPH: Final = 8_000
# Objects of a repository that the event loop opens for what it may leave to a worker in the end.
LOOP_OBJECTS: Final = 200_000

# Revisions that may have to walk or search before they name something.
_WALKS: Final = re.compile(rb"[~^:{]|-g[0-9a-f]")
_SEARCHES: Final = re.compile(rb"[:{]|-g[0-9a-f]")
_STEPS: Final = re.compile(rb"~[0-9]{4}")
_REV_BYTES: Final = 300
# What a log has to read more for than the graph.
_FILTERS: Final = ("path", "follow", "author", "message")
_POINT_READS: Final = frozenset({"resolve", "commit", "tag", "blob", "stat"})


def walks(revs: Iterable[bytes]) -> bool:
    """Whether resolving one of the revisions can take more than a few lookups."""
    return any(_WALKS.search(rev) for rev in revs)


def by_refs(operation: Operation, params: Params) -> bool:
    """Whether refs alone may answer, so that no pack has to be opened first."""
    if operation.module == "refs":
        return (params["limit"] or operation.default_limit) <= LOOP_RECORDS
    return operation.module == "resolve" and len(params["rev"]) <= LOOP_REVS and not walks(params["rev"])


def single_on_loop(operation: Operation, params: Params, view: View) -> bool:
    """Whether the event loop does a single read itself."""
    if operation.module not in _POINT_READS:
        return False
    revs = params["rev"] if isinstance(params["rev"], tuple) else (params["rev"],)
    if len(revs) > LOOP_REVS or walks(revs):
        return False
    return operation.module != "blob" or _size(view, params) <= LOOP_BYTES


def allowance(module: str) -> int:
    """Bytes that the event loop may take up for a document, or for a page or block of a list. Files are bounded by
    their size, too.
    """
    if module in ("commit", "tag"):
        return LOOP_TEXT_BYTES
    return LOOP_BYTES if module in HISTORIES else 2 * LOOP_BYTES


def by_graph(operation: Operation, params: Params, commits: int) -> bool:
    """Whether the event loop does this read of a history itself, of which the open graph has so many commits (0: none).

    Of any history a short page of a log, from its tips; of a short one all that may have to look at every commit, but
    for what reads them: filters and paths.
    """
    short = commits <= LOOP_GRAPH
    if not commits or operation.module not in HISTORIES:
        return False
    if operation.module == "aheadbehind":
        return short and len(params["head"]) <= LOOP_HEADS and not _searches((params["base"], *params["head"]))
    if operation.module == "mergebase":
        return short and len(params["rev"]) <= LOOP_HEADS and not _searches(params["rev"])
    if any(params[name] for name in _FILTERS):
        return False
    if (params["limit"] or operation.default_limit) > LOOP_COMMITS or len(params["rev"]) > LOOP_REVS:
        return False
    if short:
        return params["order"] != AUTHOR_DATE and not _searches((*params["rev"], *params["not"]))
    bounded = params["order"] != DEFAULT or params["not"] or params["until"] is not None or params["cursor"] is not None
    return not bounded and not walks(params["rev"])


def by_walk(operation: Operation, params: Params, commits: int) -> bool:
    """Whether the event loop makes the stream of this history itself, of which the open graph has so many commits.

    A worker would make its records no faster than this process takes them over.
    """
    if operation.module != "log" or not 0 < commits <= LOOP_GRAPH or len(params["rev"]) > LOOP_TIPS:
        return False
    if params["order"] == AUTHOR_DATE or any(params[name] for name in _FILTERS):
        return False
    return not _searches((*params["rev"], *params["not"]))


def is_tried(operation: Operation, params: Params) -> bool:
    """Whether the event loop begins with this read, for a worker to make it where it turns out to be long."""
    if operation.module == "diff" and params["mode"] != "merge-base":
        revs = [rev for rev in (params["base"], params["head"]) if rev is not None]
    elif by_snapshot(operation.module, params):
        revs = [params["rev"]]
    else:
        return False
    return not (_searches(revs) or _steps(revs))


def _steps(revs: Iterable[bytes]) -> bool:
    """Whether one of the revisions leads far down from a commit."""
    return any(_STEPS.search(rev) or len(rev) > _REV_BYTES for rev in revs)


def _searches(revs: Iterable[bytes]) -> bool:
    """Whether resolving one of the revisions can take more than a walk on the graph."""
    return any(_SEARCHES.search(rev) for rev in revs)


def page_on_loop(operation: Operation, params: Params, view: View) -> bool:
    """Whether the event loop makes a page itself, of one small directory."""
    if operation.module != "tree" or params["recursive"] or params["last_commit"] or params["glob"] or params["sizes"]:
        return False
    return not walks((params["rev"],)) and _size(view, params) <= LOOP_TREE_BYTES


def _size(view: View, params: Params) -> int:
    """Inflated bytes of what is at `rev` and `path`; 0 for what the read itself will refuse."""
    place = locate(view, params["rev"], params["path"])
    return view.objects.header(place.oid)[1] if place.oid in view.objects else 0
