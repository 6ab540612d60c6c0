"""Bringing to the node's cache what reads find missing there.

Repositories below `Sizes.whole` bytes come whole and at once, of larger ones ranges: the first of a read is small, the
following ones are larger and larger, so that few requests serve a read of any kind. Indexes come whole, and so does a
pack that is read a lot, in the background. What is on its way is waited for, not asked for twice.

What the disk of the cache does not take is handed over in memory. Every answer of the store is checked for its length,
and whole files by their checksum; a store that gave wrong bytes twice is left to the reader, who knows which objects
are damaged.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import functools
import logging
import os
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from pack.errors import CorruptData, PackhouseError, StoreUnavailable
from pack.sidecar import size_of
from pack.source import Need
from storage import cache, layout, metered, views
from storage.backend import Backend, NotThere
from storage.cache import Piece, Place
from storage.evict import Evictor
from storage.wanted import File, Sizes, Span, Want, files_of, spans_of, total_of, want

if TYPE_CHECKING:
    from storage.repository import Handle

log = logging.getLogger("packhouse.cache")

_T = TypeVar("_T")
_P = ParamSpec("_P")
_Range = tuple[str, int, int]
_Bringing = asyncio.Task[tuple[Piece, ...]]

_THREADS: Final = 4
_PIECE: Final = 16 << 20
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_HELD_BYTES: Final = 256 << 20
_QUIET_SECONDS: Final = 60.0
_AWAY_SECONDS: Final = 5.0
_COUNTED: Final = 10_000


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a repository, where it is in the store and in the cache."""

    file: File
    key: str
    shelf: str

    @property
    def name(self) -> str:
        return self.file.name

    def piece(self, number: int, data: bytes) -> Piece:
        return Piece(self.shelf, self.name, number, data)


class Supplier:
    """Brings what is missing, for one process. `budget`: bytes that the cache of the node may have."""

    def __init__(self, backend: Backend, place: Place, budget: int, sizes: Sizes | None = None) -> None:
        self.backend = backend
        self.place = place
        self.sizes = sizes or Sizes()
        self.evictor = Evictor(place, budget)
        self._threads = ThreadPoolExecutor(_THREADS, "cache")
        self._requests = asyncio.Semaphore(self.sizes.parallel)
        self._room = _Room(self.sizes.flying)
        self._flying: dict[tuple[str, str, int], _Bringing] = {}
        self._readers: Counter[_Bringing] = Counter()
        self._background: set[asyncio.Task[None]] = set()
        self._completing = False
        self._reads: Counter[tuple[str, str]] = Counter()
        self._told = -_QUIET_SECONDS
        self._evicting = False
        self.away_until = 0.0
        """Until then the store is not asked for what reads can do without."""

    async def close(self) -> None:
        tasks = [*self._background, *self._flying.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.shutdown(wait=False)

    async def tidy(self) -> None:
        """To be called every few seconds: room is made, and what others made room of is let go."""
        views.tidy()
        self._make_room()

    async def supply(
        self, handle: Handle, ranges: Sequence[_Range], turns: Mapping[str, int] | None = None, *, hand: bool = False
    ) -> tuple[Piece, ...]:
        """Bring these (file, offset, length) to the cache; what it could not take is returned.

        `turns` counts the calls for one read by file, and makes ranges larger. `hand` returns all, whatever the cache
        took.
        StoreUnavailable; CorruptData where the store lacks what the manifest names.
        """
        shelf = self.place.shelf(handle.store, handle.namespace)
        prefix = layout.repository(handle.owner, handle.name)
        small = not hand and total_of(handle.manifest) <= self.sizes.whole
        wanted = want(files_of(handle.manifest), ranges, small, self.sizes, self.place)
        tasks: list[_Bringing] = []
        pieces: list[Piece] = []
        for each in wanted:
            file = _File(each.file, prefix + each.file.name, shelf)
            if each.file.kind == "sidecar":
                size = cache.sidecar_bytes(shelf, file.name) if each.blocks else None
                if size is None:
                    self._plan_sidecar(file, hand, tasks)
                else:
                    file = replace(file, file=replace(file.file, size=size))
                    self._plan_blocks(file, each, (turns or {}).get(file.name, 0), hand, tasks, pieces)
            elif each.whole:
                self._plan_whole(file, hand, tasks, pieces)
            else:
                self._plan_blocks(file, each, (turns or {}).get(file.name, 0), hand, tasks, pieces)
        async with self._waiting_for(tuple(dict.fromkeys(tasks))) as waited:
            for brought in await asyncio.gather(*map(asyncio.shield, waited)):
                pieces += brought
        return tuple(pieces)

    @asynccontextmanager
    async def _waiting_for(self, tasks: tuple[_Bringing, ...]) -> AsyncIterator[tuple[_Bringing, ...]]:
        """While they are waited for. What nobody waits for any more is given up: its readers have left."""
        self._readers.update(tasks)
        try:
            yield tasks
        finally:
            for task in tasks:
                self._readers[task] -= 1
                if not self._readers[task]:
                    del self._readers[task]
                    if not task.done():
                        # Who comes now must not find it.
                        for key in [key for key, flying in self._flying.items() if flying is task]:
                            del self._flying[key]
                        task.cancel()

    async def run(self, handle: Handle, work: Callable[[Handle], _T]) -> _T:
        """The result of `work`, done in a thread as often as it takes to bring what it needs."""
        errand = Errand(self, handle)
        while True:
            try:
                return await asyncio.to_thread(work, errand.handle)
            except Need as need:
                await errand.bring(need)

    async def complete(self, handle: Handle) -> None:
        """Bring all packs of a generation whole, however large. StoreUnavailable, CorruptData."""
        shelf = self.place.shelf(handle.store, handle.namespace)
        prefix = layout.repository(handle.owner, handle.name)
        for file in files_of(handle.manifest).values():
            if file.size is not None and not cache.has(cache.whole_path(shelf, file.name), file.size):
                try:
                    await self._copy(_File(file, prefix + file.name, shelf), file.size)
                except OSError as error:
                    raise StoreUnavailable(
                        f"The cache does not take {file.name}: {error.strerror}.", operation="cache"
                    ) from error

    async def keep(self, handle: Handle, name: str, size: int, chunks: Iterable[bytes]) -> None:
        """Put a file of the store into the cache whose bytes are at hand; it may not be possible."""
        path = cache.whole_path(self.place.shelf(handle.store, handle.namespace), name)
        await self._in_thread(self._store, path, chunks, size)
        self._make_room()

    # What is missing, and who brings it.

    def _plan_whole(self, file: _File, hand: bool, tasks: list[_Bringing], pieces: list[Piece]) -> None:
        kept = cache.pieces.get(file.shelf, file.name, -1)
        flying = self._flying.get((file.shelf, file.name, -1))
        if kept is not None:
            pieces.append(file.piece(-1, kept))
        elif flying is not None and not hand:
            tasks.append(flying)
        elif hand or not cache.has(cache.whole_path(file.shelf, file.name), file.file.size):
            tasks.append(self._fly(file, (-1,), self._bring_whole(file, hand)))

    def _plan_sidecar(self, file: _File, hand: bool, tasks: list[_Bringing]) -> None:
        flying = self._flying.get((file.shelf, file.name, -1))
        if flying is not None and not hand:
            tasks.append(flying)
        elif hand or not cache.has(cache.whole_path(file.shelf, file.name), None):
            tasks.append(self._fly(file, (-1,), self._bring_sidecar(file, hand)))

    def _plan_blocks(
        self,
        file: _File,
        wanted: Want,
        turn: int,
        hand: bool,
        tasks: list[_Bringing],
        pieces: list[Piece],
    ) -> None:
        have = set() if hand else cache.block_numbers(file.shelf, file.name)
        missing = []
        for number in sorted(wanted.blocks - have):
            kept = cache.pieces.get(file.shelf, file.name, number)
            flying = self._flying.get((file.shelf, file.name, number))
            if kept is not None:
                pieces.append(file.piece(number, kept))
            elif flying is not None and not hand:
                tasks.append(flying)
            else:
                missing.append(number)
        if not missing:
            return
        window = self.place.block if hand else self.sizes.windows[min(turn, len(self.sizes.windows) - 1)]
        taken = have | {number for shelf, name, number in self._flying if (shelf, name) == (file.shelf, file.name)}
        spans = spans_of(missing, taken, file.file, window, self.sizes, self.place)
        tasks.extend(self._fly(file, span.blocks, self._bring_blocks(file, span, hand)) for span in spans)
        if len(self._reads) > _COUNTED:
            self._reads.clear()
        self._reads[file.shelf, file.name] += 1
        self._consider(file)

    def _fly(self, file: _File, numbers: Iterable[int], work: Coroutine[Any, Any, tuple[Piece, ...]]) -> _Bringing:
        """The work as a task of its own: who asked first may go away while others wait for the same."""
        keys = [(file.shelf, file.name, number) for number in numbers]
        task = asyncio.get_running_loop().create_task(work)
        self._flying.update(dict.fromkeys(keys, task))

        def landed(done: _Bringing) -> None:
            for key in keys:
                if self._flying.get(key) is done:
                    del self._flying[key]
            if not done.cancelled():
                done.exception()

        task.add_done_callback(landed)
        return task

    # Bringing.

    async def _bring_whole(self, file: _File, hand: bool) -> tuple[Piece, ...]:
        data = b""
        for last in (False, True):
            data = await self._get(file)
            if await self._in_thread(file.file.is_sound, data):
                break
            if last:
                log.warning("the store has %s with a wrong checksum", file.key)
        stored = await self._in_thread(self._store, cache.whole_path(file.shelf, file.name), (data,), len(data))
        self._make_room()
        return () if stored and not hand else (file.piece(-1, data),)

    async def _bring_sidecar(self, file: _File, hand: bool) -> tuple[Piece, ...]:
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
        stored = await self._in_thread(self._store, path, (data,), len(data))
        self._make_room()
        return () if stored and not (hand and data) else (file.piece(-1, data),)

    async def _bring_blocks(self, file: _File, span: Span, hand: bool) -> tuple[Piece, ...]:
        try:
            data = await self._read(file, span.offset, span.length)
        except (NotThere, CorruptData, StoreUnavailable):
            if file.file.kind != "sidecar":
                raise
            # It is another one by now, or gone: reads can do without.
            path = cache.absent_path(file.shelf, file.name)
            return () if await self._in_thread(self._store, path, (b"",), 0) else (file.piece(-1, b""),)
        return await self._keep_blocks(file, span.blocks, data, hand)

    async def _keep_blocks(self, file: _File, numbers: range, whole: bytes, hand: bool) -> tuple[Piece, ...]:
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
                full = full or not self._store(f"{folder}/{number}", (part,), len(part))
                if full or hand:
                    left.append(file.piece(number, bytes(part)))
            return left

        left = await self._in_thread(store)
        self._make_room()
        return tuple(left)

    async def _whatever(self, file: _File, most: int, data: bytes = b"") -> bytes:
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

    async def _get(self, file: _File) -> bytes:
        size = file.file.size
        if size is not None:
            return await self._read(file, 0, size)
        async with self._requests:
            return await self.backend.get(file.key)

    async def _read(self, file: _File, offset: int, length: int) -> bytes:
        """Exactly these bytes. CorruptData where the store has fewer."""
        async with self._room.taken(length), self._requests:
            data = await self.backend.read(file.key, offset, length)
            if len(data) != length:
                data = await self.backend.read(file.key, offset, length)
        if len(data) != length:
            raise CorruptData(f"{file.key} ends after {offset + len(data)} bytes in the store: it should have more.")
        return data

    def _store(self, path: str, chunks: Iterable[bytes | memoryview], size: int) -> bool:
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

    async def _in_thread(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        call = functools.partial(work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    # In the background.

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _make_room(self) -> None:
        if self._evicting or not self.evictor.due():
            return
        self._evicting = True

        async def evict() -> None:
            try:
                await self._in_thread(self.evictor.run)
            finally:
                self._evicting = False

        self._spawn(evict())

    def _consider(self, file: _File) -> None:
        """A pack that is read again and again is brought whole."""
        size = file.file.size
        if (
            self._reads[file.shelf, file.name] >= self.sizes.popular
            and size is not None
            and size <= self.evictor.budget // 4
            and not self._completing
        ):
            self._reads[file.shelf, file.name] = 0
            self._completing = True
            self._spawn(self._complete(file, size))

    async def _complete(self, file: _File, size: int) -> None:
        metered.stop()
        try:
            with _alone(f"{self.place.folder}/bringing"):
                if not cache.has(cache.whole_path(file.shelf, file.name), size):
                    await self._copy(file, size)
                for number in cache.block_numbers(file.shelf, file.name):
                    os.unlink(f"{cache.blocks_path(file.shelf, file.name)}/{number}")  # noqa: PTH108
        except (BlockingIOError, FileNotFoundError):
            return
        except (OSError, PackhouseError) as error:
            log.warning("%s could not be brought whole: %s", file.key, error)
        finally:
            self._completing = False

    async def _copy(self, file: _File, size: int) -> None:
        """Bring a file of any size whole, piece by piece. OSError where the disk does not take it."""
        if not await self._in_thread(self.evictor.admit, size):
            raise OSError(errno.EFBIG, "the budget is too small")
        temporary = f"{self.place.temporary}/{secrets.token_hex(12)}"
        fd = await self._in_thread(cache.open_temporary, temporary)
        try:
            await self._pieces(file, size, fd)
            await self._in_thread(cache.move, temporary, cache.whole_path(file.shelf, file.name))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
            raise
        finally:
            os.close(fd)

    async def _pieces(self, file: _File, size: int, fd: int) -> None:
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

            last = await self._in_thread(take)
            self.evictor.note(len(data))
            if self.evictor.due():
                await self._in_thread(self.evictor.run)
        if file.file.kind == "pack" and (digest.digest() != last or last != file.file.checksum):
            raise CorruptData(f"{file.key} has a wrong checksum in the store.")


class Errand:
    """What one read has brought; `handle` is what it goes on with."""

    def __init__(self, supplier: Supplier | None, handle: Handle) -> None:
        self._supplier = supplier
        self.handle = handle
        self._turns: Counter[str] = Counter()
        self._seen: Counter[_Range] = Counter()
        self._held = 0

    async def bring(self, need: Need) -> None:
        """StoreUnavailable where that is not possible.

        A local folder lacks nothing: a read that asks all the same has met a damaged store.
        """
        if self._supplier is None:
            names = ", ".join(sorted({name for name, _, _ in need.ranges}))
            raise StoreUnavailable(f"The store has no more of {names} to give.", operation="read")
        self._seen.update(set(need.ranges))
        asked = max(self._seen[each] for each in need.ranges)
        if asked > 3 or self._held > _HELD_BYTES:
            raise StoreUnavailable("The cache of this node is too small or broken for this read.", operation="cache")
        # What was brought and is missing again did not stay long enough: it is handed over.
        pieces = await self._supplier.supply(self.handle, need.ranges, self._turns, hand=asked > 1)
        self._turns.update({name for name, _, _ in need.ranges})
        if pieces:
            self._held += sum(len(piece.data) for piece in pieces)
            cache.pieces.add(pieces)
            self.handle = replace(self.handle, pieces=(*self.handle.pieces, *pieces))


@asynccontextmanager
async def supplying(backend: Backend, supplier: Supplier | None = None) -> AsyncIterator[Supplier | None]:
    """`supplier`, or one with a cache of its own that goes in the end; None for a store in a local folder."""
    if supplier is not None or backend.local_path(layout.FORMAT_KEY) is not None:
        yield supplier
        return
    with tempfile.TemporaryDirectory(prefix="packhouse-") as folder:
        own = Supplier(backend, Place(folder), 1 << 62)
        try:
            yield own
        finally:
            await own.close()


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


@contextlib.contextmanager
def _alone(path: str) -> Iterator[None]:
    """BlockingIOError where another process has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)
