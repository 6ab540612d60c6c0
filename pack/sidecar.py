"""The frame that all sidecars have: what a file is, what it was made from, and whether it is whole.

A sidecar is derived data: when anything about it is not as it should be it is made again from the packs. Its header,
128 bytes, little-endian:

    8 bytes   `PKHSIDE\\n`
    u16       version of this frame
    u16       version of the kind's own format
    u32       bytes of an object id
    16 bytes  the kind, ASCII, padded with NULs
    32 bytes  id of what it is derived from
    u64       bytes of the front
    u64       bytes of the tail
    32 bytes  SHA-256 of the front
    12 bytes  zeros
    u32       CRC-32 of all that comes before

The front follows, and is checked as a whole before anything in it is used; then the tail, whose pieces have their
checksums in the front.
"""

from __future__ import annotations

from hashlib import sha256
from struct import Struct
from typing import Final, NamedTuple

from pack import inflate
from pack.errors import CorruptData
from pack.objects import OID_BYTES

MAGIC: Final = b"PKHSIDE\n"
FRAME_VERSION: Final = 1
_FIELDS: Final = Struct("<8sHHI16s32sQQ32s12x")
_CRC: Final = Struct("<I")
HEADER_BYTES: Final = _FIELDS.size + _CRC.size


class BadSidecar(CorruptData):
    """A sidecar is damaged, cut short, of another version, or of something else. It never leaves the service."""


class Header(NamedTuple):
    """Sizes of a sidecar's two parts and the checksum of the first."""

    front_bytes: int
    tail_bytes: int
    checksum: bytes

    @property
    def file_bytes(self) -> int:
        return HEADER_BYTES + self.front_bytes + self.tail_bytes


def write_header(kind: str, version: int, derived: bytes, front: bytes, tail_bytes: int) -> bytes:
    """The header of a sidecar; `derived` is the id (32 bytes) of what it was made from."""
    fields = _FIELDS.pack(
        MAGIC,
        FRAME_VERSION,
        version,
        OID_BYTES,
        kind.encode(),
        derived,
        len(front),
        tail_bytes,
        sha256(front).digest(),
    )
    return fields + _CRC.pack(inflate.crc32(fields))


def read_header(data: bytes, kind: str, version: int, derived: bytes) -> Header:
    """The header at the beginning of `data`, which must be of this very sidecar. BadSidecar says what is not."""
    if len(data) < HEADER_BYTES:
        raise BadSidecar("it is cut short")
    if inflate.crc32(data[: _FIELDS.size]) != _CRC.unpack_from(data, _FIELDS.size)[0]:
        raise BadSidecar("its header is damaged")
    magic, frame, own, width, name, made_from, front, tail, checksum = _FIELDS.unpack_from(data)
    if magic != MAGIC or frame != FRAME_VERSION:
        raise BadSidecar("it is of another version, or no sidecar")
    if name.rstrip(b"\0") != kind.encode() or made_from != derived or width != OID_BYTES:
        raise BadSidecar("it is of something else")
    if own != version:
        raise BadSidecar(f"it has version {own} of its format, and {version} is wanted")
    return Header(front, tail, checksum)


def size_of(data: bytes) -> int | None:
    """Bytes of the whole file, as a header of any sidecar says; None where it is none."""
    if len(data) < HEADER_BYTES or inflate.crc32(data[: _FIELDS.size]) != _CRC.unpack_from(data, _FIELDS.size)[0]:
        return None
    fields = _FIELDS.unpack_from(data)
    return HEADER_BYTES + int(fields[6]) + int(fields[7]) if fields[0] == MAGIC else None


def check_front(header: Header, front: bytes) -> None:
    """BadSidecar where these are not the bytes that the header was written for."""
    if len(front) != header.front_bytes:
        raise BadSidecar("it is cut short")
    if sha256(front).digest() != header.checksum:
        raise BadSidecar("its checksum does not match its bytes")
