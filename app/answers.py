"""Answers that are documents or lists: kept ones, made here or in a worker, sent in the form that the client takes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import orjson
from starlette.requests import Request
from starlette.responses import Response

from app import cursors, placing, problems
from app.asking import Asking, current_tag
from app.attempts import Attempts
from app.coders import aside, chosen, coded, encode, finish, hold
from app.coding import IDENTITY, accepted, choose, tagged
from app.headers import IMMUTABLE, NO_CACHE, NO_STORE, headers_of
from app.kept import Keeping, Kept
from app.negotiate import JSON, NDJSON, PATCH, accept
from app.operations import DEFAULT_BYTES, Operation
from app.reads import diff, page
from app.reads.base import by_snapshot
from app.receipts import Receipt
from app.streamed import Streamed
from pack.allowance import Spent, allowed
from pack.errors import BadParameter, CursorExpired, ObjectNotFound
from pack.reader import Need
from storage.repository import Unopened

if TYPE_CHECKING:
    from app.reads.base import Params
    from app.service import Service
    from pack.view import View
    from storage.repository import Handle

log = logging.getLogger("packhouse")

T = TypeVar("T")


class Reads(Asking):
    """Answers the read operations of one service, but for bytes."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._kept = Kept(service.settings.answer_cache_bytes)
        self._attempts = Attempts()

    async def _by_graph(self, operation: Operation, params: Params, view: View) -> bool:
        # A graph that no history is too long for is opened only for reads that it would serve here.
        return placing.by_graph(operation, params, 1) and placing.by_graph(
            operation, params, await self._views.commits(view)
        )

    async def _light(self, operation: Operation, params: Params, handle: Handle) -> View | None:
        """The view without its packs, where refs or the commit graph are likely to answer alone; or it is Unopened."""
        view = self._views.glance(handle)
        return view if placing.by_refs(operation, params) or await self._by_graph(operation, params, view) else None

    async def _walked(self, operation: Operation, work: page.Request) -> View | None:
        """The view, where the stream of a history is made here block by block. Packs may turn out to be needed."""
        if not placing.by_walk(operation, work.params, 1):
            return None
        try:
            view = self._views.glance(work.handle)
            return view if placing.by_walk(operation, work.params, await self._views.commits(view)) else None
        except (Need, Unopened):
            return None

    async def _tried(
        self, operation: Operation, work: page.Request, key: str, read: Callable[[View, page.Request], T]
    ) -> T | None:
        """What `read` makes of the request here and now, None where that is left to a worker."""
        if not placing.is_tried(operation, work.params):
            return None
        handle = work.handle
        try:
            listed = by_snapshot(operation.module, work.params)
            view = self._views.glance(handle) if listed else await self._views.near(handle)
            return self._attempts.make(view, key, lambda: read(view, work)) if view is not None else None
        except Need:
            return None
        finally:
            self._service.sidecars.look()

    async def _recall(self, etag: str, coding: str, kind: str) -> page.Answer | None:
        """What is kept of an answer, in the coding where that is worth it: it is then kept so, too."""
        kept = self._kept.get(tagged(etag, coding))
        if kept is None and coding != IDENTITY:
            plain = self._kept.get(etag)
            kept = plain and await _in_coding(plain, coding, kind)
            if kept is not None and kept is not plain:
                self._kept.put(tagged(etag, coding), kept)
        return kept

    async def single(self, request: Request, operation: Operation) -> Response:
        """A read whose answer is one document."""
        receipt = Receipt()
        handle, question, _ = await self._open(request, operation)
        accept(request.headers.get("accept"), (JSON,))
        coding = choose(accepted(request.scope["headers"]))
        params, cache, etag = question.params, question.cache, question.etag(handle, JSON)
        current = current_tag(request, etag, coding)
        if current is not None:
            return Response(status_code=304, headers=headers_of(handle, None, current, cache))
        kept = await self._recall(etag, coding, JSON)
        if kept is not None:
            receipt.kept()
            return _json(handle, kept, etag, cache, receipt)
        work = page.Request(handle, operation.module, params, coding=coding)

        async def answer(handle: Handle) -> page.Answer:
            with contextlib.suppress(Spent):
                with contextlib.suppress(Unopened):
                    light = await self._light(operation, params, handle)
                    if light is not None:
                        return _bounded(light, page.single, work)
                view = await self._views.open(handle)
                if placing.single_on_loop(operation, params, view) or await self._by_graph(operation, params, view):
                    return _bounded(view, page.single, work)
            return cast(
                page.Answer, await self._work(handle, "app.reads.page:work_single", replace(work, handle=handle))
            )

        found = await _in_coding(await self._supplied(handle, answer), coding, JSON)
        self._kept.put(tagged(etag, found.coding), found)
        return _json(handle, found, etag, cache, receipt)

    async def listing(self, request: Request, operation: Operation) -> Response:
        """A read whose answer is a list: one JSON page, an NDJSON stream, or for a diff a patch."""
        receipt = Receipt()
        handle, question, bearer = await self._open(request, operation)
        offered = (JSON, NDJSON, PATCH) if operation.module == "diff" else (JSON, NDJSON)
        kind = accept(request.headers.get("accept"), offered)
        coding = choose(accepted(request.scope["headers"]))
        params, cache, etag = question.params, question.cache, question.etag(handle, kind)
        current = current_tag(request, etag, coding)
        if current is not None:
            return Response(status_code=304, headers=headers_of(handle, None, current, cache))
        # A cursor is looked at every time: it has to be the bearer's own.
        kept = await self._recall(etag, coding, kind) if params["cursor"] is None else None
        if kept is not None and (kind == JSON or request.method != "HEAD"):
            receipt.kept()
            return (
                _json(handle, kept, etag, cache, receipt)
                if kind == JSON
                else _again(handle, kept, kind, cache, receipt)
            )
        bound = cursors.binding(handle.namespace, operation.id, params, bearer.name)
        work = page.Request(
            handle,
            operation.module,
            params,
            key=self._service.cursor_key,
            bound=bound,
            limit=params["limit"],
            max_bytes=params["max_bytes"],
            max_visits=self._service.settings.read_visits,
            coding=coding,
        )
        if params["cursor"] is not None:
            where = cursors.unseal(self._service.cursor_key, bound, params["cursor"])
            handle = await self._service.repositories.handle_at(handle, where.generation)
            work = replace(work, handle=handle, pin=where.pin, position=where.after)
        try:
            if kind == PATCH:
                return await self._patch(request, operation, work, cache, receipt, etag)
            if kind == NDJSON:
                return await self._ndjson(request, operation, work, cache, receipt, etag)
            work = replace(work, limit=work.limit or operation.default_limit, max_bytes=work.max_bytes or DEFAULT_BYTES)

            async def answer(handle: Handle) -> page.Answer:
                with contextlib.suppress(Spent):
                    with contextlib.suppress(Unopened):
                        light = await self._light(operation, params, handle)
                        if light is not None:
                            return _bounded(light, page.page, work)
                    tried = await self._tried(operation, replace(work, handle=handle), etag, page.page)
                    if tried is not None:
                        return tried
                    if not by_snapshot(operation.module, params):
                        view = await self._views.open(handle)
                        here = placing.page_on_loop(operation, params, view)
                        if here or await self._by_graph(operation, params, view):
                            return _bounded(view, page.page, work)
                return cast(
                    page.Answer, await self._work(handle, "app.reads.page:work_page", replace(work, handle=handle))
                )

            found = await _in_coding(await self._supplied(handle, answer), coding, JSON)
        except ObjectNotFound:
            if work.pin is None:
                raise
            raise CursorExpired("what the cursor was pinned to is gone; begin again without it") from None
        if params["cursor"] is None:
            self._kept.put(tagged(etag, found.coding), found)
        return _json(handle, found, etag, cache, receipt)

    async def _ndjson(
        self, request: Request, operation: Operation, work: page.Request, cache: str, receipt: Receipt, etag: str
    ) -> Response:
        work = replace(work, bare=request.method == "HEAD")
        blocks = self._blocks(work, await self._walked(operation, work))
        tried = None if work.bare else await self._tried(operation, work, etag, page.entire)
        first = tried if tried is not None else await anext(blocks)
        whole = work.limit is None and work.max_bytes is None
        headers = _stream_headers(work.handle, first.commit, cache, whole, work.coding)
        if work.bare:
            await blocks.aclose()
            return Response(headers=headers, media_type=NDJSON)
        # The same is seldom searched for twice.
        wanted = whole and work.position is None and work.module != "grep"
        if first.end is not None:
            await blocks.aclose()
            found = page.Answer(_ended(first, first.end), first.commit, first.end["complete"], 0.0)
            found = await _in_coding(found, work.coding, NDJSON)
            if wanted:
                self._kept.put(tagged(etag, found.coding), found)
            return Response(_received(found, receipt), 200, headers, NDJSON)
        keeping = Keeping(self._kept, etag, first.commit, wanted)

        def given(block: page.Block) -> bytes:
            if block.end is None:
                keeping.add(block.data)
                return block.data
            data = _ended(block, block.end)
            if block.end["complete"]:
                keeping.end(data)
            return data + _receipt(receipt)

        async def body() -> AsyncGenerator[bytes, None]:
            try:
                async with aclosing(blocks):
                    yield given(first)
                    async for block in blocks:
                        yield given(block)
            except Exception as error:
                log.warning("a stream of %s ended early: %s", work.module, error)
                yield orjson.dumps({"end": True, "complete": False, "error": problems.problem(error)}) + b"\n"

        return Streamed(coded(work.coding, body()), 200, headers, NDJSON)

    async def _blocks(self, work: page.Request, here: View | None) -> AsyncGenerator[page.Block, None]:
        """The blocks of a stream: from the view as long as that suffices, then from a worker, begun again in its middle
        when bytes had to be brought first.
        """
        if here is not None:
            steps = page.stream(here, work)
            with contextlib.suppress(Need, Unopened, Spent):
                while True:
                    with allowed(here.objects, placing.allowance(work.module)):
                        block = next(steps)
                    work = block.behind(work)
                    yield block
                    if block.end is not None:
                        return
                    # Who waits has his turn between two blocks.
                    await asyncio.sleep(0)
        errand = self._service.repositories.errand(work.handle)
        while True:
            stream = self._stream(work.handle, "app.reads.page:work_stream", work)
            try:
                async with aclosing(stream):
                    async for block in stream:
                        work = block.behind(work)
                        if block.end is not None:
                            stream.finish()
                        yield block
                return
            except Need as need:
                await errand.bring(need)
                work = replace(work, handle=errand.handle)

    async def _patch(
        self, request: Request, operation: Operation, work: page.Request, cache: str, receipt: Receipt, etag: str
    ) -> Response:
        if work.limit is not None or work.position is not None:
            parameter = "limit" if work.limit is not None else "cursor"
            raise BadParameter("a patch is whole: it has no limit and no cursor", parameter=parameter)
        patch = await self._tried(operation, work, etag, diff.entire)
        if patch is not None:
            patch = await _in_coding(patch, work.coding, PATCH)
            self._kept.put(tagged(etag, patch.coding), patch)
            headers = headers_of(work.handle, patch.commit, None, cache, patch.coding)
            headers["Server-Timing"] = receipt.header()
            return Response(patch.body, 200, headers, PATCH)
        first, pieces = await self._begun(
            work.handle, "app.reads.diff:work_patch", lambda handle: (replace(work, handle=handle),)
        )
        commit = orjson.loads(first)["commit"]
        headers = headers_of(work.handle, commit, None, cache, work.coding)
        headers["Server-Timing"] = receipt.header()
        if request.method == "HEAD":
            await pieces.aclose()
            return Response(headers=headers, media_type=PATCH)
        keeping = Keeping(self._kept, etag, commit, work.max_bytes is None)

        async def body() -> AsyncGenerator[bytes, None]:
            async with aclosing(pieces):
                async for piece in pieces:
                    keeping.add(piece)
                    yield piece
            keeping.end(b"")

        return Streamed(coded(work.coding, body()), 200, headers, PATCH)


def _bounded(view: View, read: Callable[[View, page.Request], page.Answer], work: page.Request) -> page.Answer:
    """What `read` gives here and now; Spent where that takes up too much."""
    with allowed(view.objects, placing.allowance(work.module)):
        return read(view, work)


async def _in_coding(found: page.Answer, coding: str, kind: str) -> page.Answer:
    """The answer in the coding, unless it is so already or not worth it; one in NDJSON still lacks its last piece."""
    if kind == JSON:
        coding = chosen(coding, len(found.body))
    if coding in (IDENTITY, found.coding):
        return found
    return replace(found, body=await aside(hold if kind == NDJSON else encode, coding, found.body), coding=coding)


def _json(handle: Handle, found: page.Answer, etag: str, cache: str, receipt: Receipt) -> Response:
    receipt.worked(found.seconds)
    if found.complete:
        headers = headers_of(handle, found.commit, tagged(etag, found.coding), cache, found.coding)
    else:
        headers = headers_of(handle, found.commit, None, NO_STORE, found.coding)
    headers["Server-Timing"] = receipt.header()
    return Response(found.body, 200, headers, JSON)


def _stream_headers(handle: Handle, commit: str | None, cache: str, whole: bool, coding: str) -> dict[str, str]:
    headers = headers_of(handle, commit, None, NO_CACHE if cache != IMMUTABLE else cache, coding)
    if not whole:
        headers["Cache-Control"] = NO_STORE
    return headers


def _ended(block: page.Block, end: dict[str, Any]) -> bytes:
    """The last block of a stream with its last record, which is left open for the receipt."""
    return block.data + orjson.dumps(end)[:-1]


def _receipt(receipt: Receipt) -> bytes:
    """The last member of a stream's last record, with its end."""
    return b',"receipt":%b}\n' % orjson.dumps(receipt.fields())


def _received(found: page.Answer, receipt: Receipt) -> bytes:
    """All of a stream that lacks its receipt alone."""
    last = _receipt(receipt)
    return found.body + last if found.coding == IDENTITY else finish(found.coding, found.body, last)


def _again(handle: Handle, kept: page.Answer, kind: str, cache: str, receipt: Receipt) -> Response:
    """A stream that was kept."""
    if kind == NDJSON:
        headers = _stream_headers(handle, kept.commit, cache, True, kept.coding)
        return Response(_received(kept, receipt), 200, headers, NDJSON)
    headers = headers_of(handle, kept.commit, None, cache, kept.coding)
    headers["Server-Timing"] = receipt.header()
    return Response(kept.body, 200, headers, PATCH)
