"""Ingests that run in the background: one niced process each, and an operation in the store that tells of it.

This process writes the operation while the ingest runs: progress, the lease, the end. So an ingest that is killed is
known to have failed at once; when this process dies, the ingest stops by itself and the lease runs out. What is kept
here is only what runs here: any replica answers for any operation, from the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import time
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import replace
from typing import Any

from app import ingestion, problems
from app.ingest import Outcome
from app.ingestion import GO, Order
from app.parent import LENGTH
from app.processes import Process, reap, talk
from app.settings import Settings
from pack.errors import Cancelled, Overloaded, PackhouseError, WorkerLost
from storage.backend import Backend
from storage.operations import CANCELLED, FAILED, QUEUED, SUCCEEDED, Operation, Operations, Progress
from storage.repository import ReadSettings, Repositories

log = logging.getLogger("packhouse.jobs")

GRACE = 10.0
"""Seconds that an ingest may go on after it was told to stop."""
LOOK = 1.0
"""Seconds between two looks for a request to cancel in the store."""
POLL = 0.5
"""Seconds between two looks at an operation that another process runs."""


class Job:
    """An operation that this process runs."""

    def __init__(self, operation: Operation, allow: tuple[str, ...]) -> None:
        self.operation = operation
        self.allow = allow
        self.cancelled = False
        self.again = False
        self.outcome: Outcome | None = None
        self.notes: list[str] = []
        self.stop = asyncio.Event()
        self.ended = asyncio.Event()
        self._changed = asyncio.Event()

    def update(self, operation: Operation) -> None:
        self.operation = operation
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        if operation.ended:
            self.ended.set()

    async def change(self) -> None:
        """Returns at the next update."""
        await self._changed.wait()


class Jobs:
    """The ingests of one serving process: `settings.ingests` at a time, `settings.ingest_queue` more may wait.

    The process of an ingest goes on to make sidecars while it holds `deriving`, its operation having ended.
    """

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        *,
        deriving: asyncio.Semaphore | None = None,
        repositories: Repositories | None = None,
    ) -> None:
        self.backend = backend
        self.settings = settings
        self.operations = Operations(backend, settings.lease_seconds)
        self._repositories = repositories or Repositories(backend, ReadSettings())
        self._turn = asyncio.Semaphore(settings.ingests)
        self._deriving = deriving or asyncio.Semaphore(1)
        self._jobs: dict[tuple[str, str], Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = asyncio.Lock()
        self._closing = False
        self._stop = asyncio.Event()
        self.ended: Counter[str] = Counter()
        self.received = 0

    async def start(self) -> None:
        """Nothing is brought over from an earlier life: what ran then has failed, its lease says so."""

    async def close(self) -> None:
        """Stop what runs; its operations end as failed."""
        self._closing = True
        self._stop.set()
        for job in self._jobs.values():
            job.stop.set()
        while self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def running(self) -> int:
        return len(self._jobs)

    def count(self, state: str) -> int:
        """How many of the ingests here are in that state; what has ended is counted in `ended`."""
        return sum(1 for job in self._jobs.values() if job.operation.state == state)

    async def start_ingest(self, owner: str, name: str, *, allow: tuple[str, ...] = ()) -> Operation:
        """Ingest a registered repository; one that runs here already is joined, and looks at the upstream once more.

        `allow`: further upstreams for this ingest alone. RepoNotFound; Overloaded.
        """
        async with self._starting:
            manifest = await self._repositories.newest(owner, name, fresh=True)
            job = self._jobs.get((owner, name))
            if job is not None:
                # What was pushed since it listed the refs must be seen by whoever asks now.
                job.again = job.operation.state != QUEUED
                return job.operation
            if self._closing:
                raise WorkerLost("the service is stopping")
            if len(self._jobs) >= self.settings.ingests + self.settings.ingest_queue:
                raise Overloaded(f"{len(self._jobs)} ingests are running or waiting already; try again later")
            kind = "sync" if manifest.ready else "ingest"
            job = Job(await self.operations.create(kind, owner, name), allow)
            self._jobs[owner, name] = job
            self._begin(self._run(job))
            return job.operation

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def get(self, id_: str) -> Operation:
        """OperationNotFound."""
        job = self._find(id_)
        return job.operation if job is not None else await self.operations.get(id_)

    async def wait(self, id_: str, seconds: float) -> Operation:
        """The operation when it has ended, or after so many seconds."""
        end = time.monotonic() + seconds
        job = self._find(id_)
        if job is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await job.ended.wait()
            return job.operation
        while True:
            operation = await self.operations.get(id_)
            left = end - time.monotonic()
            if operation.ended or left <= 0:
                return operation
            await asyncio.sleep(min(POLL, left))

    async def cancel(self, id_: str) -> Operation:
        """Ask it to stop, wherever it runs; one that has ended stays as it is. OperationNotFound."""
        operation = await self.operations.cancel(id_)
        job = self._find(id_)
        if job is not None and not operation.ended:
            job.cancelled = True
            job.stop.set()
        return operation

    async def watch(self, id_: str) -> AsyncGenerator[Operation, None]:
        """The operation now, and whenever it changes, until it has ended. OperationNotFound."""
        last: Operation | None = None
        while True:
            job = self._find(id_)
            operation = job.operation if job is not None else await self.operations.get(id_)
            if last is None or _shown(operation) != _shown(last):
                last = operation
                yield operation
                if operation.ended:
                    return
                continue
            if job is None:
                await asyncio.sleep(POLL)
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL):
                        await job.change()

    def _find(self, id_: str) -> Job | None:
        return next((job for job in self._jobs.values() if job.operation.id == id_), None)

    async def _run(self, job: Job) -> None:
        id_ = job.operation.id
        state, generation, error = FAILED, None, None
        try:
            if await self._wait_for_turn(job):
                try:
                    state, generation, error = await self._repeat(job)
                finally:
                    self._turn.release()
            else:
                state, error = self._stopped(job)
        except Exception as failure:
            log.exception("the ingest of %s/%s could not be run", job.operation.owner, job.operation.name)
            error = problems.problem(failure)
        try:
            refused = job.outcome.refused_refs if job.outcome is not None else 0
            operation = await self.operations.finish(
                id_, state, generation=generation, error=error, refused_refs=refused
            )
        except Exception:
            # The lease will say it to others; those who wait here are told now.
            log.exception("the end of the operation %s could not be written", id_)
            operation = _ended(job.operation, state, generation, error)
        self.ended[operation.state] += 1
        self.received += 0 if job.outcome is None else job.outcome.bytes
        self._jobs.pop((operation.owner, operation.name), None)
        # Who has waited for the end reads what it brought.
        self._repositories.expire(operation.owner, operation.name)
        job.update(operation)

    def _stopped(self, job: Job) -> tuple[str, dict[str, Any]]:
        if job.cancelled:
            return CANCELLED, problems.problem(Cancelled("the operation was cancelled"))
        return FAILED, problems.problem(WorkerLost("the service was stopped"))

    async def _wait_for_turn(self, job: Job) -> bool:
        """True with the turn taken; False when it was stopped before."""
        turn = asyncio.ensure_future(self._turn.acquire())
        stop = asyncio.ensure_future(job.stop.wait())
        try:
            while not (turn.done() or stop.done()):
                await asyncio.wait((turn, stop), timeout=LOOK, return_when=asyncio.FIRST_COMPLETED)
                if not turn.done() and await self._cancel_asked(job):
                    break
                if not turn.done():
                    job.update(await self.operations.progress(job.operation.id, state=QUEUED))
        finally:
            stop.cancel()
            if job.stop.is_set() and turn.done():
                self._turn.release()
            elif not turn.done():
                turn.cancel()
        return turn.done() and not turn.cancelled() and not job.stop.is_set()

    async def _repeat(self, job: Job) -> tuple[str, int | None, dict[str, Any] | None]:
        """The ingest, once more for those who joined it while it ran."""
        while True:
            job.again = False
            try:
                job.outcome = await self._process(job)
            except Cancelled as error:
                if job.cancelled:
                    return CANCELLED, None, problems.problem(error)
                state, problem = self._stopped(job)
                return state, None, problem
            except PackhouseError as error:
                if not job.again or job.stop.is_set():
                    log.warning("ingest of %s/%s: %s", job.operation.owner, job.operation.name, error.detail)
                    return FAILED, None, problems.problem(error)
            else:
                if not job.again or job.stop.is_set():
                    return SUCCEEDED, job.outcome.generation, None

    async def _process(self, job: Job) -> Outcome:
        """Run the ingest's process and follow it to its end."""
        operation = job.operation
        job.update(await self.operations.progress(operation.id, now=True))
        order = Order(self.settings, operation.owner, operation.name, operation.id, job.allow)
        reader, writer, process = await talk(ingestion.main, order)
        beat = asyncio.ensure_future(self._beat(job, writer, process))
        done = False
        try:
            while True:
                try:
                    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                    kind, value = pickle.loads(await reader.readexactly(length))  # noqa: S301 - from our own process
                except (asyncio.IncompleteReadError, OSError):
                    if job.stop.is_set():
                        raise Cancelled("the operation was cancelled") from None
                    raise WorkerLost("the process of the ingest died") from None
                if kind == "done":
                    assert isinstance(value, Outcome)
                    done = True
                    return value
                if kind == "failed":
                    raise value
                if kind == "note":
                    job.notes = [*job.notes[-19:], value]
                else:
                    await self._note(job, value)
        finally:
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)
            if done:
                self._begin(self._derive(process, reader, writer))
            else:
                writer.close()
                await asyncio.to_thread(reap, process, GRACE)

    async def _derive(self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Let the process of an ingest that has ended make sidecars, when it is its turn, until the service stops."""
        stop = asyncio.ensure_future(self._stop.wait())
        turn = asyncio.ensure_future(self._deriving.acquire())
        try:
            await asyncio.wait((turn, stop), return_when=asyncio.FIRST_COMPLETED)
            if not stop.done():
                writer.write(GO)
                end = asyncio.ensure_future(reader.read())
                await asyncio.wait((end, stop), return_when=asyncio.FIRST_COMPLETED)
                end.cancel()
        except OSError:
            log.warning("an ingest did not make its sidecars: its process is gone")
        finally:
            stop.cancel()
            if not turn.cancel():
                self._deriving.release()
            writer.close()
            await asyncio.to_thread(reap, process, GRACE)

    async def _note(self, job: Job, progress: Progress | None) -> None:
        try:
            job.update(await self.operations.progress(job.operation.id, progress))
        except PackhouseError as error:
            log.warning("the progress of %s could not be written: %s", job.operation.id, error.detail)

    async def _beat(self, job: Job, writer: asyncio.StreamWriter, process: Process) -> None:
        """Renew the lease, and pass on that somebody wants an end."""
        beaten = time.monotonic()
        while not job.stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await job.stop.wait()
            if not job.stop.is_set() and await self._cancel_asked(job):
                break
            if time.monotonic() - beaten >= self.operations.lease_seconds / 3:
                beaten = time.monotonic()
                await self._note(job, None)
        with contextlib.suppress(OSError):
            writer.write(b"c")
        await asyncio.sleep(GRACE)
        process.kill()

    async def _cancel_asked(self, job: Job) -> bool:
        try:
            asked = await self.operations.cancel_asked(job.operation.id)
        except PackhouseError:
            return False
        if asked:
            job.cancelled = True
            job.stop.set()
        return asked


def _shown(operation: Operation) -> tuple[object, ...]:
    return operation.state, operation.progress, operation.error, operation.generation


def _ended(operation: Operation, state: str, generation: int | None, error: dict[str, Any] | None) -> Operation:
    return replace(operation, state=state, generation=generation, error=error, finished=time.time())
