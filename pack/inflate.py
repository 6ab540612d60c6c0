"""The one module that chooses the zlib implementation (RFC 1950).

zlib-ng, because it inflates and checksums faster than the library that comes with Python; that one otherwise.
Objects of both have the same attributes: `decompress(data, max_length)`, `eof`, `unused_data`, `unconsumed_tail`.
"""

from __future__ import annotations

from typing import Final, Protocol

try:
    from zlib_ng import zlib_ng as _zlib
except ImportError:  # pragma: no cover - a platform without a wheel
    import zlib as _zlib  # type: ignore[no-redef]

Buffer = bytes | bytearray | memoryview


class Inflater(Protocol):
    """A zlib stream being read; `unused_data` is what followed its end in the last input."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, data: Buffer, max_length: int = ..., /) -> bytes: ...


class Deflater(Protocol):
    """A zlib stream being written."""

    def compress(self, data: Buffer, /) -> bytes: ...
    def flush(self, mode: int = ..., /) -> bytes: ...


ZlibError: type[Exception] = _zlib.error  # type: ignore[assignment]
"""Raised by every function here on a stream that is not zlib's."""

decompressobj = _zlib.decompressobj
crc32 = _zlib.crc32
Z_SYNC_FLUSH: Final = _zlib.Z_SYNC_FLUSH
Z_FINISH: Final = _zlib.Z_FINISH


def decompress(data: Buffer, max_length: int, *, alone: bool = True) -> bytes:
    """One whole zlib stream, at most `max_length` bytes of output.

    Raises ZlibError when the stream is damaged, cut, longer than that, or, if it should be `alone`, followed by
    something.
    """
    stream = decompressobj()
    out: bytes = stream.decompress(data, max_length + 1)
    if len(out) > max_length:
        raise ZlibError(f"the stream inflates to more than {max_length} bytes")
    if not stream.eof:
        raise ZlibError("the stream ends too early")
    if alone and stream.unused_data:
        raise ZlibError("something follows the stream")
    return out


def deflater(level: int, wbits: int) -> Deflater:
    """A stream to be written: `wbits` above 15 makes it gzip's, below 0 one without header and checksum."""
    stream: Deflater = _zlib.compressobj(level, wbits=wbits)
    return stream


def compress(data: Buffer, level: int = 6) -> bytes:
    """`data` as one zlib stream."""
    return bytes(_zlib.compress(data, level))
