from __future__ import annotations

import hashlib
import random
from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from pack.columns import PackResult
from pack.errors import BadIndex
from pack.index import Index, write_index
from pack.oidsort import by_oid, oid_order
from tests.pack.packs import Builder, parse
from tests.support.generate import Repositories
from tests.support.git import git


def result_of(rows: list[tuple[bytes, int, int]]) -> PackResult:
    rows.sort()
    return PackResult(
        oids=b"".join(oid for oid, _, _ in rows),
        offsets=array("Q", [offset for _, offset, _ in rows]),
        crcs=array("I", [crc for _, _, crc in rows]),
        types=array("B", [3] * len(rows)),
        sizes=array("Q", [0] * len(rows)),
        checksum=b"c" * 20,
        count=len(rows),
        entries=len(rows),
        own_objects=len(rows),
        own_end=0,
    )


def some_rows(count: int, seed: int = 1, *, large: bool = False) -> list[tuple[bytes, int, int]]:
    rng = random.Random(seed)
    step = 1 << 26 if large else 100
    return [(rng.randbytes(20), 12 + i * step, rng.getrandbits(32)) for i in range(count)]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_what_is_written_is_found(count: int, large: bool) -> None:
    rows = some_rows(count, large=large)
    index = Index.parse(write_index(result_of(list(rows))))
    assert len(index) == count
    assert index.pack_checksum == b"c" * 20
    for oid, offset, crc in rows:
        assert oid in index
        assert index.find(oid) == offset
        row = index.row(oid)
        assert row is not None
        assert index.crc(row) == crc
        assert index.oid(row) == oid
    assert list(index.oids()) == sorted(oid for oid, _, _ in rows)
    assert list(index.offsets()) == [offset for _, offset, _ in sorted(rows)]
    assert list(index.offsets_in_order()) == sorted(offset for _, offset, _ in rows)
    for oid in (bytes(20), b"\xff" * 20, b"\x7f" * 20):
        assert index.find(oid) is None
    if count > 1:
        assert index.entry_end(rows[0][1], 1 << 40) == rows[1][1]
        assert index.entry_end(rows[-1][1], 1 << 40) == (1 << 40) - 20


def test_prefixes() -> None:
    rows = some_rows(3000)
    oids = sorted(oid for oid, _, _ in rows)
    index = Index.parse(write_index(result_of(rows)))
    for digits in (
        "",
        "0",
        "f",
        "ff",
        "a7",
        "123",
        oids[5].hex()[:7],
        oids[-1].hex()[:9],
        oids[9].hex(),
        "0" * 40,
        "f" * 40,
    ):
        expected = [oid for oid in oids if oid.hex().startswith(digits)]
        assert index.prefix(digits, 5000) == expected
        assert index.prefix(digits, 2) == expected[:2]
    with pytest.raises(ValueError, match="hexadecimal"):
        index.prefix("xy", 2)
    assert Index.parse(write_index(result_of([]))).prefix("ab", 2) == []


def test_real_packs(repositories: Repositories, tmp_path: Path) -> None:
    for name in ("history", "merges", "packs", "empty"):
        for pack in sorted((repositories[name] / "objects" / "pack").glob("*.pack")):
            target = tmp_path / "git.idx"
            git(None, "index-pack", "-o", str(target), str(pack))
            result, _ = parse(pack.read_bytes(), step=10_000)
            assert write_index(result) == target.read_bytes()
            listed = git(None, "show-index", stdin=target.read_bytes()).decode().split("\n")[:-1]
            index = Index.parse(memoryview(target.read_bytes()))
            mine = [f"{index.offset(i)} {oid.hex()} ({index.crc(i):08x})" for i, oid in enumerate(index.oids())]
            assert listed == mine
            target.unlink()


def test_large_offsets_as_git_writes_them(tmp_path: Path) -> None:
    """git is told to use the 64-bit table from offset 0 on: what it writes is read."""
    builder = Builder()
    offsets = [builder.whole(3, b"%d" % i) for i in range(50)]
    (tmp_path / "p.pack").write_bytes(builder.pack())
    git(None, "index-pack", "--index-version=2,100", "-o", str(tmp_path / "p.idx"), str(tmp_path / "p.pack"))
    index = Index.parse((tmp_path / "p.idx").read_bytes())
    assert list(index.offsets_in_order()) == offsets


def test_duplicates_are_listed_once() -> None:
    oids = [bytes([i % 3]) * 20 for i in range(10)]
    assert oid_order(b"".join(oids)) == (b"".join(oids[:3]), array("I", [0, 1, 2]))
    rng = random.Random(3)
    many = [rng.randbytes(20) for _ in range(2000)]
    many += rng.choices(many, k=1000)
    names, rows = oid_order(b"".join(many))
    assert [names[i : i + 20] for i in range(0, len(names), 20)] == sorted(set(many))
    assert list(rows) == [many.index(oid) for oid in sorted(set(many))]


@pytest.mark.parametrize("rows", [0, 1, 2, 70_000])
def test_columns_follow_their_oids(rows: int) -> None:
    """Of a repeated oid the row with the least first number stays, also beside one with the same beginning."""
    rng = random.Random(rows)
    oids = [rng.randbytes(20) for _ in range(rows)]
    for row in range(0, rows - 60, 60):
        oids[row + 7] = oids[row]
        oids[row + 50] = oids[row]
        oids[row + 9] = oids[row][:12] + rng.randbytes(8)
    offsets = array("Q", sorted(rng.sample(range(1 << 40), rows)))
    crcs, kinds = array("I", rng.randbytes(4 * rows)), bytearray(rng.randbytes(rows))
    names, (got, got_crcs, got_kinds) = by_oid(b"".join(oids), [offsets, crcs, kinds])
    first: dict[bytes, int] = {}
    for row, oid in enumerate(oids):
        first.setdefault(oid, row)
    wanted = [first[oid] for oid in sorted(first)]
    assert names == b"".join(sorted(first))
    assert got == array("Q", [offsets[row] for row in wanted])
    assert got_crcs == array("I", [crcs[row] for row in wanted])
    assert got_kinds == array("B", [kinds[row] for row in wanted])
    assert len(offsets) == len(oids)
    assert offsets == array("Q", sorted(offsets))
    spent = bytearray().join(oids)
    columns = [offsets, crcs, kinds]
    assert by_oid(spent, columns, spend=True) == (names, [got, got_crcs, got_kinds])
    assert not spent
    assert not any(columns)
    assert by_oid(b"".join(oids)) == (names, [])


@pytest.mark.parametrize("asked", [0, 1, 20, 400, 3000])
def test_what_is_lacking(asked: int) -> None:
    rng = random.Random(asked)
    rows = some_rows(2000) + [(bytes([byte]) * 20, 12, 0) for byte in (0, 255)]
    there = {oid for oid, _, _ in rows}
    index = Index.parse(write_index(result_of(rows)))
    strange = [rng.randbytes(20) for _ in range(asked - asked // 2)]
    strange += [oid[:10] + rng.randbytes(10) for oid in rng.sample(sorted(there), asked // 3)]
    oids = sorted({*rng.choices(sorted(there), k=asked // 2), *strange})
    lacking = index.lacking(b"".join(oids))
    assert lacking == b"".join(oid for oid in oids if oid not in there)
    assert index.lacking(b"".join(sorted(there))) == b""
    assert Index.parse(write_index(result_of([]))).lacking(b"".join(oids)) == b"".join(oids)


def sealed(data: bytes) -> bytes:
    return data[:-20] + hashlib.sha1(data[:-20]).digest()


GOOD = write_index(result_of(some_rows(300)))
LARGE = write_index(result_of(some_rows(300, large=True)))


def changed(at: int, to: bytes, of: bytes = GOOD) -> bytes:
    return sealed(of[:at] + to + of[at + len(to) :])


BAD = {
    "empty": b"",
    "short": GOOD[:1000],
    "cut": sealed(GOOD[:-1]),
    "one byte more": GOOD[:-20] + b"x" + GOOD[-20:],
    "version 1": sealed(GOOD[8:]),
    "version 3": changed(7, b"\x03"),
    "signature": changed(0, b"PACK"),
    "fan-out down": changed(8 + 4 * 10, b"\xff\xff\xff\xff"),
    "count": changed(8 + 4 * 255, b"\0\0\x01\x2d"),
    "count huge": changed(8 + 4 * 255, b"\xff\xff\xff\xff"),
    "fan-out off": changed(8 + 4 * 100, GOOD[8 + 4 * 101 : 8 + 4 * 102]),
    "order": changed(8 + 1024, b"\xff" * 20),
    "order behind the first bytes": changed(
        8 + 1024 + 20 * 100,
        GOOD[8 + 1024 + 20 * 101 :][:4] + b"\xff" * 16 + GOOD[8 + 1024 + 20 * 101 :][:4] + b"\0" * 16,
    ),
    "fan-out off by one row": changed(
        8 + 4 * 100, (int.from_bytes(GOOD[8 + 4 * 100 :][:4], "big") + 1).to_bytes(4, "big")
    ),
    "checksum": GOOD[:-1] + bytes([GOOD[-1] ^ 1]),
    "byte": GOOD[:3000] + bytes([GOOD[3000] ^ 1]) + GOOD[3001:],
}


@pytest.mark.parametrize("name", BAD)
def test_refuses(name: str) -> None:
    assert BAD[name] != GOOD
    with pytest.raises(BadIndex):
        Index.parse(BAD[name])


def test_an_offset_beyond_the_table() -> None:
    at = 8 + 1024 + 300 * 24
    row = next(i for i in range(300) if LARGE[at + 4 * i] & 0x80)
    index = Index.parse(changed(at + 4 * row, b"\xff\xff\xff\xff", LARGE))
    with pytest.raises(BadIndex):
        index.offset(row)


def test_unverified_reads_never_leave_the_file() -> None:
    """Whatever is flipped, and though nothing was verified: a lookup gives an answer or a BadIndex."""
    rng = random.Random(5)
    oids = [oid for oid, _, _ in some_rows(300, large=True)]
    for _ in range(2000):
        data = bytearray(LARGE)
        for _ in range(rng.randrange(1, 4)):
            data[rng.choice((rng.randrange(len(data)), rng.randrange(8, 1032)))] = rng.randrange(256)
        try:
            index = Index.parse(bytes(data), verify=False)
            for oid in rng.choices(oids, k=5):
                index.find(oid)
            index.prefix("a", 3)
        except BadIndex:
            pass


def test_unverified_is_the_same_index() -> None:
    index = Index.parse(replace_checksum(GOOD), verify=False)
    assert index.find(some_rows(300)[0][0]) == 12


def replace_checksum(data: bytes) -> bytes:
    return data[:-20] + bytes(20)


def test_result_is_frozen() -> None:
    result = result_of(some_rows(3))
    assert replace(result, tail=b"x").tail == b"x"


def test_the_order_is_checked_across_what_is_compared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pack.index._TOGETHER", 7)
    Index.parse(GOOD)
    for row in range(1, 300):
        at = 8 + 1024 + 20 * row
        # The first bytes of this row's range of the fan-out stay what they were.
        with pytest.raises(BadIndex):
            Index.parse(changed(at - 20, GOOD[at : at + 20] + GOOD[at - 20 : at]))
