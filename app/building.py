"""Making the sidecars of one repository, in this very process or in a niced one of its own.

A process of its own tells its parent ("built", kind), ("failed", (kind, text)) and ("past", None), where the repository
has other packs by now. Any byte from the parent, or its end, ends the work.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from app.lately import listed_lately
from app.parent import Parent, run
from app.processes import follow, lower
from app.settings import Settings
from app.store import open_store
from app.thrift import be_thrifty
from pack.errors import Cancelled, PackhouseError
from storage import layout
from storage.backend import Backend
from storage.makers import MAKERS
from storage.repository import Handle, Repositories
from storage.sidecars import BUILT, NOTHING_LISTED, STREAM_BYTES, Listed, Site
from storage.sidecars import build as build_one
from storage.supply import Supplier

log = logging.getLogger("packhouse.sidecars")

_T = TypeVar("_T")
Failed = Callable[[str, PackhouseError], None]


@dataclass(frozen=True, slots=True)
class BuildOrder:
    """What a process is to make: these kinds, with what is wrong with the ones that are there (None: none is there).

    Nothing is made when the repository has other packs by then than those of `pack_set`.
    """

    settings: Settings
    owner: str
    name: str
    pack_set: str
    kinds: Mapping[str, str | None] = field(default_factory=dict)


async def build(
    backend: Backend,
    supplier: Supplier | None,
    owner: str,
    name: str,
    kinds: Mapping[str, str | None] | None = None,
    *,
    pack_set: str | None = None,
    anew: bool = False,
    lately: Callable[[str], Listed] = lambda namespace: NOTHING_LISTED,
    stream_bytes: int = STREAM_BYTES,
    check: Callable[[], None] = lambda: None,
    failed: Failed | None = None,
) -> list[str] | None:
    """Make the sidecars of the current generation that are not there; the kinds that were made.

    None where that generation has other packs than those of `pack_set`.

    `kinds` None: all of them. `anew`: those that are there, too. `lately` says what was listed lately of a repository,
    `stream_bytes` how much text gets ready streams.
    `check` raises to end the work. An error of one kind is told to `failed`, where that is given, and the others are
    made all the same. NotReady, RepoNotFound.
    """
    handle = await Repositories(backend, supplier=supplier).handle(owner, name)
    if pack_set is not None and pack_set != layout.pack_set(record.name for record in handle.manifest.packs):
        return None
    built = []
    run = _runner(supplier, handle)
    site = Site(backend, handle, run, lately=lately(handle.namespace), stream_bytes=stream_bytes, check=check)
    for kind, damage in (dict.fromkeys(MAKERS) if kinds is None else kinds).items():
        try:
            if await build_one(site, MAKERS[kind], thorough=damage is not None, anew=anew) == BUILT:
                built.append(kind)
        except Cancelled:
            raise
        except PackhouseError as error:
            if failed is None:
                raise
            failed(kind, error)
    return built


def _runner(supplier: Supplier | None, handle: Handle) -> Any:
    async def near(work: Callable[[Handle], _T]) -> _T:
        if supplier is not None:
            return await supplier.run(handle, work)
        return await asyncio.to_thread(work, handle)

    return near


async def _main(order: BuildOrder, parent: Parent) -> None:
    backend, supplier = open_store(order.settings)
    try:
        built = await build(
            backend,
            supplier,
            order.owner,
            order.name,
            order.kinds,
            pack_set=order.pack_set,
            lately=partial(listed_lately, order.settings, backend.url),
            stream_bytes=order.settings.stream_bytes,
            check=parent.check,
            failed=lambda kind, error: parent.tell("failed", (kind, error.detail)),
        )
        for kind in built or ():
            parent.tell("built", kind)
        if built is None:
            parent.tell("past", None)
    except PackhouseError:
        # Cancelled, or the repository is not what it was: then nobody waits for this.
        pass
    except Exception:
        log.exception("sidecars of %s/%s could not be made", order.owner, order.name)
        parent.tell("failed", ("", "an internal error; the log has it"))
    finally:
        if supplier is not None:
            await supplier.close()
        await backend.close()


def main(sock: socket.socket, order: BuildOrder) -> None:
    """Entry of the process."""
    lower(order.settings.nice)
    be_thrifty()
    follow()
    run(_main(order, Parent(sock)))
