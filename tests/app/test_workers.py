"""The pool of read processes, with real processes."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from app.worker import WINDOW
from app.workers import Pool
from pack.errors import BadParameter, DeadlineExceeded, Overloaded, PackhouseError, WorkerLost

F = "tests.app.functions:"


@pytest_asyncio.fixture
async def pool() -> AsyncIterator[Pool]:
    async with Pool(2, grace=2.0) as found:
        yield found


@pytest_asyncio.fixture
async def one() -> AsyncIterator[Pool]:
    async with Pool(1, grace=2.0, queue=3) as found:
        yield found


async def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.01)


async def test_calls(pool: Pool) -> None:
    assert await pool.run(F + "add", 1, 2) == 3
    assert await asyncio.gather(*(pool.run(F + "add", n, n) for n in range(50))) == [2 * n for n in range(50)]
    assert len(await pool.run(F + "big", 5 << 20)) == 5 << 20
    assert await pool.run(F + "niceness") >= 10


async def test_an_empty_call_is_quick(pool: Pool) -> None:
    for _ in range(50):
        await pool.run(F + "add", 1, 2)
    times = []
    for _ in range(300):
        begun = time.perf_counter()
        await pool.run(F + "add", 1, 2)
        times.append(time.perf_counter() - begun)
    assert sorted(times)[30] < 0.0015  # 0.05 ms alone; the machine of a test is shared


async def test_our_errors_come_whole_and_others_say_nothing(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(BadParameter) as told:
        await pool.run(F + "refuse")
    assert (told.value.parameter, told.value.extra) == ("thing", {"hint": 3})
    with pytest.raises(PackhouseError) as hidden:
        await pool.run(F + "fail")
    assert type(hidden.value) is PackhouseError
    assert "not for the outside" not in hidden.value.detail
    assert "not for the outside" in caplog.text


async def test_need_crosses_the_border(pool: Pool) -> None:
    from pack.reader import Need

    with pytest.raises(Need) as told:
        await pool.run(F + "need")
    assert told.value.ranges == [("pack-1.pack", 5, 7)]


async def test_a_missing_function_is_an_internal_error(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(PackhouseError):
        await pool.run(F + "nothing_of_that_name")
    with pytest.raises(PackhouseError):
        await pool.run("no.such.module:f")
    assert await pool.run(F + "add", 1, 1) == 2
    assert "no.such.module" in caplog.text


async def test_a_dead_worker_fails_its_request_and_is_replaced(one: Pool) -> None:
    with pytest.raises(WorkerLost):
        await one.run(F + "die")
    assert await one.run(F + "add", 2, 2) == 4
    os.kill(await one.run(F + "pid"), signal.SIGKILL)
    await until(lambda: one.restarts == 2 and len(one.workers) == 1)
    assert await one.run(F + "add", 2, 2) == 4


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_request_that_no_worker_took_up_goes_to_another(pool: Pool, streamed: bool) -> None:
    """All workers die with requests before them that they have not read, or before the loop knows of it."""

    async def ask() -> int:
        return len(await collect(pool.stream(F + "rows", 3))) and 3 if streamed else await pool.run(F + "add", 1, 2)

    for stopped in (True, False):
        pids = [worker.process.pid for worker in pool.workers if worker.process is not None]
        assert len(pids) == 2
        for pid in pids:
            os.kill(pid, signal.SIGSTOP if stopped else signal.SIGKILL)
        asked = [asyncio.ensure_future(ask()) for _ in range(6)]
        await asyncio.sleep(0.05 if stopped else 0)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        assert await asyncio.gather(*asked) == [3] * 6
        await until(lambda: len(pool.workers) == 2)
    assert pool.restarts == 4


async def test_a_request_that_kills_its_worker_kills_no_other(pool: Pool) -> None:
    for number in range(1, 4):
        with pytest.raises(WorkerLost):
            await pool.run(F + "die")
        await until(lambda: len(pool.workers) == 2)
        assert pool.restarts == number


async def test_a_deadline_costs_the_process(one: Pool) -> None:
    before = await one.run(F + "pid")
    begun = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        await one.run(F + "sleep", 30, deadline=0.3)
    assert time.monotonic() - begun < 5
    assert await one.run(F + "pid") != before


async def test_a_cancelled_call_is_ended_after_the_grace(one: Pool) -> None:
    before = await one.run(F + "pid")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await one.run(F + "sleep", 30)
    assert await one.run(F + "pid") != before


async def test_a_reader_who_leaves_costs_no_other_his_stream(one: Pool) -> None:
    """The call of the one who left goes on to its own end, for the sake of a slow reader's stream in that process."""
    before = await one.run(F + "pid")
    one.grace = 0.1
    async with one.stream(F + "blocks", 3 * WINDOW >> 10, 1024) as slow:
        assert await anext(slow)
        await until(lambda: one.busy == 0)
        for _ in range(2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await one.run(F + "sleep", 0.6)
        assert sum([len(piece) async for piece in slow]) > 2 * WINDOW
    assert await one.run(F + "pid") == before


async def test_the_queue_is_bounded(one: Pool) -> None:
    calls = [asyncio.ensure_future(one.run(F + "sleep", 0.2)) for _ in range(4)]
    await asyncio.sleep(0)
    assert one.waiting == 3
    with pytest.raises(Overloaded) as told:
        await one.run(F + "add", 1, 1)
    assert told.value.retry_after
    with pytest.raises(Overloaded):
        await anext(one.stream(F + "rows", 1))
    assert len(await asyncio.gather(*calls)) == 4


async def test_nobody_waits_for_ever(one: Pool) -> None:
    one.patience = 0.1
    blocker = asyncio.ensure_future(one.run(F + "sleep", 0.5))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await one.run(F + "add", 1, 1)
    with pytest.raises(Overloaded):
        await anext(one.stream(F + "rows", 1))
    await blocker
    assert one.waiting == 0
    assert await one.run(F + "add", 1, 1) == 2


async def test_workers_are_prepared() -> None:
    async with Pool(1, prepare=(F + "prepare", {"number": 5})) as pool:
        assert await pool.run(F + "prepared") == [5]


async def test_keys_take_turns(one: Pool) -> None:
    done: list[str] = []

    async def call(key: str) -> None:
        await one.run(F + "sleep", 0.02, key=key)
        done.append(key)

    blocker = asyncio.ensure_future(call("first"))
    await asyncio.sleep(0)
    one.queue = 100
    await asyncio.gather(*(call("busy") for _ in range(10)), call("other"), blocker)
    assert done.index("other") <= 3


async def test_a_cancelled_waiter_leaves_the_queue(one: Pool) -> None:
    blocker = asyncio.ensure_future(one.run(F + "sleep", 0.2))
    await asyncio.sleep(0)
    waiter = asyncio.ensure_future(one.run(F + "add", 1, 1))
    await asyncio.sleep(0)
    assert one.waiting == 1
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    assert one.waiting == 0
    await blocker


async def collect(stream: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in stream]


async def test_streams(pool: Pool) -> None:
    chunks = await collect(pool.stream(F + "rows", 10_000))
    text = b"".join(chunks)
    assert text.count(b"\n") == 10_000
    assert chunks[0].count(b"\n") == 1  # the first item goes out at once, and alone
    assert len(chunks) < 2_000
    assert await collect(pool.stream(F + "rows", 0)) == []


async def test_other_items_come_one_by_one(pool: Pool) -> None:
    items = await collect(pool.stream(F + "mixed"))
    assert items[0] == {"head": 1}
    assert items[-1] == ("tail", 2)
    assert b"".join(items[1:-1]) == b"ab"


async def test_a_stream_that_breaks(pool: Pool) -> None:
    got = 0
    with pytest.raises(BadParameter):
        async for chunk in pool.stream(F + "breaks", 100):
            got += len(chunk)
    assert got == 100_000
    with pytest.raises(WorkerLost):
        await collect(pool.stream(F + "dies", 100))
    assert await pool.run(F + "add", 1, 1) == 2


async def test_back_pressure(one: Pool, tmp_path: Path) -> None:
    note = tmp_path / "count"
    stream = one.stream(F + "counted", str(note), 1000, 64 << 10)
    await anext(stream)
    await asyncio.sleep(0.3)
    made = int(note.read_text())
    assert made * (64 << 10) <= WINDOW + (2 << 16)
    for _ in range(30):
        await anext(stream)
    assert int(note.read_text()) > made
    await stream.aclose()
    await until((tmp_path / "count.closed").exists)


async def test_slow_readers_hold_no_worker(one: Pool, tmp_path: Path) -> None:
    """Twenty readers that read nothing more, and the one worker still answers."""
    streams = [one.stream(F + "blocks", 1000, 64 << 10) for _ in range(20)]
    for stream in streams:
        await anext(stream)
    async with asyncio.timeout(10):
        assert await one.run(F + "add", 1, 1) == 2
    assert one.restarts == 0
    # All of them can be read to the end afterwards.
    for stream in streams[:3]:
        assert [int.from_bytes(block[:4], "big") for block in await blocks(stream)] == list(range(1, 1000))
    for stream in streams:
        await stream.aclose()


async def blocks(stream: AsyncIterator[bytes]) -> list[bytes]:
    data = b"".join(await collect(stream))
    return [data[at : at + (64 << 10)] for at in range(0, len(data), 64 << 10)]


@pytest.mark.parametrize("how", ["close", "cancel", "drop"])
async def test_readers_that_leave(one: Pool, tmp_path: Path, how: str) -> None:
    note = tmp_path / "count"
    stream = one.stream(F + "counted", str(note), 10_000, 64 << 10)
    await anext(stream)
    if how == "close":
        await stream.aclose()
    elif how == "cancel":
        for _ in range(5):
            await anext(stream)
        reading = asyncio.ensure_future(collect(stream))
        await asyncio.sleep(0.01)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        del reading
    del stream
    gc.collect()
    await until((tmp_path / "count.closed").exists)
    await until(lambda: one.busy == 0 and not one.workers[0].requests)
    assert one.restarts == 0


async def test_a_stream_that_does_not_listen_is_killed(one: Pool) -> None:
    stream = one.stream(F + "slowly", 3, 30)
    reading = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0.1)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    async with asyncio.timeout(10):
        assert await one.run(F + "add", 1, 1) == 2
    assert one.restarts == 1


async def test_deadlines_of_streams(one: Pool) -> None:
    with pytest.raises(DeadlineExceeded):  # between items: the worker lives on
        await collect(one.stream(F + "slowly", 100, 0.05, deadline=0.2))
    assert one.restarts == 0
    with pytest.raises(DeadlineExceeded):  # within one
        await collect(one.stream(F + "slowly", 1, 60, deadline=0.2))
    await until(lambda: one.restarts == 1)


async def test_the_longest_life_of_a_stream() -> None:
    async with Pool(1, grace=0.2, lifetime=0.5, deadline=0.2) as pool:
        stream = pool.stream(F + "blocks", 1000, 64 << 10)
        await anext(stream)
        await asyncio.sleep(1.2)
        with pytest.raises(DeadlineExceeded):
            await collect(stream)
        assert await pool.run(F + "add", 1, 1) == 2
        assert pool.restarts == 0


async def test_a_worker_that_grows_is_replaced() -> None:
    async with Pool(1, max_bytes=150 << 20) as pool:
        before = await pool.run(F + "keep", 1 << 20)
        assert await pool.run(F + "pid") == before
        assert await pool.run(F + "keep", 150 << 20) == before
        assert await pool.run(F + "pid") != before


async def test_closing_ends_everything() -> None:
    pool = Pool(1)
    await pool.start()
    pid = await pool.run(F + "pid")
    running = asyncio.ensure_future(pool.run(F + "sleep", 60))
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(pool.run(F + "add", 1, 1))
    await asyncio.sleep(0.05)
    await pool.close()
    for each in (running, waiting):
        with pytest.raises(WorkerLost):
            await each
    with pytest.raises(WorkerLost):
        await pool.run(F + "add", 1, 1)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_without_a_parent_workers_end() -> None:
    """A service that is killed leaves nobody behind, not even a worker that is busy."""
    import subprocess
    import sys

    code = (
        "import asyncio\n"
        "from app.workers import Pool\n"
        "async def main():\n"
        "    pool = Pool(1)\n"
        "    await pool.start()\n"
        "    print(await pool.run('tests.app.functions:pid'), flush=True)\n"
        "    await pool.run('tests.app.functions:sleep', 60)\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert parent.stdout is not None
    pid = int(await asyncio.to_thread(parent.stdout.readline))
    parent.kill()
    await asyncio.to_thread(parent.wait)
    parent.stdout.close()
    await until(lambda: not _alive(pid))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
