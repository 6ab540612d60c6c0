"""Responses whose body is sent piece by piece, and ends early where the client leaves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.leaving import attended


class Streamed(Response):
    """Sends `pieces`, which is closed whatever happens; headers say nothing of a length unless they are given one.

    Starlette's own spends a task group on each response to notice that a client leaves.
    """

    def __init__(
        self, pieces: AsyncGenerator[bytes, None], status: int, headers: Mapping[str, str], media_type: str
    ) -> None:
        self.pieces = pieces
        self.status_code = status
        self.media_type = media_type
        self.background = None
        self.init_headers(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await attended(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        async with aclosing(self.pieces) as pieces:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
