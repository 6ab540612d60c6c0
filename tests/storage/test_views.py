from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pack.errors import BadIndex, CorruptData, CorruptObject, PackhouseError
from storage import descriptors, layout, publish, views
from storage.backend import Backend
from storage.manifest import Head
from storage.open import open_backend
from storage.repository import Handle, Repositories, open_view
from tests.storage.support import NAME, OWNER, ingest
from tests.support.generate import Repositories as Generated


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    """A store in a local folder: what is opened there is what these tests are about."""
    yield open_backend(str(tmp_path / "store"))
    views.forget()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def handle(backend: Backend) -> Handle:
    return await Repositories(backend).handle(OWNER, NAME)


async def test_a_view_is_opened_once(backend: Backend, repositories: Generated) -> None:
    await ingest(backend, repositories["linear"])
    assert open_view(await handle(backend)) is open_view(await handle(backend))


async def test_generations_share_what_they_have_in_common(backend: Backend, repositories: Generated) -> None:
    first = await ingest(backend, repositories["linear"])
    old = open_view(await handle(backend))
    await publish.publish(
        backend, OWNER, NAME, await publish.prepare(backend, OWNER, NAME, first, refs=[], head=Head())
    )
    new = open_view(await handle(backend))
    assert new is not old
    assert new.objects.packs[0] is old.objects.packs[0]
    assert old.refs.head is not None
    assert new.refs.head is None
    assert list(old.refs.iterate())


async def test_registrations_share_nothing(backend: Backend, repositories: Generated) -> None:
    await ingest(backend, repositories["linear"])
    old = open_view(await handle(backend))
    await publish.delete(backend, OWNER, NAME)
    await ingest(backend, repositories["linear"])
    new = open_view(await handle(backend))
    assert new.namespace != old.namespace
    assert new.objects.packs[0] is not old.objects.packs[0]


async def test_descriptors_are_bounded_and_given_back(
    backend: Backend, repositories: Generated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "MOST", 3)
    before = open_files()
    for _ in range(6):
        await publish.delete(backend, OWNER, NAME) if _ else None
        await ingest(backend, repositories["linear"])
        view = open_view(await handle(backend))
        for oid in list(view.objects.packs[0].index.oids()):
            view.objects.read(oid)
        assert open_files() <= before + 4
    views.forget()
    assert open_files() <= before + 1
    for oid in list(view.objects.packs[0].index.oids()):
        view.objects.read(oid)
    del view
    views.forget()


async def test_repositories_are_forgotten_by_size(
    backend: Backend, repositories: Generated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "_INDEX_BYTES", 1)
    for turn in range(4):
        if turn:
            await publish.delete(backend, OWNER, NAME)
        await ingest(backend, repositories["linear"])
        open_view(await handle(backend))
        assert len(views._repositories) == 1
        assert len(views._views) == 1


async def test_many_threads_open_one_view(backend: Backend, repositories: Generated) -> None:
    await ingest(backend, repositories["linear"])
    pinned = await handle(backend)
    for _ in range(20):
        views.forget()
        found: list[object] = []
        threads = [
            threading.Thread(target=lambda found=found: found.append(open_view(pinned)))  # type: ignore[misc]
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({id(view) for view in found}) == 1


async def test_damage_is_an_error_with_a_name(backend: Backend, repositories: Generated, tmp_path: Path) -> None:
    manifest = await ingest(backend, repositories["linear"])
    pinned = await handle(backend)
    prefix = layout.repository(OWNER, NAME)
    name = manifest.packs[0].name
    index = await backend.get(prefix + layout.index(name))
    for data, error in ((None, CorruptData), (b"", BadIndex), (index[:-1], BadIndex), (b"x" + index[1:], BadIndex)):
        views.forget()
        if data is None:
            await backend.delete(prefix + layout.index(name))
        else:
            await backend.put(prefix + layout.index(name), data)
        with pytest.raises(error):
            open_view(pinned)
    await backend.put(prefix + layout.index(name), index)
    pack = await backend.get(prefix + layout.pack(name))
    oids = list(open_view(pinned).objects.packs[0].index.oids())
    for data in (pack[: len(pack) // 2], bytes([*pack[:12], *(byte ^ 0x55 for byte in pack[12:])])):
        views.configure(object_cache_bytes=1 << 20)
        await backend.put(prefix + layout.pack(name), data)
        view = open_view(pinned)
        with pytest.raises(CorruptObject):
            for oid in oids:
                view.objects.read(oid)
    await backend.delete(prefix + layout.pack(name))
    views.configure(object_cache_bytes=64 << 20)
    with pytest.raises(PackhouseError):
        open_view(pinned).objects.read(oids[0])


async def test_an_open_view_outlives_its_files(backend: Backend, repositories: Generated) -> None:
    """What gc deletes stays readable for those who have it open."""
    root = backend.local_path("x")
    if root is None:
        pytest.skip("no folder")
    await ingest(backend, repositories["linear"])
    view = open_view(await handle(backend))
    oids = list(view.objects.packs[0].index.oids())
    view.objects.read(oids[0])
    shutil.rmtree(root.parent / OWNER)
    for oid in oids:
        view.objects.read(oid)
