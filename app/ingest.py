"""An ingest: what a source has and the store has not becomes the next generation of a repository.

Order is everything here. The newest manifest is read first and the source's refs are listed after it: whoever has
published the manifest listed the refs earlier, so refs never move backwards. The packs come in, are indexed and proven
to hold what the refs need, and then the next generation is published, which one of several writers wins. A loser takes
its packs back and begins again from the winner's manifest, with a new list of refs: what the winner brought is not
brought twice.

Any failure takes the packs back and publishes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass

from app import intake
from app.intake import Taken
from app.progress import Meter
from app.refspecs import Refspecs
from app.source import Known, Source
from pack.advertisement import AdvertisedRef, Advertisement
from pack.errors import (
    Conflict,
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
from pack.reader import Objects
from pack.view import Ref
from storage import generations, layout
from storage.backend import Backend
from storage.connectivity import Arrived, Checked, check
from storage.manifest import DELETED, READY, Manifest
from storage.publish import Lost, all_refs, prepare, publish
from storage.repository import Handle, open_objects, settle

ATTEMPTS = 100
"""Races that may be lost in a row; each one lost is a generation that somebody else has published."""
LEFTOVER_SECONDS = 24 * 3600.0
"""Age from which an unfinished pack belongs to an ingest that was killed: a living one writes all the time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an ingest came to. `changed` is False where the source had nothing new and no generation was made.

    `refused_refs` counts refs that were left out because their names cannot be refs.
    """

    generation: int
    changed: bool
    packs: int = 0
    objects: int = 0
    bytes: int = 0
    refs: int = 0
    refused_refs: int = 0
    races: int = 0


@dataclass(frozen=True, slots=True)
class _Base:
    """The generation that an attempt starts from."""

    manifest: Manifest
    handle: Handle
    objects: Objects
    refs: list[Ref]

    def tips(self) -> Iterator[bytes]:
        """Commits that everything is known of, the default branch's first."""
        head = self.manifest.head
        if head.oid is not None and (head.peeled or head.oid) in self.objects:
            yield head.peeled or head.oid
        seen = set()
        for ref in self.refs:
            oid = ref.peeled or ref.oid
            if oid not in seen and oid in self.objects and self.objects.header(oid)[0] == COMMIT:
                seen.add(oid)
                yield oid

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
) -> Outcome:
    """Bring the repository up to `source`. It must be registered; `operation` goes into the manifest.

    RepoNotFound; UpstreamError and PackError of their kinds; IncompleteHistory; UnsupportedUpstream; Cancelled;
    DeadlineExceeded; StoreUnavailable; Conflict when the repository is registered anew meanwhile.
    """
    meter = meter or Meter()
    limits = limits or Limits()
    registration: str | None = None
    whole = False
    races = 0
    while True:
        base = await _base(backend, owner, name)
        if registration is not None and base.manifest.registration != registration:
            raise Conflict(f"{owner}/{name} was registered anew while it was ingested")
        registration = base.manifest.registration
        attempt = _Attempt(backend, owner, name, source, meter, limits, hash_object, base, operation)
        try:
            outcome = await attempt.run(whole, races)
        except IncompleteHistory:
            await attempt.abort()
            if whole or not base.manifest.packs:
                raise
            # What lies in the store is not what it seems (a source was incomplete once): fetch all of it once more.
            whole = True
            continue
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


async def _base(backend: Backend, owner: str, name: str) -> _Base:
    manifest = await generations.newest(backend, owner, name)
    if manifest is None or manifest.state == DELETED:
        raise RepoNotFound(f"there is no repository {owner}/{name}")
    manifest = await settle(backend, owner, name, manifest)
    refs = await all_refs(backend, owner, name, manifest) if manifest.state == READY else []
    handle = Handle(backend.url, owner, name, manifest)
    return _Base(manifest, handle, open_objects(handle), refs)


class _Attempt:
    """One try to follow one generation."""

    def __init__(
        self,
        backend: Backend,
        owner: str,
        name: str,
        source: Source,
        meter: Meter,
        limits: Limits,
        hash_object: HashObject | None,
        base: _Base,
        operation: str | None,
    ) -> None:
        self.backend = backend
        self.owner = owner
        self.name = name
        self.source = source
        self.meter = meter
        self.limits = limits
        self.hash_object = hash_object
        self.base = base
        self.operation = operation
        self.taken: list[Taken] = []
        self.arrived = Arrived()

    async def run(self, whole: bool, races: int) -> Outcome | None:
        """None when another writer was first. `whole` fetches as if nothing were there."""
        base = self.base
        upstream = base.manifest.upstream
        refspecs = Refspecs(upstream.refspecs if upstream else ())
        self.meter.enter("listing")
        advertisement = await self.source.list_refs(refspecs.prefixes())
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
        wants = sorted(wanted) if whole else sorted(oid for oid in wanted if oid not in base.objects)
        if wants:
            await self._fetch(wants, whole)
        self.meter.enter("checking")
        checked = await self._check(refs, target, head_oid)
        if self._is_same(checked):
            return Outcome(base.manifest.number, False, refs=len(checked.refs), refused_refs=refused, races=races)
        self.meter.enter("publishing")
        records = [taken.record for taken in self.taken]
        manifest = await prepare(
            self.backend,
            self.owner,
            self.name,
            base.manifest,
            refs=checked.refs,
            head=checked.head,
            new_packs=records,
            closed=checked.closed,
            operation=self.operation,
        )
        self.meter.tick()
        if not await self._publish(manifest):
            return None
        return Outcome(
            manifest.number,
            True,
            packs=len(records),
            objects=sum(record.objects for record in records),
            bytes=sum(record.size for record in records),
            refs=len(checked.refs),
            refused_refs=refused,
            races=races,
        )

    async def _publish(self, manifest: Manifest) -> bool:
        """Whether it was published. While that is not known the packs must stay: a manifest may name them."""
        taken, self.taken = self.taken, []
        for pause in (0.1, 0.5, 2.0, None):
            try:
                published = await publish(self.backend, self.owner, self.name, manifest)
                break
            except StoreUnavailable:
                if pause is None:
                    raise
                await asyncio.sleep(pause)
        if isinstance(published, Lost):
            self.taken = taken
            return False
        return True

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
        if not whole:
            checksums = {pack.checksum for pack in base.manifest.packs}
            known = Known(base.tips(), base.objects.__contains__, checksums)
        self.meter.enter("fetching")
        async with aclosing(self.source.packs(wants, known)) as packs:  # type: ignore[type-var]
            async for chunks in packs:
                self.meter.enter("receiving")
                taken = await intake.take(
                    self.backend,
                    self.owner,
                    self.name,
                    chunks,
                    self.meter,
                    limits=self.limits,
                    hash_object=self.hash_object,
                    on_object=self.arrived.on_object,
                    find_base=base.find,
                )
                if taken is not None:
                    self.taken.append(taken)

    async def _check(self, refs: list[AdvertisedRef], target: bytes | None, head_oid: bytes | None) -> Checked:
        manifest = self.base.manifest
        objects = open_objects(self.base.handle, [taken.record for taken in self.taken])
        return await asyncio.to_thread(
            check,
            objects,
            refs,
            arrived=self.arrived,
            head_target=target,
            head_oid=head_oid,
            base_refs=self.base.refs,
            base_closed=manifest.closed,
        )

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
