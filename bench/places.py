"""The stores of `bench.stores`: folders, and the servers that the tests start."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.services.base import Server
from tests.services.ceph import Ceph
from tests.services.minio import Minio
from tests.services.seaweed import Seaweed

FOLDER, CEPHFS, MINIO, GATEWAY = 1, 2, 3, 4
"""Columns of ex_git_objectstore's table."""

LOCAL = "file"

_started: dict[type[Server], Server] = {}


@dataclass(frozen=True)
class Place:
    """One kind of store. `column` is theirs that it stands beside; `missing` says what is not installed, or ''; `url`
    gives an empty store, its server started, and `variables` are for whoever uses it.
    """

    name: str
    title: str
    column: int
    missing: Callable[[], str]
    url: Callable[[Path], str]
    variables: Callable[[], dict[str, str]] = dict


def close() -> None:
    """Stop all servers that were started."""
    while _started:
        _started.popitem()[1].close()


atexit.register(close)


def _server(kind: type[Server]) -> Server:
    """Running; started once."""
    if kind not in _started:
        server = kind()
        _started[kind] = server
        server.start()
    return _started[kind]


def _ceph() -> Ceph:
    server = _server(Ceph)
    assert isinstance(server, Ceph)
    return server


def _mounted(_: Path) -> str:
    ceph = _ceph()
    ceph.need_mount()
    return str(ceph.mount / "bench-mounted")


def _unmounted(_: Path) -> str:
    ceph = _ceph()
    ceph.need_fs()
    return ceph.fs_url("bench")


PLACES = (
    Place("file", LOCAL, FOLDER, lambda: "", lambda folder: str(folder / "store")),
    Place("cephfs-mount", "CephFS, mounted", CEPHFS, lambda: Ceph.missing() or Ceph.missing_mount(), _mounted,
          Ceph.environment),
    Place("cephfs", "CephFS, libcephfs", CEPHFS, lambda: Ceph.missing() or Ceph.missing_fs(), _unmounted,
          Ceph.environment),
    Place("seaweed", "S3, SeaweedFS", MINIO, Seaweed.missing, lambda _: _server(Seaweed).url("bench"),
          Seaweed.environment),
    Place("minio", "S3, MinIO", MINIO, Minio.missing, lambda _: _server(Minio).url("bench"), Minio.environment),
    Place("rgw", "S3, Ceph RGW", GATEWAY, Ceph.missing, lambda _: _ceph().url("bench"), Ceph.environment),
)  # fmt: skip
NAMES = tuple(place.name for place in PLACES)
