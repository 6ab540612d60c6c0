"""Bringing to the node's cache what reads find missing there.

Repositories below `Sizes.whole` bytes come whole and at once, of larger ones ranges: the first of a read is small, the
following ones are larger and larger, so that few requests serve a read of any kind. Indexes come whole, and so does a
pack that is read a lot, in the background. What is on its way is waited for, not asked for twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pack.errors import PackhouseError, StoreUnavailable
from pack.source import Need
from storage import cache, layout, metered, views
from storage.backend import Backend
from storage.cache import Piece, Place
from storage.carry import Carrier, Placed
from storage.wanted import Sizes, Want, files_of, spans_of, total_of, want

if TYPE_CHECKING:
    from storage.repository import Handle

log = logging.getLogger("packhouse.cache")

_T = TypeVar("_T")
_Range = tuple[str, int, int]
_Bringing = asyncio.Task[tuple[Piece, ...]]

_HELD_BYTES: Final = 256 << 20
_COUNTED: Final = 10_000


class Supplier(Carrier):
    """Brings what is missing, for one process, and everything once."""

    def __init__(self, backend: Backend, place: Place, budget: int, sizes: Sizes | None = None) -> None:
        super().__init__(backend, place, budget, sizes)
        self._flying: dict[tuple[str, str, int], _Bringing] = {}
        self._readers: Counter[_Bringing] = Counter()
        self._completing = False
        self._reads: Counter[tuple[str, str]] = Counter()

    async def close(self) -> None:
        flying = list(self._flying.values())
        for task in flying:
            task.cancel()
        await asyncio.gather(*flying, return_exceptions=True)
        await super().close()

    async def tidy(self) -> None:
        """To be called every few seconds: room is made, and what others made room of is let go."""
        views.tidy()
        self.make_room()

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
            file = Placed(each.file, prefix + each.file.name, shelf)
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
                    await self.copy(Placed(file, prefix + file.name, shelf), file.size)
                except OSError as error:
                    raise StoreUnavailable(
                        f"The cache does not take {file.name}: {error.strerror}.", operation="cache"
                    ) from error

    async def keep(self, handle: Handle, name: str, size: int, chunks: Iterable[bytes]) -> None:
        """Put a file of the store into the cache whose bytes are at hand; it may not be possible."""
        path = cache.whole_path(self.place.shelf(handle.store, handle.namespace), name)
        await self.in_thread(self.store, path, chunks, size)
        self.make_room()

    # What is missing, and who brings it.

    def _plan_whole(self, file: Placed, hand: bool, tasks: list[_Bringing], pieces: list[Piece]) -> None:
        kept = cache.pieces.get(file.shelf, file.name, -1)
        flying = self._flying.get((file.shelf, file.name, -1))
        if kept is not None:
            pieces.append(file.piece(-1, kept))
        elif flying is not None and not hand:
            tasks.append(flying)
        elif hand or not cache.has(cache.whole_path(file.shelf, file.name), file.file.size):
            tasks.append(self._fly(file, (-1,), self.bring_whole(file, hand)))

    def _plan_sidecar(self, file: Placed, hand: bool, tasks: list[_Bringing]) -> None:
        flying = self._flying.get((file.shelf, file.name, -1))
        if flying is not None and not hand:
            tasks.append(flying)
        elif hand or not cache.has(cache.whole_path(file.shelf, file.name), None):
            tasks.append(self._fly(file, (-1,), self.bring_sidecar(file, hand)))

    def _plan_blocks(
        self,
        file: Placed,
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
        tasks.extend(self._fly(file, span.blocks, self.bring_blocks(file, span, hand)) for span in spans)
        if len(self._reads) > _COUNTED:
            self._reads.clear()
        self._reads[file.shelf, file.name] += 1
        self._consider(file)

    def _fly(self, file: Placed, numbers: Iterable[int], work: Coroutine[Any, Any, tuple[Piece, ...]]) -> _Bringing:
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

    # In the background.

    def _consider(self, file: Placed) -> None:
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
            self.spawn(self._complete(file, size))

    async def _complete(self, file: Placed, size: int) -> None:
        metered.stop()
        try:
            with _alone(f"{self.place.folder}/bringing"):
                if not cache.has(cache.whole_path(file.shelf, file.name), size):
                    await self.copy(file, size)
                for number in cache.block_numbers(file.shelf, file.name):
                    os.unlink(f"{cache.blocks_path(file.shelf, file.name)}/{number}")  # noqa: PTH108
        except (BlockingIOError, FileNotFoundError):
            return
        except (OSError, PackhouseError) as error:
            log.warning("%s could not be brought whole: %s", file.key, error)
        finally:
            self._completing = False


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


@contextlib.contextmanager
def _alone(path: str) -> Iterator[None]:
    """BlockingIOError where another process has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)
