"""The commits of one repository as numbers: what every walk runs over.

The commits of the graph have the numbers that they have there. Any other commit gets a number when it is first met,
and is read when it is first needed; its time, tree and parents then stay in columns that all later walks over the same
repository share. Objects never change, so the columns serve every generation that has the same graph, which holds part
of the commits, all, or none: answers are the same. The columns of all repositories of a process together are bounded
in bytes.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from heapq import heappop, heappush
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from pack.objects import COMMIT

if TYPE_CHECKING:
    from pack.graph import Graph
    from pack.pathindex import PathIndex
    from pack.view import View

MAX_BYTES: Final = 256 << 20
_COMMIT_BYTES: Final = 400  # of Python's objects for one commit's row, measured
_MEMO_ENTRIES: Final = 400_000
_MEMOS: Final = 16


class Columns:
    """Rows by commit number; `parents` is None until the commit was looked at, `levels` 0 until it is known.

    The level of a commit is one more than the highest of its parents: a commit is reachable only from higher ones,
    whatever the clocks say. `oids` and `trees` have the commits that are not in the graph. `lines` is for who writes
    commits down: what was written of a commit once, `line_bytes` in all.
    """

    def __init__(self, graph: Graph | None = None) -> None:
        self.graph = graph
        self.base = graph.count if graph is not None else 0
        self.numbers: dict[bytes, int] = {}
        self.times = graph.times[:] if graph is not None else array("Q")
        self.levels = graph.levels[:] if graph is not None else array("I")
        self.parents: list[tuple[int, ...] | None] = [None] * self.base
        self.oids: list[bytes] = []
        self.trees: list[bytes] = []
        self.memos: OrderedDict[Any, Any] = OrderedDict()
        self.lines: dict[int, bytes] = {}
        self.line_bytes = 0

    @property
    def memory(self) -> int:
        """About how many bytes of memory all of it takes."""
        of_graph = self.graph.memory + 100 * self.base if self.graph is not None else 0
        return of_graph + self.own_bytes + self.line_bytes

    @property
    def own_bytes(self) -> int:
        """As `memory`, of the rows of commits that are not in the graph."""
        return _COMMIT_BYTES * len(self.oids)


_columns: OrderedDict[tuple[str, Graph | None], Columns] = OrderedDict()
_lock = Lock()


def _columns_of(namespace: str, graph: Graph | None) -> Columns:
    with _lock:
        found = _columns.pop((namespace, graph), None)
        if found is None or found.own_bytes > MAX_BYTES:
            found = Columns(graph)
        _columns[namespace, graph] = found
        total = sum(columns.memory for columns in _columns.values())
        while total > MAX_BYTES and len(_columns) > 1:
            total -= _columns.popitem(last=False)[1].memory
        return found


class History:
    """Commits of one view by number. The lists are the shared columns, for loops that cannot afford a call."""

    def __init__(self, view: View) -> None:
        graph = view.graph
        columns = _columns_of(view.namespace, graph)
        self.view = view
        self.graph = graph
        self.columns = columns
        self.times = columns.times
        self.parents = columns.parents
        self.levels = columns.levels
        self._base = columns.base
        self._oids = columns.oids
        self._trees = columns.trees
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
            n = self.graph.find(oid) if self.graph is not None else None
            if n is None:
                n = len(self.times)
                self._oids.append(oid)
                self._trees.append(b"")
                self.times.append(0)
                self.parents.append(None)
                self.levels.append(0)
            self._numbers[oid] = n
        return n

    def oid(self, n: int) -> bytes:
        return self._oids[n - self._base] if n >= self._base else self.graph.oid(n)  # type: ignore[union-attr]

    def tree(self, n: int) -> bytes:
        """The tree of a commit that was loaded."""
        return self._trees[n - self._base] if n >= self._base else self.graph.tree(n)  # type: ignore[union-attr]

    def text(self, n: int) -> bytes:
        """The commit object."""
        text = None
        if self.graph is not None and n < self._base:
            if self.view.objects.allowance is not None:
                self.view.charge(self.graph.effort(n))
            text = self.graph.text(n)
        return text if text is not None else self.view.objects.read_as(self.oid(n), COMMIT)

    @property
    def changes(self) -> PathIndex | None:
        """What is known of the paths that commits of the graph change. May raise Need."""
        opened = self.view.open_changes
        return opened(self.graph) if opened is not None and self.graph is not None else None

    def covering(self, numbers: Iterable[int]) -> Graph | None:
        """The graph where it has all of these commits, and so all that they reach."""
        return self.graph if max(numbers, default=0) < self._base else None

    def load(self, n: int) -> tuple[int, ...]:
        """Read commit `n`; its parents' numbers. Time, tree and parents of its row are there afterwards."""
        known = self.parents[n]
        if known is not None:
            return known
        if n < self._base:
            parents = self.parents[n] = self.graph.parents(n)  # type: ignore[union-attr]
            return parents
        links = self.view.links(self.oid(n))
        parents = tuple([self._number(parent) for parent in links.parents])
        self.times[n] = links.time
        self._trees[n - self._base] = links.tree
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
