"""Objects out of packs that the real git wrote."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from pack.errors import CorruptObject, ObjectNotFound, PackhouseError, TooLarge, WrongType
from pack.index import Index
from pack.limits import Limits
from pack.objects import BLOB, COMMIT, TREE, TYPE_NUMBERS, hash_object
from pack.reader import Need, ObjectCache, Objects, PackFile
from tests.support.generate import Repositories
from tests.support.git import Plumbing, git, init
from tests.support.repo import FileSource, open_git_dir

PACKINGS = {
    "ofs": ("--delta-base-offset",),
    "ref": (),
    "deep": ("--delta-base-offset", "--depth=250", "--window=250"),
    "whole": ("--window=0",),
}


class MemorySource:
    """Files in memory; `have` limits what is there, as a cache that fills up does."""

    def __init__(self, files: dict[str, bytes], lazy: bool = False) -> None:
        self.files = files
        self.have: set[tuple[str, int, int]] | None = set() if lazy else None
        self.needs = 0

    def read(self, name: str, offset: int, length: int) -> bytes:
        if self.have is not None and not any(
            name == n and o <= offset and offset + length <= o + m for n, o, m in self.have
        ):
            self.needs += 1
            raise Need([(name, offset, length)])
        return self.files[name][offset : offset + length]

    def bring(self, need: Need) -> None:
        assert self.have is not None
        self.have.update(need.ranges)


def everything(path: Path) -> dict[bytes, tuple[int, int]]:
    out = git(path, "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype) %(objectsize)")
    rows = (line.split() for line in out.splitlines())
    return {bytes.fromhex(oid.decode()): (TYPE_NUMBERS[kind], int(size)) for oid, kind, size in rows}


def pack_of(path: Path, into: Path, *options: str) -> tuple[PackFile, bytes]:
    into.mkdir(parents=True, exist_ok=True)
    listed = b"".join(oid.hex().encode() + b"\n" for oid in everything(path))
    name = git(path, "pack-objects", "-q", "--no-reuse-delta", *options, str(into / "p"), stdin=listed).decode().strip()
    data = (into / f"p-{name}.pack").read_bytes()
    index = Index.parse((into / f"p-{name}.idx").read_bytes())
    return PackFile(f"p-{name}.pack", len(data), index), data


@pytest.fixture(scope="module")
def similar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose blobs are long chains of small changes."""
    p = Plumbing(init(tmp_path_factory.mktemp("similar") / "r.git"))
    rng = random.Random(3)
    lines = [b"line %d %d\n" % (number, rng.getrandbits(64)) for number in range(400)]
    for number in range(120):
        lines[rng.randrange(400)] = b"changed %d %d\n" % (number, rng.getrandbits(40))
        p.commit(f"c{number}", p.file(b"f", b"".join(lines)))
    p.blob(b"")
    p.blob(rng.randbytes(3 << 20))
    return p.path


@pytest.mark.parametrize("packing", PACKINGS)
def test_every_object_of_every_packing(similar: Path, tmp_path: Path, packing: str) -> None:
    expected = everything(similar)
    pack, data = pack_of(similar, tmp_path, *PACKINGS[packing])
    for cache_bytes in (0, 64 << 20):
        objects = Objects("r", [pack], MemorySource({pack.name: data}), ObjectCache(cache_bytes))
        assert len(objects) == len(expected)
        for oid, (kind, size) in expected.items():
            assert oid in objects
            assert objects.header(oid) == (kind, size)
            found, body = objects.read(oid)
            assert (found, len(body), hash_object(found, body)) == (kind, size, oid)
            assert objects.header(oid) == (kind, size)
            assert b"".join(objects.chunks(oid)) == body


def test_generated_repositories_read_whole(repositories: Repositories) -> None:
    for name in repositories:
        view = open_git_dir(repositories[name])
        expected = everything(repositories[name])
        read = {oid: (kind, len(data)) for oid, kind, data in view.objects.read_many(expected)}
        assert read == expected, name


def test_several_packs_and_many_reads_in_pack_order(similar: Path, tmp_path: Path) -> None:
    first, one = pack_of(similar, tmp_path / "a", "--delta-base-offset")
    second, two = pack_of(similar, tmp_path / "b", "--window=0")
    second.name = "other.pack"
    objects = Objects("r", [first, second], MemorySource({first.name: one, second.name: two}), ObjectCache(1 << 20))
    oids = list(everything(similar))
    got = [oid for oid, _, _ in objects.read_many([*oids, *oids])]
    assert sorted(got) == sorted(oids)
    offsets = [first.index.find(oid) or 0 for oid in got]
    assert offsets == sorted(offsets)


def test_what_is_not_there_and_what_is_something_else(similar: Path) -> None:
    objects = open_git_dir(similar).objects
    commit = next(oid for oid, (kind, _) in everything(similar).items() if kind == COMMIT)
    nowhere = bytes(20)
    assert nowhere not in objects
    for call in (objects.read, objects.header, objects.chunks):
        with pytest.raises(ObjectNotFound):
            call(nowhere)
    with pytest.raises(ObjectNotFound):
        list(objects.read_many([commit, nowhere]))
    with pytest.raises(WrongType, match="is a commit, not a tree"):
        objects.read_as(commit, TREE)


def test_prefixes(similar: Path) -> None:
    objects = open_git_dir(similar).objects
    oids = sorted(everything(similar))
    for digits in ("", "0", "a", "ab", oids[3].hex()[:5], oids[-1].hex(), "f" * 40):
        assert objects.prefix(digits, 1000) == [oid for oid in oids if oid.hex().startswith(digits)]
    assert objects.prefix("", 3) == oids[:3]


def test_a_need_leaves_nothing_behind(similar: Path, tmp_path: Path) -> None:
    pack, data = pack_of(similar, tmp_path, "--delta-base-offset", "--depth=50")
    source = MemorySource({pack.name: data}, lazy=True)
    objects = Objects("r", [pack], source, ObjectCache(8 << 20))

    def insist(call: Callable[[], object]) -> object:
        for _ in range(500):
            try:
                return call()
            except Need as need:
                source.bring(need)
        raise AssertionError("needs without end")

    for oid, header in everything(similar).items():
        assert insist(lambda oid=oid: objects.header(oid)) == header
        kind, body = insist(lambda oid=oid: objects.read(oid))  # type: ignore[misc]
        assert hash_object(kind, body) == oid
        pieces = insist(lambda oid=oid: objects.chunks(oid))
        got = hashlib.sha1()
        while (piece := insist(lambda pieces=pieces: next(pieces, b""))) != b"":
            got.update(piece)  # type: ignore[arg-type]
        assert got.digest() == hashlib.sha1(body).digest()


def test_reading_many_names_all_that_is_needed_at_once(similar: Path, tmp_path: Path) -> None:
    pack, data = pack_of(similar, tmp_path, "--window=0")
    source = MemorySource({pack.name: data}, lazy=True)
    objects = Objects("r", [pack], source, ObjectCache(8 << 20))
    small = [oid for oid, (_, size) in everything(similar).items() if size < 1 << 20]
    with pytest.raises(Need) as caught:
        list(objects.read_many(small))
    assert len(caught.value.ranges) == len(small)
    source.bring(caught.value)
    assert len(list(objects.read_many(small))) == len(small)


def test_the_cache_keeps_to_its_bytes_and_to_its_repository() -> None:
    cache = ObjectCache(10_000)
    for number in range(100):
        cache.put(("r", number), (BLOB, bytes(500), None))
        assert cache.bytes <= 10_000
        cache.get(("r", 0))
    assert cache.get(("r", 0)) is not None, "what is used stays"
    assert cache.get(("r", 50)) is None
    assert cache.get(("s", 0)) is None
    cache.put(("r", 0), (BLOB, bytes(9_000), None))
    assert cache.get(("r", 0)) is None, "one large object does not push out the rest"
    cache.clear()
    assert (len(cache), cache.bytes) == (0, 0)


def test_a_base_is_resolved_once(similar: Path) -> None:
    view = open_git_dir(similar)
    source = view.objects.source
    assert isinstance(source, FileSource)
    blobs = [oid for oid, (kind, size) in everything(similar).items() if kind == BLOB and size < 1 << 20]
    for oid in blobs:
        view.objects.read(oid)
    assert source.reads <= len(blobs) + 2


def test_limits(similar: Path) -> None:
    objects = open_git_dir(similar, limits=Limits(object_bytes=1 << 20)).objects
    large = next(oid for oid, (_, size) in everything(similar).items() if size > 1 << 20)
    for call in (objects.read, objects.chunks):
        with pytest.raises(TooLarge) as caught:
            call(large)
        assert large.hex() in caught.value.detail
    assert objects.header(large) == (BLOB, 3 << 20)
    shallow = open_git_dir(similar, limits=Limits(delta_depth=1), cache_bytes=0).objects
    refused = 0
    for oid in everything(similar):
        try:
            shallow.read(oid)
        except (CorruptObject, TooLarge):
            refused += 1
    assert refused


def test_damage_is_named_and_never_returned(similar: Path, tmp_path: Path) -> None:
    pack, data = pack_of(similar, tmp_path, "--delta-base-offset")
    expected = everything(similar)
    rng = random.Random(11)
    small = [oid for oid, (_, size) in expected.items() if size < 1 << 20]
    damaged = 0
    for _ in range(150):
        broken = bytearray(data[: 1 << 18])
        for _ in range(rng.choice((1, 1, 3, 50))):
            broken[rng.randrange(12, len(broken))] = rng.randrange(256)
        cut = bytes(broken[: rng.choice((len(broken), rng.randrange(len(broken))))])
        objects = Objects("r", [pack], MemorySource({pack.name: cut}), ObjectCache(1 << 20))
        for oid in rng.sample(small, 12):
            try:
                objects.header(oid)
                kind, body = objects.read(oid)
                assert hash_object(kind, body) == oid
                assert b"".join(objects.chunks(oid)) == body
            except CorruptObject as error:
                damaged += 1
                assert oid.hex() in error.detail
            except TooLarge:
                damaged += 1
    assert damaged > 100


def test_a_large_damaged_object_never_streams_to_its_end(similar: Path, tmp_path: Path) -> None:
    pack, data = pack_of(similar, tmp_path)
    large = next(oid for oid, (_, size) in everything(similar).items() if size > 1 << 20)
    offset = pack.index.find(large)
    assert offset is not None
    for at in (offset + 100, offset + (1 << 20), offset + pack.length(offset) - 1):
        broken = bytearray(data)
        broken[at] ^= 0x10
        objects = Objects("r", [pack], MemorySource({pack.name: bytes(broken)}), ObjectCache(1 << 20))
        got = 0
        with pytest.raises(CorruptObject):
            for piece in objects.chunks(large):
                got += len(piece)
        assert got < 3 << 20


def test_another_pack_helps_out(similar: Path, tmp_path: Path) -> None:
    first, one = pack_of(similar, tmp_path / "a", "--window=0")
    second, two = pack_of(similar, tmp_path / "b", "--window=0")
    second.name = "second.pack"
    oid = next(iter(everything(similar)))
    offset = first.index.find(oid)
    assert offset is not None
    broken = bytearray(one)
    broken[offset + first.length(offset) - 3] ^= 1
    source = MemorySource({first.name: bytes(broken), second.name: two})
    kind, data = Objects("r", [first, second], source, ObjectCache(0)).read(oid)
    assert hash_object(kind, data) == oid
    with pytest.raises(CorruptObject):
        Objects("r", [first], source, ObjectCache(0)).read(oid)


def test_an_index_that_points_outside_of_its_pack(similar: Path, tmp_path: Path) -> None:
    pack, data = pack_of(similar, tmp_path)
    short = PackFile(pack.name, 40, pack.index)
    objects = Objects("r", [short], MemorySource({pack.name: data[:40]}), ObjectCache(0))
    for oid in list(everything(similar))[:50]:
        with pytest.raises(PackhouseError):
            objects.read(oid)
