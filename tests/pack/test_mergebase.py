"""Common ancestors and counts against git, on random histories with all sorts of clocks."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pack.mergebase import Apart, ahead_behind, is_ancestor, merge_bases
from tests.support.cases import Cases
from tests.support.dags import CLOCKS, Dag, make
from tests.support.git import git, run
from tests.support.repo import open_git_dir


def raw(oids: list[str]) -> list[bytes]:
    return [bytes.fromhex(oid) for oid in oids]


def best(dag: Dag, *revs: str) -> bytes | None:
    found = run(dag.path, "merge-base", *revs).stdout.decode().split()
    return bytes.fromhex(found[0]) if found else None


@pytest.mark.parametrize("clock", CLOCKS)
def test_merge_bases_are_those_of_git(clock: str, tmp_path: Path) -> None:
    rng = random.Random(clock)
    several = 0
    for seed in range(6):
        dag = make(tmp_path / f"{seed}.git", seed + 100, clock=clock, width=6)
        view = open_git_dir(dag.path)
        for _ in range(25):
            revs = rng.sample(dag.commits, rng.choice((2, 2, 2, 3, 4)))
            expected = run(dag.path, "merge-base", "--all", *revs).stdout.decode().split()
            assert [oid.hex() for oid in merge_bases(view, raw(revs))] == expected, revs
            several += len(expected) > 1
    assert several > 5


@pytest.mark.parametrize("clock", CLOCKS)
def test_counts_are_exact_whatever_the_clocks(clock: str, tmp_path: Path) -> None:
    rng = random.Random(clock)
    dag = make(tmp_path / "r.git", 42, clock=clock, size=90, width=7)
    view = open_git_dir(dag.path)
    reached = {oid: set(git(dag.path, "rev-list", oid).split()) for oid in dag.commits}
    for _ in range(12):
        base, *heads = rng.sample(dag.commits, 8)
        expected = [
            Apart(len(reached[head] - reached[base]), len(reached[base] - reached[head]), best(dag, base, head))
            for head in heads
        ]
        assert ahead_behind(view, raw([base])[0], raw(heads)) == expected
        for head in heads:
            assert is_ancestor(view, *raw([base, head])) == (base.encode() in reached[head])


def test_counts_as_git_counts(tmp_path: Path) -> None:
    dag = make(tmp_path / "r.git", 43, size=90, width=7)
    view = open_git_dir(dag.path)
    for head in dag.commits[::9]:
        base = dag.tips[0]
        counted = git(dag.path, "rev-list", "--left-right", "--count", f"{head}...{base}").split()
        assert ahead_behind(view, *raw([base]), raw([head])) == [Apart(*map(int, counted), best(dag, base, head))]


def test_one_commit(tmp_path: Path) -> None:
    dag = make(tmp_path / "r.git", 1, size=3)
    view = open_git_dir(dag.path)
    (tip,) = raw(dag.commits[-1:])
    assert merge_bases(view, [tip]) == [tip]
    assert merge_bases(view, [tip, tip]) == [tip]
    assert is_ancestor(view, tip, tip)
    assert ahead_behind(view, tip, [tip, tip]) == [Apart(0, 0, tip), Apart(0, 0, tip)]


def test_branches_apart_with_wrong_clocks(tmp_path: Path) -> None:
    case = Cases(tmp_path)["h20"]
    view = open_git_dir(case.path)
    main, old, unrelated, base = (bytes.fromhex(case.oids[name]) for name in ("new", "old2", "unrelated", "c"))
    assert ahead_behind(view, old, [main]) == [Apart(1, 2, base)]
    assert merge_bases(view, [main, old]) == [base]
    assert ahead_behind(view, unrelated, [main]) == [Apart(4, 1, None)]
    assert merge_bases(view, [main, unrelated]) == []
