"""Making the text of a default branch ready on this node: the first search after an ingest need not unpack it then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from app.reads.texts import texts_of, was_searched
from app.settings import Settings
from pack.errors import NotFound, WrongType
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
    """Unpack what the default branch holds, where the repository is small or was searched before on this node.

    `check` raises to end the work. NotReady, RepoNotFound; what cannot be read is left to those who search.
    """
    shelf.configure(Place(str(settings.cache_dir)), backend.url, int(settings.cache_bytes))
    try:
        repositories = Repositories(backend, supplier=supplier)
        handle = await repositories.handle(owner, name)
        small = sum(record.size for record in handle.manifest.packs) <= SMALL_BYTES
        if small or was_searched(handle.namespace):
            await repositories.read(handle, partial(_unpack, check=check))
    finally:
        await asyncio.to_thread(shelf.settle)
        shelf.configure(None)


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
