"""The way of bytes from a store into the node's cache, each answer of the store checked.

What the disk of the cache does not take is handed over in memory. Every answer is checked for its length, and whole
files by their checksum; a store that gave wrong bytes twice is left to the reader, who knows which objects are damaged.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha1
from typing import Any, Final, ParamSpec, TypeVar

from pack.errors import CorruptData, StoreUnavailable
from pack.sidecar import size_of
from storage import cache, layout
from storage.backend import Backend, NotThere
from storage.cache import Piece, Place
from storage.evict import Evictor
from storage.wanted import File, Sizes, Span

log = logging.getLogger("packhouse.cache")

_T = TypeVar("_T")
_P = ParamSpec("_P")

_THREADS: Final = 4
_PIECE: Final = 16 << 20
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_QUIET_SECONDS: Final = 60.0
_AWAY_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Placed:
    """A file of a repository, where it is in the store and in the cache."""

    file: File
    key: str
    shelf: str

    @property
    def name(self) -> str:
        return self.file.name

    def piece(self, number: int, data: bytes) -> Piece:
        return Piece(self.shelf, self.name, number, data)


class Carrier:
    """Carries files, and blocks of them, for one process. `budget`: bytes that the cache of the node may have.

    What each method returns is what the cache did not take, or with `hand` all.
    """

    def __init__(self, backend: Backend, place: Place, budget: int, sizes: Sizes | None = None) -> None:
        self.backend = backend
        self.place = place
        self.sizes = sizes or Sizes()
        self.evictor = Evictor(place, budget)
        self._threads = ThreadPoolExecutor(_THREADS, "cache")
        self._requests = asyncio.Semaphore(self.sizes.parallel)
        self._room = _Room(self.sizes.flying)
        self._background: set[asyncio.Task[None]] = set()
        self._told = -_QUIET_SECONDS
        self._evicting = False
        self.away_until = 0.0
        """Until then the store is not asked for what reads can do without."""

    async def close(self) -> None:
        """End what goes on in the background."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._threads.shutdown(wait=False)

    async def bring_whole(self, file: Placed, hand: bool) -> tuple[Piece, ...]:
        """A file that is there."""
        data = b""
        for last in (False, True):
            data = await self._get(file)
            if await self.in_thread(file.file.is_sound, data):
                break
            if last:
                log.warning("the store has %s with a wrong checksum", file.key)
        stored = await self.in_thread(self.store, cache.whole_path(file.shelf, file.name), (data,), len(data))
        self.make_room()
        return () if stored and not hand else (file.piece(-1, data),)

    async def bring_sidecar(self, file: Placed, hand: bool) -> tuple[Piece, ...]:
        """A file that need not be there, and whose size nobody knows; of a large one its beginning, where that tells
        what is in it.
        """
        data = b""
        path = cache.whole_path(file.shelf, file.name)
        try:
            if time.monotonic() >= self.away_until:
                first = self.sizes.windows[0] if file.name.startswith(layout.RANGED) else self.sizes.request
                data = await self._whatever(file, first)
                count = first // self.place.block
                if count and len(data) == first < (size_of(data) or 0):
                    return await self._keep_blocks(file, range(count), data[: count * self.place.block], hand)
                if len(data) == first:
                    data = await self._whatever(file, self.sizes.request, data)
        except NotThere:
            pass
        except StoreUnavailable:
            # Reads can do without.
            self.away_until = time.monotonic() + _AWAY_SECONDS
        if not data:
            path = cache.absent_path(file.shelf, file.name)
        stored = await self.in_thread(self.store, path, (data,), len(data))
        self.make_room()
        return () if stored and not (hand and data) else (file.piece(-1, data),)

    async def bring_blocks(self, file: Placed, span: Span, hand: bool) -> tuple[Piece, ...]:
        """A part of a file."""
        try:
            data = await self._read(file, span.offset, span.length)
        except (NotThere, CorruptData, StoreUnavailable):
            if file.file.kind != "sidecar":
                raise
            # It is another one by now, or gone: reads can do without.
            path = cache.absent_path(file.shelf, file.name)
            return () if await self.in_thread(self.store, path, (b"",), 0) else (file.piece(-1, b""),)
        return await self._keep_blocks(file, span.blocks, data, hand)

    async def _keep_blocks(self, file: Placed, numbers: range, whole: bytes, hand: bool) -> tuple[Piece, ...]:
        """Put blocks of a file, which lie one after the other in `whole`, into the cache."""
        data = memoryview(whole)
        block = self.place.block
        folder = cache.blocks_path(file.shelf, file.name)
        starts = range(0, len(data), block)
        cut = [(number, data[at : at + block]) for number, at in zip(numbers, starts, strict=True)]

        def store() -> list[Piece]:
            left = []
            full = False
            for number, part in cut:
                full = full or not self.store(f"{folder}/{number}", (part,), len(part))
                if full or hand:
                    left.append(file.piece(number, bytes(part)))
            return left

        left = await self.in_thread(store)
        self.make_room()
        return tuple(left)

    async def _whatever(self, file: Placed, most: int, data: bytes = b"") -> bytes:
        """The first bytes of a file of any size; with what is there of it already, all of it. NotThere."""
        async with self._room.taken(most), self._requests:
            if not data:
                return await self.backend.read(file.key, 0, most)
            more = data
            while more:
                more = await self.backend.read(file.key, len(data), most)
                data += more
                if len(more) < most:
                    break
        return data

    async def _get(self, file: Placed) -> bytes:
        size = file.file.size
        if size is not None:
            return await self._read(file, 0, size)
        async with self._requests:
            return await self.backend.get(file.key)

    async def _read(self, file: Placed, offset: int, length: int) -> bytes:
        """Exactly these bytes. CorruptData where the store has fewer."""
        async with self._room.taken(length), self._requests:
            data = await self.backend.read(file.key, offset, length)
            if len(data) != length:
                data = await self.backend.read(file.key, offset, length)
        if len(data) != length:
            raise CorruptData(f"{file.key} ends after {offset + len(data)} bytes in the store: it should have more.")
        return data

    def store(self, path: str, chunks: Iterable[bytes | memoryview], size: int) -> bool:
        """Whether the disk took it. In a thread."""
        if not self.evictor.admit(size):
            return False
        try:
            try:
                cache.store(self.place, path, chunks)
            except OSError as error:
                room = error.errno in _FULL and isinstance(chunks, tuple) and self.evictor.run(2 * size, full=True)
                if not room:
                    raise
                cache.store(self.place, path, chunks)
        except OSError as error:
            if time.monotonic() - self._told > _QUIET_SECONDS:
                self._told = time.monotonic()
                log.warning("the cache takes nothing, reads go to the store: %s", error.strerror)
            return False
        self.evictor.note(size)
        return True

    async def in_thread(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        call = functools.partial(work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def copy(self, file: Placed, size: int) -> None:
        """Bring a file of any size whole, piece by piece. OSError where the disk does not take it."""
        if not await self.in_thread(self.evictor.admit, size):
            raise OSError(errno.EFBIG, "the budget is too small")
        temporary = f"{self.place.temporary}/{secrets.token_hex(12)}"
        fd = await self.in_thread(cache.open_temporary, temporary)
        try:
            await self._pieces(file, size, fd)
            await self.in_thread(cache.move, temporary, cache.whole_path(file.shelf, file.name))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
            raise
        finally:
            os.close(fd)

    async def _pieces(self, file: Placed, size: int, fd: int) -> None:
        digest = sha1(usedforsecurity=False)
        last = b""
        for offset in range(0, size, _PIECE):
            data = await self._read(file, offset, min(_PIECE, size - offset))

            def take(data: bytes = data, last: bytes = last) -> bytes:
                joined = last + data
                digest.update(memoryview(joined)[:-20])
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                return joined[-20:]

            last = await self.in_thread(take)
            self.evictor.note(len(data))
            if self.evictor.due():
                await self.in_thread(self.evictor.run)
        if file.file.kind == "pack" and (digest.digest() != last or last != file.file.checksum):
            raise CorruptData(f"{file.key} has a wrong checksum in the store.")

    # In the background.

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def make_room(self) -> None:
        if self._evicting or not self.evictor.due():
            return
        self._evicting = True

        async def evict() -> None:
            try:
                await self.in_thread(self.evictor.run)
            finally:
                self._evicting = False

        self.spawn(evict())


class _Room:
    """A bound for bytes in flight: whoever wants more than is left waits; alone, one may have any number."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def taken(self, size: int) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._taken or self._taken + size <= self._most)
            self._taken += size
        try:
            yield
        finally:
            self._taken -= size
            async with self._changed:
                self._changed.notify_all()
