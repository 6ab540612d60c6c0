"""Listing a bounded history: what tips reach and hidden revisions do not (gitrevisions(7), "Commit Exclusion").

The walk goes down by commit time as git's does, commits of the hidden side marking their ancestors, and decides in
the same steps, since which parent a merge is simplified to depends on what was marked by then. Git stops this walk
by dates, a few commits late; where clocks are wrong it so shows commits that the hidden side does reach. Here these
are taken out afterwards: no commit is listed that a hidden revision reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pack.history import History
    from pack.simplify import Paths

_SLOP: Final = 5  # hidden commits looked at beyond the point where only hidden ones are left


class Range:
    """One bounded walk. `parents_of` gives the parents as simplified; `treesame` the commits that changed nothing."""

    def __init__(
        self,
        history: History,
        tips: Sequence[int],
        hidden: Sequence[int],
        *,
        first_parent: bool,
        paths: Paths | None,
        since: int | None,
        until: int | None,
    ) -> None:
        self.history = history
        self.first_parent = first_parent
        self.paths = paths
        self.since = since
        self.until = until
        self.treesame: set[int] = set()
        self._given = list(dict.fromkeys([*tips, *hidden]))
        self._hidden = list(dict.fromkeys(hidden))
        self._bottom = frozenset(hidden)
        self._marked = set(hidden)  # uninteresting, in git's words
        self._read = set(self._given)  # commits whose parents this walk knows
        self._simplified: dict[int, tuple[int, ...]] = {}
        self._queue: list[tuple[int, int, int]] = []
        self._wanted: set[int] = set()  # of the queue, those not marked

    def parents_of(self, n: int) -> tuple[int, ...]:
        known = self._simplified.get(n)
        return known if known is not None else self.history.load(n)

    def listed(self) -> list[int]:
        """The commits in the order of the walk, those that turned out to be hidden still among them."""
        times = self.history.times
        for n in self._hidden:
            self._mark_parents(n)
        queue, wanted, marked = self._queue, self._wanted, self._marked
        for counter, n in enumerate(sorted(self._given, key=lambda n: -times[n])):
            queue.append((-times[n], counter, n))
        wanted.update(n for n in self._given if n not in marked)
        seen = set(self._given)
        counter = len(queue)
        found: list[int] = []
        youngest: int | None = None  # time of the last commit found
        slop = _SLOP
        while queue:
            n = heappop(queue)[2]
            wanted.discard(n)
            if self.since is not None and times[n] < self.since:
                marked.add(n)
            hide = n in marked
            for parent in self._expand(n, hide):
                if parent not in seen:
                    seen.add(parent)
                    heappush(queue, (-times[parent], counter, parent))
                    counter += 1
                    if parent not in marked:
                        wanted.add(parent)
            if hide:
                self._mark_parents(n)
                if not queue:
                    break
                if wanted or (youngest is not None and youngest <= -queue[0][0]):
                    slop = _SLOP
                    continue
                slop -= 1
                if not slop:
                    break
                continue
            if self.until is not None and times[n] > self.until:
                continue
            youngest = times[n]
            found.append(n)
        return found

    def shown(self, ordered: Sequence[int]) -> list[int]:
        """`ordered` without what the hidden side reaches."""
        marked = self._marked
        left = [n for n in ordered if n not in marked]
        if not left or not self._hidden:
            return left
        level = self.history.level
        reached = self.history.ancestors(self._hidden, min([level(n) for n in left]))
        return [n for n in left if n not in reached]

    def _expand(self, n: int, hide: bool) -> tuple[int, ...]:
        """The parents by which the walk goes on from `n`."""
        load, read = self.history.load, self._read
        if hide:
            parents = self.parents_of(n)
            for parent in parents:
                self._mark(parent)
                load(parent)
                read.add(parent)
                self._mark_parents(parent)
            return parents
        parents = self.history.load(n)
        if self.paths is not None:
            read.update(parents[:1] if self.first_parent else parents)
            parents, same = self.paths.simplify(n, parents, self.first_parent, self._relevant)
            if same:
                self.treesame.add(n)
            self._simplified[n] = parents
        if self.first_parent:
            parents = parents[:1]
        for parent in parents:
            load(parent)
        read.update(parents)
        return parents

    def _relevant(self, n: int) -> bool:
        return n not in self._marked or n in self._bottom

    def _mark(self, n: int) -> None:
        self._marked.add(n)
        self._wanted.discard(n)

    def _mark_parents(self, n: int) -> None:
        """Mark all ancestors of `n` that this walk knows already."""
        marked, read = self._marked, self._read
        stack = list(self.parents_of(n))
        while stack:
            n = stack.pop()
            if n not in marked:
                self._mark(n)
                if n in read:
                    stack.extend(self.parents_of(n))
