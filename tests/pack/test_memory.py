"""Memory does not grow with the pack, as seen from outside the process that reads it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

MB = 1 << 20


def peak(size: int) -> tuple[int, int, int]:
    """Peak resident bytes of a process that was fed a pack of about that size; the pack's bytes and entries."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.pack.flood", str(size)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    ) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        status = Path(f"/proc/{child.pid}/status").read_text()
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(60) == 0, line
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.M)
    assert found
    fed, entries = line.split()
    return int(found[1]) << 10, int(fed), int(entries)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_a_pack_of_1_gb() -> None:
    small, part, few = peak(100 * MB)
    large, fed, many = peak(1100 * MB)
    assert fed > 1000 * MB
    assert part < fed / 8
    assert large < 200 * MB
    # What it has more than the small one are columns: some 100 bytes an object while they are sorted.
    assert large - small < 30 * MB + 100 * (many - few)
