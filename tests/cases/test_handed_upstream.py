"""The same faults, those of the way in: packs that are damaged, servers that are old, empty, moved, guarded, odd."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pack.objects import BLOB, COMMIT, TREE, hash_object
from pack.writer import PackWriter
from storage import layout
from tests.support.cases import Cases
from tests.support.git import Plumbing, git, init
from tests.support.packserver import PackServer
from tests.support.processes import Peak
from tests.support.service import Repo, Running
from tests.support.upstream import Fault, Request, Upstream

Start = Callable[..., Upstream]
MIB = 1 << 20


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that may fetch from this machine."""
    folder = tmp_path_factory.mktemp("handed")
    running = Running(folder / "store", allow_upstreams="127.0.0.0/8", secret_key="a secret of the tests" * 2)
    yield running
    running.stop()


@pytest.fixture
def repo(running: Running, request: pytest.FixtureRequest) -> Repo:
    """A name in the service that no other test uses."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return running.repo(f"r-{name}"[:90])


def serve(cases: Cases, upstream: Start, name: str, **options: Any) -> Upstream:
    return upstream(cases[name].root, **options)


def succeeded(operation: dict[str, Any]) -> dict[str, Any]:
    assert operation["state"] == "succeeded", operation["error"]
    assert operation["error"] is None
    return operation


def failed(operation: dict[str, Any]) -> str:
    """The code of the error of an operation that failed."""
    assert operation["state"] == "failed"
    error = operation["error"]
    assert error["code"] != "internal" and error["detail"] and error["title"]
    return str(error["code"])


def refs(repo: Repo) -> dict[str, str]:
    return {ref["name"]: ref["oid"] for ref in repo.pages("/refs", "refs")}


def packs_in(running: Running, repo: Repo) -> list[str]:
    """Files with packs, whole or begun, that the store holds for the repository."""
    owner, name = repo.base.split("/")[-2:]
    folder = running.store / layout.repository(owner, name)
    assert (folder / "packhouse").is_dir()
    return sorted(path.name for path in folder.glob("objects/**/*") if path.is_file())


# H08


def test_a_delta_whose_base_comes_later(repo: Repo, cases: Cases) -> None:
    case = cases["h08"]
    with PackServer({"refs/heads/main": case.oids["commit"]}, case.packs["h08"]) as server:
        succeeded(repo.put(server.url))
    assert repo.client.get(repo.base).json()["objects"] == 4
    data = repo.ask("/raw", accept="*/*", rev="main", path="f").content
    assert (len(data), data.splitlines()[-1]) == (109, b"more")
    for name in ("base", "new"):
        assert repo.ask(f"/objects/{case.oids[name]}", accept="*/*").status_code == 200


# H10

BAD = ("short", "half", "sum", "count")


@pytest.mark.parametrize("what", BAD)
def test_a_damaged_pack_leaves_nothing(running: Running, repo: Repo, cases: Cases, what: str) -> None:
    case = cases["h10"]
    with PackServer({"refs/heads/main": case.oids["c"]}, case.packs[what]) as server:
        # Read as one more object, the checksum at the end can announce anything, also more than is allowed.
        codes = {"pack_truncated", "pack_checksum_mismatch", "bad_pack", "limit_exceeded"}
        assert failed(repo.put(server.url)) in codes
        assert packs_in(running, repo) == []
        assert failed(repo.sync()) in codes
        assert server.fetches == 2
        document = repo.client.get(repo.base).json()
        assert (document["objects"], document["refs"], document["packs"]) == (0, 0, 0)
        document = repo.problem("/refs")
        assert document["code"] == "not_ready"
        assert document["operation_error"] in codes
        assert repo.client.get(f"/v1/operations/{document['operation']}").json()["operation"]["state"] == "failed"
        assert repo.problem(f"/objects/{case.oids['c']}")["code"] == "not_ready"
        assert packs_in(running, repo) == []
        server.pack = case.packs["ok"]
        succeeded(repo.sync())
    assert refs(repo) == {"HEAD": case.oids["c"], "refs/heads/main": case.oids["c"]}
    assert repo.ask("/raw", accept="*/*", rev="main", path="f").content.endswith(b"\n1000\n")


@pytest.mark.parametrize("what", BAD)
def test_a_damaged_pack_changes_nothing(running: Running, repo: Repo, cases: Cases, tmp_path: Path, what: str) -> None:
    """The repository has something already, and the damaged pack would bring more."""
    p = Plumbing(init(tmp_path / "r.git"))
    old = p.commit("old", p.file(b"old", b"old\n"))
    first = git(p.path, "pack-objects", "-q", "--revs", "--stdout", stdin=old.encode() + b"\n")
    case = cases["h10"]
    with PackServer({"refs/heads/main": old}, first) as server:
        generation = succeeded(repo.put(server.url))["generation"]
        packs = packs_in(running, repo)
        server.refs = {"refs/heads/main": case.oids["c"]}
        server.pack = case.packs[what]
        failed(repo.sync())
        assert refs(repo) == {"HEAD": old, "refs/heads/main": old}
        assert repo.json("/refs")["generation"] == generation
        assert repo.problem(f"/objects/{case.oids['c']}")["code"] == "object_not_found"
        assert packs_in(running, repo) == packs
        server.pack = case.packs["ok"]
        assert succeeded(repo.sync())["generation"] > generation
    assert refs(repo)["refs/heads/main"] == case.oids["c"]


def test_what_follows_a_pack_is_refused_or_not_read(running: Running, repo: Repo, cases: Cases) -> None:
    case = cases["h10"]
    with PackServer({"refs/heads/main": case.oids["c"]}, case.packs["junk"]) as server:
        operation = repo.put(server.url)
        if operation["state"] == "failed":
            failed(operation)
            assert packs_in(running, repo) == []
            server.pack = case.packs["ok"]
            succeeded(repo.sync())
    assert refs(repo)["refs/heads/main"] == case.oids["c"]


# H11


@pytest.mark.parametrize("options", [{"v0": True}, {"version": "version=1"}], ids=["v0", "v1"])
def test_a_server_of_an_older_protocol(repo: Repo, cases: Cases, upstream: Start, options: dict[str, Any]) -> None:
    oids = cases["h11"].oids
    server = serve(cases, upstream, "h11", **options)
    succeeded(repo.put(server.repo("h11")))
    found = {ref["name"]: ref for ref in repo.json("/refs")["refs"]}
    assert sorted(found) == ["HEAD", "refs/heads/main", "refs/heads/other", "refs/tags/v1"]
    assert found["HEAD"]["symref_target"] == "refs/heads/main"
    assert repo.client.get(repo.base).json()["default_branch"] == "main"
    tag = git(cases["h11"].path, "rev-parse", "v1").decode().strip()
    assert (found["refs/tags/v1"]["oid"], found["refs/tags/v1"]["peeled"]) == (tag, oids["c"])
    assert repo.json("/resolve", rev="v1^{}")["oid"] == oids["c"]


# H12


@pytest.mark.parametrize("options", [{}, {"v0": True}], ids=["v2", "v0"])
class TestHeads:
    def test_an_empty_repository(self, repo: Repo, cases: Cases, upstream: Start, options: dict[str, Any]) -> None:
        succeeded(repo.put(serve(cases, upstream, "h12", **options).repo("h12a")))
        assert repo.json("/refs")["refs"] == []
        assert repo.client.get(repo.base).json()["default_branch"] == (None if options else "trunk")
        for path in ("/resolve", "/log", "/tree", "/commit"):
            problem = repo.problem(path)
            assert (problem["status"], problem["code"]) == (404, "unborn_head")

    def test_a_detached_head(self, repo: Repo, cases: Cases, upstream: Start, options: dict[str, Any]) -> None:
        oids = cases["h12"].oids
        succeeded(repo.put(serve(cases, upstream, "h12", **options).repo("h12b")))
        head = repo.json("/refs")["refs"][0]
        assert (head["name"], head["oid"], head["symref_target"]) == ("HEAD", oids["one"], None)
        assert repo.json("/resolve")["oid"] == oids["one"]
        assert repo.client.get(repo.base).json()["default_branch"] is None

    def test_a_head_that_leads_nowhere(
        self, repo: Repo, cases: Cases, upstream: Start, options: dict[str, Any]
    ) -> None:
        succeeded(repo.put(serve(cases, upstream, "h12", **options).repo("h12c")))
        assert repo.problem("/resolve", rev="HEAD")["status"] == 404
        assert repo.json("/commit", rev="main")["subject"] == "one"
        assert [ref["name"] for ref in repo.json("/refs")["refs"]] == ["refs/heads/main"]

    def test_a_head_of_two_equals(self, repo: Repo, cases: Cases, upstream: Start, options: dict[str, Any]) -> None:
        succeeded(repo.put(serve(cases, upstream, "h12", **options).repo("h12d")))
        assert repo.client.get(repo.base).json()["default_branch"] == "zeta"
        assert repo.json("/refs")["refs"][0]["symref_target"] == "refs/heads/zeta"


# H13


def asked(server: Upstream) -> list[tuple[str, str, bool]]:
    """(method, path, whether there was an Authorization header) of each request."""
    return [(r.method, r.path, "authorization" in r.headers) for r in server.requests]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_repository_that_has_moved(repo: Repo, cases: Cases, upstream: Start, status: int) -> None:
    there = serve(cases, upstream, "h13")
    here = serve(cases, upstream, "h13", redirect={"/old/": there.repo("h13")}, redirect_status=status)
    succeeded(repo.put(f"http://user:secret@127.0.0.1:{here.port}/old/h13.git"))
    assert repo.json("/commit", rev="main")["subject"] == "moved"
    assert [(method, path) for method, path, _ in asked(here)] == [("GET", "/old/h13.git/info/refs")]
    assert asked(there) == [
        ("GET", "/h13.git/info/refs", False),
        ("POST", "/h13.git/git-upload-pack", False),
        ("POST", "/h13.git/git-upload-pack", False),
    ]
    listing, fetch = there.requests[1:]
    assert b"command=ls-refs" in listing.body
    assert b"command=fetch" in fetch.body and b"want " in fetch.body
    assert "secret" not in repo.client.get(repo.base).text
    # What is asked for later begins where it was registered.
    before = len(here.requests)
    succeeded(repo.sync())
    assert len(here.requests) == before + 1


@pytest.mark.parametrize(
    "location",
    ["{there}/h13.git", "{there}/h13.git/info/refs", "{there}/h13.git/info/refs?service=git-receive-pack",
     "{there}/login?next=/info/refs", "", "ftp://127.0.0.1/h13.git/info/refs?service=git-upload-pack"],
)  # fmt: skip
def test_a_redirect_to_somewhere_odd(repo: Repo, cases: Cases, upstream: Start, location: str) -> None:
    there = serve(cases, upstream, "h13")
    moved = Fault("GET .*info/refs.*", status=302, headers={"Location": location.format(there=there.url)})
    here = serve(cases, upstream, "h13", faults=[moved])
    assert failed(repo.put(here.repo("h13"))) == "upstream_redirect"
    assert (len(here.requests), there.requests) == (1, [])


def test_redirects_in_a_circle(repo: Repo, cases: Cases, upstream: Start) -> None:
    here = serve(cases, upstream, "h13")
    here.redirect = {"/one/": f"{here.url}/two/h13.git", "/two/": f"{here.url}/one/h13.git"}
    assert failed(repo.put(f"{here.url}/one/h13.git")) == "upstream_redirect"
    assert len(here.requests) <= 6


def test_redirects_without_end(repo: Repo, cases: Cases, upstream: Start) -> None:
    here = serve(cases, upstream, "h13")
    here.redirect = {f"/{n}/": f"{here.url}/{n + 1}/h13.git" for n in range(100)}
    assert failed(repo.put(f"{here.url}/0/h13.git")) == "upstream_redirect"
    assert len(here.requests) <= 10


@pytest.mark.parametrize(
    ("guard", "right", "wrong"),
    [
        ({"user": "ada", "password": "right"}, {"username": "ada", "password": "right"},
         {"username": "ada", "password": "wrong"}),
        ({"bearer": "right"}, {"token": "right"}, {"token": "wrong"}),
    ],
    ids=["basic", "bearer"],
)  # fmt: skip
def test_credentials(
    repo: Repo, cases: Cases, upstream: Start, guard: dict[str, Any], right: dict[str, str], wrong: dict[str, str]
) -> None:
    server = serve(cases, upstream, "h13", **guard)
    url = server.repo("h13")
    for operation in (repo.put(url), repo.put(url, credential=wrong)):
        assert failed(operation) == "upstream_authentication"
        assert "authentication needed" in operation["error"]["detail"]
        assert "wrong" not in str(operation)
    assert len(server.requests) <= 4
    succeeded(repo.put(url, credential=right))
    assert repo.json("/commit", rev="main")["subject"] == "moved"
    assert all("authorization" in request.headers for request in posts(server))


def posts(server: Upstream) -> list[Request]:
    return [request for request in server.requests if request.method == "POST"]


def test_credentials_in_the_url(repo: Repo, cases: Cases, upstream: Start) -> None:
    server = serve(cases, upstream, "h13", user="ada", password="p@ss:w/rd")
    succeeded(repo.put(f"http://ada:p%40ss%3Aw%2Frd@127.0.0.1:{server.port}/h13.git"))
    shown = repo.client.get(repo.base).json()["upstream"]
    assert (shown["url"], shown["authenticated"]) == (server.repo("h13"), True)


# H14


@pytest.mark.parametrize("how", ["asked", "force"])
@pytest.mark.parametrize(
    "frame", [{"chunk": 7}, {"chunk": 1}, {"chunk": 70000}, {"framing": "length"}],
    ids=["chunk-7", "chunk-1", "chunk-70000", "no-chunk"],
)  # fmt: skip
def test_compressed_and_chunked_answers(
    repo: Repo, cases: Cases, upstream: Start, frame: dict[str, Any], how: str
) -> None:
    path = cases["h14"].path
    server = serve(cases, upstream, "h14", gzip=how, **frame)
    succeeded(repo.put(server.repo("h14")))
    tip = git(path, "rev-parse", "main").decode().strip()
    assert refs(repo) == {"HEAD": tip, "refs/heads/main": tip}
    listed = git(path, "rev-list", "--objects", "--all").decode().split("\n")[:-1]
    for oid in (row.split()[0] for row in listed):
        kind = git(path, "cat-file", "-t", oid).decode().strip()
        assert repo.ask(f"/objects/{oid}", accept="*/*").content == git(path, "cat-file", kind, oid)
    assert repo.client.get(repo.base).json()["objects"] == len(listed)


@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_a_compressed_answer_that_is_cut_short(repo: Repo, cases: Cases, kept: float) -> None:
    """The HTTP message is whole, what it holds is not."""
    case = cases["h10"]

    def cut(body: bytes) -> tuple[dict[str, str], bytes]:
        packed = gzip.compress(body)
        return {"Content-Encoding": "gzip"}, packed[: int(len(packed) * kept)]

    with PackServer({"refs/heads/main": case.oids["c"]}, case.packs["ok"], shape=cut) as server:
        failed(repo.put(server.url))
        assert repo.problem("/refs")["code"] == "not_ready"
        server.shape = lambda body: ({"Content-Encoding": "gzip"}, gzip.compress(body))
        succeeded(repo.sync())
    assert refs(repo)["refs/heads/main"] == case.oids["c"]


def test_a_compressed_stream_whose_last_bytes_are_missing(repo: Repo, cases: Cases) -> None:
    """All of the pack is there, only gzip's own checksum is not: still not what was sent."""
    case = cases["h10"]
    lacking = {"Content-Encoding": "gzip"}
    server = PackServer(
        {"refs/heads/main": case.oids["c"]}, case.packs["ok"], shape=lambda body: (lacking, gzip.compress(body)[:-8])
    )
    with server:
        failed(repo.put(server.url))
        assert repo.problem("/refs")["code"] == "not_ready"


def noise(size: int) -> tuple[str, bytes]:
    """A commit (hex) of `size` bytes of noise in files of two megabytes, and its pack, stored without deflating."""
    rng = random.Random(size)
    blobs = [rng.randbytes(2 * MIB) for _ in range(size // (2 * MIB))]
    rows = b"".join(b"100644 f%03d\0" % i + hash_object(BLOB, blob) for i, blob in enumerate(blobs))
    who = b"A <a@example.org> 1700000000 +0000\n"
    tree = hash_object(TREE, rows).hex().encode()
    commit = b"tree %s\nauthor %scommitter %s\nnoise\n" % (tree, who, who)
    objects = [(COMMIT, commit), (TREE, rows), *((BLOB, blob) for blob in blobs)]
    writer = PackWriter(0)
    pack = writer.header(len(objects)) + b"".join(writer.entry(*each) for each in objects) + writer.trailer()
    return hash_object(COMMIT, commit).hex(), pack


def test_memory_does_not_grow_with_the_answer(running: Running) -> None:
    peaks = []
    for size in (4 * MIB, 160 * MIB):
        commit, pack = noise(size)
        packed = lambda body: ({"Content-Encoding": "gzip"}, gzip.compress(body, 0))  # noqa: E731
        with PackServer({"refs/heads/main": commit}, pack, shape=packed) as server, Peak(running.pid) as peak:
            succeeded(running.repo(f"noise-{size}").put(server.url))
        peaks.append(peak.bytes)
    # 64 MiB are the parser's cache of objects.
    assert peaks[0] < peaks[1] < peaks[0] + 96 * MIB, [peak // MIB for peak in peaks]
