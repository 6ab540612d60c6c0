"""The default order of git-log(1) for paths of which an index knows what changes them: only such commits are taken.

What lies between, each commit like its first parent, is passed by in one leap (`Touched.leap`). None of it is older
than where the leap ends, so that the walk which takes every commit would reach that place in its turn, by its time. Of
equal times that walk takes first what it met first, that is, whose predecessor it took first. It takes commits at ever
earlier moments: a moment is the time of the oldest commit taken until then. So the earlier moment decides; where the
moments are equal, too, the walk is done with every commit.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from pack import frontier
from pack.frontier import Ahead, Frontier, Way, by_time

if TYPE_CHECKING:
    from pack.history import History
    from pack.pathindex import Touched
    from pack.simplify import Paths


class Leaps:
    """A walk that takes commits as `Frontier` does, but few of those that are TREESAME."""

    def __init__(self, history: History, way: Way, paths: Paths, touched: Touched) -> None:
        self._history = history
        self._way = way
        self._paths = paths
        self._touched = touched
        self.taken = 0
        self.treesame = False
        self._last: int | None = None
        self._moment: float = inf
        self._doubt: int | None = None
        self._loose: frozenset[int] = frozenset()
        self._done: set[int] = set()
        # (-time, -moment when it was met, order, the commit by which it was met, the commit)
        self._queue: list[tuple[int, float, int, int, int]] = []
        self._best: dict[int, float] = {}
        self._counter = 0
        self._every: Frontier | None = None

    def begin(self) -> Leaps:
        for n in by_time(self._history, map(self._history.number, self._way.tips)):
            found = self._touched.leap(n, -1)
            if found is not None:
                self._push(*found)
        return self

    def resume(self, taken: int, last: int, ahead: Ahead) -> Leaps:
        self.taken = taken
        self._last = last
        self._moment = self._doubt = ahead.oldest
        for n in ahead.numbers:
            self._put(n, -1, inf)
        if ahead.leapt:
            self._loose = frozenset(self._history.times[n] for n in ahead.numbers)
        return self

    def skip_to(self, n: int) -> bool:
        """Take all up to this commit; whether it came."""
        while (taken := self.take()) is not None:
            if taken == n:
                return True
        return False

    def _push(self, n: int, before: int) -> None:
        # The one by which a leap ends was taken at its own time, or at once.
        self._put(n, before, min(self._history.times[before], self._moment) if before >= 0 else inf)

    def _put(self, n: int, before: int, moment: float) -> None:
        if n in self._done or moment < self._best.get(n, -inf):
            return
        self._best[n] = moment
        heappush(self._queue, (-self._history.times[n], -moment, self._counter, before, n))
        self._counter += 1

    def take(self) -> int | None:
        if self._every is not None:
            return self._take_every()
        queue, history, way = self._queue, self._history, self._way
        while queue and queue[0][4] in self._done:
            heappop(queue)
        if not queue:
            return None
        n = queue[0][4]
        time = -queue[0][0]
        if way.since is not None and time < way.since:
            queue.clear()
            return None
        if self._is_unsure():
            every = Frontier(history, way, self._paths).begin()
            if self._last is not None:
                every.skip_to(self._last)
            self._every = every
            return self._take_every()
        parents, treesame = self._paths.simplify(n, history.load(n), way.first_parent)
        met = []
        for parent in parents[:1] if way.first_parent else parents:
            history.load(parent)
            found = self._touched.leap(parent, n)
            if found is not None:
                when = history.times[found[0]]
                if self._doubt is not None and (when >= self._doubt or when in self._loose):
                    self._do_over()
                    return self.take()
                met.append(found)
        # Nothing above changed the walk: whatever it lacked, it can be asked again.
        heappop(queue)
        self._done.add(n)
        self.taken += 1
        self._last = n
        self.treesame = treesame
        self._moment = min(self._moment, time)
        for each in met:
            self._push(*each)
        return n

    def _is_unsure(self) -> bool:
        """Whether another commit may come first as well."""
        queue = self._queue
        top = queue[0]
        if not any(item[:2] == top[:2] for item in queue[1:3]):
            return False
        return any(item[:2] == top[:2] and item[4] != top[4] and item[3] != top[3] for item in queue)

    def _take_every(self) -> int | None:
        assert self._every is not None
        n = self._every.take()
        self.taken, self.treesame = self._every.taken, self._every.treesame
        return n

    def _do_over(self) -> None:
        whole = Leaps(self._history, self._way, self._paths, self._touched).begin()
        assert self._last is not None
        whole.skip_to(self._last)
        self.__dict__.update(whole.__dict__)

    def ahead(self) -> Ahead | None:
        """None where there is too much to tell."""
        if self._every is not None:
            return self._every.ahead()
        if self._last is None or len(self._queue) > 2 * frontier.MAX_FRONTIER:
            return None
        numbers = list(dict.fromkeys(item[4] for item in sorted(self._queue) if item[4] not in self._done))
        return Ahead(int(self._moment), numbers, True) if len(numbers) <= frontier.MAX_FRONTIER else None
