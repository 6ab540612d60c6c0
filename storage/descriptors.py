"""Open files of this process, the least recently used closed first.

Bytes are read with pread(2), never mapped: a cold or truncated map stops or kills every thread of the process. A
descriptor in use by a running read stays open until that read ends, whatever happens to its place here.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict

MOST = 512
STAMP_SECONDS = 30.0
"""How often, at most, the time of use of a cache file is written down."""

_lock = threading.Lock()
_files: OrderedDict[str, File] = OrderedDict()


class File:
    """A descriptor that is closed when nobody holds it any more. `size` is that at opening, in bytes."""

    __slots__ = ("fd", "inode", "size", "stamped")

    def __init__(self, path: str) -> None:
        self.fd = -1
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        found = os.fstat(self.fd)
        self.size = found.st_size
        self.inode = (found.st_dev, found.st_ino)
        self.stamped = 0.0

    def __del__(self) -> None:
        if self.fd >= 0:
            with contextlib.suppress(OSError):  # nothing was written, and of a mount that is gone it says so
                os.close(self.fd)

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes, fewer only at the end. OSError."""
        data = os.pread(self.fd, length, offset)
        while len(data) < length and (more := os.pread(self.fd, length - len(data), offset + len(data))):
            data += more
        return data

    def stamp(self) -> bool:
        """Write down that the file is in use, for whoever makes room; False when it was taken away already."""
        now = time.monotonic()
        if now - self.stamped < STAMP_SECONDS:
            return True
        self.stamped = now
        with contextlib.suppress(OSError):
            if os.fstat(self.fd).st_nlink == 0:
                return False
            os.utime(self.fd)
        return True


def get(path: str) -> File:
    """The open file at `path`, opened now or before. OSError."""
    with _lock:
        file = _files.get(path)
        if file is not None:
            _files.move_to_end(path)
            return file
        file = _files[path] = File(path)
        while len(_files) > MOST:
            _files.popitem(last=False)
        return file


def forget(path: str) -> File | None:
    """Open it anew next time; what was open of it is returned."""
    with _lock:
        return _files.pop(path, None)


def clear() -> None:
    with _lock:
        _files.clear()


def tidy() -> None:
    """Let go of files that have been unlinked: their bytes lie on the disk for as long as they are open."""
    with _lock:
        for path, file in list(_files.items()):
            with contextlib.suppress(OSError):
                if os.fstat(file.fd).st_nlink == 0:
                    del _files[path]
