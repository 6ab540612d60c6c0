"""The states that sidecars can be left in for the tests of reads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from storage import generations, layout
from storage.backend import Backend
from storage.makers import MAKERS
from storage.open import opened
from storage.sidecars import made_from
from tests.support.derived import STATES, bring_with
from tests.support.generate import Repositories
from tests.support.service import OWNER

NAME = "linear"


async def kinds(backend: Backend, packs: Iterable[str]) -> set[str]:
    """The kinds of sidecars that are there for a set of packs."""
    prefix = layout.repository(OWNER, NAME)
    keys = [item.key async for item in backend.list(prefix)]
    found = {kind for kind in MAKERS for key in keys if key.startswith(f"{prefix}packhouse/{kind}-")}
    name = made_from(packs).hex()[:40]
    return {kind for kind in found if any(f"packhouse/{kind}-{name}" in key for key in keys)}


@pytest.mark.parametrize("state", STATES)
async def test_states(state: str, tmp_path: Path, repositories: Repositories) -> None:
    """What is there for the packs that are published, and for those that were."""
    store = str(tmp_path / "store")
    await asyncio.to_thread(bring_with, state, store, NAME, repositories[NAME], tmp_path)
    first, all_ = next(iter(MAKERS)), set(MAKERS)
    async with opened(store) as backend:
        newest = await generations.newest(backend, OWNER, NAME)
        assert newest is not None
        packs = [pack.name for pack in newest.packs]
        assert len(packs) == (2 if state in ("stale", "half") else 1)
        there = await kinds(backend, packs)
        assert there == {"off": set(), "whole": all_, "stale": set(), "half": {first}}[state]
        if len(packs) == 2:
            assert await kinds(backend, packs[:1]) == all_
