"""The header of a pack entry (gitformat-pack(5), "Pack entries").

Type and inflated size in a base-128 number whose first byte holds three bits of type and four of size; then, for a
delta, the base: the distance back to its entry (OFS_DELTA, big-endian base-128 with an added one per continuation) or
its oid (REF_DELTA); then a zlib stream.
"""

from __future__ import annotations

from typing import NamedTuple

from pack.errors import PackError
from pack.objects import OFS_DELTA, REF_DELTA, TYPE_NAMES

SIZE_BITS = 63
HEADER_BYTES = 10 + 20
"""No header is longer: ten bytes of type and size, then ten of distance or twenty of oid."""


class Header(NamedTuple):
    kind: int
    size: int
    """Inflated bytes of the entry: the object's own size, or its delta's."""
    back: int
    """OFS_DELTA: bytes back to the base's entry, else 0."""
    base: bytes
    """REF_DELTA: the base's oid, else empty."""
    end: int
    """Where the zlib stream begins, counted like `at`."""


def parse_header(data: bytes | memoryview, at: int) -> Header | None:
    """The header at `at`; None when `data` ends before it does. Raises PackError."""
    end = len(data)
    if at >= end:
        return None
    byte = data[at]
    at += 1
    kind, size, shift = byte >> 4 & 7, byte & 15, 4
    while byte & 0x80:
        if at >= end:
            return None
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if size >> SIZE_BITS or shift > SIZE_BITS + 7:
            raise PackError("the size of an entry has more than 63 bits")
    back, base = 0, b""
    if kind == OFS_DELTA:
        if at >= end:
            return None
        byte = data[at]
        at += 1
        back = byte & 0x7F
        while byte & 0x80:
            if at >= end:
                return None
            byte = data[at]
            at += 1
            back = (back + 1) << 7 | byte & 0x7F
            if back >> SIZE_BITS:
                raise PackError("the distance to a base has more than 63 bits")
    elif kind == REF_DELTA:
        if at + 20 > end:
            return None
        base = bytes(data[at : at + 20])
        at += 20
    elif kind not in TYPE_NAMES:
        raise PackError(f"an entry has the type {kind}, which is none")
    return Header(kind, size, back, base, at)


def write_header(kind: int, size: int) -> bytes:
    """Type and size of an entry; a delta's base follows it."""
    byte = kind << 4 | size & 15
    size >>= 4
    out = bytearray()
    while size:
        out.append(byte | 0x80)
        byte = size & 0x7F
        size >>= 7
    out.append(byte)
    return bytes(out)


def write_distance(back: int) -> bytes:
    """The distance of an OFS_DELTA to its base."""
    out = [back & 0x7F]
    while back := back >> 7:
        back -= 1
        out.append(back & 0x7F | 0x80)
    return bytes(reversed(out))
