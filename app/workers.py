"""A pool of niced processes for heavy reads, spoken to from the event loop.

    pool = Pool(2)
    await pool.start()
    answer = await pool.run("app.reads.x:func", handle, params, key="owner/name")
    async with pool.stream("app.reads.x:rows", handle, params) as chunks:
        async for chunk in chunks: ...

No thread and no task is spent on a request: replies resolve futures straight from the socket's callback. A stream's
reader has a window of bytes; a worker steps a stream only inside of it, and one whose streams all wait for slow readers
is free for other work. A request that overruns its deadline, or does not stop when it is told to, costs its process,
which is replaced. A request that its process never took up, since it was dead already, goes to another one. Errors:
PackhouseErrors and `pack.reader.Need` arrive as themselves; `WorkerLost` when the process died over the request;
`DeadlineExceeded`; `Overloaded` when too much waits; any other exception is logged and arrives as a plain
PackhouseError (500).
"""

# ruff: noqa: S301
from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Self, cast

from app import worker as inside
from app.calls import Request, Waiting
from app.processes import Process, begin, reap
from app.streams import Flow, Stream
from app.worker import CALL, CANCEL, DATA, END, ERROR, FRAME, ITEM, OPEN, RESULT, RETIRE, WANTS
from pack.errors import DeadlineExceeded, Overloaded, PackhouseError, WorkerLost

__all__ = ["Pool", "Stream"]

log = logging.getLogger("packhouse.workers")

MAX_STREAMS = 256
"""Suspended generators that one worker may hold."""
REAP = 2.0
"""Seconds that a process has to end."""


class Worker(asyncio.Protocol):
    """One process as the loop sees it."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.process: Process | None = None
        self.transport: asyncio.Transport | None = None
        self.requests: dict[int, Request] = {}
        self.active = 0
        self.retiring = False
        self.recent: OrderedDict[str, None] = OrderedDict()
        self.reason: Callable[[Request], PackhouseError] | None = None
        self.gone = asyncio.Event()
        self._parts: list[bytes] = []
        self._size = 0
        self._need = FRAME.size

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        # Linux says so of a socket whose other end is gone, and was gone before it had read all that was sent to it.
        self.pool._lost(self, unread=isinstance(exc, (BrokenPipeError, ConnectionResetError)))

    def data_received(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size < self._need:
            return
        buffer = data if len(self._parts) == 1 else b"".join(self._parts)
        position, header, end = 0, FRAME.size, len(buffer)
        self._need = header
        while end - position >= header:
            length, kind, number = FRAME.unpack_from(buffer, position)
            if end - position < header + length:
                self._need = header + length
                break
            self._frame(kind, number, buffer[position + header : position + header + length])
            position += header + length
        rest = buffer[position:]
        self._parts = [rest] if rest else []
        self._size = len(rest)

    def _frame(self, kind: int, number: int, payload: bytes) -> None:
        if kind & RETIRE:
            kind &= ~RETIRE
            self.pool._retire(self)
        if kind == WANTS:
            if self.pool.on_wants is not None:
                self.pool.on_wants(pickle.loads(payload))
            return
        request = self.requests.get(number)
        if request is None:
            return
        request.payload = b""
        if kind == DATA and request.stream is not None:
            request.stream.arrived(payload, len(payload))
        elif kind == ITEM and request.stream is not None:
            request.stream.arrived(pickle.loads(payload), len(payload))
        else:
            self.drop(request)
            if kind == RESULT:
                request.settle(None, pickle.loads(payload))
            elif kind == END:
                request.settle(None)
            else:
                assert kind == ERROR
                request.settle(_error(request.name, payload))
            self.pool.freed(self)

    def drop(self, request: Request) -> None:
        del self.requests[request.number]
        if request.stream is None or not request.stream.stalled:
            self.active -= 1

    @property
    def closing(self) -> bool:
        """Whether what is sent goes nowhere; the loop finds out before it tells."""
        return self.transport is None or self.transport.is_closing()

    def send(self, kind: int, number: int, payload: bytes = b"") -> None:
        if self.transport is not None and not self.closing:
            self.transport.write(FRAME.pack(len(payload), kind, number) + payload)

    def kill(self, reason: Callable[[Request], PackhouseError]) -> None:
        self.reason = reason
        if self.process is not None:
            self.process.kill()


def _error(name: str, payload: bytes) -> BaseException:
    error = pickle.loads(payload)
    if isinstance(error, BaseException):
        return error
    log.error("%s failed in a worker\n%s", name, error)
    return PackhouseError("an internal error in a worker; the log has it")


class Pool:
    """`processes` workers; `deadline` seconds of work a request unless it says otherwise; `queue` requests may wait.

    `lifetime` bounds a stream whatever its reader does; `grace` is how long a cancelled request may go on; `patience`
    how long one may wait for a worker. A worker above `max_bytes` is replaced. `prepare`, a (module:function, keywords)
    pair, is called in each worker when it starts. `on_wants` gets the sidecars that reads there would have liked to
    have (`storage.sidecars.Want`).
    """

    def __init__(
        self,
        processes: int,
        *,
        nice: int = 19,
        deadline: float = 60.0,
        queue: int = 256,
        lifetime: float = 3600.0,
        grace: float = 2.0,
        patience: float = 30.0,
        max_bytes: int = 1 << 30,
        prepare: tuple[str, dict[str, Any]] | None = None,
        on_wants: Callable[[list[Any]], None] | None = None,
    ) -> None:
        self.size = processes
        self.nice = nice
        self.deadline = deadline
        self.queue = queue
        self.lifetime = lifetime
        self.grace = grace
        self.patience = patience
        self.max_bytes = max_bytes
        self.prepare = prepare
        self.on_wants = on_wants
        self.workers: list[Worker] = []
        self._leaving: set[Worker] = set()
        self._waiting = Waiting()
        self._number = 0
        self._starting = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = False
        self._closing = asyncio.Event()
        self.restarts = 0

    async def start(self) -> None:
        """Start the workers; returns when all are there."""
        self._open = True
        await asyncio.gather(*(self._spawn() for _ in range(self.size)))

    async def close(self) -> None:
        """End the workers and everything they do."""
        self._open = False
        while self._waiting.count:
            self._waiting.take().settle(WorkerLost("the service is stopping"))
        self._closing.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        ending = [*self.workers, *self._leaving]
        for worker in ending:
            if worker.process is not None:
                worker.process.terminate()
            if worker.transport is not None:
                worker.transport.close()
        await asyncio.gather(*(worker.gone.wait() for worker in ending))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self, name: str, *arguments: Any, key: str = "", deadline: float | None = None) -> Any:
        """The result of `module:function` called with `arguments` in a worker.

        `key` is what fairness goes by, and what a worker's warm caches are found by: the repository.
        """
        seconds = self.deadline if deadline is None else deadline
        request = Request(name, pickle.dumps((name, arguments, seconds), protocol=5), key, seconds)
        request.future = asyncio.get_running_loop().create_future()
        self.submit(request)
        try:
            return await request.future
        except asyncio.CancelledError:
            self.abandon(request)
            raise

    def stream(self, name: str, *arguments: Any, key: str = "", deadline: float | None = None) -> Stream:
        """The items of the generator function `module:function`, as they come.

        Bytes may arrive joined with their neighbours, the first one never; other items arrive one by one. Nothing
        happens before the first item is asked for.
        """
        seconds = self.deadline if deadline is None else deadline
        request = Request(name, pickle.dumps((name, arguments, seconds), protocol=5), key, seconds)
        request.stream = Flow(self, request)
        return Stream(request.stream)

    @property
    def waiting(self) -> int:
        """Requests that have no worker yet."""
        return self._waiting.count

    @property
    def busy(self) -> int:
        """Workers that have work which no reader holds up."""
        return sum(1 for worker in self.workers if worker.active)

    # Which request goes to which worker.

    def submit(self, request: Request) -> None:
        if not self._open:
            raise WorkerLost("the service is stopping")
        worker = None if self._waiting.count else self._free(request.key)
        if worker is not None:
            self._assign(worker, request)
        elif self._waiting.count >= self.queue:
            raise Overloaded(f"{self._waiting.count} heavy reads are waiting already; try again later")
        else:
            self._wait(request)

    def _wait(self, request: Request) -> None:
        self._waiting.put(request)
        request.timer = asyncio.get_running_loop().call_later(self.patience, self._give_up, request)

    def _give_up(self, request: Request) -> None:
        if self._waiting.remove(request):
            request.settle(Overloaded(f"no process for heavy reads came free in {self.patience:g} seconds"))

    def _free(self, key: str) -> Worker | None:
        free = [w for w in self.workers if not (w.active or w.retiring or w.closing) and len(w.requests) < MAX_STREAMS]
        if not free:
            return None
        for worker in free:
            if key in worker.recent:
                return worker
        return min(free, key=lambda worker: (len(worker.requests), len(worker.recent)))

    def _assign(self, worker: Worker, request: Request) -> None:
        self._number = (self._number + 1) & 0xFFFFFFFF
        request.number, request.worker = self._number, worker
        request.sent += 1
        worker.requests[request.number] = request
        worker.active += 1
        worker.recent[request.key] = None
        worker.recent.move_to_end(request.key)
        if len(worker.recent) > 16:
            worker.recent.popitem(last=False)
        loop = asyncio.get_running_loop()
        if request.timer is not None:
            request.timer.cancel()
        if request.stream is None:
            request.timer = loop.call_later(request.deadline, self._overrun, request)
            worker.send(CALL, request.number, request.payload)
        else:
            # The worker itself counts the work of a stream between items; the timer is for an item that never comes.
            request.timer = loop.call_later(request.deadline + self.grace, self._watch, request, loop.time())
            worker.send(OPEN, request.number, request.payload)

    def freed(self, worker: Worker) -> None:
        if worker.retiring and not worker.requests and worker.transport is not None:
            worker.transport.close()
        while self._waiting.count and self._open:
            request = self._waiting.queues[next(iter(self._waiting.queues))][0]
            chosen = self._free(request.key)
            if chosen is None:
                break
            self._assign(chosen, self._waiting.take())

    # Requests that take too long or are not wanted any more.

    def _overrun(self, request: Request) -> None:
        if request.worker is not None:
            culprit, seconds = request, request.deadline
            request.worker.kill(
                lambda other: (
                    DeadlineExceeded(f"the answer took more than {seconds:g} seconds of work")
                    if other is culprit
                    else WorkerLost("the worker was ended for another request")
                )
            )

    def _watch(self, request: Request, begun: float) -> None:
        stream, worker = request.stream, request.worker
        if stream is None or worker is None or request.number not in worker.requests:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now - begun > self.lifetime:
            self.abandon(request, DeadlineExceeded(f"an answer may take {self.lifetime:g} seconds at most"))
            return
        patience = request.deadline + self.grace
        silent = now - max(stream.moved, begun)
        if not stream.stalled and silent >= patience and worker.active == 1:
            self._overrun(request)
            return
        wait = patience if stream.stalled or worker.active > 1 else max(patience - silent, 0.05)
        wait = max(0.05, min(wait, begun + self.lifetime + 0.01 - now))
        request.timer = loop.call_later(wait, self._watch, request, begun)

    def abandon(self, request: Request, error: PackhouseError | None = None) -> None:
        """Nobody waits for this any more: stop it, and its process if it does not listen and nobody else needs it."""
        worker = request.worker
        if worker is None:
            self._waiting.remove(request)
            if request.timer is not None:
                request.timer.cancel()
            return
        if worker.requests.get(request.number) is not request:
            return
        if request.stream is not None:
            request.stream.ended(error)
            worker.send(CANCEL, request.number)
        if request.timer is not None:
            request.timer.cancel()
        with contextlib.suppress(RuntimeError):
            loop = asyncio.get_running_loop()
            request.left = loop.time()
            request.timer = loop.call_later(self.grace, self._put_down, request)

    def _put_down(self, request: Request) -> None:
        """End the process of an abandoned request; but while others have streams in it, not before the deadline."""
        worker = request.worker
        if worker is None or request.left is None or worker.requests.get(request.number) is not request:
            return
        loop = asyncio.get_running_loop()
        alone = all(other.left is not None for other in worker.requests.values())
        if alone or loop.time() - request.left >= request.deadline:
            self._overrun(request)
        else:
            request.timer = loop.call_later(self.grace, self._put_down, request)

    # Processes come and go.

    async def _spawn(self) -> None:
        self._starting += 1
        try:
            worker = Worker(self)
            ours, process = await begin(inside.main, self.nice, self.max_bytes, self.prepare)
            worker.process = process
            if not self._open:
                ours.close()
                await asyncio.to_thread(reap, process, REAP)
                return
            await asyncio.get_running_loop().create_unix_connection(lambda: worker, sock=ours)
            self.workers.append(worker)
            self.freed(worker)
        finally:
            self._starting -= 1

    def _replace(self) -> None:
        if self._open and len(self.workers) + self._starting < self.size:
            self.restarts += 1
            task = asyncio.get_running_loop().create_task(self._respawn())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _respawn(self) -> None:
        delay = 0.0
        while self._open:
            try:
                await self._spawn()
                return
            except (OSError, EOFError):
                log.exception("a worker could not be started")
                delay = min(5.0, delay * 2 or 0.1)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await self._closing.wait()

    def _retire(self, worker: Worker) -> None:
        """Take a worker that has grown too large out of service; it ends after what it still holds."""
        if worker in self.workers:
            worker.retiring = True
            self.workers.remove(worker)
            self._leaving.add(worker)
            self._replace()

    def _lost(self, worker: Worker, *, unread: bool) -> None:
        if worker in self.workers:
            self.workers.remove(worker)
        self._leaving.discard(worker)
        if worker.process is not None:
            if worker.requests and worker.reason is None and self._open:
                log.error("a worker died: process %s", worker.process.pid)
            reaping = asyncio.get_running_loop().run_in_executor(None, reap, worker.process, REAP)
            reaping.add_done_callback(lambda _: worker.gone.set())
        requests = list(worker.requests.values())
        worker.requests.clear()
        for request in requests:
            if unread and worker.reason is None and self._may_go_on(request):
                if request.timer is not None:
                    request.timer.cancel()
                request.worker = None
                self._wait(request)
                continue
            error = worker.reason(request) if worker.reason else WorkerLost("the worker of this request died")
            request.settle(error)
        self._replace()
        self.freed(worker)

    def _may_go_on(self, request: Request) -> bool:
        """Whether a request may go to another worker. All may have died at once; and one that kills them has an end."""
        return self._open and not request.answered and request.left is None and request.sent <= self.size
