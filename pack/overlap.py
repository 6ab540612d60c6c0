"""What each of many blobs shares with each of many others, without a look at every pair.

Two blobs share of each span the lesser of its weights. A span that few hold is added up pair by pair. For one that many
hold, a big integer has a lane for each blob of one side: one addition gives a blob of the other side what it shares
with all of them.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Final

from pack.similarity import Spans

# What things take, in about nanoseconds.
_PAIR: Final = 80
_ADDITION: Final = 500
_LANE: Final = 1
_LANES_MADE: Final = 40
_ENTRY: Final = 400

_SHIFT: Final = 32
_WEIGHT: Final = (1 << _SHIFT) - 1


class Overlap:
    """The bytes that blobs, given by their spans, share with others."""

    def __init__(self, blobs: Sequence[Spans], others: Sequence[Spans]) -> None:
        self._blobs, self._others = blobs, others
        common = set[int]().union(*blobs) & set[int]().union(*others)
        self._holders = _holders(blobs, common)
        self._partners = _holders(others, common)
        held, met = _entries(self._holders), _entries(self._partners)
        # Lanes are of the side for which there is less to add.
        self._turned = held * (_ADDITION + _LANE * len(others)) > met * (_ADDITION + _LANE * len(blobs))
        if self._turned:
            self._blobs, self._others = others, blobs
            self._holders, self._partners = self._partners, self._holders
        self.effort = (held + met) * _ENTRY + sum(map(self._effort, common))

    def _effort(self, span: int) -> int:
        holders, partners = len(self._holders[span]), len(self._partners[span])
        return min(_PAIR * holders * partners, self._effort_of_lanes(holders))

    def _effort_of_lanes(self, holders: int) -> int:
        return holders * (_ADDITION + _LANE * len(self._others)) + _LANES_MADE * len(self._others)

    def rows(self) -> Iterator[Sequence[int]]:
        """For each blob in order, the bytes that it shares with each of the others."""
        cells = self._added_up()
        blobs, lanes = len(self._blobs), len(self._others)
        if self._turned:
            yield from (cells[at::lanes] for at in range(lanes))
        else:
            yield from (cells[at * lanes : (at + 1) * lanes] for at in range(blobs))

    def _added_up(self) -> array[int]:
        lanes = len(self._others)
        # What is shared is no more than either blob, so no lane runs over into the next.
        most = min(_heaviest(self._blobs), _heaviest(self._others))
        cells = array("H" if most < 1 << 16 else "I", [0]) * (len(self._blobs) * lanes)
        frequent: list[int] = []
        for span, holders in self._holders.items():
            partners = self._partners[span]
            if _PAIR * len(holders) * len(partners) > self._effort_of_lanes(len(holders)):
                frequent.append(span)
                continue
            weights = [(packed >> _SHIFT, packed & _WEIGHT) for packed in partners]
            for packed in holders:
                weight, first = packed & _WEIGHT, (packed >> _SHIFT) * lanes
                for partner, other in weights:
                    cells[first + partner] += other if other < weight else weight
        return self._with_frequent(cells, frequent) if frequent else cells

    def _with_frequent(self, cells: array[int], frequent: Sequence[int]) -> array[int]:
        lanes = len(self._others)
        width = lanes * cells.itemsize
        totals = [int.from_bytes(cells[at : at + lanes], sys.byteorder) for at in range(0, len(cells), lanes)]
        for span in frequent:
            weights = [0] * lanes
            for packed in self._partners[span]:
                weights[packed >> _SHIFT] = packed & _WEIGHT
            most = max(weights)
            added: dict[int, int] = {}
            for packed in self._holders[span]:
                weight = min(packed & _WEIGHT, most)
                if weight not in added:
                    shared = array(cells.typecode, [other if other < weight else weight for other in weights])
                    added[weight] = int.from_bytes(shared, sys.byteorder)
                totals[packed >> _SHIFT] += added[weight]
        return array(cells.typecode, b"".join([total.to_bytes(width, sys.byteorder) for total in totals]))


def _holders(blobs: Sequence[Spans], common: set[int]) -> dict[int, array[int]]:
    """Span → of each blob that holds it the number, and in the lower half the weight."""
    found = {span: array("Q") for span in common}
    for number, spans in enumerate(blobs):
        upper = number << _SHIFT
        for span, weight in spans.items():
            if span in found:
                found[span].append(upper | weight)
    return found


def _entries(holders: dict[int, array[int]]) -> int:
    return sum(map(len, holders.values()))


def _heaviest(blobs: Sequence[Spans]) -> int:
    return max([sum(spans.values()) for spans in blobs], default=0)
