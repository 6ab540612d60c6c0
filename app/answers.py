"""From a request to a response: who asks, what for, at which generation, where the work is done, how it is sent."""

from __future__ import annotations

import hashlib
import logging
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

import anyio.to_thread
import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from storage.repository import open_view

from app import cursors, problems
from app.negotiate import JSON, NDJSON, PATCH, accept, byte_range, matches
from app.operations import DEFAULT_BYTES, Operation
from app.params import read_query
from app.reads import page, raw
from app.receipts import Receipt
from app.tokens import Bearer, Verb
from pack.errors import BadParameter, CorruptObject, CursorExpired, ObjectNotFound, RepoNotFound
from pack.objects import TYPE_NAMES
from pack.reader import Need

if TYPE_CHECKING:
    from storage.repository import Handle

    from app.service import Service
    from pack.view import View

log = logging.getLogger("packhouse")

T = TypeVar("T")

SEGMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
OID: Final = re.compile(rb"[0-9a-f]{40}\Z")
VARY: Final = "Accept, Accept-Encoding, Authorization"
IMMUTABLE: Final = "private, immutable, max-age=31536000"
NO_CACHE: Final = "private, no-cache"
NO_STORE: Final = "no-store"

# The event loop answers itself what costs it less than handing the work over; sizes are of inflated objects.
LOOP_BYTES: Final = 256 * 1024
LOOP_ENTRIES: Final = 1000
FORMAT: Final = 1

_HEAVY_REV: Final = re.compile(rb"[~^:{]|-g[0-9a-f]")
_LOOP_READS: Final = frozenset({"resolve", "commit", "tag", "blob", "stat"})


def repository_name(owner: str, name: str) -> None:
    """RepoNotFound where the two path segments cannot be a repository's."""
    for segment in (owner, name):
        if not SEGMENT.match(segment) or segment.endswith((".git", ".lock")):
            raise RepoNotFound(f"there is no repository {owner[:100]}/{name[:100]}")


def authorize(service: Service, request: Request, verb: Verb) -> tuple[str, str, Bearer]:
    """Owner, name and bearer of a request to a repository that may use `verb` on it."""
    owner, name = request.path_params["owner"], request.path_params["name"]
    bearer = service.tokens.identify(request.headers.get("authorization"))
    repository_name(owner, name)
    service.tokens.check(bearer, owner, name, verb)
    return owner, name, bearer


class Views:
    """The views that this process reads from on its event loop."""

    def __init__(self, most: int = 256) -> None:
        self._views: OrderedDict[tuple[str, int], View] = OrderedDict()
        self._most = most

    async def open(self, handle: Handle) -> View:
        key = (handle.namespace, handle.generation)
        view = self._views.get(key)
        if view is None:
            # Reading and checking indexes can take a while.
            view = await anyio.to_thread.run_sync(open_view, handle)
            self._views[key] = view
            while len(self._views) > self._most:
                self._views.popitem(last=False)
        else:
            self._views.move_to_end(key)
        return view


class Reads:
    """Answers the read operations of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._views = Views()

    async def _open(self, request: Request, operation: Operation) -> tuple[Handle, dict[str, Any], Bearer]:
        owner, name, bearer = authorize(self._service, request, "read")
        params = read_query(request.scope["query_string"], operation.params)
        handle = await self._service.repositories.handle(owner, name, params.get("min_generation"))
        return handle, params, bearer

    async def _supplied(self, handle: Handle, receipt: Receipt, work: Callable[[], Awaitable[T]]) -> T:
        """Do `work`, bringing from the store whatever it finds missing on this node."""
        while True:
            try:
                return await work()
            except Need as need:
                await self._service.repositories.supply(handle, need.ranges)
                receipt.supplied(need.ranges)

    async def single(self, request: Request, operation: Operation) -> Response:
        """A read whose answer is one document."""
        receipt = Receipt()
        handle, params, _ = await self._open(request, operation)
        etag = _etag(operation, params, handle, JSON)
        fixed = _fixed(operation, params)
        if matches(request.headers.get("if-none-match"), etag):
            return Response(status_code=304, headers=_headers(handle, None, etag, IMMUTABLE if fixed else NO_CACHE))
        accept(request.headers.get("accept"), (JSON,))
        work = page.Request(handle, operation.module, params)

        async def answer() -> page.Answer:
            view = await self._views.open(handle)
            if operation.module in _LOOP_READS and _light(operation, params, view):
                return page.single(view, work)
            return await self._service.pool.run("app.reads.page:work_single", work)

        found = await self._supplied(handle, receipt, answer)
        return _json(request, handle, found, etag, fixed, receipt)

    async def listing(self, request: Request, operation: Operation) -> Response:
        """A read whose answer is a list: one JSON page, an NDJSON stream, or for a diff a patch."""
        receipt = Receipt()
        handle, params, bearer = await self._open(request, operation)
        offered = (JSON, NDJSON, PATCH) if operation.module == "diff" else (JSON, NDJSON)
        kind = accept(request.headers.get("accept"), offered)
        etag = _etag(operation, params, handle, kind)
        fixed = _fixed(operation, params)
        if matches(request.headers.get("if-none-match"), etag):
            return Response(status_code=304, headers=_headers(handle, None, etag, IMMUTABLE if fixed else NO_CACHE))
        settings = self._service.settings
        bound = cursors.binding(handle.namespace, operation.id, params, bearer.name)
        work = page.Request(
            handle,
            operation.module,
            params,
            key=self._service.cursor_key,
            bound=bound,
            limit=params["limit"],
            max_bytes=params["max_bytes"],
            max_visits=settings.read_visits,
        )
        if params["cursor"] is not None:
            where = cursors.unseal(self._service.cursor_key, bound, params["cursor"])
            if where.generation != handle.generation:
                handle = await self._service.repositories.handle_at(handle, where.generation)
            work = replace(work, handle=handle, pin=where.pin, position=where.after)
        try:
            if kind == PATCH:
                return await self._patch(request, handle, work, fixed, receipt)
            if kind == NDJSON:
                return await self._ndjson(request, handle, work, fixed, receipt)
            work = replace(work, limit=work.limit or operation.default_limit, max_bytes=work.max_bytes or DEFAULT_BYTES)

            async def answer() -> page.Answer:
                view = await self._views.open(handle)
                if _light_list(operation, params, view):
                    return page.page(view, work)
                return await self._service.pool.run("app.reads.page:work_page", work)

            found = await self._supplied(handle, receipt, answer)
        except ObjectNotFound:
            if work.pin is None:
                raise
            raise CursorExpired("what the cursor was pinned to is gone; begin again without it") from None
        return _json(request, handle, found, etag, fixed, receipt)

    async def _ndjson(
        self, request: Request, handle: Handle, work: page.Request, fixed: bool, receipt: Receipt
    ) -> Response:
        blocks = self._blocks(handle, work, receipt)
        first = await anext(blocks)
        headers = _headers(handle, first.commit, None, IMMUTABLE if fixed and work.limit is None else NO_CACHE)
        if request.method == "HEAD":
            await blocks.aclose()
            return Response(headers=headers, media_type=NDJSON)

        async def body() -> AsyncIterator[bytes]:
            try:
                async with aclosing(blocks):
                    async for block in blocks:
                        if block.end is None:
                            yield block.data
                        else:
                            end = {**block.end, "receipt": receipt.fields()}
                            yield block.data + orjson.dumps(end) + b"\n"
            except Exception as error:
                log.warning("a stream of %s ended early: %s", work.module, error)
                yield orjson.dumps({"end": True, "complete": False, "error": problems.problem(error)}) + b"\n"

        return StreamingResponse(body(), headers=headers, media_type=NDJSON)

    async def _blocks(self, handle: Handle, work: page.Request, receipt: Receipt) -> AsyncIterator[page.Block]:
        """The blocks of a stream from a worker, begun again in the middle when bytes had to be brought first."""
        last: page.Block | None = None
        while True:
            done = 0 if last is None else last.count
            stream = self._service.pool.stream("app.reads.page:work_stream", work, done)
            try:
                async with aclosing(stream):
                    async for block in stream:
                        if last is not None and not block.data and block.end is None:
                            continue
                        last = block
                        work = replace(work, pin=block.pin, position=block.position)
                        yield block
                return
            except Need as need:
                await self._service.repositories.supply(handle, need.ranges)
                receipt.supplied(need.ranges)

    async def _patch(
        self, request: Request, handle: Handle, work: page.Request, fixed: bool, receipt: Receipt
    ) -> Response:
        if work.limit is not None or work.position is not None:
            raise BadParameter("a patch is whole: limit and cursor do not go with text/x-diff", parameter="limit")
        while True:
            pieces = self._service.pool.stream("app.reads.diff:work_patch", work)
            try:
                first = await anext(pieces)
                break
            except Need as need:
                await self._service.repositories.supply(handle, need.ranges)
                receipt.supplied(need.ranges)
        commit = orjson.loads(first)["commit"]
        headers = _headers(handle, commit, None, IMMUTABLE if fixed else NO_CACHE)
        headers["Server-Timing"] = receipt.header()
        if request.method == "HEAD":
            await pieces.aclose()
            return Response(headers=headers, media_type=PATCH)

        async def body() -> AsyncIterator[bytes]:
            async with aclosing(pieces):
                async for piece in pieces:
                    yield piece

        return StreamingResponse(body(), headers=headers, media_type=PATCH)

    async def raw(self, request: Request, operation: Operation) -> Response:
        """The bytes of one file, whole or a range."""
        receipt = Receipt()
        handle, params, _ = await self._open(request, operation)

        async def look() -> raw.Found:
            view = await self._views.open(handle)
            if _HEAVY_REV.search(params["rev"]):
                return await self._service.pool.run("app.reads.raw:work_look", handle, params)
            return raw.look(view, params)

        found = await self._supplied(handle, receipt, look)
        fixed = bool(OID.match(params["rev"]))
        headers = _headers(handle, found.commit, f'"{found.oid.hex()}"', IMMUTABLE if fixed else NO_CACHE)
        name = params["path"].rpartition(b"/")[2] or found.oid.hex().encode()
        headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
        return await self._bytes(request, handle, found, headers, receipt)

    async def object(self, request: Request, operation: Operation) -> Response:
        """The bytes of any object by its full id."""
        receipt = Receipt()
        handle, _, _ = await self._open(request, operation)
        text = request.path_params["oid"].encode()
        if not OID.match(text):
            raise BadParameter("an object is named by its 40 hex digits here", parameter="oid")
        oid = bytes.fromhex(text.decode())

        async def look() -> raw.Found:
            view = await self._views.open(handle)
            return raw.look_object(view, oid)

        found = await self._supplied(handle, receipt, look)
        headers = _headers(handle, None, f'"{found.oid.hex()}"', IMMUTABLE)
        headers["Packhouse-Object-Type"] = TYPE_NAMES[found.type].decode()
        return await self._bytes(request, handle, found, headers, receipt)

    async def _bytes(
        self, request: Request, handle: Handle, found: raw.Found, headers: dict[str, str], receipt: Receipt
    ) -> Response:
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Accept-Ranges"] = "bytes"
        if matches(request.headers.get("if-none-match"), headers["ETag"]):
            return Response(status_code=304, headers=headers)
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
        media = "application/octet-stream"
        if request.method == "HEAD":
            headers["Server-Timing"] = receipt.header()
            return Response(status_code=status, headers=headers, media_type=media)
        if found.size <= LOOP_BYTES:

            async def content() -> bytes:
                view = await self._views.open(handle)
                return raw.content(view, found, start, end)

            body = await self._supplied(handle, receipt, content)
            headers["Server-Timing"] = receipt.header()
            return Response(body, status, headers, media)
        while True:
            pieces = self._service.pool.stream("app.reads.raw:work_chunks", handle, found, start, end)
            try:
                first = await anext(pieces)
                break
            except Need as need:
                await self._service.repositories.supply(handle, need.ranges)
                receipt.supplied(need.ranges)
        headers["Server-Timing"] = receipt.header()

        async def chunks() -> AsyncIterator[bytes]:
            sent = len(first)
            async with aclosing(pieces):
                yield first
                async for piece in pieces:
                    sent += len(piece)
                    yield piece
            if sent != end - start:
                # The connection breaks: fewer bytes than announced are never taken for the whole.
                raise CorruptObject(f"{found.oid.hex()} ended after {sent} bytes")

        return StreamingResponse(chunks(), status, headers, media)


def _light(operation: Operation, params: dict[str, Any], view: View) -> bool:
    """Whether the event loop may do this read itself."""
    revs = params["rev"] if isinstance(params["rev"], tuple) else (params["rev"],)
    if len(revs) > 20 or any(_HEAVY_REV.search(rev) for rev in revs):
        return False
    if operation.module == "blob":
        return raw.size_of(view, params) <= LOOP_BYTES
    return True


def _light_list(operation: Operation, params: dict[str, Any], view: View) -> bool:
    """Whether the event loop may make this page itself: one small directory, or a short page of refs."""
    if operation.module == "refs":
        return (params["limit"] or operation.default_limit) <= LOOP_ENTRIES
    if operation.module != "tree" or params["recursive"] or params["last_commit"] or params["glob"] or params["sizes"]:
        return False
    if _HEAVY_REV.search(params["rev"]):
        return False
    return raw.size_of(view, params) <= LOOP_BYTES // 8


def _fixed(operation: Operation, params: dict[str, Any]) -> bool:
    """Whether the answer depends on nothing but full object ids."""
    revs: list[bytes | None] = []
    for param in operation.params:
        if param.kind == "rev":
            value = params[param.name]
            revs.extend(value if isinstance(value, tuple) else (value,))
    given = [rev for rev in revs if rev is not None]
    return bool(given) and all(OID.match(rev) for rev in given)


def _etag(operation: Operation, params: dict[str, Any], handle: Handle, kind: str) -> str:
    """A strong tag: a generation never changes, so the same question to it has the same answer."""
    asked = sorted((name, repr(value)) for name, value in params.items() if name != "min_generation")
    basis = repr((FORMAT, operation.id, kind, handle.namespace, handle.generation, asked))
    return f'"{hashlib.sha256(basis.encode("utf-8", "surrogatepass")).hexdigest()[:32]}"'


def _headers(handle: Handle, commit: str | None, etag: str | None, cache: str) -> dict[str, str]:
    headers = {"Vary": VARY, "Cache-Control": cache, "Packhouse-Generation": str(handle.generation)}
    if commit is not None:
        headers["Packhouse-Commit"] = commit
    if etag is not None:
        headers["ETag"] = etag
    return headers


def _json(request: Request, handle: Handle, found: page.Answer, etag: str, fixed: bool, receipt: Receipt) -> Response:
    receipt.worked(found.seconds)
    if found.complete:
        headers = _headers(handle, found.commit, etag, IMMUTABLE if fixed else NO_CACHE)
    else:
        headers = _headers(handle, found.commit, None, NO_STORE)
    headers["Server-Timing"] = receipt.header()
    return Response(found.body, 200, headers, JSON)
