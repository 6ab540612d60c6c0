"""Making a default branch ready on this node: the first listing and the first search after an ingest find it flat."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from app.reads.flat import make_flat
from app.reads.texts import texts_of, was_searched
from app.settings import Settings
from pack.errors import CorruptData, NotFound, WrongType
from storage import shelf
from storage.backend import Backend
from storage.cache import Place
from storage.repository import Handle, Repositories, open_view
from storage.supply import Supplier

SMALL_BYTES: Final = 64 << 20
"""Packs of so many bytes are unpacked for a search that nobody has asked for yet."""


async def warm(
    backend: Backend,
    supplier: Supplier | None,
    settings: Settings,
    owner: str,
    name: str,
    check: Callable[[], None] = lambda: None,
) -> None:
    """List what the default branch holds, and unpack it where the repository is small or was searched before here.

    `check` raises to end the work. NotReady, RepoNotFound; what cannot be read is left to those who search.
    """
    shelf.configure(Place(str(settings.cache_dir)), backend.url, int(settings.cache_bytes))
    try:
        repositories = Repositories(backend, supplier=supplier)
        handle = await repositories.handle(owner, name)
        await repositories.read(handle, partial(_list, check=check))
        small = sum(record.size for record in handle.manifest.packs) <= SMALL_BYTES
        if small or was_searched(handle.namespace):
            await repositories.read(handle, partial(_unpack, check=check))
    finally:
        await asyncio.to_thread(shelf.settle)
        shelf.configure(None)


def _list(handle: Handle, check: Callable[[], None]) -> None:
    view = open_view(handle)
    head = view.refs.head
    if head is not None:
        with suppress(NotFound, WrongType, CorruptData):
            make_flat(view, view.tree_of(head.oid), check)


def _unpack(handle: Handle, check: Callable[[], None]) -> None:
    view = open_view(handle)
    head = view.refs.head
    if head is None:
        return
    with suppress(NotFound, WrongType):
        texts = texts_of(view, view.tree_of(head.oid), b"")
        if not texts.at_hand(view):
            for _ in texts.segments(view):
                check()
