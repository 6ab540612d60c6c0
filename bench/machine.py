"""What a run ran on: processor, memory, and the versions of all that takes part."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

from bench.run import GIT_ENV, spawned

PACKAGES = ("fastapi", "uvicorn", "uvloop", "httptools", "orjson", "zlib-ng", "dulwich", "google-re2", "pygit2")
TOOLS = ("wrk", "nginx", "rg")
HERE = Path(__file__).parents[1]


def machine() -> list[str]:
    """Lines of a list."""
    cpu = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "")
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    git = spawned(["git", "--version"])[1].decode().split()[2]
    found = [tool for tool in TOOLS if shutil.which(tool)]
    client = "wrk" if "wrk" in found else "a loop of our own in Python"
    return [
        f"- Machine: {os.cpu_count()} × {cpu or platform.processor()}, {memory / (1 << 20):.0f} GB, "
        f"{platform.system()} {platform.release()}; load when it began {os.getloadavg()[0]:.1f}"
        f"{_favour()}",
        f"- Versions: packhouse {_revision()}, git {git}, Python {sys.version.split()[0]}, "
        + ", ".join(f"{package} {version(package)}" for package in PACKAGES),
        f"- Requests a second are counted by {client}; latencies by one kept-alive raw socket",
    ]


def _revision() -> str:
    """The version, and the commit where this is a checkout."""
    import subprocess

    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--exclude=*"]
    found = subprocess.run(command, capture_output=True, text=True, env=GIT_ENV)
    commit = f" ({found.stdout.strip()})" if found.returncode == 0 else ""
    return version("packhouse") + commit


def _favour() -> str:
    """What the scheduler was told about us and all that we start, where it was told anything."""
    for line in _lines("/proc/self/autogroup"):
        level = int(line.rpartition(" ")[2])
        if level:
            return f"; others were at work on it, and this run's scheduling group had nice {level}"
    return ""


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
