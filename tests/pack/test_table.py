from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from pack import inflate
from pack.index import Index
from pack.limits import Limits
from pack.reader import ObjectCache, Objects
from pack.sidecar import BadSidecar
from pack.source import PackFile
from pack.table import NOTHING, ROW_BYTES, UNKNOWN, Place, Table, measure, read_front, write_front
from tests.support.generate import NAMES, Repositories
from tests.support.git import git
from tests.support.repo import FileSource, open_git_dir


def wanted(path: Path) -> dict[bytes, tuple[str, int]]:
    listed = git(path, "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype) %(objectsize)")
    rows = (line.decode().split() for line in listed.splitlines())
    return {bytes.fromhex(oid): (kind, int(size)) for oid, kind, size in rows}


TYPES = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}


@pytest.mark.parametrize("name", NAMES)
def test_every_object_as_git_has_it(repositories: Repositories, name: str) -> None:
    path = repositories[name]
    view = open_git_dir(path)
    there = wanted(path)
    for pack in view.objects.packs:
        table = measure(pack, view.objects.source)
        data = table.data()
        again = Table.parse(data, Place(len(pack.index), 0, inflate.crc32(data)))
        for row, oid in enumerate(pack.index.oids()):
            found = again.header(row)
            assert found is not None
            assert (TYPES[found[0]], found[1]) == there[oid]


@pytest.mark.parametrize("offsets", [True, False])
def test_deltas_of_both_kinds_in_any_order(repositories: Repositories, tmp_path: Path, offsets: bool) -> None:
    path = repositories["history"]
    command = [
        "pack-objects",
        "-q",
        "--all",
        "--window=50",
        "--depth=50",
        *(["--delta-base-offset"] if offsets else []),
    ]
    name = git(path, *command, str(tmp_path / "pack"), stdin=b"").decode().strip()
    file = tmp_path / f"pack-{name}.pack"
    pack = PackFile(file.name, file.stat().st_size, Index.parse(file.with_suffix(".idx").read_bytes()))
    ticks: list[None] = []
    table = measure(pack, FileSource(tmp_path), lambda: ticks.append(None))
    assert ticks
    there = wanted(path)
    for row, oid in enumerate(pack.index.oids()):
        found = table.header(row)
        assert found is not None
        assert (TYPES[found[0]], found[1]) == there[oid]


def test_objects_ask_the_table_first(repositories: Repositories) -> None:
    view = open_git_dir(repositories["linear"])
    objects = view.objects
    (pack,) = objects.packs
    table = measure(pack, objects.source)
    fresh = Objects("other", [pack], objects.source, ObjectCache(1 << 20), Limits())
    fresh.open_table = lambda asked: table if asked is pack else None
    fresh.source = FileSource()  # has nothing
    for oid in pack.index.oids():
        assert fresh.header(oid) == objects.header(oid)
    # What a table does not know is looked up in the pack.
    table.sizes = array("I", [UNKNOWN] * len(table.sizes))
    other = Objects("other", [pack], objects.source, ObjectCache(1 << 20), Limits())
    other.open_table = fresh.open_table
    for oid in pack.index.oids():
        assert other.header(oid) == objects.header(oid)


def test_fronts() -> None:
    packs = [(f"pack-{number:040x}", number, number * 7) for number in (3, 1, 0)]
    front = read_front(write_front(b"b" * 32, packs))
    assert front.below == b"b" * 32
    assert front.rows == 4
    assert [(name, place.rows, place.crc) for name, place in front.packs.items()] == packs
    assert [place.offset for place in front.packs.values()] == [0, 3 * ROW_BYTES, 4 * ROW_BYTES]
    data = write_front(NOTHING, packs)
    for size in range(len(data)):
        with pytest.raises(BadSidecar):
            read_front(data[:size])
    with pytest.raises(BadSidecar):
        read_front(data + b"\0")


def test_damage() -> None:
    table = Table(b"\x01\x02\x03", array("I", [5, 6, UNKNOWN]))
    data = table.data()
    place = Place(3, 0, inflate.crc32(data))
    assert [Table.parse(data, place).header(row) for row in range(3)] == [(1, 5), (2, 6), None]
    for at in range(len(data)):
        with pytest.raises(BadSidecar):
            Table.parse(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :], place)
        with pytest.raises(BadSidecar):
            Table.parse(data[:at], place)
