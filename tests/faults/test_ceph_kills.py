"""Daemons of a Ceph cluster that are killed: during ingests, and while a service reads. Each test has them all back in
the end.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.test_s3_kills import deaths
from tests.services import running
from tests.services.ceph import Ceph
from tests.support.generate import Repositories
from tests.support.service import Repo, Running, bring
from tests.support.upstream import Upstream

DAEMONS = {"ceph-rgw": ("rgw", "osd", "mon"), "cephfs": ("mds", "osd", "mon")}
PAIRS = [(store, daemon) for store, daemons in DAEMONS.items() for daemon in daemons]
BACK_SECONDS = 90.0


@pytest.fixture(scope="module")
def own() -> Iterator[Ceph]:
    """A cluster that may be killed."""
    running.get("ceph")
    running.insist("ceph", "CephFS", Ceph.missing_fs())
    server = Ceph()
    try:
        server.start()
        server.need_fs()
        yield server
    finally:
        server.close()


def url_of(own: Ceph, store: str) -> str:
    prefix = f"kills-{secrets.token_hex(6)}"
    return own.url(prefix) if store == "ceph-rgw" else own.fs_url(prefix)


async def killed(
    own: Ceph, store: str, daemon: str, count: int, tmp_path: Path, upstream: Callable[..., Upstream]
) -> None:
    def death() -> None:
        own.kill_one(daemon)
        time.sleep(random.uniform(0, 1))
        own.start()

    await deaths(url_of(own, store), death, count, tmp_path, upstream)


@pytest.mark.parametrize(("store", "daemon"), [("ceph-rgw", "rgw"), ("cephfs", "mds"), ("cephfs", "osd")])
async def test_a_daemon_dies_during_an_ingest(
    own: Ceph, store: str, daemon: str, tmp_path: Path, upstream: Callable[..., Upstream]
) -> None:
    await killed(own, store, daemon, 1, tmp_path, upstream)


@pytest.mark.slow
@pytest.mark.parametrize(("store", "daemon"), PAIRS)
async def test_daemons_die_during_many_ingests(
    own: Ceph, store: str, daemon: str, tmp_path: Path, upstream: Callable[..., Upstream]
) -> None:
    await killed(own, store, daemon, 10, tmp_path, upstream)


@pytest.mark.parametrize(("store", "daemon"), [("ceph-rgw", "rgw"), ("cephfs", "mds"), ("cephfs", "osd")])
def test_reads_while_a_daemon_is_dead(
    own: Ceph, store: str, daemon: str, tmp_path: Path, repositories: Repositories
) -> None:
    """What is in the cache is answered, and known as old; the rest is 503 with Retry-After; and then all is well."""
    patient = url_of(own, store)
    bring(patient, "warm", repositories["linear"])
    bring(patient, "cold", repositories["merges"])
    url = f"{patient}&timeout=2"
    service = Running(tmp_path / "service", at=url, cache_dir=str(tmp_path / "cache"))
    try:
        warm, cold = service.repo("warm"), service.repo("cold")
        wanted = warm.json("/log", limit=5)
        own.kill_one(daemon)
        time.sleep(1.5)  # longer than a generation is taken for fresh
        stale = False
        for _ in range(3):
            answer = warm.ask("/log", limit=5)
            assert answer.status_code == 200
            assert answer.json() == wanted
            stale = stale or "packhouse-stale" in answer.headers
        refused(cold, 8)
        assert stale or daemon == "osd"  # what the client has of metadata needs no OSD
        assert warm.ask("/log", limit=5).json() == wanted
        own.start()
        until_answered(cold)
        assert warm.json("/log", limit=5) == wanted
    finally:
        service.stop()
        own.start()


def refused(repo: Repo, seconds: float) -> None:
    begun = time.monotonic()
    answer = repo.ask("/log", limit=5)
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["code"] == "store_unavailable"
    assert time.monotonic() - begun < seconds


def until_answered(repo: Repo) -> None:
    end = time.monotonic() + BACK_SECONDS
    while (answer := repo.ask("/log", limit=5)).status_code != 200:
        assert answer.status_code == 503, answer.text
        assert time.monotonic() < end, answer.text
        time.sleep(0.5)
