"""The node's cache: immutable files of the store on local disk, shared by all processes of the node.

    {folder}/data/{store}/{owner}/{name}@{registration}/{file}                 a whole file
                                                        {file}.blocks/{n}      block n of a larger one
                                                        {file}.absent          the store had none just now
    {folder}/spool/{random}                                                    what is being written
    {folder}/evicting                                                          locked by whoever makes room

A file appears whole: it is written under a temporary name and renamed. Nothing here is ever changed in place or cut
off, only unlinked, so that a reader who has it open goes on. Nothing is synced, either: a crash of the machine may
leave a file of the wrong length, which is noticed when it is opened, or of wrong bytes, which the hash of the first
object in it tells; both are dropped and brought again. Repositories share nothing, and a repository that is deleted
and registered anew has another name here.

What the disk would not take is handed to readers in memory (`Piece`), so that a full or broken disk costs time and
never an answer.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from pack.sidecar import HEADER_BYTES, size_of

_MODE = 0o600
_FOLDER_MODE = 0o700
_TRIES = 5
_PIECES_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node's cache is: an absolute folder, and the bytes of a block (the same in all processes)."""

    folder: str
    block: int = 1 << 20

    def shelf(self, store: str, namespace: str) -> str:
        """The folder of one registration of a repository of one store."""
        return f"{self.data}/{sha256(store.encode()).hexdigest()[:16]}/{namespace}"

    @property
    def data(self) -> str:
        return f"{self.folder}/data"

    @property
    def temporary(self) -> str:
        return f"{self.folder}/spool"

    def blocks(self, offset: int, length: int) -> range:
        """The numbers of the blocks that these bytes lie in."""
        return range(offset // self.block, (offset + max(length, 1) - 1) // self.block + 1)


class Piece(NamedTuple):
    """Bytes of a file that are handed over in memory. `number` is that of a block, -1 for the whole file."""

    shelf: str
    name: str
    number: int
    data: bytes


def whole_path(shelf: str, name: str) -> str:
    """Where the file that is `name` in its repository lies as a whole."""
    return f"{shelf}/{name.rpartition('/')[2]}"


def absent_path(shelf: str, name: str) -> str:
    """A file that says, by its mtime, when the store was seen without the file `name`."""
    return f"{whole_path(shelf, name)}.absent"


def blocks_path(shelf: str, name: str) -> str:
    return f"{shelf}/{name.rpartition('/')[2]}.blocks"


def store(place: Place, path: str, chunks: Iterable[bytes | memoryview]) -> None:
    """Put a file at `path`, over what may be there. OSError; nothing is left of it then."""
    temporary = f"{place.temporary}/{secrets.token_hex(12)}"
    fd = open_temporary(temporary)
    try:
        try:
            for chunk in chunks:
                view = memoryview(chunk)
                while view:
                    view = view[os.write(fd, view) :]
        finally:
            os.close(fd)
        move(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise


def move(temporary: str, path: str) -> None:
    """Rename into place; the folder may be made, and taken away for being empty, by others meanwhile."""
    for tries in range(_TRIES):
        try:
            os.rename(temporary, path)  # noqa: PTH104
            return
        except FileNotFoundError:
            if tries == _TRIES - 1 or not os.path.lexists(temporary):
                raise
            os.makedirs(path.rpartition("/")[0], _FOLDER_MODE, exist_ok=True)  # noqa: PTH103


def open_temporary(path: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, _MODE)
    except FileNotFoundError:
        os.makedirs(path.rpartition("/")[0], _FOLDER_MODE, exist_ok=True)  # noqa: PTH103
        return os.open(path, flags, _MODE)


def has(path: str, size: int | None) -> bool:
    """Whether the file is there, and of that size where it is known."""
    try:
        found = os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return False
    return size is None or found == size


def block_numbers(shelf: str, name: str) -> set[int]:
    """The blocks of a file that are there."""
    try:
        return {int(entry) for entry in os.listdir(blocks_path(shelf, name)) if entry.isdigit()}  # noqa: PTH208
    except OSError:
        return set()


def sidecar_bytes(shelf: str, name: str) -> int | None:
    """Bytes of a sidecar of which the first block is here, as its header says; None where it is not."""
    data = b""
    with contextlib.suppress(OSError), open(f"{blocks_path(shelf, name)}/0", "rb", buffering=0) as file:
        data = file.read(HEADER_BYTES) or b""
    return size_of(data or (pieces.get(shelf, name, 0) or b"")[:HEADER_BYTES])


class Pieces:
    """Pieces in memory, the least recently used dropped beyond `most` bytes. For any thread."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.bytes = 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str, int], bytes] = OrderedDict()

    def get(self, shelf: str, name: str, number: int) -> bytes | None:
        if not self._kept:
            return None
        with self._lock:
            data = self._kept.get((shelf, name, number))
            if data is not None:
                self._kept.move_to_end((shelf, name, number))
            return data

    def add(self, pieces: Iterable[Piece]) -> None:
        with self._lock:
            for piece in pieces:
                key = piece[:3]
                self.bytes += len(piece.data) - len(self._kept.pop(key, b""))
                self._kept[key] = piece.data
            while self.bytes > self.most and len(self._kept) > 1:
                self.bytes -= len(self._kept.popitem(last=False)[1])

    def drop(self, shelf: str, name: str, number: int) -> bool:
        with self._lock:
            data = self._kept.pop((shelf, name, number), None)
            self.bytes -= len(data or b"")
            return data is not None

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self.bytes = 0


pieces = Pieces(_PIECES_BYTES)
"""Those that this process was handed."""
