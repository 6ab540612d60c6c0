"""What must be true of a repository in a store after somebody was killed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from hashlib import sha1

from app.housekeeping import collect
from app.settings import Settings
from pack.index import Index
from storage import generations, layout
from storage.backend import Backend
from storage.fsck import fsck
from storage.manifest import Manifest
from storage.publish import all_refs
from storage.views import settle

VIEW = ("HEAD", "config", "packed-refs", "refs/")
"""What a folder keeps beside a repository, for git."""


@dataclass(frozen=True)
class Kept:
    """The repository `owner`/`name` of the store at `url`. Refs are full names -> hexadecimal ids."""

    backend: Backend
    url: str
    owner: str
    name: str

    async def newest(self) -> Manifest:
        found = await generations.newest(self.backend, self.owner, self.name)
        assert found is not None
        return found

    async def settled(self, manifest: Manifest | None = None) -> Manifest:
        """A generation (the newest unless given) with all its packs."""
        return await settle(self.backend, self.owner, self.name, manifest or await self.newest())

    async def refs(self, manifest: Manifest | None = None) -> dict[str, str]:
        found = await all_refs(self.backend, self.owner, self.name, await self.settled(manifest))
        return {ref.name.decode(): ref.oid.hex() for ref in found}

    async def stands(self, refs: dict[str, str]) -> None:
        """The newest generation has these refs, and the packs that it names are there in their lengths."""
        manifest = await self.settled()
        found = await self.refs(manifest)
        assert found == refs, (manifest.number, found, refs)
        prefix = layout.repository(self.owner, self.name)
        there = {item.key: item.size async for item in self.backend.list(prefix + layout.PACKS)}
        for pack in manifest.packs:
            assert there[prefix + layout.pack(pack.name)] == pack.size
            assert prefix + layout.index(pack.name) in there

    async def holds(self, refs: dict[str, str]) -> None:
        """The newest generation has these refs, and all of it is there, down to the hash of each object."""
        report = await fsck(self.backend, self.owner, self.name)
        assert report.findings == [], report.findings
        await self.stands(refs)

    async def arrived(self, before: Manifest) -> None:
        """The packs that came after that generation are what their names' records say, to the last byte."""
        prefix = layout.repository(self.owner, self.name)
        old = {pack.name for pack in (await self.settled(before)).packs}
        for pack in (await self.settled()).packs:
            if pack.name not in old:
                data = await self.backend.get(prefix + layout.pack(pack.name))
                index = Index.parse(await self.backend.get(prefix + layout.index(pack.name)))
                assert sha1(data[:-20], usedforsecurity=False).digest() == data[-20:] == pack.checksum
                assert index.pack_checksum == pack.checksum
                assert len(index) == pack.objects

    async def collect(self) -> None:
        """gc that leaves nothing alone for its age, twice: what the first one joins is replaced for the second one."""
        for _ in range(2):
            await asyncio.sleep(1.1)  # the store's clock may know no fractions of seconds
            said: list[str] = []
            only = (self.owner, self.name)
            assert await collect(Settings(store=self.url), only, dry_run=False, seconds=0, tell=said.append), said

    async def nothing_is_left_over(self) -> None:
        """Collecting leaves exactly what the manifests name, and no unfinished upload. Nobody may be at work."""
        await self.collect()
        manifest = await self.settled()
        prefix = layout.repository(self.owner, self.name)
        kept = {item.key.removeprefix(prefix) async for item in self.backend.list(prefix)}
        named = {"packhouse/latest"} | ({"packhouse/operation"} & kept)
        named |= {manifest.refs.key} if manifest.refs else set()
        named |= {key for pack in manifest.packs for key in (layout.pack(pack.name), layout.index(pack.name))}
        named |= {
            layout.generation(self.owner, self.name, number).removeprefix(prefix)
            for number in range(1, manifest.number + 1)
        }
        named |= {manifest.packs_table.key} if manifest.packs_table else set()
        found = {key for key in kept if not key.startswith((*layout.SIDECARS, *VIEW))}
        assert found == named, found ^ named
        assert await self.backend.sweep("", -3600) == 0
