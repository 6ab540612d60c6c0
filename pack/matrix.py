"""The best sources of each target out of many, without comparing every pair."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Final

from pack import similarity
from pack.candidates import Candidates
from pack.similarity import MAX_SCORE, Rough

_CANDIDATES: Final = 4  # sources that a target keeps

# (score, same base name, source)
Candidate = tuple[int, int, int]


class Reach:
    """Which sources and targets have a partner whose size leaves room for the minimum; only those are read."""

    def __init__(self, search: Candidates) -> None:
        sources = {i: size for i in search.open_sources if (size := search.size_of_source(i)) is not None}
        targets = {i: size for i in search.open_targets if (size := search.size_of_target(i)) is not None}
        self.sources = _within_reach(sources, targets, search.minimum)
        self.targets = _within_reach(targets, sources, search.minimum)


def _within_reach(these: dict[int, int], those: dict[int, int], minimum: int) -> set[int]:
    # Whoever reaches anyone reaches one of the two neighbours in order of size.
    ordered = sorted(set(those.values()))
    found: set[int] = set()
    for index, size in these.items():
        at = bisect_left(ordered, size)
        if any(similarity.may_reach(size, other, minimum) for other in ordered[max(at - 1, 0) : at + 1]):
            found.add(index)
    return found


class Matrix:
    """The best sources of each target, without scoring the pairs that cannot reach the minimum.

    A source that reaches the minimum shares at least that part of the target's bytes. So it holds one chunk out of
    any set of the target's chunks that weighs more than the rest may: the rarest chunks are looked up in an inverted
    index, the common ones need no look. Only the files of likely pairs are hashed.
    """

    def __init__(self, search: Candidates, reach: Reach) -> None:
        self.search = search
        self.holders: dict[bytes | int, list[int]] = {}
        search.refine()
        for index in search.open_sources:
            if index in reach.sources and (rough := search.rough_of_source(index)) is not None:
                for chunk in rough:
                    self.holders.setdefault(chunk, []).append(index)

    def likely(self, target: int) -> list[int]:
        """Sources that reach the minimum, or would if many of their chunks collided."""
        search = self.search
        new = search.rough_of_target(target)
        if new is None:
            return []
        found: list[int] = []
        for source in sorted(self._partners(target, new)):
            if search.may_reach(source, target, search.minimum):
                old = search.rough_of_source(source)
                assert old is not None
                points = similarity.score(old, new, search.larger_size(source, target))
                if points + similarity.collision_margin(old, new) >= search.minimum:
                    found.append(source)
        return found

    def _partners(self, target: int, new: Rough) -> set[int]:
        holders = self.holders
        # A chunk that no source holds still shares a span with some by chance.
        floor = max(self.search.minimum - similarity.collision_margin(new, new), 1)
        enough = floor * (self.search.size_of_target(target) or 0)
        rest = sum(new.values()) * MAX_SCORE
        partners: set[int] = set()
        rest -= sum([weight for chunk, weight in new.items() if chunk not in holders]) * MAX_SCORE
        for chunk in sorted(new.keys() & holders.keys(), key=lambda chunk: len(holders[chunk])):
            if rest < enough:
                break
            partners.update(holders[chunk])
            rest -= new[chunk] * MAX_SCORE
        return partners

    def best(self, target: int, likely: Sequence[int]) -> list[Candidate]:
        """Up to four of at least the minimum, in the order in which git's stable sort meets equals."""
        search = self.search
        good = [
            (points, search.same_base_name(source, target), source)
            for source in likely
            if (points := search.score_in_matrix(source, target)) >= search.minimum
        ]
        ranks = Counter((points, same) for points, same, _ in good)
        if len(ranks) == len(good):
            return sorted(good, reverse=True)[:_CANDIDATES]
        return self._simulate(target, {source: (points, same, source) for points, same, source in good})

    def _simulate(self, target: int, good: dict[int, Candidate]) -> list[Candidate]:
        """git's four slots: filled in order, then the first of the worst gives way to what is better.

        Equals among the good ones so stand in an order that the worse ones before them decide. What comes after the
        last good one, or once all slots are good, decides nothing.
        """
        search = self.search
        ahead: list[int] = []
        left = len(good)
        for source in search.open_sources:
            if not left or len(good) - left == _CANDIDATES:
                break
            ahead.append(source)
            left -= source in good
        search.hash([(source, target) for source in ahead if search.may_reach(source, target, search.minimum)])
        slots: list[Candidate] = []
        for source in [*ahead, *(source for source in good if source > ahead[-1])]:
            candidate = good.get(source) or (
                search.score_in_matrix(source, target),
                search.same_base_name(source, target),
                source,
            )
            if len(slots) < _CANDIDATES:
                slots.append(candidate)
                continue
            worst = min(range(_CANDIDATES), key=lambda slot: slots[slot][:2])
            if candidate[:2] > slots[worst][:2]:
                slots[worst] = candidate
        return [candidate for candidate in slots if candidate[0] >= search.minimum]
