"""Clients that hang up before their answer has begun: the work for them ends there.

Once it has begun, the response itself listens. Quick answers, nearly all of them, cost no more than a timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from starlette.types import Receive

T = TypeVar("T")
AFTER: Final = 0.25
"""Seconds that an answer may take before its client is watched."""


async def attended(receive: Receive, answer: Awaitable[T]) -> T | None:
    """The answer, or None where the client left before it was ready. Not for requests whose body is still to be read.

    What is cancelled with the answer gives back what it holds.
    """
    task = asyncio.current_task()
    assert task is not None
    watch = _Watch(receive, task)
    timer = asyncio.get_running_loop().call_later(AFTER, watch.start)
    try:
        return await answer
    except asyncio.CancelledError:
        if not watch.left:
            raise
        task.uncancel()
        return None
    finally:
        timer.cancel()
        watch.stop()


class _Watch:
    """Waits for the client to leave, and cancels `task` then."""

    def __init__(self, receive: Receive, task: asyncio.Task[object]) -> None:
        self.left = False
        self._receive = receive
        self._task = task
        self._listening: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    def stop(self) -> None:
        if self._listening is not None:
            self._listening.cancel()

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.left = True
        self._task.cancel()
