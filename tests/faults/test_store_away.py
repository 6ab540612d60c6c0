"""A service whose store goes away, in three ways, and comes back: as its clients see it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.services import running
from tests.services.base import BUCKET
from tests.support import faultproxy as faults
from tests.support.faultproxy import FaultProxy
from tests.support.generate import Repositories
from tests.support.git import git
from tests.support.processes import settled
from tests.support.service import Repo, Running, bring
from tests.support.upstream import Upstream

FRESH = 1.0
TIMEOUT = 2
AWAY = {
    "refuses": faults.refuse(503, "SlowDown"),
    "cuts": faults.cut_before,
    "stalls": faults.stall(30),
}
READS: list[tuple[str, str, dict[str, Any]]] = [
    ("/log", "application/json", {"limit": 20}),
    ("/log", "application/x-ndjson", {}),
    ("/refs", "application/json", {}),
    ("/tree", "application/json", {"recursive": True, "sizes": True}),
    ("/commit", "application/json", {"rev": "main"}),
    ("/grep", "application/json", {"rev": "main", "pattern": "e"}),
    ("/diff", "text/x-diff", {"base": "main~3", "head": "main"}),
]


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    with FaultProxy(running.get("seaweed").endpoint) as made:
        yield made


@pytest.fixture
def store(proxy: FaultProxy, repositories: Repositories) -> str:
    """With two repositories; it is reached through the proxy."""
    prefix = f"away-{secrets.token_hex(6)}"
    url = f"s3://{BUCKET}/{prefix}?endpoint={proxy.endpoint}&timeout={TIMEOUT}&attempts=2"
    bring(url, "warm", repositories["history"])
    bring(url, "cold", repositories["merges"])
    return url


def serving(folder: Path, store: str, **settings: str) -> Running:
    return Running(folder / "service", at=store, cache_dir=str(folder / "cache"), fresh_seconds=str(FRESH), **settings)


def asked(repo: Repo) -> list[httpx.Response]:
    return [repo.ask(path, accept, **params) for path, accept, params in READS]


def shown(answer: httpx.Response) -> Any:
    """What an answer says of the repository, without what it says of its own making."""
    if answer.headers["content-type"] == "application/x-ndjson":
        return answer.content.splitlines()[:-1]
    return answer.content


def refused(answer: httpx.Response) -> None:
    assert answer.status_code == 503, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "store_unavailable"
    assert int(answer.headers["retry-after"]) >= 1


def within(seconds: float, ask: Callable[[], httpx.Response]) -> httpx.Response:
    begun = time.monotonic()
    answer = ask()
    assert time.monotonic() - begun < seconds
    return answer


@pytest.mark.parametrize("way", sorted(AWAY))
def test_reads_while_the_store_is_away(
    way: str, store: str, proxy: FaultProxy, tmp_path: Path, repositories: Repositories, upstream: Any
) -> None:
    server: Upstream = upstream(repositories["history"].parent)
    service = serving(tmp_path, store, allow_upstreams="127.0.0.1", answer_cache_bytes="0")
    try:
        warm, cold = service.repo("warm"), service.repo("cold")
        before = asked(warm)
        assert [answer.status_code for answer in before] == [200] * len(READS)
        assert not [answer for answer in before if "packhouse-stale" in answer.headers]
        proxy.plan = lambda _: AWAY[way]
        time.sleep(FRESH + 0.5)
        for _ in range(2):
            for answer, old in zip(asked(warm), before, strict=True):
                assert answer.status_code == 200, (old.url, answer.text)
                assert shown(answer) == shown(old)
                assert int(answer.headers["packhouse-stale"]) >= 1
        # What was not asked before is answered, too, as far as the node has what it takes.
        wanted = git(repositories["history"], "rev-list", "main").decode().split()
        for oid in wanted[3:6]:
            answer = warm.ask("/commit", rev=oid)
            assert (answer.status_code, answer.json()["commit"]) == (200, oid)
            assert "packhouse-stale" in answer.headers
        # What it has not is refused soon, and so is what has to be written or known for certain.
        generation = before[0].json()["generation"]
        for ask in (
            lambda: cold.ask("/log"),
            lambda: cold.ask("/refs", accept="application/x-ndjson"),
            lambda: warm.ask("/log", min_generation=generation + 1),
            lambda: service.client.post(f"{warm.base}/sync"),
            lambda: service.client.put(f"{cold.base}new", json={"url": server.repo("history")}),
        ):
            refused(within(4 * TIMEOUT + 4, ask))
        assert service.client.get("/livez").status_code == 200
        assert within(4 * TIMEOUT + 4, lambda: service.client.get("/readyz")).status_code == 503
        # It comes back.
        proxy.plan = lambda _: None
        assert settled(lambda: service.client.get("/readyz").status_code, 200, 15) == 200
        assert settled(lambda: cold.ask("/log").status_code, 200, 15) == 200
        assert settled(lambda: "packhouse-stale" in warm.ask("/log").headers, False, 15) is False
        for answer, old in zip(asked(warm), before, strict=True):
            assert answer.status_code == 200
            assert shown(answer) == shown(old)
            assert "packhouse-stale" not in answer.headers
        done = service.repo("coldnew").put(server.repo("history"))
        assert done["state"] == "succeeded", done
        assert service.repo("coldnew").json("/log", min_generation=done["generation"])["commits"]
    finally:
        proxy.plan = lambda _: None
        service.stop()


def test_reads_go_on_for_so_long_only(store: str, proxy: FaultProxy, tmp_path: Path) -> None:
    service = serving(tmp_path, store, stale_seconds="4")
    try:
        warm = service.repo("warm")
        assert warm.ask("/log").status_code == 200
        begun = time.monotonic()
        proxy.plan = lambda _: faults.cut_before
        time.sleep(FRESH + 0.5)
        assert "packhouse-stale" in warm.ask("/log").headers
        time.sleep(max(0.0, begun + 4.5 - time.monotonic()))
        refused(warm.ask("/log"))
        proxy.plan = lambda _: None
        assert settled(lambda: warm.ask("/log").status_code, 200, 15) == 200
    finally:
        proxy.plan = lambda _: None
        service.stop()
