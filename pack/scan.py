"""Walks over a commit graph, each a single pass over its columns.

Parents have lower numbers than their children, so going down the numbers meets a commit after everything that reaches
it: what is to be known of a commit is known at its turn. The places of `Graph.by_time` are by time instead, as git's
own walk goes; there a commit may be met after its place was passed, where clocks are wrong.
Marks are bytes, one a commit, so that the next one marked is found without a step for those between; mostly it is the
very next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final

from pack.graph import MANY, NONE

if TYPE_CHECKING:
    from pack.graph import Graph

_SET: Final = b"\1"
_WANTED: Final = 1
_HIDDEN: Final = 2
_BOTH: Final = 3
_STALE: Final = 4


class _Queue:
    """Commits that were met and not yet taken, by the rule of git's default order.

    The youngest comes first, equal times as they were met. `at` is the place that was reached: whoever belongs further
    on is marked at its place, whoever belongs before it or beside it (those of one time all count as one place) waits
    in `late` and comes before all that lies ahead. `met` says when a commit was met whose time others have, too.
    """

    def __init__(self, graph: Graph) -> None:
        self.order, self.places, self.tied = graph.by_time()
        self.times = graph.times
        self.marks = bytearray(graph.count + 1)
        self.met: dict[int, int] = {}
        self.late: list[tuple[int, int, int]] = []

    def begin(self, numbers: Sequence[int]) -> None:
        """Meet the first commits, in this order."""
        for counter, n in enumerate(numbers):
            place = self.places[n]
            self.marks[place] = 1
            self.met[place] = counter

    def gather(self, at: int) -> int:
        """Put all that are marked and have the time of place `at` into `late`; the last place of that time."""
        end = at + 1
        while self.tied[end] == 1:
            end += 1
        while 0 <= at < end:
            n = self.order[at]
            heappush(self.late, (-self.times[n], self.met[at], n))
            at = self.marks.find(_SET, at + 1)
        return end - 1


def scan(
    graph: Graph, tips: Sequence[int], *, first_parent: bool = False, inside: bytearray | None = None
) -> Iterator[int]:
    """All that `tips` reach in git's default order. `tips` are distinct, in the order in which they are met.

    With `inside` only commits that are marked there, by number, count.
    """
    queue = _Queue(graph)
    queue.begin(tips)
    order, places, tied, marks, met, late = queue.order, queue.places, queue.tied, queue.marks, queue.met, queue.late
    one, two, many, times = graph.one, graph.two, graph.many, graph.times
    find = marks.find
    counter = len(tips)
    at = find(_SET)
    while at >= 0:
        if tied[at]:
            at = queue.gather(at)
            n = heappop(late)[2]
        else:
            n = order[at]
        while True:
            yield n
            first, second = one[n], two[n]
            if first != NONE:
                if second == NONE or first_parent:
                    parents: tuple[int, ...] = (first,)
                else:
                    parents = (first, second) if second != MANY else many[n]
                for parent in parents:
                    place = places[parent]
                    if not marks[place] and (inside is None or inside[parent]):
                        marks[place] = 1
                        if place <= at:
                            heappush(late, (-times[parent], counter, parent))
                            counter += 1
                        elif tied[place]:
                            met[place] = counter
                            counter += 1
            if not late:
                break
            n = heappop(late)[2]
        at += 1
        if not marks[at]:
            at = find(_SET, at)


def within(graph: Graph, tips: Sequence[int], hidden: Sequence[int], *, first_parent: bool = False) -> list[int]:
    """As `scan`, without what `hidden` reach by any parents."""
    if not hidden:
        return list(scan(graph, tips, first_parent=first_parent))
    inside = _inside(graph, tips, hidden, first_parent)
    tips = [n for n in tips if inside[n]]
    return list(scan(graph, tips, first_parent=first_parent, inside=inside)) if tips else []


def _inside(graph: Graph, tips: Sequence[int], hidden: Sequence[int], first_parent: bool) -> bytearray:
    """What `tips` reach and `hidden` do not: a mark for each number."""
    one, two, many = graph.one, graph.two, graph.many
    pending, colours, inside = bytearray(graph.count), bytearray(graph.count), bytearray(graph.count)
    rfind = pending.rfind
    for n in tips:
        pending[n] = 1
    n = max(hidden) + 1
    _spread(graph, pending, n, first_parent)
    inside[n:] = pending[n:]
    colours[:n] = pending[:n]
    for other in hidden:
        colours[other] |= _HIDDEN
        pending[other] = 1
    left = colours.count(_WANTED, 0, n)  # of the pending ones, those that are wanted
    while left:
        n -= 1
        if not pending[n]:
            n = rfind(_SET, 0, n)
        wanted = colours[n] == _WANTED
        if wanted:
            left -= 1
            inside[n] = 1
        first, second = one[n], two[n]
        if first == NONE:
            continue
        if second == NONE or (first_parent and wanted):
            parents: tuple[int, ...] = (first,)
        else:
            parents = (first, second) if second != MANY else many[n]
        for parent in parents:
            old = colours[parent]
            if wanted:
                if not old:
                    colours[parent] = pending[parent] = 1
                    left += 1
            elif old < _HIDDEN:
                colours[parent] = old | _HIDDEN
                left -= old
                pending[parent] = 1
    return inside


def _spread(graph: Graph, marks: bytearray, low: int, first_parent: bool = False) -> None:
    """Mark what the marked ones reach: parents of all that are not below `low`."""
    top = marks.rfind(_SET) + 1
    if top <= low:
        return
    many = graph.many
    # Backwards over the very marks that are being set.
    backwards = islice(reversed(marks), len(marks) - top, None)
    rows = zip(range(top - 1, low - 1, -1), backwards, graph.one[low:top][::-1], graph.two[low:top][::-1], strict=False)
    for n, mark, first, second in rows:
        if mark and first != NONE:
            marks[first] = 1
            if second != NONE and not first_parent:
                if second != MANY:
                    marks[second] = 1
                else:
                    for parent in many[n]:
                        marks[parent] = 1


def topological(graph: Graph, listed: Sequence[int]) -> list[int]:
    """`listed` (distinct, in walking order) so that children come first, one line of history after the other."""
    one, two, many = graph.one, graph.two, graph.many
    waiting = _waiting(graph, listed)
    stack = [n for n in listed if waiting[n] == 1]
    stack.reverse()
    found = []
    while stack:
        n = stack.pop()
        found.append(n)
        first, second = one[n], two[n]
        if first != NONE:
            for parent in (first,) if second == NONE else (first, second) if second != MANY else many[n]:
                count = waiting[parent]
                if count:
                    waiting[parent] = count - 1
                    if count == 2:
                        stack.append(parent)
    return found


def dated(graph: Graph, listed: Sequence[int]) -> list[int]:
    """`listed` so that children come first, and of those that may come next the youngest, equal times as they came."""
    queue = _Queue(graph)
    order, places, tied, marks, met, late = queue.order, queue.places, queue.tied, queue.marks, queue.met, queue.late
    one, two, many, times = graph.one, graph.two, graph.many, graph.times
    waiting = _waiting(graph, listed)
    tips = [n for n in listed if waiting[n] == 1]
    queue.begin(tips)
    find = marks.find
    counter = len(tips)
    found = []
    at = find(_SET)
    while at >= 0:
        if tied[at]:
            at = queue.gather(at)
            n = heappop(late)[2]
        else:
            n = order[at]
        while True:
            found.append(n)
            first, second = one[n], two[n]
            if first != NONE:
                for parent in (first,) if second == NONE else (first, second) if second != MANY else many[n]:
                    count = waiting[parent]
                    if not count:
                        continue
                    waiting[parent] = count - 1
                    if count != 2:
                        continue
                    place = places[parent]
                    marks[place] = 1
                    if place <= at:
                        heappush(late, (-times[parent], counter, parent))
                        counter += 1
                    elif tied[place]:
                        met[place] = counter
                        counter += 1
            if not late:
                break
            n = heappop(late)[2]
        at += 1
        if not marks[at]:
            at = find(_SET, at)
    return found


def _waiting(graph: Graph, listed: Sequence[int]) -> list[int]:
    """By number: 0 for what is not listed, else one more than its listed children."""
    one, two, many = graph.one, graph.two, graph.many
    waiting = [0] * graph.count
    for n in listed:
        waiting[n] = 1
    for n in listed:
        first, second = one[n], two[n]
        if first != NONE:
            for parent in (first,) if second == NONE else (first, second) if second != MANY else many[n]:
                if waiting[parent]:
                    waiting[parent] += 1
    return waiting


def apart(graph: Graph, base: int, head: int) -> tuple[int, int, list[int]]:
    """(commits that only `head` reaches, those that only `base` reaches, the merge bases in no order of meaning)."""
    counts, bases = _painted(graph, [head], [base])
    return counts[_WANTED], counts[_HIDDEN], bases


def common(graph: Graph, one: int, others: Sequence[int]) -> list[int]:
    """The best common ancestors of `one` and the hypothetical merge of the others, in no order of meaning."""
    return _painted(graph, [one], others, counted=False)[1]


def _painted(
    graph: Graph, wanted: Sequence[int], hidden: Sequence[int], *, counted: bool = True
) -> tuple[list[int], list[int]]:
    """(how many commits have each colour, unless they need not be `counted`; those of both colours that none of both
    colours reaches).

    The painting ends where all that is left is below one of the latter.
    """
    one, two, many = graph.one, graph.two, graph.many
    pending, colours = bytearray(graph.count), bytearray(graph.count)
    rfind = pending.rfind
    # Down to where both colours are there is but one to spread.
    colour, upper, lower = _WANTED, wanted, hidden
    if max(wanted) < max(hidden):
        colour, upper, lower = _HIDDEN, hidden, wanted
    for n in upper:
        pending[n] = 1
    n = max(lower) + 1
    _spread(graph, pending, n)
    counts = [0, 0, 0, 0]
    if not counted and len(lower) == 1 and pending[lower[0]]:
        return counts, [lower[0]]
    counts[colour] = pending.count(_SET, n)
    colours[:n] = pending[:n].replace(_SET, bytes((colour,)))
    for other in lower:
        colours[other] |= _BOTH - colour
        pending[other] = 1
    bases = []
    fresh = pending.count(_SET, 0, n)  # of the pending ones, those that are not below a base
    while fresh:
        n -= 1
        if not pending[n]:
            n = rfind(_SET, 0, n)
        colour = colours[n]
        if colour < _STALE:
            fresh -= 1
            counts[colour] += 1
            if colour == _BOTH:
                bases.append(n)
                colour |= _STALE
        first, second = one[n], two[n]
        if first != NONE:
            for parent in (first,) if second == NONE else (first, second) if second != MANY else many[n]:
                old = colours[parent]
                if not old:
                    colours[parent] = colour
                    pending[parent] = 1
                    if colour < _STALE:
                        fresh += 1
                elif old | colour != old:
                    colours[parent] = new = old | colour
                    if old < _STALE <= new:
                        fresh -= 1
    return counts, bases


def reaches(graph: Graph, ancestor: int, descendant: int, most: float = inf) -> bool | None:
    """Whether `descendant` reaches `ancestor`; a commit reaches itself. None where `most` commits do not tell."""
    levels, parents_of = graph.levels, graph.parents
    floor = levels[ancestor]
    seen = {descendant}
    stack = [descendant]
    while stack:
        n = stack.pop()
        if n == ancestor:
            return True
        if len(seen) > most:
            return None
        for parent in parents_of(n):
            if parent >= ancestor and (levels[parent] > floor or parent == ancestor) and parent not in seen:
                seen.add(parent)
                stack.append(parent)
    return False
