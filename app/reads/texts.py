"""The text of trees that are searched again and again: in memory, bounded for a process, and on disk for all of a node.

What one search has unpacked the next one finds: another of the same tree all of it, one of a later tree the files that
did not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pack import textfile
from pack.corpus import SEGMENT_BYTES, Known, Segment, Text, segments
from pack.sidecar import BadSidecar
from pack.textfile import KIND, VERSION
from pack.view import View
from storage.shelf import Shelf, shelf_of

MAX_BYTES = 96 << 20
"""Text that this process keeps in memory."""
_FILE: Final = 400  # bytes that Python's objects about one file take
_TREES: Final = 64
_ON_DISK: Final = 12  # trees of one repository


class Texts:
    """The segments of one tree, as far as they have been read and there is room. `generation` is set where some files
    could not be read at it: they may be there at another one.
    """

    def __init__(self, tree: bytes, prefix: bytes) -> None:
        self.tree = tree
        self.prefix = prefix
        self.kept: list[Segment] = []
        self.bytes = 0
        self.complete = False
        self.generation: int | None = None

    def segments(self, view: View, place: list[int] | None = None) -> Iterator[Segment]:
        """All segments in order, but for those that end before `place`."""
        for segment in self._all(view):
            if place is None or segment.places[-1] >= place:
                yield segment

    def at_hand(self, view: View) -> bool:
        """Whether all segments need not be unpacked, but only read."""
        shelf = self._shelf(view)
        return self.complete or (shelf is not None and _end(shelf, self.tree) is not None)

    def _shelf(self, view: View) -> Shelf | None:
        # The files of a subtree are at hand with those of the whole, but their paths are others.
        return shelf_of(view.namespace) if not self.prefix else None

    def _all(self, view: View) -> Iterator[Segment]:
        number = 0
        last: list[int] | None = None
        while number < len(self.kept):
            segment = self.kept[number]
            number += 1
            last = segment.places[-1]
            yield segment
        if self.complete:
            return
        shelf = self._shelf(view)
        if shelf is not None:
            end = _end(shelf, self.tree)
            while end != (number, last) and (stored := _load(shelf, self.tree, number, last)) is not None:
                self._keep(view, number, stored)
                number += 1
                last = stored.places[-1]
                yield stored
            if end == (number, last):
                self.complete = number == len(self.kept)
                return
        size = 0
        known = _known(view, self, shelf)
        for segment in segments(view, self.tree, prefix=self.prefix, after=last, known=known, size=SEGMENT_BYTES):
            size += len(segment.buffer)
            if shelf is not None and (size > shelf.most or not textfile.keeps(segment)):
                shelf = None
            if shelf is not None:
                _store(shelf, self.tree, number, last, segment)
            self._keep(view, number, segment)
            number += 1
            last = segment.places[-1]
            yield segment
        if shelf is not None:
            name = self.tree.hex()
            # What is left of a tree that was cut into other pieces.
            shelf.remove_others(KIND, f"{name}-", [f"{name}-{each}" for each in range(number)])
            shelf.limit(KIND, _ON_DISK)
            front = textfile.write_end(number, last)
            shelf.write(KIND, f"{name}-end", VERSION, textfile.derived_end(self.tree), front, b"")
        self.complete = number == len(self.kept)

    def _keep(self, view: View, number: int, segment: Segment) -> None:
        """Keep the segment if that fits, other trees given up for it, the longest unused first."""
        # Another search of the same tree may have read on in the meantime.
        if number != len(self.kept):
            return
        cost = len(segment.buffer) + _FILE * len(segment.paths)
        if self.bytes + cost > MAX_BYTES:
            return
        others = [key for key, other in _texts.items() if other is not self and other.bytes]
        while others and sum(other.bytes for other in _texts.values()) + cost > MAX_BYTES:
            del _texts[others.pop(0)]
        if not textfile.keeps(segment):
            self.generation = view.generation
        self.kept.append(segment)
        self.bytes += cost


_texts: dict[tuple[str, bytes, bytes], Texts] = {}


def texts_of(view: View, tree: bytes, prefix: bytes) -> Texts:
    """The texts of this tree of this repository, known or new."""
    key = (view.namespace, tree, prefix)
    found = _texts.pop(key, None)
    if found is None or found.generation not in (None, view.generation):
        found = Texts(tree, prefix)
        while len(_texts) >= _TREES:
            del _texts[next(iter(_texts))]
    _texts[key] = found
    return found


def configure(max_bytes: int) -> None:
    """Set the bytes of text that this process keeps in memory."""
    global MAX_BYTES
    MAX_BYTES = max_bytes
    forget()


def was_searched(namespace: str) -> bool:
    """Whether this node has the text of some tree of a repository."""
    shelf = shelf_of(namespace)
    return shelf is not None and shelf.latest(KIND, "-end") is not None


def forget() -> None:
    """Let go of all text in memory."""
    _texts.clear()


def _end(shelf: Shelf, tree: bytes) -> tuple[int, list[int] | None] | None:
    """How many segments of a tree lie on disk, and where the last one ends; None where not all of them do."""
    name = f"{tree.hex()}-end"
    found = shelf.read(KIND, name, VERSION, textfile.derived_end(tree))
    try:
        return textfile.read_end(found.front) if found is not None else None
    except BadSidecar as error:
        shelf.drop(KIND, name, error)
        return None


def _load(shelf: Shelf, tree: bytes, number: int, after: list[int] | None) -> Segment | None:
    """Segment `number` of a tree, which begins behind the place `after`, as it lies on disk."""
    name = f"{tree.hex()}-{number}"
    found = shelf.read(KIND, name, VERSION, textfile.derived(tree, number, after))
    if found is None:
        return None
    try:
        return textfile.read(*found)
    except BadSidecar as error:
        shelf.drop(KIND, name, error)
        return None


def _store(shelf: Shelf, tree: bytes, number: int, after: list[int] | None, segment: Segment) -> None:
    try:
        front = textfile.write_front(segment)
    except OverflowError:  # a file of 4 GB
        return
    name, derived = f"{tree.hex()}-{number}", textfile.derived(tree, number, after)
    shelf.write(KIND, name, VERSION, derived, front, segment.buffer)


def _known(view: View, texts: Texts, shelf: Shelf | None) -> Known | None:
    """Files of the tree that was read last before this one."""
    others = (other for (name, _, _), other in reversed(_texts.items()) if name == view.namespace)
    earlier = next((other.kept for other in others if other is not texts and other.kept), None)
    if earlier is None and shelf is not None:
        earlier = list(_latest(shelf))
    if not earlier:
        return None
    places = {oid: (segment, index) for segment in earlier for index, oid in enumerate(segment.oids)}

    def known(oid: bytes) -> Text | None:
        found = places.get(oid)
        if found is None:
            return None
        segment, index = found
        reason = segment.reasons.get(index)
        if reason is None:
            return segment.buffer[segment.starts[index] : segment.ends[index]], None
        return (b"", reason) if reason == "binary" else None

    return known


def _latest(shelf: Shelf) -> Iterator[Segment]:
    """The segments of the tree that was written last, as far as memory allows."""
    name = shelf.latest(KIND, "-end")
    if name is None:
        return
    tree = bytes.fromhex(name.removesuffix("-end"))
    end = _end(shelf, tree)
    size = 0
    last: list[int] | None = None
    for number in range(end[0] if end is not None else 0):
        segment = _load(shelf, tree, number, last)
        if segment is None or size > MAX_BYTES:
            return
        size += len(segment.buffer)
        last = segment.places[-1]
        yield segment
