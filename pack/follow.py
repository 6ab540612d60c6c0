"""One file's history beyond renames, as `git log --follow` tells it.

Commits come in the walk's order, not simplified, and each is compared with its parent at the name that the file has
by then. Where a commit adds the file, its source is looked for among all files of the parent, of which git also takes
copies: an identical file, else the most similar one of at least 50 %, a deleted one before any that stayed. From the
next commit on the source's name counts, on all branches. Merges are shown with `first_parent` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pack.pathindex import UNTOUCHED
from pack.pathlayer import DIFFERS
from pack.rename import closest
from pack.simplify import Spot, alike, spot_at
from pack.tree import DIRECTORY, EXECUTABLE, REGULAR
from pack.treediff import Change, diff_trees
from pack.walk import Query, Walk

if TYPE_CHECKING:
    from pack.pathindex import Touched
    from pack.view import View

_IDENTICAL: Final = 100  # files of one oid that are looked at

Missing = Callable[[bytes, str], None]


class Step(NamedTuple):
    """A commit that changed the file, and the name that the file has in it."""

    oid: bytes
    path: bytes


class Follow:
    """The commits of `git log --follow -- path`. `query.paths` holds the one path.

    `resume`, `visit`, `cut` and `position` as of Walk. `missing(path, reason)` is told of files that could not be
    compared, and of names that were not looked for because there was too much to compare.
    """

    def __init__(
        self,
        view: View,
        query: Query,
        *,
        resume: dict[str, Any] | None = None,
        visit: Callable[[], bool] | None = None,
        missing: Missing | None = None,
    ) -> None:
        (self._path,) = query.paths
        if resume is not None:
            self._path = bytes.fromhex(resume["path"])
            resume = resume["walk"]
        self._walk = Walk(view, replace(query, paths=()), resume=resume, visit=visit, whole=True)
        self._view = view
        self._history = self._walk.history
        self._changes = self._history.changes
        self._first_parent = query.first_parent
        self._missing = missing

    @property
    def cut(self) -> bool:
        return self._walk.cut

    def position(self) -> dict[str, Any]:
        return {"walk": self._walk.position(), "path": self._path.hex()}

    def __iter__(self) -> Iterator[Step]:
        history = self._history
        touched = self._touched()
        for n in self._walk.numbers():
            code = touched.code(n) if touched is not None else None
            if code == UNTOUCHED:
                continue
            parents = history.load(n)
            if len(parents) > 1 and not self._first_parent:
                continue
            if code == DIFFERS and len(parents) < 2:
                yield Step(history.oid(n), self._path)
                continue
            tree = history.tree(n)
            before = None
            if parents:
                history.load(parents[0])
                before = history.tree(parents[0])
            if before == tree:
                continue
            path = self._path
            old = spot_at(history, path, before) if before is not None else None
            new = spot_at(history, path, tree)
            if alike(self._view, old, new):
                continue
            if before is not None and new is not None and new[0] != DIRECTORY and alike(self._view, None, old):
                source = find_source(self._view, before, tree, path, new, self._missing)
                if source is not None:
                    self._path = source
                    touched = self._touched()
            yield Step(history.oid(n), path)

    def _touched(self) -> Touched | None:
        return self._changes.touched((self._path,)) if self._changes is not None else None


def find_source(
    view: View, old_tree: bytes, new_tree: bytes, path: bytes, target: Spot, missing: Missing | None = None
) -> bytes | None:
    """The path in `old_tree` that `target`, new at `path` in `new_tree`, was renamed or copied from; None for none."""
    assert target is not None
    added = Change("A", None, path, None, target[0], None, target[1])
    deleted = {change.old_path for change in diff_trees(view, old_tree, new_tree) if change.status == "D"}
    sources = [
        Change("D", name, None, entry.mode, None, entry.oid, None)
        for name, entry in view.walk(old_tree)
        if entry.mode != DIRECTORY
    ]
    same = _identical(sources, added, deleted)
    if same is not None or not _regular(added.new_mode):
        return same
    candidates, limited = closest(view, sources, added, missing=missing)
    if limited and missing is not None:
        missing(path, "rename_limit")
    found = [source.old_path for source in candidates]
    return next((name for name in found if name in deleted), found[0] if found else None)


def _identical(sources: Sequence[Change], added: Change, deleted: Container[bytes | None]) -> bytes | None:
    """Of the files of the same oid the first one that is deleted and has the same base name, or most of that."""
    best, best_score, left = None, -1, _IDENTICAL
    for source in sources:
        if source.old_oid != added.new_oid:
            continue
        if source.old_mode != added.new_mode and not (_regular(source.old_mode) and _regular(added.new_mode)):
            continue
        score = (source.old_path in deleted) + (_base_name(source.old_path) == _base_name(added.new_path))
        if score > best_score:
            best, best_score = source.old_path, score
        left -= 1
        if score == 2 or not left:
            break
    return best


def _base_name(path: bytes | None) -> bytes | None:
    return path.rpartition(b"/")[2] if path is not None else None


def _regular(mode: int | None) -> bool:
    return mode in (REGULAR, EXECUTABLE)
