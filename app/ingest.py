"""An ingest: what a source has and the store has not becomes the next generation of a repository.

Order is everything here. The newest manifest is read first and the source's refs are listed after it: whoever has
published the manifest listed the refs earlier, so refs never move backwards. The packs come in, are indexed and proven
to hold what the refs need, and then the next generation is published, which one of several writers wins. A loser takes
its packs back and begins again from the winner's manifest, with a new list of refs: what the winner brought is not
brought twice. Only where the winner has brought nothing (compaction, gc) the work is kept.

Any failure takes the packs back and publishes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TypeVar

from app import intake
from app.intake import Taken
from app.progress import Meter
from app.refspecs import Refspecs
from app.source import Known, Source
from pack.advertisement import AdvertisedRef, Advertisement
from pack.errors import (
    Conflict,
    CorruptData,
    IncompleteHistory,
    ObjectNotFound,
    PackhouseError,
    RepoNotFound,
    StoreUnavailable,
    UnsupportedUpstream,
)
from pack.late import HashObject
from pack.limits import Limits
from pack.objects import COMMIT
from pack.reader import Need, Objects
from pack.view import Ref
from storage import generations, gitview, layout
from storage.arrived import Arrived
from storage.backend import Backend, NotThere
from storage.connectivity import Checked, check
from storage.keeper import Keeper
from storage.manifest import DELETED, READY, TOMBSTONE, Manifest
from storage.publish import Won, all_refs, insist, prepare
from storage.repository import Handle, Unopened, glance, open_objects, settle
from storage.supply import Supplier, supplying
from storage.upkeep import rebased

_T = TypeVar("_T")

ATTEMPTS = 100
"""Races that may be lost in a row; each one lost is a generation that somebody else has published."""
LEFTOVER_SECONDS = 24 * 3600.0
"""Age from which an unfinished pack belongs to an ingest that was killed: a living one writes all the time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an ingest came to. `changed` is False where the source had nothing new and no generation was made.

    `refused_refs` counts refs that were left out because no repository can hold them.
    """

    generation: int
    changed: bool
    packs: int = 0
    objects: int = 0
    bytes: int = 0
    refs: int = 0
    refused_refs: int = 0
    races: int = 0


@dataclass(slots=True)
class _Base:
    """The generation that an attempt starts from. Before `open` its objects may be Unopened."""

    manifest: Manifest
    handle: Handle
    objects: Objects
    refs: list[Ref]

    async def open(self, work: _Work) -> None:
        self.objects = await work.read(self.handle, open_objects)

    def tips(self) -> Iterator[bytes]:
        """Commits that everything is known of, the default branch's first."""
        head = self.manifest.head
        if head.oid is not None and (head.peeled or head.oid) in self.objects:
            yield head.peeled or head.oid
        seen = set()
        for ref in self.refs:
            oid = ref.peeled or ref.oid
            if oid not in seen and oid in self.objects and self._is_commit(ref, oid):
                seen.add(oid)
                yield oid

    def _is_commit(self, ref: Ref, oid: bytes) -> bool:
        if ref.peeled is None:
            return ref.type == COMMIT
        try:
            return self.objects.header(oid)[0] == COMMIT
        except Need:
            return False  # it is not worth a request: what tags name is mostly behind a branch

    def find(self, oid: bytes) -> tuple[int, bytes] | None:
        """A base for a thin pack."""
        try:
            return self.objects.read(oid)
        except ObjectNotFound:
            return None


async def ingest(
    backend: Backend,
    owner: str,
    name: str,
    source: Source,
    *,
    meter: Meter | None = None,
    limits: Limits | None = None,
    hash_object: HashObject | None = None,
    operation: str | None = None,
    supplier: Supplier | None = None,
) -> Outcome:
    """Bring the repository up to `source`. It must be registered; `operation` goes into the manifest.

    `supplier` holds the node's cache: what is read of a store that is no local folder comes from there, and the new
    packs are left in it.

    RepoNotFound; UpstreamError and PackError of their kinds; IncompleteHistory; UnsupportedUpstream; Cancelled;
    DeadlineExceeded; StoreUnavailable; Conflict when the repository is registered anew meanwhile.
    """
    meter = meter or Meter()
    limits = limits or Limits()
    async with supplying(backend, supplier) as near:
        work = _Work(backend, near, owner, name, source, meter, limits, hash_object, operation)
        return await _ingest(work)


async def _ingest(work: _Work) -> Outcome:
    backend, owner, name = work.backend, work.owner, work.name
    registration: str | None = None
    whole = brought = False
    races = 0
    while True:
        base = await _base(work)
        if registration is not None and base.manifest.registration != registration:
            raise Conflict(f"{owner}/{name} was registered anew while it was ingested")
        registration = base.manifest.registration
        attempt = _Attempt(work, base)
        try:
            outcome = await attempt.run(whole, races)
        except IncompleteHistory:
            await attempt.abort()
            if whole or not base.manifest.packs:
                raise
            # What lies in the store is not what it seems (a source was incomplete once): fetch all of it once more.
            whole = True
            continue
        except Need as need:
            # A thin pack, though none was asked for: its bases must be at hand before it comes once more.
            await attempt.abort()
            if brought or work.near is None:
                raise StoreUnavailable("The bases of a thin pack cannot be read.", operation="read") from need
            await work.near.complete(base.handle)
            brought = True
            continue
        except (CorruptData, StoreUnavailable):
            await attempt.abort()
            if not await _retired(work, base.manifest):
                raise
            outcome = None  # gc has taken what this attempt was reading: it has lost long ago
        except BaseException:
            await attempt.abort()
            raise
        if outcome is not None:
            if outcome.changed:
                with contextlib.suppress(PackhouseError):
                    await backend.sweep(layout.repository(owner, name) + "objects/pack/", LEFTOVER_SECONDS)
            return outcome
        await attempt.abort()
        races += 1
        if races >= ATTEMPTS:
            raise Conflict(f"{owner}/{name} is published by others all the time; try again later")
        await asyncio.sleep(random.uniform(0, min(0.5, 0.01 * races)))


@dataclass(frozen=True, slots=True)
class _Work:
    """What an ingest is about. `near` brings what is read of a store that is no local folder."""

    backend: Backend
    near: Supplier | None
    owner: str
    name: str
    source: Source
    meter: Meter
    limits: Limits
    hash_object: HashObject | None
    operation: str | None

    def handle(self, manifest: Manifest) -> Handle:
        place = self.near.place if self.near is not None else None
        return Handle(self.backend.url, self.owner, self.name, manifest, place)

    async def read(self, handle: Handle, read: Callable[[Handle], _T]) -> _T:
        """What `read` finds, in a thread, as often as something has to be brought for it."""
        if self.near is None:
            return await asyncio.to_thread(read, handle)
        return await self.near.run(handle, read)


async def _base(work: _Work) -> _Base:
    backend, owner, name = work.backend, work.owner, work.name
    while True:
        manifest = await generations.newest(backend, owner, name)
        if manifest is None or manifest.state == DELETED:
            raise RepoNotFound(f"there is no repository {owner}/{name}")
        try:
            manifest = await settle(backend, owner, name, manifest)
            refs = await all_refs(backend, owner, name, manifest) if manifest.state == READY else []
            break
        except NotThere:
            if not await _retired(work, manifest):
                raise
    handle = work.handle(manifest)
    return _Base(manifest, handle, glance(handle).objects, refs)


async def _retired(work: _Work, manifest: Manifest) -> bool:
    """Whether gc has retired a generation that was the newest when it was read."""
    there = await generations.read(work.backend, work.owner, work.name, manifest.number)
    return there is not None and there.state == TOMBSTONE


class _Attempt:
    """One try to follow one generation."""

    def __init__(self, work: _Work, base: _Base) -> None:
        self.work = work
        self.base = base
        self.meter = work.meter
        self.taken: list[Taken] = []
        self.arrived = Arrived()

    async def run(self, whole: bool, races: int) -> Outcome | None:
        """None when another writer was first. `whole` fetches as if nothing were there."""
        base = self.base
        upstream = base.manifest.upstream
        refspecs = Refspecs(upstream.refspecs if upstream else ())
        self.meter.enter("listing")
        advertisement = await self.work.source.list_refs(refspecs.prefixes())
        if advertisement.object_format != "sha1":
            raise UnsupportedUpstream(
                f"the upstream uses {advertisement.object_format}; only SHA-1 repositories are taken"
            )
        if advertisement.shallow:
            raise UnsupportedUpstream("the upstream is a shallow repository: part of its history is missing")
        refs, refused = refspecs.select(advertisement.refs)
        refused += sum(1 for ignored in advertisement.ignored if refspecs.match(ignored))
        target, head_oid = _head(base.manifest, advertisement)
        wanted = {ref.oid for ref in refs} | ({head_oid} if head_oid is not None else set())
        # What a ref of the base names is there: where nothing is new, nothing has to be opened.
        wants = sorted(wanted if whole else wanted.difference(ref.oid for ref in base.refs))
        if wants:
            await base.open(self.work)
        if not whole:
            wants = [oid for oid in wants if oid not in base.objects]
        if wants:
            await self._fetch(wants, whole)
        self.meter.enter("checking")
        checked = await self._check(refs, target, head_oid)
        if self._is_same(checked):
            # Whoever published it may have been killed before git could see it.
            await gitview.refresh(self.work.backend, self.work.owner, self.work.name)
            return Outcome(base.manifest.number, False, refs=len(checked.refs), refused_refs=refused, races=races)
        self.meter.enter("publishing")
        records = [taken.record for taken in self.taken]
        manifest = await prepare(
            self.work.backend,
            self.work.owner,
            self.work.name,
            base.manifest,
            refs=checked.refs,
            head=checked.head,
            new_packs=records,
            closed=checked.closed,
            operation=self.work.operation,
        )
        self.meter.tick()
        published = await self._publish(manifest)
        if published is None:
            return None
        return Outcome(
            published.number,
            True,
            packs=len(records),
            objects=sum(record.objects for record in records),
            bytes=sum(record.size for record in records),
            refs=len(checked.refs),
            refused_refs=refused,
            races=races,
        )

    async def _publish(self, manifest: Manifest) -> Manifest | None:
        """What was published; None when another writer was first. Who lost to mere upkeep goes on from there.

        While the end is not known the packs must stay: a manifest may name them.
        """
        where = self.work.backend, self.work.owner, self.work.name
        taken, self.taken = self.taken, []
        base = self.base.manifest
        while True:
            published = await insist(*where, manifest)
            if isinstance(published, Won):
                return published.manifest
            moved = await rebased(*where, base, manifest, published.winner)
            if moved is None:
                self.taken = taken
                return None
            base, manifest = published.winner, moved

    async def abort(self) -> None:
        """Take back what is not published."""
        taken, self.taken = self.taken, []
        for each in taken:
            try:
                await each.sink.abort()
            except PackhouseError:
                # It stays as an orphan, which gc finds; the reason that led here counts more.
                continue

    async def _fetch(self, wants: list[bytes], whole: bool) -> None:
        base = self.base
        known = Known()
        if not base.manifest.packs:
            self.arrived = Arrived(wants)
        if not whole:
            checksums = {pack.checksum for pack in base.manifest.packs}
            known = Known(base.tips(), base.objects.__contains__, checksums)
        self.meter.enter("fetching")
        async with aclosing(self.work.source.packs(wants, known)) as packs:  # type: ignore[type-var]
            async for chunks in packs:
                self.meter.enter("receiving")
                with self._keeper() as keeper:
                    taken = await intake.take(
                        self.work.backend,
                        self.work.owner,
                        self.work.name,
                        chunks,
                        self.meter,
                        limits=self.work.limits,
                        hash_object=self.work.hash_object,
                        arrived=self.arrived,
                        find_base=base.find,
                        keeper=keeper,
                    )
                if taken is not None:
                    self.taken.append(taken)

    def _keeper(self) -> contextlib.AbstractContextManager[Keeper | None]:
        """What leaves a pack in the node's cache, where there is one."""
        near = self.work.near
        return contextlib.nullcontext() if near is None else contextlib.closing(Keeper(near, self.base.handle))

    async def _check(self, refs: list[AdvertisedRef], target: bytes | None, head_oid: bytes | None) -> Checked:
        manifest = self.base.manifest

        def checked(objects: Objects) -> Checked:
            return check(
                objects,
                refs,
                arrived=self.arrived,
                head_target=target,
                head_oid=head_oid,
                base_refs=self.base.refs,
                base_closed=manifest.closed,
            )

        if not self.taken:
            with contextlib.suppress(Unopened):
                return await asyncio.to_thread(checked, self.base.objects)
        packs = (*manifest.packs, *(taken.record for taken in self.taken))
        handle = self.work.handle(replace(manifest, packs=packs))
        return await self.work.read(handle, lambda handle: checked(open_objects(handle)))

    def _is_same(self, checked: Checked) -> bool:
        manifest = self.base.manifest
        return (
            manifest.state == READY
            and not self.taken
            and checked.refs == self.base.refs
            and checked.head == manifest.head
        )


def _head(manifest: Manifest, advertisement: Advertisement) -> tuple[bytes | None, bytes | None]:
    """What HEAD is to be: the branch that it names, or the object of a detached one.

    A branch that is not followed is not fetched for HEAD's sake: HEAD is then as if that branch did not exist.
    """
    if manifest.default_branch is not None:
        return manifest.default_branch, None
    if advertisement.head_target is not None:
        return advertisement.head_target, None
    head = advertisement.head
    return None, head.oid if head is not None else None
