"""Short turns on the processor: of the thread that asks, and of nobody it starts."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading

import pytest

from app.turns import TURN, take_short_turns, turn


def _linux() -> tuple[int, ...]:
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in platform.release().split(".")[:2])


def _in_a_process(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return run.stdout.strip()


@pytest.mark.skipif(sys.platform != "linux" or _linux() < (6, 12), reason="Linux grants short turns since 6.12")
def test_a_thread_gets_short_turns_and_its_children_do_not() -> None:
    found: list[object] = []

    def work() -> None:
        before = turn()
        found.extend((take_short_turns(), turn() == TURN))
        inner = threading.Thread(target=lambda: found.append(turn() == before))
        inner.start()
        inner.join()
        child = os.fork()
        if child == 0:
            os._exit(0 if turn() == before else 1)
        found.append(os.waitpid(child, 0)[1] == 0)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [True, True, True, True]


def test_niceness_stays() -> None:
    said = _in_a_process(
        "import os; os.nice(3)\nfrom app.turns import take_short_turns\ntake_short_turns(); print(os.nice(0))"
    )
    assert said == "3"


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    assert take_short_turns() is False
    assert turn() is None
