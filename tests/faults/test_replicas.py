"""Two replicas on one store, each with a cache of its own: what one brings the other reads, what one runs the other
tells of, and neither does twice what the other does at the same time.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from app.housekeeping import collect
from app.settings import Settings
from pack.index import Index
from storage import generations, layout
from storage.backend import Backend
from storage.fsck import fsck
from storage.manifest import Manifest
from storage.open import opened
from storage.publish import all_refs
from storage.views import settle
from tests.faults.replicas import LEASE, NAME, SLACK, Replica, refs_of
from tests.faults.test_kill_ingest import grow
from tests.services import stores
from tests.support.git import Plumbing, git, init
from tests.support.processes import settled
from tests.support.service import OWNER, Repo, Running
from tests.support.upstream import Fault, Upstream


@dataclass
class Pair:
    """`one` and `other` are services on the store at `url`."""

    url: str
    one: Replica
    other: Replica

    @property
    def both(self) -> tuple[Replica, Replica]:
        return self.one, self.other


@pytest.fixture(params=["file", "seaweed", "ceph-rgw"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    prefix = f"replicas-{secrets.token_hex(6)}"
    url = (tmp_path / "store").as_uri() if request.param == "file" else stores.url(request.param, prefix)
    running: list[Replica] = []
    try:
        for name in ("one", "other"):
            running.append(Replica(tmp_path / name, url, tmp_path / f"{name}-cache"))
        yield Pair(url, *running)
    finally:
        for each in running:
            each.end()


@pytest.fixture
def project(tmp_path: Path) -> Plumbing:
    p = Plumbing(init(tmp_path / "up" / f"{NAME}.git"))
    grow(p, 0)
    return p


def tip(p: Plumbing) -> str:
    return git(p.path, "rev-parse", "refs/heads/main").decode().strip()


class Follower(threading.Thread):
    """The events of an operation, as they come until the end."""

    def __init__(self, running: Running, id_: str) -> None:
        super().__init__(daemon=True)
        self.states: list[dict[str, Any]] = []
        self.last: dict[str, Any] = {}
        self._url = f"{running.url}/v1/operations/{id_}/events"
        self.start()

    def run(self) -> None:
        headers = {"Accept": "application/x-ndjson"}
        with httpx.stream("GET", self._url, headers=headers, timeout=60) as answer:
            assert answer.headers["content-type"] == "application/x-ndjson"
            for line in answer.iter_lines():
                document = orjson.loads(line)
                if "end" in document:
                    self.last = document
                else:
                    self.states.append(document)

    def ended(self, seconds: float) -> dict[str, Any]:
        """The last state."""
        self.join(seconds)
        assert not self.is_alive(), self.states[-1:]
        assert self.last == {"end": True, "complete": True}
        return self.states[-1]


async def history(backend: Backend) -> list[Manifest]:
    """All generations, each of which is there once, with a nonce of its own."""
    newest = await generations.newest(backend, OWNER, NAME)
    assert newest is not None
    found = [await generations.read(backend, OWNER, NAME, number) for number in range(1, newest.number + 1)]
    manifests = [manifest for manifest in found if manifest is not None]
    assert len({manifest.nonce for manifest in manifests}) == newest.number
    return manifests


async def is_whole(backend: Backend, p: Plumbing) -> Manifest:
    """The newest generation is what the upstream has, and names nothing twice, packs and objects."""
    newest = (await history(backend))[-1]
    manifest = await settle(backend, OWNER, NAME, newest)
    assert (await fsck(backend, OWNER, NAME)).findings == []
    refs = await all_refs(backend, OWNER, NAME, manifest)
    assert {ref.name.decode(): ref.oid.hex() for ref in refs} == refs_of(p.path)
    packs = [pack.name for pack in manifest.packs]
    assert len(set(packs)) == len(packs)
    assert len({pack.checksum for pack in manifest.packs}) == len(packs)
    oids: Counter[bytes] = Counter()
    for name in packs:
        data = await backend.get(layout.repository(OWNER, NAME) + layout.index(name))
        oids.update(Index.parse(data).oids())
    assert not [oid.hex() for oid, count in oids.items() if count > 1]
    return manifest


async def only_what_is_named(pair: Pair, backend: Backend) -> None:
    """After gc there is no pack that the newest generation does not name, and no unfinished upload."""
    for each in pair.both:
        each.rests()
    for _ in range(2):  # what the first one joins is replaced for the second one
        await asyncio.sleep(1.1)  # the store's clock may know no fractions of seconds
        said: list[str] = []
        assert await collect(Settings(store=pair.url), (OWNER, NAME), dry_run=False, seconds=0, tell=said.append), said
    manifest = await settle(backend, OWNER, NAME, (await history(backend))[-1])
    prefix = layout.repository(OWNER, NAME)
    packs = {item.key.removeprefix(prefix) async for item in backend.list(prefix + layout.PACKS)}
    assert packs == {key for pack in manifest.packs for key in (layout.pack(pack.name), layout.index(pack.name))}
    assert await backend.sweep("", -3600) == 0


def test_what_one_brings_the_other_reads(pair: Pair, project: Plumbing, upstream: Callable[..., Upstream]) -> None:
    url = upstream(project.path.parent).repo(NAME)
    operation_ = pair.one.repo(NAME).put(url)
    assert operation_["state"] == "succeeded", operation_
    running = (pair.one, pair.other)
    for number in range(1, 7):
        writer, reader = running[number % 2], running[1 - number % 2].repo(NAME)
        assert reader.json("/resolve")["generation"] >= 2  # and may be trusted for a while
        grow(project, number, 100_000)
        done = writer.repo(NAME).sync()
        assert done["state"] == "succeeded", done
        generation = done["generation"]
        log = reader.json("/log", limit=100, min_generation=generation)
        assert log["generation"] == generation
        assert [row["oid"] for row in log["commits"]] == git(project.path, "rev-list", "main").decode().split()
        path = f"f{number}"
        raw = reader.ask("/raw", accept="*/*", rev="main", path=path, min_generation=generation)
        assert raw.content == git(project.path, "cat-file", "blob", f"main:{path}")
        problem = reader.problem("/log", min_generation=generation + 1)
        assert (problem["status"], problem["code"]) == (409, "generation_not_reached")
        assert problem["generation"] == generation
    # Who asks for nothing certain sees it within the bound, too.
    last = running[0].repo(NAME).json("/resolve", min_generation=generation)["generation"]
    for each in running:
        assert settled(lambda each=each: each.repo(NAME).json("/resolve")["generation"], last, 1 + SLACK) == last


async def test_eight_at_once(pair: Pair, project: Plumbing, upstream: Callable[..., Upstream]) -> None:
    """Registrations and first ingests, then syncs while the upstream moves: all end well, one wins each generation."""
    server = upstream(project.path.parent)

    def put(number: int) -> dict[str, Any]:
        with httpx.Client(base_url=pair.both[number % 2].url, timeout=120) as client:
            return Repo(client, NAME).put(server.repo(NAME))

    def sync(number: int) -> dict[str, Any]:
        with httpx.Client(base_url=pair.both[number % 2].url, timeout=120) as client:
            return Repo(client, NAME).sync()

    with ThreadPoolExecutor(8) as threads:
        operations = list(threads.map(put, range(8)))
        assert [each["state"] for each in operations] == ["succeeded"] * 8, operations
        for number in range(1, 5):
            futures = []
            for each in range(8):
                if each % 4 == 0:
                    grow(project, 2 * number + each // 4, 100_000)
                futures.append(threads.submit(sync, each))
            operations = [future.result() for future in futures]
            assert [each["state"] for each in operations] == ["succeeded"] * 8, operations
    async with opened(pair.url) as backend:
        manifest = await is_whole(backend, project)
        # Every generation that an operation came to is there, and of several that came to one, one made it.
        published = {found.number: found.operation for found in await history(backend)}
        for each in operations:
            assert each["generation"] in published
        assert max(each["generation"] for each in operations) == manifest.number
        for running in pair.both:
            found = running.repo(NAME).json("/resolve", rev="main", min_generation=manifest.number)
            assert found["commit"] == tip(project)
        await only_what_is_named(pair, backend)
        await is_whole(backend, project)
    # That both make the same at the same time is nothing to warn of.
    for running in pair.both:
        assert "could not be made" not in running.log.read_text()


def test_an_operation_is_told_of_by_the_other(pair: Pair, project: Plumbing, upstream: Callable[..., Upstream]) -> None:
    slow = upstream(
        project.path.parent, faults=[Fault("POST .*/git-upload-pack", times=2, stall=100_000, stall_seconds=3)]
    )
    id_ = pair.one.begin(slow.repo(NAME))
    follower = Follower(pair.other, id_)
    assert settled(lambda: pair.other.operation(id_)["state"], "running", SLACK) == "running"
    last = follower.ended(30)
    assert (last["id"], last["state"], last["generation"], last["error"]) == (id_, "succeeded", 2, None)
    assert {"running", "succeeded"} <= {state["state"] for state in follower.states}
    assert last["progress"]["objects"] == last["progress"]["total_objects"] > 20
    assert pair.other.operation(id_) == pair.one.operation(id_)


def test_an_operation_is_stopped_by_the_other(pair: Pair, project: Plumbing, upstream: Callable[..., Upstream]) -> None:
    stalled = upstream(project.path.parent, faults=[Fault("POST .*/git-upload-pack", stall=100_000)])
    id_ = pair.one.begin(stalled.repo(NAME))
    assert settled(lambda: pair.one.operation(id_)["progress"]["phase"], "receiving", 20) == "receiving"
    follower = Follower(pair.other, id_)
    answer = pair.other.client.delete(f"/v1/operations/{id_}")
    assert answer.status_code == 202, answer.text
    last = follower.ended(30)
    assert (last["state"], last["error"]["code"]) == ("cancelled", "cancelled")
    for running in pair.both:
        assert running.operation(id_)["state"] == "cancelled"


async def test_an_operation_fails_with_its_replica(
    pair: Pair, project: Plumbing, upstream: Callable[..., Upstream]
) -> None:
    """The other one says so when the lease is over, and does the work when it is asked to."""
    grow(project, 1, 20_000_000)
    stalled = upstream(project.path.parent, faults=[Fault("POST .*/git-upload-pack", stall=10_000_000)])
    id_ = pair.one.begin(stalled.repo(NAME))
    assert settled(lambda: pair.other.operation(id_)["progress"]["phase"], "receiving", 20) == "receiving"
    follower = Follower(pair.other, id_)
    time.sleep(LEASE + 1)  # it lives, and says so though nothing comes
    assert pair.other.operation(id_)["state"] == "running"
    begun = time.monotonic()
    pair.one.kill()
    last = follower.ended(LEASE + SLACK)
    assert (last["state"], last["error"]["code"]) == ("failed", "lease_expired")
    assert time.monotonic() - begun < LEASE + SLACK
    assert pair.other.operation(id_) == last
    problem = pair.other.repo(NAME).problem("/log")
    assert (problem["code"], problem["operation"]) == ("not_ready", id_)
    assert (problem["operation_state"], problem["operation_error"]) == ("failed", "lease_expired")
    stalled.faults.clear()
    done = pair.other.repo(NAME).sync()
    assert (done["state"], done["generation"]) == ("succeeded", 2), done
    async with opened(pair.url) as backend:
        await is_whole(backend, project)
        await only_what_is_named(pair, backend)
        await is_whole(backend, project)
    assert pair.other.repo(NAME).json("/resolve", rev="main")["commit"] == tip(project)


def test_nothing_is_left_of_a_killed_replica(pair: Pair) -> None:
    """Workers and all other processes end with the service."""
    assert len(pair.one.kill()) > 2
