"""Making snapshots of trees (`pack.snapshot`): the rows of a whole tree, and the changes from one to another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from pack.errors import CorruptData, NotFound, TooLarge, WrongType
from pack.objects import BLOB
from pack.snapshot import BLOCK_ROWS, UNKNOWN, Row
from pack.tree import DIRECTORY, GITLINK
from pack.treediff import Change, diff_trees
from pack.treewalk import TreeWalk
from pack.view import View

CHANGES: Final = 20_000
"""More than that is no later form of a tree."""


class Unflat(Exception):
    """The tree has no snapshot: its paths are not in order, or it is not there in full."""


class Flattening:
    """The rows of a tree, some at a time; whoever has brought what a step needed calls it again."""

    def __init__(self, tree: bytes, rows: int = BLOCK_ROWS) -> None:
        self._tree = tree
        self._most = rows
        self._rows: list[Row] = []
        self._place: list[int] | None = None
        self._last = b""
        self._over = False

    def step(self, view: View) -> list[Row]:
        """The next rows, as many as a block has; none at the end. Unflat, Need."""
        if not self._over:
            try:
                self._walk(view)
            except (NotFound, CorruptData, WrongType):
                raise Unflat from None
        rows, self._rows = self._rows, []
        return rows

    def _walk(self, view: View) -> None:
        walk = TreeWalk(view, self._tree, after=self._place)
        for path, entry in walk:
            if entry.mode != DIRECTORY:
                if path <= self._last or b"/" in entry.name:
                    raise Unflat
                row = Row(path, entry.mode, entry.oid, size_of(view, entry.mode, entry.oid))
                self._last = path
                self._rows.append(row)
                self._place = walk.place()
                if len(self._rows) >= self._most:
                    return
        self._over = True


def changes_between(view: View, old: bytes, new: bytes) -> list[Change] | None:
    """What leads from the tree `old` to `new`, in the order of paths; None where that is too much, or the result has
    no snapshot. Need.
    """
    try:
        changes = list(islice(diff_trees(view, old, new), CHANGES + 1))
        if len(changes) > CHANGES or not _in_order(view, new, changes):
            return None
    except (NotFound, CorruptData, WrongType):
        return None
    return sorted(changes, key=lambda change: change.path)


def _in_order(view: View, tree: bytes, changes: Sequence[Change]) -> bool:
    """Whether the directories that changed are such as git writes them."""
    for folder in {change.path.rpartition(b"/")[0] for change in changes}:
        entry = view.entry(tree, folder)
        if entry is None or entry.mode != DIRECTORY:
            continue
        last = b""
        for each in view.tree(entry.oid):
            key = each.name + b"/" if each.mode == DIRECTORY else each.name
            if key <= last or b"/" in each.name:
                return False
            last = key
    return True


def size_of(view: View, mode: int, oid: bytes) -> int:
    """UNKNOWN for what has no size, or none that fits. Need."""
    if mode == GITLINK:
        return UNKNOWN
    try:
        kind, size = view.objects.header(oid)
    except (NotFound, CorruptData, TooLarge, WrongType):
        return UNKNOWN
    return size if kind == BLOB and size < UNKNOWN else UNKNOWN
