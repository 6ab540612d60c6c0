"""kill -9 at random moments of an ingest: the store opens, with the old or the new generation, and goes on."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from storage import gitview
from storage.fsck import fsck
from tests.app.ingesting import NAME, OWNER, House, house, is_sound, refs_of
from tests.support.git import Plumbing, git, init
from tests.support.upstream import Upstream

ROOT = Path(__file__).parents[2]


def start(store: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.syncing", store, OWNER, NAME],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        bufsize=0,  # or what follows the line that is read here is lost to communicate()
    )


def begun(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == b"begin\n"


def grow(p: Plumbing, number: int, random_bytes: int = 400_000) -> None:
    """One more commit on main, large enough that its pack takes a moment; a branch comes and goes."""
    old = git(p.path, "rev-parse", "-q", "--verify", "refs/heads/main", ok=(0, 1)).decode().split()
    p.at(1_700_000_000 + number * 60)
    blobs = [("100644", b"f%d" % n, p.blob(random.randbytes(random_bytes // 20))) for n in range(20)]
    p.ref("refs/heads/main", p.commit(f"number {number}", p.tree(blobs), *old))
    p.ref(f"refs/heads/n{number % 3}", "refs/heads/main")
    if number % 4 == 3:
        git(p.path, "update-ref", "-d", f"refs/heads/n{(number + 1) % 3}")


async def whole(home: House) -> None:
    report = await fsck(home.backend, OWNER, NAME)
    assert report.ok, report.findings


async def kills(count: int, tmp_path: Path, upstream: Callable[..., Upstream]) -> None:
    p = Plumbing(init(tmp_path / "up" / "project.git"))
    home = house(tmp_path / "store")
    await home.register(upstream(p.path.parent).repo("project"))
    store = home.settings.store
    # How long an ingest takes undisturbed, so that the moments spread over all of it.
    grow(p, 0)
    process = start(store)
    begun(process)
    at = time.monotonic()
    assert process.wait(60) == 0
    took = time.monotonic() - at
    process.communicate()
    seen = {"old": 0, "new": 0}
    for number in range(1, count + 1):
        before = refs_of(home.git_dir)
        generation = (await home.manifest()).number
        grow(p, number)
        process = start(store)
        begun(process)
        time.sleep(random.uniform(0, took * 1.1))
        process.kill()
        process.communicate()
        manifest = await home.manifest()
        assert manifest.number in (generation, generation + 1)
        assert manifest.ready
        seen["old" if manifest.number == generation else "new"] += 1
        if manifest.number == generation:
            assert refs_of(home.git_dir) == before
        else:
            assert manifest.head.oid == bytes.fromhex(refs_of(p.path)["HEAD"])
        await whole(home)
        process = start(store)
        assert process.wait(60) == 0
        process.communicate()
        assert refs_of(home.git_dir) == refs_of(p.path)
    await whole(home)
    is_sound(home.git_dir)
    await home.backend.sweep("", 0)
    left = {path.name for path in home.root.rglob("*") if path.name.startswith(("tmp_", ".tmp-"))}
    assert not left
    # In a run this long both ends of an ingest were hit.
    assert count < 30 or (seen["old"] and seen["new"]), seen


async def test_a_kill_before_git_could_see_what_was_published(
    tmp_path: Path, upstream: Callable[..., Upstream], monkeypatch: pytest.MonkeyPatch
) -> None:
    p = Plumbing(init(tmp_path / "up" / "project.git"))
    home = house(tmp_path / "store")
    await home.register(upstream(p.path.parent).repo("project"))
    grow(p, 0)
    await home.ingest()
    before = refs_of(home.git_dir)
    grow(p, 1)
    with monkeypatch.context() as patch:

        async def killed(*_: object) -> bool:
            raise KeyboardInterrupt

        patch.setattr(gitview, "refresh", killed)
        with pytest.raises(KeyboardInterrupt):
            await home.ingest()
    assert (await home.manifest()).number == 3
    assert refs_of(home.git_dir) == before != refs_of(p.path)
    outcome = await home.ingest()
    assert (outcome.generation, outcome.changed) == (3, False)
    assert refs_of(home.git_dir) == refs_of(p.path)


async def test_a_few_kills(tmp_path: Path, upstream: Callable[..., Upstream]) -> None:
    await kills(4, tmp_path, upstream)


@pytest.mark.slow
async def test_fifty_kills(tmp_path: Path, upstream: Callable[..., Upstream]) -> None:
    await kills(50, tmp_path, upstream)


async def test_a_kill_during_the_first_ingest(tmp_path: Path, upstream: Callable[..., Upstream]) -> None:
    p = Plumbing(init(tmp_path / "up" / "project.git"))
    home = house(tmp_path / "store")
    await home.register(upstream(p.path.parent).repo("project"))
    grow(p, 0, 2_000_000)
    for _ in range(3):
        process = start(home.settings.store)
        begun(process)
        time.sleep(random.uniform(0, 0.1))
        process.kill()
        process.communicate()
        manifest = await home.manifest()
        assert manifest.number == (2 if manifest.ready else 1)
    assert (await home.ingest()).generation == 2
    await whole(home)
