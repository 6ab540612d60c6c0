"""Making a layer of the index of changed paths (see `pathlayer` for what it is)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from struct import Struct
from typing import Final

from pack import inflate, little
from pack.graph import NONE, Graph
from pack.objects import OID_BYTES
from pack.pathlayer import HEAD, MAX_COMMITS, NO_LAYER, OID_PIECE, PathLayer, fingerprint, key_of

BLOCK_BYTES: Final = 32 << 10
LEVEL: Final = 4
MAX_VALUES: Final = 64 << 20
MAX_PATHS: Final = 4 << 20
"""So many changes and paths a layer takes; commits beyond are written down as unknown."""
_COUNT: Final = Struct("<I")


class PathWriter:
    """Takes the changes of the commits of `graph` from number `first` on, in any order, and writes them as a layer.

    A commit of which nothing is told is unknown.
    """

    def __init__(self, graph: Graph, first: int) -> None:
        self.graph = graph
        self.first = first
        self.count = graph.count - first
        if self.count > MAX_COMMITS:
            raise ValueError(f"{self.count} commits are more than a layer can hold")
        self.places, self.rows, self._starts = _lines(graph, first)
        self._told = bytearray(self.count)
        self._values: dict[bytes, int | array[int]] = {}
        self._total = 0

    def unknown(self) -> Iterator[int]:
        """The numbers of the commits that nothing was told of yet."""
        at = self._told.find(0)
        while at >= 0:
            yield self.first + at
            at = self._told.find(0, at + 1)

    def add(self, n: int, changes: Mapping[bytes, int]) -> None:
        """The changed paths of a commit, each with its code."""
        if self._told[n - self.first] or self._total + len(changes) > MAX_VALUES or self._is_full(changes):
            return
        self._told[n - self.first] = 1
        self._total += len(changes)
        place = self.places[n - self.first] << 2
        for path, code in changes.items():
            self._put(key_of(path), place | code)

    def _is_full(self, changes: Mapping[bytes, int]) -> bool:
        left = MAX_PATHS - len(self._values)
        return len(changes) > left and sum(key_of(path) not in self._values for path in changes) > left

    def take(self, layer: PathLayer) -> None:
        """What another layer knows of these commits, whatever numbers they have there. BadSidecar, Need."""
        oids = layer.oids()
        find, first, told = self.graph.find, self.first, self._told
        unknown = set(layer.unknown)
        moved: list[int | None] = [None] * layer.count
        taken = []
        for row, place in enumerate(layer.places):
            n = find(oids[row * OID_BYTES : (row + 1) * OID_BYTES])
            if n is not None and n >= first and place not in unknown and not told[n - first]:
                moved[place] = self.places[n - first] << 2
                taken.append(n - first)
        for key, values in layer.everything():
            for value in values:
                place_now = moved[value >> 2]
                if place_now is not None:
                    self._put(key, place_now | value & 3)
                    self._total += 1
        for row in taken:
            told[row] = 1

    def _put(self, key: bytes, value: int) -> None:
        known = self._values.get(key)
        if known is None:
            self._values[key] = value
        elif isinstance(known, int):
            self._values[key] = array("I", (known, value))
        else:
            known.append(value)

    def write(self, put: Callable[[bytes], object], below: bytes = NO_LAYER) -> bytes:
        """The front of the layer, which stands on the one with the id `below`; the tail goes to `put`."""
        graph, first = self.graph, self.first
        oids = oids_of(graph, first, graph.count)
        times, one = graph.times, graph.one
        turns = sorted(
            self.places[n - first] for n in range(first, graph.count) if one[n] != NONE and times[one[n]] > times[n]
        )
        unknown = sorted(self.places[n - first] for n in self.unknown())
        keys, ends, sizes, offsets, crcs = self._blocks(put)
        oid_crcs = array("I")
        for at in range(0, len(oids), OID_PIECE):
            piece = oids[at : at + OID_PIECE]
            oid_crcs.append(inflate.crc32(piece))
            put(piece)
        head = HEAD.pack(
            first,
            self.count,
            len(self._starts),
            len(turns),
            len(unknown),
            len(ends),
            len(keys),
            below,
            fingerprint(oids),
        )
        columns = (self.places, self.rows, self._starts, array("I", turns), array("I", unknown))
        return b"".join((head, *map(little.encode, (*columns, ends, sizes, offsets, crcs, oid_crcs)), keys))

    def _blocks(self, put: Callable[[bytes], object]) -> tuple[bytes, array[int], array[int], array[int], array[int]]:
        firsts: list[bytes] = []
        ends, sizes, offsets, crcs = array("I"), array("I"), array("Q", [0]), array("I")
        held: list[tuple[bytes, array[int]]] = []
        size = end = 0

        def flush() -> None:
            nonlocal size, end
            if not held:
                return
            keys = [key for key, _ in held]
            parts = [
                _COUNT.pack(len(held)),
                little.encode(_ends(keys)),
                little.encode(array("I", [len(v) for _, v in held])),
                *keys,
            ]
            whole = b"".join(chain(parts, (little.encode(values) for _, values in held)))
            data = inflate.compress(whole, LEVEL)
            firsts.append(keys[0])
            end += len(keys[0])
            ends.append(end)
            sizes.append(len(whole))
            offsets.append(offsets[-1] + len(data))
            crcs.append(inflate.crc32(data))
            put(data)
            held.clear()
            size = 0

        for key in sorted(self._values):
            known = self._values[key]
            values = array("I", (known,)) if isinstance(known, int) else array("I", sorted(known))
            held.append((key, values))
            size += len(key) + 8 + 4 * len(values)
            if size >= BLOCK_BYTES:
                flush()
        flush()
        return b"".join(firsts), ends, sizes, offsets, crcs


def _ends(keys: Iterable[bytes]) -> array[int]:
    ends = array("I")
    end = 0
    for key in keys:
        end += len(key)
        ends.append(end)
    return ends


def oids_of(graph: Graph, first: int, end: int) -> bytes:
    """The oids of the commits from number `first` to before `end`."""
    parts = []
    for layer in graph.layers:
        low, high = max(first - layer.first, 0), min(end - layer.first, layer.count)
        if low < high:
            parts.append(layer.oids[low * OID_BYTES : high * OID_BYTES])
    return b"".join(parts)


def _lines(graph: Graph, first: int) -> tuple[array[int], array[int], array[int]]:
    """(place of each row, row at each place, first place of each line)."""
    count = graph.count - first
    one = graph.one[first:]
    height, heir = array("I", bytes(4 * count)), array("I", bytes(4 * count))
    for row in range(count - 1, -1, -1):
        parent = one[row]
        if parent != NONE and parent >= first and height[row] >= height[parent - first]:
            height[parent - first] = height[row] + 1
            heir[parent - first] = row
    places, rows, starts = array("I", bytes(4 * count)), array("I"), array("I")
    for row in range(count):
        parent = one[row]
        if parent == NONE or parent < first or heir[parent - first] != row:
            starts.append(len(rows))
            following = row
            while True:
                places[following] = len(rows)
                rows.append(following)
                following = heir[following]
                if not following:
                    break
    return places, rows, starts
