"""The calls of a file system that the store rests on, and those of the machine's own.

`storage.libcephfs` has the same ones of a CephFS that is mounted nowhere. All raise OSError, with the errno of the call
of the same name.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple, Protocol


class Found(NamedTuple):
    """`size` in bytes, `mtime` in seconds since 1970 by the file system's clock."""

    size: int
    mtime: float
    is_directory: bool


class Posix(Protocol):
    def open(self, path: str, flags: int, mode: int = 0) -> int:
        """A descriptor of these calls; `flags` are those of the os module."""
        ...

    def close(self, fd: int) -> None: ...

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """Fewer bytes than there are may come; none only at the end."""
        ...

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Append; how many bytes were taken."""
        ...

    def pwrite(self, fd: int, data: bytes, offset: int) -> int: ...

    def truncate(self, fd: int, size: int) -> None:
        """The next `write` goes to the new end."""
        ...

    def seal(self, fd: int) -> None:
        """Make what was written durable, and close, in any case."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make durable what was linked, renamed and removed there."""
        ...

    def fstat(self, fd: int) -> Found: ...

    def stat(self, path: str) -> Found: ...

    def mkdir(self, path: str) -> None: ...

    def link(self, source: str, target: str) -> None:
        """FileExistsError where there is something already: of several callers one wins."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Replaces what is there."""
        ...

    def unlink(self, path: str) -> None: ...

    def scan(self, path: str) -> list[tuple[str, bool]]:
        """Name and whether it is a directory, of everything in a directory, in any order."""
        ...


class Local:
    """Those of the operating system."""

    def open(self, path: str, flags: int, mode: int = 0) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        return os.pread(fd, length, offset)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return os.write(fd, data)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)
        os.lseek(fd, 0, os.SEEK_END)

    def seal(self, fd: int) -> None:
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_directory(self, path: str) -> None:
        self.seal(self.open(path, os.O_RDONLY | os.O_DIRECTORY))

    def fstat(self, fd: int) -> Found:
        return _found(os.fstat(fd))

    def stat(self, path: str) -> Found:
        return _found(os.stat(path))  # noqa: PTH116

    def mkdir(self, path: str) -> None:
        os.mkdir(path)  # noqa: PTH102

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)  # noqa: PTH104

    def unlink(self, path: str) -> None:
        os.unlink(path)  # noqa: PTH108

    def scan(self, path: str) -> list[tuple[str, bool]]:
        with os.scandir(path) as entries:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]


def _found(found: os.stat_result) -> Found:
    return Found(found.st_size, found.st_mtime, stat.S_ISDIR(found.st_mode))
