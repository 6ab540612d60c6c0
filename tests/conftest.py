"""Fixtures that every test may use. A repository they hand out is read-only: copy it to change it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import Cases
from tests.support.generate import Repositories
from tests.support.upstream import Upstream


@pytest.fixture(scope="session")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Repositories:
    """name -> path of a generated bare repository, made when first asked for."""
    return Repositories(tmp_path_factory.mktemp("repositories"))


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    """name ("h01" … "h24") -> a case: its repositories and the oids its inputs must have."""
    return Cases(tmp_path_factory.mktemp("cases"))


@pytest.fixture
def upstream() -> Iterator[Callable[..., Upstream]]:
    """`upstream(root, **options)` serves the repositories below `root` by smart HTTP until the test ends."""
    running: list[Upstream] = []

    def start(root: Path, **options: Any) -> Upstream:
        server = Upstream(root, **options)
        running.append(server)
        return server

    yield start
    for server in running:
        server.close()
