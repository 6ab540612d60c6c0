"""Upstreams that list refs which no repository can hold: they are left out and counted, and git opens the folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.git import Plumbing, git, init
from tests.support.packserver import PackServer
from tests.support.service import OWNER, Running


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path / "store", allow_upstreams="127.0.0.0/8")
    yield running
    running.stop()


def test_refs_that_no_repository_can_hold(running: Running, tmp_path: Path) -> None:
    p = Plumbing(init(tmp_path / "r.git"))
    tip = p.commit("tip", p.file(b"f", b"f\n"))
    pack = git(p.path, "pack-objects", "-q", "--revs", "--stdout", stdin=tip.encode() + b"\n")
    held = ["refs/heads/main", "refs/heads/main-2", "refs/heads/side/a", "refs/heads/side/b/c", "refs/tags/main"]
    below = ["refs/heads/main/sub", "refs/heads/main/sub/deeper", "refs/heads/side/b/c/d", "refs/tags/main/1"]
    odd = ["refs/heads/a..b", "refs/heads/a.lock", "refs/heads/../../etc/x", "refs/heads/a//b", "refs/heads/x~1"]
    repo = running.repo("r")
    with PackServer(dict.fromkeys([*held, *below, *odd], tip), pack) as server:
        operation = repo.put(server.url)
        assert (operation["state"], operation["refused_refs"]) == ("succeeded", len(below) + len(odd))
        assert [ref["name"] for ref in repo.json("/refs")["refs"]] == ["HEAD", *held]
        store = running.store / OWNER / "r.git"
        listed = git(store, "for-each-ref", "--format=%(refname)").decode().split()
        assert listed == held
        git(None, "clone", "-q", "--bare", str(store), str(tmp_path / "clone.git"))
        git(tmp_path / "clone.git", "fsck", "--full")
        # What stood in the way goes: then there is room.
        server.refs = dict.fromkeys(["refs/heads/main/sub", "refs/heads/side"], tip)
        operation = repo.sync()
        assert (operation["state"], operation["refused_refs"]) == ("succeeded", 0)
        assert [ref["name"] for ref in repo.json("/refs")["refs"]] == sorted(server.refs)
