"""Blobs as ready streams: raw deflate (RFC 1951), each of them on its own, with what its frames need to know.

A stream ends in an empty stored block on a byte's boundary and has no last block: streams that are put one after the
other, with a last block behind them, are one stream of all their texts. None refers to what comes before it.

What a sidecar of them says in its front, little-endian:

    u32 sidecars below, u32 trees, u32 rows
    for each sidecar below, the lowest first:
        id of its pack set (32 bytes), u64 where its tail begins in its file, SHA-256 of its front
    for each tree, oid (20 bytes): the trees whose blobs are here, as far as there was room
    for each blob, sorted by oid:
        oid (20 bytes), u32 the sidecar (its place among those below, their number for this one), u64 offset in its
        tail, u32 bytes of the stream, u32 bytes of the text, u32 CRC-32 of the text, u32 CRC-32 of the stream; a blob
        that does not get smaller has no stream, which has 0 bytes
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from pack import inflate
from pack.objects import OID_BYTES
from pack.sidecar import BadSidecar

KIND: Final = "streams"
VERSION: Final = 1

_LEVEL: Final = 6
_RAW: Final = -15
_HEAD: Final = Struct("<III")
_BELOW: Final = Struct("<32sQ32s")
_ROW: Final = Struct("<20sIQIIII")
_GZIP_HEAD: Final = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # no time, no name, of no system
_GZIP_END: Final = Struct("<II")
_LAST_BLOCK: Final = b"\x03\0"
_FRAME: Final = len(_GZIP_HEAD) + len(_LAST_BLOCK) + _GZIP_END.size


class Below(NamedTuple):
    """A sidecar that another one stands on: the id of its pack set, where its tail begins, the SHA-256 of its front."""

    id: bytes
    start: int
    checksum: bytes


class Stream(NamedTuple):
    """Where the stream of a blob lies: in which sidecar, offset in its tail, bytes; the bytes of the text, the CRC-32
    of both.
    """

    oid: bytes
    layer: int
    offset: int
    length: int
    size: int
    crc: int
    check: int

    @property
    def member_bytes(self) -> int:
        """The size of the gzip member that is made of it."""
        return self.length + _FRAME


class StreamLayer:
    """The front of one sidecar. BadSidecar."""

    def __init__(self, front: bytes) -> None:
        if len(front) < _HEAD.size:
            raise BadSidecar("it is cut short")
        layers, trees, self.count = _HEAD.unpack_from(front)
        start = _HEAD.size + layers * _BELOW.size
        self._rows = start + trees * OID_BYTES
        if len(front) != self._rows + self.count * _ROW.size:
            raise BadSidecar("it is of another length")
        self.below = [Below(*row) for row in _BELOW.iter_unpack(front[_HEAD.size : start])]
        self.trees = [front[at : at + OID_BYTES] for at in range(start, self._rows, OID_BYTES)]
        self._front = front

    def find(self, oid: bytes) -> Stream | None:
        """The row of a blob, None where it has none. BadSidecar."""
        front, rows, size = self._front, self._rows, _ROW.size
        low, high = 0, self.count
        while low < high:
            middle = (low + high) >> 1
            at = rows + middle * size
            found = front[at : at + OID_BYTES]
            if found == oid:
                return self._checked(Stream(*_ROW.unpack_from(front, at)))
            if found < oid:
                low = middle + 1
            else:
                high = middle
        return None

    def _checked(self, stream: Stream) -> Stream:
        if stream.layer > len(self.below):
            raise BadSidecar("a stream lies in no sidecar")
        return stream

    def own(self) -> Iterator[Stream]:
        """The streams that this very sidecar holds, in their order."""
        here = len(self.below)
        rows = (Stream(*row) for row in _ROW.iter_unpack(memoryview(self._front)[self._rows :]))
        yield from sorted((row for row in rows if row.layer == here and row.length), key=lambda row: row.offset)


def write_front(below: Sequence[Below], trees: Sequence[bytes], streams: Iterable[Stream]) -> bytes:
    """The front of a sidecar; the streams may come in any order."""
    rows = [_ROW.pack(*stream) for stream in sorted(streams)]
    head = _HEAD.pack(len(below), len(trees), len(rows))
    return b"".join((head, *(_BELOW.pack(*each) for each in below), *trees, *rows))


def deflate(text: bytes) -> bytes:
    """The stream of a text."""
    stream = inflate.deflater(_LEVEL, _RAW)
    return stream.compress(text) + stream.flush(inflate.Z_SYNC_FLUSH)


def gzip_member(stream: Stream, data: bytes) -> bytes:
    """The text as one gzip member (RFC 1952); `data` are the bytes of its stream."""
    return b"".join((_GZIP_HEAD, data, _LAST_BLOCK, _GZIP_END.pack(stream.crc, stream.size)))
