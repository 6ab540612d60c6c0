"""Ingests in processes of their own, and the operations that tell of them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio

from app.jobs import Jobs
from pack.errors import OperationNotFound, Overloaded, RepoNotFound
from storage.operations import CANCELLED, FAILED, QUEUED, RUNNING, SUCCEEDED, Operation
from tests.app.ingesting import NAME, OWNER, House, house, refs_of
from tests.support.git import Plumbing, init
from tests.support.upstream import Fault, Upstream

Serve = Callable[..., Upstream]


@pytest.fixture
def home(tmp_path: Path) -> House:
    return house(tmp_path / "store", ingests=1, ingest_queue=2, lease_seconds=3.0)


@pytest_asyncio.fixture
async def jobs(home: House) -> AsyncIterator[Jobs]:
    found = Jobs(home.backend, home.settings)
    await found.start()
    yield found
    await found.close()


@pytest.fixture
def project(tmp_path: Path) -> Plumbing:
    p = Plumbing(init(tmp_path / "up" / "project.git"))
    big = b"".join(b"%d %d\n" % (n, n * n * 7919) for n in range(50_000))
    p.ref("refs/heads/main", p.commit("one", p.file(b"a", big)))
    return p


@pytest.fixture
def stalled(project: Plumbing, upstream: Serve) -> Upstream:
    """An upstream that stops in the middle of its packs."""
    return upstream(project.path.parent, faults=[Fault("POST .*/git-upload-pack", stall=20_000)])


async def until(jobs: Jobs, operation: Operation, true: Callable[[Operation], bool]) -> Operation:
    async with asyncio.timeout(20):
        async with aclosing(jobs.watch(operation.id)) as states:
            async for state in states:
                if true(state):
                    return state
    raise AssertionError("it ended before")


def receiving(operation: Operation) -> bool:
    return operation.progress.phase == "receiving"


async def test_an_ingest(project: Plumbing, upstream: Serve, home: House, jobs: Jobs) -> None:
    await home.register(upstream(project.path.parent).repo("project"))
    operation = await jobs.start_ingest(OWNER, NAME)
    assert (operation.kind, operation.state) == ("ingest", QUEUED)
    ended = await jobs.wait(operation.id, 30)
    assert (ended.state, ended.generation, ended.error) == (SUCCEEDED, 2, None)
    assert ended.progress.objects == ended.progress.total_objects == 3
    assert ended.progress.bytes > 100_000
    assert await jobs.get(operation.id) == ended
    assert refs_of(home.git_dir) == refs_of(project.path)
    assert (await home.manifest()).operation == operation.id
    again = await jobs.start_ingest(OWNER, NAME)
    assert (again.kind, again.id != operation.id) == ("sync", True)
    ended = await jobs.wait(again.id, 30)
    assert (ended.state, ended.generation) == (SUCCEEDED, 2)
    assert jobs.running == 0
    described = await home.registry.describe(OWNER, NAME)
    assert described["operation"] == {"id": again.id, "state": SUCCEEDED}


async def test_a_failure_is_told(home: House, jobs: Jobs, upstream: Serve, tmp_path: Path) -> None:
    await home.register(upstream(tmp_path).repo("nothing"))
    operation = await jobs.wait((await jobs.start_ingest(OWNER, NAME)).id, 30)
    assert (operation.state, operation.generation) == (FAILED, None)
    assert operation.error is not None
    assert operation.error["code"] == "upstream_not_found"
    assert not (await home.manifest()).ready


async def test_no_such_things(jobs: Jobs) -> None:
    with pytest.raises(RepoNotFound):
        await jobs.start_ingest(OWNER, NAME)
    with pytest.raises(OperationNotFound):
        await jobs.get("0" * 31)
    with pytest.raises(OperationNotFound):
        await jobs.wait("0" * 31, 1)
    with pytest.raises(OperationNotFound):
        await jobs.cancel("0" * 31)
    with pytest.raises(OperationNotFound):
        await anext(jobs.watch("0" * 31))


async def test_watching(project: Plumbing, upstream: Serve, home: House, jobs: Jobs) -> None:
    """Here and at another replica: every state once, the last one an end."""
    await home.register(upstream(project.path.parent).repo("project"))
    operation = await jobs.start_ingest(OWNER, NAME)
    other = Jobs(home.backend, home.settings)

    async def all_of(where: Jobs) -> list[Operation]:
        return [state async for state in where.watch(operation.id)]

    here, there = await asyncio.gather(all_of(jobs), all_of(other))
    assert here[0].state == QUEUED
    assert here[-1].state == there[-1].state == SUCCEEDED
    assert [state.state for state in here] == sorted(
        (state.state for state in here), key=[QUEUED, RUNNING, SUCCEEDED].index
    )


@pytest.mark.parametrize("replica", [False, True])
async def test_cancelling(stalled: Upstream, home: House, jobs: Jobs, replica: bool) -> None:
    await home.register(stalled.repo("project"))
    operation = await jobs.start_ingest(OWNER, NAME)
    await until(jobs, operation, receiving)
    who = Jobs(home.backend, home.settings) if replica else jobs
    asked = await who.cancel(operation.id)
    assert asked.cancel_asked
    ended = await who.wait(operation.id, 20)
    assert ended.state == CANCELLED
    assert home.packs() == []
    assert not (await home.manifest()).ready
    assert (await who.cancel(operation.id)).state == CANCELLED


async def test_a_killed_process_is_a_failure_at_once(stalled: Upstream, home: House, jobs: Jobs) -> None:
    await home.register(stalled.repo("project"))
    operation = await jobs.start_ingest(OWNER, NAME)
    await until(jobs, operation, receiving)
    (child,) = ingest_processes()
    os.kill(child, signal.SIGKILL)
    ended = await jobs.wait(operation.id, 5)
    assert ended.state == FAILED
    assert ended.error is not None
    assert ended.error["code"] == "worker_lost"
    stalled.faults.clear()
    ended = await jobs.wait((await jobs.start_ingest(OWNER, NAME)).id, 30)
    assert ended.state == SUCCEEDED


def ingest_processes() -> list[int]:
    """Children of our fork server: in these tests only ingests."""
    from multiprocessing import forkserver

    server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == server and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


async def test_an_ingest_that_runs_is_joined(stalled: Upstream, project: Plumbing, home: House, jobs: Jobs) -> None:
    """And whoever joins it sees what was pushed before he asked."""
    await home.register(stalled.repo("project"))
    operation = await jobs.start_ingest(OWNER, NAME)
    await until(jobs, operation, receiving)
    stalled.faults.clear()
    project.ref("refs/heads/new", project.commit("new", project.file(b"n", b"n\n")))
    assert (await jobs.start_ingest(OWNER, NAME)).id == operation.id
    for connection in list(stalled.connections):
        connection.shutdown(2)  # the stalled answer breaks; the ingest begins again
    ended = await jobs.wait(operation.id, 30)
    assert ended.state == SUCCEEDED
    assert refs_of(home.git_dir) == refs_of(project.path)


async def test_ingests_take_turns_and_the_queue_is_bounded(stalled: Upstream, home: House, jobs: Jobs) -> None:
    operations = []
    for name in ("a", "b", "c", "d"):
        await home.registry.register(OWNER, name, stalled.repo("project"))
    for name in ("a", "b", "c"):
        operations.append(await jobs.start_ingest(OWNER, name))
    with pytest.raises(Overloaded):
        await jobs.start_ingest(OWNER, "d")
    await until(jobs, operations[0], receiving)
    await asyncio.sleep(4)  # longer than a lease: those that wait are alive
    for operation in operations[1:]:
        assert (await Jobs(home.backend, home.settings).get(operation.id)).state == QUEUED
    await jobs.cancel(operations[1].id)
    assert (await jobs.wait(operations[1].id, 5)).state == CANCELLED
    await jobs.cancel(operations[0].id)
    assert (await jobs.wait(operations[0].id, 20)).state == CANCELLED
    await until(jobs, operations[2], receiving)


async def test_stopping_the_service(stalled: Upstream, home: House) -> None:
    jobs = Jobs(home.backend, home.settings)
    await home.register(stalled.repo("project"))
    operation = await jobs.start_ingest(OWNER, NAME)
    await until(jobs, operation, receiving)
    await jobs.close()
    ended = await Jobs(home.backend, home.settings).get(operation.id)
    assert ended.state == FAILED
    assert ended.error is not None
    assert ended.error["code"] == "worker_lost"
    assert home.packs() == []
    assert ingest_processes() == []


async def test_upstreams_allowed_for_one_ingest(project: Plumbing, upstream: Serve, tmp_path: Path) -> None:
    home = house(tmp_path / "store")
    strict = home.settings.model_copy(update={"allow_upstreams": ()})
    server = upstream(project.path.parent)
    await home.register(server.repo("project"))
    jobs = Jobs(home.backend, strict)
    refused = await jobs.wait((await jobs.start_ingest(OWNER, NAME)).id, 30)
    assert refused.error is not None
    assert refused.error["code"] == "upstream_refused"
    allow = (f"127.0.0.1:{server.port}",)
    assert (await jobs.wait((await jobs.start_ingest(OWNER, NAME, allow=allow)).id, 30)).state == SUCCEEDED
    await jobs.close()


SERVICE = """
import asyncio, sys
from app.jobs import Jobs
from app.settings import Settings
from storage.open import open_backend

async def main(store):
    settings = Settings(store=store, allow_upstreams=("127.0.0.1",), lease_seconds=3)
    jobs = Jobs(open_backend(store), settings)
    operation = await jobs.start_ingest("team", "project")
    async for state in jobs.watch(operation.id):
        if state.progress.phase == "receiving":
            print(operation.id, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_when_the_service_is_killed_the_lease_tells(stalled: Upstream, home: House, jobs: Jobs) -> None:
    await home.register(stalled.repo("project"))
    command = [sys.executable, "-c", SERVICE, home.settings.store]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert service.stdout is not None
    id_ = (await asyncio.to_thread(service.stdout.readline)).decode().strip()
    assert (await jobs.get(id_)).state == RUNNING
    service.kill()
    await asyncio.to_thread(service.wait)
    service.stdout.close()
    ended = await jobs.wait(id_, 10)
    assert ended.state == FAILED
    assert ended.error is not None
    assert ended.error["code"] == "lease_expired"
    # The ingest itself has noticed, too, and taken back what it had.
    async with asyncio.timeout(10):
        while any(path.name.startswith("tmp_") for path in home.root.rglob("*")):
            await asyncio.sleep(0.05)
    assert home.packs() == []
    stalled.faults.clear()
    assert (await jobs.wait((await jobs.start_ingest(OWNER, NAME)).id, 30)).state == SUCCEEDED
