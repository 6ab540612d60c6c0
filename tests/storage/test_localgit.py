from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pack.errors import CorruptObject, UnsupportedUpstream, UpstreamNotFound
from storage import views
from storage.backend import Backend
from storage.localgit import LocalRepository, read_config
from storage.open import open_backend
from storage.repository import Repositories, open_view
from tests.storage.support import NAME, OWNER, ingest
from tests.support.generate import Repositories as Generated
from tests.support.git import Plumbing, git, init


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Backend]:
    yield open_backend(str(tmp_path / "store"))
    views.forget()


def advertised(path: Path) -> tuple[bytes | None, list[tuple[bytes, str]]]:
    with LocalRepository(path) as local:
        found = local.advertisement
        return found.head_target, [(ref.name, ref.oid.hex()) for ref in found.refs]


def listed(path: Path) -> list[tuple[bytes, str]]:
    """HEAD and all refs, as git lists them."""
    rows = git(path, "show-ref", "--head").splitlines()
    return [(name, oid.decode()) for oid, name in (row.split(b" ", 1) for row in rows)]


async def objects_of(store: Backend, path: Path) -> set[str]:
    await ingest(store, path)
    view = open_view(await Repositories(store).handle(OWNER, NAME))
    return {oid.hex() for pack in view.objects.packs for oid in pack.index.oids()}


def all_objects(path: Path) -> set[str]:
    return set(git(path, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").decode().split())


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A work tree with two commits, loose and packed."""
    path = tmp_path / "work"
    git(None, "init", "-q", "-b", "main", str(path))
    for number in range(2):
        (path / "file").write_text(f"{number}\n")
        git(path, "add", "file")
        git(path, "commit", "-q", "-m", str(number))
        if number == 0:
            git(path, "tag", "-a", "-m", "t", "v1")
            git(path, "repack", "-a", "-d", "-q")
            git(path, "pack-refs", "--all")
    return path


async def test_work_tree(store: Backend, work: Path) -> None:
    assert advertised(work) == (b"refs/heads/main", listed(work))
    assert advertised(work / ".git") == advertised(work)
    assert await objects_of(store, work) == all_objects(work)
    view = open_view(await Repositories(store).handle(OWNER, NAME))
    tag = view.refs.get(b"refs/tags/v1")
    assert tag is not None
    assert tag.peeled is not None
    assert tag.peeled.hex() == git(work, "rev-parse", "v1^{}").decode().strip()


async def test_linked_work_tree(store: Backend, work: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(work, "worktree", "add", "-q", "-b", "side", str(linked))
    assert (linked / ".git").is_file()
    assert advertised(linked) == (b"refs/heads/side", listed(linked))
    assert await objects_of(store, linked) == all_objects(work)


async def test_git_file(work: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere.git"
    (work / ".git").rename(moved)
    (work / ".git").write_text("gitdir: ../elsewhere.git\n")
    assert advertised(work) == (b"refs/heads/main", listed(moved))
    assert advertised(tmp_path / "elsewhere") == advertised(work)


async def test_alternates(store: Backend, work: Path, tmp_path: Path) -> None:
    git(None, "clone", "-q", "--bare", "--shared", str(work), str(tmp_path / "shared.git"))
    odd = tmp_path / "odd name.git"
    git(None, "clone", "-q", "--bare", "--reference", str(tmp_path / "shared.git"), str(work), str(odd))
    alternates = odd / "objects" / "info" / "alternates"
    alternates.write_bytes(b"# a comment\n" + alternates.read_bytes() + b"../../shared.git/objects\n")
    assert await objects_of(store, odd) == all_objects(work)


async def test_loose_wins_over_packed(work: Path) -> None:
    git(work, "pack-refs", "--all")
    git(work, "update-ref", "refs/heads/main", "HEAD~1")
    assert advertised(work) == (b"refs/heads/main", listed(work))


async def test_symbolic_refs(work: Path) -> None:
    git(work, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/heads/main")
    git(work, "symbolic-ref", "refs/heads/dangling", "refs/heads/none")
    with LocalRepository(work) as local:
        by_name = {ref.name: ref for ref in local.advertisement.refs}
    assert by_name[b"refs/remotes/origin/HEAD"].symref_target == b"refs/heads/main"
    assert b"refs/heads/dangling" not in by_name
    assert by_name[b"HEAD"].symref_target == b"refs/heads/main"


async def test_odd_heads(work: Path) -> None:
    git(work, "checkout", "-q", "--detach", "HEAD~1")
    assert advertised(work) == (None, listed(work))
    git(work, "symbolic-ref", "HEAD", "refs/heads/unborn")
    head, refs = advertised(work)
    assert head == b"refs/heads/unborn"
    assert b"HEAD" not in dict(refs)


async def test_broken_refs_are_told(work: Path) -> None:
    (work / ".git/refs/heads/broken").write_text("no oid\n")
    (work / ".git/refs/heads/bad..name").write_text(git(work, "rev-parse", "HEAD").decode())
    (work / ".git/refs/heads/main.lock").write_text("")
    with LocalRepository(work) as local:
        assert set(local.advertisement.ignored) >= {b"refs/heads/broken", b"refs/heads/bad..name"}
        assert {ref.name for ref in local.advertisement.refs} == {b"HEAD", b"refs/heads/main", b"refs/tags/v1"}


async def test_only_loose_and_nothing_at_all(store: Backend, tmp_path: Path) -> None:
    path = init(tmp_path / "loose.git")
    with LocalRepository(path) as local:
        assert list(local.packs()) == []
        assert local.advertisement.refs == []
        assert local.advertisement.head_target == b"refs/heads/main"
    plumbing = Plumbing(path)
    big = plumbing.blob(os.urandom(1 << 20))
    plumbing.blob(b"")
    plumbing.ref("refs/heads/main", plumbing.commit("one", plumbing.tree([("100644", b"big", big)])))
    assert await objects_of(store, path) == all_objects(path)


async def test_a_repack_meanwhile_takes_nothing_away(store: Backend, repositories: Generated, tmp_path: Path) -> None:
    path = tmp_path / "copy.git"
    git(None, "clone", "-q", "--mirror", "--no-local", str(repositories["linear"]), str(path))
    with LocalRepository(path) as local:
        for pack in (path / "objects" / "pack").iterdir():
            pack.unlink()
        sizes = [(stream.size, len(b"".join(stream.chunks))) for stream in local.packs()]
    assert all(size == got for size, got in sizes)


async def test_packs_without_an_index_do_not_count(work: Path) -> None:
    for index in (work / ".git/objects/pack").glob("*.idx"):
        index.chmod(0o644)
        index.unlink()
    with LocalRepository(work) as local:
        assert [stream.name for stream in local.packs()] == ["loose objects"]


async def test_damaged_loose_objects(tmp_path: Path) -> None:
    path = init(tmp_path / "damaged.git")
    oid = Plumbing(path).blob(b"x")
    file = path / "objects" / oid[:2] / oid[2:]
    whole = file.read_bytes()
    file.chmod(0o644)
    for data in (b"", b"junk", whole[:-3]):
        file.write_bytes(data)
        with LocalRepository(path) as local, pytest.raises(CorruptObject, match=oid):
            [b"".join(stream.chunks) for stream in local.packs()]


async def test_what_is_refused(work: Path, tmp_path: Path) -> None:
    git(None, "clone", "-q", "--depth=1", work.as_uri(), str(tmp_path / "shallow"))
    with pytest.raises(UnsupportedUpstream, match="shallow"):
        LocalRepository(tmp_path / "shallow")
    git(work, "config", "uploadpack.allowFilter", "true")
    git(None, "clone", "-q", "--filter=blob:none", "--no-checkout", work.as_uri(), str(tmp_path / "partial"))
    with pytest.raises(UnsupportedUpstream, match="partial"):
        LocalRepository(tmp_path / "partial")
    git(None, "init", "-q", "--object-format=sha256", str(tmp_path / "sha256"))
    with pytest.raises(UnsupportedUpstream, match="SHA-256"):
        LocalRepository(tmp_path / "sha256")
    git(work, "config", "extensions.refStorage", "reftable")
    with pytest.raises(UnsupportedUpstream, match="reftable"):
        LocalRepository(work)
    for path in (tmp_path, tmp_path / "none", work / "file"):
        with pytest.raises(UpstreamNotFound):
            LocalRepository(path)


def test_config_is_read_as_git_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(
        '# comment\n[core]\n\tbare = true ; no\n[Extensions] objectFormat = "sha1" # x\n'
        '[remote "Some \\"Name\\""]\n\turl = a\\\n b\n\tpromisor\n\tfetch = "+refs/*;:#x" y\n[a.b]\nc=d\n'
    )
    rows = git(None, "config", "-z", "-f", str(path), "--list").split(b"\0")[:-1]
    expected = dict(row.decode().partition("\n")[::2] for row in rows)
    assert read_config(path) == expected
    assert read_config(tmp_path / "none") == {}
