"""Keeping house in a store: packs are joined, and what nothing needs any more is deleted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from app.bar import size
from app.settings import Settings
from app.store import open_store
from pack.errors import Cancelled, CorruptData, PackError, PackhouseError, StoreUnavailable
from storage import gc, tidy
from storage.backend import Backend
from storage.compaction import Compacted, compact
from storage.gc import Clock, Collected, Grace
from storage.manifest import Manifest
from storage.open import check_format
from storage.repository import Handle
from storage.sink import Keep
from storage.supply import Supplier

log = logging.getLogger("packhouse.upkeep")

_AT_ONCE = 8


async def join(
    backend: Backend,
    supplier: Supplier | None,
    settings: Settings,
    owner: str,
    name: str,
    check: Callable[[], None] = lambda: None,
) -> Compacted | None:
    """What a sync leaves to do: join the small packs of a repository when there are many.

    That it fails is logged, no more; `check` raises Cancelled to end it.
    """
    if not settings.compact_packs:
        return None
    try:
        keep = None if supplier is None else _keeper(backend, supplier, owner, name)
        return await compact(backend, owner, name, more_than=settings.compact_packs, check=check, keep=keep)
    except Cancelled:
        raise
    except PackhouseError as error:
        log.warning("the packs of %s/%s could not be joined: %s", owner, name, error.detail)
        return None


def _keeper(backend: Backend, supplier: Supplier, owner: str, name: str) -> Callable[[Manifest], Keep]:
    def keeps(manifest: Manifest) -> Keep:
        handle = Handle(backend.url, owner, name, manifest, supplier.place)
        return lambda file, length, chunks: supplier.keep(handle, file, length, chunks)

    return keeps


def grace(settings: Settings, seconds: float | None = None) -> Grace:
    """How long things are left alone with these settings; `seconds` replaces all but the time of operations."""
    if seconds is not None:
        return Grace(retired=seconds, orphans=seconds)
    usual = Grace()
    # An ingest that runs as long as it may must not find its packs taken for orphans.
    orphans = max(usual.orphans, 2 * settings.ingest_deadline)
    return Grace(retired=3 * settings.read_max, orphans=orphans)


async def collect(
    settings: Settings,
    only: tuple[str, str] | None,
    *,
    dry_run: bool,
    seconds: float | None,
    tell: Callable[[str], None],
) -> bool:
    """`packhouse gc`: join packs and collect, one repository or all. False when one of them is damaged."""
    backend, supplier = open_store(settings)
    try:
        await check_format(backend)
        clock = await Clock.read(backend, dry_run=dry_run)
        return await _Round(backend, clock, grace(settings, seconds), dry_run, tell).go(only)
    finally:
        if supplier is not None:
            await supplier.close()
        await backend.close()


class _Round:
    """One round through a store, several repositories at a time."""

    def __init__(self, backend: Backend, clock: Clock, left: Grace, dry_run: bool, tell: Callable[[str], None]) -> None:
        self.backend = backend
        self.clock = clock
        self.grace = left
        self.dry_run = dry_run
        self.tell = tell
        self.good = True
        self.count = 0
        self.total = Collected("", "")
        self._joining = asyncio.Lock()  # it takes memory

    async def go(self, only: tuple[str, str] | None) -> bool:
        batch: list[tuple[str, str]] = []
        if only is not None:
            batch.append(only)
        else:
            async for each in tidy.repositories(self.backend):
                batch.append(each)
                if len(batch) == _AT_ONCE:
                    await self._batch(batch)
                    batch = []
        await self._batch(batch)
        would = "would be " if self.dry_run else ""
        if only is None:
            operations = await tidy.forget_operations(self.backend, self.clock, self.grace, dry_run=self.dry_run)
            if operations:
                self.tell(f"{_many(operations, 'old operation')} {would}forgotten")
        if not self.dry_run:
            swept = await tidy.sweep(self.backend, self.clock, self.grace, only)
            if swept:
                self.tell(f"{_many(swept, 'unfinished write')} removed")
        if only is None:
            self.tell(f"{_many(self.count, 'repository', 'repositories')}: {_what(self.total, self.dry_run)}")
        elif not self.count and self.good:
            self.tell(f"there is no repository {only[0]}/{only[1]}")
            self.good = False
        elif self.good and not (self.total.retired or self.total.files):
            self.tell(f"{only[0]}/{only[1]}: nothing to collect")
        return self.good

    async def _batch(self, batch: Sequence[tuple[str, str]]) -> None:
        await asyncio.gather(*(self._one(owner, name) for owner, name in batch))

    async def _one(self, owner: str, name: str) -> None:
        if not self.dry_run:
            async with self._joining:
                await self._join(owner, name)
        try:
            report = await gc.collect(self.backend, owner, name, self.clock, self.grace, dry_run=self.dry_run)
        except StoreUnavailable as error:
            # A manifest of a newer packhouse is one, too: what concerns one repository must not stop the others.
            report = Collected(owner, name, problem=error.detail)
        if report.problem is not None:
            self._complain(f"{owner}/{name}: left as it is: {report.problem}")
        elif report.retired or report.files:
            self.tell(f"{owner}/{name}: {_what(report, self.dry_run)}")
        self.count += report.generation > 0
        self.total.retired += report.retired
        self.total.packs += report.packs
        self.total.orphans += report.orphans
        self.total.files += report.files
        self.total.bytes += report.bytes

    async def _join(self, owner: str, name: str) -> None:
        try:
            joined = await compact(self.backend, owner, name)
        except (PackError, CorruptData, StoreUnavailable) as error:
            self._complain(f"{owner}/{name}: its packs cannot be joined: {error.detail}")
            return
        if joined is not None:
            before = _many(joined.packs, "pack")
            self.tell(f"{owner}/{name}: {before} joined, {size(joined.bytes)}, {joined.objects:,} objects")

    def _complain(self, text: str) -> None:
        self.good = False
        self.tell(text)


def _what(report: Collected, dry_run: bool) -> str:
    would = "would be " if dry_run else ""
    orphans = f", {report.orphans} of them left by crashes" if report.orphans else ""
    return (
        f"{_many(report.retired, 'generation')} {would}retired, {_many(report.packs, 'pack')} in "
        f"{_many(report.files, 'file')} ({size(report.bytes)}) {would}deleted{orphans}"
    )


def _many(count: int, one: str, more: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else more or one + 's'}"
