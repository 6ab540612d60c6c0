"""Threads for calls that may hang for as long as a distant file system is away.

The executors of the standard library wait for their threads when the process ends; a thread here that hangs for ever
ends with the process. Work is given up by its caller when it has made no step for a while; its thread goes on only to
the next step.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, ParamSpec, TypeVar

_T = TypeVar("_T")
_P = ParamSpec("_P")


class _Job(Generic[_T]):
    """One piece of work. `touched`: when it made its last step, by the monotonic clock."""

    def __init__(self, work: Callable[[], _T]) -> None:
        self.work = work
        self.touched = time.monotonic()
        self.given_up = False
        self.unwanted = False
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[_T] = self.loop.create_future()

    def do(self) -> Callable[[], None]:
        """How its end is told to whoever waits for it."""
        if self.given_up or self.unwanted:
            return _nothing
        _local.job = self
        self.touched = time.monotonic()
        try:
            return partial(self._tell, self._succeed, self.work())
        except BaseException as error:
            return partial(self._tell, self._fail, error)
        finally:
            _local.job = None

    def _tell(self, how: Callable[[Any], None], what: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and whoever waited with it
            self.loop.call_soon_threadsafe(how, what)

    def _succeed(self, result: _T) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def _fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # it may be that nobody waits any more


class _Local(threading.local):
    job: _Job[Any] | None = None


_local = _Local()


def _nothing() -> None:
    pass


def step() -> None:
    """To be called before each call that may hang. TimeoutError where the work has been given up."""
    job = _local.job
    if job is not None:
        if job.given_up:
            raise late()
        job.touched = time.monotonic()


def late() -> TimeoutError:
    return TimeoutError(errno.ETIMEDOUT, "it did not answer in time")


class Threads:
    """At most `most` of them, of this process."""

    def __init__(self, name: str, most: int) -> None:
        self.pid = os.getpid()
        self._name = name
        self._most = most
        self._threads = 0
        self._busy = 0
        self._lock = threading.Lock()
        self._queue: SimpleQueue[_Job[Any] | None] = SimpleQueue()

    @property
    def busy(self) -> int:
        """Pieces of work that wait, run or hang."""
        return self._busy

    async def run(self, patience: float, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """TimeoutError when it has made no step for `patience` seconds, or has not begun."""
        job = _Job(lambda: work(*args, **kwargs))
        self._put(job)
        try:
            while True:
                left = job.touched + patience - time.monotonic()
                if left <= 0:
                    job.given_up = True
                    raise late()
                done, _ = await asyncio.wait({job.future}, timeout=left)
                if done:
                    return job.future.result()
        finally:
            job.unwanted = True

    def close(self) -> None:
        """Threads end when they have nothing more to do."""
        with self._lock:
            for _ in range(self._threads):
                self._queue.put(None)
            self._threads = 0

    def _put(self, job: _Job[Any]) -> None:
        with self._lock:
            self._busy += 1
            if self._busy > self._threads and self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._serve, name=f"{self._name}-{self._threads}", daemon=True).start()
            self._queue.put(job)

    def _serve(self) -> None:
        while (job := self._queue.get()) is not None:
            tell = job.do()
            del job
            with self._lock:
                self._busy -= 1
            tell()  # last, so that whoever is told finds the thread free
            del tell
