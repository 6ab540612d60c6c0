"""Ingests into a store that is far away: what is read of it comes through a cache, also one that is empty."""

from __future__ import annotations

import random
import shutil
from collections.abc import AsyncIterator, Sequence
from itertools import islice
from pathlib import Path

import pytest

from app.ingest import Outcome, ingest
from app.source import Known, LocalSource, local
from storage import views
from storage.cache import Place
from storage.connectivity import check
from storage.fsck import fsck
from storage.repository import Repositories, open_view
from storage.supply import Supplier
from storage.wanted import Sizes
from tests.support.generate import Repositories as Generated
from tests.support.git import Plumbing, git
from tests.support.node import bring
from tests.support.remote import RemoteBackend
from tests.support.service import OWNER

LARGE = Sizes(whole=0, refs=0, windows=(4096, 16384), request=65536)


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[RemoteBackend]:
    yield RemoteBackend(tmp_path / "store")
    views.forget()


@pytest.fixture
def source(tmp_path: Path, repositories: Generated) -> Path:
    path = tmp_path / "source.git"
    shutil.copytree(repositories["history"], path)
    return path


def empty(backend: RemoteBackend, folder: Path, sizes: Sizes | None = None) -> Supplier:
    """The cache of a node that has never seen anything."""
    views.forget()
    shutil.rmtree(folder, ignore_errors=True)
    return Supplier(backend, Place(str(folder), 4096), 1 << 30, sizes)


def grow(source: Path, number: int) -> None:
    """A commit on main that changes one file in a directory."""
    p = Plumbing(source)
    tip = git(source, "rev-parse", "main").decode().strip()
    entries = git(source, "ls-tree", tip).decode().splitlines()
    rows = [line.split(None, 3) for line in entries]
    tree = p.tree(
        [(mode, name.encode(), oid) for mode, _, oid, name in rows] + [("100644", b"new", p.blob(b"%d\n" % number))]
        if not any(name == "new" for *_, name in rows)
        else [(mode, name.encode(), p.blob(b"%d\n" % number) if name == "new" else oid) for mode, _, oid, name in rows]
    )
    p.ref("refs/heads/main", p.commit(f"grown {number}", tree, tip))


async def again(backend: RemoteBackend, source: Path, supplier: Supplier) -> Outcome:
    async with local(source) as listed:
        return await ingest(backend, OWNER, "r", listed, supplier=supplier)


async def sound(backend: RemoteBackend, source: Path) -> None:
    report = await fsck(backend, OWNER, "r")
    assert report.findings == []
    assert report.refs == len(git(source, "for-each-ref").splitlines())


@pytest.mark.parametrize("sizes", [None, LARGE], ids=["whole", "ranges"])
async def test_syncs_from_nodes_that_know_nothing(
    backend: RemoteBackend, source: Path, tmp_path: Path, sizes: Sizes | None
) -> None:
    await bring(backend, "r", source, empty(backend, tmp_path / "cache", sizes))
    for number in range(4):
        grow(source, number)
        outcome = await again(backend, source, empty(backend, tmp_path / "cache", sizes))
        assert outcome.changed
        assert outcome.objects <= 3
    await sound(backend, source)


async def test_what_is_not_new_costs_little(backend: RemoteBackend, source: Path, tmp_path: Path) -> None:
    await bring(backend, "r", source, empty(backend, tmp_path / "cache"))
    backend.take()
    outcome = await again(backend, source, empty(backend, tmp_path / "cache"))
    assert not outcome.changed
    calls = backend.take()
    assert not [key for _, key in calls if "/objects/" in key]
    assert len(calls) <= 4


async def test_branches_that_move_to_what_is_there(backend: RemoteBackend, source: Path, tmp_path: Path) -> None:
    await bring(backend, "r", source, empty(backend, tmp_path / "cache"))
    git(source, "update-ref", "refs/heads/main", git(source, "rev-parse", "main~7").decode().strip())
    git(source, "update-ref", "-d", "refs/heads/topic3")
    git(source, "update-ref", "refs/tags/moved", git(source, "rev-parse", "main~3^{tree}").decode().strip())
    outcome = await again(backend, source, empty(backend, tmp_path / "cache"))
    assert (outcome.changed, outcome.packs) == (True, 0)
    await sound(backend, source)


class Thin(LocalSource):
    """Sends a thin pack, asked for or not."""

    sent = 0

    async def packs(self, wants: Sequence[bytes], known: Known) -> AsyncIterator[AsyncIterator[bytes]]:
        revs = b"".join(b"%s\n" % want.hex().encode() for want in wants)
        revs += b"".join(b"^%s\n" % tip.hex().encode() for tip in islice(known.tips, 1))
        pack = git(self.path, "pack-objects", "--thin", "--stdout", "--revs", "-q", stdin=revs)
        Thin.sent += 1

        async def chunks() -> AsyncIterator[bytes]:
            for at in range(0, len(pack), 1000):
                yield pack[at : at + 1000]

        yield chunks()


@pytest.mark.parametrize("sizes", [None, LARGE], ids=["whole", "ranges"])
async def test_the_bases_of_a_thin_pack_are_brought(
    backend: RemoteBackend, source: Path, tmp_path: Path, sizes: Sizes | None
) -> None:
    """Nobody asks for thin packs; one that comes anyway may have to come twice."""
    p = Plumbing(source)
    tip = git(source, "rev-parse", "main").decode().strip()
    data = random.Random(3).randbytes(30_000)
    before = p.commit("before", p.tree([("100644", b"big", p.blob(data))]), tip)
    p.ref("refs/heads/main", before)
    await bring(backend, "r", source, empty(backend, tmp_path / "cache", sizes))
    p.ref("refs/heads/main", p.commit("edited", p.tree([("100644", b"big", p.blob(data + b"new\n"))]), before))
    Thin.sent = 0
    supplier = empty(backend, tmp_path / "cache", sizes)
    outcome = await ingest(backend, OWNER, "r", Thin(source), supplier=supplier)
    assert outcome.changed
    # What is small has come whole with its index.
    assert Thin.sent == (1 if sizes is None else 2)
    await sound(backend, source)
    handle = await Repositories(backend, supplier=supplier).handle(OWNER, "r")
    checked = await supplier.run(
        handle, lambda pinned: check(open_view(pinned).objects, list(open_view(pinned).refs.iterate()))
    )
    assert checked.refs
