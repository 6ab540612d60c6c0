"""The processes that are measured or measured against, each started with its address and ended with its tree."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from bench.client import Address, Connection

PROCESSES = 2
HERE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Peer:
    """A running FastAPI + pygit2."""

    address: Address
    pid: int


class Service:
    """A running packhouse with a store of its own."""

    def __init__(self, address: Address, pid: int, store: str) -> None:
        self.address = address
        self.pid = pid
        self.store = store

    def base(self, name: str) -> str:
        return f"/v1/repos/bench/{name}"

    def put(self, name: str, url: str) -> None:
        """Register `url` and wait until it is ingested; RuntimeError where that fails."""
        self.call("PUT", f"{self.base(name)}?wait=300", json.dumps({"url": url}).encode())

    def settle(self, seconds: float = 120) -> None:
        """Wait until nothing is made in the background any more."""
        end = time.monotonic() + seconds
        used = processor_seconds(self.pid)
        while time.monotonic() < end:
            time.sleep(1)
            before, used = used, processor_seconds(self.pid)
            if used - before < 0.05:
                return

    def delete(self, name: str) -> None:
        self.call("DELETE", self.base(name))

    def call(self, method: str, target: str, body: bytes | None = None) -> bytes:
        address = f"http://{self.address.host}:{self.address.port}{target}"
        request = Request(address, body, {"Content-Type": "application/json"}, method=method)
        try:
            with urlopen(request, timeout=900) as answer:
                content: bytes = answer.read()
                state = json.loads(content).get("operation", {}).get("state") if content else None
                if answer.status == 202 or state == "failed":
                    raise RuntimeError(f"{method} {target}: {content[:500]!r}")
                return content
        except HTTPError as error:
            raise RuntimeError(f"{method} {target}: {error.status} {error.read()[:500]!r}") from None


@contextmanager
def service(store: str, processes: int = PROCESSES, **settings: str) -> Iterator[Service]:
    """`packhouse serve` on a free port over the store with that path or URL; `settings` are those of the environment,
    in lower case.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PACKHOUSE_")}
    # Compiled once, as where it is installed; else the first requests would wait for that.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(HERE / ".packhouse" / "bench" / "compiled")
    environment["PACKHOUSE_ALLOW_UPSTREAMS"] = "127.0.0.1"
    environment["PACKHOUSE_WORKERS"] = str(processes)
    environment |= {f"PACKHOUSE_{name.upper()}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "app.cli", "serve", "--port", "0", "--store", store]
    with _child(command, environment) as (process, line):
        # The URL of the store may hold another address before it.
        found = re.findall(r"http://([\d.]+):(\d+)", line)
        if not found:
            raise RuntimeError(f"the service did not start: {line}")
        address = Address(found[-1][0], int(found[-1][1]))
        _wait(address)
        try:
            Connection(address).get("/readyz")
        except (OSError, IndexError):
            raise RuntimeError(f"the service ended with {process.wait(15)} as it started") from None
        yield Service(address, process.pid, store)


@contextmanager
def static(root: Path) -> Iterator[Peer | None]:
    """nginx over the files below `root`, None where it is not installed: how quick it could be at all."""
    program = shutil.which("nginx")
    if program is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="bench-nginx-") as folder:
        port = _free_port()
        paths = "".join(
            f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        Path(folder, "nginx.conf").write_text(
            f"daemon off; worker_processes {PROCESSES}; pid {folder}/pid; error_log {folder}/log;\n"
            f"events {{}} http {{ access_log off; keepalive_requests 1000000; {paths}\n"
            f"server {{ listen 127.0.0.1:{port}; root {root}; }} }}\n"
        )
        command = [program, "-p", folder, "-c", f"{folder}/nginx.conf", "-e", f"{folder}/log"]
        with _child(command, os.environ, says=False) as (process, _):
            address = Address("127.0.0.1", port)
            _wait(address)
            yield Peer(address, process.pid)


@contextmanager
def peer(root: Path, processes: int = PROCESSES) -> Iterator[Peer]:
    """FastAPI + pygit2 over the bare repositories below `root`."""
    port = _free_port()
    command = [sys.executable, "-m", "uvicorn", "bench.peer:app", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", str(processes), "--log-level", "error", "--no-access-log"]
    with _child(command, {**os.environ, "GIT_ROOT": str(root)}, says=False) as (process, _):
        address = Address("127.0.0.1", port)
        _wait(address)
        yield Peer(address, process.pid)


@contextmanager
def git_server(root: Path) -> Iterator[str]:
    """The URL of a git server over the bare repositories below `root`."""
    with _child([sys.executable, "-m", "bench.gitserver", str(root)], dict(os.environ)) as (_, line):
        yield line.strip()


@contextmanager
def _child(
    command: Sequence[str], environment: Mapping[str, str], *, says: bool = True
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process group and the first line that it prints, where it prints one."""
    stdout = subprocess.PIPE if says else subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=stdout, env=environment, process_group=0, cwd=HERE)
    try:
        yield process, process.stdout.readline().decode() if process.stdout is not None else ""
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(15)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(address: Address, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((address.host, address.port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise RuntimeError(f"nothing listens on port {address.port}") from None
            time.sleep(0.05)


def descendants(pid: int) -> set[int]:
    """All processes below `pid`."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found: set[int] = set()
    pending = [pid]
    while pending:
        below = children.get(pending.pop(), [])
        found.update(below)
        pending += below
    return found


def processor_seconds(pid: int) -> float:
    """User and system time so far of a process and of all below it that are alive."""
    ticks = 0
    for each in (pid, *descendants(pid)):
        with contextlib.suppress(OSError, IndexError):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def peak(pid: int) -> int:
    """Peak resident bytes of a process, 0 where it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
