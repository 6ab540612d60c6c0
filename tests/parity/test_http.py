"""The generated repositories over HTTP: every operation's answer is git's."""

from __future__ import annotations

import pytest

from tests.conftest import Served
from tests.support.generate import NAMES, Repositories
from tests.support.git import git


@pytest.mark.parametrize("name", NAMES)
def test_refs(served: Served, repositories: Repositories, name: str) -> None:
    repo = served.repo(name)
    out = git(
        repositories[name], "for-each-ref", "--format=%(refname)%00%(objectname)%00%(objecttype)%00%(*objectname)"
    )
    wanted = [line.split(b"\0") for line in out.splitlines()]
    refs = [ref for ref in repo.pages("/refs", "refs", limit=100) if ref["name"] != "HEAD"]
    assert [(r["oid"], r["type"]) for r in refs] == [(w[1].decode(), w[2].decode()) for w in wanted]
