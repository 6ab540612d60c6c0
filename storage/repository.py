"""Repositories of a store, as readers see them.

`Repositories` (asynchronous, one a process) knows which generation is current. A `Handle` pins one generation; it is
small and can be pickled, so that a worker process opens the same view. `open_view` is synchronous and keeps what it
opened.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from pack.errors import CursorExpired, GenerationNotReached, NotReady, RepoNotFound, StoreUnavailable
from storage import generations, layout
from storage.backend import Backend, NotThere
from storage.manifest import DELETED, READY, Manifest
from storage.views import open_objects, open_view, settle

__all__ = ["Handle", "ReadSettings", "Repositories", "open_objects", "open_view", "settle"]


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """`freshness`: for so many seconds a manifest is believed without asking the store, where asking costs.

    `generation_wait`: so many seconds a read waits for `min_generation` before it gives up. `manifests`: so many are
    remembered.
    """

    freshness: float = 1.0
    generation_wait: float = 1.0
    manifests: int = 4096


@dataclass(frozen=True, slots=True)
class Handle:
    """One generation of one repository, pinned. `store` is the backend's URL."""

    store: str
    owner: str
    name: str
    manifest: Manifest

    @property
    def generation(self) -> int:
        return self.manifest.number

    @property
    def namespace(self) -> str:
        """Names the repository in caches: another one after a deleteRepo and a new registration."""
        return f"{self.owner}/{self.name}@{self.manifest.registration}"


class Repositories:
    def __init__(self, backend: Backend, settings: ReadSettings | None = None) -> None:
        self.backend = backend
        self.settings = settings or ReadSettings()
        self._known: OrderedDict[tuple[str, str], tuple[Manifest, float]] = OrderedDict()

    async def current(self, owner: str, name: str, min_generation: int | None = None) -> Manifest:
        """The manifest that a read starts from: ready, and not older than the freshness bound.

        RepoNotFound; NotReady (with `operation`) before the first ingest has succeeded; GenerationNotReached.
        """
        manifest = await self.newest(owner, name)
        if min_generation is not None and manifest.number < min_generation:
            manifest = await self._wait_for(owner, name, min_generation)
        if manifest.state != READY:
            operation = await self._last_operation(owner, name) or manifest.operation
            extra = {"operation": operation} if operation else {}
            raise NotReady(f"{owner}/{name} has not been ingested yet.", **extra)
        return manifest

    async def newest(self, owner: str, name: str, *, fresh: bool = False) -> Manifest:
        """As `current`, also when nothing was ingested yet: for those that write. RepoNotFound. `fresh` asks the store
        always.
        """
        layout.check_name(owner, name)
        key = (owner, name)
        known, asked = self._known.get(key, (None, 0.0))
        now = time.monotonic()
        stale = now - asked >= self.settings.freshness
        cheap = self.backend.probe_is_cheap
        if known is not None and not (fresh or stale or cheap):
            manifest: Manifest | None = known
        else:
            if known is not None and stale and cheap:
                known = await self._still(owner, name, known)
            manifest = await self._probe(owner, name, known)
        if manifest is None:
            # Nothing is remembered: another replica may register it any time.
            self._known.pop(key, None)
            raise RepoNotFound(f"There is no repository {owner}/{name}.")
        if manifest is not known or stale:
            self._remember(key, manifest, now)
        if manifest.state == DELETED:
            raise RepoNotFound(f"There is no repository {owner}/{name}.")
        return manifest

    async def handle(self, owner: str, name: str, min_generation: int | None = None) -> Handle:
        """The current generation, pinned, with all its packs known. Errors as `current`."""
        manifest = await self.current(owner, name, min_generation)
        settled = await settle(self.backend, owner, name, manifest)
        if settled is not manifest:
            self._remember((owner, name), settled, time.monotonic())
        return Handle(self.backend.url, owner, name, settled)

    async def handle_at(self, handle: Handle, number: int) -> Handle:
        """An earlier generation of the same registration, pinned. CursorExpired where it has been retired."""
        if number == handle.generation:
            return handle
        manifest = await generations.read(self.backend, handle.owner, handle.name, number)
        if manifest is None or manifest.state != READY or manifest.registration != handle.manifest.registration:
            raise CursorExpired(f"generation {number} of {handle.owner}/{handle.name} is gone")
        settled = await settle(self.backend, handle.owner, handle.name, manifest)
        return Handle(self.backend.url, handle.owner, handle.name, settled)

    async def supply(self, handle: Handle, ranges: Sequence[tuple[str, int, int]]) -> None:
        """Bring ranges (file, offset, length) that a read found missing to this node.

        A local folder lacks nothing, so that a read which asks all the same has met a damaged store: StoreUnavailable.
        """
        names = ", ".join(sorted({name for name, _, _ in ranges}))
        raise StoreUnavailable(f"The store has no more of {names} to give.", operation="read")

    async def list(self, after: tuple[str, str] | None = None) -> AsyncIterator[tuple[str, str, Manifest]]:
        """Every repository that is not deleted, in the order of the store's keys, after the one given."""
        start = f"{after[0]}/" if after else ""
        # The owner of the last one comes again, for those of its repositories that follow.
        if after and await self._is_folder(start):
            async for row in self._list_owner(after[0], f"{start}{after[1]}.git/"):
                yield row
        async for folder in self.backend.list_folders("", start):
            owner = folder[:-1]
            if layout.is_segment(owner):
                async for row in self._list_owner(owner, ""):
                    yield row

    async def _list_owner(self, owner: str, start: str) -> AsyncIterator[tuple[str, str, Manifest]]:
        async for folder in self.backend.list_folders(f"{owner}/", start):
            name = folder[len(owner) + 1 : -len(".git/")]
            if folder.endswith(".git/") and layout.is_segment(name):
                try:
                    yield owner, name, await self.newest(owner, name)
                except RepoNotFound:
                    continue

    async def _is_folder(self, folder: str) -> bool:
        async for _ in self.backend.list_folders(folder):
            return True
        return False

    async def _still(self, owner: str, name: str, known: Manifest) -> Manifest | None:
        """`known`, unless somebody has taken the folder away by hand."""
        try:
            await self.backend.size(layout.generation(owner, name, known.number))
        except NotThere:
            return None
        return known

    async def _probe(self, owner: str, name: str, known: Manifest | None) -> Manifest | None:
        if known is not None:
            if self.backend.probe_is_cheap:
                # Opening a file that is not there is quicker than handing the question to a thread.
                try:
                    await self.backend.size(layout.generation(owner, name, known.number + 1))
                except NotThere:
                    return known
            return await generations.newest(self.backend, owner, name, known)
        return await generations.newest(self.backend, owner, name)

    async def _wait_for(self, owner: str, name: str, number: int) -> Manifest:
        deadline = time.monotonic() + self.settings.generation_wait
        pause = 0.02
        while True:
            manifest = await self.newest(owner, name, fresh=True)
            if manifest.number >= number:
                return manifest
            if time.monotonic() + pause > deadline:
                raise GenerationNotReached(
                    f"{owner}/{name} is at generation {manifest.number}, not yet at {number}.",
                    generation=manifest.number,
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.25)

    async def _last_operation(self, owner: str, name: str) -> str | None:
        try:
            text = (await self.backend.get(layout.last_operation(owner, name))).decode("ascii", "replace").strip()
        except NotThere:
            return None
        return text if layout.is_operation(text) else None

    def _remember(self, key: tuple[str, str], manifest: Manifest, now: float) -> None:
        self._known[key] = (manifest, now)
        self._known.move_to_end(key)
        while len(self._known) > self.settings.manifests:
            self._known.popitem(last=False)
