"""Walks of paths once more, with an index of changed paths in each state in which one may be found."""

from __future__ import annotations

from pathlib import Path

import pytest

from pack.order import ORDERS
from pack.walk import Query, Walk
from tests.pack import test_follow, test_simplify, test_walk
from tests.pack.test_follow import *  # noqa: F403
from tests.pack.test_simplify import *  # noqa: F403
from tests.pack.test_walk import *  # noqa: F403
from tests.support.paths import STATES, opening

test_generated_histories = test_walk.test_generated_repositories
del test_histories_are_bounded_together  # noqa: F821 - it counts the bytes of commits that are in no graph
del test_a_walk_that_spent_its_budget_goes_on  # noqa: F821 - with an index it spends less; see below


@pytest.fixture(autouse=True, params=STATES)
def _index(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (test_follow, test_simplify, test_walk):
        monkeypatch.setattr(module, "open_git_dir", opening(request.param))
    if request.param == "layers":
        monkeypatch.setattr("pack.frontier.MAX_FRONTIER", 2)


def test_a_walk_of_a_path_that_spent_its_budget_goes_on(tmp_path: Path) -> None:
    dag = test_walk.make(tmp_path / "r.git", 5, clock="skewed", size=80)
    view = test_walk.open_git_dir(dag.path)
    for order in ORDERS:
        query = Query(tuple(test_walk.raw(dag.tips)), order=order, paths=(b"dir/x",), message=b"green")
        whole = list(Walk(view, query))
        assert whole
        found: list[bytes] = []
        position, rounds = None, 0
        while True:
            left = iter(range(3))
            walk = Walk(view, query, resume=position, visit=lambda left=left: next(left, None) is not None)
            found += list(walk)
            rounds += 1
            if not walk.cut:
                break
            position = walk.position()
        assert found == whole
        assert rounds > 3
