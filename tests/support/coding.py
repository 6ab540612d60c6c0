"""Reading coded bodies, whole or as they come, by decoders that know nothing of how they were made."""

from __future__ import annotations

import sys
import zlib
from typing import Any, NamedTuple

import httpx

from tests.support.service import Repo, query

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


class Sent(NamedTuple):
    """An answer as it was sent, and what its body is decoded."""

    status: int
    headers: httpx.Headers
    raw: bytes

    @property
    def coding(self) -> str:
        return self.headers.get("content-encoding", "identity")

    @property
    def body(self) -> bytes:
        return decode(self.coding, self.raw)


def fetch(
    repo: Repo, path: str, coding: str | None, /, accept: str = "application/json", method: str = "GET", **params: Any
) -> Sent:
    """An answer for that Accept-Encoding, None for a request without one."""
    headers = {"Accept": accept} | params.pop("headers", {})
    request = repo.client.build_request(method, f"{repo.base}{path}?{query(params)}", headers=headers)
    del request.headers["accept-encoding"]
    if coding is not None:
        request.headers["accept-encoding"] = coding
    answer = repo.client.send(request, stream=True)
    try:
        return Sent(answer.status_code, answer.headers, b"".join(answer.iter_raw()))
    finally:
        answer.close()
