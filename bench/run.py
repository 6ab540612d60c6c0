"""Running processes and measuring them as the operating system accounts for them."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

GIT_ENV = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
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


def spawned(argv: Sequence[str], good: Sequence[int] = (0,)) -> tuple[float, bytes]:
    """Seconds from starting a command to having all of its output, and the output; RuntimeError when its code is not
    `good`.

    Started by posix_spawn itself: the subprocess module would add up to a millisecond to what is git's.
    """
    program, null = _program(argv[0]), _null()
    started = time.perf_counter()
    reading, writing = os.pipe()
    actions = [
        (os.POSIX_SPAWN_DUP2, null, 0),
        (os.POSIX_SPAWN_DUP2, writing, 1),
        (os.POSIX_SPAWN_DUP2, null, 2),
        (os.POSIX_SPAWN_CLOSE, reading),
    ]
    pid = os.posix_spawn(program, list(argv), GIT_ENV, file_actions=actions)
    os.close(writing)
    pieces = []
    while piece := os.read(reading, 1 << 20):
        pieces.append(piece)
    _, status = os.waitpid(pid, 0)
    seconds = time.perf_counter() - started
    os.close(reading)
    if os.waitstatus_to_exitcode(status) not in good:
        raise RuntimeError(f"{' '.join(argv)} failed with {os.waitstatus_to_exitcode(status)}")
    return seconds, b"".join(pieces)


def git(repo: str | os.PathLike[str], *arguments: str, stdin: bytes | None = None) -> bytes:
    """The output of a git command that is not measured; RuntimeError when it fails."""
    done = subprocess.run(["git", "-C", str(repo), *arguments], input=stdin, capture_output=True, env=GIT_ENV)
    if done.returncode:
        raise RuntimeError(f"git {' '.join(arguments)}: {done.stderr.decode(errors='replace')[:500]}")
    return done.stdout


@cache
def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is not installed")
    return found


@cache
def _null() -> int:
    return os.open(os.devnull, os.O_RDWR)
