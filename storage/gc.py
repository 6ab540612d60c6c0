"""Collecting what no generation needs any more, while others read and write.

Retiring. A request pins the newest generation and is cut after READ_MAX. A cursor may begin a request at an older one,
until 2 × READ_MAX after that one has got its successor (`generations.readable`). So nobody reads a generation that has
had a successor for 3 × READ_MAX: it is overwritten by a tombstone, never deleted, for a writer that slept meanwhile
must not win its number. What only such generations name is deleted at once.

Orphans. What no manifest names and is older than the grace for orphans belongs to a writer that was killed, or to one
that may still wake up and publish it. No clock tells the two apart, so the question is not asked: before it deletes an
orphan, gc publishes a generation of its own that changes nothing (a fence). Two rules of writers make that enough.

1. A manifest names only what its base names, or what its writer has written after he had read that base. (Tables are
   named at random for this: found by their contents, one could be relied upon and be gone.)
2. A writer that loses a race begins anew from the winner, with packs of his own that are new as well. He may keep those
   that he has if the store's listing says that they were written after the time up to which the winner is `swept`.

The orphans were listed before the fence was published. Who publishes after it has it, or a successor, for his base, and
so has read his base after that listing: by the first rule he cannot name them. Who had read an older base loses. This
holds however long a writer was stopped, and gc itself, too: between its fence and its deleting may lie weeks. The grace
is only there to disturb nobody: an ingest that loses to a fence that does not reach its packs goes on with them.

What keeps its name is retired by the same reasoning without a fence: a later manifest can name only what the newest one
named, or what is new.

Nothing is deleted in a repository of which a living manifest cannot be read. Keys of unknown form are left alone. All
times are the store's: of its listing, and of a key that is written when gc begins.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from pack.errors import CorruptData
from storage import generations, layout
from storage.backend import Backend, Item
from storage.manifest import DELETED, READY, TOMBSTONE, Manifest, PackRecord
from storage.publish import Lost, bury, insist
from storage.views import settle

T = TypeVar("T")

READ_MAX = 3600.0
AT_ONCE = 16
_RACES = 8


@dataclass(frozen=True, slots=True)
class Grace:
    """Seconds that things are left alone.

    retired     a generation that has a successor: 3 × READ_MAX
    orphans     what no manifest names, and unfinished writes; longer than any ingest takes, so that none is disturbed
    operations  the record of an operation
    """

    retired: float = 3 * READ_MAX
    orphans: float = 24 * 3600.0
    operations: float = 30 * 24 * 3600.0


@dataclass(slots=True)
class Collected:
    """What gc did in one repository, or would do. `fence` is the generation that it published, if any."""

    owner: str
    name: str
    generation: int = 0
    retired: int = 0
    packs: int = 0
    orphans: int = 0
    files: int = 0
    bytes: int = 0
    fence: int | None = None
    problem: str | None = None


class Clock:
    """The time by the store's clock."""

    def __init__(self, time_then: float, then: float) -> None:
        """It was `time_then` when the monotonic clock stood at `then`."""
        self._ahead = time_then - then

    def now(self) -> float:
        return self._ahead + time.monotonic()

    @classmethod
    async def read(cls, backend: Backend, *, dry_run: bool = False) -> Clock:
        """`dry_run` writes nothing, and trusts our own clock."""
        before = time.monotonic()
        if not dry_run:
            await backend.put(layout.GC_KEY, b"")
            async for item in backend.list(layout.GC_KEY):
                if item.key == layout.GC_KEY:
                    return cls(item.mtime, before)
        return cls(time.time(), before)


async def collect(
    backend: Backend,
    owner: str,
    name: str,
    clock: Clock,
    grace: Grace = Grace(),
    *,
    dry_run: bool = False,
) -> Collected:
    """Collect one repository, deleted ones too. A damaged one is left as it is (`problem`); StoreUnavailable."""
    report = Collected(owner, name)
    try:
        await _Repository(backend, owner, name, clock, grace, dry_run, report).collect()
    except CorruptData as error:
        report.problem = error.detail
    return report


class _Repository:
    def __init__(
        self,
        backend: Backend,
        owner: str,
        name: str,
        clock: Clock,
        grace: Grace,
        dry_run: bool,
        report: Collected,
    ) -> None:
        self.backend = backend
        self.owner = owner
        self.name = name
        self.prefix = layout.repository(owner, name)
        self.clock = clock
        self.grace = grace
        self.dry_run = dry_run
        self.report = report
        self.living: set[str] = set()  # what living generations name
        self.freed: set[str] = set()  # what those name that are retired now
        self._table: tuple[str, tuple[PackRecord, ...]] = ("", ())

    async def collect(self) -> None:
        # Before any manifest is read: what is not there yet is nobody's business.
        cutoff = self.clock.now() - self.grace.orphans
        there = await self._list()
        newest = await generations.newest(self.backend, self.owner, self.name)
        if newest is None:
            return
        self.report.generation = newest.number
        retired = await self._read(newest)
        self.report.retired = len(retired)
        if not self.dry_run:
            # In their order: the tombstones are always the first so many generations, a batch that was cut off apart.
            for start in range(0, len(retired), AT_ONCE):
                batch = retired[start : start + AT_ONCE]
                await together(bury(self.backend, self.owner, self.name, each) for each in batch)
        dead = {token: items for token, items in there.items() if token not in self.living}
        freed = {token: items for token, items in dead.items() if token in self.freed}
        orphans = {
            token: items
            for token, items in dead.items()
            if token not in freed and max(item.mtime for item in items) < cutoff
        }
        if orphans and newest.state != DELETED and not self.dry_run:
            orphans = await self._fence(newest, orphans, cutoff)
        self.report.orphans = len(orphans)
        for token, items in (freed | orphans).items():
            self.report.packs += token.startswith("pack-")
            self.report.files += len(items)
            self.report.bytes += sum(item.size for item in items)
        if not self.dry_run:
            # An index before its pack: git takes it as a sign that the pack is there.
            keys = [item.key for items in (freed | orphans).values() for item in items]
            for last in (False, True):
                for start in range(0, len(keys), AT_ONCE):
                    some = [key for key in keys[start : start + AT_ONCE] if key.endswith(".pack") is last]
                    await together(map(self.backend.delete, some))

    async def _list(self) -> dict[str, list[Item]]:
        """What can be collected, by what it must be named as to stay."""
        there: dict[str, list[Item]] = {}
        prefix = self.prefix
        # All that can be collected sorts behind the generations, which may be very many.
        behind = prefix + "packhouse/generations0"
        for listing in (self.backend.list(prefix + layout.PACKS), self.backend.list(prefix + "packhouse/", behind)):
            async for item in listing:
                token = _token(item.key[len(prefix) :])
                if token is not None:
                    there.setdefault(token, []).append(item)
        return there

    async def _read(self, newest: Manifest) -> list[Manifest]:
        """The tombstones of those that are to be retired; what all that are left name is noted."""
        first = await self._first(newest.number)
        start = layout.generation(self.owner, self.name, max(0, first - 1 - AT_ONCE))
        times = {
            item.key: item.mtime async for item in self.backend.list(layout.generations(self.owner, self.name), start)
        }
        retired: list[Manifest] = []
        before: tuple[Manifest, list[str]] | None = None
        over = False
        async for manifest in self._generations(max(1, first - AT_ONCE), newest):
            names = await self._named(manifest)
            if before is not None:
                # It was created when the next one was, by the writer's clock or by the store's, whichever is later.
                there = times.get(layout.generation(self.owner, self.name, manifest.number), math.inf)
                since = max(there, manifest.created)
                over = over or self.clock.now() - since < self.grace.retired
                if not over and before[0].state != TOMBSTONE:
                    retired.append(before[0].tombstone())
                if over:
                    self._keep(before[1])
                else:
                    self.freed.update(before[1])
            before = manifest, names
        assert before is not None
        self._keep(before[1])
        return retired

    def _keep(self, tokens: list[str]) -> None:
        """A living generation has these. Sidecars may stand on those of the pack sets that its own grew from."""
        self.living.update(tokens)
        packs = [token for token in tokens if token.startswith("pack-")]
        self.living.update(layout.pack_set(packs[:count]) for count in range(1, len(packs)))

    async def _generations(self, first: int, newest: Manifest) -> AsyncIterator[Manifest]:
        for start in range(first, newest.number, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, newest.number))
            reads = [generations.read(self.backend, self.owner, self.name, number) for number in numbers]
            for number, manifest in zip(numbers, await together(reads), strict=True):
                if manifest is None:
                    raise CorruptData(f"Generation {number} of {self.owner}/{self.name} is missing.")
                yield manifest
        yield newest

    async def _first(self, newest: int) -> int:
        """The first generation that is no tombstone, or at most a batch behind it."""
        low, high = 1, newest
        while low < high:
            middle = (low + high) // 2
            manifest = await generations.read(self.backend, self.owner, self.name, middle)
            if manifest is None:
                raise CorruptData(f"Generation {middle} of {self.owner}/{self.name} is missing.")
            if manifest.state == TOMBSTONE:
                low = middle + 1
            else:
                high = middle
        return low

    async def _fence(self, newest: Manifest, orphans: dict[str, list[Item]], cutoff: float) -> dict[str, list[Item]]:
        """The orphans that nobody can name any more; none when others publish all the time."""
        for _ in range(_RACES):
            # Later than that of every fence before, so that two of them can be told apart.
            swept = max(cutoff, math.nextafter(newest.swept, math.inf))
            fence = newest.successor(swept=swept)
            outcome = await insist(self.backend, self.owner, self.name, fence)
            if not isinstance(outcome, Lost):
                self.report.fence = fence.number
                return orphans
            winner = outcome.winner
            async for manifest in self._generations(newest.number + 1, winner):
                self._keep(await self._named(manifest))
            orphans = {token: items for token, items in orphans.items() if token not in self.living}
            newest = winner
            if not orphans or newest.state == DELETED:
                return orphans
        return {}

    async def _named(self, manifest: Manifest) -> list[str]:
        """The tokens of what a manifest names."""
        tokens = []
        packs = manifest.packs
        table = manifest.packs_table
        if table is not None:
            # Many generations in a row have the same one.
            if table.key != self._table[0]:
                settled = await settle(self.backend, self.owner, self.name, replace(manifest, packs=()))
                self._table = table.key, settled.packs
            packs = (*self._table[1], *packs)
            tokens.append(table.key)
        if manifest.refs is not None:
            tokens.append(manifest.refs.key)
        names = [pack.name for pack in packs]
        if manifest.state == READY:
            tokens.append(layout.pack_set(names))
        return tokens + names


def _token(key: str) -> str | None:
    """What must be named for this key (below the repository) to stay; None for what is not ours to judge.

    A pack's name, with all the files that belong to it; a table's key; the pack set that a sidecar is derived from.
    """
    if key.startswith(layout.PACKS):
        stem = key[len(layout.PACKS) :].partition(".")[0]
        return stem if layout.is_pack_name(stem) else None
    if key.startswith(layout.TABLES):
        return key
    for kind in layout.SIDECARS:
        if key.startswith(kind):
            digits = key[len(kind) : len(kind) + 40]
            return digits if layout.is_pack_set(digits) else None
    return None


async def together(work: Iterable[Awaitable[T]]) -> list[T]:
    """The results of a batch of calls."""
    return list(await asyncio.gather(*work))
