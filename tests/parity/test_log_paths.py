"""What is asked of logs, asked once more with an index of changed paths in each of its states."""

from __future__ import annotations

import pytest

from tests.parity import test_log
from tests.parity.test_log import *  # noqa: F403
from tests.support.paths import STATES, opening


@pytest.fixture(autouse=True, params=STATES)
def _index(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_log, "open_git_dir", opening(request.param))
