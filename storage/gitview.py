"""What makes git open a repository of a `file:` store: HEAD, refs/, packed-refs, config (gitrepository-layout(5)).

None of it is an authority. It is written after each publishing, always from the newest generation and under a lock, so
that an older view never replaces a newer one; each file changes by rename. A crash in between leaves an older view,
whose objects are all still there. The repository is marked as precious (git-config(1), extensions.preciousObjects):
git then refuses to repack, prune or collect what only packhouse may delete.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from pack.errors import StoreUnavailable
from pack.view import Ref
from storage import generations, layout
from storage.backend import Backend
from storage.manifest import READY, Head, Manifest
from storage.refs import RefsReader, valid_name

CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n"
PRECIOUS = CONFIG.replace(b"= 0", b"= 1") + b"[extensions]\n\tpreciousObjects = true\n"
_FIRST_BRANCH = b"refs/heads/main"
_PATIENCE = 5.0


async def refresh(backend: Backend, owner: str, name: str) -> bool:
    """Bring the view up to the newest generation; nothing on stores that are no local folder.

    False when another process has been at it for seconds (it may be stopped): that one will see the newest, too.
    """
    path = backend.local_path(layout.latest(owner, name))
    if path is None:
        return True
    folder = path.parent.parent
    lock = await _lock(folder / "packhouse")
    if lock is None:
        return False
    try:
        written = 0
        # Again, until nobody has published meanwhile: those who have may have given up waiting for the lock.
        while (manifest := await generations.newest(backend, owner, name)) and manifest.number != written:
            table = await backend.get(layout.repository(owner, name) + manifest.refs.key) if manifest.refs else b""
            await asyncio.to_thread(write, folder, manifest, table, PRECIOUS)
            written = manifest.number
    finally:
        os.close(lock)
    return True


def write(folder: Path, manifest: Manifest, table: bytes, config: bytes = CONFIG) -> None:
    """The files of one generation; `table` is its refs table. The refs first: HEAD names one of them."""
    refs = RefsReader(
        manifest.refs, manifest.changes, manifest.head, lambda offset, length: table[offset : offset + length]
    )
    try:
        for directory in ("objects/pack", "objects/info", "refs/heads", "refs/tags"):
            (folder / directory).mkdir(parents=True, exist_ok=True)
        _replace(folder / "config", config)
        _replace(folder / "packed-refs", packed_refs(refs.iterate()) if manifest.state == READY else packed_refs(()))
        _replace(folder / "HEAD", head_file(manifest.head, manifest.default_branch))
    except OSError as error:
        raise StoreUnavailable(f"The files for git cannot be written: {error.strerror}.", operation="put") from error


def packed_refs(refs: Iterable[Ref]) -> bytes:
    """The file packed-refs, with the peeled ids of annotated tags; refs come sorted."""
    return b"".join(_packed_lines(refs))


def _packed_lines(refs: Iterable[Ref]) -> Iterator[bytes]:
    yield b"# pack-refs with: peeled fully-peeled sorted \n"
    for ref in refs:
        if valid_name(ref.name):
            yield b"%s %s\n" % (ref.oid.hex().encode(), ref.name)
            if ref.peeled:
                yield b"^%s\n" % ref.peeled.hex().encode()


def head_file(head: Head, default_branch: bytes | None) -> bytes:
    """The file HEAD. An unknown one names a branch that does not exist, as in a repository that is new."""
    if head.oid is not None and head.target is None:
        return head.oid.hex().encode() + b"\n"
    target = head.target or default_branch
    return b"ref: " + (target if target and valid_name(target) else _FIRST_BRANCH) + b"\n"


def _replace(path: Path, data: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == data:
            return
    temporary = path.with_name(f".tmp-{secrets.token_hex(8)}")
    try:
        temporary.write_bytes(data)
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


async def _lock(path: Path) -> int | None:
    """A descriptor that holds the lock until it is closed; never waits in a thread, of which there are few."""
    deadline = time.monotonic() + _PATIENCE
    try:
        # The directory itself: a lock file would be one more thing to list, and to sweep at the wrong moment.
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StoreUnavailable(f"The files for git cannot be locked: {error.strerror}.", operation="put") from error
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(fd)
                    return None
            await asyncio.sleep(0.01)
    except BaseException:
        os.close(fd)
        raise
