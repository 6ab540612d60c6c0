"""A store that behaves like a distant one: no local folder, no cheap probes, latency, and it can be cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from pack.errors import StoreUnavailable
from storage.backend import Item, Upload
from storage.file import FileBackend


class RemoteBackend(FileBackend):
    """`calls` are those since the last `take`, as (method, key); `away` fails them, `latency` (seconds) slows them.

    `bad` maps the end of a key to what is done to the bytes read of it, as often as it is listed.
    """

    def __init__(self, root: Path, latency: float = 0.0) -> None:
        super().__init__(root)
        self.url = f"remote://{self.root}"
        self.latency = latency
        self.calls: list[tuple[str, str]] = []
        self.away = False
        self.hangs = False
        self.short: list[str] = []
        self.probe_is_cheap = False

    def take(self) -> list[tuple[str, str]]:
        calls, self.calls = self.calls, []
        return calls

    def reads(self, end: str = "") -> int:
        return sum(1 for method, key in self.calls if method in ("get", "read") and key.endswith(end))

    async def _call(self, method: str, key: str) -> None:
        self.calls.append((method, key))
        if self.hangs:
            await asyncio.sleep(3600)
        if self.away:
            raise StoreUnavailable(f"The store is away ({method} {key}).", operation=method)
        await asyncio.sleep(self.latency)

    def _cut(self, key: str, data: bytes) -> bytes:
        for end in self.short:
            if key.endswith(end):
                self.short.remove(end)
                return data[:-1]
        return data

    def local_path(self, key: str) -> Path | None:
        return None

    async def get(self, key: str) -> bytes:
        await self._call("get", key)
        return self._cut(key, await super().get(key))

    async def read(self, key: str, offset: int, length: int) -> bytes:
        await self._call("read", key)
        return self._cut(key, await super().read(key, offset, length))

    async def size(self, key: str) -> int:
        await self._call("size", key)
        return await super().size(key)

    async def create(self, key: str, data: bytes) -> bool:
        await self._call("create", key)
        return await super().create(key, data)

    async def put(self, key: str, data: bytes) -> None:
        await self._call("put", key)
        await super().put(key, data)

    async def delete(self, key: str) -> None:
        await self._call("delete", key)
        await super().delete(key)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[Item]:
        await self._call("list", prefix)
        async for item in super().list(prefix, start_after):
            yield item

    async def list_folders(self, prefix: str, start_after: str = "") -> AsyncIterator[str]:
        await self._call("list_folders", prefix)
        async for folder in super().list_folders(prefix, start_after):
            yield folder

    async def upload(self, key: str) -> Upload:
        await self._call("upload", key)
        return await super().upload(key)
