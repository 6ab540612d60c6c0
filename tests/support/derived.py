"""Repositories in a store whose sidecars are in a certain state, so that every test of reads may be run with it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Final

from app.building import build
from app.settings import Settings
from app.store import open_store
from storage.makers import MAKERS
from storage.open import open_backend
from storage.repository import Handle, Repositories
from tests.support.git import git, run
from tests.support.service import OWNER, bring

STATES: Final = ("off", "whole", "stale", "half")
"""None is there; all are; all are those of an earlier generation; so are all, but for those of the first kind."""


def bring_with(state: str, store: str, name: str, path: Path, folder: Path) -> None:
    """Ingest a local repository as `tests/{name}`, its sidecars in that state; `folder` is for copies and caches."""
    if state in ("stale", "half"):
        at = folder / f"{name}.git"
        if earlier(path, at):
            bring(store, name, at)
            make(store, name, folder)
            shutil.rmtree(at)
        # A registration is that of one place.
        path = Path(shutil.copytree(path, at))
    bring(store, name, path)
    if state == "whole":
        make(store, name, folder)
    elif state == "half":
        make(store, name, folder, next(iter(MAKERS)))


def make(store: str, name: str, folder: Path, *kinds: str) -> None:
    """Make sidecars of what is published: these kinds, or all."""

    async def work() -> None:
        backend, supplier = open_store(Settings(store=store, cache_dir=folder / "making"))
        try:
            built = await build(backend, supplier, OWNER, name, dict.fromkeys(kinds) if kinds else None)
            assert built is not None
        finally:
            if supplier is not None:
                await supplier.close()
            await backend.close()

    asyncio.run(work())


def built(store: Path, name: str) -> Handle:
    """What is published of a repository in a local folder, all its sidecars made."""
    make(store.as_uri(), name, store.parent)
    return asyncio.run(Repositories(open_backend(store.as_uri())).handle(OWNER, name))


def earlier(path: Path, into: Path) -> bool:
    """Make the repository with every branch one commit back and without tags; False where nothing is left of it."""
    copied = into.with_suffix(".copy")
    shutil.copytree(path, copied)
    left = 0
    for line in git(copied, "for-each-ref", "--format=%(refname)").splitlines():
        back = _parent(copied, line) if line.startswith(b"refs/heads/") else None
        if back is None:
            run(copied, "update-ref", "--no-deref", "-d", line)
        elif run(copied, "update-ref", "--no-deref", line, back).returncode == 0:
            left += 1
    if left == 0 or run(copied, "rev-parse", "-q", "--verify", "HEAD^{commit}").returncode:
        return False
    # A local ingest takes packs as they are: only a transport leaves out what the refs do not reach.
    git(None, "clone", "-q", "--mirror", "--no-local", str(copied), str(into))
    return True


def _parent(path: Path, ref: bytes) -> bytes | None:
    found = run(path, "rev-parse", "-q", "--verify", ref + b"^{commit}^1")
    return found.stdout.strip() if found.returncode == 0 else None
