"""Making room in the node's cache: one byte budget for all that lies in its folder, what was used least goes first.

Every process of a node writes to the cache; whoever has written enough looks whether room must be made, and the lock
lets one of them do it at a time. The time of use is the mtime of a file (readers stamp it now and then). What is being
written (`spool`, where ingests are spooled, too) counts, but is only removed when nobody has touched it for hours.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from storage.cache import Place

ABANDONED = 6 * 3600.0
CLAIM = ".claim"
"""Ends the names of files in `spool` that stand for spools; they are locked while these are in use."""
_EMPTY = 60.0
_PAGE = 4096
_LOOK_SECONDS = 60.0


class _Found(NamedTuple):
    used: float
    size: int
    path: str


class Evictor:
    """Keeps `place` within `budget` bytes. For any thread."""

    def __init__(self, place: Place, budget: int) -> None:
        self.place = place
        self.budget = budget
        self.step = max(_PAGE, min(64 << 20, budget // 20))
        self.total: int | None = None
        self._written = 0
        self._looked = 0.0
        self._lock = threading.Lock()

    def note(self, size: int) -> None:
        """So many bytes were written."""
        with self._lock:
            self._written += size

    def due(self) -> bool:
        """Whether enough was written, or enough time has passed, to look again."""
        return self._written >= self.step or time.monotonic() - self._looked > _LOOK_SECONDS

    def admit(self, size: int) -> bool:
        """Make room for a file that is about to be written; False where the budget has none for it. For a thread."""
        if size > self.budget // 2:
            return False
        with self._lock:
            known = None if self.total is None else self.total + self._written
        if known is None or known + _on_disk(size) > self.budget:
            self.run(size)
        return True

    def run(self, room: int = 0, *, full: bool = False) -> int:
        """Look, and make room where `room` more bytes would pass the budget; how many bytes went.

        `full`: the disk has less room than the budget, so that as many bytes go in any case. 0 when another process is
        at it. Takes its time: for a thread.
        """
        with self._lock:
            self._written = 0
            self._looked = time.monotonic()
        with contextlib.suppress(OSError), self._alone() as alone:
            if alone:
                return self._run(_on_disk(room), full)
        return 0

    def _run(self, room: int, full: bool) -> int:
        files = sorted(self._files())
        spooled = self._spooled()
        total = spooled + sum(file.size for file in files)
        target = total
        if total + max(room, self.step) > self.budget:
            # Some is left for what is written until the next look, by others, too.
            target = self.budget - 2 * self.step - room
        if full:
            target = min(target, total - room)
        gone = 0
        for file in files:
            if total - gone <= target:
                break
            with contextlib.suppress(OSError):
                os.unlink(file.path)  # noqa: PTH108
                gone += file.size
        self.total = total - gone
        if gone:
            self._sweep_folders()
        return gone

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        os.makedirs(self.place.folder, 0o700, exist_ok=True)  # noqa: PTH103
        fd = os.open(f"{self.place.folder}/evicting", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
        except BlockingIOError:
            yield False
        finally:
            os.close(fd)

    def _files(self) -> Iterator[_Found]:
        folders = [self.place.data]
        while folders:
            try:
                entries = os.scandir(folders.pop())
            except OSError:
                continue
            with entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
                        else:
                            found = entry.stat(follow_symlinks=False)
                            yield _Found(found.st_mtime, _on_disk(found.st_size), entry.path)

    def _spooled(self) -> int:
        total, now = 0, time.time()
        with contextlib.suppress(OSError), os.scandir(self.place.temporary) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    if now - found.st_mtime > ABANDONED or (entry.name.endswith(CLAIM) and _is_free(entry.path)):
                        os.unlink(entry.path)  # noqa: PTH108
                    else:
                        total += _on_disk(found.st_size)
        return total

    def _sweep_folders(self) -> None:
        """Empty folders go, but for new ones: somebody may be about to write there."""
        now = time.time()
        for folder, _, _ in os.walk(self.place.data, topdown=False):
            with contextlib.suppress(OSError):
                if folder != self.place.data and now - os.stat(folder).st_mtime > _EMPTY:  # noqa: PTH116
                    os.rmdir(folder)  # noqa: PTH106


def _is_free(path: str) -> bool:
    """Whether nobody holds the lock of a file."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


def _on_disk(size: int) -> int:
    return -(-size // _PAGE) * _PAGE
