"""Which commits change which paths: an inverted index, from a path to its commits, as a kind of sidecar.

A layer covers commits with successive numbers of a commit graph (`pack.graph`); its first number follows the last one
of the layer below. A commit changes a path where a file at or below it differs from the first parent (from nothing,
where there is none). So a path stands for a file or a directory, whichever it was.

Within a layer the commits are laid out in lines of first parents: each line ascends from a commit whose first parent
is elsewhere, always on to the child with the longest line above it. A commit has so a place, and those that are passed
by on the way down from it, along first parents, have the places just before it. A path's commits are sorted by place:
the next one on the way down is found by bisection, however many commits lie between.

The front, little-endian:

    first number, commits, lines, turns, unknown, blocks, bytes of first keys (u32 each); id of the layer below (32
    bytes, zeros for none); BLAKE2b (32 bytes) of the oids of the commits in the order of their numbers; then
    places   u32 a commit, by number
    rows     u32 a commit, by place: its number less the first one
    starts   u32 a line: its first place
    turns    u32, places of commits that are older than their first parent
    unknown  u32, places of commits whose changes are not known
    ends     u32 a block, where its first key ends in the last column
    sizes    u32 a block, bytes when inflated
    offsets  u64 a block and one more, in the tail
    crcs     u32 a block, CRC-32
    oid crcs u32, CRC-32 of each piece of OID_PIECE bytes of the oids that end the tail
    keys     the first key of each block

A block is a zlib stream of: count of paths, end of each key, count of values of each path (u32), keys, values (u32).
A path's key is its directory, NUL, its base name: what lies in one directory lies together. A value is
place << 2 | code:

    0  not a merge, or the second of two parents differs, too
    1  a merge of two, and the second parent has the path as it is here
    2  more than two parents: has to be looked at
    3  not a merge, and the path is a file here, and nothing before
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from hashlib import blake2b
from struct import Struct
from typing import Final

from pack import inflate, little
from pack.objects import OID_BYTES
from pack.sidecar import BadSidecar

KIND: Final = "paths"
VERSION: Final = 1
ID_BYTES: Final = 32
NO_LAYER: Final = bytes(ID_BYTES)
HEAD: Final = Struct("<IIIIIII32s32s")
OID_PIECE: Final = OID_BYTES << 16
MAX_COMMITS: Final = 1 << 30
DIFFERS: Final = 0
SAME: Final = 1
LOOK: Final = 2
ADDED: Final = 3
_COUNT: Final = Struct("<I")

ReadTail = Callable[[int, int], bytes]
"""(offset in the tail, length) → those bytes; it may raise Need."""


def key_of(path: bytes) -> bytes:
    folder, _, name = path.rpartition(b"/")
    return folder + b"\0" + name


def fingerprint(oids: bytes) -> bytes:
    """What tells the numbers of one graph from those of another."""
    return blake2b(oids, digest_size=ID_BYTES).digest()


class PathLayer:
    """A layer's front, taken apart. BadSidecar."""

    def __init__(self, front: bytes, read_tail: ReadTail) -> None:
        if len(front) < HEAD.size:
            raise BadSidecar("the front of a layer of paths is cut short")
        self.first: int
        self.count: int
        self.below: bytes
        self.fingerprint: bytes
        self.first, self.count, lines, turns, unknown, blocks, keys, self.below, self.fingerprint = HEAD.unpack_from(
            front
        )
        pieces = -(-self.count * OID_BYTES // OID_PIECE)
        size = HEAD.size + 4 * (2 * self.count + lines + turns + unknown + 3 * blocks + pieces) + 8 * (blocks + 1)
        if len(front) != size + keys:
            raise BadSidecar(f"a layer of paths of {self.count} commits cannot have a front of {len(front)} bytes")
        self._front = memoryview(front)
        self._at = HEAD.size
        self.places = self._column("I", self.count)
        self.rows = self._column("I", self.count)
        self.starts = self._column("I", lines)
        self.turns = self._column("I", turns)
        self.unknown = self._column("I", unknown)
        ends = self._column("I", blocks)
        self._sizes = self._column("I", blocks)
        self.offsets = self._column("Q", blocks + 1)
        self.crcs = self._column("I", blocks)
        self.oid_crcs = self._column("I", pieces)
        names = bytes(self._front[self._at :])
        self._keys = [names[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)] if blocks else []
        self._read_tail = read_tail
        del self._front

    def _column(self, code: str, rows: int) -> array[int]:
        start = self._at
        self._at += rows * array(code).itemsize
        return little.decode(code, self._front[start : self._at])

    @property
    def end(self) -> int:
        """The number after the last one."""
        return self.first + self.count

    def find(self, path: bytes) -> array[int]:
        """The values of a path. BadSidecar, Need."""
        key = key_of(path)
        number = bisect_right(self._keys, key) - 1
        if number < 0:
            return array("I")
        keys, values = self._block(number)
        at = bisect_left(keys, key)
        return values(at) if at < len(keys) and keys[at] == key else array("I")

    def below_folder(self, folder: bytes) -> dict[bytes, array[int]]:
        """The values of all that has ever been in a directory itself, by base names. BadSidecar, Need."""
        prefix = folder + b"\0"
        found: dict[bytes, array[int]] = {}
        for number in range(max(0, bisect_right(self._keys, prefix) - 1), len(self._keys)):
            keys, values = self._block(number)
            for at in range(bisect_left(keys, prefix), len(keys)):
                if not keys[at].startswith(prefix):
                    return found
                found[keys[at][len(prefix) :]] = values(at)
        return found

    def everything(self) -> Iterator[tuple[bytes, array[int]]]:
        """(key, values) of all paths. BadSidecar, Need."""
        for number in range(len(self._keys)):
            keys, values = self._block(number)
            for at, key in enumerate(keys):
                yield key, values(at)

    def _block(self, number: int) -> tuple[list[bytes], Callable[[int], array[int]]]:
        offset = self.offsets[number]
        data = self._read_tail(offset, self.offsets[number + 1] - offset)
        if inflate.crc32(data) != self.crcs[number]:
            raise BadSidecar("the checksum of a block of paths does not match its bytes")
        try:
            whole = inflate.decompress(data, self._sizes[number])
        except inflate.ZlibError as error:
            raise BadSidecar(f"a block of paths does not inflate: {error}") from None
        (count,) = _COUNT.unpack_from(whole)
        ends, counts = (
            little.decode("I", whole[4 : 4 + 4 * count]),
            little.decode("I", whole[4 + 4 * count : 4 + 8 * count]),
        )
        names = 4 + 8 * count
        at = names + ends[-1]
        keys = [whole[names + start : names + end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]

        def values(index: int) -> array[int]:
            start = at + 4 * sum(counts[:index])
            return little.decode("I", whole[start : start + 4 * counts[index]])

        return keys, values

    def oids(self) -> bytes:
        """The oids of the commits, one after the other. BadSidecar, Need."""
        pieces = []
        start = self.offsets[-1]
        for number, crc in enumerate(self.oid_crcs):
            length = min(OID_PIECE, self.count * OID_BYTES - number * OID_PIECE)
            data = self._read_tail(start + number * OID_PIECE, length)
            if inflate.crc32(data) != crc:
                raise BadSidecar("the checksum of the oids does not match their bytes")
            pieces.append(data)
        return b"".join(pieces)

    def pieces(self) -> Iterator[tuple[int, int, int]]:
        """(offset, length, CRC-32) of every piece of the tail."""
        for number, crc in enumerate(self.crcs):
            yield self.offsets[number], self.offsets[number + 1] - self.offsets[number], crc
        start = self.offsets[-1]
        for number, crc in enumerate(self.oid_crcs):
            yield start + number * OID_PIECE, min(OID_PIECE, self.count * OID_BYTES - number * OID_PIECE), crc
