"""How many requests a read costs on a node that has never seen the repository: counted at the store, and compared
with what the answer says of itself.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio

from storage.wanted import Sizes
from tests.support.generate import Repositories
from tests.support.git import Plumbing, git, init
from tests.support.node import Node, bring, counted, node
from tests.support.remote import RemoteBackend
from tests.support.script import Script

pytestmark = pytest.mark.asyncio(loop_scope="module")

FILES = 90
COMMITS = 120
BRANCHES = 400


def build(path: Path) -> Path:
    """A repository with a history, directories, many refs, files that do not deflate well, in one pack with chains."""
    s = Script()
    rng = random.Random(7)
    names = [
        f"f{n:03}.txt" if n >= 60 else f"src/f{n:03}.txt" if n >= 30 else f"src/inner/f{n:03}.txt" for n in range(FILES)
    ]
    lines = {name.encode(): [rng.randbytes(20).hex() for _ in range(60)] for name in names}
    marks: list[int] = []
    for number in range(COMMITS):
        for name in rng.sample(names, 2):
            lines[name.encode()][rng.randrange(60)] = f"changed {number}"
        tree = {name: ("\n".join(rows) + "\n").encode() for name, rows in lines.items()}
        marks.append(s.commit(tree, marks[-1:]))
    oids = s.run(init(path))
    rows = b"".join(b"create refs/heads/b%04d %s\n" % (n, oids[marks[n % COMMITS]].encode()) for n in range(BRANCHES))
    git(path, "update-ref", "--stdin", stdin=rows)
    Plumbing(path).tag("v1", oids[marks[-1]])
    git(path, "-c", "pack.threads=1", "repack", "-adfq")  # several threads find other chains each time
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("cold") / "r.git")


READS: list[tuple[str, dict[str, Any], int]] = [
    ("/resolve", {}, 3),
    ("/resolve", {"rev": "main"}, 3),
    ("/resolve", {"rev": "refs/heads/b0123"}, 3),
    ("/resolve", {"rev": "v1"}, 3),
    ("/refs", {}, 3),
    ("/commit", {"rev": "main"}, 5),
    ("/blob", {"rev": "main", "path": "f077.txt"}, 5),
    ("/blob", {"rev": "main", "path": "src/inner/f012.txt"}, 5),
    ("/raw", {"rev": "main", "path": "src/f040.txt"}, 5),
    ("/tree", {"rev": "main"}, 5),
    ("/log", {"rev": "main", "limit": 50}, 6),
    ("/log", {"rev": "main", "limit": 1000}, 6),
    ("/tree", {"rev": "main", "recursive": True, "sizes": True}, 6),
    ("/ahead-behind", {"base": "main", "head": "b0040"}, 6),
    ("/merge-base", {"rev": ["main", "b0040"]}, 6),
    ("/diff", {"base": "main~100", "head": "main"}, 8),
    ("/grep", {"rev": "main", "pattern": "changed"}, 6),
]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def small(source: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Node]:
    folder = tmp_path_factory.mktemp("small")
    backend = RemoteBackend(folder / "store")
    await bring(backend, "r", source)
    async with node(backend, folder) as running:
        yield running


async def ask(small: Node, path: str, params: dict[str, Any], accept: str = "application/json") -> int:
    """Requests to the store: those that came there are those that the answer owns up to."""
    small.backend.take()
    answer = await small.get("r", path, accept, **params)
    calls = small.backend.take()
    assert counted(answer)[0] == len(calls), calls
    return len(calls)


@pytest.mark.parametrize(("path", "params", "most"), READS, ids=[f"{path[1:]}-{p}" for path, p, _ in READS])
async def test_a_cold_read(small: Node, path: str, params: dict[str, Any], most: int) -> None:
    small.cold()
    assert await ask(small, path, params) <= most
    assert await ask(small, path, params) == 0
    small.later()
    assert await ask(small, path, params) == 1


async def is_made(small: Node, kind: str, path: str, **params: Any) -> None:
    """Wait until a sidecar is there, which this read wants."""
    await small.get("r", path, **params)
    while not list(small.backend.root.rglob(f"{kind}-*[0-9]")):
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/log", {"rev": "main", "limit": 50}),
        ("/log", {"rev": "main", "limit": 50, "first_parent": True}),
        ("/ahead-behind", {"base": "main", "head": ["b0040", "v1", "main~7"]}),
        ("/merge-base", {"rev": ["main", "refs/heads/b0040"]}),
    ],
)
async def test_histories_need_no_packs(small: Node, source: Path, path: str, params: dict[str, Any]) -> None:
    """What refs and the commit graph know is answered by these; anything else opens the packs, to the same answer."""
    await is_made(small, "graph", "/log", rev="main")
    small.cold()
    answer = await small.get("r", path, **params)
    brought = {key.rpartition("/")[2].partition("-")[0] for method, key in small.backend.take() if method == "read"}
    assert brought <= {"graph", "refs"}
    assert counted(answer)[0] <= 4
    await small.get("r", "/tree", rev="main")
    assert (await small.json("r", path, **params)) == orjson.loads(answer.content)
    small.cold()
    named = {key: _short(source, value) for key, value in params.items()}
    other = orjson.loads((await small.get("r", path, **named)).content)
    assert any("objects/pack" in key for _, key in small.backend.take())
    assert _facts(other) == _facts(orjson.loads(answer.content))


def _short(source: Path, value: Any) -> Any:
    """A revision as the first digits of an object, which only the indexes of packs can tell."""
    if isinstance(value, list):
        return [_short(source, each) for each in value]
    if not isinstance(value, str):
        return value
    return git(source, "rev-parse", f"{value}^{{commit}}").decode().strip()[:12]


def _facts(document: Any) -> Any:
    """What does not repeat the question, and is not sealed."""
    results = [{**row, "head": None} for row in document.get("results", [])]
    return {**document, "next_cursor": None, "results": results}


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
async def test_files_are_listed_without_packs(small: Node, source: Path, accept: str) -> None:
    await is_made(small, "snapshot", "/tree", rev="main", recursive=True)
    whole = git(source, "ls-tree", "-r", "--name-only", "main").decode().split()
    asked: list[dict[str, Any]] = [{}, {"sizes": True}, {"glob": ["*3.txt"]}, {"limit": 40, "sizes": True}]
    for params in asked:
        small.cold()
        answer = await small.get("r", "/tree", accept, rev="main", recursive=True, **params)
        calls = small.backend.take()
        assert not [key for _, key in calls if "objects/pack" in key]
        assert len([key for _, key in calls if "snapshot-" in key]) == 1
        assert len(calls) <= 4
        if accept == "application/json":
            entries = answer.json()["entries"]
        else:
            entries = [orjson.loads(line) for line in answer.content.splitlines()[:-1]]
        wanted = [path for path in whole if "glob" not in params or path.endswith("3.txt")][: params.get("limit")]
        assert [entry["path"] for entry in entries] == wanted


async def test_an_object_by_its_name(small: Node, source: Path) -> None:
    for rev in ("main", "main^{tree}", "main:f077.txt"):
        oid = git(source, "rev-parse", rev).decode().strip()
        small.cold()
        assert await ask(small, f"/objects/{oid}", {}) <= 5


async def test_another_read_on_the_node_is_warm(small: Node) -> None:
    small.cold()
    await ask(small, "/commit", {"rev": "main"})
    for path, params, _ in READS:
        # The graph and the snapshot are what not every read brings.
        brings = path in ("/log", "/ahead-behind", "/merge-base") or "recursive" in params
        assert await ask(small, path, params) <= brings


async def test_another_process_of_the_node_knows_only_the_generation_anew(small: Node) -> None:
    small.cold()
    await ask(small, "/log", {"rev": "main"})
    small.forget()
    assert await ask(small, "/log", {"rev": "main", "limit": 7}) == 2


async def test_not_modified_costs_one_look(small: Node) -> None:
    small.cold()
    tag = (await small.get("r", "/tree", rev="main")).headers["etag"]
    small.later()
    small.backend.take()
    answer = await small.ask("r", "/tree", rev="main", headers={"If-None-Match": tag})
    assert answer.status_code == 304
    assert len(small.backend.take()) == 1


async def test_streams_say_what_they_cost(small: Node) -> None:
    small.cold()
    answer = await small.get("r", "/log", "application/x-ndjson", rev="main")
    end = orjson.loads(answer.content.splitlines()[-1])
    assert end["receipt"]["store_requests"] == len(small.backend.take()) <= 6
    assert end["receipt"]["store_bytes"] > 10_000


# A repository that is too large to come whole: everything is scaled down by some hundred times.

SIZES = Sizes(whole=4096, refs=64 << 10, windows=(16 << 10, 256 << 10), request=256 << 10, popular=10_000)
BLOCK = 4096


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def large(source: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Node]:
    folder = tmp_path_factory.mktemp("large")
    backend = RemoteBackend(folder / "store")
    await bring(backend, "r", source)
    async with node(backend, folder, block=BLOCK, sizes=SIZES) as running:
        yield running


@pytest.mark.parametrize(("path", "params", "most"), READS, ids=[f"{path[1:]}-{p}" for path, p, _ in READS])
async def test_a_cold_read_by_ranges(large: Node, source: Path, path: str, params: dict[str, Any], most: int) -> None:
    """One more for each range of the largest size that the pack has."""
    pack = next((source / "objects" / "pack").glob("*.pack")).stat().st_size
    ranges = -(-pack // SIZES.request)
    large.cold()
    assert await ask(large, path, params) <= most + (ranges if path != "/resolve" else 0)
    assert await ask(large, path, params) == 0


async def test_by_ranges_and_whole_are_the_same(large: Node, small: Node, source: Path) -> None:
    for path, params, _ in READS:
        large.cold()
        one, other = await large.get("r", path, **params), await small.get("r", path, **params)
        if path == "/raw":
            assert one.content == other.content
        else:
            # Cursors are sealed with keys of their stores.
            assert {**one.json(), "next_cursor": None} == {**other.json(), "next_cursor": None}
    large.cold()
    listed = git(source, "cat-file", "--batch-all-objects", "--batch-check").splitlines()
    for line in listed[:: max(1, len(listed) // 60)]:
        oid = line.split()[0].decode()
        data = git(source, "cat-file", line.split()[1].decode(), oid)
        assert (await large.get("r", f"/objects/{oid}")).content == data
    assert not large.files(".pack")
    assert large.files("0")


def stored(node: Node) -> list[tuple[str, int]]:
    folder = node.backend.root / "tests" / "r.git" / "objects" / "pack"
    return [(file.name, file.stat().st_size) for file in folder.iterdir()]


async def test_only_what_is_needed_is_brought(large: Node) -> None:
    large.cold()
    answer = await large.get("r", "/commit", rev="refs/heads/b0001")
    parts = {key.rpartition(".")[2]: size for key, size in stored(large)}
    assert counted(answer)[1] < parts["idx"] + 100 * 1024 < parts["pack"]
    sizes = {file.stat().st_size for file in large.files() if file.parent.name.endswith(".blocks")}
    assert max(sizes) <= BLOCK


async def test_a_pack_that_is_read_a_lot_comes_whole(source: Path, tmp_path: Path) -> None:
    backend = RemoteBackend(tmp_path / "store")
    await bring(backend, "r", source)
    sizes = replace(SIZES, windows=(BLOCK,), popular=3)
    async with node(backend, tmp_path, block=BLOCK, sizes=sizes) as near:
        for number in range(60, 90):
            await near.get("r", "/blob", rev="main", path=f"f{number:03}.txt")
        for _ in range(200):
            if near.files(".pack"):
                break
            await asyncio.sleep(0.05)
        assert near.files(".pack")
        await asyncio.sleep(0.2)
        # One may have been on its way just then.
        assert len([file for file in near.files() if file.parent.name.endswith(".blocks")]) <= 1
        backend.take()
        near.forget()
        for number in range(60, 90):
            await near.get("r", "/blob", rev="main", path=f"f{number:03}.txt")
        assert not [key for _, key in backend.take() if key.endswith(".pack")]


async def test_two_packs_come_at_once(tmp_path: Path, repositories: Repositories) -> None:
    """Without compaction every pack costs two requests more."""
    path = tmp_path / "r.git"
    shutil.copytree(repositories["linear"], path)
    backend = RemoteBackend(tmp_path / "store")
    await bring(backend, "r", path)
    Plumbing(path).commit("more", git(path, "rev-parse", "HEAD^{tree}").decode().strip())
    tip = Plumbing(path).commit("on top", git(path, "rev-parse", "HEAD^{tree}").decode().strip())
    git(path, "update-ref", "refs/heads/more", tip)
    await bring(backend, "r", path)
    async with node(backend, tmp_path) as near:
        answer = await near.get("r", "/commit", rev="more")
        assert counted(answer)[0] <= 3 + 2 * 2
