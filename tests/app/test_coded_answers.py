"""Answers in gzip and zstd are those without a coding, whichever way they are made, sent, kept and broken off."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from app.coders import WORTH_BYTES
from app.coding import CODINGS
from tests.conftest import Served
from tests.support.coding import Decoder, fetch
from tests.support.generate import Repositories
from tests.support.git import Plumbing, init
from tests.support.processes import settled
from tests.support.service import OWNER, Repo, Running, bring, kill_workers, narrow, serving

JSON, NDJSON, PATCH = "application/json", "application/x-ndjson", "text/x-diff"

READS: dict[str, dict[str, Any]] = {
    "/resolve": {},
    "/commit": {},
    "/blob": {"path": "src/d0/f0.c"},
    "/stat": {"path": "src"},
    "/merge-base": {"rev": ["HEAD", "HEAD~3"]},
    "/ahead-behind": {"head": "HEAD~3"},
}
LISTS: dict[str, dict[str, Any]] = {
    "/refs": {},
    "/tree": {"recursive": True, "sizes": True},
    "/log": {},
    "/diff": {"base": "HEAD~30"},
    "/grep": {"pattern": "e"},
}
FORMS = [
    *((path, params, JSON) for path, params in (READS | LISTS).items()),
    *((path, params, NDJSON) for path, params in LISTS.items()),
    ("/diff", LISTS["/diff"], PATCH),
    ("/diff", {"base": "HEAD"}, PATCH),
]
SAME = ("content-type", "cache-control", "packhouse-commit", "packhouse-generation", "vary")


@pytest.fixture(scope="module")
def repo(served: Served) -> Repo:
    return served.repo("history")


def lines(body: bytes) -> list[bytes]:
    """The lines of a stream, the last one without its receipt, which is another one each time."""
    rows = body.splitlines(keepends=True)
    end = orjson.loads(rows[-1])
    assert end["end"] is True
    assert end.pop("receipt")["total_ms"] >= 0
    return [*rows[:-1], orjson.dumps(end)]


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize(("path", "params", "kind"), FORMS)
def test_decoded_it_is_the_same(
    served: Served, repo: Repo, path: str, params: dict[str, Any], kind: str, coding: str
) -> None:
    plain = fetch(repo, path, None, kind, **params)
    # Made anew, coded of what is kept as it is, and kept in the coding.
    for answer in [fetch(served.repo("history"), path, coding, kind, **params) for _ in range(3)]:
        assert answer.status == plain.status == 200
        if kind == NDJSON:
            assert lines(answer.body) == lines(plain.raw)
        else:
            assert answer.body == plain.raw
        assert [answer.headers.get(name) for name in SAME] == [plain.headers.get(name) for name in SAME]
        assert answer.coding == (coding if kind != JSON or len(plain.raw) >= WORTH_BYTES else "identity")
        assert len(answer.raw) <= len(plain.raw) or len(plain.raw) < WORTH_BYTES
    assert plain.coding == "identity"
    assert "content-encoding" not in plain.headers


def test_large_and_small_documents_are_among_them(repo: Repo) -> None:
    sizes = [len(fetch(repo, path, None, JSON, **params).raw) for path, params, kind in FORMS if kind == JSON]
    assert min(sizes) < WORTH_BYTES < max(sizes)


@pytest.fixture(scope="module")
def unkept(tmp_path_factory: pytest.TempPathFactory, repositories: Repositories) -> Iterator[Repo]:
    store = tmp_path_factory.mktemp("unkept") / "store"
    bring(store, "history", repositories["history"])
    running = Running(store, answer_cache_bytes="0")
    yield running.repo("history")
    running.stop()


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize(("path", "params", "kind"), FORMS)
def test_where_nothing_is_kept(unkept: Repo, path: str, params: dict[str, Any], kind: str, coding: str) -> None:
    plain, answer = (fetch(unkept, path, accepted, kind, **params) for accepted in (None, coding))
    assert (
        (lines(answer.body), answer.coding) == (lines(plain.raw), coding)
        if kind == NDJSON
        else (answer.body == plain.raw)
    )


@pytest.mark.parametrize("accepted", ["identity", "br", "gzip;q=x", "gzip;q=0", "identity;q=0", "*;q=0"])
@pytest.mark.parametrize("kind", [JSON, NDJSON])
def test_identity_where_no_coding_is_agreed_on(repo: Repo, kind: str, accepted: str) -> None:
    plain, answer = (fetch(repo, "/tree", coding, kind, recursive=True, limit=90) for coding in (None, accepted))
    assert answer.coding == "identity"
    assert (lines(answer.raw) == lines(plain.raw)) if kind == NDJSON else answer.raw == plain.raw


@pytest.mark.parametrize("coding", CODINGS)
def test_pages_of_a_cursor(repo: Repo, coding: str) -> None:
    cursor: dict[str, str] = {}
    codings = set()
    while True:
        plain, answer = (fetch(repo, "/log", accepted, limit=40, **cursor) for accepted in (None, coding))
        codings.add(answer.coding)
        found, wanted = orjson.loads(answer.body), orjson.loads(plain.raw)
        following = wanted.pop("next_cursor")
        assert (found.pop("next_cursor") is None) == (following is None)
        assert found == wanted
        assert ("etag" in answer.headers) == found["complete"] == (following is None)
        if following is None:
            break
        assert answer.headers["cache-control"] == "no-store"
        cursor = {"cursor": following}
    assert cursor
    assert codings <= {coding, "identity"}
    assert coding in codings


def test_each_coding_has_its_own_tag(repo: Repo) -> None:
    tags = {coding: fetch(repo, "/log", coding, limit=1000).headers["etag"] for coding in ("br", *CODINGS)}
    assert tags == {
        "br": tags["br"],
        "gzip": tags["br"][:-1] + '-gzip"',
        "zstd": tags["br"][:-1] + '-zstd"',
    }
    small = {fetch(repo, "/resolve", coding).headers["etag"] for coding in (None, *CODINGS)}
    assert len(small) == 1


@pytest.mark.parametrize(("path", "params"), LISTS.items())
def test_what_a_client_has_is_not_sent_again(repo: Repo, path: str, params: dict[str, Any]) -> None:
    whole = params | ({"limit": 1000} if path == "/log" else {"limit": 10_000} if path == "/grep" else {})
    tag = {coding: fetch(repo, path, coding, **whole).headers["etag"] for coding in ("identity", *CODINGS)}

    def status(accepted: str, held: str) -> tuple[int, str | None]:
        answer = fetch(repo, path, accepted, headers={"If-None-Match": held}, **whole)
        assert (answer.raw == b"") == (answer.status == 304)
        assert answer.headers["vary"] == "Accept, Accept-Encoding, Authorization"
        return answer.status, answer.headers.get("etag")

    for coding in CODINGS:
        assert status(coding, tag[coding]) == (304, tag[coding])
        assert status(coding, f'"x", W/{tag[coding]}') == (304, tag[coding])
        # What is held without a coding may be taken by all.
        assert status(coding, tag["identity"]) == (304, tag["identity"])
        # A coding that is not accepted now is of no use, whoever has kept it.
        assert status("identity", tag[coding]) == (200, tag["identity"])
    assert tag["gzip"] != tag["zstd"]
    assert status("gzip", tag["zstd"]) == (200, tag["gzip"])
    assert status("gzip", f"{tag['zstd']}, {tag['gzip']}") == (304, tag["gzip"])


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize(("path", "params", "kind"), FORMS)
def test_head_says_what_get_does(repo: Repo, path: str, params: dict[str, Any], kind: str, coding: str) -> None:
    full, bare = (fetch(repo, path, coding, kind, method, **params) for method in ("GET", "HEAD"))
    assert bare.raw == b""
    ignored = {"date", "server-timing"} | ({"content-length", "transfer-encoding"} if kind != JSON else set())
    said = [{k: v for k, v in answer.headers.items() if k not in ignored} for answer in (full, bare)]
    assert said[0] == said[1]


@pytest.mark.parametrize("coding", CODINGS)
def test_errors_are_sent_as_they_are(repo: Repo, coding: str) -> None:
    for kind in (JSON, NDJSON):
        answer = fetch(repo, "/log", coding, kind, rev="nowhere" * 500)
        assert answer.status == 404
        assert answer.coding == "identity"
        assert orjson.loads(answer.raw)["code"] == "revision_not_found"


# What takes a while


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A repository whose search, and whose patch, are far more than what lies between a worker and a client."""
    folder = tmp_path_factory.mktemp("large")
    plumbing = Plumbing(init(folder / "source.git"))
    rng = random.Random(11)
    rows = [rng.randbytes(400).hex().encode() for _ in range(20_000)]
    blobs = [("100644", b"f%02d" % number, plumbing.blob(b"\n".join(rows[number::20]) + b"\n")) for number in range(20)]
    plumbing.ref("refs/heads/main", plumbing.commit("noise", plumbing.tree(blobs)))
    bring(folder / "store", "large", folder / "source.git")
    running = Running(folder / "store")
    yield running
    running.stop()


@contextmanager
def begun(running: Running, path: str, kind: str, coding: str) -> Iterator[tuple[Iterator[bytes], Decoder]]:
    """An answer to a client that takes in little ahead of it: its decoded pieces, and what decodes them."""
    headers = {"Accept": kind, "Accept-Encoding": coding}
    with (
        narrow(running.url) as client,
        client.stream("GET", f"/v1/repos/{OWNER}/large{path}", headers=headers) as answer,
    ):
        assert (answer.status_code, answer.headers["content-encoding"]) == (200, coding)
        reader = Decoder(coding)
        yield (reader.feed(piece) for piece in answer.iter_raw()), reader


@pytest.mark.parametrize("coding", CODINGS)
def test_a_slow_client_gets_all(large: Running, coding: str) -> None:
    with begun(large, "/grep?pattern=a", NDJSON, coding) as (pieces, reader):
        rows = b"".join(pieces).splitlines()
        assert reader.ended
    end = orjson.loads(rows[-1])
    assert end["complete"] is True
    assert end["receipt"]["total_ms"] > 0
    assert len(rows) == 20_001


@pytest.mark.parametrize("coding", CODINGS)
def test_a_list_that_ends_early_is_a_proper_stream(large: Running, coding: str) -> None:
    with begun(large, "/grep?pattern=b", NDJSON, coding) as (pieces, reader):
        found = [next(pieces)]
        kill_workers(large)
        records = [orjson.loads(row) for row in b"".join([*found, *pieces]).splitlines()]
        assert reader.ended
    assert (records[-1]["end"], records[-1]["complete"]) == (True, False)
    assert records[-1]["error"]["code"] == "worker_lost"
    assert len(records) < 20_000
    places = [(record["path"], record["line"]) for record in records[:-1]]
    assert all(one < two for one, two in pairwise(places))
    assert settled(lambda: fetch(large.repo("large"), "/grep", None, pattern="a", limit=1).status, 200) == 200


@pytest.mark.parametrize("coding", CODINGS)
def test_a_patch_that_breaks_never_looks_whole(large: Running, coding: str) -> None:
    with begun(large, "/diff", PATCH, coding) as (pieces, reader):
        found = [next(pieces)]
        kill_workers(large)
        with pytest.raises(httpx.RemoteProtocolError):
            found.extend(pieces)
        assert not reader.ended
    assert b"".join(found).startswith(b"diff --git ")
    assert settled(lambda: fetch(large.repo("large"), "/grep", None, pattern="a", limit=1).status, 200) == 200


def test_a_list_of_repositories(tmp_path: Path) -> None:
    store = tmp_path / "store"
    bring(store, "r0", init(tmp_path / "empty.git"))
    with serving(store) as running:
        every = running.repo("")
        every.base = "/v1/repos"
        few = fetch(every, "", "gzip")
        assert few.coding == "identity"
        for number in range(1, WORTH_BYTES // len(few.raw) + 2):
            bring(store, f"r{number}", tmp_path / "empty.git")
        plain = fetch(every, "", None)
        assert len(orjson.loads(plain.raw)["repositories"]) == number + 1
        assert len(plain.raw) > WORTH_BYTES
        for coding in CODINGS:
            answer = fetch(every, "", coding)
            assert (answer.coding, answer.body) == (coding, plain.raw)
            assert len(answer.raw) < len(plain.raw)
            assert answer.headers["vary"] == plain.headers["vary"]
