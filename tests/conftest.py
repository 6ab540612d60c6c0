"""Fixtures that every test may use. A repository they hand out is read-only: copy it to change it."""

from __future__ import annotations

import pytest

from tests.support.generate import Repositories


@pytest.fixture(scope="session")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Repositories:
    """name -> path of a generated bare repository, made when first asked for."""
    return Repositories(tmp_path_factory.mktemp("repositories"))
