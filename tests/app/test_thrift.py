"""What is freed goes back to the system."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from app.thrift import be_thrifty, give_back

THREADS = 6
together = Barrier(THREADS)

def resident():
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0]) >> 10

def part(_):
    for size in range(1, 9):
        block = bytes([1]) * (size << 20)
        together.wait()
        del block

be_thrifty()
with ThreadPoolExecutor(THREADS) as threads:
    list(threads.map(lambda _: None, range(THREADS)))
    before = resident()
    list(threads.map(part, range(THREADS)))
    after = resident()
    many = [bytes(1000) for _ in range(50_000)]
    del many[:-1]
    kept = resident()
    give_back()
    print(after - before, kept - resident())
"""


def run() -> tuple[int, int]:
    """Megabytes that stay when parts have been sent; those that come back of many small blocks, the last one kept."""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=root, capture_output=True, check=True)
    stays, back = done.stdout.split()
    return int(stays), int(back)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about the C library of GNU")
def test_memory_goes_back() -> None:
    stays, back = run()
    assert stays <= 4
    assert back >= 30
