"""Counting what a request asks of the store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from storage.backend import Backend, Item, Upload


@dataclass(slots=True)
class Usage:
    """Requests to the store, and bytes read from it."""

    requests: int = 0
    bytes: int = 0


_usage: ContextVar[Usage | None] = ContextVar("store usage", default=None)


def begin(usage: Usage | None = None) -> Usage:
    """Count from now on, in this task and in those that it starts."""
    usage = usage or Usage()
    _usage.set(usage)
    return usage


def stop() -> None:
    """What this task does from now on is charged to nobody."""
    _usage.set(None)


class Metered:
    """A backend whose calls are counted, for whoever has begun to and in `total`.

    Tries that the backend makes by itself are one call.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.url = backend.url
        self.probe_is_cheap = backend.probe_is_cheap
        self.total = Usage()

    def _count(self) -> None:
        self.total.requests += 1
        usage = _usage.get()
        if usage is not None:
            usage.requests += 1

    def _add(self, size: int) -> None:
        self.total.bytes += size
        usage = _usage.get()
        if usage is not None:
            usage.bytes += size

    async def get(self, key: str) -> bytes:
        self._count()
        data = await self._backend.get(key)
        self._add(len(data))
        return data

    async def read(self, key: str, offset: int, length: int) -> bytes:
        self._count()
        data = await self._backend.read(key, offset, length)
        self._add(len(data))
        return data

    async def size(self, key: str) -> int:
        self._count()
        return await self._backend.size(key)

    async def create(self, key: str, data: bytes) -> bool:
        self._count()
        return await self._backend.create(key, data)

    async def put(self, key: str, data: bytes) -> None:
        self._count()
        await self._backend.put(key, data)

    async def delete(self, key: str) -> None:
        self._count()
        await self._backend.delete(key)

    def list(self, prefix: str, start_after: str = "") -> AsyncIterator[Item]:
        self._count()
        return self._backend.list(prefix, start_after)

    def list_folders(self, prefix: str, start_after: str = "") -> AsyncIterator[str]:
        self._count()
        return self._backend.list_folders(prefix, start_after)

    async def upload(self, key: str) -> Upload:
        self._count()
        return await self._backend.upload(key)

    def local_path(self, key: str) -> Path | None:
        return self._backend.local_path(key)

    async def sweep(self, prefix: str, older_than: float) -> int:
        self._count()
        return await self._backend.sweep(prefix, older_than)

    async def prove(self) -> None:
        await self._backend.prove()

    async def close(self) -> None:
        await self._backend.close()
