"""A writer that is stopped in the middle and goes on after others have written, collected, deleted and begun anew."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage import gc, generations, layout, publish
from storage.compaction import compact
from storage.fsck import fsck
from storage.gc import Clock, Grace
from storage.views import settle
from tests.app.ingesting import NAME, OWNER, House, house, is_sound, refs_of
from tests.faults.stalling import ONLY, POINTS
from tests.support.git import Plumbing, git, init

ROOT = Path(__file__).parents[2]
NOW = Grace(0.0, 0.0, 0.0)


@pytest.fixture
def project(tmp_path: Path) -> Plumbing:
    p = Plumbing(init(tmp_path / "up" / "project.git"))
    grow(p, 0)
    return p


def grow(p: Plumbing, number: int) -> None:
    old = git(p.path, "rev-parse", "-q", "--verify", "refs/heads/main", ok=(0, 1)).decode().split()
    p.at(1_700_000_000 + number * 60)
    p.ref("refs/heads/main", p.commit(f"number {number}", p.file(b"f", b"%d\n" % number * 100), *old))


@contextmanager
def stalled(store: str, owner: str, name: str, point: str, told: Path) -> Iterator[subprocess.Popen[str]]:
    """A writer that stands at that point of an ingest. `told` is a file that it makes there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.stalling", store, owner, name, point, str(told)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 30
        while not told.exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        # It says so just before it stops.
        while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)
        yield process
    finally:
        process.kill()
        process.communicate()


def go_on(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out.strip()


async def collect(home: House) -> gc.Collected:
    report = await gc.collect(home.backend, OWNER, NAME, await Clock.read(home.backend), NOW)
    assert report.problem is None
    await home.backend.sweep("", -1.0)
    return report


async def only_what_is_named(home: House) -> None:
    """After gc: the newest generation, what it names, and nothing else."""
    await collect(home)
    manifest = await settle(home.backend, OWNER, NAME, await home.manifest())
    keys = {key for pack in manifest.packs for key in (layout.pack(pack.name), layout.index(pack.name))}
    assert set(home.packs()) == {key.rpartition("/")[2] for key in keys}
    tables = {path.name for path in (home.git_dir / "packhouse").glob("refs-*")}
    assert tables == ({manifest.refs.key.rpartition("/")[2]} if manifest.refs else set())
    for number in range(1, manifest.number):
        there = await generations.read(home.backend, OWNER, NAME, number)
        assert there is not None
        assert there.state == "tombstone"


async def whole(home: House) -> None:
    report = await fsck(home.backend, OWNER, NAME)
    assert report.ok, report.findings
    is_sound(home.git_dir)


OFTEN = ("publish", "pack", "answer")
HERE = [point for point in sorted(POINTS) if ONLY.get(point, "file") == "file"]


@pytest.mark.parametrize(
    "point", [point if point in OFTEN else pytest.param(point, marks=pytest.mark.slow) for point in HERE]
)
async def test_it_loses_after_fifty_generations_and_a_collection(project: Plumbing, tmp_path: Path, point: str) -> None:
    home = house(tmp_path / "store")
    await home.register(project.path.as_uri())
    await home.ingest()
    grow(project, 1)
    with stalled(str(home.root), OWNER, NAME, point, tmp_path / "stalled") as writer:
        before = (await home.manifest()).number
        acknowledged = []
        for number in range(2, 52):
            grow(project, number)
            outcome = await home.ingest()
            assert outcome.changed
            acknowledged.append(
                (outcome.generation, git(project.path, "rev-parse", "refs/heads/main").decode().strip())
            )
        assert await compact(home.backend, OWNER, NAME, whole=True)
        assert (await collect(home)).retired > 50
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
    await whole(home)
    for _, oid in acknowledged:
        git(home.git_dir, "cat-file", "-e", f"{oid}^{{tree}}")
    assert refs_of(home.git_dir) == refs_of(project.path)
    await only_what_is_named(home)
    await whole(home)


@pytest.mark.parametrize("point", HERE)
async def test_it_loses_across_a_new_registration(project: Plumbing, tmp_path: Path, point: str) -> None:
    home = house(tmp_path / "store")
    await home.register(project.path.as_uri())
    await home.ingest()
    grow(project, 1)
    other = Plumbing(init(tmp_path / "up" / "other.git"))
    for number in range(100, 103):
        grow(other, number)
    with stalled(str(home.root), OWNER, NAME, point, tmp_path / "stalled") as writer:
        await publish.delete(home.backend, OWNER, NAME)
        await collect(home)
        assert home.packs() == []
        await home.register(other.path.as_uri())
        await home.ingest()
        await collect(home)
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
    await only_what_is_named(home)
    await home.ingest()
    await whole(home)
    assert refs_of(home.git_dir) == refs_of(other.path)
    await only_what_is_named(home)
