"""Files that a node derives for itself and keeps beside its cache: each in the frame of a sidecar, checked when read.

    {cache}/data/{store}/{owner}/{name}@{registration}/{kind}-{name}

They count in the cache's budget, and are made anew when they are gone or damaged. They are written by a thread; whoever
hands them over waits only while that has much to write.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final, NamedTuple

from pack.sidecar import HEADER_BYTES, BadSidecar, check_front, read_header, write_header
from storage import cache
from storage.cache import Place
from storage.descriptors import File
from storage.evict import Evictor

log = logging.getLogger("packhouse.cache")

_WAITING: Final = 32 << 20  # bytes that may wait to be written


class Found(NamedTuple):
    """The checked front of a file and its tail, which is not checked."""

    front: bytes
    tail: bytes


class Shelf:
    """The derived files of one repository."""

    def __init__(self, home: Home, folder: str) -> None:
        self._home = home
        self._folder = folder

    @property
    def most(self) -> int:
        """Bytes that files which belong together should not exceed."""
        return self._home.evictor.budget // 4

    def read(self, kind: str, name: str, version: int, derived: bytes) -> Found | None:
        """The file, None where there is none that can be used."""
        try:
            file = File(self._path(kind, name))
            file.stamp()
            data = file.read(0, HEADER_BYTES)
            header = read_header(data, kind, version, derived)
            if header.file_bytes != file.size:
                raise BadSidecar(f"it has {file.size} bytes and should have {header.file_bytes}")
            front = file.read(HEADER_BYTES, header.front_bytes)
            check_front(header, front)
            return Found(front, file.read(HEADER_BYTES + header.front_bytes, header.tail_bytes))
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("the cache cannot be read: %s", error.strerror)
        except BadSidecar as error:
            self.drop(kind, name, error)
        return None

    def drop(self, kind: str, name: str, error: BadSidecar) -> None:
        """Take away a file that turned out damaged."""
        log.warning("%s-%s of the cache is made anew: %s", kind, name, error.detail)
        with suppress(OSError):
            os.unlink(self._path(kind, name))  # noqa: PTH108

    def latest(self, kind: str, end: str) -> str | None:
        """The name of the file of a kind that was used last, of those whose name ends so."""
        return next(iter(self.lately(kind, end)), None)

    def lately(self, kind: str, end: str) -> list[str]:
        """The names of the files of a kind that end so, those that were used last first."""
        with suppress(OSError), os.scandir(self._folder) as entries:
            found = [
                (entry.stat().st_mtime, entry.name)
                for entry in entries
                if entry.name.startswith(f"{kind}-") and entry.name.endswith(end)
            ]
            return [name[len(kind) + 1 :] for _, name in sorted(found, reverse=True)]
        return []

    def write(self, kind: str, name: str, version: int, derived: bytes, front: bytes, tail: bytes) -> None:
        """Put a file there, some time soon."""
        self._home.write(self._path(kind, name), kind, version, derived, front, tail)

    def remove_others(self, kind: str, start: str, names: Collection[str]) -> None:
        """Take away, some time soon, the files whose name begins so and is none of `names`."""
        front = f"{kind}-{start}"
        wanted = {f"{kind}-{name}" for name in names}
        with suppress(OSError), os.scandir(self._folder) as entries:
            others = [each.path for each in entries if each.name.startswith(front) and each.name not in wanted]
            if others:
                self._home.remove(others)

    def limit(self, kind: str, groups: int) -> None:
        """Take away, some time soon, the files of all but the `groups` that were used last; a group is what names of
        files have in common before their last dash.
        """
        used: dict[str, float] = {}
        paths: dict[str, list[str]] = {}
        with suppress(OSError), os.scandir(self._folder) as entries:
            for each in entries:
                if each.name.startswith(f"{kind}-"):
                    group = each.name.rpartition("-")[0]
                    used[group] = max(used.get(group, 0.0), each.stat().st_mtime)
                    paths.setdefault(group, []).append(each.path)
        for group in sorted(used, key=used.__getitem__, reverse=True)[groups:]:
            self._home.remove(paths[group])

    def _path(self, kind: str, name: str) -> str:
        return f"{self._folder}/{kind}-{name}"


class Home:
    """All shelves of a process. `store` is the URL of its store, `budget` the bytes of the whole cache."""

    def __init__(self, place: Place, store: str, budget: int) -> None:
        self.place = place
        self.store = store
        self.evictor = Evictor(place, budget)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shelf")
        self._waiting: deque[tuple[Future[None], int]] = deque()
        self._bytes = 0

    def write(self, path: str, kind: str, version: int, derived: bytes, front: bytes, tail: bytes) -> None:
        while self._waiting and (self._waiting[0][0].done() or self._bytes > _WAITING):
            future, size = self._waiting.popleft()
            future.result()
            self._bytes -= size
        future = self._thread.submit(self._write, path, kind, version, derived, front, tail)
        self._waiting.append((future, len(front) + len(tail)))
        self._bytes += len(front) + len(tail)

    def remove(self, paths: list[str]) -> None:
        """Take files away, after what was handed over before."""
        self._waiting.append((self._thread.submit(_remove, paths), 0))

    def _write(self, path: str, kind: str, version: int, derived: bytes, front: bytes, tail: bytes) -> None:
        try:
            header = write_header(kind, version, derived, front, len(tail))
            cache.store(self.place, path, (header, front, tail))
            self.evictor.note(len(header) + len(front) + len(tail))
            if self.evictor.due():
                self.evictor.run()
        except OSError as error:
            log.warning("the cache cannot be written: %s", error.strerror)

    def settle(self) -> None:
        """Wait until all is written."""
        for future, _ in list(self._waiting):
            future.result()


def _remove(paths: list[str]) -> None:
    for path in paths:
        with suppress(OSError):
            os.unlink(path)  # noqa: PTH108


_home: Home | None = None


def configure(place: Place | None, store: str = "", budget: int = 0) -> None:
    """Where this process keeps derived files; None keeps none."""
    global _home
    _home = Home(place, store, budget) if place is not None else None


def shelf_of(namespace: str) -> Shelf | None:
    """The shelf of a repository; None where nothing is kept."""
    return Shelf(_home, _home.place.shelf(_home.store, namespace)) if _home is not None else None


def settle() -> None:
    """Wait until all that was handed over is written."""
    if _home is not None:
        _home.settle()
