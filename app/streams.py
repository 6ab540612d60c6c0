"""The reader's side of a stream: what has arrived and was not taken, and the credit that goes back for what was."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any, Self

from app.calls import Request
from app.worker import CREDIT, CREDITS, WINDOW
from pack.errors import PackhouseError

if TYPE_CHECKING:
    from app.workers import Pool


class Flow:
    """What has arrived of a stream and not been taken, and the credit that goes back for what was."""

    def __init__(self, pool: Pool, request: Request) -> None:
        self.pool = pool
        self.request = request
        self.started = self.over = self.stalled = False
        self.moved = 0.0
        self._items: deque[tuple[Any, int]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._error: BaseException | None = None
        self._flying = self._taken = 0

    async def next(self) -> Any:
        if not self.started:
            self.started = True
            try:
                self.pool.submit(self.request)
            except PackhouseError:
                self.over = True
                raise
        while not self._items:
            if self.over:
                error, self._error = self._error, None
                if error is not None:
                    raise error
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            except asyncio.CancelledError:
                self.stop()
                raise
            finally:
                self._waiter = None
        item, size = self._items.popleft()
        self._took(size)
        return item

    def stop(self) -> None:
        self._items.clear()
        if self.started and not self.over:
            self.pool.abandon(self.request)
        self.over, self._error = True, None

    def finish(self) -> None:
        """The last item has been taken: the worker need not be told, unless it waits for credit to come to its end."""
        if self._flying < WINDOW:
            self.over = True
        else:
            self.stop()

    def arrived(self, item: Any, size: int) -> None:
        if self.over:
            return
        self._items.append((item, size))
        self._flying += size
        self.moved = asyncio.get_running_loop().time()
        if self._flying >= WINDOW and not self.stalled:
            self.stalled = True
            worker = self.request.worker
            if worker is not None:
                worker.active -= 1
                self.pool.freed(worker)
        self._wake()

    def _took(self, size: int) -> None:
        self._taken += size
        if self.over or not (self._taken >= WINDOW // 4 or (self.stalled and not self._items)):
            return
        worker = self.request.worker
        if worker is not None and self.request.number in worker.requests:
            self._flying -= self._taken
            worker.send(CREDIT, self.request.number, CREDITS.pack(self._taken))
            self._taken = 0
            if self.stalled and self._flying < WINDOW:
                self.stalled = False
                self.moved = asyncio.get_running_loop().time()
                worker.active += 1

    def ended(self, error: BaseException | None) -> None:
        if not self.over:
            self.over, self._error = True, error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Stream:
    """An asynchronous iterator over a worker's generator; `aclose`, or dropping it, stops the generator."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await self._flow.next()

    async def aclose(self) -> None:
        """Stop: the worker is told to close its generator."""
        self._flow.stop()

    def finish(self) -> None:
        """Nothing comes behind the item that was taken last, but for the end."""
        self._flow.finish()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._flow.stop()

    def __del__(self) -> None:
        # The pool holds the flow, the reader holds this: a reader that goes away without a word is noticed here.
        with contextlib.suppress(Exception):
            self._flow.stop()
