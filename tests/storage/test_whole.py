"""From a repository of git's into a store and out again, compared with git at each end."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

from pack.objects import TYPE_NAMES
from pack.view import View
from storage import gitview, layout, publish
from storage.backend import Backend
from storage.export import export
from storage.fsck import fsck
from storage.repository import Repositories
from tests.storage.support import NAME, OWNER, ingest, look
from tests.support.generate import GENERATORS
from tests.support.generate import Repositories as Generated
from tests.support.git import git, run


def refs(path: Path) -> bytes:
    return git(path, "for-each-ref", "--format=%(refname) %(objectname) %(objecttype) %(*objectname)")


def objects(path: Path) -> set[bytes]:
    return set(git(path, "cat-file", "--batch-all-objects", "--batch-check").splitlines())


async def folder(backend: Backend, tmp_path: Path) -> Path:
    """The stored repository as one that git opens."""
    path = backend.local_path(layout.latest(OWNER, NAME))
    if path is not None:
        return path.parent.parent
    await export(backend, OWNER, NAME, tmp_path / "exported")
    return tmp_path / "exported"


@pytest.mark.parametrize("generator", sorted(GENERATORS))
async def test_nothing_is_lost(backend: Backend, repositories: Generated, generator: str, tmp_path: Path) -> None:
    source = repositories[generator]
    await ingest(backend, source)
    report = await fsck(backend, OWNER, NAME)
    assert report.findings == []
    stored = await folder(backend, tmp_path)
    assert refs(stored) == refs(source)
    assert objects(stored) == objects(source)
    assert run(stored, "symbolic-ref", "-q", "HEAD").stdout == run(source, "symbolic-ref", "-q", "HEAD").stdout
    assert run(stored, "rev-parse", "-q", "HEAD").stdout == run(source, "rev-parse", "-q", "HEAD").stdout
    assert run(stored, "fsck", "--full").returncode == run(source, "fsck", "--full").returncode
    wanted = [line.split() for line in objects(source)]

    def found(view: View) -> tuple[list[tuple[bytes, int]], bytes]:
        read = [view.objects.read(bytes.fromhex(oid.decode())) for oid, _, _ in wanted]
        listed = b"".join(
            b"%s %s %s %s\n"
            % (ref.name, ref.oid.hex().encode(), TYPE_NAMES[ref.type], ref.peeled.hex().encode() if ref.peeled else b"")
            for ref in view.refs.iterate()
        )
        return [(TYPE_NAMES[kind], len(data)) for kind, data in read], listed

    sizes, listed = await look(backend, found)
    assert sizes == [(kind, int(size)) for _, kind, size in wanted]
    # git's own format peels once, ours to the end: compare where that is the same.
    for ours, theirs in zip(listed.splitlines(), refs(source).splitlines(), strict=True):
        assert ours.split(b" ")[:3] == theirs.split(b" ")[:3]


async def test_git_works_on_the_folder(backend: Backend, repositories: Generated, tmp_path: Path) -> None:
    source = repositories["merges"]
    await ingest(backend, source)
    stored = await folder(backend, tmp_path)
    assert git(stored, "log", "--all", "--format=%H %s") == git(source, "log", "--all", "--format=%H %s")
    git(tmp_path, "clone", "-q", "--mirror", "--no-local", str(stored), "clone.git")
    assert refs(tmp_path / "clone.git") == refs(source)
    git(tmp_path / "clone.git", "fsck", "--full", "--strict")
    assert b"garbage" not in run(stored, "count-objects", "-v").stderr
    for pack in (stored / "objects" / "pack").glob("*.pack"):
        git(stored, "verify-pack", str(pack))
        assert stat.S_IMODE(pack.stat().st_mode) == 0o444


async def test_export(backend: Backend, repositories: Generated, tmp_path: Path) -> None:
    source = repositories["tags"] if "tags" in GENERATORS else repositories["merges"]
    await ingest(backend, source)
    manifest = await export(backend, OWNER, NAME, tmp_path / "out" / "exported.git")
    assert manifest.number == 2
    exported = tmp_path / "out" / "exported.git"
    assert refs(exported) == refs(source)
    assert objects(exported) == objects(source)
    git(exported, "fsck", "--full")
    with pytest.raises(Exception, match="not empty"):
        await export(backend, OWNER, NAME, tmp_path / "out")


async def test_later_generations_follow(backend: Backend, repositories: Generated, tmp_path: Path) -> None:
    """Forced and deleted refs, new ones, HEAD moved: the folder shows each generation."""
    source = tmp_path / "source.git"
    git(None, "clone", "-q", "--mirror", "--no-local", str(repositories["merges"]), str(source))
    git(source, "config", "--unset", "remote.origin.mirror")
    await ingest(backend, source)
    tip = git(source, "rev-parse", "HEAD").decode().strip()
    for turn in range(4):
        branches = git(source, "for-each-ref", "--format=%(refname)", "refs/heads").decode().split()
        git(source, "update-ref", f"refs/heads/turn{turn}", tip)
        if turn == 1:
            git(source, "update-ref", "-d", branches[-1])
            git(source, "update-ref", branches[0], f"{tip}~1")
        if turn == 2:
            git(source, "symbolic-ref", "HEAD", "refs/heads/turn0")
        if turn == 3:
            git(source, "update-ref", "--no-deref", "HEAD", f"{tip}~1")
        tree = git(source, "rev-parse", f"{tip}^{{tree}}").decode().strip()
        new = git(source, "commit-tree", "-m", f"turn {turn}", tree, "-p", tip).decode().strip()
        git(source, "update-ref", "refs/heads/moving", new)
        manifest = await ingest(backend, source)
        assert manifest.number == turn + 3
        assert manifest.closed
        stored = await folder(backend, tmp_path / str(turn))
        assert refs(stored) == refs(source)
        assert git(stored, "rev-parse", "HEAD") == git(source, "rev-parse", "HEAD")
        assert run(stored, "symbolic-ref", "-q", "HEAD").stdout == run(source, "symbolic-ref", "-q", "HEAD").stdout
        git(stored, "fsck", "--full")


async def test_the_view_for_git_never_goes_back(backend: Backend, repositories: Generated) -> None:
    if backend.local_path("x") is None:
        pytest.skip("no folder")
    first = await ingest(backend, repositories["merges"])
    path = backend.local_path(layout.latest(OWNER, NAME))
    assert path is not None
    packed = path.parent.parent / "packed-refs"
    before = packed.read_bytes()
    assert before.startswith(b"# pack-refs with: peeled fully-peeled sorted \n")
    empty = await publish.prepare(backend, OWNER, NAME, first, refs=[], head=first.head)
    await publish.publish(backend, OWNER, NAME, empty)
    assert packed.read_bytes() == b"# pack-refs with: peeled fully-peeled sorted \n"
    # The writer of the generation before was slow: it asks again, and nothing older comes back.
    assert isinstance(await publish.publish(backend, OWNER, NAME, first), publish.Won)
    assert packed.read_bytes() == b"# pack-refs with: peeled fully-peeled sorted \n"


async def test_git_keeps_its_hands_off(backend: Backend, repositories: Generated) -> None:
    path = backend.local_path(layout.latest(OWNER, NAME))
    if path is None:
        pytest.skip("no folder")
    await ingest(backend, repositories["merges"])
    await ingest(backend, repositories["linear"])
    stored = path.parent.parent
    packs = sorted(stored.glob("objects/pack/*"))
    for command in (["repack", "-a", "-d"], ["prune"]):
        assert b"precious" in run(stored, *command).stderr
    run(stored, "gc", "--prune=now")
    assert sorted(stored.glob("objects/pack/*")) == packs


async def test_a_stopped_writer_holds_nobody_up(
    backend: Backend, repositories: Generated, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = backend.local_path(layout.latest(OWNER, NAME))
    if path is None:
        pytest.skip("no folder")
    monkeypatch.setattr(gitview, "_PATIENCE", 0.05)
    await ingest(backend, repositories["linear"])
    stopped = await gitview._lock(path.parent)
    assert stopped is not None
    manifest = await ingest(backend, repositories["merges"])
    assert manifest.number == 3
    assert not await gitview.refresh(backend, OWNER, NAME)
    os.close(stopped)
    await asyncio.gather(*(gitview.refresh(backend, OWNER, NAME) for _ in range(20)))
    assert refs(path.parent.parent) == refs(repositories["merges"])


async def test_fsck_finds_each_damage(backend: Backend, repositories: Generated) -> None:
    await ingest(backend, repositories["linear"])
    manifest = await Repositories(backend).current(OWNER, NAME)
    prefix = layout.repository(OWNER, NAME)
    name = manifest.packs[0].name

    async def codes() -> set[str]:
        from storage import views

        views.forget()
        return {finding.code for finding in (await fsck(backend, OWNER, NAME)).findings}

    async def damaged(key: str, data: bytes | None) -> set[str]:
        whole = await backend.get(prefix + key)
        if data is None:
            await backend.delete(prefix + key)
        else:
            await backend.put(prefix + key, data)
        found = await codes()
        await backend.put(prefix + key, whole)
        return found

    pack = await backend.get(prefix + layout.pack(name))
    index = await backend.get(prefix + layout.index(name))
    flipped = pack[:100] + bytes([pack[100] ^ 1]) + pack[101:]
    assert await codes() == set()
    assert await damaged(layout.pack(name), flipped) == {"bad_pack"}
    assert await damaged(layout.pack(name), pack[:-1]) == {"bad_pack"}
    assert await damaged(layout.pack(name), b"") == {"bad_pack"}
    assert await damaged(layout.pack(name), None) == {"missing_pack"}
    assert await damaged(layout.index(name), index[:-1]) == {"bad_index"}
    assert await damaged(layout.index(name), None) == {"bad_index"}
    first = f"packhouse/generations/{1:020}"
    assert await damaged(first, b"torn") == {"bad_manifest"}
    assert await damaged(first, None) == {"missing_generation"}
    assert await codes() == set()
    assert {f.code for f in (await fsck(backend, OWNER, "other")).findings} == {"missing_generation"}
