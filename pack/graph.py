"""The commit graph of a repository as columns of numbers: what walks run over instead of commit objects.

A graph is one or more layers. A layer holds commits that came in together, numbered so that parents come before
children; its first number follows the last one of the layer below, so that numbers stay when commits are added. With
every commit all of its ancestors are in the graph. Beside the columns lie the texts of the commits, in blocks.

A layer's bytes are a front, read as a whole, and a tail. The front, little-endian:

    count, first number, rows of `more`, blocks, bytes of the tail (u32 u32 u32 u32 u64); id of the layer below (32
    bytes, zeros for none); then the columns, a row for each commit in the order of their numbers:
    oids      20 bytes                  trees    20 bytes
    times     u64, the committer's time as git's walk reads it (`commit.links`)
    levels    u32, one more than the highest of the parents
    one, two  u32, numbers of the first and the second parent, NONE for none; where there are more than two, `two` is
              MANY, and all of them are in `more`
    lengths   u32, bytes of the commit object
    lookup    u32, rows sorted by oid
    order     u32, rows sorted by time, children before their parents where times are equal
    blocks    first row of each block (u32), its offset in the tail (u64, one more for the end), its CRC-32 (u32)
    more      u32: number of the commit, count of its parents, their numbers; and so on

The tail is the blocks: zlib streams of the commit objects (without git's header) in the order of their numbers.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from operator import eq
from struct import Struct
from typing import Final

from pack import inflate, little
from pack.objects import OID_BYTES
from pack.sidecar import BadSidecar

VERSION: Final = 1
ID_BYTES: Final = 32
NO_LAYER: Final = bytes(ID_BYTES)
NONE: Final = 0xFFFFFFFF
MANY: Final = 0xFFFFFFFE
MAX_COMMITS: Final = 0xFFFFFF00
HEAD: Final = Struct("<IIIIQ32s")
_CACHE_BYTES: Final = 8 << 20

ReadTail = Callable[[int, int, int], bytes]
"""(number of the layer from below, offset in its tail, length) → those bytes; it may raise Need."""


class Layer:
    """A layer's front, taken apart; `below` is the id of the layer it stands on, NO_LAYER for none. BadSidecar."""

    def __init__(self, front: bytes) -> None:
        if len(front) < HEAD.size:
            raise BadSidecar("the front of a graph layer is cut short")
        self.count: int
        self.first: int
        self.below: bytes
        self.count, self.first, more, blocks, self.tail_bytes, self.below = HEAD.unpack_from(front)
        self._at = HEAD.size
        self._front = memoryview(front)
        size = self._at + self.count * (2 * OID_BYTES + 8 + 4 * 6) + blocks * 16 + 8 + more * 4
        if len(front) != size:
            raise BadSidecar(f"a graph layer of {self.count} commits cannot have a front of {len(front)} bytes")
        self.oids = self._bytes(self.count * OID_BYTES)
        self.trees = self._bytes(self.count * OID_BYTES)
        self.times = self._column("Q", self.count)
        self.levels = self._column("I", self.count)
        self.one = self._column("I", self.count)
        self.two = self._column("I", self.count)
        self.lengths = self._column("I", self.count)
        self._lookup = self._column("I", self.count)
        self.order = self._column("I", self.count)
        self.block_rows = self._column("I", blocks)
        self.block_offsets = self._column("Q", blocks + 1)
        self.block_crcs = self._column("I", blocks)
        self.many = _many(self._column("I", more))
        del self._front

    def _bytes(self, length: int) -> bytes:
        data = self._front[self._at : self._at + length]
        self._at += length
        return bytes(data)

    def _column(self, code: str, rows: int) -> array[int]:
        return little.decode(code, self._bytes(rows * array(code).itemsize))

    def find(self, oid: bytes) -> int | None:
        """The number of the commit, None where it is not in this layer."""
        lookup, oids = self._lookup, self.oids
        low, high = 0, self.count
        while low < high:
            middle = (low + high) >> 1
            at = lookup[middle] * OID_BYTES
            found = oids[at : at + OID_BYTES]
            if found == oid:
                return self.first + lookup[middle]
            if found < oid:
                low = middle + 1
            else:
                high = middle
        return None

    def rows_of(self, block: int) -> tuple[int, int]:
        """The rows whose texts are in a block, the end exclusive."""
        return self.block_rows[block], self.block_rows[block + 1] if block + 1 < len(self.block_rows) else self.count

    def texts(self, block: int, data: bytes) -> list[bytes]:
        """The commit objects of a block, of which `data` are the bytes in the tail. BadSidecar."""
        first, end = self.rows_of(block)
        if len(data) != self.block_offsets[block + 1] - self.block_offsets[block]:
            raise BadSidecar("the texts of a graph are cut short")
        if inflate.crc32(data) != self.block_crcs[block]:
            raise BadSidecar("the checksum of a block of texts does not match its bytes")
        lengths = self.lengths[first:end]
        try:
            whole = inflate.decompress(data, sum(lengths))
        except inflate.ZlibError as error:
            raise BadSidecar(f"a block of texts does not inflate: {error}") from None
        texts = []
        at = 0
        for length in lengths:
            texts.append(whole[at : at + length])
            at += length
        return texts


def _many(rows: array[int]) -> dict[int, tuple[int, ...]]:
    found = {}
    at = 0
    while at < len(rows):
        count = rows[at + 1]
        found[rows[at]] = tuple(rows[at + 2 : at + 2 + count])
        at += 2 + count
    return found


class Graph:
    """The layers as one. Columns are for loops that cannot afford a call; what `two` says is MANY is in `many`.

    `damage` says what is wrong with the texts, once a block has turned out to be damaged (`lost` is told then): the
    columns, which were checked when they were read, stay good.
    """

    def __init__(
        self, layers: Sequence[Layer], read_tail: ReadTail | None = None, lost: Callable[[str], None] | None = None
    ) -> None:
        first = 0
        for layer in layers:
            if layer.first != first:
                raise BadSidecar("the layers of a graph do not fit together")
            first += layer.count
        self.count = first
        self.layers = list(layers)
        self.times = _joined([layer.times for layer in layers])
        self.levels = _joined([layer.levels for layer in layers])
        self.one = _joined([layer.one for layer in layers])
        self.two = _joined([layer.two for layer in layers])
        self.many: dict[int, tuple[int, ...]] = {}
        for layer in layers:
            self.many.update(layer.many)
        self.damage: str | None = None
        self._firsts = [layer.first for layer in layers]
        self._read_tail = read_tail
        self._lost = lost
        self._texts: OrderedDict[tuple[int, int], list[bytes]] = OrderedDict()
        self._text_bytes = 0
        self._by_time: tuple[array[int], array[int], bytes] | None = None

    @property
    def memory(self) -> int:
        """About how much memory the columns take."""
        return self.count * (2 * OID_BYTES + 64)

    def find(self, oid: bytes) -> int | None:
        """The number of a commit, None where the graph has not got it."""
        for layer in reversed(self.layers):
            n = layer.find(oid)
            if n is not None:
                return n
        return None

    def parents(self, n: int) -> tuple[int, ...]:
        two = self.two[n]
        if two == NONE:
            one = self.one[n]
            return () if one == NONE else (one,)
        return self.many[n] if two == MANY else (self.one[n], two)

    def oid(self, n: int) -> bytes:
        layer = self._layer(n)
        at = (n - layer.first) * OID_BYTES
        return layer.oids[at : at + OID_BYTES]

    def tree(self, n: int) -> bytes:
        layer = self._layer(n)
        at = (n - layer.first) * OID_BYTES
        return layer.trees[at : at + OID_BYTES]

    def _layer(self, n: int) -> Layer:
        return self.layers[bisect_right(self._firsts, n) - 1]

    def by_time(self) -> tuple[array[int], array[int], bytes]:
        """(all numbers by descending time, place of each number in that, a mark for each place).

        At equal times children come before their parents. The mark is 0 where no other commit has that time; of those
        that have one time together all have 1, but for the first, which has 2. One more mark, a 0, ends them.
        """
        if self._by_time is None:
            layers = self.layers
            rows = layers[0].order if len(layers) == 1 else _merged(layers, self.times)
            places = array("I", bytes(4 * self.count))
            for place, n in enumerate(rows):
                places[n] = place
            self._by_time = rows, places, _tied([self.times[n] for n in rows])
        return self._by_time

    def effort(self, n: int) -> int:
        """How many bytes `text` has to take up: those of the block, unless that is at hand."""
        number, block = self._block(n)
        layer = self.layers[number]
        if (number, block) in self._texts:
            return layer.lengths[n - layer.first]
        first, end = layer.rows_of(block)
        return sum(layer.lengths[first:end])

    def _block(self, n: int) -> tuple[int, int]:
        """The layer of number `n`, and the block of its texts there."""
        number = bisect_right(self._firsts, n) - 1
        layer = self.layers[number]
        return number, bisect_right(layer.block_rows, n - layer.first) - 1

    def text(self, n: int) -> bytes | None:
        """The commit object of number `n`; None where it cannot be had here (the packs have it). May raise Need."""
        if self._read_tail is None:
            return None
        number, block = self._block(n)
        layer = self.layers[number]
        texts = self._texts.get((number, block))
        if texts is None:
            offset = layer.block_offsets[block]
            length = layer.block_offsets[block + 1] - offset
            try:
                data = self._read_tail(number, offset, length)
                texts = layer.texts(block, data)
            except BadSidecar as error:
                self._read_tail = None
                self.damage = error.detail
                if self._lost is not None:
                    self._lost(error.detail)
                return None
            self._texts[number, block] = texts
            self._text_bytes += sum(map(len, texts))
            while self._text_bytes > _CACHE_BYTES and len(self._texts) > 1:
                self._text_bytes -= sum(map(len, self._texts.popitem(last=False)[1]))
        else:
            self._texts.move_to_end((number, block))
        return texts[n - layer.first - layer.block_rows[block]]


def _joined(columns: list[array[int]]) -> array[int]:
    if len(columns) == 1:
        return columns[0]
    whole = columns[0][:] if columns else array("Q")
    for column in columns[1:]:
        whole += column
    return whole


def _merged(layers: Sequence[Layer], times: array[int]) -> array[int]:
    """The orders of all layers as one. Stable sorting of runs that are sorted already merges them."""
    runs: list[int] = []
    for layer in reversed(layers):
        first = layer.first
        runs.extend(layer.order if not first else [first + row for row in layer.order])
    # Upper layers come first: at equal times their commits may be children of those below, never parents.
    runs.sort(key=times.__getitem__, reverse=True)
    return array("I", runs)


def _tied(times: list[int]) -> bytes:
    later = b"\0"[: len(times)] + bytes(map(eq, times, times[1:]))
    return later.replace(b"\0\1", b"\2\1") + b"\0"
