"""Whether a repository came over smart HTTP or from a folder makes no difference to any answer."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.parity.test_http import files_of, head_of, sample
from tests.support.cases import Cases
from tests.support.generate import NAMES, Repositories
from tests.support.git import git
from tests.support.service import Repo, Running, bring
from tests.support.upstream import Upstream

NDJSON = "application/x-ndjson"
PATCH = "text/x-diff"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that may fetch from this machine."""
    running = Running(tmp_path_factory.mktemp("fetched") / "store", allow_upstreams="127.0.0.0/8")
    yield running
    running.stop()


def questions(path: Path, name: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(path, media type, parameters) of requests to every operation."""
    json = "application/json"
    refs = sample(name, git(path, "for-each-ref", "--format=%(refname)", "refs/heads", "refs/tags").split(), 6)
    for where, prefix in (("/refs", ""), ("/refs", "refs/tags/")):
        yield where, json, {"prefix": prefix, "limit": 10_000}
        yield where, NDJSON, {"prefix": prefix}
    for rev in [b"HEAD", b"nothing", *refs]:
        yield "/resolve", json, {"rev": rev}
        yield "/commit", json, {"rev": rev}
        yield "/tag", json, {"rev": rev}
        yield "/log", json, {"rev": rev, "limit": 20}
        yield "/tree", json, {"rev": rev, "sizes": True}
    revs = [b"HEAD"] if head_of(path) else [ref for ref in refs if ref.startswith(b"refs/heads/")][:1]
    for rev in revs or [b"HEAD"]:
        yield "/log", NDJSON, {"rev": rev, "order": "topo"}
        yield "/tree", NDJSON, {"rev": rev, "recursive": True}
        yield "/diff", json, {"head": rev, "limit": 30}
        yield "/diff", NDJSON, {"head": rev}
        yield "/diff", PATCH, {"head": rev}
        yield "/grep", json, {"rev": rev, "pattern": "[0-9]", "limit": 50}
        yield "/grep", NDJSON, {"rev": rev, "pattern": "ba", "fixed": True, "before": 1}
        yield "/merge-base", json, {"rev": [rev, *refs[:1]], "all": True}
        yield "/ahead-behind", json, {"base": rev, "head": refs or [b"HEAD"]}
        files = sample(name, files_of(path, rev), 6) if head_of(path) or refs else []
        for _, oid, _, where in files:
            yield "/stat", json, {"rev": rev, "path": where}
            yield "/blob", json, {"rev": rev, "path": where}
            yield "/raw", "*/*", {"rev": rev, "path": where}
            yield f"/objects/{oid.decode()}", "*/*", {}


OWN = ("generation", "next_cursor", "receipt")


def told(repo: Repo, where: str, kind: str, params: dict[str, Any]) -> tuple[int, str, Any]:
    """Status, type and content of an answer, without what belongs to this one ingest of it."""
    answer = repo.ask(where, accept=kind, **params)
    kind = answer.headers["content-type"]
    body: Any = answer.content
    if kind in ("application/json", NDJSON):
        body = [orjson.loads(line) for line in body.splitlines()]
        for document in body:
            if document.get("next_cursor") is not None:
                document["more"] = True
            for key in OWN:
                document.pop(key, None)
    return answer.status_code, kind, body


@pytest.mark.parametrize("name", NAMES)
def test_the_same_answers(
    running: Running, repositories: Repositories, upstream: Callable[..., Upstream], name: str
) -> None:
    compare(running, repositories[name], name, upstream)


@pytest.mark.parametrize("name", [f"h{number:02}" for number in range(1, 25) if number != 9])
def test_the_same_answers_about_handed_cases(
    running: Running, cases: Cases, upstream: Callable[..., Upstream], name: str
) -> None:
    for repository, path in cases[name].repos.items():
        compare(running, path, repository, upstream)


@pytest.mark.parametrize("name", ["history", "merges", "tags", "names", "clocks", "idents", "texts"])
def test_the_same_answers_after_growing(
    running: Running,
    repositories: Repositories,
    upstream: Callable[..., Upstream],
    tmp_path: Path,
    name: str,
) -> None:
    """The upstream grows, moves back, loses and changes refs between the first fetch and the last."""
    path = Path(shutil.copytree(repositories[name], tmp_path / f"{name}.git"))
    wanted = git(path, "for-each-ref", "--format=%(refname) %(objectname) %(symref)").decode().splitlines()
    refs = {row.split()[0]: row.split()[1] for row in wanted if len(row.split()) == 2}
    url = upstream(tmp_path).repo(name)
    fetched = running.repo(f"{name}-grown")
    commits = git(path, "rev-list", "--topo-order", "main").decode().split()
    generations = []
    for step in range(3):
        # Older and older ends first, then newer ones; refs come and go; one is not a descendant of what it was.
        tip = commits[-1 - step * (len(commits) // 4)]
        for number, ref in enumerate(sorted(refs)):
            if number % 3 == step:
                git(path, "update-ref", "-d", ref)
            else:
                git(path, "update-ref", ref, tip if number % 2 else commits[len(commits) // 2])
        operation = fetched.put(url) if step == 0 else fetched.sync()
        assert operation["state"] == "succeeded", operation["error"]
        generations.append(operation["generation"])
    assert generations == sorted(generations) and len(set(generations)) > 1
    for ref, oid in refs.items():
        git(path, "update-ref", ref, oid)
    compare(running, path, f"{name}-grown", upstream, url)


def compare(running: Running, path: Path, name: str, upstream: Callable[..., Upstream], url: str | None = None) -> None:
    """Bring the repository both ways and ask both; with `url` it is one that was fetched from there before."""
    bring(running.store, f"{name}-local", path)
    local, fetched = running.repo(f"{name}-local"), running.repo(name if url else f"{name}-fetched")
    operation = fetched.sync() if url else fetched.put(upstream(path.parent).repo(name))
    assert operation["state"] == "succeeded", operation["error"]
    asked = 0
    for where, kind, params in questions(path, name):
        mine, theirs = told(fetched, where, kind, params), told(local, where, kind, params)
        assert mine == theirs, (where, params)
        asked += mine[0] == 200
    assert asked > (0 if name in ("empty", "h12a") else 12)
    documents = [repo.client.get(repo.base).json() for repo in (local, fetched)]
    for key in ("state", "default_branch", "refs", "object_format"):
        assert documents[0][key] == documents[1][key]
