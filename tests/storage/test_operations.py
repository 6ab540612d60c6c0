from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pack.errors import OperationNotFound
from storage.backend import Backend
from storage.operations import Operations, Progress


class Counting:
    """Counts the writes of a backend."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.puts = 0

    async def put(self, key: str, data: bytes) -> None:
        self.puts += 1
        await self.backend.put(key, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)


async def test_a_life(backend: Backend) -> None:
    here, elsewhere = Operations(backend), Operations(backend)
    operation = await here.create("ingest", "owner", "name")
    assert (operation.state, operation.ended) == ("queued", False)
    assert await elsewhere.get(operation.id) == operation
    assert await elsewhere.last("owner", "name") == operation
    assert await elsewhere.last("owner", "other") is None
    progress = Progress("receiving", 10, 100, 4096)
    await here.progress(operation.id, progress)
    seen = await elsewhere.get(operation.id)
    assert (seen.state, seen.progress) == ("running", progress)
    assert seen.started is not None
    done = await here.finish(operation.id, "succeeded", generation=2)
    assert await elsewhere.get(operation.id) == done
    assert (done.state, done.generation, done.progress) == ("succeeded", 2, progress)
    assert done.finished is not None


async def test_progress_is_written_once_a_second(backend: Backend) -> None:
    counting: Any = Counting(backend)
    operations = Operations(counting)
    operation = await operations.create("sync", "owner", "name")
    counting.puts = 0
    for number in range(100):
        seen = await operations.progress(operation.id, Progress("receiving", number))
        assert seen.progress.objects == number
    assert counting.puts == 1
    await operations.progress(operation.id, Progress("indexing", 100), now=True)
    assert counting.puts == 2
    assert (await operations.get(operation.id)).progress.phase == "indexing"


async def test_a_silent_one_has_failed_and_stays_so(backend: Backend) -> None:
    runner, looker = Operations(backend, lease_seconds=0.05), Operations(backend)
    operation = await runner.create("ingest", "owner", "name")
    await runner.progress(operation.id, Progress("receiving", 1))
    await asyncio.sleep(0.1)
    seen = await looker.get(operation.id)
    assert seen.state == "failed"
    assert seen.error is not None
    assert seen.error["code"] == "lease_expired"
    # The runner comes back: too late.
    await runner.progress(operation.id, Progress("receiving", 2), now=True)
    assert (await looker.get(operation.id)).state == "failed"
    assert (await runner.finish(operation.id, "succeeded", generation=3)).state == "failed"
    assert (await looker.get(operation.id)) == seen


async def test_a_queued_one_that_nobody_starts_fails(backend: Backend) -> None:
    operations = Operations(backend, lease_seconds=0)
    operation = await operations.create("ingest", "owner", "name")
    assert (await operations.get(operation.id)).state == "failed"


async def test_cancelling(backend: Backend) -> None:
    here, elsewhere = Operations(backend), Operations(backend)
    operation = await here.create("ingest", "owner", "name")
    assert not await here.cancel_asked(operation.id)
    assert (await elsewhere.cancel(operation.id)).cancel_asked
    await elsewhere.cancel(operation.id)
    assert await here.cancel_asked(operation.id)
    assert (await elsewhere.get(operation.id)).state == "queued"
    assert (await here.finish(operation.id, "cancelled")).state == "cancelled"
    assert (await elsewhere.cancel(operation.id)).state == "cancelled"
    assert (await here.finish(operation.id, "failed", error={"code": "x"})).state == "cancelled"


async def test_ends_are_final_in_a_race(backend: Backend) -> None:
    operations = [Operations(backend) for _ in range(6)]
    operation = await operations[0].create("ingest", "owner", "name")
    states = ["succeeded", "failed", "cancelled"] * 2
    ends = await asyncio.gather(
        *(each.finish(operation.id, state) for each, state in zip(operations, states, strict=True))
    )
    assert len({end.state for end in ends}) == 1
    with pytest.raises(ValueError, match="running"):
        await operations[0].finish(operation.id, "running")


async def test_list_and_last(backend: Backend) -> None:
    operations = Operations(backend)
    made = []
    for name in ("a", "b", "a"):
        made.append(await operations.create("sync", "owner", name))
        await asyncio.sleep(0.002)
    await operations.cancel(made[0].id)
    await operations.finish(made[1].id, "succeeded")
    assert [operation.id async for operation in operations.list()] == [operation.id for operation in made]
    assert [operation.id async for operation in operations.list(made[0].id)] == [made[1].id, made[2].id]
    last = await operations.last("owner", "a")
    assert last is not None
    assert last.id == made[2].id


@pytest.mark.parametrize("id_", ["", "x", "../../etc/passwd", "0" * 41, "0123456789abcdef.end", "0123456789abcdef"])
async def test_unknown_ones(backend: Backend, id_: str) -> None:
    operations = Operations(backend)
    for call in (
        operations.get(id_),
        operations.cancel(id_),
        operations.progress(id_),
        operations.finish(id_, "failed"),
    ):
        with pytest.raises(OperationNotFound):
            await call
