"""History simplification: which commits change some paths, and by which parent a merge got them.

gitrevisions calls a commit TREESAME to a parent where the wanted paths are alike in both. By default git follows, of
a merge, only the first parent that it is TREESAME to (git-log(1), "History Simplification", default mode). Paths are
literal: a file, or a directory with all below it; the empty path is the whole tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pack.pathlayer import LOOK, SAME
from pack.tree import DIRECTORY
from pack.treediff import diff_trees

if TYPE_CHECKING:
    from pack.history import History
    from pack.pathindex import Touched
    from pack.view import View

Spot = tuple[int, bytes] | None  # mode and oid of what lies at a path


class _Path:
    """Looks one path up in many trees; every directory on the way is read once for each of its versions."""

    def __init__(self, path: bytes) -> None:
        self.names = path.split(b"/") if path else []
        self.known: list[dict[bytes, Spot]] = [{} for _ in self.names]

    def __len__(self) -> int:
        return sum(map(len, self.known))

    def at(self, view: View, tree: bytes) -> Spot:
        passed: list[bytes] = []
        found: Spot = (DIRECTORY, tree)
        for name, known in zip(self.names, self.known, strict=True):
            assert found is not None
            if found[0] != DIRECTORY:
                found = None
                break
            oid = found[1]
            if oid in known:
                found = known[oid]
                break
            entry = view.entry(oid, name)
            passed.append(oid)
            if entry is None:
                found = None
                break
            found = (entry.mode, entry.oid)
        for oid, known in zip(passed, self.known, strict=False):
            known[oid] = found
        return found


def _lookup(history: History, path: bytes) -> _Path:
    found: _Path = history.memo(("path", path), _Path(path))
    return found


def spot_at(history: History, path: bytes, tree: bytes) -> Spot:
    """What lies at `path` below a tree; remembered beside the history."""
    return _lookup(history, path).at(history.view, tree)


def alike(view: View, old: Spot, new: Spot) -> bool:
    """Whether no file differs between what lies at one path in two trees (a directory without files is nothing)."""
    if old == new:
        return True
    if (old is not None and old[0] != DIRECTORY) or (new is not None and new[0] != DIRECTORY):
        return False
    return next(diff_trees(view, old and old[1], new and new[1]), None) is None


class Paths:
    """Compares commits of a history by a set of paths. `touched` is what an index knows of them: no tree is read for
    what it tells.
    """

    def __init__(self, history: History, paths: Sequence[bytes]) -> None:
        self.history = history
        self.view = history.view
        changes = history.changes
        self.touched: Touched | None = changes.touched(paths) if changes is not None else None
        self._paths = [_lookup(history, path) for path in dict.fromkeys(paths)]

    def _spots(self, n: int) -> list[Spot]:
        tree = self.history.tree(n)
        return [path.at(self.view, tree) for path in self._paths]

    def same(self, parent: int, child: int) -> bool:
        """Whether two commits that were read are TREESAME."""
        old, new = self.history.tree(parent), self.history.tree(child)
        if old == new:
            return True
        view = self.view
        return all(alike(view, path.at(view, old), path.at(view, new)) for path in self._paths)

    def empty(self, n: int) -> bool:
        """Whether none of the paths has a file in the commit."""
        return all(alike(self.view, None, spot) for spot in self._spots(n))

    def simplify(
        self, n: int, parents: tuple[int, ...], first_parent: bool, relevant: Callable[[int], bool] | None = None
    ) -> tuple[tuple[int, ...], bool]:
        """The parents that stay of commit `n`, and whether `n` is TREESAME.

        `relevant` says whether a parent is inside the range that is walked (None: all are): the others neither take
        the history over nor, beside a relevant one, make the commit count as changed.
        """
        code = self.touched.code(n) if self.touched is not None else None
        if not parents:
            return parents, self.empty(n) if code is None else code < 0
        history = self.history
        inside = changed_inside = changed_outside = False
        for position, parent in enumerate(parents):
            is_relevant = relevant is None or relevant(parent)
            inside = inside or is_relevant
            if position and first_parent:
                break
            history.load(parent)
            if code is None or (position and (code < 0 or code == LOOK)):
                same = self.same(parent, n)
            else:
                same = code == SAME if position else code < 0
            if same:
                if is_relevant:
                    return (parent,), True
            elif is_relevant:
                changed_inside = True
            else:
                changed_outside = True
        return parents, not (changed_inside if inside else changed_outside)
