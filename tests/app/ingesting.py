"""What the tests of ingests share: a store, registered repositories, and what git says of the result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.ingest import Outcome
from app.ingestion import Order
from app.ingestion import run as run_order
from app.progress import Meter
from app.registry import Registry
from app.settings import Settings
from storage import generations
from storage.backend import Backend
from storage.manifest import Manifest
from storage.open import open_backend
from storage.repository import Repositories
from tests.support.git import git, run

OWNER, NAME = "team", "project"


@dataclass
class House:
    """A store in a folder, and what stands around it."""

    root: Path
    settings: Settings
    backend: Backend
    registry: Registry

    @property
    def git_dir(self) -> Path:
        return self.root / OWNER / f"{NAME}.git"

    async def register(self, url: str, **more: Any) -> Manifest:
        if url.startswith("file:"):
            return await self.registry.register_local(OWNER, NAME, url, **more)
        return await self.registry.register(OWNER, NAME, url, **more)

    async def ingest(self, meter: Meter | None = None) -> Outcome:
        return await run_order(self.backend, Order(self.settings, OWNER, NAME), meter or Meter())

    async def manifest(self) -> Manifest:
        found = await generations.newest(self.backend, OWNER, NAME)
        assert found is not None
        return found

    def packs(self) -> list[str]:
        return sorted(path.name for path in (self.git_dir / "objects" / "pack").iterdir())


def house(root: Path, **more: Any) -> House:
    settings = Settings(store=root.as_uri(), allow_upstreams=("127.0.0.1",), **more)
    backend = open_backend(settings.store)
    return House(root, settings, backend, Registry(backend, Repositories(backend), settings))


def refs_of(path: Path) -> dict[str, str]:
    """Heads and tags with their oids, and HEAD as git sees it."""
    lines = git(path, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags").decode()
    found = dict(line.split(" ") for line in lines.splitlines())
    head = git(path, "rev-parse", "-q", "--verify", "HEAD", ok=(0, 1)).decode().strip()
    return found | ({"HEAD": head} if head else {})


def is_sound(path: Path, like: Path | None = None) -> None:
    """Git finds nothing wrong, or just what it finds wrong with the source."""

    def findings(repo: Path) -> list[bytes]:
        done = run(repo, "fsck", "--full", "--no-dangling")
        return sorted(done.stderr.splitlines() + ([b"failed"] if done.returncode else []))

    assert findings(path) == (findings(like) if like is not None else [])
