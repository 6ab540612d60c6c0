"""Topological orders on graphs written by hand."""

from __future__ import annotations

from pack.order import topological

# 5 is a merge of 3 and 4, both grown from 2; 2 from 1.
PARENTS = {5: (3, 4), 4: (2,), 3: (2,), 2: (1,), 1: ()}


def test_one_line_after_the_other() -> None:
    # The parent met last comes first: a stack.
    assert topological([5, 4, 3, 2, 1], PARENTS.__getitem__, None) == [5, 4, 3, 2, 1]
    assert topological([5, 3, 4, 2, 1], PARENTS.__getitem__, None) == [5, 4, 3, 2, 1]


def test_tips_in_the_order_given() -> None:
    parents = {1: (), 2: (), 3: ()}
    assert topological([2, 3, 1], parents.__getitem__, None) == [2, 3, 1]


def test_by_time_and_by_arrival_where_times_are_equal() -> None:
    assert topological([5, 4, 3, 2, 1], PARENTS.__getitem__, {5: 9, 4: 3, 3: 4, 2: 2, 1: 1}.__getitem__) == [
        5,
        3,
        4,
        2,
        1,
    ]
    assert topological([5, 4, 3, 2, 1], PARENTS.__getitem__, lambda _: 0) == [5, 3, 4, 2, 1]


def test_no_parent_before_its_children_whatever_the_times() -> None:
    times = {5: 1, 4: 2, 3: 3, 2: 4, 1: 5}
    assert topological([1, 2, 3, 4, 5], PARENTS.__getitem__, times.__getitem__) == [5, 3, 4, 2, 1]


def test_parents_outside_the_list_do_not_count() -> None:
    assert topological([5, 3], PARENTS.__getitem__, None) == [5, 3]


def test_a_parent_that_is_named_twice() -> None:
    assert topological([2, 1], {2: (1, 1), 1: ()}.__getitem__, None) == [2, 1]
