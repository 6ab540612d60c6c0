"""The commits of one repository as numbers: what every walk runs over.

A commit gets a number when it is first met and is read when it is first needed; its time, tree and parents then stay
in columns that all later walks over the same repository share. Objects never change, so the columns serve every
generation. The columns of all repositories of a process together are bounded in bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pack.view import View

MAX_BYTES: Final = 256 << 20
_COMMIT_BYTES: Final = 400  # of Python's objects for one commit's row, measured
_MEMO_ENTRIES: Final = 400_000
_MEMOS: Final = 16


class Columns:
    """Rows by commit number; `parents` is None until the commit was read, `levels` 0 until it is known.

    The level of a commit is one more than the highest of its parents: a commit is reachable only from higher ones,
    whatever the clocks say.
    """

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        self.oids: list[bytes] = []
        self.times: list[int] = []
        self.trees: list[bytes] = []
        self.parents: list[tuple[int, ...] | None] = []
        self.levels: list[int] = []
        self.memos: OrderedDict[Any, Any] = OrderedDict()

    @property
    def bytes(self) -> int:
        """About how much memory the rows take."""
        return len(self.oids) * _COMMIT_BYTES


_columns: OrderedDict[str, Columns] = OrderedDict()


def _columns_of(namespace: str) -> Columns:
    found = _columns.pop(namespace, None)
    if found is None or found.bytes > MAX_BYTES:
        found = Columns()
    _columns[namespace] = found
    total = sum(columns.bytes for columns in _columns.values())
    while total > MAX_BYTES and len(_columns) > 1:
        total -= _columns.popitem(last=False)[1].bytes
    return found


class History:
    """Commits of one view by number. The lists are the shared columns, for loops that cannot afford a call."""

    def __init__(self, view: View) -> None:
        columns = _columns_of(view.namespace)
        self.view = view
        self.oids = columns.oids
        self.times = columns.times
        self.trees = columns.trees
        self.parents = columns.parents
        self.levels = columns.levels
        self._numbers = columns.numbers
        self._memos = columns.memos

    def number(self, oid: bytes) -> int:
        """The number of a commit, read if it was not yet."""
        n = self._number(oid)
        if self.parents[n] is None:
            self.load(n)
        return n

    def _number(self, oid: bytes) -> int:
        n = self._numbers.get(oid)
        if n is None:
            n = self._numbers[oid] = len(self.oids)
            self.oids.append(oid)
            self.times.append(0)
            self.trees.append(b"")
            self.parents.append(None)
            self.levels.append(0)
        return n

    def load(self, n: int) -> tuple[int, ...]:
        """Read commit `n`; its parents' numbers. Time, tree and parents of its row are there afterwards."""
        known = self.parents[n]
        if known is not None:
            return known
        links = self.view.links(self.oids[n])
        parents = tuple([self._number(parent) for parent in links.parents])
        self.times[n] = links.time
        self.trees[n] = links.tree
        self.parents[n] = parents
        return parents

    def level(self, n: int) -> int:
        """The level of commit `n`; the first call reads all of its ancestors."""
        levels, parents, load = self.levels, self.parents, self.load
        stack = [n]
        while stack:
            top = stack[-1]
            if levels[top]:
                stack.pop()
                continue
            above = parents[top]
            if above is None:
                above = load(top)
            missing = [parent for parent in above if not levels[parent]]
            if missing:
                stack.extend(missing)
            else:
                levels[top] = 1 + max([levels[parent] for parent in above], default=0)
                stack.pop()
        return levels[n]

    def ancestors(self, tips: Iterable[int], floor: int) -> set[int]:
        """Everything of at least level `floor` that `tips` reach, themselves included."""
        levels = self.levels
        found = {tip for tip in tips if self.level(tip) >= floor}
        queue = [(-levels[tip], tip) for tip in found]
        queue.sort()
        while queue:
            _, n = heappop(queue)
            for parent in self.load(n):
                if parent not in found and levels[parent] >= floor:
                    found.add(parent)
                    heappush(queue, (-levels[parent], parent))
        return found

    def memo(self, key: Any, new: Any) -> Any:
        """What is remembered beside the columns under `key`, `new` where nothing is; a few of them are kept."""
        memos = self._memos
        found = memos.pop(key, None)
        memos[key] = found = new if found is None else found
        while len(memos) > 1 and (len(memos) > _MEMOS or sum(map(len, memos.values())) > _MEMO_ENTRIES):
            memos.popitem(last=False)
        return found
