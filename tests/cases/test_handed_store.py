"""A store that fails half way, and one that is asked on behalf of clients who have left: the same faults over S3."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import orjson
import pytest

from tests.cases.test_handed_breaks import MIB, fails, leave
from tests.services import running as servers
from tests.services.base import BUCKET
from tests.support.cases import Cases
from tests.support.faultproxy import Exchange, Fault, FaultProxy, Request, refuse
from tests.support.git import git
from tests.support.processes import settled
from tests.support.service import Running


@pytest.fixture(scope="module")
def proxy() -> Iterator[FaultProxy]:
    with FaultProxy(servers.get("seaweed").endpoint) as made:
        yield made


@pytest.fixture(scope="module")
def forty(cases: Cases, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty files of a megabyte in one pack, in the order of their names."""
    path = tmp_path_factory.mktemp("forty") / "h09.git"
    shutil.copytree(cases["h09"].path, path)
    git(path, "repack", "-adq")
    return path


@pytest.fixture(scope="module")
def place(proxy: FaultProxy, forty: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a store behind the proxy that holds the repository."""
    url = f"s3://{BUCKET}/handed-{secrets.token_hex(6)}?endpoint={proxy.endpoint}&timeout=5&attempts=2"
    command = [sys.executable, "-m", "app.cli", "ingest", str(forty), "tests/h09", "--store", url]
    cache = str(tmp_path_factory.mktemp("ingest-cache"))
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"PACKHOUSE_CACHE_DIR": cache})
    return url


@pytest.fixture
def running(proxy: FaultProxy, place: str, tmp_path: Path) -> Iterator[Running]:
    """A node that has read nothing yet."""
    proxy.reset()
    running = Running(tmp_path / "node", at=place, cache_dir=str(tmp_path / "cache"))
    yield running
    proxy.reset()
    running.stop()


def of_pack(request: Request) -> bool:
    return request.operation == "GetObject" and request.key.endswith(".pack")


class Budget:
    """Passes on so many bytes of packs, breaks off there, and answers 500 from then on."""

    def __init__(self, size: int) -> None:
        self.left = size

    def plan(self, request: Request) -> Fault | None:
        if not of_pack(request):
            return None
        return self._counted if self.left > 0 else refuse(500, "InternalError")

    async def _counted(self, exchange: Exchange) -> None:
        answer = await exchange.forward()
        left, self.left = self.left, self.left - len(answer.body)
        await exchange.send(answer if self.left > 0 else replace(answer, cut_at=max(left, 0)))


def test_a_store_that_fails_after_some_megabytes(proxy: FaultProxy, running: Running, forty: Path) -> None:
    repo = running.repo("h09")
    budget = Budget(8 * MIB)
    proxy.reset(budget.plan)
    broken = 0
    for number in range(1, 41):
        name = f"f{number:02}"
        try:
            answer = repo.ask("/raw", accept="*/*", rev="main", path=name)
        except httpx.RemoteProtocolError:
            broken += 1
            continue
        if answer.status_code == 200:
            assert answer.content == git(forty, "cat-file", "blob", f"main:{name}")
        else:
            assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
            assert int(answer.headers["retry-after"]) > 0
            broken += 1
        if broken == 3:
            break
    assert broken == 3
    assert budget.left <= 0
    fails(repo, "/diff", accept="text/x-diff", head="main")
    fails(repo, "/grep", rev="main", pattern="x")
    fails(repo, "/diff", head="main")
    # A stream may have begun by then: its last record says what happened.
    answer = repo.ask("/grep", accept="application/x-ndjson", rev="main", pattern="x")
    said = orjson.loads(answer.content.splitlines()[-1])
    assert said.get("error", said)["code"] == "store_unavailable"
    assert answer.status_code == 503 or said["complete"] is False
    # The store is well again, and so is the service.
    proxy.reset()
    answer = repo.ask("/raw", accept="*/*", rev="main", path="f40")
    assert answer.content == git(forty, "cat-file", "blob", "main:f40")
    assert repo.stream("/grep", rev="main", pattern="x")[1]["skipped_counts"] == {"binary": 40}


class Trickle:
    """Sends packs slowly, and counts the bytes that were taken."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.sent = 0

    def plan(self, request: Request) -> Fault | None:
        return self._slowly if of_pack(request) else None

    async def _slowly(self, exchange: Exchange) -> None:
        answer = await exchange.forward()
        await exchange.send(replace(answer, body=b""))
        for at in range(0, len(answer.body), self.rate // 20):
            piece = answer.body[at : at + self.rate // 20]
            exchange._writer.write(piece)
            await exchange._writer.drain()
            self.sent += len(piece)
            await asyncio.sleep(0.05)


def test_nothing_more_is_read_for_a_client_who_left(proxy: FaultProxy, running: Running) -> None:
    repo = running.repo("h09")
    repo.json("/resolve")
    trickle = Trickle(2 * MIB)
    proxy.reset(trickle.plan)
    with pytest.raises(TimeoutError):
        leave(running, f"{repo.base}/diff?head=main", "text/x-diff", 0, 1, patience=1.0)

    def still() -> bool:
        before = trickle.sent
        time.sleep(0.5)
        return trickle.sent == before

    assert settled(still, True)
    assert 0 < trickle.sent < 20 * MIB
    # What was begun does no harm to who comes next.
    proxy.reset()
    assert repo.ask("/diff", accept="text/x-diff", head="main").status_code == 200
