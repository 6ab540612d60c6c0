"""Processes that die: replicas in the middle of an ingest into a bucket, and the storage server's own daemons."""

from __future__ import annotations

import asyncio
import random
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from hashlib import sha1
from pathlib import Path

import pytest

from app.housekeeping import collect
from app.ingestion import Order
from app.ingestion import run as run_order
from app.progress import Meter
from app.registry import Registry
from app.settings import Settings
from pack.index import Index
from storage import generations, layout
from storage.backend import Backend
from storage.fsck import fsck
from storage.manifest import Manifest
from storage.open import opened
from storage.publish import all_refs
from storage.repository import Repositories
from storage.views import settle
from tests.app.ingesting import NAME, OWNER
from tests.faults.test_kill_ingest import begun, grow, start
from tests.services import running, stores
from tests.services.base import Server
from tests.services.seaweed import Seaweed
from tests.support.git import Plumbing, git, init
from tests.support.upstream import Upstream

VIEW = ("HEAD", "config", "packed-refs", "refs/")
"""What a folder keeps beside a repository, for git."""
LARGE = 18_000_000
"""Bytes of a commit whose pack is sent in three parts, the first of them while it still arrives."""


def refs_of(path: Path) -> list[str]:
    return git(path, "for-each-ref", "--format=%(refname) %(objectname)").decode().splitlines()


async def newest(backend: Backend) -> Manifest:
    found = await generations.newest(backend, OWNER, NAME)
    assert found is not None
    return found


async def holds(backend: Backend, refs: list[str]) -> None:
    """The newest generation has these refs, and all of it is there."""
    report = await fsck(backend, OWNER, NAME)
    assert report.findings == []
    await stands(backend, refs)


async def stands(backend: Backend, refs: list[str]) -> None:
    """The newest generation has these refs, and the packs that it names are there in their lengths."""
    manifest = await settle(backend, OWNER, NAME, await newest(backend))
    found = await all_refs(backend, OWNER, NAME, manifest)
    assert [f"{ref.name.decode()} {ref.oid.hex()}" for ref in found] == refs
    prefix = layout.repository(OWNER, NAME)
    there = {item.key: item.size async for item in backend.list(prefix + layout.PACKS)}
    for pack in manifest.packs:
        assert there[prefix + layout.pack(pack.name)] == pack.size
        assert prefix + layout.index(pack.name) in there


async def nothing_is_left_over(backend: Backend, url: str) -> None:
    """Collecting leaves exactly what the manifests name, and no unfinished upload."""
    for _ in range(2):  # what the first one joins is replaced for the second one
        await asyncio.sleep(1.1)  # the store's clock may know no fractions of seconds
        said: list[str] = []
        assert await collect(Settings(store=url), (OWNER, NAME), dry_run=False, seconds=0, tell=said.append), said
    manifest = await settle(backend, OWNER, NAME, await newest(backend))
    prefix = layout.repository(OWNER, NAME)
    kept = {item.key.removeprefix(prefix) async for item in backend.list(prefix)}
    named = {"packhouse/latest"} | ({manifest.refs.key} if manifest.refs else set())
    named |= {key for pack in manifest.packs for key in (layout.pack(pack.name), layout.index(pack.name))}
    named |= {layout.generation(OWNER, NAME, number).removeprefix(prefix) for number in range(1, manifest.number + 1)}
    named |= {manifest.packs_table.key} if manifest.packs_table else set()
    assert {key for key in kept if not key.startswith(layout.SIDECARS) and not key.startswith(VIEW)} == named
    assert await backend.sweep("", -3600) == 0


async def register(backend: Backend, url: str, upstream: str) -> None:
    settings = Settings(store=url, allow_upstreams=("127.0.0.1",))
    await Registry(backend, Repositories(backend), settings).register(OWNER, NAME, upstream)


async def kills(store: str, count: int, tmp_path: Path, upstream: Callable[..., Upstream]) -> None:
    p = Plumbing(init(tmp_path / "up" / "project.git"))
    url = stores.url(store, f"kills-{secrets.token_hex(6)}")
    async with opened(url, tmp_path / "spool") as backend:
        await register(backend, url, upstream(p.path.parent).repo("project"))
        grow(p, 0, LARGE)
        # How long an ingest takes undisturbed, so that the moments spread over all of it.
        at = time.monotonic()
        finish(url)
        took = time.monotonic() - at
        seen = {"old": 0, "new": 0}
        stored = refs_of(p.path)
        for number in range(1, count + 1):
            before = await newest(backend)
            grow(p, number, LARGE if number % 4 else 100_000)
            process = start(url)
            begun(process)
            time.sleep(random.uniform(0, took))
            process.kill()
            process.communicate()
            stores.forget(store, process.pid)
            after = await newest(backend)
            assert after.number in (before.number, before.number + 1)
            if after.number == before.number:
                seen["old"] += 1
                assert after == before
                await stands(backend, stored)
                finish(url)  # or the next ingest would have more to do than this one, and be killed early
            else:
                seen["new"] += 1
                await stands(backend, refs_of(p.path))
            stored = refs_of(p.path)
            await arrived(backend, before)
            if number % 10 == 0:
                await holds(backend, stored)
        await holds(backend, refs_of(p.path))
        await nothing_is_left_over(backend, url)
        await holds(backend, refs_of(p.path))
        assert count < 30 or (seen["old"] and seen["new"]), seen


def finish(url: str) -> None:
    """An ingest that nobody disturbs."""
    process = start(url)
    process.communicate(timeout=120)
    assert process.returncode == 0


async def arrived(backend: Backend, before: Manifest) -> None:
    """The packs that came after that generation are what their names' records say, to the last byte."""
    prefix = layout.repository(OWNER, NAME)
    old = {pack.name for pack in (await settle(backend, OWNER, NAME, before)).packs}
    for pack in (await settle(backend, OWNER, NAME, await newest(backend))).packs:
        if pack.name not in old:
            data = await backend.get(prefix + layout.pack(pack.name))
            index = Index.parse(await backend.get(prefix + layout.index(pack.name)))
            assert sha1(data[:-20], usedforsecurity=False).digest() == data[-20:] == pack.checksum
            assert index.pack_checksum == pack.checksum
            assert len(index) == pack.objects


@pytest.mark.parametrize("store", ["ceph-rgw", "cephfs", "cephfs-mount", "seaweed"])
async def test_a_few_kills(store: str, tmp_path: Path, upstream: Callable[..., Upstream]) -> None:
    await kills(store, 3, tmp_path, upstream)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("store", sorted(stores.STORES))
async def test_fifty_kills(store: str, tmp_path: Path, upstream: Callable[..., Upstream]) -> None:
    await kills(store, 50, tmp_path, upstream)


@pytest.fixture
def own(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that may be killed."""
    running.get(request.param.name)
    server: Server = request.param()
    try:
        server.start()
        yield server
    finally:
        server.close()


def weed_dies(server: Server) -> None:
    server.kill()
    server.start()


@pytest.mark.parametrize("own", [Seaweed], indirect=True)
async def test_a_daemon_that_is_killed_during_an_ingest(
    own: Server, tmp_path: Path, upstream: Callable[..., Upstream]
) -> None:
    await deaths(own.url("deaths"), lambda: weed_dies(own), 2, tmp_path, upstream)


async def deaths(
    url: str, death: Callable[[], None], count: int, tmp_path: Path, upstream: Callable[..., Upstream]
) -> None:
    """The ingest waits for it, or fails with an error of the store; what was acknowledged is there."""
    p = Plumbing(init(tmp_path / "up" / "project.git"))
    async with opened(url, tmp_path / "spool") as backend:
        await register(backend, url, upstream(p.path.parent).repo("project"))
        for number in range(count):
            grow(p, number, LARGE)
            before = (await newest(backend)).number
            process = start(url)
            begun(process)
            time.sleep(random.uniform(0, 0.5))
            death()
            out, _ = process.communicate(timeout=240)
            after = await newest(backend)
            if process.returncode == 0:
                assert after.number == int(out.split()[0]) == before + 1
                await holds(backend, refs_of(p.path))
            else:
                assert after.number in (before, before + 1)
                order = Order(Settings(store=url, allow_upstreams=("127.0.0.1",)), OWNER, NAME)
                await run_order(backend, order, Meter())
                await holds(backend, refs_of(p.path))
        await nothing_is_left_over(backend, url)
        await holds(backend, refs_of(p.path))


def test_no_server_is_left(tmp_path: Path) -> None:
    """Servers end with the process that started them, however it ends."""
    running.get("rclone")
    code = (
        "from tests.services.rclone import Rclone\n"
        "import os, pathlib, sys\n"
        "s = Rclone(pathlib.Path(sys.argv[1])); s.start(); print(s.processes['rclone'].pid, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=root, capture_output=True, check=False)
    pid = int(done.stdout)
    for _ in range(50):
        if not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes():
            break
        time.sleep(0.1)
    else:
        raise AssertionError("it still runs")
