"""An answer of an upstream: its body read raw, unpacked at most once, and watched by the clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from typing import Final, cast

import httpx

from app.fetch.gzip import GzipDecoder, is_gzip
from app.fetch.timeouts import Timeouts
from pack.errors import UpstreamProtocol, UpstreamTimeout
from pack.sideband import clean

PIECE: Final = 64 * 1024


class Answer:
    """`limit` is the most bytes that the unpacked body may have; `deadline` a time of the event loop's clock."""

    def __init__(self, response: httpx.Response, timeouts: Timeouts, deadline: float | None) -> None:
        self.response = response
        self.status = response.status_code
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        self.content_type = clean(kind.encode("utf-8", "replace"), 100)
        self.limit: int | None = None
        self._timeouts = timeouts
        self._deadline = deadline
        self._raw: AsyncGenerator[bytes, None] | None = None
        self._decoder: GzipDecoder | None = None
        self._unpacked: Iterator[bytes] = iter(())
        self._total = 0
        self._window = (time.monotonic(), 0)

    async def piece(self) -> bytes | None:
        """The next piece of the body, at most 64 KB; None at its end. UpstreamProtocol above the limit."""
        if self._raw is None:
            self._decoder = GzipDecoder() if is_gzip(self.response.headers.get("content-encoding")) else None
            self._raw = cast("AsyncGenerator[bytes, None]", self.response.aiter_raw())
        while (piece := next(self._unpacked, None)) is None:
            chunk = await self._chunk(self._raw)
            if chunk is None:
                if self._decoder is not None:
                    self._decoder.finish()
                return None
            self._unpacked = cut(chunk) if self._decoder is None else self._decoder.feed(chunk)
        self._total += len(piece)
        if self.limit is not None and self._total > self.limit:
            raise UpstreamProtocol(f"the upstream's answer is larger than {self.limit >> 20} MB")
        return piece

    async def aclose(self) -> None:
        """Done with it; a body that was not read to its end takes the connection with it."""
        try:
            if self._raw is not None:
                await self._raw.aclose()
        finally:
            await self.response.aclose()

    async def _chunk(self, raw: AsyncGenerator[bytes, None]) -> bytes | None:
        try:
            async with asyncio.timeout_at(self._deadline):
                chunk = await anext(raw, None)
        except TimeoutError:
            raise overdue() from None
        if self._timeouts.min_rate is not None and chunk is not None:
            self._check_rate(len(chunk), self._timeouts.min_rate)
        return chunk

    def _check_rate(self, count: int, least: int) -> None:
        start, seen = self._window
        seen += count
        now = time.monotonic()
        if now - start >= self._timeouts.rate_window:
            if seen < least * (now - start):
                raise UpstreamTimeout(f"the upstream sends less than {least} bytes a second", phase="body")
            start, seen = now, 0
        self._window = (start, seen)


def cut(data: bytes) -> Iterator[bytes]:
    """`data` in pieces of at most 64 KB."""
    if len(data) <= PIECE:
        return iter((data,) if data else ())
    return (data[at : at + PIECE] for at in range(0, len(data), PIECE))


def overdue() -> UpstreamTimeout:
    return UpstreamTimeout("the fetch took longer than it may", phase="total")
