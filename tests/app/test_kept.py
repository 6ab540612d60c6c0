"""Answers that are kept: given again only where the very same would be made anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import orjson
import pytest

from app.kept import Kept
from app.reads.page import Answer
from app.tokens import new_token
from tests.support.git import Plumbing, git, init
from tests.support.service import Repo, Running, bring


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = init(tmp_path_factory.mktemp("kept") / "source.git")
    _commit(path, b"one\ntwo\nthree\n")
    return path


def _commit(path: Path, text: bytes) -> str:
    """A new commit of two files; the first holds `text`."""
    plumbing = Plumbing(path)
    tree = plumbing.tree([("100644", b"a.txt", plumbing.blob(text)), ("100644", b"b.txt", plumbing.blob(b"other\n"))])
    oid = plumbing.commit("change", tree)
    plumbing.ref("refs/heads/main", oid)
    return oid


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    secrets, records = {}, []
    for name, repos in (("owner", ["tests/*"]), ("second", ["tests/*"]), ("stranger", ["else/*"])):
        secrets[name], record = new_token(name, repos, ["read"])
        records.append(record)
    file = tmp_path_factory.mktemp("tokens") / "tokens.json"
    file.write_bytes(orjson.dumps(records))
    return secrets | {"file": str(file)}


@pytest.fixture(scope="module")
def running(source: Path, tokens: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    store = tmp_path_factory.mktemp("store") / "store"
    bring(store, "kept", source)
    service = Running(store, tokens_file=tokens["file"])
    yield service
    service.stop()


@pytest.fixture
def repo(running: Running) -> Repo:
    return running.repo("kept")


def _ask(repo: Repo, token: str, path: str, /, **params: object) -> httpx.Response:
    return repo.ask(path, headers={"Authorization": f"Bearer {token}"}, **params)


def _hit(answer: httpx.Response) -> bool:
    return 'cache;desc="hit"' in answer.headers["server-timing"]


@pytest.mark.parametrize("path", ["/resolve", "/commit", "/tree", "/refs", "/log"])
def test_the_same_comes_again(repo: Repo, tokens: dict[str, str], path: str) -> None:
    first, second = (_ask(repo, tokens["owner"], path) for _ in range(2))
    assert not _hit(first)
    assert _hit(second)
    assert first.content == second.content
    for name in ("etag", "cache-control", "packhouse-commit", "packhouse-generation", "content-type", "vary"):
        assert first.headers.get(name) == second.headers.get(name)


def test_who_may_not_read_gets_nothing_of_it(repo: Repo, tokens: dict[str, str]) -> None:
    assert _ask(repo, tokens["owner"], "/tree", rev="main").status_code == 200
    assert _ask(repo, tokens["owner"], "/tree", rev="main").status_code == 200
    assert _ask(repo, tokens["stranger"], "/tree", rev="main").status_code == 404
    assert _ask(repo, "nonsense", "/tree", rev="main").status_code == 401


def test_what_is_not_complete_is_made_anew(repo: Repo, tokens: dict[str, str]) -> None:
    for _ in range(2):
        answer = _ask(repo, tokens["owner"], "/blob", path="a.txt", max_bytes=4)
        assert answer.json()["complete"] is False
        assert not _hit(answer)
        assert answer.headers["cache-control"] == "no-store"
        page = _ask(repo, tokens["owner"], "/tree", limit=1)
        assert page.json()["complete"] is False
        assert not _hit(page)


def test_a_cursor_stays_its_bearers_own(repo: Repo, tokens: dict[str, str]) -> None:
    cursor = _ask(repo, tokens["owner"], "/tree", limit=1).json()["next_cursor"]
    for _ in range(2):
        last = _ask(repo, tokens["owner"], "/tree", limit=1, cursor=cursor)
        assert last.json()["complete"] is True
        assert not _hit(last)
    refused = _ask(repo, tokens["second"], "/tree", limit=1, cursor=cursor)
    assert refused.status_code == 400
    assert refused.json()["code"] == "bad_cursor"


def test_errors_and_unknown_parameters_are_not_kept(repo: Repo, tokens: dict[str, str]) -> None:
    for _ in range(2):
        assert _ask(repo, tokens["owner"], "/commit", rev="nowhere").status_code == 404
        assert _ask(repo, tokens["owner"], "/commit", reef="HEAD").status_code == 400
        assert _ask(repo, tokens["owner"], "/commit", accept="text/html").status_code == 406


def test_a_new_generation_is_asked_anew(source: Path, tokens: dict[str, str], running: Running) -> None:
    repo = running.repo("kept")
    before = [_ask(repo, tokens["owner"], "/resolve").json()["oid"] for _ in range(2)]
    changed = _commit(source, b"changed\n")
    bring(running.store, "kept", source)
    after = _ask(repo, tokens["owner"], "/resolve")
    assert after.json()["oid"] == changed == git(source, "rev-parse", "HEAD").decode().strip()
    assert changed not in before
    assert not _hit(after)


def test_none_are_kept_where_there_is_no_room(source: Path, tmp_path: Path) -> None:
    bring(tmp_path / "store", "kept", source)
    service = Running(tmp_path / "store", answer_cache_bytes="0")
    try:
        answers = [service.repo("kept").ask("/resolve") for _ in range(2)]
        assert not any(_hit(answer) for answer in answers)
        assert answers[0].content == answers[1].content
    finally:
        service.stop()


def test_the_least_recently_used_goes_first() -> None:
    kept = Kept(64 * 1500)
    answer = Answer(b"x" * 1000, None, True, 0.5)
    for number in range(64):
        kept.put(str(number), answer)
    assert kept.get("0") == Answer(answer.body, None, True, 0.0)
    kept.put("64", answer)
    assert kept.get("1") is None
    assert kept.get("0") is not None
    kept.put("large", Answer(b"x" * 1001, None, True, 0.0))
    kept.put("incomplete", Answer(b"x", None, False, 0.0))
    assert kept.get("large") is kept.get("incomplete") is None


def test_small_streams_and_patches(repo: Repo, tokens: dict[str, str]) -> None:
    for path, accept in (
        ("/tree", "application/x-ndjson"),
        ("/diff", "application/x-ndjson"),
        ("/diff", "text/x-diff"),
    ):
        headers = {"Authorization": f"Bearer {tokens['owner']}"}
        first = (
            repo.ask(path, accept, recursive=True, headers=headers)
            if path == "/tree"
            else repo.ask(path, accept, context=7, headers=headers)
        )
        again = repo.client.request("GET", first.request.url, headers=headers | {"Accept": accept})
        assert again.status_code == 200
        kept, fresh = again.headers, first.headers
        for name in ("content-type", "cache-control", "packhouse-commit", "packhouse-generation", "vary"):
            assert kept.get(name) == fresh.get(name), name
        if accept == "text/x-diff":
            assert again.content == first.content
            assert "cache" in kept["server-timing"]
            continue
        old, new = ([orjson.loads(line) for line in body.content.splitlines()] for body in (first, again))
        assert old[-1].pop("receipt")
        assert new[-1].pop("receipt")
        assert old == new
        head = repo.client.request("HEAD", first.request.url, headers=headers | {"Accept": accept})
        assert head.content == b""
