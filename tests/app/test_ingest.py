"""Ingests over loopback HTTP and from folders: the store afterwards holds what git would, or what it held before."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.building import build
from app.ingest import Outcome
from app.progress import Meter
from pack import graph
from pack.errors import (
    Cancelled,
    DeadlineExceeded,
    IncompleteHistory,
    LimitExceeded,
    PackError,
    RepoNotFound,
    UnsupportedUpstream,
    UpstreamAuthentication,
    UpstreamError,
)
from pack.table import KIND, VERSION
from storage import graphmake, graphs, tablemake
from storage.operations import Progress
from storage.sidecars import key_of, made_from
from tests.app.ingesting import NAME, OWNER, House, house, is_sound, refs_of
from tests.support.cases import Cases
from tests.support.generate import Repositories
from tests.support.git import Plumbing, git, init
from tests.support.upstream import Fault, Upstream

Serve = Callable[..., Upstream]


@pytest.fixture
def home(tmp_path: Path) -> House:
    return house(tmp_path / "store")


@pytest.fixture
def project(tmp_path: Path) -> Plumbing:
    """A small upstream that a test may change: main with three commits, a branch, a tag."""
    p = Plumbing(init(tmp_path / "up" / "project.git"))
    first = p.commit("one", p.file(b"a", b"1\n"))
    p.at(1700000060)
    second = p.commit("two", p.file(b"a", b"1\n2\n"), first)
    p.at(1700000120)
    third = p.commit("three", p.file(b"a", b"1\n2\n3\n"), second)
    p.ref("refs/heads/main", third)
    p.ref("refs/heads/side", second)
    p.tag("v1", second)
    return p


NAMES = [
    "linear",
    "merges",
    "kinds",
    "submodules",
    "names",
    "texts",
    "empty",
    "detached",
    "dangling",
    "tags",
    "refs",
    "idents",
    "packs",
]


@pytest.mark.parametrize("name", NAMES)
async def test_the_store_holds_what_upstream_has(
    repositories: Repositories, upstream: Serve, home: House, name: str
) -> None:
    source = repositories[name]
    await home.register(upstream(source.parent).repo(source.name.removesuffix(".git")))
    outcome = await home.ingest()
    assert outcome.changed
    assert refs_of(home.git_dir) == refs_of(source)
    is_sound(home.git_dir, source)
    again = await home.ingest()
    assert (again.changed, again.generation) == (False, outcome.generation)


@pytest.mark.parametrize("name", NAMES)
async def test_a_folder_gives_the_same(repositories: Repositories, home: House, name: str) -> None:
    source = repositories[name]
    await home.register(source.resolve().as_uri())
    outcome = await home.ingest()
    assert outcome.changed
    assert refs_of(home.git_dir) == refs_of(source)
    is_sound(home.git_dir, source)
    assert not (await home.ingest()).changed


@pytest.mark.parametrize("name", ["linear", "packs", "kinds"])
@pytest.mark.parametrize(
    ("kind", "version", "module", "reads"),
    [
        (KIND, VERSION, tablemake, "_measured"),
        (graphs.KIND, graph.VERSION, graphmake, "_commits"),
    ],
)
async def test_what_the_parser_has_seen_is_not_read_again(
    repositories: Repositories,
    upstream: Serve,
    home: House,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    version: int,
    module: Any,
    reads: str,
) -> None:
    """It makes the same sidecar as the stored packs do, and makes it once."""
    source = repositories[name]
    await home.register(upstream(source.parent).repo(source.name.removesuffix(".git")))
    await home.ingest()
    names = [record.name for record in (await home.manifest()).packs]
    table = home.git_dir / key_of(kind, version, made_from(names))
    monkeypatch.setattr(module, reads, None)
    assert await build(home.backend, None, OWNER, NAME, {kind: None}) == [kind]
    seen = table.read_bytes()
    monkeypatch.undo()
    assert await build(home.backend, None, OWNER, NAME, {kind: None}, anew=True) == [kind]
    assert table.read_bytes() == seen


async def test_a_sync_brings_what_is_new(project: Plumbing, upstream: Serve, home: House) -> None:
    server = upstream(project.path.parent)
    await home.register(server.repo("project"))
    first = await home.ingest()
    assert (first.packs, first.objects) == (1, 10)
    old = git(project.path, "rev-parse", "main").decode().strip()
    project.at(1700000180)
    project.ref("refs/heads/main", project.commit("four", project.file(b"a", b"1\n2\n3\n4\n"), old))
    second = await home.ingest()
    assert (second.generation, second.packs) == (first.generation + 1, 1)
    assert second.objects <= 4  # the new three, and at most a base that completes a thin pack
    assert refs_of(home.git_dir) == refs_of(project.path)
    is_sound(home.git_dir)


async def test_refs_that_move_without_new_objects(project: Plumbing, upstream: Serve, home: House) -> None:
    """Forced back, deleted, made: a new generation, no pack."""
    await home.register(upstream(project.path.parent).repo("project"))
    await home.ingest()
    packs = home.packs()
    project.ref("refs/heads/main", "refs/heads/side")
    git(project.path, "update-ref", "-d", "refs/heads/side")
    git(project.path, "tag", "-d", "v1")
    project.ref("refs/heads/new", "refs/heads/main")
    outcome = await home.ingest()
    assert (outcome.changed, outcome.packs) == (True, 0)
    assert refs_of(home.git_dir) == refs_of(project.path)
    assert home.packs() == packs


async def test_a_rewritten_branch(project: Plumbing, upstream: Serve, home: House) -> None:
    await home.register(upstream(project.path.parent).repo("project"))
    await home.ingest()
    project.ref("refs/heads/main", project.commit("other", project.file(b"b", b"!\n")))
    await home.ingest()
    assert refs_of(home.git_dir) == refs_of(project.path)
    is_sound(home.git_dir)


async def test_head_moves_alone(project: Plumbing, upstream: Serve, home: House) -> None:
    await home.register(upstream(project.path.parent).repo("project"))
    await home.ingest()
    git(project.path, "symbolic-ref", "HEAD", "refs/heads/side")
    assert (await home.ingest()).changed
    assert (await home.manifest()).head.target == b"refs/heads/side"


async def test_refspecs(project: Plumbing, upstream: Serve, home: House) -> None:
    project.ref("refs/pull/1/head", "refs/heads/side")
    project.ref("refs/heads/tmp/x", "refs/heads/side")
    specs = ("refs/heads/*", "^refs/heads/tmp/*", "+refs/pull/*/head:refs/pull/*/head")
    url = upstream(project.path.parent).repo("project")
    await home.register(url, refspecs=specs)
    await home.ingest()
    names = git(home.git_dir, "for-each-ref", "--format=%(refname)").decode().split()
    assert names == ["refs/heads/main", "refs/heads/side", "refs/pull/1/head"]
    # Fewer are followed from now on: what is excluded is dropped.
    await home.register(url, refspecs=("refs/heads/side",))
    assert (await home.ingest()).changed
    assert git(home.git_dir, "for-each-ref", "--format=%(refname)").decode().split() == ["refs/heads/side"]
    manifest = await home.manifest()
    assert (manifest.head.target, manifest.head.oid) == (b"refs/heads/main", None)


async def test_a_default_branch_of_ones_own(project: Plumbing, upstream: Serve, home: House) -> None:
    await home.register(upstream(project.path.parent).repo("project"), default_branch="side")
    await home.ingest()
    assert refs_of(home.git_dir)["HEAD"] == refs_of(project.path)["refs/heads/side"]


async def test_unusual_heads(cases: Cases, upstream: Serve, tmp_path: Path) -> None:
    server = upstream(cases["h12"].root)
    want: dict[str, tuple[bytes | None, bool]] = {
        "h12a": (b"refs/heads/trunk", False),
        "h12b": (None, True),
        "h12c": (b"refs/heads/gone", False),
        "h12d": (b"refs/heads/zeta", True),
    }
    for name, (target, born) in want.items():
        home = house(tmp_path / name)
        await home.register(server.repo(name))
        assert (await home.ingest()).changed
        head = (await home.manifest()).head
        assert (head.target, head.oid is not None) == (target, born), name


async def test_an_old_server(cases: Cases, upstream: Serve, home: House) -> None:
    await home.register(upstream(cases["h11"].root, v0=True).repo("h11"))
    await home.ingest()
    assert refs_of(home.git_dir) == refs_of(cases["h11"].path)
    assert (await home.manifest()).head.target == b"refs/heads/main"


async def test_an_empty_upstream_fills_up(tmp_path: Path, upstream: Serve, home: House) -> None:
    p = Plumbing(init(tmp_path / "up" / "project.git"))
    await home.register(upstream(p.path.parent).repo("project"))
    first = await home.ingest()
    assert first == Outcome(2, True)
    p.ref("refs/heads/main", p.commit("one", p.file(b"a", b"1\n")))
    assert (await home.ingest()).objects == 3
    git(p.path, "update-ref", "-d", "refs/heads/main")
    assert (await home.ingest()).changed
    assert refs_of(home.git_dir) == {}


FAULTS: dict[str, tuple[Fault, type[Exception]]] = {
    "cut": (Fault("POST .*/git-upload-pack", cut=600), UpstreamError),
    "status": (Fault("POST .*", status=500), UpstreamError),
    "damage": (
        Fault("POST .*/git-upload-pack", rewrite=lambda piece: piece.replace(b"PACK", b"PICK")),
        (PackError, UpstreamError),  # type: ignore[dict-item]
    ),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_failure_changes_nothing(project: Plumbing, upstream: Serve, home: House, name: str) -> None:
    server = upstream(project.path.parent)
    await home.register(server.repo("project"))
    await home.ingest()
    before, packs = await home.manifest(), home.packs()
    big = b"".join(b"%d %d\n" % (n, n * n * 7919) for n in range(20_000))
    project.ref("refs/heads/main", project.commit("big", project.file(b"big", big)))
    fault, error = FAULTS[name]
    server.faults.append(fault)
    with pytest.raises(error):
        await home.ingest()
    assert await home.manifest() == before
    assert home.packs() == packs
    server.faults.clear()
    assert (await home.ingest()).changed
    is_sound(home.git_dir)


async def test_limits_name_the_object(project: Plumbing, upstream: Serve, tmp_path: Path) -> None:
    home = house(tmp_path / "store", max_objects=5)
    await home.register(upstream(project.path.parent).repo("project"))
    with pytest.raises(LimitExceeded) as told:
        await home.ingest()
    assert told.value.extra["offset"] == 8
    assert not (await home.manifest()).ready
    assert home.packs() == []


async def test_missing_objects_are_found(project: Plumbing, home: House) -> None:
    """A damaged source: its branch leads to a tree that is not there."""
    lost = git(project.path, "rev-parse", "main^{tree}").decode().strip()
    (project.path / "objects" / lost[:2] / lost[2:]).unlink()
    await home.register(project.path.as_uri())
    with pytest.raises(IncompleteHistory) as told:
        await home.ingest()
    assert told.value.extra["object"] == lost
    assert home.packs() == []


async def test_what_lies_there_half_is_fetched_again(project: Plumbing, home: House) -> None:
    """A tip that is in the store without its tree (it came unreachable, with a damaged source)."""
    tree = project.file(b"x", b"later\n")
    late = project.commit("late", tree)
    gone = project.path / "objects" / tree[:2] / tree[2:]
    kept = gone.read_bytes()
    gone.unlink()
    await home.register(project.path.as_uri())
    await home.ingest()
    gone.write_bytes(kept)
    project.ref("refs/heads/late", late)
    outcome = await home.ingest()
    assert (outcome.changed, outcome.packs) == (True, 1)
    assert refs_of(home.git_dir)["refs/heads/late"] == late
    is_sound(home.git_dir)


async def test_shallow_and_foreign_sources_are_refused(project: Plumbing, upstream: Serve, tmp_path: Path) -> None:
    shallow = tmp_path / "up" / "shallow.git"
    git(None, "clone", "-q", "--bare", "--depth", "1", project.path.as_uri(), str(shallow))
    for old in (False, True):
        home = house(tmp_path / f"store{old}")
        await home.register(upstream(tmp_path / "up", v0=old).repo("shallow"))
        with pytest.raises((UnsupportedUpstream, IncompleteHistory)):
            await home.ingest()
        assert not home.git_dir.joinpath("objects").exists() or home.packs() == []
    git(None, "init", "-q", "--bare", "--object-format=sha256", str(tmp_path / "up" / "sha256.git"))
    home = house(tmp_path / "other")
    await home.register(upstream(tmp_path / "up").repo("sha256"))
    with pytest.raises(UnsupportedUpstream):
        await home.ingest()


async def test_credentials_reach_the_upstream(project: Plumbing, upstream: Serve, tmp_path: Path) -> None:
    server = upstream(project.path.parent, user="ada", password="s3cret")
    home = house(tmp_path / "store", secret_key="a key of some length")
    await home.register(server.repo("project"))
    with pytest.raises(UpstreamAuthentication):
        await home.ingest()
    await home.register(server.repo("project"), credential={"username": "ada", "password": "s3cret"})
    assert (await home.ingest()).changed
    written = b"".join(path.read_bytes() for path in (tmp_path / "store").rglob("packhouse/**/*") if path.is_file())
    assert b"s3cret" not in written


async def test_progress_and_cancelling(project: Plumbing, home: House) -> None:
    await home.register(project.path.as_uri())
    states: list[Progress] = []
    await home.ingest(Meter(states.append))
    assert [state.phase for state in states][:2] == ["listing", "fetching"]
    assert states[-1].phase == "publishing"
    assert (states[-1].objects, states[-1].total_objects) == (10, 10)
    project.ref("refs/heads/new", project.commit("new", project.file(b"n", b"n\n")))
    before = await home.manifest()
    with pytest.raises(Cancelled):
        await home.ingest(Meter(cancelled=lambda: True))
    with pytest.raises(DeadlineExceeded):
        await home.ingest(Meter(seconds=-1.0))
    assert await home.manifest() == before


async def test_a_repository_must_be_registered(home: House) -> None:
    with pytest.raises(RepoNotFound):
        await home.ingest()


async def test_two_at_once(project: Plumbing, upstream: Serve, home: House, tmp_path: Path) -> None:
    """Both finish; what the winner brought is not brought twice."""
    await home.register(upstream(project.path.parent).repo("project"))
    other = house(home.root)
    outcomes = await asyncio.gather(home.ingest(), other.ingest())
    assert sorted(outcome.changed for outcome in outcomes) == [False, True]
    assert len(home.packs()) == 2  # a pack and its index
    assert max(outcome.races for outcome in outcomes) == 1
    is_sound(home.git_dir)


async def test_the_loser_lists_the_upstream_again(project: Plumbing, home: House, monkeypatch: Any) -> None:
    from app import ingest as module

    await home.register(project.path.as_uri())
    await home.ingest()
    real, other = module.insist, house(home.root)
    late: list[str] = []

    async def publish(*args: Any) -> Any:
        if not late:
            # Before this one publishes, the upstream moves on and another replica takes it in.
            late.append(project.commit("late", project.file(b"l", b"l\n")))
            project.ref("refs/heads/main", late[0])
            assert (await other.ingest()).changed
        return await real(*args)

    project.ref("refs/heads/main", project.commit("early", project.file(b"e", b"e\n")))
    monkeypatch.setattr(module, "insist", publish)
    outcome = await home.ingest()
    assert (outcome.changed, outcome.races) == (False, 1)
    assert refs_of(home.git_dir)["refs/heads/main"] == late[0]


async def test_local_sources_are_not_read_twice(project: Plumbing, home: House) -> None:
    git(project.path, "gc", "-q")
    await home.register(project.path.as_uri())
    first = await home.ingest()
    project.ref("refs/heads/new", project.commit("new", project.file(b"n", b"n\n"), "refs/heads/main"))
    second = await home.ingest()
    assert (first.objects, second.objects, second.packs) == (10, 3, 1)
    shutil.rmtree(project.path)
    is_sound(home.git_dir)
