"""The default order of git-log(1), one commit at a time: the youngest of those met comes next, equal times as met."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pack.history import History
    from pack.simplify import Paths

MAX_FRONTIER: Final = 32


class Ahead(NamedTuple):
    """Where a walk in the default order stands: the time of the oldest commit taken, and those met and not yet taken.

    `leapt`: they were met before those on the way to them were, so that of equal times another may come first.
    """

    oldest: int
    numbers: list[int]
    leapt: bool = False


class Way(NamedTuple):
    """What of a query decides how a walk goes on."""

    tips: Sequence[bytes]
    first_parent: bool
    since: int | None


def by_time(history: History, numbers: Iterable[int]) -> list[int]:
    """In the order in which a walk takes them that meets all at once."""
    times = history.times
    return sorted(dict.fromkeys(numbers), key=lambda n: -times[n])


class Frontier:
    """A walk that takes every commit.

    One that was taken up again knows what lies ahead, not what was passed. That matters only for a commit no older than
    the oldest one passed, as equal times and wrong clocks make them: then the walk is done over.
    """

    def __init__(self, history: History, way: Way, paths: Paths | None) -> None:
        self._history = history
        self._way = way
        self._paths = paths
        self.taken = 0
        self.treesame = False
        self._last: int | None = None
        self._oldest: int | None = None  # of those taken
        self._doubt: int | None = None  # time from which on a commit may have been taken before this feed began
        self._loose: frozenset[int] = frozenset()  # times of commits that may have been met too early
        self._seen: set[int] = set()
        self._queue: list[tuple[int, int, int]] = []
        self._counter = 0

    def begin(self) -> Frontier:
        for n in by_time(self._history, map(self._history.number, self._way.tips)):
            self._push(n)
        return self

    def resume(self, taken: int, last: int, ahead: Ahead) -> Frontier:
        self.taken = taken
        self._last = last
        self._oldest = self._doubt = ahead.oldest
        for n in ahead.numbers:
            self._push(n)
        if ahead.leapt:
            self._loose = frozenset(self._history.times[n] for n in ahead.numbers)
        return self

    def skip_to(self, n: int) -> bool:
        """Take all up to this commit; whether it came."""
        while (taken := self.take()) is not None:
            if taken == n:
                return True
        return False

    def _push(self, n: int) -> None:
        self._seen.add(n)
        heappush(self._queue, (-self._history.times[n], self._counter, n))
        self._counter += 1

    def take(self) -> int | None:
        way, history, seen = self._way, self._history, self._seen
        if not self._queue:
            return None
        negative, _, n = self._queue[0]
        time = -negative
        if way.since is not None and time < way.since:
            # Nothing ahead is younger, and what is too old is not followed.
            self._queue.clear()
            return None
        parents = history.load(n)
        treesame = False
        if self._paths is not None:
            parents, treesame = self._paths.simplify(n, parents, way.first_parent)
        if way.first_parent:
            parents = parents[:1]
        new = []
        for parent in parents:
            if parent not in seen:
                history.load(parent)
                met = history.times[parent]
                if self._doubt is not None and (met >= self._doubt or met in self._loose):
                    self._do_over()
                    return self.take()
                new.append(parent)
        # Nothing above changed the walk: whatever it lacked, it can be asked again.
        heappop(self._queue)
        self.taken += 1
        self._last = n
        self.treesame = treesame
        if self._oldest is None or time < self._oldest:
            self._oldest = time
        for parent in new:
            if parent not in seen:
                self._push(parent)
        return n

    def _do_over(self) -> None:
        whole = Frontier(self._history, self._way, self._paths).begin()
        assert self._last is not None
        whole.skip_to(self._last)
        self.__dict__.update(whole.__dict__)

    def ahead(self) -> Ahead | None:
        """None where there is too much to tell."""
        if len(self._queue) > MAX_FRONTIER or self._oldest is None:
            return None
        return Ahead(self._oldest, [n for _, _, n in sorted(self._queue)])
