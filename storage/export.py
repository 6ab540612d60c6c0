"""Writing a repository out of any store as a bare one that git opens (gitrepository-layout(5))."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from pack.errors import BadParameter, StoreUnavailable
from storage import gitview, layout
from storage.backend import Backend
from storage.manifest import Manifest
from storage.repository import ReadSettings, Repositories
from storage.views import settle

_CHUNK = 8 << 20


async def export(backend: Backend, owner: str, name: str, directory: Path) -> Manifest:
    """The current generation, into `directory`, which must not exist or be empty; returns its manifest.

    RepoNotFound, NotReady; BadParameter (`directory`). The refs come last: an export that was cut off shows none.
    """
    manifest = await Repositories(backend, ReadSettings(freshness=0)).current(owner, name)
    manifest = await settle(backend, owner, name, manifest)
    prefix = layout.repository(owner, name)
    try:
        await asyncio.to_thread(_make, directory)
        for record in manifest.packs:
            # git takes an .idx as the sign of a complete pack.
            for key in (layout.pack(record.name), layout.index(record.name)):
                await _copy(backend, prefix + key, directory / key)
        table = await backend.get(prefix + manifest.refs.key) if manifest.refs else b""
        await asyncio.to_thread(gitview.write, directory, manifest, table)
    except OSError as error:
        raise StoreUnavailable(f"The export failed: {error.strerror}: {error.filename}.", operation="export") from error
    return manifest


def _make(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise BadParameter(f"{directory} is not empty.", parameter="directory")
    (directory / "objects" / "pack").mkdir(parents=True)


async def _copy(backend: Backend, key: str, target: Path) -> None:
    size = await backend.size(key)
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
    try:
        offset = 0
        while offset < size:
            data = await backend.read(key, offset, min(_CHUNK, size - offset))
            if not data:
                raise StoreUnavailable(f"{key} is shorter than its {size} bytes.", operation="read")
            await asyncio.to_thread(_write_all, fd, data)
            offset += len(data)
        await asyncio.to_thread(os.fsync, fd)
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
