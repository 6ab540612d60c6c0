"""A repository of the store that grows sync by sync, and what must be true of it at any time."""

from __future__ import annotations

import secrets
from itertools import pairwise
from pathlib import Path

from pack.objects import COMMIT
from pack.view import Ref
from storage import generations, layout, publish
from storage.backend import Backend
from storage.export import export
from storage.manifest import Head, Manifest, PackRecord
from storage.publish import Lost, Won
from storage.views import settle
from tests.storage.support import NAME, OWNER, register, store_pack
from tests.support.git import git
from tests.support.history import History

PREFIX = layout.repository(OWNER, NAME)
MAIN = b"refs/heads/main"


async def newest(backend: Backend) -> Manifest:
    found = await generations.newest(backend, OWNER, NAME)
    assert found is not None
    return found


async def begin(backend: Backend) -> Manifest:
    return await register(backend)


async def upload(backend: Backend, history: History, first: int, last: int, *options: str) -> PackRecord:
    """The commits after `first` up to `last`, as one pack of the store that nothing names yet."""
    data = history.pack([last], [first] if first else [], *(options or ("--delta-base-offset",)))
    return await store_pack(backend, [data], find_base=history.find)


async def prepared(backend: Backend, history: History, base: Manifest, last: int, *packs: PackRecord) -> Manifest:
    oid = history.oid(last)
    refs = [Ref(MAIN, oid, COMMIT, None, None)]
    return await publish.prepare(backend, OWNER, NAME, base, refs=refs, head=Head(MAIN, oid, COMMIT), new_packs=packs)


async def sync(backend: Backend, history: History, first: int, last: int, *options: str) -> Manifest:
    base = await newest(backend)
    record = await upload(backend, history, first, last, *options)
    outcome = await publish.publish(backend, OWNER, NAME, await prepared(backend, history, base, last, record))
    assert isinstance(outcome, Won)
    return outcome.manifest


async def grow(backend: Backend, history: History, steps: list[int], *options: str) -> Manifest:
    """A sync for each step, from the one before."""
    manifest = await newest(backend)
    for first, last in pairwise(steps):
        manifest = await sync(backend, history, first, last, *options)
    return manifest


async def named(backend: Backend) -> set[str]:
    """The keys of packs and tables that living manifests name."""
    keys: set[str] = set()
    number = (await newest(backend)).number
    while number and (manifest := await generations.read(backend, OWNER, NAME, number)):
        if manifest.state == "tombstone":
            break
        if manifest.packs_table:
            keys.add(manifest.packs_table.key)
        if manifest.refs:
            keys.add(manifest.refs.key)
        for pack in (await settle(backend, OWNER, NAME, manifest)).packs:
            keys |= {layout.pack(pack.name), layout.index(pack.name)}
        number -= 1
    return keys


async def stored(backend: Backend) -> set[str]:
    """The keys of all packs and tables, whoever names them; what is in the way of this question is not counted."""
    keys = [item.key[len(PREFIX) :] async for item in backend.list(PREFIX)]
    fixed = (
        "packhouse/generations/",
        "packhouse/latest",
        "packhouse/operation",
        "HEAD",
        "config",
        "packed-refs",
        "refs/",
    )
    return {key for key in keys if not key.startswith(fixed)}


async def exported(backend: Backend, folder: Path) -> Path:
    """The newest generation as a repository of its own, which git finds no fault with, and can clone."""
    target = folder / f"export-{secrets.token_hex(6)}.git"
    await export(backend, OWNER, NAME, target)
    git(target, "fsck", "--full", "--strict")
    for pack in (target / "objects" / "pack").glob("*.idx"):
        git(target, "verify-pack", str(pack))
    clone = folder / f"clone-{secrets.token_hex(6)}"
    git(None, "clone", "-q", "--bare", "--no-local", str(target), str(clone))
    return target


def commits(path: Path) -> int:
    return int(git(path, "rev-list", "--count", "HEAD"))


def lost(outcome: Won | Lost) -> Manifest:
    assert isinstance(outcome, Lost)
    return outcome.winner
