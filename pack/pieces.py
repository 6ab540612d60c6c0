"""One whole object out of a pack, piece by piece."""

from __future__ import annotations

import hashlib
from typing import Final

from pack import inflate
from pack.errors import CorruptObject
from pack.objects import TYPE_NAMES
from pack.source import Source

_PIECE: Final = 1 << 18


class Pieces:
    """The data of an object of type `kind` and `size` bytes, whose zlib stream lies from `start` to `end` of a pack.

    An object that is no delta only. Raises CorruptObject before the last piece; a Need leaves it as it was.
    """

    def __init__(self, source: Source, name: str, start: int, end: int, oid: bytes, kind: int, size: int) -> None:
        self._source = source
        self._oid = oid
        self._name = name
        self._at = start
        self._end = end
        self._left = size
        self._inflate = inflate.decompressobj()
        self._pending = b""
        self._hash = hashlib.sha1(b"%s %d\0" % (TYPE_NAMES[kind], size), usedforsecurity=False)

    def __iter__(self) -> Pieces:
        return self

    def __next__(self) -> bytes:
        if self._left < 0:
            raise StopIteration
        while True:
            if not self._pending and self._at < self._end:
                raw = self._source.read(self._name, self._at, min(_PIECE, self._end - self._at))
                self._at += len(raw)
                self._pending = raw
            piece = self._step()
            if piece:
                self._left -= len(piece)
                self._hash.update(piece)
                if self._left == 0:
                    self._finish()
                return piece

    def _step(self) -> bytes:
        raw, self._pending = self._pending, b""
        try:
            piece = self._inflate.decompress(raw, min(_PIECE, self._left))
        except inflate.ZlibError as error:
            raise self._damage(str(error)) from None
        self._pending = self._inflate.unconsumed_tail
        if not piece and (self._inflate.eof or not raw):
            raise self._damage("its data ends early")
        return bytes(piece)

    def _finish(self) -> None:
        if self._hash.digest() != self._oid:
            raise self._damage("its bytes have another hash")
        self._left = -1

    def _damage(self, why: str) -> CorruptObject:
        return CorruptObject(f"object {self._oid.hex()} is damaged: {why}", object=self._oid.hex())
