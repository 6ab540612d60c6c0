"""Reading coded bodies, whole or as they come, by decoders that know nothing of how they were made."""

from __future__ import annotations

import sys
import zlib

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


class Decoder:
    """Decodes one stream; `ended` once its proper end has come."""

    def __init__(self, coding: str) -> None:
        self._stream = zlib.decompressobj(31) if coding == "gzip" else zstd.ZstdDecompressor()

    @property
    def ended(self) -> bool:
        return self._stream.eof

    def feed(self, data: bytes) -> bytes:
        if self.ended:
            assert not data, "something follows the end"
            return b""
        found = self._stream.decompress(data)
        assert not self._stream.unused_data
        return found


def decode(coding: str, data: bytes) -> bytes:
    """All of a body, which must be one stream and come to its end."""
    if coding == "identity":
        return data
    stream = Decoder(coding)
    found = stream.feed(data)
    assert stream.ended, "the stream is cut"
    return found
