"""As `test_stalled_writer`, on S3 servers: a writer that is stopped in the middle of an ingest into a bucket."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.ingest import Outcome
from app.ingestion import Order, run
from app.progress import Meter
from app.registry import Registry
from app.settings import Settings
from storage import gc, generations, layout, publish
from storage.backend import Backend
from storage.compaction import compact
from storage.export import export
from storage.fsck import fsck
from storage.gc import Clock, Grace
from storage.manifest import Manifest
from storage.open import opened
from storage.repository import Repositories
from storage.views import settle
from tests.app.ingesting import NAME, OWNER, is_sound, refs_of
from tests.faults.stalling import ONLY, POINTS
from tests.faults.test_stalled_writer import go_on, grow, stalled
from tests.services import stores
from tests.support.git import Plumbing, git, init

OFTEN = ("publish", "send", "answer")
HERE = [point for point in sorted(POINTS) if ONLY.get(point, "s3") == "s3"]
RARELY = [point if point in OFTEN else pytest.param(point, marks=pytest.mark.slow) for point in HERE]


@dataclass
class House:
    """A store in a bucket, and what is done there."""

    url: str
    backend: Backend

    async def register(self, upstream: str) -> None:
        registry = Registry(self.backend, Repositories(self.backend), Settings(store=self.url))
        await registry.register_local(OWNER, NAME, upstream)

    async def ingest(self) -> Outcome:
        return await run(self.backend, Order(Settings(store=self.url), OWNER, NAME), Meter())

    async def manifest(self) -> Manifest:
        found = await generations.newest(self.backend, OWNER, NAME)
        assert found is not None
        return found

    async def keys(self, below: str) -> set[str]:
        prefix = layout.repository(OWNER, NAME)
        return {item.key.removeprefix(prefix) async for item in self.backend.list(prefix + below)}

    async def collect(self) -> gc.Collected:
        await asyncio.sleep(1.1)  # the store's clock may know no fractions of seconds
        clock = await Clock.read(self.backend)
        report = await gc.collect(self.backend, OWNER, NAME, clock, Grace(0.0, 0.0, 0.0))
        assert report.problem is None
        await self.backend.sweep("", -1.0)
        return report

    async def only_what_is_named(self) -> None:
        """After gc: the newest generation, what it names, and nothing else."""
        await self.collect()
        manifest = await settle(self.backend, OWNER, NAME, await self.manifest())
        named = {key for pack in manifest.packs for key in (layout.pack(pack.name), layout.index(pack.name))}
        assert await self.keys(layout.PACKS) == named
        assert await self.keys("packhouse/refs-") == ({manifest.refs.key} if manifest.refs else set())
        assert await self.backend.sweep("", -3600.0) == 0
        for number in range(1, manifest.number):
            there = await generations.read(self.backend, OWNER, NAME, number)
            assert there is not None
            assert there.state == "tombstone"

    async def whole(self, folder: Path, upstream: Path) -> None:
        """What git gets of it is the upstream."""
        assert (await fsck(self.backend, OWNER, NAME)).findings == []
        await export(self.backend, OWNER, NAME, folder)
        is_sound(folder)
        assert refs_of(folder) == refs_of(upstream)


@pytest.fixture(params=["seaweed", "ceph-rgw"])
async def home(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    url = stores.url(request.param, f"stalled-{secrets.token_hex(6)}")
    async with opened(url, tmp_path / "spool") as backend:
        yield House(url, backend)


@pytest.fixture
def project(tmp_path: Path) -> Plumbing:
    p = Plumbing(init(tmp_path / "up" / "project.git"))
    grow(p, 0)
    return p


@pytest.mark.parametrize("point", RARELY)
async def test_it_loses_after_fifty_generations_and_a_collection(
    home: House, project: Plumbing, tmp_path: Path, point: str
) -> None:
    await home.register(project.path.as_uri())
    await home.ingest()
    grow(project, 1)
    with stalled(home.url, OWNER, NAME, point, tmp_path / "stalled") as writer:
        before = (await home.manifest()).number
        acknowledged = []
        for number in range(2, 52):
            grow(project, number)
            assert (await home.ingest()).changed
            acknowledged.append(git(project.path, "rev-parse", "refs/heads/main").decode().strip())
        assert await compact(home.backend, OWNER, NAME, whole=True)
        assert (await home.collect()).retired > 50
        last = await home.manifest()
        assert last.number >= before + 51
        generation, changed, races = go_on(writer).split()
    # Nothing was new any more; only the one that had won already, without knowing, says that it has.
    if point == "answer":
        assert (int(generation), changed, races) == (before, "True", "0")
    else:
        assert (int(generation), changed) == (last.number, "False")
        assert int(races) <= 1
    assert await home.manifest() == last
    await home.whole(tmp_path / "one.git", project.path)
    for oid in acknowledged:
        git(tmp_path / "one.git", "cat-file", "-e", f"{oid}^{{tree}}")
    await home.only_what_is_named()
    await home.whole(tmp_path / "two.git", project.path)


@pytest.mark.parametrize("point", RARELY)
async def test_it_loses_across_a_new_registration(home: House, project: Plumbing, tmp_path: Path, point: str) -> None:
    await home.register(project.path.as_uri())
    await home.ingest()
    grow(project, 1)
    other = Plumbing(init(tmp_path / "up" / "other.git"))
    for number in range(100, 103):
        grow(other, number)
    with stalled(home.url, OWNER, NAME, point, tmp_path / "stalled") as writer:
        await publish.delete(home.backend, OWNER, NAME)
        await home.collect()
        assert await home.keys(layout.PACKS) == set()
        await home.register(other.path.as_uri())
        await home.ingest()
        await home.collect()
        last = await home.manifest()
        said = go_on(writer)
    if point == "base":
        # It had not begun yet: it goes on in the new repository, whose upstream it does not know.
        assert said.split()[-1].isdigit() or said == "conflict"
    elif point == "answer":
        assert said.split()[1] == "True"
    else:
        assert said == "conflict"
    assert (await home.manifest()).registration == last.registration
    await home.only_what_is_named()
    await home.ingest()
    await home.whole(tmp_path / "one.git", other.path)
    await home.only_what_is_named()
