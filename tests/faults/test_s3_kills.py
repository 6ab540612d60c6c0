"""Processes that die: ingests in the middle of their work for a bucket, and the storage server's own daemons."""

from __future__ import annotations

import random
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.ingestion import Order
from app.ingestion import run as run_order
from app.progress import Meter
from app.registry import Registry
from app.settings import Settings
from storage.backend import Backend
from storage.open import opened
from storage.repository import Repositories
from tests.app.ingesting import NAME, OWNER
from tests.faults.keeping import Kept
from tests.faults.replicas import refs_of
from tests.faults.test_kill_ingest import begun, grow, start
from tests.services import running, stores
from tests.services.base import Server
from tests.services.seaweed import Seaweed
from tests.support.git import Plumbing, init
from tests.support.upstream import Upstream

LARGE = 18_000_000
"""Bytes of a commit whose pack is sent in three parts, the first of them while it still arrives."""


async def register(backend: Backend, url: str, upstream: str) -> None:
    settings = Settings(store=url, allow_upstreams=("127.0.0.1",))
    await Registry(backend, Repositories(backend), settings).register(OWNER, NAME, upstream)


async def kills(store: str, count: int, tmp_path: Path, upstream: Callable[..., Upstream]) -> None:
    p = Plumbing(init(tmp_path / "up" / "project.git"))
    url = stores.url(store, f"kills-{secrets.token_hex(6)}")
    async with opened(url, tmp_path / "spool") as backend:
        kept = Kept(backend, url, OWNER, NAME)
        await register(backend, url, upstream(p.path.parent).repo("project"))
        grow(p, 0, LARGE)
        # How long an ingest takes undisturbed, so that the moments spread over all of it.
        at = time.monotonic()
        finish(url)
        took = time.monotonic() - at
        stored = refs_of(p.path)
        for number in range(1, count + 1):
            before = await kept.newest()
            grow(p, number, LARGE if number % 4 else 100_000)
            process = start(url)
            begun(process)
            time.sleep(random.uniform(0, took))
            process.kill()
            process.communicate()
            stores.forget(store, process.pid)
            after = await kept.newest()
            assert after.number in (before.number, before.number + 1)
            if after.number == before.number:
                assert after == before
                await kept.stands(stored)
                finish(url)  # or the next ingest would have more to do than this one, and be killed early
            else:
                await kept.stands(refs_of(p.path))
            stored = refs_of(p.path)
            await kept.arrived(before)
        await kept.holds(stored)
        await kept.nothing_is_left_over()
        await kept.holds(stored)


def finish(url: str) -> None:
    """An ingest that nobody disturbs."""
    process = start(url)
    process.communicate(timeout=120)
    assert process.returncode == 0


@pytest.mark.parametrize("store", ["cephfs", "seaweed"])  # whole replicas are killed on all
async def test_a_few_kills(store: str, tmp_path: Path, upstream: Callable[..., Upstream]) -> None:
    await kills(store, 3, tmp_path, upstream)


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
        kept = Kept(backend, url, OWNER, NAME)
        await register(backend, url, upstream(p.path.parent).repo("project"))
        for number in range(count):
            grow(p, number, LARGE)
            before = await kept.newest()
            process = start(url)
            begun(process)
            time.sleep(random.uniform(0, 0.5))
            death()
            out, _ = process.communicate(timeout=240)
            after = await kept.newest()
            if process.returncode == 0:
                assert after.number == int(out.split()[0]) == before.number + 1
            else:
                assert after.number in (before.number, before.number + 1)
                order = Order(Settings(store=url, allow_upstreams=("127.0.0.1",)), OWNER, NAME)
                await run_order(backend, order, Meter())
            await kept.stands(refs_of(p.path))
            await kept.arrived(before)
        await kept.holds(refs_of(p.path))
        await kept.nothing_is_left_over()
        await kept.holds(refs_of(p.path))


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
