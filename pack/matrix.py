"""The best sources of each target out of many."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

from pack import similarity
from pack.candidates import Candidates, base_name
from pack.overlap import Overlap
from pack.similarity import MAX_SCORE

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
    """The best sources of each target out of all that are open."""

    def __init__(self, search: Candidates, reach: Reach) -> None:
        self._search = search
        self._sources = search.open_sources
        self._names = [base_name(search.sources[source].old_path) for source in self._sources]
        sizes = [search.size_of_source(source) for source in self._sources]
        self._sizes = [-1 if size is None else size for size in sizes]
        sources = [search.spans_of_source(source) for source in self._sources]
        held = set[int]().union(*sources)
        self._targets = [
            target for target in search.open_targets if target in reach.targets and self._open(target, held)
        ]
        self._overlap = Overlap([search.spans_of_target(target) for target in self._targets], sources)
        self.effort = self._overlap.effort

    def _open(self, target: int, held: set[int]) -> bool:
        """Whether the minimum is not out of reach even of what all sources hold together."""
        spans = self._search.spans_of_target(target)
        most = sum(map(spans.__getitem__, spans.keys() & held))
        return most * MAX_SCORE >= self._search.minimum * (self._search.size_of_target(target) or 0)

    def best(self) -> Iterator[tuple[int, list[Candidate]]]:
        """Each target with up to four sources of at least the minimum, as they stand in git's slots."""
        for target, shared in zip(self._targets, self._overlap.rows(), strict=True):
            points = self._points(self._search.size_of_target(target) or 0, shared)
            if points:
                slots = self._slots(base_name(self._search.targets[target].new_path), points)
                yield target, [candidate for candidate in slots if candidate[0] >= self._search.minimum]

    def _points(self, size: int, shared: Sequence[int]) -> list[int]:
        """The scores of all sources, 0 where sizes alone rule the minimum out; none if it is out of reach for all."""
        minimum = self._search.minimum
        most = max(shared, default=0)
        if not most or most * MAX_SCORE < minimum * size:
            return []
        low, high = similarity.sizes_within_reach(size, minimum)
        return [
            common * MAX_SCORE // (other if other > size else size) if low <= other <= high else 0
            for common, other in zip(shared, self._sizes, strict=True)
        ]

    def _slots(self, name: bytes, points: Sequence[int]) -> list[Candidate]:
        """git's four slots: filled in order, then the first of the worst gives way to what is better.

        Equals among the good ones so stand in an order that the worse ones before them decide.
        """
        slots: list[Candidate] = []
        worst = bar = 0
        for number, score in enumerate(points):
            if score < bar:
                continue
            candidate = (score, int(self._names[number] == name), self._sources[number])
            if len(slots) < _CANDIDATES:
                slots.append(candidate)
            elif candidate[:2] > slots[worst][:2]:
                slots[worst] = candidate
            else:
                continue
            if len(slots) == _CANDIDATES:
                worst = min(range(_CANDIDATES), key=lambda slot: slots[slot][:2])
                bar = slots[worst][0] + slots[worst][1]
        return slots
