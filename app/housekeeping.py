"""Keeping house in a store: packs are joined, and what nothing needs any more is deleted."""

from __future__ import annotations

import logging
from collections.abc import Callable

from app.bar import size
from app.settings import Settings
from app.store import open_store
from pack.errors import Cancelled, CorruptData, PackError, PackhouseError
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
    good = True
    try:
        await check_format(backend)
        clock = await Clock.read(backend, dry_run=dry_run)
        left = grace(settings, seconds)
        total = Collected("", "")
        count = 0
        found = [only] if only is not None else [each async for each in tidy.repositories(backend)]
        for owner, name in found:
            if not dry_run:
                good &= await _compact(backend, owner, name, tell)
            report = await gc.collect(backend, owner, name, clock, left, dry_run=dry_run)
            if report.problem is not None:
                good = False
                tell(f"{owner}/{name}: left as it is: {report.problem}")
            elif report.retired or report.files:
                tell(f"{owner}/{name}: {_what(report, dry_run)}")
            count += report.generation > 0
            total.retired += report.retired
            total.packs += report.packs
            total.orphans += report.orphans
            total.files += report.files
            total.bytes += report.bytes
        if only is None:
            operations = await tidy.forget_operations(backend, clock, left, dry_run=dry_run)
            if operations:
                tell(f"{_many(operations, 'old operation')} {'would be ' if dry_run else ''}forgotten")
        if not dry_run:
            swept = await tidy.sweep(backend, clock, left, only)
            if swept:
                tell(f"{_many(swept, 'unfinished write')} removed")
        if only is None:
            tell(f"{_many(count, 'repository', 'repositories')}: {_what(total, dry_run)}")
        elif not count:
            tell(f"there is no repository {only[0]}/{only[1]}")
            good = False
        elif not (total.retired or total.files):
            tell(f"{only[0]}/{only[1]}: nothing to collect")
    finally:
        if supplier is not None:
            await supplier.close()
        await backend.close()
    return good


async def _compact(backend: Backend, owner: str, name: str, tell: Callable[[str], None]) -> bool:
    try:
        joined = await compact(backend, owner, name)
    except (PackError, CorruptData) as error:
        tell(f"{owner}/{name}: its packs cannot be joined: {error.detail}")
        return False
    if joined is not None:
        tell(f"{owner}/{name}: {joined.packs} packs joined, {size(joined.bytes)}, {joined.objects:,} objects")
    return True


def _what(report: Collected, dry_run: bool) -> str:
    would = "would be " if dry_run else ""
    orphans = f", {report.orphans} of them left by crashes" if report.orphans else ""
    return (
        f"{_many(report.retired, 'generation')} {would}retired, {_many(report.packs, 'pack')} in "
        f"{_many(report.files, 'file')} ({size(report.bytes)}) {would}deleted{orphans}"
    )


def _many(count: int, one: str, more: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else more or one + 's'}"
