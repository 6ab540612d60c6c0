"""Which reads of histories the event loop does itself: short ones, and none that may have to read every commit."""

from __future__ import annotations

from typing import Any

import pytest

from app.operations import AHEAD_BEHIND, GREP, LOG, MERGE_BASE, Operation
from app.placing import LOOP_COMMITS, LOOP_GRAPH, LOOP_HEADS, LOOP_REVS, LOOP_TIPS, by_graph, by_walk

SHORT, LONG = LOOP_GRAPH, LOOP_GRAPH + 1
ANY: list[tuple[Operation, dict[str, Any]]] = [
    (LOG, {}),
    (LOG, {"limit": LOOP_COMMITS, "rev": (b"HEAD",) * LOOP_REVS}),
    (LOG, {"first_parent": True, "since": 1}),
]
SHORT_ONLY: list[tuple[Operation, dict[str, Any]]] = [
    (LOG, {"not": (b"v1",), "order": "topo", "until": 5}),
    (LOG, {"cursor": "x"}),
    (LOG, {"rev": (b"HEAD~3^2",)}),
    (MERGE_BASE, {"rev": (b"HEAD", b"main~5"), "all": True}),
    (AHEAD_BEHIND, {"base": b"main", "head": (b"topic",) * LOOP_HEADS}),
]
NEVER: list[tuple[Operation, dict[str, Any]]] = [
    (LOG, {"limit": LOOP_COMMITS + 1}),
    (LOG, {"rev": (b"HEAD",) * (LOOP_REVS + 1)}),
    (LOG, {"path": (b"a",)}),
    (LOG, {"path": (b"a",), "follow": True}),
    (LOG, {"author": b"x"}),
    (LOG, {"message": b"x"}),
    (LOG, {"order": "author-date"}),
    (LOG, {"rev": (b":/fix",)}),
    (LOG, {"not": (b"HEAD^{/fix}",)}),
    (MERGE_BASE, {"rev": (b"HEAD",) * (LOOP_HEADS + 1)}),
    (MERGE_BASE, {"rev": (b"HEAD", b"v1-3-gabcdef")}),
    (AHEAD_BEHIND, {"base": b"main", "head": (b"topic",) * (LOOP_HEADS + 1)}),
    (AHEAD_BEHIND, {"base": b":/fix", "head": (b"topic",)}),
    (GREP, {"pattern": (b"x",)}),
]


def asked(operation: Operation, given: dict[str, Any]) -> dict[str, Any]:
    return {param.name: param.empty for param in operation.params} | given


@pytest.mark.parametrize(
    ("reads", "placed"), [(ANY, (True, True)), (SHORT_ONLY, (True, False)), (NEVER, (False, False))]
)
def test_by_the_length_of_the_history(reads: list[tuple[Operation, dict[str, Any]]], placed: tuple[bool, bool]) -> None:
    for operation, given in reads:
        params = asked(operation, given)
        assert (by_graph(operation, params, SHORT), by_graph(operation, params, LONG)) == placed, (operation.id, given)
        assert not by_graph(operation, params, 0)


def test_streams_of_short_histories() -> None:
    given: dict[str, Any]
    for given in (
        {},
        {"limit": 10_000, "cursor": "x"},
        {"rev": (b"HEAD~3",) * LOOP_TIPS, "order": "topo"},
        {"not": (b"v1",), "until": 5, "first_parent": True},
    ):
        params = asked(LOG, given)
        assert [by_walk(LOG, params, commits) for commits in (0, 1, SHORT, LONG)] == [False, True, True, False], given
    for given in (
        {"rev": (b"HEAD",) * (LOOP_TIPS + 1)},
        {"path": (b"a",)},
        {"path": (b"a",), "follow": True},
        {"author": b"x"},
        {"message": b"x"},
        {"order": "author-date"},
        {"rev": (b":/fix",)},
        {"not": (b"HEAD^{/fix}",)},
    ):
        assert not by_walk(LOG, asked(LOG, given), SHORT), given
    assert not by_walk(GREP, asked(GREP, {"pattern": (b"x",)}), SHORT)
