"""Backends under test. Another one is added to BACKENDS: a name and what makes an empty store of it, or skips."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage import views
from storage.backend import Backend
from storage.open import open_backend


def _file(folder: Path) -> Backend:
    return open_backend((folder / "store").as_uri())


BACKENDS: dict[str, Callable[[Path], Backend]] = {"file": _file}


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """An empty store of each kind."""
    yield BACKENDS[request.param](tmp_path)
    views.forget()
