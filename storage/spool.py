"""A local file for what is on its way to a remote store: parsers read it back, and tries to send it start over from it.

It has no name from the beginning, so that nothing stays behind when the process dies.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pack.errors import StoreUnavailable


class Spool:
    """Positions and sizes are bytes. StoreUnavailable when the local disk fails: what was taken over is lost."""

    def __init__(self, directory: Path | None = None) -> None:
        self.size = 0
        self._fd = -1
        with _told():
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
            folder = str(directory or tempfile.gettempdir())
            try:
                self._fd = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
            except OSError:
                # Not every file system has nameless files.
                self._fd, path = tempfile.mkstemp(prefix="packhouse-spool-", dir=folder)
                os.unlink(path)  # noqa: PTH108

    def append(self, chunk: bytes | bytearray | memoryview) -> None:
        self._write(chunk, self.size)
        self.size += len(chunk)

    def settle(self, head: bytes, cut: int, tail: bytes) -> None:
        """Replace the first bytes by `head` and the last `cut` ones by `tail`."""
        self._write(head, 0)
        with _told():
            os.ftruncate(self._fd, self.size - cut)
        self._write(tail, self.size - cut)
        self.size += len(tail) - cut

    def read(self, offset: int, length: int) -> bytes:
        """Fewer bytes only at the end. May be called from any thread."""
        with _told():
            data = os.pread(self._fd, length, offset)
            while len(data) < length and (more := os.pread(self._fd, length - len(data), offset + len(data))):
                data += more
        return data

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def _write(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        view = memoryview(data)
        with _told():
            while view:
                written = os.pwrite(self._fd, view, offset)
                view = view[written:]
                offset += written


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"The local disk failed to spool an upload: {error.strerror}.", operation="spool"
        ) from error
