"""Walks against `git rev-list`: every order and filter on random histories; stopping, going on, reading little."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from pack import history
from pack.errors import BadPattern, CursorExpired
from pack.history import History
from pack.order import ORDERS
from pack.view import View
from pack.walk import Query, Walk, log
from tests.support.dags import CLOCKS, PATHS, T0, Dag, make
from tests.support.git import Plumbing, git, init
from tests.support.repo import open_git_dir

FLAGS = {"default": (), "topo": ("--topo-order",), "date": ("--date-order",), "author-date": ("--author-date-order",)}


def raw(oids: list[str]) -> list[bytes]:
    return [bytes.fromhex(oid) for oid in oids]


def rev_list(path: Path, *args: str | bytes) -> list[bytes]:
    return raw(git(path, "rev-list", *args).decode().split())


def question(rng: random.Random, dag: Dag) -> tuple[dict[str, Any], list[str | bytes]]:
    """Arguments of `log`, and of git for the same."""
    tips = rng.sample(dag.commits[-25:], rng.choice((1, 1, 2, 3)))
    hidden = rng.sample(dag.commits, rng.choice((0, 0, 1, 2)))
    asked: dict[str, Any] = {
        "tips": raw(tips),
        "hidden": raw(hidden),
        "order": rng.choice(ORDERS),
        "first_parent": rng.random() < 0.25,
        "paths": rng.sample(PATHS, rng.choice((0, 1, 1, 2))),
    }
    args: list[str | bytes] = [*FLAGS[asked["order"]], *(["--first-parent"] if asked["first_parent"] else [])]
    for name, flag in (("since", "--max-age"), ("until", "--min-age")):
        if rng.random() < 0.2:
            asked[name] = T0 + rng.randrange(4000)
            args.append(f"{flag}={asked[name]}")
    for name, flag, patterns in (
        ("author", b"--author=", (b"ada", b"^Bob <", b"^Zo.* Q .*org>$", "ë".encode())),
        ("message", b"--grep=", (b"red", b"^$", b"#1.$", b"^commit 1", b"committer")),
    ):
        if rng.random() < 0.2:
            asked[name] = rng.choice(patterns)
            args.append(flag + asked[name])
    return asked, [*args, *tips, *(["--not", *hidden] if hidden else []), "--", *asked["paths"]]


def test_authors_times_of_any_size(tmp_path: Path) -> None:
    """What does not fit 64 bits is the largest number to git when it sorts; what is no number is 0."""
    p = Plumbing(init(tmp_path / "r.git"))
    times = ["5", "0", "-5", "99999999999999999999", "18446744073709551616", "18446744073709551615", "x", ""]
    times += ["9223372036854775808", "9223372036854775807", "00000000000000000000000007", "1" * 200, "6 +0100 7", "7x"]
    tree = p.tree([])
    tips = []
    for number, time in enumerate(times):
        text = f"tree {tree}\nauthor A <a> {time} +0000\ncommitter C <c> {1000 + number % 3} +0000\n\n{number}\n"
        tips.append(p.raw("commit", text.encode()))
    view = open_git_dir(p.path)
    for chosen in (tips, tips[::-1], tips[::2], tips[5:] + tips[:5]):
        expected = rev_list(p.path, "--author-date-order", *chosen)
        assert list(log(view, raw(chosen), [], order="author-date")) == expected


@pytest.mark.parametrize("clock", CLOCKS)
def test_walks_are_those_of_git(clock: str, tmp_path: Path) -> None:
    rng = random.Random(clock)
    checked = 0
    for seed in range(6):
        dag = make(tmp_path / f"{seed}.git", seed, clock=clock)
        view = open_git_dir(dag.path)
        for _ in range(60):
            asked, args = question(rng, dag)
            expected = rev_list(dag.path, *args)
            if asked["hidden"]:
                # With wrong clocks git shows commits that the hidden side reaches; here none is shown.
                reached = set(rev_list(dag.path, *(oid.hex() for oid in asked["hidden"])))
                expected = [oid for oid in expected if oid not in reached]
            assert list(log(view, **asked)) == expected, args
            assert list(log(view, **asked, whole=True)) == expected, args
            checked += bool(expected)
    assert checked > 150


@pytest.mark.parametrize("name", ["merges", "renames", "kinds", "idents", "clocks", "history", "deep", "tags"])
def test_generated_repositories(name: str, repositories: Any) -> None:
    path = repositories[name]
    view = open_git_dir(path)
    tips = rev_list(path, "--no-walk=unsorted", "--branches", "--tags")
    for order in ORDERS:
        expected = rev_list(path, *FLAGS[order], "--branches", "--tags")
        assert list(log(view, tips, order=order)) == expected
        for first_parent in (False, True):
            flag = ["--first-parent"] if first_parent else []
            expected = rev_list(path, *FLAGS[order], *flag, "HEAD")
            assert list(log(view, rev_list(path, "-1", "HEAD"), order=order, first_parent=first_parent)) == expected


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_walk_goes_on_where_it_stopped(clock: str, tmp_path: Path) -> None:
    dag = make(tmp_path / "r.git", 77, clock=clock, size=80, width=7)
    view = open_git_dir(dag.path)
    rng = random.Random(1)
    for _ in range(25):
        asked, _ = question(rng, dag)
        query = Query(
            **{**asked, "tips": tuple(asked["tips"]), "hidden": tuple(asked["hidden"]), "paths": tuple(asked["paths"])}
        )
        whole = list(Walk(view, query))
        size = rng.randrange(1, 9)
        found: list[bytes] = []
        position = None
        while True:
            walk = Walk(view, query, resume=position, whole=rng.random() < 0.5)
            page = [oid for oid, _ in zip(walk, range(size), strict=False)]
            found += page
            if len(page) < size:
                break
            # zip asked for one more than it gave: begin again, and stop on the spot.
            walk = Walk(view, query, resume=position)
            steps = iter(walk)
            for _ in range(size):
                next(steps)
            position = walk.position()
        assert found == whole


def test_a_walk_that_spent_its_budget_goes_on(tmp_path: Path) -> None:
    dag = make(tmp_path / "r.git", 5, clock="skewed", size=80)
    view = open_git_dir(dag.path)
    for order in ORDERS:
        query = Query(tuple(raw(dag.tips)), order=order, paths=(b"dir/x",), message=b"green")
        whole = list(Walk(view, query))
        assert whole
        found: list[bytes] = []
        position, rounds = None, 0
        while True:
            left = iter(range(7))
            walk = Walk(view, query, resume=position, visit=lambda left=left: next(left, None) is not None)
            found += list(walk)
            rounds += 1
            if not walk.cut:
                break
            position = walk.position()
        assert found == whole
        assert rounds > 3


def test_only_what_is_asked_for_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dag = make(tmp_path / "r.git", 9, size=400)
    view = open_git_dir(dag.path)
    asked: list[bytes] = []
    links = View.links
    monkeypatch.setattr(View, "links", lambda self, oid: asked.append(oid) or links(self, oid))
    walk = iter(log(view, raw(dag.tips)))
    for _ in range(50):
        next(walk)
    assert len(asked) < 80
    assert len(set(asked)) == len(asked)


def test_equal_times_at_the_border_of_a_page(tmp_path: Path) -> None:
    """A commit that is reached again after it was shown, over a younger one, is not shown twice."""
    dag = make(tmp_path / "r.git", 12, clock="still", size=60, width=9)
    view = open_git_dir(dag.path)
    query = Query(tuple(raw(dag.commits[::-1])))  # every commit is a tip, and a parent of others
    whole = list(Walk(view, query))
    assert len(whole) == len(dag.commits)
    for cut in range(1, len(whole)):
        walk = Walk(view, query)
        steps = iter(walk)
        assert [next(steps) for _ in range(cut)] == whole[:cut]
        assert list(Walk(view, query, resume=walk.position())) == whole[cut:]


def test_a_position_of_another_history_is_refused(tmp_path: Path) -> None:
    dag = make(tmp_path / "r.git", 3)
    view = open_git_dir(dag.path)
    query = Query(tuple(raw(dag.tips)), order="topo")
    with pytest.raises(CursorExpired):
        Walk(view, query, resume={"taken": 3, "at": "00" * 20})
    with pytest.raises(CursorExpired):
        Walk(view, query, resume={"taken": 3000, "at": "00" * 20})


@pytest.mark.parametrize("parameter", ["author", "message"])
def test_a_pattern_that_is_none_is_refused(parameter: str, tmp_path: Path) -> None:
    dag = make(tmp_path / "r.git", 3, size=3)
    with pytest.raises(BadPattern) as refused:
        Walk(open_git_dir(dag.path), Query(tuple(raw(dag.tips)), **{parameter: b"(?=x)"}))
    assert refused.value.parameter == parameter


def test_levels_tell_who_can_reach_whom(tmp_path: Path) -> None:
    dag = make(tmp_path / "r.git", 8, clock="random", size=50)
    rows = History(open_git_dir(dag.path))
    for oid in raw(dag.commits):
        n = rows.number(oid)
        assert all(rows.level(parent) < rows.level(n) for parent in rows.load(n))
        assert {rows.oid(m) for m in rows.ancestors([n], 0)} == set(rev_list(dag.path, oid.hex()))


def test_histories_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dags = [make(tmp_path / f"{i}.git", i, size=30) for i in range(3)]
    monkeypatch.setattr(history, "MAX_BYTES", 70 * 400)
    monkeypatch.setattr(history, "_columns", type(history._columns)())
    for dag in [*dags, dags[0]]:
        assert len(list(log(open_git_dir(dag.path), raw(dag.commits)))) == 30
        assert sum(columns.memory for columns in history._columns.values()) <= 100 * 400
    assert len(history._columns) < 3
