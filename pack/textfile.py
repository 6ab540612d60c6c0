"""A segment of the text of a tree as the two parts of a file, so that it is unpacked once and read many times.

The tail is the segment's buffer. The front, little-endian, n files in their order:

    files, bytes of the paths, CRC-32 of the buffer (u32 each)
    starts, ends    u32 n times: where the files lie in the buffer
    oids            20 bytes n times
    reasons         u8 n times: 0, or 1 for a binary file, which has no text
    depths          u16 n times: how many numbers a file's place has
    places          u32: these numbers, one file after the other
    marks           u32: the newlines before every STEP bytes of the buffer
    paths           with a NUL between two

Only what can never change is written: a file that could not be read may be there tomorrow. When all segments of a
tree are, a file without a tail says how many they are, and the place of the last file (u32 each).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import sha256
from struct import Struct
from typing import Final

from pack import inflate, little
from pack.corpus import STEP, Segment
from pack.objects import OID_BYTES
from pack.sidecar import BadSidecar

KIND: Final = "text"
VERSION: Final = 1
_HEAD: Final = Struct("<III")
_BINARY: Final = "binary"


def derived(tree: bytes, number: int, after: Sequence[int] | None) -> bytes:
    """What a file is derived from, as its header says it: segment `number` of this tree, behind the place `after`.

    A segment so follows on no other than the one that it was made to follow.
    """
    return sha256(b"%b %d " % (tree, number) + little.encode(array("I", after or ()))).digest()


def derived_end(tree: bytes) -> bytes:
    """The same for the file that ends a tree."""
    return sha256(b"%b end" % tree).digest()


def keeps(segment: Segment) -> bool:
    """Whether a segment may be written."""
    return all(reason == _BINARY for reason in segment.reasons.values())


def write_end(count: int, last: Sequence[int] | None) -> bytes:
    """The front of the file that ends a tree of `count` segments, the last of which ends at the place `last`."""
    return little.encode(array("I", (count, *(last or ()))))


def read_end(front: bytes) -> tuple[int, list[int] | None]:
    """(count, last). BadSidecar."""
    if not front or len(front) % 4:
        raise BadSidecar("it is of another length")
    columns = _Columns(front, 0)
    count, *last = columns.take("I", len(front) // 4)
    return count, last or None


def write_front(segment: Segment) -> bytes:
    """The front; the tail is `segment.buffer`."""
    count = len(segment.paths)
    paths = b"\0".join(segment.paths)
    reasons = bytearray(count)
    for index in segment.reasons:
        reasons[index] = 1
    return b"".join(
        (
            _HEAD.pack(count, len(paths), inflate.crc32(segment.buffer)),
            little.encode(array("I", segment.starts)),
            little.encode(array("I", segment.ends)),
            b"".join(segment.oids),
            bytes(reasons),
            little.encode(array("H", map(len, segment.places))),
            little.encode(array("I", [number for place in segment.places for number in place])),
            little.encode(segment.marks),
            paths,
        )
    )


def read(front: bytes, buffer: bytes) -> Segment:
    """The segment behind both parts. BadSidecar where they do not belong together."""
    if len(front) < _HEAD.size:
        raise BadSidecar("it is cut short")
    count, path_bytes, checksum = _HEAD.unpack_from(front)
    if inflate.crc32(buffer) != checksum:
        raise BadSidecar("the checksum of its text does not match")
    columns = _Columns(front, _HEAD.size)
    starts, ends = columns.take("I", count), columns.take("I", count)
    oids = columns.bytes(count * OID_BYTES)
    reasons = columns.bytes(count)
    depths = columns.take("H", count)
    numbers = columns.take("I", sum(depths))
    marks = columns.take("I", -(-len(buffer) // STEP) + 1)
    paths = columns.bytes(path_bytes)
    names = paths.split(b"\0") if count else []
    if columns.position != len(front) or len(names) != count:
        raise BadSidecar("its columns are of other lengths")
    places, at = [], 0
    for depth in depths:
        places.append(numbers[at : at + depth].tolist())
        at += depth
    return Segment(
        buffer,
        names,
        places,
        starts.tolist(),
        ends.tolist(),
        {index: _BINARY for index, reason in enumerate(reasons) if reason},
        marks,
        [oids[at : at + OID_BYTES] for at in range(0, len(oids), OID_BYTES)],
    )


class _Columns:
    def __init__(self, front: bytes, position: int) -> None:
        self.front = front
        self.position = position

    def bytes(self, size: int) -> bytes:
        data = self.front[self.position : self.position + size]
        if len(data) != size:
            raise BadSidecar("it is cut short")
        self.position += size
        return data

    def take(self, code: str, count: int) -> array[int]:
        return little.decode(code, self.bytes(count * array(code).itemsize))
