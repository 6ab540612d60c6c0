"""Registering what the command line names, and ingesting it in this very process."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from app import names, sample
from app.bar import Bar, size
from app.building import build
from app.housekeeping import join
from app.ingest import Outcome, ingest
from app.ingestion import Order
from app.ingestion import run as run_order
from app.progress import Meter
from app.registry import Registry
from app.settings import Settings
from app.store import open_store
from app.warming import warm
from pack.errors import Conflict
from storage import generations, publish
from storage.backend import Backend
from storage.localgit import LocalRepository
from storage.manifest import DELETED
from storage.open import check_format
from storage.repository import Repositories


@dataclass(frozen=True, slots=True)
class Named:
    """A repository of the command line, registered. `allow`: upstreams that naming it allows."""

    owner: str
    name: str
    allow: tuple[str, ...] = ()


async def register(registry: Registry, target: str, called: tuple[str, str] | None, replace: bool) -> Named:
    """Register the URL or path `target`; UpstreamNotFound and UnsupportedUpstream for a path that is none."""
    if names.is_url(target):
        owner, name = called or names.of_url(target)
        allow = names.own_upstream(target)
        await registry.register(owner, name, target, replace=replace, allow=allow)
        return Named(owner, name, allow)
    url, (owner, name) = _local(target)
    owner, name = called or (owner, name)
    await registry.register_local(owner, name, url, replace=replace)
    return Named(owner, name)


def _local(target: str) -> tuple[str, tuple[str, str]]:
    """The URL of a local repository, and what to call it."""
    path = Path(target).expanduser()
    with LocalRepository(path) as repository:
        return repository.url, names.of_path(path)


def look(target: str) -> None:
    """Refuse at once what cannot be a source: a path without a repository, a URL that is none."""
    if names.is_url(target):
        names.of_url(target)
    else:
        _local(target)


async def bring(settings: Settings, target: str, called: tuple[str, str] | None, replace: bool) -> None:
    """`packhouse ingest`."""
    backend, supplier = open_store(settings)
    try:
        await check_format(backend)
        registry = Registry(backend, Repositories(backend), settings)
        named = await register(registry, target, called, replace)
        begun = time.monotonic()
        with Bar(f"{named.owner}/{named.name}") as bar:
            meter = Meter(bar.show, seconds=settings.ingest_deadline)
            order = Order(settings, named.owner, named.name, allow=named.allow)
            outcome = await run_order(backend, order, meter, supplier=supplier)
        _tell(named, outcome, time.monotonic() - begun)
        # It can be read already; this makes it quick.
        await join(backend, supplier, settings, named.owner, named.name)
        await build(backend, supplier, named.owner, named.name)
        await warm(backend, supplier, settings, named.owner, named.name)
    finally:
        if supplier is not None:
            await supplier.close()
        await backend.close()


def _tell(named: Named, outcome: Outcome, seconds: float) -> None:
    if outcome.changed:
        what = f"{outcome.objects:,} objects, {size(outcome.bytes)}, {outcome.refs:,} refs in {seconds:.1f} s"
    else:
        what = "up to date"
    print(f"{named.owner}/{named.name}: generation {outcome.generation}, {what}", flush=True)  # noqa: T201
    if outcome.refused_refs:
        print(f"{outcome.refused_refs} refs were left out: no repository can hold them", flush=True)  # noqa: T201


async def bring_sample(backend: Backend) -> Named:
    """The sample repository, in the store."""
    last = await generations.newest(backend, sample.OWNER, sample.NAME)
    if last is None or last.state == DELETED:
        await publish.register(backend, sample.OWNER, sample.NAME, None)
    elif last.upstream is not None:
        raise Conflict(f"{sample.OWNER}/{sample.NAME} is registered with an upstream of its own")
    await ingest(backend, sample.OWNER, sample.NAME, sample.Sample())
    return Named(sample.OWNER, sample.NAME)
