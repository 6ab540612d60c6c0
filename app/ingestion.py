"""The inside of an ingest process: one ingest, told to the parent as it goes.

It tells its parent ("progress", Progress), ("note", text of the upstream), ("done", Outcome), ("failed",
PackhouseError). The parent sends a single byte to cancel; when it is gone, so is the ingest: nobody would renew the
operation's lease. After "done" the process waits for the byte GO, and then joins small packs and makes the sidecars of
what it has published; any other byte ends it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from app.building import build
from app.fetch.client import Upstream
from app.fetch.credentials import Credential, Vault
from app.fetch.guard import Policy
from app.fetch.timeouts import Timeouts
from app.housekeeping import join
from app.ingest import Outcome, ingest
from app.lately import listed_lately
from app.parent import Parent
from app.parent import run as run_process
from app.processes import lower
from app.progress import Meter
from app.settings import Settings
from app.source import HttpSource, Source, local
from app.store import open_store
from app.thrift import be_thrifty, give_back
from app.warming import warm
from pack.errors import Cancelled, NotReady, PackhouseError, RepoNotFound, UnsupportedUpstream
from pack.libgit import detecting_hash
from storage import generations, views
from storage.backend import Backend
from storage.manifest import DELETED, UpstreamRecord
from storage.supply import Supplier

log = logging.getLogger("packhouse.ingest")

GO = b"g"
OBJECTS_BYTES = 16 << 20
"""Resolved objects that an ingest keeps in memory: proving and deriving go from neighbour to neighbour."""
INTERRUPTIBLE = frozenset({"", "listing", "fetching", "receiving"})
"""Phases that wait for the upstream, and are broken off there; the others look at the meter by themselves."""


@dataclass(frozen=True, slots=True)
class Order:
    """What an ingest process is to do. `allow` adds upstreams to those of the settings, for this ingest alone."""

    settings: Settings
    owner: str
    name: str
    operation: str | None = None
    allow: tuple[str, ...] = ()


def vault(settings: Settings) -> Vault:
    keys = (settings.secret_key.get_secret_value(),) if settings.secret_key else ()
    return Vault(*keys, directory=settings.credentials_dir)


def policy(settings: Settings, allow: tuple[str, ...] = ()) -> Policy:
    return Policy(allow=(*settings.allow_upstreams, *allow), allow_plain_credentials=settings.allow_plain_credentials)


def credential(record: UpstreamRecord, settings: Settings) -> Credential | None:
    if not record.credential:
        return None
    kind, text = next(iter(record.credential.items()))
    return vault(settings).unseal(f"{kind}:{text}", record.url)


@asynccontextmanager
async def open_source(
    record: UpstreamRecord | None, settings: Settings, allow: tuple[str, ...] = (), note: Any = None
) -> AsyncIterator[Source]:
    """The source that a repository is registered with: an upstream, or a local folder (from the command line)."""
    if record is None:
        raise UnsupportedUpstream("the repository has no upstream")
    parts = urlsplit(record.url)
    if parts.scheme == "file":
        async with local(Path(unquote(parts.path))) as source:
            yield source
        return
    timeouts = Timeouts(connect=settings.connect_timeout, read=settings.idle_timeout, total=settings.ingest_deadline)
    secret = credential(record, settings)
    async with Upstream(record.url, secret, policy(settings, allow), timeouts, note) as upstream:
        yield HttpSource(upstream)


async def run(
    backend: Backend, order: Order, meter: Meter, note: Any = None, supplier: Supplier | None = None
) -> Outcome:
    """The ingest of a registered repository from its upstream."""
    manifest = await generations.newest(backend, order.owner, order.name)
    if manifest is None or manifest.state == DELETED:
        raise RepoNotFound(f"there is no repository {order.owner}/{order.name}")
    async with open_source(manifest.upstream, order.settings, order.allow, note) as source:
        return await ingest(
            backend,
            order.owner,
            order.name,
            source,
            meter=meter,
            limits=order.settings.limits(),
            hash_object=detecting_hash if order.settings.collision_check else None,
            operation=order.operation,
            supplier=supplier,
        )


async def _main(order: Order, parent: Parent) -> None:
    loop = asyncio.get_running_loop()
    meter = Meter(lambda progress: parent.tell("progress", progress), parent.asked, order.settings.ingest_deadline)
    backend, supplier = open_store(order.settings)
    task = loop.create_task(run(backend, order, meter, lambda text: parent.tell("note", text), supplier))

    def stop() -> None:
        parent.cancelled = True
        loop.remove_reader(parent.sock)
        if meter.phase in INTERRUPTIBLE:
            task.cancel()

    loop.add_reader(parent.sock, stop)
    try:
        outcome = await task
        parent.tell("progress", meter.progress())
        parent.tell("done", outcome)
        loop.remove_reader(parent.sock)
        give_back()
        if await parent.word() == GO:
            await _derive(order, backend, supplier, parent)
    except asyncio.CancelledError:
        parent.tell("failed", Cancelled("the operation was cancelled"))
    except PackhouseError as error:
        parent.tell("progress", meter.progress())
        parent.tell("failed", error)
    except Exception:
        log.exception("the ingest of %s/%s failed", order.owner, order.name)
        parent.tell("failed", PackhouseError("an internal error in an ingest; the log has it"))
    finally:
        loop.remove_reader(parent.sock)
        if supplier is not None:
            await supplier.close()
        await backend.close()


async def _derive(order: Order, backend: Backend, supplier: Supplier | None, parent: Parent) -> None:
    """Join packs where they are many, and make the sidecars of what is published and what a search of it needs.

    Where that fails, reads will ask.
    """

    def failed(kind: str, error: PackhouseError) -> None:
        # Another replica that has ingested the same at the same time may be making what this one stands on.
        level = logging.INFO if isinstance(error, NotReady) else logging.WARNING
        if not parent.cancelled:
            log.log(level, "the %s of %s/%s could not be made: %s", kind, order.owner, order.name, error.detail)

    try:
        await join(backend, supplier, order.settings, order.owner, order.name, parent.check)
        if not order.settings.make_sidecars:
            return
        lately = partial(listed_lately, order.settings, backend.url)
        await build(
            backend,
            supplier,
            order.owner,
            order.name,
            lately=lately,
            stream_bytes=order.settings.stream_bytes,
            check=parent.check,
            failed=failed,
        )
        await warm(backend, supplier, order.settings, order.owner, order.name, parent.check)
    except PackhouseError as error:
        if not parent.cancelled:
            log.warning("sidecars of %s/%s could not be made: %s", order.owner, order.name, error.detail)


def main(sock: socket.socket, order: Order) -> None:
    """Entry of the process."""
    lower(order.settings.nice)
    be_thrifty()
    views.configure(object_cache_bytes=OBJECTS_BYTES)
    run_process(_main(order, Parent(sock)))
