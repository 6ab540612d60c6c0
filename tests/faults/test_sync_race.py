"""Two processes sync one repository while its upstream moves: refs never go backwards, every generation is whole."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pack.commit import parse_commit
from pack.objects import COMMIT
from storage import generations
from storage.connectivity import Advertised, check
from storage.publish import all_refs
from storage.repository import Handle, open_objects, settle
from tests.app.ingesting import NAME, OWNER, House, house, is_sound, refs_of
from tests.support.git import Plumbing, git, init
from tests.support.upstream import Upstream

ROOT = Path(__file__).parents[2]
WRITERS = 2


def start(store: str, stop: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.syncing", store, OWNER, NAME, str(stop)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        bufsize=0,  # or what follows the line that is read here is lost to communicate()
    )


def move(p: Plumbing, number: int) -> None:
    """The upstream's next state. Commits are numbered; a number never comes back to a ref, also when it is forced."""
    parent = f"refs/heads/main~{number % 3}" if number > 5 and number % 4 == 0 else "refs/heads/main"
    commit = p.commit(f"{number}", p.file(b"counter", b"%d\n" % number), *([parent] if number else []))
    lines = [f"update refs/heads/main {commit}", f"create refs/heads/n{number} {commit}"]
    if number % 3 == 0:
        lines.append(f"update refs/heads/side {commit}")
    if number >= 4:
        lines.append(f"delete refs/heads/n{number - 4}")
    git(p.path, "update-ref", "--stdin", stdin="".join(line + "\n" for line in lines).encode())


async def race(rounds: int, tmp_path: Path, upstream: Callable[..., Upstream]) -> int:
    """The number of generations that came of it."""
    p = Plumbing(init(tmp_path / "up" / "project.git"))
    move(p, 0)
    home = house(tmp_path / "store")
    await home.register(upstream(p.path.parent).repo("project"))
    stop = tmp_path / "stop"
    writers = [start(home.settings.store, stop) for _ in range(WRITERS)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"begin\n"
    while not (await home.manifest()).ready:  # or all has moved before anybody has looked
        await asyncio.sleep(0.01)
    for number in range(1, rounds + 1):
        move(p, number)
        time.sleep(random.uniform(0, 0.05))
    stop.touch()
    said = []
    for writer in writers:
        out, _ = writer.communicate(timeout=120)
        assert writer.returncode == 0
        said.append([line.split() for line in out.decode().splitlines()])
    assert refs_of(home.git_dir) == refs_of(p.path)
    is_sound(home.git_dir)
    # Each generation was published by one of them, and by one alone.
    published = sorted(int(number) for lines in said for number, changed, _ in lines if changed == "True")
    assert published == list(range(2, (await home.manifest()).number + 1))
    await never_backwards(home)
    return len(published)


async def never_backwards(home: House) -> None:
    last: dict[bytes, int] = {}
    gone: set[bytes] = set()
    newest = (await home.manifest()).number
    for number in range(2, newest + 1):
        manifest = await generations.read(home.backend, OWNER, NAME, number)
        assert manifest is not None
        manifest = await settle(home.backend, OWNER, NAME, manifest)
        objects = open_objects(Handle(home.backend.url, OWNER, NAME, manifest))
        refs = await all_refs(home.backend, OWNER, NAME, manifest)
        rows: list[Advertised] = list(refs)
        # Whole: everything that its refs lead to is in the packs that it names.
        assert check(objects, rows, head_target=manifest.head.target).refs == refs
        names = {ref.name for ref in refs}
        assert not names & gone
        gone |= last.keys() - names
        for ref in refs:
            commit = int(parse_commit(objects.read_as(ref.oid, COMMIT)).message)
            assert commit >= last.get(ref.name, 0), (number, ref.name)
            last[ref.name] = commit


async def test_a_short_race(tmp_path: Path, upstream: Callable[..., Upstream]) -> None:
    assert await race(12, tmp_path, upstream) > 1


@pytest.mark.slow
async def test_two_hundred_rounds(tmp_path: Path, upstream: Callable[..., Upstream]) -> None:
    assert await race(200, tmp_path, upstream) > 20
