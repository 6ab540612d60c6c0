"""The store in a directory of CephFS, without mounting it: see `storage.folder` for how values are written.

All calls are made in threads, and waited for no longer than the place says: a cluster that is away makes
StoreUnavailable, not a process that hangs. A write that was given up so may still have been carried out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

from pack.errors import PackhouseError, StoreUnavailable
from storage import cephsession
from storage.backend import KEPT_BYTES, Item, check_key
from storage.cephplace import Place
from storage.cephsession import Session
from storage.folder import Folder, Unfinished
from storage.spool import Spool

_T = TypeVar("_T")
_STEP = 4 << 20


class CephBackend:
    """`spool`: the folder where uploads are buffered (the system's own for temporary files unless given)."""

    # A question costs a round trip to the metadata server, unless the answer is cached here.
    probe_is_cheap = False

    def __init__(self, place: Place, *, spool: Path | None = None) -> None:
        self.url = place.url
        self._place = place
        self._spool = spool
        self._held: Session | None = None
        self._closed = False

    def local_path(self, key: str) -> Path | None:
        check_key(key)
        return None

    async def get(self, key: str) -> bytes:
        return await self._run("get", key, lambda folder: folder.get(key))

    async def read(self, key: str, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0:
            raise ValueError("negative range")
        return await self._run("read", key, lambda folder: folder.read(key, offset, length))

    async def size(self, key: str) -> int:
        return await self._run("size", key, lambda folder: folder.size(key))

    async def create(self, key: str, data: bytes) -> bool:
        return await self._run("create", key, lambda folder: folder.create(key, data))

    async def put(self, key: str, data: bytes) -> None:
        await self._run("put", key, lambda folder: folder.put(key, data))

    async def delete(self, key: str) -> None:
        await self._run("delete", key, lambda folder: folder.delete(key))

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[Item]:
        for item in await self._run("list", prefix, lambda folder: folder.list(prefix, start_after)):
            yield item

    async def list_folders(self, prefix: str, start_after: str = "") -> AsyncIterator[str]:
        if prefix and not prefix.endswith("/"):
            raise ValueError(f"not a folder: {prefix!r}")
        for name in await self._run("list", prefix, lambda folder: folder.folders(prefix)):
            if prefix + name > start_after:
                yield prefix + name

    async def upload(self, key: str) -> CephUpload:
        spool = Spool(self._spool)
        folder, file = await self._run("upload", key, lambda folder: (folder, folder.begin(key)))
        return CephUpload(self._session("upload"), folder, file, spool)

    async def sweep(self, prefix: str, older_than: float) -> int:
        return await self._run("sweep", prefix, lambda folder: folder.sweep(prefix, older_than))

    async def prove(self) -> None:
        from storage.proof import prove

        await prove(self)

    async def close(self) -> None:
        """Nothing is asked any more."""
        self._closed = True
        held, self._held = self._held, None
        if held is not None:
            await cephsession.leave(held)

    async def _run(self, operation: str, key: str, work: Callable[[Folder], _T]) -> _T:
        return await self._session(operation).run(operation, key, work)

    def _session(self, operation: str) -> Session:
        if self._closed:
            raise StoreUnavailable(f"The store failed to {operation}: it is closed here.", operation=operation)
        if self._held is None or self._held.pid != os.getpid():
            self._held = cephsession.hold(self._place)
        return self._held


class CephUpload:
    """Bytes go to a local spool, which is read back from, and from there in steps to the unfinished file, one step
    while the next one arrives. The last bytes are held back, since `finish` may replace them.
    """

    def __init__(self, session: Session, folder: Folder, file: Unfinished, spool: Spool) -> None:
        self.key = file.key
        self.size = 0
        self._session = session
        self._folder = folder  # of the connection that the file is open on
        self._file = file
        self._spool = spool
        self._sent = 0
        self._sending: asyncio.Task[None] | None = None
        self._over = False

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        self._check()
        self._spool.append(chunk)
        self.size = self._spool.size
        if self.size - self._sent >= _STEP + KEPT_BYTES:
            await self._settle()
            # A task of its own, so that it goes on while more arrives.
            end = self.size - KEPT_BYTES
            self._sending = asyncio.get_running_loop().create_task(self._send(end))
            self._sending.add_done_callback(_looked_at)
            await asyncio.sleep(0)  # whoever feeds us may never wait for anything else

    def read_back(self, offset: int, length: int) -> bytes:
        return self._spool.read(offset, length)

    async def finish(self, head: bytes = b"", cut: int = 0, tail: bytes = b"") -> None:
        if not 0 <= cut <= min(KEPT_BYTES, self.size) or len(head) > self.size - cut:
            raise ValueError("more is to be replaced than may be")
        self._check()
        await self._settle()
        self._spool.settle(head, cut, tail)
        self.size = self._spool.size
        await self._send(self.size)
        await self._session.wait("upload", self.key, lambda: self._folder.publish(self._file, head))
        self._over = True
        self._spool.close()

    async def abort(self) -> None:
        if self._over:
            return
        self._over = True
        if self._sending is not None:
            await asyncio.wait({self._sending})
        self._spool.close()
        with contextlib.suppress(PackhouseError):
            await self._session.wait("upload", self.key, lambda: self._folder.discard(self._file))

    def _check(self) -> None:
        if self._over:
            raise ValueError("the upload is over")

    async def _settle(self) -> None:
        """Wait for the step that is under way. StoreUnavailable when it failed, each time."""
        if self._sending is not None:
            await self._sending

    async def _send(self, end: int) -> None:
        """What was spooled up to there."""

        def send() -> None:
            while self._sent < end:
                part = self._spool.read(self._sent, min(_STEP, end - self._sent))
                self._folder.append(self._file, part)
                self._sent += len(part)

        await self._session.wait("upload", self.key, send)


def _looked_at(task: asyncio.Task[None]) -> None:
    """Whoever writes on hears of its error; nobody may."""
    if not task.cancelled():
        task.exception()
