"""PACKHOUSE_COLLISION_CHECK puts the detecting hash into every ingest."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import ingestion
from app.ingestion import Order
from app.progress import Meter
from app.registry import Registry
from app.settings import Settings
from pack.libgit import detecting_hash
from storage.open import open_backend, prepare
from storage.repository import Repositories
from tests.support.generate import Repositories as Generated


@pytest.mark.parametrize("on", [True, False])
async def test_the_setting_reaches_the_parser(
    on: bool, tmp_path: Path, repositories: Generated, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[int] = []

    def watched(kind: int, data: bytes) -> bytes:
        hashed.append(kind)
        return detecting_hash(kind, data)

    monkeypatch.setattr(ingestion, "detecting_hash", watched)
    settings = Settings(store=str(tmp_path / "store"), collision_check=on)
    backend = open_backend(settings.store)
    await prepare(backend)
    registry = Registry(backend, Repositories(backend), settings)
    await registry.register_local("a", "b", repositories["merges"].as_uri())
    outcome = await ingestion.run(backend, Order(settings, "a", "b"), Meter())
    assert outcome.generation == 2
    assert bool(hashed) is on
