"""Common ancestors (git-merge-base(1)) and how far branches are apart.

A merge base is a common ancestor that no other common ancestor descends from. Colours are painted downwards by commit
time: what both sides reach is common, its ancestors are stale. The painting goes on until only stale commits are
left, and what it found is then reduced, so wrong clocks cost time but change no answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from pack.history import History

if TYPE_CHECKING:
    from pack.view import View

_ONE: Final = 1
_TWO: Final = 2
_BOTH: Final = 3
_STALE: Final = 4
_NUMBER_BITS: Final = 32
_NUMBER_MASK: Final = (1 << _NUMBER_BITS) - 1


class Apart(NamedTuple):
    """How many commits only the head reaches, how many only the base; and the merge base, None where unrelated."""

    ahead: int
    behind: int
    merge_base: bytes | None


def merge_bases(view: View, oids: Sequence[bytes]) -> list[bytes]:
    """All best common ancestors of the first commit and the hypothetical merge of the others, in git's order.

    Youngest first. Empty where the histories are unrelated.
    """
    history = History(view)
    one, *twos = [history.number(oid) for oid in oids]
    if one in twos:
        return [oids[0]]
    colours, met = _paint(history, one, twos)
    found = _by_time(history, [n for n in _by_time(history, met) if not colours[n] & _STALE])
    if len(found) > 1:
        found = _by_time(history, _independent(history, found))
    return [history.oids[n] for n in found]


def is_ancestor(view: View, ancestor: bytes, descendant: bytes) -> bool:
    """Whether `descendant` reaches `ancestor`; a commit reaches itself."""
    history = History(view)
    one, two = history.number(ancestor), history.number(descendant)
    return one == two or bool(_paint(history, one, [two])[0][one] & _TWO)


def ahead_behind(view: View, base: bytes, heads: Iterable[bytes]) -> list[Apart]:
    """For each head, as `git rev-list --left-right --count head...base` counts; exact whatever the clocks say."""
    history = History(view)
    start = history.number(base)
    known: dict[bytes, Apart] = {}
    for head in heads:
        if head not in known:
            known[head] = _apart(history, history.number(head), start)
    return [known[head] for head in heads]


def _by_time(history: History, numbers: Iterable[int]) -> list[int]:
    times = history.times
    return sorted(numbers, key=lambda n: -times[n])


def _paint(history: History, one: int, twos: Sequence[int]) -> tuple[dict[int, int], list[int]]:
    """Colours of what was reached, and the commits that were first seen to be common, in that order."""
    times, load = history.times, history.load
    colours = {one: _ONE}
    if not twos:
        return colours, [one]
    queue: list[tuple[int, int, int]] = [(-times[one], 0, one)]
    queued: dict[int, int] = {one: 1}  # a commit comes again when it gets another colour
    for counter, two in enumerate(twos, 1):
        colours[two] = colours.get(two, 0) | _TWO
        queue.append((-times[two], counter, two))
        queued[two] = queued.get(two, 0) + 1
    heapify(queue)
    counter = fresh = len(queue)  # fresh: of the queue, those not stale
    met: dict[int, None] = {}
    while fresh:
        n = heappop(queue)[2]
        queued[n] -= 1
        colour = colours[n]
        if not colour & _STALE:
            fresh -= 1
        if colour == _BOTH:
            met[n] = None
            colour |= _STALE
        for parent in load(n):
            old = colours.get(parent, 0)
            if old & colour == colour:
                continue
            load(parent)
            new = colours[parent] = old | colour
            waiting = queued.get(parent, 0)
            if new & _STALE and not old & _STALE:
                fresh -= waiting
            queued[parent] = waiting + 1
            heappush(queue, (-times[parent], counter, parent))
            counter += 1
            if not new & _STALE:
                fresh += 1
    return colours, list(met)


def _independent(history: History, numbers: list[int]) -> list[int]:
    """Those that none of the others reaches."""
    redundant: set[int] = set()
    for n in numbers:
        others = [other for other in numbers if other != n and other not in redundant]
        if n in redundant or not others:
            continue
        colours, _ = _paint(history, n, others)
        if colours[n] & _TWO:
            redundant.add(n)
        redundant.update(other for other in others if colours[other] & _ONE)
    return [n for n in numbers if n not in redundant]


def _apart(history: History, head: int, base: int) -> Apart:
    """Walk down by level: when a commit's turn comes, all that reach it have had theirs, and its colour is final."""
    if head == base:
        return Apart(0, 0, history.oids[head])
    levels, parents_of = history.levels, history.load
    # One number holds level and commit: comparing tuples would take most of the time.
    queue = [-(history.level(n) << _NUMBER_BITS | n) for n in (head, base)]
    heapify(queue)
    colours = {head: _ONE, base: _TWO}
    counts = [0, 0, 0, 0]
    bases: list[int] = []
    fresh = 2  # of the queue, those not stale
    while fresh:
        n = -heappop(queue) & _NUMBER_MASK
        colour = colours.pop(n)
        if colour < _STALE:
            fresh -= 1
            counts[colour] += 1
            if colour == _BOTH:
                bases.append(n)
                colour |= _STALE
        for parent in parents_of(n):
            old = colours.get(parent)
            if old is None:
                colours[parent] = colour
                heappush(queue, -(levels[parent] << _NUMBER_BITS | parent))
                if colour < _STALE:
                    fresh += 1
            elif old | colour != old:
                colours[parent] = old | colour
                if old < _STALE <= colour:
                    fresh -= 1
    return Apart(counts[_ONE], counts[_TWO], _best(history, base, head, bases))


def _best(history: History, base: int, head: int, bases: list[int]) -> bytes | None:
    """The first merge base in git's order."""
    if not bases:
        return None
    youngest = max([history.times[n] for n in bases])
    first = [n for n in bases if history.times[n] == youngest]
    if len(first) == 1:
        return history.oids[first[0]]
    # Between equal times the order of git's own walk decides.
    return merge_bases(history.view, [history.oids[base], history.oids[head]])[0]
