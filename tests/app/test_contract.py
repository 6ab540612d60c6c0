"""What holds for every endpoint: errors, caching, ranges, pages, streams, consistency, tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import orjson
import pytest

from app.operations import LIST_READS, SINGLE_READS
from app.service import ENDPOINTS
from app.tokens import new_token
from tests.conftest import Served
from tests.support.generate import Repositories
from tests.support.git import git
from tests.support.service import Repo, Running, bring

NDJSON = "application/x-ndjson"


@pytest.fixture(scope="module")
def repo(served: Served) -> Repo:
    return served.repo("linear")


@pytest.fixture(scope="module")
def head(repositories: Repositories) -> str:
    return git(repositories["linear"], "rev-parse", "HEAD").decode().strip()


REQUIRED = {
    "/tag": {"rev": "HEAD"},
    "/merge-base": {"rev": ["HEAD", "HEAD~1"]},
    "/ahead-behind": {"head": "HEAD~1"},
    "/grep": {"pattern": "step"},
}
READS = [operation.path for operation in (*SINGLE_READS, *LIST_READS) if operation.path != "/tag"]
EXTRA: dict[str, dict[str, object]] = {
    **REQUIRED,
    "/blob": {"path": "README"},
    "/stat": {"path": "README"},
    "/raw": {"path": "README"},
}


@pytest.mark.parametrize("path", READS)
def test_every_read_carries_the_envelope(repo: Repo, head: str, path: str) -> None:
    answer = repo.ask(path, **EXTRA.get(path, {}))
    document = orjson.loads(answer.content)
    assert {"generation", "commit", "complete", "next_cursor", "skipped", "skipped_counts"} <= document.keys()
    assert document["generation"] == int(answer.headers["packhouse-generation"])
    if path not in ("/refs", "/merge-base", "/ahead-behind"):
        assert document["commit"] == answer.headers["packhouse-commit"] == head
    assert "total;dur=" in answer.headers["server-timing"]
    assert answer.headers["vary"] == "Accept, Accept-Encoding, Authorization"
    assert (document["next_cursor"] is None) or not document["complete"]


@pytest.mark.parametrize("path", [*READS, "/raw"])
def test_head_says_the_same_without_a_body(repo: Repo, path: str) -> None:
    full, bare = (repo.ask(path, method=method, **EXTRA.get(path, {})) for method in ("GET", "HEAD"))
    assert (full.status_code, bare.status_code, bare.content) == (200, 200, b"")
    ignored = {"date", "server-timing", "content-length"}
    assert {k: v for k, v in full.headers.items() if k not in ignored} == {
        k: v for k, v in bare.headers.items() if k not in ignored
    }


@pytest.mark.parametrize("path", [*READS, "/raw"])
def test_conditional_requests(repo: Repo, path: str) -> None:
    whole = EXTRA.get(path, {}) | ({"limit": 1000} if path in ("/log",) else {})
    answer = repo.ask(path, **whole)
    assert answer.headers["cache-control"] == "private, no-cache"
    etag = answer.headers["etag"]
    again = repo.ask(path, **whole, headers={"If-None-Match": f'"other", {etag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert repo.ask(path, **whole, headers={"If-None-Match": '"other"'}).status_code == 200


def test_a_representation_has_its_own_tag(repo: Repo) -> None:
    tags = {
        repo.ask("/tree", path=path, recursive=deep).headers["etag"] for path in ("", "src") for deep in (True, False)
    }
    assert len(tags) == 4


def test_full_ids_are_immutable(repo: Repo, head: str) -> None:
    for path in ("/commit", "/tree", "/resolve", "/stat", "/raw"):
        extra = {"path": "README"} if path in ("/stat", "/raw") else {}
        cache = repo.ask(path, rev=head, **extra).headers["cache-control"]
        assert cache == "private, immutable, max-age=31536000", path
        assert repo.ask(path, rev="main", **extra).headers["cache-control"] == "private, no-cache"
    page = repo.ask("/tree", rev=head, limit=1)
    assert page.headers["cache-control"] == "no-store"
    assert "etag" not in page.headers


@pytest.mark.parametrize(
    ("range_", "status", "body", "said"),
    [
        ("bytes=0-0", 206, b"0", "bytes 0-0/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=10-", 416, None, "bytes */10"),
        ("bytes=5-2", 200, b"0123456789", None),
        ("bytes=0-1,3-4", 200, b"0123456789", None),
        ("pages=1", 200, b"0123456789", None),
    ],
)
def test_ranges(served: Served, range_: str, status: int, body: bytes | None, said: str | None) -> None:
    answer = served.case("h24").ask("/raw", path="ten", headers={"Range": range_})
    assert answer.status_code == status
    assert answer.headers.get("content-range") == said
    if body is not None:
        assert answer.content == body
    else:
        assert answer.headers["content-type"] == "application/problem+json"
        assert orjson.loads(answer.content)["code"] == "range_not_satisfiable"


def test_if_range(served: Served) -> None:
    repo = served.case("h24")
    etag = repo.ask("/raw", path="ten", headers={"Accept-Encoding": "identity"}).headers["etag"]
    for condition, status in ((etag, 206), ('"other"', 200), (f"W/{etag}", 200)):
        assert repo.ask("/raw", path="ten", headers={"Range": "bytes=1-2", "If-Range": condition}).status_code == status


def test_a_big_file_streams_and_ranges(served: Served, repositories: Repositories) -> None:
    """Above what the event loop handles itself."""
    repo, path = served.repo("big"), repositories["big"]
    rows = [line.split(None, 4) for line in git(path, "ls-tree", "-r", "-l", "HEAD").splitlines()]
    mode, _, oid, size, name = max(rows, key=lambda row: int(row[3]))
    data = git(path, "cat-file", "blob", oid.decode())
    assert int(size) > 1 << 20
    assert mode == b"100644"
    answer = repo.ask("/raw", path=name, headers={"Accept-Encoding": "identity"})
    assert answer.content == data
    assert answer.headers["content-length"] == size.decode()
    part = repo.ask("/raw", path=name, headers={"Range": "bytes=300000-1000000"})
    assert (part.status_code, part.content) == (206, data[300_000:1_000_001])
    assert repo.ask(f"/objects/{oid.decode()}").content == data


def test_download_headers(served: Served) -> None:
    answer = served.case("h07").ask("/raw", path="ü.txt")
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''%C3%BC.txt"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-type"] == "application/octet-stream"


@pytest.mark.parametrize(
    ("path", "params", "status", "code"),
    [
        ("/tree", {"rev": "nope"}, 404, "revision_not_found"),
        ("/tree", {"path": "nope"}, 404, "path_not_found"),
        ("/raw", {"path": "src"}, 422, "wrong_type"),
        ("/blob", {"path": "src"}, 422, "wrong_type"),
        ("/tree", {"path": "README"}, 422, "wrong_type"),
        ("/tree", {"limit": 0}, 400, "bad_parameter"),
        ("/tree", {"limt": 1}, 400, "unknown_parameter"),
        ("/tree", {"rev": "a..b"}, 400, "bad_revision"),
        ("/tree", {"rev": "HEAD@{1}"}, 400, "bad_revision"),
        ("/grep", {"pattern": "a(b"}, 400, "bad_pattern"),
        ("/grep", {}, 400, "bad_parameter"),
        ("/log", {"cursor": "AAAA"}, 400, "bad_cursor"),
        ("/tree", {"min_generation": 10**9}, 409, "generation_not_reached"),
        ("/objects/" + "0" * 40, {}, 404, "object_not_found"),
        ("/objects/abc", {}, 400, "bad_parameter"),
        ("/commit", {"rev": "0" * 40}, 404, "revision_not_found"),
        ("/tag", {"rev": "main"}, 422, "wrong_type"),
        ("/nothing", {}, 404, "no_such_path"),
        ("%2Frefs", {}, 404, "no_such_path"),
    ],
)
def test_refusals(repo: Repo, path: str, params: dict[str, object], status: int, code: str) -> None:
    problem = repo.problem(path, **params)
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["type"] == f"urn:packhouse:problem:{code}"
    assert problem["title"]
    assert problem["detail"]


@pytest.mark.parametrize("rev", ["a..b", "-x", "HEAD@{1}", "nope", "HEAD~9999", "HEAD^{tag}"])
@pytest.mark.parametrize(
    ("path", "parameter", "others"),
    [
        *[(path, "rev", {}) for path in ("/resolve", "/commit", "/tree", "/stat", "/blob", "/raw", "/log")],
        ("/grep", "rev", {"pattern": "x"}),
        ("/log", "not", {}),
        ("/merge-base", "rev", {"rev": "main"}),
        ("/ahead-behind", "base", {"head": "main"}),
        ("/ahead-behind", "head", {"base": "main"}),
        ("/diff", "head", {}),
        ("/diff", "base", {"head": "main"}),
    ],
)
def test_a_bad_revision_names_its_parameter(
    repo: Repo, path: str, parameter: str, others: dict[str, str], rev: str
) -> None:
    one = {**others, parameter: [others[parameter], rev] if parameter in others else rev}
    assert repo.problem(path, **one)["parameter"] == parameter


@pytest.mark.parametrize("path", ["/tree", "/log", "/grep", "/diff", "/refs"])
@pytest.mark.parametrize("params", [{"rev": "nope"}, {"limit": "x"}, {"unknown": "1"}])
def test_streams_refuse_before_the_first_byte(repo: Repo, path: str, params: dict[str, object]) -> None:
    answer = repo.ask(path, accept=NDJSON, **({"pattern": "x"} if path == "/grep" else {}), **params)
    assert 400 <= answer.status_code < 500
    assert answer.headers["content-type"] == "application/problem+json"


def test_not_acceptable(repo: Repo) -> None:
    answer = repo.ask("/log", accept="text/html")
    assert (answer.status_code, orjson.loads(answer.content)["code"]) == (406, "not_acceptable")


def test_method_not_allowed(repo: Repo) -> None:
    answer = repo.client.post(f"{repo.base}/tree")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert answer.headers["content-type"] == "application/problem+json"
    answer = repo.client.post(repo.base)
    assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, GET, HEAD, PUT")


def test_no_repository(served: Served) -> None:
    for owner, name in (("tests", "none"), ("..", "x"), ("a", "b.git"), ("a", "-b"), ("a", "b%2Fc"), ("é", "x")):
        answer = served.running.client.get(f"/v1/repos/{owner}/{name}/tree")
        assert answer.status_code == 404, (owner, name)
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_name_that_cannot_be_is_refused_when_it_is_registered(served: Served) -> None:
    for owner, name, parameter in (("a b", "x", "owner"), ("a", "x.git", "name"), ("a", "-x", "name")):
        answer = served.running.client.put(f"/v1/repos/{owner}/{name}", json={"url": "https://example.org/x.git"})
        assert (answer.status_code, answer.json()["parameter"]) == (400, parameter)


LISTS = {
    "/tree": ("entries", {"recursive": True}),
    "/log": ("commits", {}),
    "/grep": ("matches", {"pattern": "e"}),
    "/diff": ("files", {"base": "HEAD~20", "head": "HEAD"}),
    "/refs": ("refs", {}),
}


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("budget", [{"limit": 1}, {"limit": 3}, {"max_bytes": 1}, {"max_bytes": 700}])
def test_pages_lose_and_repeat_nothing(repo: Repo, path: str, budget: dict[str, int]) -> None:
    key, params = LISTS[path]
    if path == "/diff" and "max_bytes" in budget:
        # A file whose hunks alone are more than the budget comes without them.
        budget = {"max_bytes": 8000}
    records, end = repo.stream(path, **params)
    assert end["complete"] is True
    assert end["next_cursor"] is None
    assert len(records) > 2
    if path in ("/grep", "/log") and budget.get("limit") == 1:
        records = records[:25]
        params = dict(params)
        found = []
        cursor: dict[str, str] = {}
        for _ in records:
            page = repo.json(path, **params, **budget, **cursor)
            assert len(page[key]) == 1
            found += page[key]
            cursor = {"cursor": page["next_cursor"]}
        assert found == records
        return
    assert repo.pages(path, key, **params, **budget) == records


@pytest.mark.parametrize("path", LISTS)
def test_streams_end_with_a_cursor_when_limited(repo: Repo, path: str) -> None:
    key, params = LISTS[path]
    records, _ = repo.stream(path, **params)
    first, end = repo.stream(path, **params, limit=2)
    assert (end["complete"], len(first)) == (False, 2)
    rest, last = repo.stream(path, **params, cursor=end["next_cursor"])
    assert first + rest == records
    assert last["complete"] is True
    assert {"total_ms", "store_requests", "store_bytes"} <= last["receipt"].keys()
    assert repo.json(path, **params, limit=2)[key] == first


def test_cursors_are_bound(repo: Repo, served: Served) -> None:
    cursor = repo.json("/tree", recursive=True, limit=1)["next_cursor"]
    assert repo.json("/tree", recursive=True, limit=2, cursor=cursor)["entries"]
    assert repo.problem("/tree", recursive=False, limit=1, cursor=cursor)["code"] == "bad_cursor"
    assert repo.problem("/log", limit=1, cursor=cursor)["code"] == "bad_cursor"
    other = served.repo("merges")
    assert other.problem("/tree", recursive=True, limit=1, cursor=cursor)["code"] == "bad_cursor"


def test_names_that_are_not_utf8_go_round(served: Served) -> None:
    repo = served.case("h04")
    entries = repo.pages("/tree", "entries", limit=2)
    odd = [entry for entry in entries if "path_b64" in entry]
    assert len(entries) == 7
    assert len(odd) == 1
    assert repo.json("/stat", path=b"latin\xe9") == repo.json("/stat", path_b64=odd[0]["path_b64"])
    assert repo.ask("/raw", path_b64=odd[0]["path_b64"]).content == b"x\n"


def test_health(served: Served) -> None:
    client = served.running.client
    assert client.get("/livez").json() == {"status": "ok"}
    assert client.get("/readyz").json()["checks"]["store"] == "ok"
    assert client.get("/version").json()["name"] == "packhouse"
    assert client.get("/openapi.json").json()["openapi"] == "3.1.0"


def test_only_this_machine_is_answered_without_tokens(served: Served) -> None:
    client = served.running.client
    for host, status in (
        ("evil.example", 403),
        ("localhost", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:80", 200),
        ("192.0.2.1", 403),
    ):
        assert client.get("/livez", headers={"Host": host}).status_code == status, host


def test_operation_ids_are_unique_and_routes_documented(served: Served) -> None:
    document = served.running.client.get("/openapi.json").json()
    found = {operation["operationId"] for path in document["paths"].values() for operation in path.values()}
    assert found == {endpoint.id for endpoint in ENDPOINTS}
    assert len(ENDPOINTS) == len(found)


class Guarded:
    def __init__(self, running: Running, secrets: dict[str, str]) -> None:
        self.running = running
        self.secrets = secrets

    def get(self, method: str, path: str, who: str | None, **kwargs: object) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.secrets[who]}"} if who else {}
        return self.running.client.request(method, path, headers=headers, **kwargs)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, repositories: Repositories) -> Iterator[Guarded]:
    root = tmp_path_factory.mktemp("guarded")
    secrets, records = {}, []
    for who, repos, verbs in (
        ("reader", ["tests/linear"], ["read"]),
        ("writer", ["tests/*"], ["write"]),
        ("stranger", ["others/*"], ["write"]),
    ):
        secrets[who], record = new_token(who, repos, verbs)
        records.append(record)
    tokens = root / "tokens.json"
    tokens.write_text(json.dumps(records))
    bring(root / "store", "linear", repositories["linear"])
    bring(root / "store", "merges", repositories["merges"])
    running = Running(root / "store", tokens_file=str(tokens))
    yield Guarded(running, secrets)
    running.stop()


@pytest.mark.parametrize(
    ("who", "repo", "read", "write"),
    [
        (None, "linear", 401, 401),
        ("reader", "linear", 200, 403),
        ("reader", "merges", 404, 404),
        ("writer", "linear", 200, 400),
        ("writer", "merges", 200, 400),
        ("stranger", "linear", 404, 404),
    ],
)
def test_tokens(guarded: Guarded, who: str | None, repo: str, read: int, write: int) -> None:
    base = f"/v1/repos/tests/{repo}"
    for path in (
        "",
        "/resolve",
        "/tree",
        "/log",
        "/refs",
        "/commit",
        "/grep?pattern=x",
        "/diff",
        "/raw?path=README" if repo == "linear" else "/tree",
    ):
        assert guarded.get("GET", base + path, who).status_code == read, path
    assert guarded.get("PUT", base, who, content=b"{}").status_code == write
    for method, path in (("DELETE", base), ("POST", base + "/sync")):
        if write in (401, 403, 404):
            assert guarded.get(method, path, who).status_code == write


def test_a_token_sees_only_its_repositories(guarded: Guarded) -> None:
    for who, names in (("reader", ["linear"]), ("writer", ["linear", "merges"]), ("stranger", [])):
        listed = guarded.get("GET", "/v1/repos", who).json()["repositories"]
        assert [row["name"] for row in listed] == names
    assert guarded.get("GET", "/v1/repos", None).status_code == 401
    assert guarded.get("GET", "/livez", None).status_code == 200


def test_a_cursor_belongs_to_its_token(guarded: Guarded) -> None:
    page = guarded.get("GET", "/v1/repos/tests/linear/log?limit=1", "reader").json()
    path = f"/v1/repos/tests/linear/log?limit=1&cursor={page['next_cursor']}"
    assert guarded.get("GET", path, "reader").status_code == 200
    assert guarded.get("GET", path, "writer").json()["code"] == "bad_cursor"


def test_listing_pages(guarded: Guarded, tmp_path: Path) -> None:
    first = guarded.get("GET", "/v1/repos?limit=1", "writer").json()
    assert (first["complete"], [row["name"] for row in first["repositories"]]) == (False, ["linear"])
    second = guarded.get("GET", f"/v1/repos?limit=1&cursor={first['next_cursor']}", "writer").json()
    assert (second["complete"], [row["name"] for row in second["repositories"]]) == (True, ["merges"])
    assert "url" in second["repositories"][0]["upstream"]
