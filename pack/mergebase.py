"""Common ancestors (git-merge-base(1)) and how far branches are apart.

A merge base is a common ancestor that no other common ancestor descends from. Colours are painted downwards by commit
time: what both sides reach is common, its ancestors are stale. The painting goes on until only stale commits are
left, and what it found is then reduced, so wrong clocks cost time but change no answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from pack.history import History
from pack.scan import apart, common, reaches

if TYPE_CHECKING:
    from pack.view import View

_ONE: Final = 1
_TWO: Final = 2
_BOTH: Final = 3
_STALE: Final = 4
_FEW: Final = 4  # heads that are counted one by one sooner than all at once
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
    if not twos or one in twos:
        return [oids[0]]
    graph = history.covering([one, *twos])
    if graph is not None:
        found = _by_time(history, common(graph, one, twos))
        if len({history.times[n] for n in found}) == len(found):
            return [history.oid(n) for n in found]
        # Between equal times the order of git's own walk decides.
    colours, met = _paint(history, one, twos)
    found = _by_time(history, [n for n in _by_time(history, met) if not colours[n] & _STALE])
    if len(found) > 1:
        found = _by_time(history, _independent(history, found))
    return [history.oid(n) for n in found]


def is_ancestor(view: View, ancestor: bytes, descendant: bytes) -> bool:
    """Whether `descendant` reaches `ancestor`; a commit reaches itself."""
    history = History(view)
    one, two = history.number(ancestor), history.number(descendant)
    graph = history.covering([one, two])
    if graph is not None:
        return bool(reaches(graph, one, two))
    return one == two or bool(_paint(history, one, [two])[0][one] & _TWO)


def ahead_behind(view: View, base: bytes, heads: Sequence[bytes]) -> list[Apart]:
    """For each head, as `git rev-list --left-right --count head...base` counts; exact whatever the clocks say."""
    history = History(view)
    distinct = list(dict.fromkeys(heads))
    one, numbers = history.number(base), [history.number(head) for head in distinct]
    graph = history.covering([one, *numbers])
    if graph is not None and len(numbers) <= _FEW:
        found = []
        for head in numbers:
            ahead, behind, bases = apart(graph, one, head)
            found.append(Apart(ahead, behind, _best(history, one, head, bases)))
    else:
        found = _apart(history, one, numbers)
    known = dict(zip(distinct, found, strict=True))
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


def _apart(history: History, base: int, heads: Sequence[int]) -> list[Apart]:
    """Walk down once for all heads, by level: at a commit's turn, all that reach it have had theirs.

    A commit's state is one number. Its lower half says by whom the commit is reached, a bit for each head and one for
    the base; its upper half for which heads it is stale, being below one that head and base have in common.
    """
    levels, parents_of = history.levels, history.load
    everyone = (1 << len(heads)) - 1
    of_base = everyone + 1
    width = len(heads) + 1
    reached_bits = (1 << width) - 1
    all_stale = everyone << width
    states: dict[int, int] = {}
    for bit, n in [(of_base, base), *((1 << i, n) for i, n in enumerate(heads))]:
        states[n] = states.get(n, 0) | bit
    # One number holds level and commit: comparing tuples would take most of the time.
    queue = [-(history.level(n) << _NUMBER_BITS | n) for n in states]
    heapify(queue)
    fresh = len(queue)  # of the queue, those that are not stale for all heads
    reached: dict[int, int] = {}  # by whom → how many commits
    bases: dict[int, list[int]] = {}  # for which heads → merge bases
    while fresh:
        n = -heappop(queue) & _NUMBER_MASK
        state = states.pop(n)
        if state < all_stale:
            fresh -= 1
            by = state & reached_bits
            reached[by] = reached.get(by, 0) + 1
            if by > of_base:
                common = by - of_base
                new = common & ~(state >> width)
                if new:
                    bases.setdefault(new, []).append(n)
                    state |= common << width
        for parent in parents_of(n):
            old = states.get(parent)
            if old is None:
                states[parent] = state
                heappush(queue, -(levels[parent] << _NUMBER_BITS | parent))
                if state < all_stale:
                    fresh += 1
            elif old | state != old:
                states[parent] = joined = old | state
                if old < all_stale <= joined:
                    fresh -= 1
    return _sums(history, base, heads, reached, bases)


def _sums(
    history: History, base: int, heads: Sequence[int], reached: dict[int, int], bases: dict[int, list[int]]
) -> list[Apart]:
    everyone = (1 << len(heads)) - 1
    ahead, behind = [0] * len(heads), [0] * len(heads)
    found: list[list[int]] = [[] for _ in heads]
    for by, count in reached.items():
        if by > everyone:
            for i in _bits(~by & everyone):
                behind[i] += count
        else:
            for i in _bits(by):
                ahead[i] += count
    for heads_of, numbers in bases.items():
        for i in _bits(heads_of):
            found[i].extend(numbers)
    return [
        Apart(ahead[i], behind[i], _best(history, base, head, numbers))
        for i, (head, numbers) in enumerate(zip(heads, found, strict=True))
    ]


def _bits(number: int) -> Iterator[int]:
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


def _best(history: History, base: int, head: int, bases: list[int]) -> bytes | None:
    """The first merge base in git's order."""
    if not bases:
        return None
    youngest = max([history.times[n] for n in bases])
    first = [n for n in bases if history.times[n] == youngest]
    if len(first) == 1:
        return history.oid(first[0])
    # Between equal times the order of git's own walk decides.
    return merge_bases(history.view, [history.oid(base), history.oid(head)])[0]
