"""Trees that are searched again and again, kept as text in memory: one bounded cache a process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pack.corpus import Segment, segments
from pack.view import View

MAX_BYTES: Final = 96 << 20
_FILE: Final = 400  # bytes that Python's objects about one file take


class Texts:
    """The segments of one tree, as far as they have been read."""

    def __init__(self, tree: bytes, prefix: bytes) -> None:
        self._tree = tree
        self._prefix = prefix
        self._kept: list[Segment] = []
        self.bytes = 0
        self.complete = False

    def segments(self, view: View, place: list[int] | None = None) -> Iterator[Segment]:
        """All segments in order, but for those that end before `place`; what is read is kept while there is room."""
        last = None
        number = 0
        while number < len(self._kept):
            segment = self._kept[number]
            number += 1
            last = segment.places[-1]
            if place is None or last >= place:
                yield segment
        if self.complete:
            return
        keeping = True
        for segment in segments(view, self._tree, prefix=self._prefix, after=last):
            # Another search of the same tree may have read on in the meantime.
            keeping = keeping and number == len(self._kept) and _room(self, segment)
            number += keeping
            if place is None or segment.places[-1] >= place:
                yield segment
        self.complete = self.complete or (keeping and number == len(self._kept))

    def keep(self, segment: Segment, cost: int) -> None:
        self._kept.append(segment)
        self.bytes += cost


_texts: dict[tuple[str, bytes, bytes], Texts] = {}


def texts_of(view: View, tree: bytes, prefix: bytes) -> Texts:
    """The texts of this tree of this repository, known or new."""
    key = (view.namespace, tree, prefix)
    found = _texts.pop(key, None)
    if found is None:
        found = Texts(tree, prefix)
        while len(_texts) >= 64:
            del _texts[next(iter(_texts))]
    _texts[key] = found
    return found


def _room(texts: Texts, segment: Segment) -> bool:
    """Keep the segment if that fits, other trees given up for it, the longest unused first."""
    cost = len(segment.buffer) + _FILE * len(segment.paths)
    if texts.bytes + cost > MAX_BYTES:
        return False
    others = [key for key, other in _texts.items() if other is not texts and other.bytes]
    while others and sum(other.bytes for other in _texts.values()) + cost > MAX_BYTES:
        del _texts[others.pop(0)]
    texts.keep(segment, cost)
    return True
