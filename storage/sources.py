"""Where the bytes of an opened repository come from: the files of a local store, or the node's cache.

Both are `pack.reader.Source`; names are keys below the repository. They are synchronous and used in the serving
process and in workers alike. What the cache lacks is a `Need`; the serving process brings it (`storage.supply`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from pack.errors import CorruptData, StoreUnavailable
from pack.source import Need
from storage import cache, descriptors, layout
from storage.cache import Place
from storage.descriptors import File

ABSENT_SECONDS = 5.0
"""For so long a file that need not be there is not asked for again."""

log = logging.getLogger("packhouse.cache")


class RepositorySource(Protocol):
    def read(self, name: str, offset: int, length: int) -> bytes: ...

    def read_whole(self, name: str) -> bytes:
        """All of a file that is read once: it is not kept open."""
        ...

    def expect(self, name: str, size: int) -> None:
        """Say how many bytes a file has."""
        ...

    def distrust(self, name: str, ranges: list[tuple[int, int]] | None = None) -> bool:
        """These (offset, length) of a file, or all of it, turned out damaged: whether reading again may help."""
        ...

    def probe(self, name: str) -> int | None:
        """Bytes of a file that need not be there, as it is now; None where it is not. Need."""
        ...

    def at_hand(self, name: str) -> bool:
        """Whether a file that need not be there is, without asking a distant store."""
        ...

    def is_gone(self, name: str) -> bool:
        """Whether a file that was there is no longer, as far as that costs nothing to tell."""
        ...

    def reopen(self, name: str) -> None:
        """Read the file that is there now from here on."""
        ...


class LocalSource:
    """The files of one repository in a local folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def expect(self, name: str, size: int) -> None:
        """The store is what it is."""

    def distrust(self, name: str, ranges: list[tuple[int, int]] | None = None) -> bool:
        return False

    def probe(self, name: str) -> int | None:
        try:
            return os.stat(f"{self._folder}/{name}").st_size  # noqa: PTH116
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _refused(name, error) from error

    def at_hand(self, name: str) -> bool:
        return True

    def is_gone(self, name: str) -> bool:
        return self.probe(name) is None

    def reopen(self, name: str) -> None:
        descriptors.forget(f"{self._folder}/{name}")

    def read(self, name: str, offset: int, length: int) -> bytes:
        try:
            file = descriptors.get(f"{self._folder}/{name}")
            return file.read(offset, length)
        except OSError as error:
            raise _refused(name, error) from error

    def read_whole(self, name: str) -> bytes:
        try:
            file = File(f"{self._folder}/{name}")
            return file.read(0, file.size)
        except OSError as error:
            raise _refused(name, error) from error


def _refused(name: str, error: OSError) -> CorruptData | StoreUnavailable:
    if isinstance(error, FileNotFoundError):
        return CorruptData(f"{name.rpartition('/')[2]} is missing from the store.")
    return StoreUnavailable(f"The store failed to read a file: {error.strerror}.", operation="read")


class CachedSource:
    """What the node's cache has of one repository. `shelf` is its folder there."""

    def __init__(self, place: Place, shelf: str) -> None:
        self.place = place
        self.shelf = shelf
        self._sizes: dict[str, int] = {}
        self._paths: dict[str, str] = {}
        self._in_blocks: set[str] = set()

    def expect(self, name: str, size: int) -> None:
        self._sizes[name] = size
        self._paths[name] = cache.whole_path(self.shelf, name)

    def read(self, name: str, offset: int, length: int) -> bytes:
        size = self._sizes[name]
        length = max(0, min(length, size - offset))
        if name not in self._in_blocks:
            data = self._of_whole(name, offset, length)
            if data is not None:
                return data
            self._in_blocks.add(name)
        data = self._of_blocks(name, offset, length)
        if data is None:
            # It may have been brought whole since.
            data = self._of_whole(name, offset, length)
            if data is None:
                if self._is_absent(name):
                    raise CorruptData(f"{name.rpartition('/')[2]} is no longer in the store.")
                raise Need([(name, offset, length)])
            self._in_blocks.discard(name)
        return data

    def read_whole(self, name: str) -> bytes:
        path = cache.whole_path(self.shelf, name)
        with contextlib.suppress(OSError):
            file = File(path)
            file.stamp()
            data = file.read(0, file.size)
            if len(data) == file.size:
                return data
        data = cache.pieces.get(self.shelf, name, -1) or b""
        if not data:
            raise Need([(name, 0, 0)])
        return data

    def distrust(self, name: str, ranges: list[tuple[int, int]] | None = None) -> bool:
        """Take files of the cache away whose bytes are not what they should be.

        One that others have brought anew meanwhile stays: then it is enough to read again.
        """
        gone = [(cache.whole_path(self.shelf, name), -1)]
        numbers: set[int] = set()
        if ranges is None:
            numbers = cache.block_numbers(self.shelf, name)
        else:
            for offset, length in ranges:
                numbers.update(self.place.blocks(offset, length))
        folder = cache.blocks_path(self.shelf, name)
        gone += [(f"{folder}/{number}", number) for number in sorted(numbers)]
        found = [_distrust(path) | cache.pieces.drop(self.shelf, name, number) for path, number in gone]
        self._in_blocks.discard(name)
        if any(found):
            log.warning("the cache had damaged bytes of %s; they are fetched again", name)
        return any(found)

    def probe(self, name: str) -> int | None:
        size = self._size_of(name)
        if size is None and not self._is_absent(name):
            raise Need([(name, 0, 0)])
        return size

    def at_hand(self, name: str) -> bool:
        return self._size_of(name) is not None

    def is_gone(self, name: str) -> bool:
        return False  # it serves on, whatever became of it in the store

    def reopen(self, name: str) -> None:
        descriptors.forget(cache.whole_path(self.shelf, name))

    def _size_of(self, name: str) -> int | None:
        """Bytes of a whole file that is here, or of a sidecar whose beginning is."""
        with contextlib.suppress(OSError):
            return os.stat(cache.whole_path(self.shelf, name)).st_size  # noqa: PTH116
        kept = cache.pieces.get(self.shelf, name, -1)
        if kept:
            return len(kept)
        return cache.sidecar_bytes(self.shelf, name) if name.startswith(layout.RANGED) else None

    def _is_absent(self, name: str) -> bool:
        """Whether the store was seen without it just now."""
        if cache.pieces.get(self.shelf, name, -1) is not None:
            return True
        with contextlib.suppress(OSError):
            return time.time() - os.stat(cache.absent_path(self.shelf, name)).st_mtime < ABSENT_SECONDS  # noqa: PTH116
        return False

    def _of_whole(self, name: str, offset: int, length: int) -> bytes | None:
        data = self._pread(self._paths[name], self._sizes[name], offset, length)
        if data is None:
            kept = cache.pieces.get(self.shelf, name, -1)
            data = None if kept is None else kept[offset : offset + length]
        return data

    def _of_blocks(self, name: str, offset: int, length: int) -> bytes | None:
        parts = []
        for part in self._parts(name, offset, length):
            if part is None:
                return None
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _parts(self, name: str, offset: int, length: int) -> Iterator[bytes | None]:
        block, size = self.place.block, self._sizes[name]
        folder = cache.blocks_path(self.shelf, name)
        for number in self.place.blocks(offset, length):
            start = number * block
            begin, end = max(offset, start), min(offset + length, start + block)
            data = self._pread(f"{folder}/{number}", min(block, size - start), begin - start, end - begin)
            if data is None:
                kept = cache.pieces.get(self.shelf, name, number)
                data = None if kept is None else kept[begin - start : end - start]
            yield data

    @staticmethod
    def _pread(path: str, size: int, offset: int, length: int) -> bytes | None:
        """None where the file is not there, not of its size, or cannot be read."""
        try:
            file = descriptors.get(path)
            if time.monotonic() - file.stamped >= descriptors.STAMP_SECONDS and not file.stamp():
                descriptors.forget(path)
                file = descriptors.get(path)
            if file.size == size:
                data = os.pread(file.fd, length, offset)
                if len(data) == length:
                    return data
                data = file.read(offset, length)
                if len(data) == length:
                    return data
            log.warning("a file of the cache has %d bytes instead of %d; it is fetched again", file.size, size)
            _distrust(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("the cache cannot be read: %s", error.strerror)
            descriptors.forget(path)
        return None


def _distrust(path: str) -> bool:
    """Unlink a file, unless it is another one than this process has read; whether there was any."""
    opened = descriptors.forget(path)
    try:
        found = os.stat(path)  # noqa: PTH116
        if opened is None or opened.inode == (found.st_dev, found.st_ino):
            os.unlink(path)  # noqa: PTH108
    except FileNotFoundError:
        return opened is not None
    except OSError:
        return False
    return True
