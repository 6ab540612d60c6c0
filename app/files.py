"""Bytes of files and objects: as they are, a range of them, or as the gzip stream that lies ready."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from app import placing
from app.asking import Asking, current_tag
from app.coding import GZIP, IDENTITY, accepted, choose, tagged
from app.headers import IMMUTABLE, OID, headers_of
from app.negotiate import byte_range
from app.operations import Operation
from app.reads import raw
from app.reads.raw import Found, Ready
from app.receipts import Receipt
from app.streamed import Streamed
from pack.errors import BadParameter, CorruptObject
from pack.objects import BLOB, TYPE_NAMES
from pack.reader import Need

if TYPE_CHECKING:
    from storage.repository import Handle

BYTES: Final = "application/octet-stream"


class Files(Asking):
    """Answers with bytes."""

    async def raw(self, request: Request, operation: Operation) -> Response:
        """The bytes of one file, whole or a range."""
        receipt = Receipt()
        handle, question, _ = await self._open(request, operation)
        params = question.params

        async def look(handle: Handle) -> Found:
            if placing.walks((params["rev"],)):
                return cast(Found, await self._work(handle, "app.reads.raw:work_look", handle, params))
            return raw.look(await self._views.open(handle), params)

        found = await self._supplied(handle, look)
        headers = headers_of(handle, found.commit, f'"{found.oid.hex()}"', question.cache)
        name = found.path.rpartition(b"/")[2] or found.oid.hex().encode()
        headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
        return await self._bytes(request, handle, found, headers, receipt)

    async def object(self, request: Request, operation: Operation) -> Response:
        """The bytes of any object by its full id."""
        receipt = Receipt()
        handle, _, _ = await self._open(request, operation)
        text = request.path_params["oid"]
        if not OID.match(text.encode()):
            raise BadParameter("an object is named by its 40 hex digits here", parameter="oid")

        async def look(handle: Handle) -> Found:
            return raw.look_object(await self._views.open(handle), bytes.fromhex(text))

        found = await self._supplied(handle, look)
        headers = headers_of(handle, None, f'"{text}"', IMMUTABLE)
        headers["Packhouse-Object-Type"] = TYPE_NAMES[found.type].decode()
        return await self._bytes(request, handle, found, headers, receipt)

    async def _ready(self, handle: Handle, oid: bytes, bare: bool) -> Ready | None:
        """The blob's gzip stream, where one is ready; a long one is read and checked by a worker."""

        async def find(handle: Handle) -> Ready | None:
            view = await self._views.open(handle)
            try:
                found = raw.ready(view, oid, bare=bare, most=placing.LOOP_BYTES)
            except Need:
                if raw.at_hand(view, oid, placing.LOOP_BYTES):
                    return None  # the blob as it is costs no request
                raise
            if found is None or found.body is not None or bare:
                return found
            return cast(Ready | None, await self._work(handle, "app.reads.raw:work_ready", handle, oid))

        return await self._supplied(handle, find)

    async def _bytes(
        self, request: Request, handle: Handle, found: Found, headers: dict[str, str], receipt: Receipt
    ) -> Response:
        """The object's bytes, or the one range of them that is asked for (RFC 9110, section 14)."""
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Accept-Ranges"] = "bytes"
        etag = headers["ETag"]
        coding = choose(accepted(request.scope["headers"]), (GZIP,)) if found.type == BLOB else IDENTITY
        current = current_tag(request, etag, coding)
        if current is not None:
            return Response(status_code=304, headers=headers | {"ETag": current})
        if coding == GZIP and "range" not in request.headers:
            ready = await self._ready(handle, found.oid, request.method == "HEAD")
            if ready is not None:
                headers |= {"ETag": tagged(etag, GZIP), "Content-Encoding": GZIP, "Content-Length": str(ready.size)}
                headers["Server-Timing"] = receipt.header()
                return Response(ready.body, 200, headers, BYTES)
        wanted = request.headers.get("range") if request.method == "GET" else None
        condition = request.headers.get("if-range")
        if condition is not None and condition.strip() != headers["ETag"]:
            wanted = None
        part = byte_range(wanted, found.size)
        start, end = part or (0, found.size)
        status = 200 if part is None else 206
        if part is not None:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{found.size}"
        headers["Content-Length"] = str(end - start)
        if request.method == "HEAD":
            headers["Server-Timing"] = receipt.header()
            return Response(status_code=status, headers=headers, media_type=BYTES)
        if found.size <= placing.LOOP_BYTES:

            async def content(handle: Handle) -> bytes:
                return raw.content(await self._views.open(handle), found, start, end)

            body = await self._supplied(handle, content)
            headers["Server-Timing"] = receipt.header()
            return Response(body, status, headers, BYTES)
        first, pieces = await self._begun(
            handle, "app.reads.raw:work_chunks", lambda handle: (handle, found, start, end)
        )
        headers["Server-Timing"] = receipt.header()

        async def chunks() -> AsyncGenerator[bytes, None]:
            sent = len(first)
            async with aclosing(pieces):
                yield first
                async for piece in pieces:
                    sent += len(piece)
                    yield piece
            if sent != end - start:
                # The connection breaks: fewer bytes than announced are never taken for the whole.
                raise CorruptObject(f"{found.oid.hex()} ended after {sent} bytes")

        return Streamed(chunks(), status, headers, BYTES)
