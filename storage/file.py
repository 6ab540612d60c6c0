"""The store in a local folder, or in any mounted POSIX file system that has hard links (CephFS too); see
`storage.folder`.

What may wait for a disk runs in a thread; looking whether a name is there does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

from storage.backend import KEPT_BYTES, Item
from storage.folder import Folder, Unfinished, told
from storage.posix import Local

_CALLS = Local()


class FileBackend:
    probe_is_cheap = True

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.url = "file://" + quote(str(self.root))
        self._folder = Folder(_CALLS, str(self.root).rstrip("/"))

    def local_path(self, key: str) -> Path | None:
        return Path(self._folder.path(key))

    async def get(self, key: str) -> bytes:
        return await asyncio.to_thread(self._folder.get, key)

    async def read(self, key: str, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0:
            raise ValueError("negative range")
        return await asyncio.to_thread(self._folder.read, key, offset, length)

    async def size(self, key: str) -> int:
        return self._folder.size(key)

    async def create(self, key: str, data: bytes) -> bool:
        return await asyncio.to_thread(self._folder.create, key, data)

    async def put(self, key: str, data: bytes) -> None:
        await asyncio.to_thread(self._folder.put, key, data)

    async def delete(self, key: str) -> None:
        await asyncio.to_thread(self._folder.delete, key)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[Item]:
        for item in await asyncio.to_thread(self._folder.list, prefix, start_after):
            yield item

    async def list_folders(self, prefix: str, start_after: str = "") -> AsyncIterator[str]:
        if prefix and not prefix.endswith("/"):
            raise ValueError(f"not a folder: {prefix!r}")
        for name in await asyncio.to_thread(self._folder.folders, prefix):
            if prefix + name > start_after:
                yield prefix + name

    async def upload(self, key: str) -> FileUpload:
        return FileUpload(self._folder, self._folder.begin(key))

    async def sweep(self, prefix: str, older_than: float) -> int:
        return await asyncio.to_thread(self._folder.sweep, prefix, older_than)

    async def prove(self) -> None:
        from storage.proof import prove

        await prove(self)

    async def close(self) -> None:
        return None


class FileUpload:
    """Writes straight to the disk of the final name; the unfinished file is the spool that is read back from."""

    def __init__(self, folder: Folder, file: Unfinished) -> None:
        self.key = file.key
        self.size = 0
        self._folder = folder
        self._file = file

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        self._folder.append(self._file, chunk)
        self.size += len(chunk)

    def read_back(self, offset: int, length: int) -> bytes:
        with told("read back", self.key):
            return self._folder.pread(self._file.fd, length, offset)

    async def finish(self, head: bytes = b"", cut: int = 0, tail: bytes = b"") -> None:
        if not 0 <= cut <= min(KEPT_BYTES, self.size) or len(head) > self.size - cut:
            raise ValueError("more is to be replaced than may be")
        await asyncio.to_thread(self._finish, head, cut, tail)
        self.size += len(tail) - cut

    def _finish(self, head: bytes, cut: int, tail: bytes) -> None:
        if cut:
            with told("upload", self.key):
                _CALLS.truncate(self._file.fd, self.size - cut)
        self._folder.append(self._file, tail)
        self._folder.publish(self._file, head)

    async def abort(self) -> None:
        if self._file.fd >= 0:
            self._folder.discard(self._file)

    def __del__(self) -> None:
        self._folder.close(self._file)
