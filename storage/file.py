"""The store in a local folder, or in any mounted POSIX file system that has hard links (CephFS too).

A value appears whole or not at all: it is written under a temporary name in the directory of its final name, synced,
and then linked (`create`: link(2) is exclusive) or renamed (`put`) there, and the directory is synced. Opening the
final name with O_EXCL would be exclusive as well, but a crash could leave half a value under it. Sharing one folder
between machines is as safe as the file system's link and rename are: local ones and CephFS are, NFS with attribute
caching answers late.

What may wait for a disk runs in a thread; looking whether a name is there does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from pack.errors import StoreUnavailable
from storage.backend import KEPT_BYTES, TEMPORARY, Item, NotThere, check_key

_T = TypeVar("_T")
_Items = list[Item]
_Names = list[str]
_IMMUTABLE = 0o444  # as git's own packs; the process's umask applies
_MUTABLE = 0o644
_READS = ("get", "read", "size")


class FileBackend:
    probe_is_cheap = True

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.url = "file://" + quote(str(self.root))
        self._made: set[str] = set()

    def local_path(self, key: str) -> Path | None:
        return Path(self._path(key))

    def _path(self, key: str) -> str:
        return f"{self.root}/{check_key(key)}"

    async def get(self, key: str) -> bytes:
        path = self._path(key)
        return await _in_thread(_get, path, key)

    async def read(self, key: str, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0:
            raise ValueError("negative range")
        return await _in_thread(_read, self._path(key), key, offset, length)

    async def size(self, key: str) -> int:
        with _told("size", key):
            found = os.stat(self._path(key))  # noqa: PTH116
            if stat.S_ISDIR(found.st_mode):
                raise IsADirectoryError
            return found.st_size

    async def create(self, key: str, data: bytes) -> bool:
        return await _in_thread(self._create, key, data)

    async def put(self, key: str, data: bytes) -> None:
        await _in_thread(self._put, key, data)

    async def delete(self, key: str) -> None:
        await _in_thread(self._delete, key)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[Item]:
        for item in await _in_thread(self._list, prefix, start_after):
            yield item

    async def list_folders(self, prefix: str, start_after: str = "") -> AsyncIterator[str]:
        if prefix and not prefix.endswith("/"):
            raise ValueError(f"not a folder: {prefix!r}")
        for name in await _in_thread(self._folders, prefix):
            if prefix + name > start_after:
                yield prefix + name

    async def upload(self, key: str) -> FileUpload:
        path = self._path(key)
        directory, _, _ = path.rpartition("/")
        temporary = f"{directory}/{TEMPORARY[0]}{secrets.token_hex(10)}"
        with _told("upload", key):
            self._make_directory(directory)
            fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _IMMUTABLE)
        return FileUpload(key, path, temporary, fd)

    async def sweep(self, prefix: str, older_than: float) -> int:
        return await _in_thread(self._sweep, prefix, older_than)

    async def prove(self) -> None:
        from storage.proof import prove

        await prove(self)

    async def close(self) -> None:
        return None

    # Below: what runs in threads.

    def _make_directory(self, directory: str) -> None:
        if directory in self._made and os.path.isdir(directory):  # noqa: PTH112
            return
        missing = []
        parent = directory
        while not os.path.isdir(parent):  # noqa: PTH112
            missing.append(parent)
            parent = os.path.dirname(parent)  # noqa: PTH120
        for child in reversed(missing):
            with contextlib.suppress(FileExistsError):
                os.mkdir(child)  # noqa: PTH102
            # A file is durable only when every directory on its way is; another process may have made this one just
            # now.
            _sync_directory(os.path.dirname(child))  # noqa: PTH120
        self._made.add(directory)

    def _write_temporary(self, path: str, data: bytes, mode: int) -> tuple[str, str]:
        directory, _, _ = path.rpartition("/")
        self._make_directory(directory)
        temporary = f"{directory}/{TEMPORARY[1]}{secrets.token_hex(10)}"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            _write_all(fd, data)
            os.fsync(fd)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
            raise
        finally:
            os.close(fd)
        return directory, temporary

    def _create(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        with _told("create", key):
            if os.path.lexists(path):  # spares the write; the link below decides
                return False
            directory, temporary = self._write_temporary(path, data, _IMMUTABLE)
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
            finally:
                os.unlink(temporary)  # noqa: PTH108
            _sync_directory(directory)
            return True

    def _put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with _told("put", key):
            directory, temporary = self._write_temporary(path, data, _MUTABLE)
            try:
                os.rename(temporary, path)  # noqa: PTH104
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)  # noqa: PTH108
                raise
            _sync_directory(directory)

    def _delete(self, key: str) -> None:
        path = self._path(key)
        with _told("delete", key), contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108
            _sync_directory(path.rpartition("/")[0])

    def _list(self, prefix: str, start_after: str) -> _Items:
        base = prefix.rpartition("/")[0]
        start = f"{base}/" if base else ""
        with _told("list", prefix):
            return list(self._walk(start, prefix, start_after))

    def _walk(self, folder: str, prefix: str, start_after: str) -> Iterator[Item]:
        try:
            entries = list(os.scandir(f"{self.root}/{folder}"))
        except (FileNotFoundError, NotADirectoryError):
            return
        # In byte order of whole keys a directory sorts as if its name ended in a slash.
        named = [(f"{folder}{e.name}/" if e.is_dir(follow_symlinks=False) else folder + e.name, e) for e in entries]
        for key, entry in sorted(named, key=lambda pair: pair[0]):
            if key.endswith("/"):
                relevant = key.startswith(prefix) or prefix.startswith(key)
                if relevant and (key > start_after or start_after.startswith(key)):
                    yield from self._walk(key, prefix, start_after)
            elif key.startswith(prefix) and key > start_after and not entry.name.startswith(TEMPORARY):
                with contextlib.suppress(FileNotFoundError):
                    found = entry.stat(follow_symlinks=False)
                    yield Item(key, found.st_size, found.st_mtime)

    def _folders(self, prefix: str) -> _Names:
        with _told("list", prefix):
            try:
                entries = list(os.scandir(f"{self.root}/{prefix}"))
            except (FileNotFoundError, NotADirectoryError):
                return []
            return sorted(f"{e.name}/" for e in entries if e.is_dir(follow_symlinks=False))

    def _sweep(self, prefix: str, older_than: float) -> int:
        swept = 0
        base = prefix.rpartition("/")[0]
        with _told("sweep", prefix):
            for directory, _, names in os.walk(f"{self.root}/{base}"):
                for name in names:
                    path = f"{directory}/{name}"
                    if not name.startswith(TEMPORARY) or not path.startswith(f"{self.root}/{prefix}"):
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        if os.stat(path).st_mtime < time.time() - older_than:  # noqa: PTH116
                            os.unlink(path)  # noqa: PTH108
                            swept += 1
        return swept


class FileUpload:
    """Writes straight to the disk of the final name; the unfinished file is the spool that is read back from."""

    def __init__(self, key: str, path: str, temporary: str, fd: int) -> None:
        self.key = key
        self.size = 0
        self._path = path
        self._temporary = temporary
        self._fd = fd

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        with _told("upload", self.key):
            _write_all(self._fd, chunk)
        self.size += len(chunk)

    def read_back(self, offset: int, length: int) -> bytes:
        with _told("read back", self.key):
            return _pread(self._fd, offset, length)

    async def finish(self, head: bytes = b"", cut: int = 0, tail: bytes = b"") -> None:
        if not 0 <= cut <= min(KEPT_BYTES, self.size) or len(head) > self.size - cut:
            raise ValueError("more is to be replaced than may be")
        await _in_thread(self._finish, head, cut, tail)

    def _finish(self, head: bytes, cut: int, tail: bytes) -> None:
        with _told("upload", self.key):
            if cut:
                os.ftruncate(self._fd, self.size - cut)
                os.lseek(self._fd, 0, os.SEEK_END)
            _write_all(self._fd, tail)
            if head:
                os.pwrite(self._fd, head, 0)
            os.fsync(self._fd)
            # Names of uploads are random: one that exists is not ours to replace, so link rather than rename.
            os.link(self._temporary, self._path)
            os.unlink(self._temporary)  # noqa: PTH108
            _sync_directory(self._path.rpartition("/")[0])
        self.size += len(tail) - cut
        self._close()

    async def abort(self) -> None:
        if self._fd >= 0:
            self._close()
            with contextlib.suppress(OSError):
                os.unlink(self._temporary)  # noqa: PTH108

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self._close()


async def _in_thread(function: Callable[..., _T], *args: object) -> _T:
    return await asyncio.to_thread(function, *args)


@contextlib.contextmanager
def _told(operation: str, key: str) -> Iterator[None]:
    """Errors of the file system become the store's, with the operation and the key in them."""
    try:
        yield
    except OSError as error:
        if operation in _READS and isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
            raise NotThere(key) from error
        raise StoreUnavailable(
            f"The store failed to {operation} {key}: {error.strerror}.", operation=operation
        ) from error


def _get(path: str, key: str) -> bytes:
    with _told("get", key), open(path, "rb", buffering=0) as file:
        return file.read()


def _read(path: str, key: str, offset: int, length: int) -> bytes:
    with _told("read", key):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _pread(fd, offset, length)
        finally:
            os.close(fd)


def _pread(fd: int, offset: int, length: int) -> bytes:
    data = os.pread(fd, length, offset)
    if len(data) == length or not data:
        return data
    # One read gives at most 2 GiB, and a network file system may give less than was asked for.
    parts = [data]
    got = len(data)
    while got < length and (data := os.pread(fd, length - got, offset + got)):
        parts.append(data)
        got += len(data)
    return b"".join(parts)


def _write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _sync_directory(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
