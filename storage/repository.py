"""Repositories of a store, as readers see them.

`Repositories` (asynchronous, one a process) knows which generation is current. A `Handle` pins one generation; it is
small and can be pickled, so that a worker process opens the same view. `open_view` is synchronous and keeps what it
opened; what it lacks an `Errand` brings.

Where asking the store costs a request, a manifest is believed for `freshness` seconds. A store that cannot be asked
after that can publish nothing, either: reads go on at the generation known last for up to `stale` seconds, as far as
the node's cache has what they need, and say so (`Handle.stale`).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pack.errors import (
    CursorExpired,
    GenerationNotReached,
    NotReady,
    OperationNotFound,
    RepoNotFound,
    StoreUnavailable,
)
from pack.source import Need
from storage import generations, layout
from storage.backend import Backend, NotThere
from storage.cache import Piece, Place
from storage.manifest import DELETED, READY, Manifest
from storage.operations import Operations
from storage.supply import Errand, Supplier
from storage.views import Unopened, glance, open_objects, open_view, settle

__all__ = [
    "Errand",
    "Handle",
    "ReadSettings",
    "Repositories",
    "Unopened",
    "glance",
    "open_objects",
    "open_view",
    "settle",
]

_T = TypeVar("_T")

log = logging.getLogger("packhouse.store")

_AWAY_SECONDS = 1.0
_AWAY_PATIENCE = 0.05


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """`freshness`: for so many seconds a manifest is believed without asking the store, where asking costs.

    `generation_wait`: so many seconds a read waits for `min_generation` before it gives up. `manifests`: so many are
    remembered. `stale`: for so many seconds reads go on while the store cannot be asked; `patience`: so long they wait
    for its answer before they do. `superseded`: for so many seconds after a generation has got its successor a cursor
    may go on in it (twice what a request may last; gc waits for three times that).
    """

    freshness: float = 1.0
    generation_wait: float = 1.0
    manifests: int = 4096
    stale: float = 0.0
    patience: float = 2.0
    superseded: float = 2 * 3600.0


@dataclass(frozen=True, slots=True)
class Handle:
    """One generation of one repository, pinned. `store` is the backend's URL."""

    store: str
    owner: str
    name: str
    manifest: Manifest
    cache: Place | None = None
    """Where its bytes are looked for; None for a store in a local folder."""
    pieces: tuple[Piece, ...] = ()
    """Bytes that the cache did not take."""
    stale: float = 0.0
    """Seconds since it was known to be the current generation, where the store could not be asked since."""

    @property
    def generation(self) -> int:
        return self.manifest.number

    @property
    def namespace(self) -> str:
        """Names the repository in caches: another one after a deleteRepo and a new registration."""
        return f"{self.owner}/{self.name}@{self.manifest.registration}"


@dataclass(slots=True)
class _Known:
    """A manifest, when (by the monotonic clock) it was known to be the newest, whether to ask in any case."""

    manifest: Manifest
    asked: float
    due: bool = False


class Repositories:
    """`supplier` brings what reads find missing, for stores that are no local folder."""

    def __init__(
        self, backend: Backend, settings: ReadSettings | None = None, supplier: Supplier | None = None
    ) -> None:
        self.backend = backend
        self.settings = settings or ReadSettings()
        self.supplier = supplier
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()
        self._asking: dict[tuple[str, str], tuple[float, asyncio.Task[Manifest | None]]] = {}
        self._away = False
        self._away_until = 0.0

    async def current(self, owner: str, name: str, min_generation: int | None = None) -> Manifest:
        """The manifest that a read starts from: ready, and not older than the freshness bound.

        RepoNotFound; NotReady before the first ingest has succeeded, with the last `operation`, its `operation_state`
        and the code of its `operation_error`; GenerationNotReached.
        """
        return (await self._current(owner, name, min_generation))[0]

    async def newest(self, owner: str, name: str, *, fresh: bool = False) -> Manifest:
        """As `current`, also when nothing was ingested yet: for those that write. RepoNotFound. `fresh` asks the store
        always.
        """
        return (await self._newest(owner, name, fresh))[0]

    def expire(self, owner: str, name: str) -> None:
        """Ask the store at the next read: something was published."""
        known = self._known.get((owner, name))
        if known is not None:
            known.due = True

    async def handle(self, owner: str, name: str, min_generation: int | None = None) -> Handle:
        """The current generation, pinned, with all its packs known. Errors as `current`."""
        manifest, stale = await self._current(owner, name, min_generation)
        settled = await settle(self.backend, owner, name, manifest)
        known = self._known.get((owner, name))
        if settled is not manifest and known is not None and known.manifest is manifest:
            known.manifest = settled
        return self._pin(owner, name, settled, stale)

    def _pin(self, owner: str, name: str, manifest: Manifest, stale: float = 0.0) -> Handle:
        place = self.supplier.place if self.supplier else None
        return Handle(self.backend.url, owner, name, manifest, place, stale=stale)

    async def _current(self, owner: str, name: str, min_generation: int | None) -> tuple[Manifest, float]:
        manifest, stale = await self._newest(owner, name, False)
        if min_generation is not None and manifest.number < min_generation:
            manifest, stale = await self._wait_for(owner, name, min_generation), 0.0
        if manifest.state != READY:
            raise await self._not_ready(owner, name, manifest)
        return manifest, stale

    async def _newest(self, owner: str, name: str, fresh: bool) -> tuple[Manifest, float]:
        """The newest manifest, and for how long the store could not be asked whether it is."""
        layout.check_name(owner, name)
        key = (owner, name)
        now = time.monotonic()
        known = self._known.get(key)
        stale = known is None or known.due or now - known.asked >= self.settings.freshness
        manifest: Manifest | None
        if self.backend.probe_is_cheap:
            manifest = known.manifest if known else None
            if manifest is not None and stale:
                manifest = await self._still(owner, name, manifest)
            manifest = await self._probe(owner, name, manifest)
        elif known is not None and not (fresh or stale):
            manifest = known.manifest
        else:
            bearable = known is not None and not fresh and now - known.asked < self.settings.stale
            try:
                if bearable and now < self._away_until:
                    raise StoreUnavailable("The store could not be asked a moment ago.", operation="probe")
                patience = min(self.settings.patience, _AWAY_PATIENCE) if self._away else self.settings.patience
                async with asyncio.timeout(patience if bearable else None):
                    manifest, now = await self._ask(key, known, fresh)
            except (StoreUnavailable, TimeoutError) as error:
                if known is None or not bearable or known.manifest.state == DELETED:
                    raise
                self._gone_away(error)
                return known.manifest, time.monotonic() - known.asked
        if manifest is None:
            # Nothing is remembered: another replica may register it any time.
            self._known.pop(key, None)
            raise RepoNotFound(f"There is no repository {owner}/{name}.")
        if known is None or manifest is not known.manifest or stale:
            self._remember(key, manifest, now)
        if manifest.state == DELETED:
            raise RepoNotFound(f"There is no repository {owner}/{name}.")
        return manifest, 0.0

    def _gone_away(self, error: Exception) -> None:
        now = time.monotonic()
        if now - self._away_until > 10 * _AWAY_SECONDS:
            log.warning("the store cannot be asked, reads go on at what is known: %s", error or "it does not answer")
        self._away = True
        if now >= self._away_until:
            self._away_until = now + _AWAY_SECONDS
        if self.supplier is not None:
            self.supplier.away_until = now + 2 * _AWAY_SECONDS

    async def _ask(self, key: tuple[str, str], known: _Known | None, fresh: bool) -> tuple[Manifest | None, float]:
        """What the store says, and when it was asked. One question at a time serves all who may believe it."""
        now = time.monotonic()
        begun, task = self._asking.get(key, (0.0, None))
        if task is None or fresh or now - begun >= self.settings.freshness:
            last = known.manifest if known is not None else None
            begun, task = now, asyncio.get_running_loop().create_task(self._probe(*key, last))
            self._asking[key] = (begun, task)
            task.add_done_callback(functools.partial(self._asked, key, begun))
        return await asyncio.shield(task), begun

    def _asked(self, key: tuple[str, str], begun: float, task: asyncio.Task[Manifest | None]) -> None:
        if self._asking.get(key, (0.0, None))[1] is task:
            del self._asking[key]
        if not task.cancelled() and not isinstance(task.exception(), StoreUnavailable):
            self._away, self._away_until = False, 0.0
            # Whoever asked may have lost patience.
            if task.exception() is None and (manifest := task.result()) is not None:
                self._remember(key, manifest, begun)

    async def handle_at(self, handle: Handle, number: int) -> Handle:
        """An earlier generation of the same registration, pinned. CursorExpired where it has been retired."""
        if number == handle.generation:
            return handle
        where = self.backend, handle.owner, handle.name, number
        manifest = await generations.read(*where)
        same = manifest is not None and manifest.registration == handle.manifest.registration
        if manifest is None or manifest.state != READY or not same:
            raise CursorExpired(f"generation {number} of {handle.owner}/{handle.name} is gone")
        if not await generations.is_open(*where, self.settings.superseded):
            raise CursorExpired(f"generation {number} of {handle.owner}/{handle.name} has been superseded long ago")
        settled = await settle(self.backend, handle.owner, handle.name, manifest)
        return self._pin(handle.owner, handle.name, settled, handle.stale)

    def errand(self, handle: Handle) -> Errand:
        """For one read: what it finds missing is brought by this."""
        return Errand(self.supplier, handle)

    async def read(self, handle: Handle, work: Callable[[Handle], _T]) -> _T:
        """The result of `work`, in a thread, done as often as it takes to bring what it needs."""
        if self.supplier is None:
            return await asyncio.to_thread(work, handle)
        return await self.supplier.run(handle, work)

    async def supply(self, handle: Handle, ranges: Sequence[tuple[str, int, int]]) -> Handle:
        """Bring ranges (file, offset, length) that a read found missing to this node; the handle to go on with.

        StoreUnavailable.
        """
        errand = self.errand(handle)
        await errand.bring(Need(list(ranges)))
        return errand.handle

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

    async def _not_ready(self, owner: str, name: str, manifest: Manifest) -> NotReady:
        """With the operation that would change it, and what has become of that one."""
        detail = f"{owner}/{name} has not been ingested yet."
        id_ = await self._last_operation(owner, name) or manifest.operation
        if id_ is None:
            return NotReady(detail)
        try:
            operation = await Operations(self.backend).get(id_)
        except OperationNotFound:
            return NotReady(detail, operation=id_)
        extra = {"operation": id_, "operation_state": operation.state}
        if operation.error is not None:
            code = str(operation.error.get("code") or "internal")
            extra["operation_error"] = code
            detail = f"{detail[:-1]}: its last operation is {operation.state} ({code})."
            if why := operation.error.get("detail"):
                detail += f" {why}"
        return NotReady(detail, **extra)

    async def _last_operation(self, owner: str, name: str) -> str | None:
        try:
            text = (await self.backend.get(layout.last_operation(owner, name))).decode("ascii", "replace").strip()
        except NotThere:
            return None
        return text if layout.is_operation(text) else None

    def _remember(self, key: tuple[str, str], manifest: Manifest, now: float) -> None:
        last = self._known.get(key)
        if last is not None and last.manifest.number > manifest.number and last.asked > now:
            return  # a question that was asked later has been answered before
        if last is not None and last.manifest.number == manifest.number:
            manifest = last.manifest if last.manifest.nonce == manifest.nonce else manifest
        self._known[key] = _Known(manifest, now)
        self._known.move_to_end(key)
        while len(self._known) > self.settings.manifests:
            self._known.popitem(last=False)
