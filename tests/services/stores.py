"""Stores on real servers, by name: where tests that run on any kind of store keep theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tests.services import running
from tests.services.ceph import Ceph


def _cephfs(prefix: str) -> str:
    ceph = cast(Ceph, running.get("ceph"))
    running.insist("ceph", "CephFS", ceph.missing_fs())
    ceph.need_fs()
    return ceph.fs_url(prefix)


def _cephfs_mount(prefix: str) -> str:
    ceph = cast(Ceph, running.get("ceph"))
    running.insist("ceph", "a mount of CephFS", ceph.missing_fs() or ceph.missing_mount())
    ceph.need_mount()
    return (ceph.mount / prefix).as_uri()


def _s3(server: str) -> Callable[[str], str]:
    return lambda prefix: running.get(server).url(prefix)


STORES: dict[str, Callable[[str], str]] = {
    "ceph-rgw": _s3("ceph"),
    "cephfs": _cephfs,
    "cephfs-mount": _cephfs_mount,
    "minio": _s3("minio"),
    "seaweed": _s3("seaweed"),
}


def url(name: str, prefix: str) -> str:
    """The URL of an empty store. Skips the test where its server is not installed, or not asked for."""
    return STORES[name](prefix)


def forget(name: str, *pids: int) -> None:
    """What a store may have to do that takes its time, when processes were killed that were connected to it."""
    if name == "cephfs":
        cast(Ceph, running.get("ceph")).evict(*pids)
