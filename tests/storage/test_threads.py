"""Threads for calls that may hang."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.threads import Threads, step


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads("test", 2)
    yield made
    made.close()


async def test_results_and_errors_arrive(threads: Threads) -> None:
    assert await threads.run(5, divmod, 7, 2) == (3, 1)
    with pytest.raises(KeyError):
        await threads.run(5, {}.__getitem__, "x")
    assert await asyncio.gather(*(threads.run(5, pow, 2, number) for number in range(50))) == [2**n for n in range(50)]
    assert threads.busy == 0


class _SlowLock:
    """Threads of the pool get it late."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.05)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


async def test_who_has_the_result_finds_the_thread_free(threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_lock", _SlowLock())
    assert await threads.run(5, divmod, 7, 2) == (3, 1)
    assert threads.busy == 0


async def test_no_more_than_so_many_at_once(threads: Threads) -> None:
    running = most = 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1

    await asyncio.gather(*(threads.run(5, work) for _ in range(8)))
    assert most == 2


async def test_what_hangs_is_given_up_and_goes_no_further(threads: Threads) -> None:
    go_on = threading.Event()
    seen: list[str] = []

    def work() -> None:
        step()
        seen.append("first")
        go_on.wait()
        try:
            step()
            seen.append("second")
        except TimeoutError:
            seen.append("given up")

    with pytest.raises(TimeoutError):
        await threads.run(0.5, work)
    go_on.set()
    while threads.busy:
        await asyncio.sleep(0.01)
    assert seen == ["first", "given up"]
    assert await threads.run(5, len, "abc") == 3


async def test_what_goes_on_is_waited_for(threads: Threads) -> None:
    def work() -> int:
        for _ in range(10):
            step()
            time.sleep(0.1)
        return 1

    assert await threads.run(0.6, work) == 1


async def test_what_waits_too_long_is_never_begun(threads: Threads) -> None:
    go_on = threading.Event()
    begun: list[int] = []
    held = [asyncio.ensure_future(threads.run(5, go_on.wait)) for _ in range(2)]
    await asyncio.sleep(0.05)
    with pytest.raises(TimeoutError):
        await threads.run(0.1, begun.append, 1)
    unwanted = asyncio.ensure_future(threads.run(5, begun.append, 2))
    await asyncio.sleep(0.01)
    unwanted.cancel()
    await asyncio.wait({unwanted})
    go_on.set()
    await asyncio.gather(*held)
    assert await threads.run(5, len, "") == 0
    assert begun == []


def test_a_process_ends_while_a_thread_hangs() -> None:
    code = (
        "import asyncio, time\n"
        "from storage.threads import Threads\n"
        "async def main():\n"
        "    try: await Threads('x', 1).run(0.1, time.sleep, 60)\n"
        "    except TimeoutError: print('late')\n"
        "asyncio.run(main())"
    )
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, b"late\n"), done.stderr
    assert time.monotonic() - begun < 20
