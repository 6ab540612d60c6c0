"""Bodies in a coding: whole, piece by piece, and held open for a last piece.

gzip (RFC 1952) is made by zlib-ng, zstd (RFC 8878) in windows of far less than the 8 MiB that HTTP allows (RFC 9659).
"""

from __future__ import annotations

import struct
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

import anyio.to_thread

from app.coding import GZIP, IDENTITY
from pack.inflate import Z_FINISH, Z_SYNC_FLUSH, Deflater, crc32, deflater

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# The fastest levels of both: 200 to 600 MB/s, with zstd a quarter to a third smaller. The next ones take 1.7 and 1.1 to
# 1.4 times as long, for a quarter and for a few percent less.
GZIP_LEVEL: Final = 1
ZSTD_LEVEL: Final = 1

# A stream holds 0.4 MB while its client is slow, with gzip 0.3 MB. The window that belongs to the level, of 512 KiB,
# would make that 0.8 MB, for 1 to 6 percent less to send.
ZSTD_STREAM: Final[dict[int, int]] = {
    zstd.CompressionParameter.compression_level: ZSTD_LEVEL,
    zstd.CompressionParameter.window_log: 17,
}

WORTH_BYTES: Final = 4 << 10
"""Smaller documents are not coded: 16 µs buy some 2 kB less, which take as long at 1 Gbit/s."""

LOOP_BYTES: Final = 128 << 10
"""What the event loop codes at once, in half a millisecond. More is coded in a thread."""

_GZIP_WBITS: Final = 31
_GZIP_END: Final = struct.Struct("<II")
_STORED: Final = struct.Struct("<BHH")


class Gzip:
    """A gzip stream that is being written."""

    def __init__(self) -> None:
        self._stream: Deflater = deflater(GZIP_LEVEL, _GZIP_WBITS)

    def add(self, data: bytes) -> bytes:
        """The next piece, all of which can be decoded when the returned bytes are there."""
        return self._stream.compress(data) + self._stream.flush(Z_SYNC_FLUSH)

    def end(self, data: bytes = b"") -> bytes:
        """The last piece."""
        return self._stream.compress(data) + self._stream.flush(Z_FINISH)


class Zstd:
    """A zstd stream that is being written."""

    def __init__(self) -> None:
        self._stream = zstd.ZstdCompressor(options=ZSTD_STREAM)

    def add(self, data: bytes) -> bytes:
        """The next piece, all of which can be decoded when the returned bytes are there."""
        return self._stream.compress(data, zstd.ZstdCompressor.FLUSH_BLOCK)

    def end(self, data: bytes = b"") -> bytes:
        """The last piece."""
        return self._stream.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)


def coder(coding: str) -> Gzip | Zstd:
    """A new stream."""
    return Gzip() if coding == GZIP else Zstd()


def chosen(coding: str, size: int) -> str:
    """The coding for a document of so many bytes that a client would take so: none where it is not worth it."""
    return coding if size >= WORTH_BYTES else IDENTITY


def encode(coding: str, data: bytes) -> bytes:
    """All of a body."""
    return Gzip().end(data) if coding == GZIP else zstd.compress(data, ZSTD_LEVEL)


def hold(coding: str, data: bytes) -> bytes:
    """A body (not an empty one) that lacks its last piece, which `finish` adds any number of times."""
    if coding == GZIP:
        return Gzip().add(data) + _GZIP_END.pack(crc32(data), len(data) & 0xFFFFFFFF)
    return Zstd().add(data)


def finish(coding: str, held: bytes, last: bytes) -> bytes:
    """The whole body. `last`, of less than 64 KiB, becomes a block that is stored as it is."""
    if coding == GZIP:
        crc, size = _GZIP_END.unpack(held[-_GZIP_END.size :])
        stored = _STORED.pack(1, len(last), len(last) ^ 0xFFFF)
        end = _GZIP_END.pack(crc32(last, crc), (size + len(last)) & 0xFFFFFFFF)
        return b"".join((held[: -_GZIP_END.size], stored, last, end))
    return held + (len(last) << 3 | 1).to_bytes(3, "little") + last


async def aside(work: Callable[[str, bytes], bytes], coding: str, data: bytes) -> bytes:
    """`encode` or `hold`, in a thread where it would keep the event loop."""
    if len(data) <= LOOP_BYTES:
        return work(coding, data)
    return await anyio.to_thread.run_sync(work, coding, data)


def coded(coding: str, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The stream of `pieces`, each of which goes out at once. Where they break the coding has no end either."""
    return pieces if coding == IDENTITY else _coded(coder(coding), pieces)


async def _coded(stream: Gzip | Zstd, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(pieces):
        async for piece in pieces:
            if len(piece) <= LOOP_BYTES:
                yield stream.add(piece)
            else:
                yield await anyio.to_thread.run_sync(stream.add, piece)
    yield stream.end()
