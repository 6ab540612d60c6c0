"""The fake upstream itself: git must be able to clone through each of its manners, and see each of its faults."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cases import Cases
from tests.support.generate import NAMES, Repositories
from tests.support.git import git, run
from tests.support.upstream import Fault, Upstream

Start = Callable[..., Upstream]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"v0": True},
        {"version": "version=1"},
        {"gzip": "force", "chunk": 7},
        {"chunk": 1},
        {"gzip": "asked", "framing": "length"},
        {"framing": "close"},
    ],
    ids=str,
)
def test_git_clones(tmp_path: Path, cases: Cases, upstream: Start, options: dict[str, object]) -> None:
    case = cases["h11"]
    server = upstream(case.root, **options)
    git(None, "clone", "-q", "--bare", server.repo("h11"), str(tmp_path / "c.git"))
    assert git(tmp_path / "c.git", "for-each-ref") == git(case.path, "for-each-ref")
    assert server.lines()[0] == "GET /h11.git/info/refs?service=git-upload-pack"


@pytest.mark.parametrize("name", NAMES)
def test_every_repository_clones(tmp_path: Path, repositories: Repositories, upstream: Start, name: str) -> None:
    server = upstream(repositories[name].parent)
    git(None, "clone", "-q", "--mirror", server.repo(name), str(tmp_path / "c.git"))
    there = git(repositories[name], "for-each-ref", "--format=%(objectname) %(refname)")
    assert git(tmp_path / "c.git", "for-each-ref", "--format=%(objectname) %(refname)") == there


def test_cases_have_not_drifted(cases: Cases) -> None:
    for name in cases:
        if name != "h09":  # forty megabytes, made where they are used
            assert cases[name].repos


def test_redirect_and_credentials(tmp_path: Path, cases: Cases, upstream: Start) -> None:
    case = cases["h13"]
    there = upstream(case.root)
    here = upstream(case.root, redirect={"/old/": there.repo("h13")})
    git(None, "clone", "-q", "--bare", f"{here.url}/old/h13.git", str(tmp_path / "c.git"))
    assert [r.path for r in there.requests if r.method == "POST"] == ["/h13.git/git-upload-pack"] * 2
    locked = upstream(case.root, user="ada", password="pass word")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{locked.repo('h13')}/info/refs?service=git-upload-pack")
    with caught.value:
        assert caught.value.code == 401
    url = locked.repo("h13").replace("http://", "http://ada:pass%20word@")
    git(None, "clone", "-q", "--bare", url, str(tmp_path / "d.git"))


@pytest.mark.parametrize(
    "fault",
    [
        {"cut": 100},
        {"cut": 0},
        {"status": 500},
        {"rewrite": lambda piece: piece.replace(b"PACK", b"KCAP")},
        {"stall": 40, "stall_seconds": 0.1, "cut": 60},
    ],
    ids="-".join,
)
def test_faults_are_seen(tmp_path: Path, cases: Cases, upstream: Start, fault: dict[str, object]) -> None:
    server = upstream(cases["h14"].root, faults=[Fault(r"POST .*/git-upload-pack", **fault)])  # type: ignore[arg-type]
    assert run(None, "clone", "-q", "--bare", server.repo("h14"), str(tmp_path / "c.git")).returncode != 0
