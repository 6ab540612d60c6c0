"""Keeping house: by the command, and after syncs."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from app import housekeeping
from app.housekeeping import grace, join
from app.settings import Settings
from pack.errors import Cancelled, CorruptObject
from storage import publish
from storage.compaction import compact
from tests.app.ingesting import NAME, OWNER, House, house, is_sound, refs_of
from tests.app.test_cli import packhouse
from tests.support.git import Plumbing, git, init
from tests.support.service import Repo, Running
from tests.support.upstream import Upstream


@pytest.fixture
def home(tmp_path: Path) -> House:
    return house(tmp_path / "store")


@pytest.fixture
def project(tmp_path: Path) -> Plumbing:
    p = Plumbing(init(tmp_path / "up" / "project.git"))
    for number in range(3):
        grow(p, number)
    return p


def grow(p: Plumbing, number: int) -> None:
    old = git(p.path, "rev-parse", "-q", "--verify", "refs/heads/main", ok=(0, 1)).decode().split()
    p.at(1_700_000_000 + number * 60)
    p.ref("refs/heads/main", p.commit(f"number {number}", p.file(b"f", b"line %d\n" % number * 50), *old))


async def syncs(home: House, project: Plumbing, count: int) -> None:
    for number in range(100, 100 + count):
        grow(project, number)
        assert (await home.ingest()).changed


def packs(home: House) -> int:
    return len(list((home.git_dir / "objects" / "pack").glob("*.pack")))


# The command


async def test_the_command_joins_and_collects(project: Plumbing, home: House, tmp_path: Path) -> None:
    store = ("--store", str(home.root))
    assert "0 repositories" in packhouse("gc", *store, cwd=tmp_path).stdout
    await home.register(project.path.as_uri())
    await home.ingest()
    await syncs(home, project, 4)
    assert packs(home) == 5
    said = packhouse("gc", "--dry-run", "--grace", "0", *store, cwd=tmp_path).stdout
    assert "5 generations would be retired, 0 packs" in said
    assert (await home.manifest()).number == 6
    said = packhouse("gc", *store, cwd=tmp_path).stdout
    assert "5 packs joined" in said
    assert "0 generations retired" in said
    assert packs(home) == 6
    is_sound(home.git_dir)
    said = packhouse("gc", f"{OWNER}/{NAME}", "--grace", "0", *store, cwd=tmp_path).stdout
    assert "6 generations retired, 5 packs in 10 files" in said
    assert packs(home) == 1
    is_sound(home.git_dir)
    assert refs_of(home.git_dir) == refs_of(project.path)
    assert "nothing to collect" in packhouse("gc", f"{OWNER}/{NAME}", *store, cwd=tmp_path).stdout
    packhouse("fsck", *store, cwd=tmp_path)
    packhouse("export", f"{OWNER}/{NAME}", "out.git", *store, cwd=tmp_path)
    is_sound(tmp_path / "out.git")
    git(tmp_path, "clone", "-q", "--no-local", str(home.git_dir), "clone")


async def test_the_command_says_what_is_damaged(project: Plumbing, home: House, tmp_path: Path) -> None:
    store = ("--store", str(home.root))
    await home.register(project.path.as_uri())
    await home.ingest()
    await syncs(home, project, 2)
    path = home.git_dir / "packhouse" / "generations" / f"{3:020}"
    path.chmod(0o600)
    path.write_bytes(b"{")
    said = packhouse("gc", "--grace", "0", *store, cwd=tmp_path, code=1).stdout
    assert "left as it is" in said
    assert packs(home) == 4  # joined, and nothing deleted
    said = packhouse("gc", "nobody/nothing", *store, cwd=tmp_path, code=1).stdout
    assert "there is no repository nobody/nothing" in said
    assert packhouse("gc", "nothing", *store, cwd=tmp_path, code=1).stderr.startswith("packhouse: ")
    assert "would be" not in said


async def test_a_manifest_of_a_newer_version_stops_its_repository_alone(
    project: Plumbing, home: House, tmp_path: Path
) -> None:
    store = ("--store", str(home.root))
    await home.register(project.path.as_uri())
    await home.ingest()
    for name in ("a-before", "z-after"):
        packhouse("ingest", str(project.path), f"{OWNER}/{name}", *store, cwd=tmp_path)
    path = home.git_dir / "packhouse" / "generations" / f"{3:020}"
    path.write_bytes((path.parent / f"{2:020}").read_bytes().replace(b'"version":1', b'"version":2'))
    said = packhouse("gc", "--grace", "0", *store, cwd=tmp_path, code=1).stdout
    assert f"{OWNER}/{NAME}: left as it is" in said
    assert "too old" in said
    assert said.count("1 generation retired") == 2
    assert packs(home) == 1


async def test_a_pack_that_is_damaged_is_not_joined(project: Plumbing, home: House, tmp_path: Path) -> None:
    await home.register(project.path.as_uri())
    await home.ingest()
    await syncs(home, project, 2)
    path = sorted((home.git_dir / "objects" / "pack").glob("*.pack"))[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    said = packhouse("gc", "--store", str(home.root), cwd=tmp_path, code=1).stdout
    assert "cannot be joined" in said
    assert (await home.manifest()).number == 4


async def test_deleted_repositories_are_collected(project: Plumbing, home: House, tmp_path: Path) -> None:
    await home.register(project.path.as_uri())
    await home.ingest()
    await publish.delete(home.backend, OWNER, NAME)
    said = packhouse("gc", "--grace", "0", "--store", str(home.root), cwd=tmp_path).stdout
    assert "2 generations retired, 1 pack in 2 files" in said
    assert packs(home) == 0


def test_graces_follow_the_settings() -> None:
    usual = grace(Settings())
    assert (usual.retired, usual.orphans) == (3 * 3600, 24 * 3600)
    slow = grace(Settings(read_max=7200, ingest_deadline=30 * 3600))
    assert (slow.retired, slow.orphans) == (6 * 3600, 60 * 3600)
    assert grace(Settings(), 5.0).retired == grace(Settings(), 5.0).orphans == 5.0
    assert grace(Settings(), 5.0).operations == usual.operations


# After syncs


async def test_many_small_packs_are_joined(project: Plumbing, home: House) -> None:
    few = Settings(store=home.settings.store, compact_packs=4)
    await home.register(project.path.as_uri())
    await home.ingest()
    await syncs(home, project, 3)
    assert await join(home.backend, None, few, OWNER, NAME) is None
    await syncs(home, project, 1)
    off = Settings(store=home.settings.store, compact_packs=0)
    assert await join(home.backend, None, off, OWNER, NAME) is None
    done = await join(home.backend, None, few, OWNER, NAME)
    assert done is not None
    assert done.packs == 5
    assert len((await home.manifest()).packs) == 1


async def test_joining_may_fail_and_be_ended(
    project: Plumbing, home: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    few = Settings(store=home.settings.store, compact_packs=1)
    await home.register(project.path.as_uri())
    await home.ingest()
    await syncs(home, project, 2)
    before = home.packs()

    def enough() -> None:
        raise Cancelled("enough")

    with pytest.raises(Cancelled):
        await join(home.backend, None, few, OWNER, NAME, enough)
    count = 0

    def enough_later() -> None:
        nonlocal count
        count += 1
        if count > 4:
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        await join(home.backend, None, few, OWNER, NAME, enough_later)
    assert home.packs() == before

    async def fails(*_: Any, **__: Any) -> None:
        raise CorruptObject("it is damaged")

    monkeypatch.setattr(housekeeping, "compact", fails)
    with caplog.at_level(logging.WARNING):
        assert await join(home.backend, None, few, OWNER, NAME) is None
    assert "it is damaged" in caplog.text


async def test_the_command_ingest_joins(project: Plumbing, home: House, tmp_path: Path) -> None:
    for number in range(4):
        grow(project, 50 + number)
        name = f"{OWNER}/{NAME}"
        path, env = str(project.path), {"PACKHOUSE_COMPACT_PACKS": "2"}
        packhouse("ingest", path, name, "--store", str(home.root), cwd=tmp_path, **env)
    assert len((await home.manifest()).packs) == 2
    is_sound(home.git_dir)


def test_a_service_joins_after_syncs(
    project: Plumbing, tmp_path: Path, upstream: Callable[..., Upstream], home: House
) -> None:
    """In the background, while it is read: no read sees an error, none sees less than what was acknowledged."""
    running = Running(home.root, compact_packs="2", allow_upstreams="127.0.0.1")
    try:
        repo = Repo(running.client, NAME, OWNER)
        repo.put(upstream(project.path.parent).repo("project"))
        stop = threading.Event()
        acknowledged = [0]
        seen: list[int] = []

        def read() -> None:
            with httpx.Client(base_url=running.url, timeout=60) as client:
                mine = Repo(client, NAME, OWNER)
                while not stop.is_set():
                    least = acknowledged[0]
                    count = len(mine.json("/log", limit=1000)["commits"])
                    assert count >= least
                    blob = mine.ask("/raw", accept="*/*", rev="main", path="f")
                    assert blob.status_code == 200
                    seen.append(count)

        with ThreadPoolExecutor() as pool:
            readers = [pool.submit(read) for _ in range(3)]
            for number in range(60, 69):
                grow(project, number)
                assert repo.sync()["state"] == "succeeded"
                acknowledged[0] = number - 60 + 4
                if number % 5 == 0:
                    packhouse("gc", "--store", str(home.root), cwd=tmp_path)
            stop.set()
            for reader in readers:
                reader.result()
        assert len(seen) > 20
        deadline = time.monotonic() + 20
        while len(asyncio.run(home.manifest()).packs) > 3 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert len(asyncio.run(home.manifest()).packs) <= 3
    finally:
        running.stop()
    is_sound(home.git_dir)
    assert refs_of(home.git_dir) == refs_of(project.path)


# An ingest that loses to upkeep


async def test_an_ingest_keeps_its_work(
    project: Plumbing, home: House, upstream: Callable[..., Upstream], monkeypatch: pytest.MonkeyPatch
) -> None:
    from app import ingest as module

    server = upstream(project.path.parent)
    await home.register(server.repo("project"))
    await home.ingest()
    await syncs(home, project, 2)
    real = module.insist
    done: list[Any] = []

    async def insist(*args: Any) -> Any:
        if not done:
            done.append(await compact(home.backend, OWNER, NAME, whole=True))
        return await real(*args)

    monkeypatch.setattr(module, "insist", insist)
    grow(project, 200)
    before = len(server.requests)
    outcome = await home.ingest()
    assert done[0].packs == 3
    assert (outcome.changed, outcome.races, outcome.packs) == (True, 0, 1)
    manifest = await home.manifest()
    assert manifest.number == outcome.generation
    assert len(manifest.packs) == 2
    # One list of refs and one fetch: the upstream was not asked again.
    assert len(server.requests) - before == 3
    is_sound(home.git_dir)
    assert refs_of(home.git_dir) == refs_of(project.path)


async def test_of_a_sync_and_a_compaction_both_stay(project: Plumbing, home: House) -> None:
    await home.register(project.path.as_uri())
    await home.ingest()
    other = house(home.root)
    for number in range(300, 312):
        grow(project, number)
        await asyncio.gather(home.ingest(), compact(other.backend, OWNER, NAME))
        assert refs_of(home.git_dir) == refs_of(project.path)
    is_sound(home.git_dir)
