"""Requests on their way to a worker, and the queue of those that have none yet."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.streams import Flow
    from app.workers import Worker


class Request:
    """A call or a stream on its way; `future` ends a call, `stream` takes the items of a stream.

    `left` is when (by the loop's clock) its reader went away, None while somebody waits for it. `sent` counts the
    workers that it was given to.
    """

    __slots__ = ("deadline", "future", "key", "left", "name", "number", "payload", "sent", "stream", "timer", "worker")

    def __init__(self, name: str, payload: bytes, key: str, deadline: float) -> None:
        self.name = name
        self.payload = payload
        self.key = key
        self.deadline = deadline
        self.number = 0
        self.worker: Worker | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.future: asyncio.Future[Any] | None = None
        self.stream: Flow | None = None
        self.left: float | None = None
        self.sent = 0

    @property
    def answered(self) -> bool:
        """Whether anything of an answer has come."""
        return not self.payload

    def settle(self, error: BaseException | None, value: Any = None) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.stream is not None:
            self.stream.ended(error)
        elif self.future is not None and not self.future.done():
            if error is None:
                self.future.set_result(value)
            else:
                self.future.set_exception(error)


class Waiting:
    """Requests that wait, taken in turn between their keys so that one busy repository does not starve the others."""

    def __init__(self) -> None:
        self.queues: OrderedDict[str, deque[Request]] = OrderedDict()
        self.count = 0

    def put(self, request: Request) -> None:
        self.queues.setdefault(request.key, deque()).append(request)
        self.count += 1

    def take(self) -> Request:
        key, queue = next(iter(self.queues.items()))
        request = queue.popleft()
        self.count -= 1
        if queue:
            self.queues.move_to_end(key)
        else:
            del self.queues[key]
        return request

    def remove(self, request: Request) -> bool:
        queue = self.queues.get(request.key)
        if queue is None or request not in queue:
            return False
        queue.remove(request)
        self.count -= 1
        if not queue:
            del self.queues[request.key]
        return True
