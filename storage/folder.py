"""A store in a folder of a POSIX file system that has hard links: the machine's own, a mounted one, or CephFS.

A value appears whole or not at all: it is written under a temporary name in the directory of its final name, synced,
and then linked (`create`: link(2) is exclusive) or renamed (`put`) there, and the directory is synced. Opening the
final name with O_EXCL would be exclusive as well, but a crash could leave half a value under it. Sharing one folder
between machines is as safe as the file system's link and rename are: local ones and CephFS are, NFS with attribute
caching answers late.

Everything here blocks, and raises the store's errors, which name the operation and the key.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass

from pack.errors import StoreUnavailable
from storage.backend import TEMPORARY, Item, NotThere, check_key
from storage.posix import Posix

_Items = list[Item]
_Names = list[str]
_Entries = list[tuple[str, bool]]
_IMMUTABLE = 0o444  # as git's own packs; the process's umask applies
_MUTABLE = 0o644
_READS = ("get", "read", "size")
_TIMES = (errno.ETIMEDOUT, errno.EHOSTDOWN)


@dataclass(slots=True)
class Unfinished:
    """A file that is not yet at the place of its key. `fd` is -1 when it is closed."""

    key: str
    path: str
    temporary: str
    fd: int


class Folder:
    """`root` without a slash at its end."""

    def __init__(self, calls: Posix, root: str) -> None:
        self.root = root
        self._calls = calls
        self._made: set[str] = set()

    def path(self, key: str) -> str:
        return f"{self.root}/{check_key(key)}"

    def get(self, key: str) -> bytes:
        with told("get", key), self._opened(key) as fd:
            found = self._calls.fstat(fd)
            if found.is_directory:
                raise IsADirectoryError
            return self.pread(fd, found.size, 0)

    def read(self, key: str, offset: int, length: int) -> bytes:
        with told("read", key), self._opened(key) as fd:
            return self.pread(fd, length, offset)

    def size(self, key: str) -> int:
        with told("size", key):
            found = self._calls.stat(self.path(key))
            if found.is_directory:
                raise IsADirectoryError
            return found.size

    def create(self, key: str, data: bytes) -> bool:
        path = self.path(key)
        with told("create", key):
            if self._is_there(path):  # spares the write; the link below decides
                return False
            directory, temporary = self._write_temporary(path, data, _IMMUTABLE)
            try:
                self._calls.link(temporary, path)
            except FileExistsError:
                return False
            finally:
                self._calls.unlink(temporary)
            self._sync_directory(directory)
            return True

    def put(self, key: str, data: bytes) -> None:
        path = self.path(key)
        with told("put", key):
            directory, temporary = self._write_temporary(path, data, _MUTABLE)
            try:
                self._calls.rename(temporary, path)
            except BaseException:
                self._remove(temporary)
                raise
            self._sync_directory(directory)

    def delete(self, key: str) -> None:
        path = self.path(key)
        with told("delete", key), contextlib.suppress(FileNotFoundError):
            self._calls.unlink(path)
            self._sync_directory(_parent(path))

    def list(self, prefix: str, start_after: str) -> _Items:
        base = prefix.rpartition("/")[0]
        start = f"{base}/" if base else ""
        with told("list", prefix):
            return list(self._walk(start, prefix, start_after))

    def folders(self, prefix: str) -> _Names:
        with told("list", prefix):
            return sorted(f"{name}/" for name, is_directory in self._scan(prefix) if is_directory)

    def sweep(self, prefix: str, older_than: float) -> int:
        base = prefix.rpartition("/")[0]
        with told("sweep", prefix):
            return self._sweep(f"{base}/" if base else "", prefix, time.time() - older_than)

    # Files that arrive in pieces.

    def begin(self, key: str) -> Unfinished:
        path = self.path(key)
        temporary = f"{_parent(path)}/{_temporary(TEMPORARY[0])}"
        with told("upload", key):
            self._make_directory(_parent(path))
            fd = self._calls.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, _IMMUTABLE)
        return Unfinished(key, path, temporary, fd)

    def append(self, file: Unfinished, data: bytes | bytearray | memoryview) -> None:
        with told("upload", file.key):
            self._write_all(file.fd, data)

    def publish(self, file: Unfinished, head: bytes = b"") -> None:
        """Replace its first bytes by `head`, make it durable, and give it its name."""
        with told("upload", file.key):
            if head:
                self._calls.pwrite(file.fd, head, 0)
            self._seal(file)
            # Names of uploads are random: one that exists is not ours to replace, so link rather than rename.
            self._calls.link(file.temporary, file.path)
            self._calls.unlink(file.temporary)
            self._sync_directory(_parent(file.path))

    def discard(self, file: Unfinished) -> None:
        """Never fails: what cannot be removed is swept some day."""
        self.close(file)
        self._remove(file.temporary)

    def close(self, file: Unfinished) -> None:
        fd, file.fd = file.fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                self._calls.close(fd)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """Exactly `length` bytes, fewer only at the end. OSError."""
        data = self._calls.pread(fd, length, offset)
        if len(data) == length or not data:
            return data
        # One read gives at most 2 GiB, and a network file system may give less than was asked for.
        parts = [data]
        got = len(data)
        while got < length and (data := self._calls.pread(fd, length - got, offset + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    # Below: OSError.

    @contextlib.contextmanager
    def _opened(self, key: str) -> Iterator[int]:
        fd = self._calls.open(self.path(key), os.O_RDONLY)
        try:
            yield fd
        finally:
            self._calls.close(fd)

    def _is_there(self, path: str) -> bool:
        try:
            self._calls.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def _is_directory(self, path: str) -> bool:
        try:
            return self._calls.stat(path).is_directory
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _make_directory(self, directory: str) -> None:
        if directory in self._made and self._is_directory(directory):
            return
        missing = []
        parent = directory
        while parent and not self._is_directory(parent):
            missing.append(parent)
            parent = _parent(parent)
        for child in reversed(missing):
            with contextlib.suppress(FileExistsError):
                self._calls.mkdir(child)
            # A file is durable only when every directory on its way is; another process may have made this one just
            # now.
            self._sync_directory(_parent(child))
        self._made.add(directory)

    def _write_temporary(self, path: str, data: bytes, mode: int) -> tuple[str, str]:
        directory = _parent(path)
        self._make_directory(directory)
        temporary = f"{directory}/{_temporary(TEMPORARY[1])}"
        fd = self._calls.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        file = Unfinished("", path, temporary, fd)
        try:
            self._write_all(fd, data)
            self._seal(file)
        except BaseException:
            self.discard(file)
            raise
        return directory, temporary

    def _write_all(self, fd: int, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        while view:
            view = view[self._calls.write(fd, view) :]

    def _remove(self, path: str) -> None:
        with contextlib.suppress(OSError):
            self._calls.unlink(path)

    def _seal(self, file: Unfinished) -> None:
        fd, file.fd = file.fd, -1
        self._calls.seal(fd)

    def _sync_directory(self, directory: str) -> None:
        self._calls.sync_directory(directory or "/")

    def _scan(self, folder: str) -> _Entries:
        try:
            return self._calls.scan(f"{self.root}/{folder}")
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _walk(self, folder: str, prefix: str, start_after: str) -> Iterator[Item]:
        # In byte order of whole keys a directory sorts as if its name ended in a slash.
        named = [
            (f"{folder}{name}/" if is_directory else folder + name, name) for name, is_directory in self._scan(folder)
        ]
        for key, name in sorted(named):
            if key.endswith("/"):
                relevant = key.startswith(prefix) or prefix.startswith(key)
                if relevant and (key > start_after or start_after.startswith(key)):
                    yield from self._walk(key, prefix, start_after)
            elif key.startswith(prefix) and key > start_after and not name.startswith(TEMPORARY):
                with contextlib.suppress(FileNotFoundError):
                    found = self._calls.stat(f"{self.root}/{key}")
                    yield Item(key, found.size, found.mtime)

    def _sweep(self, folder: str, prefix: str, before: float) -> int:
        swept = 0
        for name, is_directory in self._scan(folder):
            key = folder + name
            if is_directory:
                if f"{key}/".startswith(prefix) or prefix.startswith(f"{key}/"):
                    swept += self._sweep(f"{key}/", prefix, before)
            elif name.startswith(TEMPORARY) and key.startswith(prefix) and _begun(name) < before:
                with contextlib.suppress(FileNotFoundError):
                    if self._calls.stat(f"{self.root}/{key}").mtime < before:
                        self._calls.unlink(f"{self.root}/{key}")
                        swept += 1
        return swept


@contextlib.contextmanager
def told(operation: str, key: str) -> Iterator[None]:
    """Errors of the file system become the store's, with the operation and the key in them."""
    try:
        yield
    except OSError as error:
        if operation in _READS and isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
            raise NotThere(key) from error
        extra = {"reason": "timeout"} if error.errno in _TIMES else {}
        raise StoreUnavailable(
            f"The store failed to {operation} {key}: {error.strerror}.", operation=operation, **extra
        ) from error


def _temporary(start: str) -> str:
    """A name that says when it was given."""
    return f"{start}{int(time.time()):x}-{secrets.token_hex(8)}"


def _begun(name: str) -> float:
    """When a temporary name was given, 0 where it does not say. What is young need not be asked for its time: in CephFS
    that would wait for a writer that was killed, until the cluster gives it up.
    """
    found = re.fullmatch(r"\.?[a-z]+[_-]([0-9a-f]{6,12})-[0-9a-f]+", name)
    return int(found[1], 16) if found else 0.0


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
