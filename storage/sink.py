"""Where a pack goes while it arrives: to its final place in the store, under a name drawn before its checksum is
known.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Protocol

from pack.errors import PackhouseError
from storage import layout
from storage.backend import Backend, Upload
from storage.manifest import PackRecord

_ABANDONED = 24 * 3600.0


Keep = Callable[[str, int, Iterable[bytes]], Awaitable[None]]
"""Takes the name of a file below its repository, its size, and its bytes (in a thread)."""

_CHUNK = 1 << 20


class Result(Protocol):
    """What of `pack.stream.PackResult` is used here."""

    @property
    def count(self) -> int: ...
    @property
    def own_objects(self) -> int: ...
    @property
    def own_end(self) -> int: ...
    @property
    def checksum(self) -> bytes: ...
    @property
    def tail(self) -> bytes: ...
    @property
    def header(self) -> bytes | None: ...


class PackSink:
    """Takes one pack. Until `finish` nothing is visible; after it the pack is in the store, though no manifest
    names it.
    """

    def __init__(self, backend: Backend, prefix: str, name: str, upload: Upload) -> None:
        self.name = name
        self._backend = backend
        self._prefix = prefix
        self._upload = upload
        self._begun = False  # to become visible

    @classmethod
    async def open(cls, backend: Backend, owner: str, name: str) -> PackSink:
        prefix = layout.repository(owner, name)
        # What others left unfinished is long over: an upload that goes on is written to.
        with contextlib.suppress(PackhouseError):
            await backend.sweep(prefix + "objects/pack/", _ABANDONED)
        pack = layout.pack_name()
        return cls(backend, prefix, pack, await backend.upload(prefix + layout.pack(pack)))

    @property
    def size(self) -> int:
        """Bytes taken so far."""
        return self._upload.size

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        await self._upload.write(chunk)

    def read_back(self, offset: int, length: int) -> bytes:
        """Bytes of what was written, for the parser; from a local file."""
        return self._upload.read_back(offset, length)

    async def finish(self, result: Result, index: bytes, keep: Keep | None = None) -> PackRecord:
        """Complete a thin pack, make pack and index durable, in that order: git takes an .idx for a sign of its
        .pack. `keep` is given both, for a cache: they are at hand here.
        """
        self._begun = True
        # What completes a thin pack stands where the trailer came.
        cut = self._upload.size - result.own_end if result.tail else 0
        head = result.header or b""
        if keep is not None:
            own = self._upload.size - cut
            await keep(layout.pack(self.name), own + len(result.tail), self._chunks(head, own, result.tail))
            await keep(layout.index(self.name), len(index), (index,))
        await self._upload.finish(head, cut, result.tail)
        size = self._upload.size
        await self._backend.create(self._prefix + layout.index(self.name), index)
        return PackRecord(self.name, size, result.count, result.own_objects, result.own_end, result.checksum)

    def _chunks(self, head: bytes, end: int, tail: bytes) -> Iterator[bytes]:
        """What was written, as it will be stored."""
        if head:
            yield head
        for offset in range(len(head), end, _CHUNK):
            yield self._upload.read_back(offset, min(_CHUNK, end - offset))
        if tail:
            yield tail

    async def abort(self) -> None:
        """Take the pack back, finished or not; only for packs that no manifest names.

        What a store that is away does not let go is an orphan for gc: why the pack was given up counts more.
        """
        await self._upload.abort()
        if not self._begun:
            return
        for key in (layout.index(self.name), layout.pack(self.name)):
            with contextlib.suppress(PackhouseError):
                await self._backend.delete(self._prefix + key)
