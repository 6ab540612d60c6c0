"""The servers of this test run: each is started when it is first asked for, and stopped at the end."""

from __future__ import annotations

import atexit
import os

import pytest

from tests.services.base import Server
from tests.services.ceph import Ceph
from tests.services.minio import Minio
from tests.services.rclone import Rclone
from tests.services.seaweed import Seaweed

SERVERS: dict[str, type[Server]] = {server.name: server for server in (Seaweed, Ceph, Minio, Rclone)}
VARIABLE = "PACKHOUSE_TEST_SERVICES"

_running: dict[str, Server] = {}
_broken: dict[str, str] = {}


def get(name: str) -> Server:
    """The running server. Skips the test where it is not installed, or not asked for; fails where it must be there."""
    if name in _running:
        return _running[name]
    wanted = _wanted()
    if wanted is not None and name not in wanted:
        pytest.skip(f"{VARIABLE} does not name {name}")
    if name in _broken:
        pytest.fail(_broken[name])
    insist(name, "", SERVERS[name].missing())
    server = SERVERS[name]()
    atexit.register(server.close)
    try:
        server.start()
    except BaseException as error:
        _broken[name] = f"{name} did not start: {error}"
        raise
    os.environ.update(server.environment())
    _running[name] = server
    return server


def insist(name: str, purpose: str, missing: str) -> None:
    """Skip the test, or fail it where that server was asked for, when something is missing."""
    if missing:
        what = f"{purpose} needs {missing}, which is not there" if purpose else f"{missing} is not installed"
        what += f" (python -m tests.services install {name})"
        if _wanted() is None:
            pytest.skip(what)
        pytest.fail(what)


def _wanted() -> set[str] | None:
    asked = os.environ.get(VARIABLE)
    return {each.strip() for each in asked.split(",")} if asked is not None else None
