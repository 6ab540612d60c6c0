"""A real service on a port of its own, its store in a temporary folder, and clients that ask it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

import httpx
import orjson

from app.ingest import ingest
from app.registry import Registry
from app.settings import Settings
from app.source import local
from storage.open import open_backend, prepare
from storage.repository import Repositories
from tests.support.processes import family, niceness

OWNER = "tests"


def bring(store: Path | str, name: str, path: Path) -> int:
    """Ingest a local repository into the store as `tests/{name}`; its generation."""

    async def run() -> int:
        settings = Settings(store=str(store))
        backend = open_backend(settings.store)
        try:
            await prepare(backend)
            await Registry(backend, Repositories(backend), settings).register_local(OWNER, name, path.as_uri())
            async with local(path) as source:
                return (await ingest(backend, OWNER, name, source)).generation
        finally:
            await backend.close()

    return asyncio.run(run())


class Running:
    """`packhouse serve` as a child process; `url` is where it answers, `pid` its process.

    `store` is its folder, beside which its log lies; `at` is the URL of a store that is none.
    """

    def __init__(self, store: Path, *, at: str | None = None, **settings: str) -> None:
        self.store = store
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PACKHOUSE_")}
        environment |= {f"PACKHOUSE_{name.upper()}": value for name, value in settings.items()}
        command = [sys.executable, "-m", "app.cli", "serve", "--port", "0", "--store", at or str(store)]
        self.log = store.parent / f"{store.name}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, env=environment, start_new_session=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        found = re.search(r"(?<!endpoint=)http://[\w.:]+", line)
        assert found is not None, f"{line!r}: {self.log.read_text()}"
        self.url = found[0]
        self.pid = self._process.pid
        self.client = httpx.Client(base_url=self.url, timeout=60)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.client.close()
        os.kill(self.pid, number)
        code = self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def repo(self, name: str) -> Repo:
        return Repo(self.client, name)


@contextlib.contextmanager
def serving(store: Path, **settings: str) -> Iterator[Running]:
    """One that ends with the block."""
    running = Running(store, **settings)
    try:
        yield running
    finally:
        running.stop()


def kill_workers(running: Running) -> None:
    """Kill all processes of a service that read, and all that ingest."""
    for pid in family(running.pid):
        if niceness(pid) > 0:
            os.kill(pid, signal.SIGKILL)


def narrow(url: str) -> httpx.Client:
    """A client whose system takes in little ahead of it: left alone, one of a slow reader grows to tens of megabytes,
    and what it has taken in has been served.
    """
    option = (socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
    return httpx.Client(base_url=url, timeout=60, transport=httpx.HTTPTransport(socket_options=[option]))


class Repo:
    """Requests to one repository. Values of parameters are str, bytes, bool, int or sequences of them."""

    def __init__(self, client: httpx.Client, name: str, owner: str = OWNER) -> None:
        self.client = client
        self.base = f"/v1/repos/{owner}/{name}"

    def ask(self, path: str, /, accept: str = "application/json", method: str = "GET", **params: Any) -> httpx.Response:
        headers = {"Accept": accept} | params.pop("headers", {})
        return self.client.request(method, f"{self.base}{path}?{query(params)}", headers=headers)

    def json(self, path: str, /, **params: Any) -> dict[str, Any]:
        """The document of an answer that must be 200."""
        answer = self.ask(path, **params)
        assert answer.status_code == 200, answer.text
        return dict(orjson.loads(answer.content))

    def put(self, url: str, *, wait: int = 60, replace: bool = False, **body: Any) -> dict[str, Any]:
        """Register an upstream and ingest it: the operation, when it has ended."""
        answer = self.client.put(f"{self.base}?{query({'wait': wait, 'replace': replace})}", json={"url": url, **body})
        assert answer.status_code == 200, answer.text
        return dict(orjson.loads(answer.content)["operation"])

    def sync(self, wait: int = 60) -> dict[str, Any]:
        """Fetch what is new upstream: the operation, when it has ended."""
        answer = self.client.post(f"{self.base}/sync?wait={wait}")
        assert answer.status_code == 200, answer.text
        return dict(orjson.loads(answer.content)["operation"])

    def problem(self, path: str, /, **params: Any) -> dict[str, Any]:
        """The problem document of an answer that must be an error."""
        answer = self.ask(path, **params)
        assert answer.status_code >= 400, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        document = dict(orjson.loads(answer.content))
        assert document["status"] == answer.status_code
        return document

    def pages(self, path: str, key: str, /, **params: Any) -> list[dict[str, Any]]:
        """All records of a list, by following cursors; only the last page may be complete."""
        records: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            page = self.json(path, **params, **cursor)
            records += page[key]
            if page["next_cursor"] is None:
                return records
            assert page["complete"] is False
            cursor = {"cursor": page["next_cursor"]}

    def stream(self, path: str, /, **params: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The records of a list as NDJSON, and its end record."""
        answer = self.ask(path, accept="application/x-ndjson", **params)
        assert answer.status_code == 200, answer.text
        lines = [orjson.loads(line) for line in answer.content.splitlines()]
        assert lines[-1]["end"] is True
        return lines[:-1], lines[-1]


def query(params: dict[str, Any]) -> str:
    """A query string; bytes are percent-encoded as they are."""
    pairs = []
    for name, value in params.items():
        values: Sequence[Any] = value if isinstance(value, (list, tuple)) else (value,)
        for one in values:
            if one is None:
                continue
            raw = one if isinstance(one, bytes) else (str(one).lower() if isinstance(one, bool) else str(one)).encode()
            pairs.append(f"{name.rstrip('_')}={quote_from_bytes(raw, safe='')}")
    return "&".join(pairs)
