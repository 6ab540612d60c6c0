"""The node's cache: what goes wrong with it costs time, and never an answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pack.errors import CorruptData, StoreUnavailable
from pack.reader import Need
from storage import cache, descriptors, sources, views
from storage.backend import Backend
from storage.cache import Pieces, Place
from storage.evict import ABANDONED, CLAIM, Evictor
from storage.keeper import Keeper
from storage.repository import Handle, Repositories, open_view
from storage.sources import CachedSource
from storage.supply import Errand, Supplier
from storage.wanted import Sizes
from tests.storage.support import NAME, OWNER, ingest
from tests.support.generate import Repositories as Generated
from tests.support.git import git
from tests.support.node import bring
from tests.support.remote import RemoteBackend

BLOCK = 4096
LARGE = Sizes(whole=0, refs=0, windows=(BLOCK, 4 * BLOCK), request=16 * BLOCK, popular=10_000)


class Near:
    """A store far away, and the cache of a node."""

    def __init__(self, backend: RemoteBackend, folder: Path, sizes: Sizes | None = None, budget: int = 1 << 30) -> None:
        self.backend = backend
        self.place = Place(str(folder), BLOCK)
        self.supplier = Supplier(backend, self.place, budget, sizes)
        self.repositories = Repositories(backend, supplier=self.supplier)

    async def handle(self) -> Handle:
        return await self.repositories.handle(OWNER, NAME)

    async def everything(self) -> dict[bytes, bytes]:
        """All objects, read through the cache."""
        handle = await self.handle()

        def read(handle: Handle) -> dict[bytes, bytes]:
            view = open_view(handle)
            list(view.refs.iterate())
            return {oid: view.objects.read(oid)[1] for pack in view.objects.packs for oid in pack.index.oids()}

        return await self.repositories.read(handle, read)

    def files(self, end: str = "") -> list[Path]:
        data = Path(self.place.data)
        return sorted(file for file in data.rglob("*") if file.is_file() and str(file).endswith(end))

    def size(self) -> int:
        return sum(file.stat().st_size for file in self.files())


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[RemoteBackend]:
    yield RemoteBackend(tmp_path / "store")
    views.forget()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "cache"
    yield path
    if path.is_dir():
        path.chmod(0o700)


def expected(source: Path) -> dict[bytes, bytes]:
    found = {}
    for line in git(source, "cat-file", "--batch-all-objects", "--batch-check").splitlines():
        oid, kind, _ = line.decode().split()
        found[bytes.fromhex(oid)] = git(source, "cat-file", kind, oid)
    return found


def fresh() -> None:
    """As in a process that has just started."""
    views.forget()
    views.configure(object_cache_bytes=1 << 20)


@pytest.mark.parametrize("sizes", [None, LARGE], ids=["whole", "ranges"])
class TestDamage:
    async def test_of_any_byte_is_mended(
        self,
        backend: RemoteBackend,
        folder: Path,
        repositories: Generated,
        sizes: Sizes | None,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        source = repositories["history"]
        await ingest(backend, source)
        near = Near(backend, folder, sizes)
        want = expected(source)
        assert await near.everything() == want
        for file in near.files():
            # Another file at the same place, and the very file in use.
            for replaced in (True, False):
                data = file.read_bytes()
                bad = bytes(byte ^ 0x55 for byte in data)
                if replaced:
                    file.unlink()
                    file.write_bytes(bad)
                else:
                    with file.open("r+b") as opened:
                        opened.write(bad)
                fresh()
                caplog.clear()
                assert await near.everything() == want, file
                assert file.read_bytes() == data
                told = [each for each in caplog.records if each.name == "packhouse.cache"]
                assert len(told) == 1, (file, told)

    async def test_of_lengths_is_mended(
        self, backend: RemoteBackend, folder: Path, repositories: Generated, sizes: Sizes | None
    ) -> None:
        source = repositories["tags"]
        await ingest(backend, source)
        near = Near(backend, folder, sizes)
        want = await near.everything()
        for file in near.files():
            data = file.read_bytes()
            for bad in (b"", data[:-1], data[: len(data) // 2], data + b"x", bytes(len(data))):
                file.write_bytes(bad)
                fresh()
                assert await near.everything() == want, file
                assert file.read_bytes() == data
            # A file that is cut while it is open.
            os.truncate(file, len(data) // 3)
            assert await near.everything() == want, file

    async def test_in_the_store_is_believed_after_one_more_look(
        self, backend: RemoteBackend, folder: Path, repositories: Generated, sizes: Sizes | None
    ) -> None:
        manifest = await ingest(backend, repositories["linear"])
        pack = backend.root / OWNER / f"{NAME}.git" / "objects" / "pack" / f"{manifest.packs[0].name}.pack"
        data = pack.read_bytes()
        pack.chmod(0o600)
        pack.write_bytes(data[:12] + bytes(byte ^ 0x55 for byte in data[12:-20]) + data[-20:])
        near = Near(backend, folder, sizes)
        await near.handle()
        for _ in range(2):
            with pytest.raises(CorruptData, match="damaged"):
                await near.everything()
            assert len([key for _, key in backend.take() if key.endswith(".pack")]) <= 6
        index = pack.with_suffix(".idx")
        index.chmod(0o600)
        index.write_bytes(b"no index")
        shutil.rmtree(folder)
        fresh()
        with pytest.raises(CorruptData):
            await near.everything()

    async def test_files_may_go_any_time(
        self, backend: RemoteBackend, folder: Path, repositories: Generated, sizes: Sizes | None
    ) -> None:
        await ingest(backend, repositories["history"])
        near = Near(backend, folder, sizes)
        want = await near.everything()
        stop = threading.Event()

        def take_away() -> None:
            while not stop.is_set():
                for file in near.files():
                    file.unlink(missing_ok=True)
                    time.sleep(0.001)

        thread = threading.Thread(target=take_away)
        thread.start()
        try:
            for _ in range(5):
                fresh()
                assert await near.everything() == want
        finally:
            stop.set()
            thread.join()

    @pytest.mark.parametrize("how", ["a file", "read-only", "gone", "full"])
    async def test_a_broken_disk_costs_time_only(
        self,
        backend: RemoteBackend,
        folder: Path,
        repositories: Generated,
        sizes: Sizes | None,
        how: str,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        source = repositories["history"]
        await ingest(backend, source)
        near = Near(backend, folder, sizes)
        if how == "a file":
            folder.write_bytes(b"")
        elif how == "read-only":
            near = Near(backend, Path("/proc/nowhere"), sizes)
        else:
            number = 28 if how == "full" else 5

            def store(*_: object) -> None:
                raise OSError(number, os.strerror(number))

            monkeypatch.setattr(cache, "store", store)
        assert await near.everything() == expected(source)
        assert not near.files()
        assert sum("takes nothing" in each.message for each in caplog.records) == 1

    async def test_a_node_without_room_reads_all_the_same(
        self, backend: RemoteBackend, folder: Path, repositories: Generated, sizes: Sizes | None
    ) -> None:
        source = repositories["history"]
        await ingest(backend, source)
        near = Near(backend, folder, sizes, budget=BLOCK)
        assert await near.everything() == expected(source)

    async def test_short_answers_are_asked_for_once_more(
        self, backend: RemoteBackend, folder: Path, repositories: Generated, sizes: Sizes | None
    ) -> None:
        source = repositories["linear"]
        await ingest(backend, source)
        near = Near(backend, folder, sizes)
        backend.short = [".pack", ".idx"]
        assert await near.everything() == expected(source)
        assert not backend.short

    async def test_many_readers_fetch_once(
        self, backend: RemoteBackend, folder: Path, repositories: Generated, sizes: Sizes | None
    ) -> None:
        source = repositories["history"]
        await ingest(backend, source)
        near = Near(backend, folder, sizes)
        alone = Near(backend, folder.parent / "alone", sizes)
        await alone.everything()
        calls = [key for _, key in backend.take() if "/objects/" in key]
        backend.latency = 0.01
        fresh()
        handle = await near.handle()
        found = await asyncio.gather(*(near.everything() for _ in range(6)))
        assert all(each == found[0] for each in found)
        several = [key for _, key in backend.take() if "/objects/" in key]
        assert len(several) <= len(calls) + (0 if sizes is None else 2), (calls, several)
        assert handle.generation == 2


async def test_who_asked_first_may_go_away(backend: RemoteBackend, folder: Path, repositories: Generated) -> None:
    await ingest(backend, repositories["linear"])
    near = Near(backend, folder)
    handle = await near.handle()
    backend.take()
    backend.latency = 0.2
    needs = [(file, 0, 0) for file in (f"objects/pack/{handle.manifest.packs[0].name}.idx",)]
    first = asyncio.ensure_future(near.supplier.supply(handle, needs))
    await asyncio.sleep(0.05)
    second = asyncio.ensure_future(near.supplier.supply(handle, needs))
    await asyncio.sleep(0.05)
    first.cancel()
    await second
    assert len(backend.take()) == 2
    assert near.files(".idx")


async def test_registrations_share_nothing(backend: RemoteBackend, folder: Path, repositories: Generated) -> None:
    from storage import publish

    await ingest(backend, repositories["linear"])
    near = Near(backend, folder)
    old = await near.everything()
    before = set(near.files())
    await publish.delete(backend, OWNER, NAME)
    await ingest(backend, repositories["tags"])
    near.repositories.expire(OWNER, NAME)
    new = await near.everything()
    assert new == expected(repositories["tags"]) != old
    folders = {file.parent for file in near.files()}
    assert len(folders) == 2
    assert before < set(near.files())


async def test_a_file_of_another_generation_is_refused(
    backend: RemoteBackend, folder: Path, repositories: Generated
) -> None:
    await ingest(backend, repositories["linear"])
    near = Near(backend, folder)
    with pytest.raises(CorruptData):
        await near.supplier.supply(await near.handle(), [("objects/pack/pack-" + "0" * 40 + ".pack", 0, 10)])


async def test_a_missing_pack_is_named(backend: RemoteBackend, folder: Path, repositories: Generated) -> None:
    manifest = await ingest(backend, repositories["linear"])
    near = Near(backend, folder)
    await near.handle()
    key = f"objects/pack/{manifest.packs[0].name}.pack"
    (backend.root / OWNER / f"{NAME}.git" / key).unlink()
    with pytest.raises(CorruptData, match="pack"):
        await near.everything()


async def test_a_local_folder_supplies_nothing(tmp_path: Path, repositories: Generated) -> None:
    from storage.file import FileBackend

    backend: Backend = FileBackend(tmp_path / "store")
    await ingest(backend, repositories["linear"])
    handle = await Repositories(backend).handle(OWNER, NAME)
    with pytest.raises(StoreUnavailable, match="no more of x"):
        await Repositories(backend).supply(handle, [("x", 0, 1)])


async def test_a_read_that_never_has_enough_ends(backend: RemoteBackend, folder: Path, repositories: Generated) -> None:
    manifest = await ingest(backend, repositories["linear"])
    near = Near(backend, folder)
    errand = Errand(near.supplier, await near.handle())
    need = Need([(f"objects/pack/{manifest.packs[0].name}.pack", 12, 10)])
    with pytest.raises(StoreUnavailable, match="cache"):
        for _ in range(10):
            await errand.bring(need)


# Room


def fill(place: Place, name: str, size: int, age: float) -> Path:
    path = Path(place.shelf("store", "o/n@r")) / name
    cache.store(place, str(path), (bytes(size),))
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_what_was_used_least_goes_first(folder: Path) -> None:
    place = Place(str(folder))
    files = [fill(place, f"pack-{number}.pack", 10_000, 1000 - number) for number in range(50)]
    evictor = Evictor(place, 300_000)
    assert evictor.run() > 0
    left = [file.exists() for file in files]
    assert left == sorted(left)
    assert 200_000 < sum(left) * 12_288 <= 300_000
    assert evictor.total == sum(left) * 12_288
    assert evictor.run() == 0


def test_reading_keeps_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(str(folder))
    files = [fill(place, f"pack-{number}.pack", 10_000, 1000 - number) for number in range(50)]
    source = CachedSource(place, place.shelf("store", "o/n@r"))
    source.expect("objects/pack/pack-0.pack", 10_000)
    assert source.read("objects/pack/pack-0.pack", 5, 5) == bytes(5)
    Evictor(place, 300_000).run()
    assert files[0].exists()
    assert not files[1].exists()


def test_spools_count_and_stay(folder: Path) -> None:
    place = Place(str(folder))
    spool, old = Path(place.temporary) / "a", Path(place.temporary) / "b"
    files = [fill(place, f"pack-{number}.pack", 10_000, 1000 - number) for number in range(20)]
    spool.write_bytes(bytes(150_000))
    old.write_bytes(bytes(150_000))
    os.utime(old, (0, time.time() - ABANDONED - 10))
    evictor = Evictor(place, 300_000)
    evictor.run()
    assert spool.exists()
    assert not old.exists()
    assert 5 < sum(file.exists() for file in files) < 12


def test_one_evictor_at_a_time(folder: Path) -> None:
    place = Place(str(folder))
    fill(place, "x.pack", 100_000, 10)
    one, other = Evictor(place, 1000), Evictor(place, 1000)
    with one._alone() as alone:
        assert alone
        assert other.run() == 0
    assert other.run() > 0


def test_empty_folders_go(folder: Path) -> None:
    place = Place(str(folder))
    path = fill(place, "x.pack.blocks/0", 100_000, 10)
    for parent in list(path.parents)[:5]:
        os.utime(parent, (0, time.time() - 1000))
    Evictor(place, 1000).run()
    assert not path.exists()
    # Its own folder was changed just now; the next look takes it.
    fill(place, "y.pack", 100_000, 10)
    os.utime(path.parent, (0, 0))
    Evictor(place, 1000).run()
    assert not path.parent.exists()
    cache.store(place, str(path), (b"again",))
    assert path.read_bytes() == b"again"


async def test_the_budget_holds(backend: RemoteBackend, folder: Path, repositories: Generated) -> None:
    """Many repositories, one after the other, in a cache for a few."""
    from storage import publish

    budget = 120_000
    near = Near(backend, folder, budget=budget)
    for turn in range(25):
        if turn:
            await publish.delete(backend, OWNER, NAME)
        await ingest(backend, repositories["history"])
        near.repositories.expire(OWNER, NAME)
        await near.everything()
        for _ in range(100):
            if not near.supplier._background:
                break
            await asyncio.sleep(0.01)
        assert near.size() <= budget
    assert near.files()
    await near.supplier.close()


def test_evicted_files_are_let_go(folder: Path) -> None:
    place = Place(str(folder))
    path = fill(place, "x.pack", 1000, 10)
    source = CachedSource(place, place.shelf("store", "o/n@r"))
    source.expect("x.pack", 1000)
    source.read("x.pack", 0, 10)
    descriptor = descriptors._files[str(path)].fd
    path.unlink()
    assert os.fstat(descriptor).st_nlink == 0
    assert source.read("x.pack", 0, 10) == bytes(10)
    views.tidy()
    assert str(path) not in descriptors._files
    with pytest.raises(Need):
        source.read("x.pack", 0, 10)


def test_a_file_in_constant_use_is_let_go_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "STAMP_SECONDS", 0.0)
    place = Place(str(folder))
    path = fill(place, "x.pack", 1000, 10)
    source = CachedSource(place, place.shelf("store", "o/n@r"))
    source.expect("x.pack", 1000)
    source.read("x.pack", 0, 10)
    path.unlink()
    with pytest.raises(Need):
        source.read("x.pack", 0, 10)


def test_pieces_are_bounded() -> None:
    pieces = Pieces(1000)
    pieces.add(cache.Piece("s", "n", number, bytes(300)) for number in range(10))
    assert pieces.bytes <= 1000
    assert pieces.get("s", "n", 9) is not None
    assert pieces.get("s", "n", 0) is None
    assert pieces.drop("s", "n", 9)
    assert not pieces.drop("s", "n", 9)
    pieces.clear()
    assert pieces.bytes == 0


def test_what_is_missing_is_remembered_for_a_while(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(str(folder))
    source = CachedSource(place, place.shelf("store", "o/n@r"))
    with pytest.raises(Need):
        source.probe("packhouse/graph-x")
    cache.store(place, cache.absent_path(source.shelf, "packhouse/graph-x"), (b"",))
    assert source.probe("packhouse/graph-x") is None
    monkeypatch.setattr(sources, "ABSENT_SECONDS", 0.0)
    with pytest.raises(Need):
        source.probe("packhouse/graph-x")
    cache.store(place, cache.whole_path(source.shelf, "packhouse/graph-x"), (b"12345",))
    assert source.probe("packhouse/graph-x") == 5


# Packs on their way into the store


async def test_an_ingested_pack_is_here_already(backend: RemoteBackend, folder: Path, repositories: Generated) -> None:
    near = Near(backend, folder)
    source = repositories["history"]
    await bring(backend, "r", source, near.supplier)
    handle = await near.repositories.handle("tests", "r")
    backend.take()

    def read(handle: Handle) -> dict[bytes, bytes]:
        view = open_view(handle)
        return {oid: view.objects.read(oid)[1] for pack in view.objects.packs for oid in pack.index.oids()}

    assert await near.repositories.read(handle, read) == expected(source)
    assert backend.take() == []
    assert not list(Path(near.place.temporary).iterdir())


async def test_what_is_spooled_takes_room(backend: RemoteBackend, folder: Path, repositories: Generated) -> None:
    await ingest(backend, repositories["linear"])
    near = Near(backend, folder, budget=1_000_000)
    files = [fill(near.place, f"pack-{number}.pack", 10_000, 1000 - number) for number in range(70)]
    with contextlib.closing(Keeper(near.supplier, await near.handle())) as keeper:
        for size in range(0, 600_000, 20_000):
            await keeper.grow(size)
        near.supplier.evictor.run()
        assert sum(file.exists() for file in files) < 33
        claims = list(Path(near.place.temporary).iterdir())
        assert len(claims) == 1
        assert claims[0].stat().st_size >= 580_000
        assert claims[0].stat().st_blocks == 0
    assert not list(Path(near.place.temporary).iterdir())


def test_claims_of_the_dead_go(folder: Path) -> None:
    place = Place(str(folder))
    fill(place, "x.pack", 1000, 10)
    claim = Path(place.temporary) / f"dead{CLAIM}"
    claim.write_bytes(b"")
    os.truncate(claim, 1 << 40)
    evictor = Evictor(place, 1 << 20)
    evictor.run()
    assert not claim.exists()
    assert evictor.total == 4096
