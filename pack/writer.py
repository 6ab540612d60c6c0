"""Framing objects as a pack stream (gitformat-pack(5))."""

from __future__ import annotations

import hashlib

from pack.entry import write_header
from pack.errors import PackError
from pack.inflate import compress
from pack.objects import TYPE_NAMES

SIGNATURE = b"PACK"
VERSION = 2


def pack_header(count: int) -> bytes:
    """The first 12 bytes of a pack of `count` objects."""
    return SIGNATURE + VERSION.to_bytes(4, "big") + count.to_bytes(4, "big")


def whole_entry(kind: int, data: bytes, level: int = 6) -> bytes:
    """An object as an entry of its own, no delta."""
    return write_header(kind, len(data)) + compress(data, level)


class PackWriter:
    """Makes a pack piece by piece; each method returns the next bytes of it, and `offset` is where they end.

    >>> writer = PackWriter()
    >>> pack = writer.header(1) + writer.entry(3, b"hello") + writer.trailer()
    """

    def __init__(self, level: int = 6) -> None:
        self.level = level
        self.offset = 0
        self._left = 0
        self._hash = hashlib.sha1(usedforsecurity=False)

    def _out(self, piece: bytes) -> bytes:
        self.offset += len(piece)
        self._hash.update(piece)
        return piece

    def header(self, count: int) -> bytes:
        self._left = count
        return self._out(pack_header(count))

    def entry(self, kind: int, data: bytes) -> bytes:
        """An object of type `kind` (1 to 4)."""
        if kind not in TYPE_NAMES:
            raise ValueError(f"{kind} is no object type")
        return self.raw(whole_entry(kind, data, self.level))

    def raw(self, entry: bytes) -> bytes:
        """An entry that is one already, such as a copied one."""
        if self._left <= 0:
            raise PackError("more entries than the header announced")
        self._left -= 1
        return self._out(entry)

    def trailer(self) -> bytes:
        """The checksum over all before it: the last 20 bytes."""
        if self._left:
            raise PackError(f"{self._left} entries fewer than the header announced")
        return self._hash.digest()
