"""Tables of types and sizes as sidecars: made, grown, damaged, taken away; what objects are is always the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.building import build
from pack.table import KIND, VERSION, read_front
from pack.view import View
from storage import tables, views
from storage.backend import Backend
from storage.makers import MAKERS
from storage.open import open_backend
from storage.repository import Handle, Repositories, open_view
from storage.sidecars import key_of, made_from, wanted
from storage.sidecars import read_front as read_stored
from storage.tables import TableOpener
from tests.storage.support import NAME, OWNER, ingest
from tests.support.generate import Repositories as Generated
from tests.support.git import git


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    monkeypatch.setattr(tables, "_FEW", 0)
    monkeypatch.setattr(tables, "_LOOK_SECONDS", 0.0)
    wanted()
    yield open_backend((tmp_path / "store").as_uri())
    views.forget()
    wanted()


async def handle(backend: Backend) -> Handle:
    return await Repositories(backend).handle(OWNER, NAME)


def headers(view: View) -> dict[bytes, tuple[int, int]]:
    view.objects._headers.clear()
    return {oid: view.objects.header(oid) for pack in view.objects.packs for oid in pack.index.oids()}


async def opened(backend: Backend) -> View:
    views.forget()
    return open_view(await handle(backend))


def tabled(view: View) -> list[bool]:
    """Of each pack, whether it has a table."""
    opener = view.objects.open_table
    assert isinstance(opener, TableOpener)
    return [opener(pack) is not None for pack in view.objects.packs]


def file(tmp_path: Path, names: list[str]) -> Path:
    return tmp_path / "store" / OWNER / f"{NAME}.git" / key_of(KIND, VERSION, made_from(names))


make = partial(build, supplier=None, owner=OWNER, name=NAME, kinds={KIND: None})


async def test_missing_damaged_and_made_anew(backend: Backend, tmp_path: Path, repositories: Generated) -> None:
    manifest = await ingest(backend, repositories["history"])
    names = [record.name for record in manifest.packs]
    view = await opened(backend)
    right = headers(view)
    assert {want.kind for want in wanted()} >= {KIND}
    assert not any(tabled(view))
    wanted()
    assert await make(backend) == [KIND]
    assert headers(view) == right
    assert all(tabled(view))
    assert KIND not in {want.kind for want in wanted()}
    path = file(tmp_path, names)
    whole = path.read_bytes()
    for at in [*range(0, len(whole), 61), len(whole) - 1]:
        for hurt in (whole[:at] + bytes([whole[at] ^ 32]) + whole[at + 1 :], whole[:at]):
            path.unlink()
            path.write_bytes(hurt)
            view = await opened(backend)
            assert headers(view) == right
            (want,) = [want for want in wanted() if want.kind == KIND]
            assert want.damage
    assert await build(backend, None, OWNER, NAME, {KIND: "damage"}) == [KIND]
    assert path.read_bytes() == whole
    assert headers(view) == right
    assert all(tabled(view))


async def test_taken_away_while_in_use(backend: Backend, tmp_path: Path, repositories: Generated) -> None:
    manifest = await ingest(backend, repositories["linear"])
    await make(backend)
    view = await opened(backend)
    right = headers(view)
    wanted()
    file(tmp_path, [record.name for record in manifest.packs]).unlink()
    assert headers(view) == right
    assert [want.kind for want in wanted()] == [KIND]


async def test_a_sync_adds_its_own(backend: Backend, tmp_path: Path, repositories: Generated) -> None:
    source = tmp_path / "grows.git"
    git(None, "clone", "-q", "--bare", str(repositories["history"]), str(source))
    counts = []
    for number in range(5):
        if number:
            blob = git(source, "hash-object", "-w", "--stdin", stdin=b"new %d\n" % number).decode().strip()
            tree = git(source, "mktree", stdin=f"100644 blob {blob}\tfile\n".encode()).decode().strip()
            commit = git(source, "commit-tree", "-p", "HEAD", "-m", f"c{number}", tree).decode().strip()
            git(source, "update-ref", "HEAD", commit)
        manifest = await ingest(backend, source)
        assert await make(backend) == [KIND]
        names = [record.name for record in manifest.packs]
        data = await read_stored(backend, f"{OWNER}/{NAME}.git/", MAKERS[KIND], made_from(names))
        counts.append(len(read_front(data).packs))
        view = await opened(backend)
        plain = await opened(backend)
        plain.objects.open_table = None
        assert headers(view) == headers(plain)
        assert all(tabled(view))
    # The tests' ingest brings all there is each time: half of what is there is new, and written with what was.
    assert counts[-1] > 1


async def test_a_damaged_layer_is_measured_anew(backend: Backend, tmp_path: Path, repositories: Generated) -> None:
    manifest = await ingest(backend, repositories["linear"])
    await make(backend)
    first = file(tmp_path, [record.name for record in manifest.packs])
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.unlink()
    first.write_bytes(data)
    manifest = await ingest(backend, repositories["merges"])
    await make(backend)
    view = await opened(backend)
    plain = await opened(backend)
    plain.objects.open_table = None
    assert headers(view) == headers(plain)
    # Whoever finds the damage has the whole chain made anew.
    damage: dict[str, Any] = {want.kind: want.damage for want in wanted() if want.damage}
    if damage:
        assert await build(backend, None, OWNER, NAME, damage) == [KIND]
    await asyncio.sleep(0)
    view = await opened(backend)
    assert headers(view) == headers(plain)
    assert all(tabled(view))
