"""Walks and merge bases once more, with a graph in each state in which one may be found."""

from __future__ import annotations

import pytest

from tests.pack import test_follow, test_mergebase, test_simplify, test_walk
from tests.pack.test_follow import *  # noqa: F403
from tests.pack.test_mergebase import *  # noqa: F403
from tests.pack.test_simplify import *  # noqa: F403
from tests.pack.test_walk import *  # noqa: F403
from tests.support.graphs import STATES, opening

test_generated_histories = test_walk.test_generated_repositories
del test_histories_are_bounded_together  # noqa: F821 - it counts the bytes of commits that are in no graph


@pytest.fixture(autouse=True, params=STATES)
def _graph(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (test_follow, test_mergebase, test_simplify, test_walk):
        monkeypatch.setattr(module, "open_git_dir", opening(request.param))
    if request.param == "layers":
        # Positions that do not say what lies ahead, and what is far down.
        monkeypatch.setattr("pack.frontier.MAX_FRONTIER", 2)
        monkeypatch.setattr("pack.walk._FAR", 2)
