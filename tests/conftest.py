"""Fixtures that every test may use. A repository they hand out is read-only: copy it to change it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services import stores
from tests.support.cases import Cases
from tests.support.derived import STATES, bring_with
from tests.support.generate import Repositories
from tests.support.service import Repo, Running, bring
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


class Served:
    """The service of a session: `served.repo(name)` is a generated repository, `served.case(name)` one of a case."""

    def __init__(
        self, running: Running, repositories: Repositories, cases: Cases, store: str, sidecars: str, folder: Path
    ) -> None:
        self.running = running
        self.store = store
        self._sidecars = sidecars
        self._folder = folder
        self._repositories = repositories
        self._cases = cases
        self._brought: set[str] = set()

    def bring(self, name: str, path: Path) -> Repo:
        """The repository at `path`, ingested once."""
        if name not in self._brought:
            if self._sidecars:
                bring_with(self._sidecars, self.store, name, path, self._folder)
            else:
                bring(self.store, name, path)
            self._brought.add(name)
        return self.running.repo(name)

    def repo(self, name: str) -> Repo:
        return self.bring(name, self._repositories[name])

    def case(self, name: str, repository: str | None = None) -> Repo:
        case = self._cases[name]
        return self.bring(repository or name, case.repos[repository] if repository else case.path)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, repositories: Repositories, cases: Cases) -> Iterator[Served]:
    """A running service for reads; every repository is ingested when it is first asked for.

    Its store is a folder, or one on the server that PACKHOUSE_TEST_STORE names (`tests.services.stores`). Sidecars are
    made by the service when reads want them, unless PACKHOUSE_TEST_SIDECARS names a state that they are to be left in
    (`tests.support.derived`).
    """
    folder = tmp_path_factory.mktemp("served")
    name = os.environ.get("PACKHOUSE_TEST_STORE", "file")
    sidecars = os.environ.get("PACKHOUSE_TEST_SIDECARS", "")
    assert sidecars in ("", *STATES)
    settings = {"make_sidecars": "false"} if sidecars else {}
    store = str(folder / "store") if name == "file" else stores.url(name, f"served-{secrets.token_hex(8)}")
    running = Running(folder / "store", at=store, cache_dir=str(folder / "cache"), **settings)
    yield Served(running, repositories, cases, store, sidecars, folder)
    running.stop()
