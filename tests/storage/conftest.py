"""Backends under test. Another one is added to BACKENDS: a name and what makes an empty store of it, or skips."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from storage import views
from storage.backend import Backend
from storage.open import open_backend
from tests.services import stores
from tests.support.history import History


def _file(folder: Path) -> Backend:
    return open_backend((folder / "store").as_uri())


def _at(store: str) -> Callable[[Path], Backend]:
    def make(folder: Path) -> Backend:
        return open_backend(stores.url(store, f"test-{secrets.token_hex(8)}"), spool=folder / "spool")

    return make


BACKENDS: dict[str, Callable[[Path], Backend]] = {"file": _file, **{name: _at(name) for name in stores.STORES}}


@pytest.fixture
def local(tmp_path: Path) -> Backend:
    """An empty store in a folder."""
    return _file(tmp_path)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Commits that are brought in some at a time."""
    return History(tmp_path_factory.mktemp("history") / "r.git", 1, 120)


@pytest.fixture(params=sorted(BACKENDS))
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    """An empty store of each kind."""
    made = BACKENDS[request.param](tmp_path)
    yield made
    await made.close()
    views.forget()
