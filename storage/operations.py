"""Operations: what runs in the background, as any replica can see it.

A record is JSON at `_packhouse/operations/{id}`, rewritten by whoever runs the operation, at most once a second. Two
keys beside it are written once: `{id}.cancel` when somebody asks it to stop, `{id}.end` when it is over. The end is
create-only, so an operation ends once: one whose runner fell silent for longer than its lease is ended as failed by the
first that looks, and a runner that comes back later cannot bring it to life again.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson

from pack.errors import CorruptData, OperationNotFound
from storage import layout
from storage.backend import Backend, NotThere

QUEUED = "queued"
RUNNING = "running"
SUCCEEDED = "succeeded"
FAILED = "failed"
CANCELLED = "cancelled"
ENDS = frozenset({SUCCEEDED, FAILED, CANCELLED})

LEASE_EXPIRED = "lease_expired"
_PROGRESS_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """`objects` of `total_objects` (None: not known yet), `bytes` received."""

    phase: str = ""
    objects: int = 0
    total_objects: int | None = None
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Operation:
    """Times are seconds since 1970. `error` is a problem document. `refused_refs` of the upstream were left out, since
    no repository can hold them. `lease`: dead when not renewed by then.
    """

    id: str
    kind: str
    owner: str
    name: str
    state: str = QUEUED
    progress: Progress = Progress()
    error: dict[str, Any] | None = None
    generation: int | None = None
    refused_refs: int = 0
    created: float = field(default_factory=time.time)
    started: float | None = None
    finished: float | None = None
    lease: float = 0.0
    cancel_asked: bool = False

    @property
    def ended(self) -> bool:
        return self.state in ENDS


class Operations:
    """`lease_seconds`: how long an operation lives without a sign of its runner."""

    def __init__(self, backend: Backend, lease_seconds: float = 30.0) -> None:
        self.backend = backend
        self.lease_seconds = lease_seconds
        self._running: dict[str, tuple[Operation, float]] = {}  # of this process: only to write less often

    async def create(self, kind: str, owner: str, name: str) -> Operation:
        """A queued operation, from now on the one that `last` names for this repository."""
        id_ = layout.operation_id()
        operation = Operation(id_, kind, owner, name, lease=time.time() + self.lease_seconds)
        await self._write(operation)
        await self.backend.put(layout.last_operation(owner, name), id_.encode())
        return operation

    async def get(self, id_: str) -> Operation:
        """OperationNotFound. One whose lease has run out comes back as failed (`lease_expired`), and stays so."""
        operation = await self._read(id_)
        if operation.ended or time.time() <= operation.lease:
            return operation
        problem = {
            "code": LEASE_EXPIRED,
            "status": 503,
            "title": "Lease expired",
            "detail": "The process that ran this operation has given no sign of life; start it again.",
        }
        return await self._end(replace(operation, state=FAILED, error=problem, finished=time.time()))

    async def last(self, owner: str, name: str) -> Operation | None:
        """The operation that was started last for a repository, running or over."""
        try:
            id_ = (await self.backend.get(layout.last_operation(owner, name))).decode("ascii", "replace").strip()
            return await self.get(id_)
        except (NotThere, OperationNotFound):
            return None

    async def progress(
        self, id_: str, progress: Progress | None = None, *, now: bool = False, state: str = RUNNING
    ) -> Operation:
        """Renew the lease, mark it running, and note the progress; written at most once a second unless `now`.

        `state` QUEUED renews the lease of one that waits for its turn.

        To be called by the runner alone, at least every third of the lease. An operation that has ended stays as it is.
        """
        operation, written = self._running.get(id_, (None, 0.0))
        clock = time.monotonic()
        if operation is None:
            operation = await self._read(id_)
            if operation.ended:
                return operation
        wall = time.time()
        operation = replace(
            operation,
            state=state,
            progress=progress or operation.progress,
            started=operation.started or (wall if state == RUNNING else None),
            lease=wall + self.lease_seconds,
        )
        if now or clock - written >= _PROGRESS_SECONDS:
            await self._write(operation)
            written = clock
        self._running[id_] = (operation, written)
        return operation

    async def finish(
        self,
        id_: str,
        state: str,
        *,
        generation: int | None = None,
        error: dict[str, Any] | None = None,
        refused_refs: int = 0,
    ) -> Operation:
        """End it as `state`; the end that stands is returned: another one when somebody was quicker."""
        if state not in ENDS:
            raise ValueError(state)
        operation, _ = self._running.pop(id_, (None, 0.0))
        if operation is None:
            operation = await self._read(id_)
        return await self._end(
            replace(
                operation,
                state=state,
                generation=generation,
                error=error,
                refused_refs=refused_refs,
                finished=time.time(),
            )
        )

    async def cancel(self, id_: str) -> Operation:
        """Ask it to stop. The runner sees it (`cancel_asked`) and ends it as cancelled; one that has ended stays as
        it is.
        """
        operation = await self.get(id_)
        if operation.ended:
            return operation
        await self.backend.create(layout.operation_cancel(id_), b"")
        return replace(operation, cancel_asked=True)

    async def cancel_asked(self, id_: str) -> bool:
        try:
            await self.backend.size(layout.operation_cancel(id_))
        except NotThere:
            return False
        return True

    async def list(self, start_after: str = "") -> AsyncIterator[Operation]:
        """All operations, oldest first, after that id."""
        async for item in self.backend.list(layout.OPERATIONS, layout.OPERATIONS + start_after):
            id_ = item.key[len(layout.OPERATIONS) :]
            if layout.is_operation(id_):
                yield await self.get(id_)

    async def _read(self, id_: str) -> Operation:
        if not layout.is_operation(id_):
            raise OperationNotFound("There is no such operation.")
        try:
            operation = _parse(await self.backend.get(layout.operation_end(id_)))
        except NotThere:
            try:
                operation = _parse(await self.backend.get(layout.operation(id_)))
            except NotThere:
                raise OperationNotFound(f"There is no operation {id_}.") from None
        return replace(operation, cancel_asked=await self.cancel_asked(id_))

    async def _write(self, operation: Operation) -> None:
        await self.backend.put(layout.operation(operation.id), _dump(operation))

    async def _end(self, operation: Operation) -> Operation:
        if await self.backend.create(layout.operation_end(operation.id), _dump(operation)):
            return operation
        return await self._read(operation.id)


def _dump(operation: Operation) -> bytes:
    document = asdict(operation)
    del document["cancel_asked"]
    return orjson.dumps(document)


def _parse(data: bytes) -> Operation:
    try:
        document = orjson.loads(data)
        return Operation(**{**document, "progress": Progress(**document["progress"])})
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptData("The record of an operation cannot be read.") from error
