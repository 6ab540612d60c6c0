"""Last commits of listings, asked once more with an index of changed paths in each of its states."""

from __future__ import annotations

import pytest

from tests.parity import test_tree
from tests.parity.test_tree import test_last_commits  # noqa: F401
from tests.support.paths import STATES, opening


@pytest.fixture(autouse=True, params=STATES)
def _index(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_tree, "open_git_dir", opening(request.param))
