"""Running processes and measuring them as the operating system accounts for them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

GIT_ENV = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C.UTF-8",
}


@dataclass(frozen=True)
class Usage:
    """Seconds of wall time and of user and system time, and the peak resident set in bytes (largest single process)."""

    wall: float
    cpu: float
    rss: int


def measured(argv: Sequence[str], *, stdout: int = subprocess.DEVNULL, env: dict[str, str] | None = None) -> Usage:
    """Run to the end; RuntimeError when it fails."""
    started = time.perf_counter()
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.DEVNULL, env=env or GIT_ENV
    )
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{argv[0]} … exited with {process.returncode}")
    return Usage(wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def spawned(argv: Sequence[str]) -> float:
    """Seconds from starting a command to having all of its output."""
    started = time.perf_counter()
    subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=True, env=GIT_ENV)
    return time.perf_counter() - started
