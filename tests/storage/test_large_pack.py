"""The memory that an ingest into a bucket takes does not grow with the pack."""

from __future__ import annotations

import random
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.services import stores
from tests.support.git import ENV, git, init
from tests.support.processes import Peak, family, settled
from tests.support.service import Running
from tests.support.upstream import Upstream

LIMIT = 300 << 20
SIZES = [32 << 20] + [2 << 20] * 180 + [10_000] * 8_000 + [500_000] * 80
"""Of files without any pattern: half a gigabyte."""


def script() -> Iterator[bytes]:
    """For fast-import: the files, forty a commit, and a file of text that changes with each of them."""
    rng = random.Random(500)
    rng.shuffle(sizes := list(SIZES))
    lines = [f"line {number} {rng.random()}" for number in range(2000)]
    for number, start in enumerate(range(0, len(sizes), 40)):
        lines[rng.randrange(len(lines))] = f"changed {number}"
        text = "\n".join(lines).encode()
        when = 1_700_000_000 + number
        yield b"commit refs/heads/main\ncommitter A <a@b> %d +0000\ndata 2\nx\n" % when
        yield b"M 100644 inline text\ndata %d\n%s\n" % (len(text), text)
        for each, size in enumerate(sizes[start : start + 40]):
            yield b"M 100644 inline d%d/f%d\ndata %d\n%s\n" % (number, each, size, rng.randbytes(size))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A repository whose pack has more than 500 MB."""
    path = init(tmp_path_factory.mktemp("up") / "large.git")
    stored = ("-c", "core.compression=0", "-c", "pack.compression=0")
    command = ["git", *stored, "fast-import", "--quiet", "--big-file-threshold=100k"]
    with subprocess.Popen(command, cwd=path, stdin=subprocess.PIPE, env=ENV) as program:
        assert program.stdin is not None
        for piece in script():
            program.stdin.write(piece)
    assert program.returncode == 0
    (pack,) = path.glob("objects/pack/*.pack")
    assert pack.stat().st_size > 500_000_000
    yield path
    shutil.rmtree(path)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["ceph-rgw", "seaweed"])
def test_half_a_gigabyte(store: str, large: Path, tmp_path: Path, upstream: Callable[..., Upstream]) -> None:
    url = stores.url(store, f"large-{secrets.token_hex(6)}")
    running = Running(tmp_path / "service", at=url, cache_dir=str(tmp_path / "cache"), allow_upstreams="127.0.0.1")
    try:
        assert settled(lambda: running.client.get("/readyz").status_code, 200, 20) == 200
        crew = len(family(running.pid))
        with Peak(running.pid) as peak:
            repo = running.repo("large")
            running.client.timeout = 600
            done = repo.put(upstream(large.parent).repo("large"), wait=600)
            assert done["state"] == "succeeded", done
            until_read = peak.bytes
            # Its sidecars are made after that, by the same process.
            assert settled(lambda: len(family(running.pid)) <= crew, True, 120)
        print(f"{store}: {until_read >> 20} MB until it could be read, {peak.bytes >> 20} MB with its sidecars")
        assert peak.bytes <= LIMIT
        head = git(large, "rev-parse", "HEAD").decode().strip()
        assert repo.json("/resolve", rev="main")["commit"] == head
        raw = repo.ask("/raw", accept="*/*", path="text")
        assert raw.content == git(large, "cat-file", "blob", "HEAD:text")
    finally:
        running.stop()
        shutil.rmtree(tmp_path / "cache")
