from __future__ import annotations

import random
import zlib
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pack.columns import PackResult
from pack.entry import parse_header
from pack.errors import LimitExceeded, MissingBase, PackError
from pack.index import Index, write_index
from pack.objects import BLOB, OFS_DELTA, REF_DELTA, hash_object
from pack.splice import Part, Spliced, Splicer
from tests.pack.packs import Builder, copy, delta, extend, parse, stored
from tests.support.git import git, init
from tests.support.history import History

Pack = tuple[bytes, Part]


def part_of(data: bytes, result: PackResult) -> Part:
    return Part.of(Index.parse(write_index(result)), len(data))


def indexed(data: bytes, **options: object) -> Pack:
    """A pack and the part that it is, completed where it was thin."""
    result, _ = parse(data, **options)
    data = stored(data, result)
    return data, part_of(data, result)


def every_entry(data: bytes) -> Pack:
    """The same of a pack that may hold an object twice."""
    _, seen = parse(data)
    rows = sorted((offset, oid) for _, oid, offset, _ in seen)
    ends = [offset for offset, _ in rows[1:]] + [len(data) - 20]
    crcs = [zlib.crc32(data[offset:end]) for (offset, _), end in zip(rows, ends, strict=True)]
    offsets = array("Q", [offset for offset, _ in rows])
    return data, Part(b"".join(oid for _, oid in rows), offsets, array("I", crcs), len(data) - 20)


def join(packs: Sequence[Pack], step: int | None = None, **options: int) -> tuple[bytes, Spliced]:
    splicer = Splicer([part for _, part in packs], **options)
    out = [splicer.header]
    for data, part in packs:
        size = step or max(1, len(data))
        for at in range(12, part.end, size):
            out.append(splicer.feed(data[at : min(at + size, part.end)]))
    result = splicer.finish()
    assert splicer.size == sum(map(len, out)) == result.own_end
    return b"".join(out) + result.checksum, result


def entries(data: bytes, result: Spliced) -> Iterator[tuple[int, int, int, bytes]]:
    """(offset, kind, back, base) in the order of the pack."""
    for offset in sorted(result.offsets):
        header = parse_header(data, offset)
        assert header is not None
        yield offset, header.kind, header.back, header.base


def check(tmp_path: Path, packs: Sequence[Pack], step: int | None = None) -> tuple[bytes, Spliced]:
    """Join, and compare with git: the same index, no fault, the objects of all parts."""
    data, result = join(packs, step)
    folder = tmp_path / f"joined-{random.getrandbits(60):x}.git"
    init(folder)
    path = folder / "objects" / "pack" / "pack-joined.pack"
    path.write_bytes(data)
    git(folder, "index-pack", str(path))
    assert path.with_suffix(".idx").read_bytes() == write_index(result)
    git(folder, "verify-pack", str(path))
    wanted = {part.oids[at : at + 20] for _, part in packs for at in range(0, len(part.oids), 20)}
    assert {result.oids[at : at + 20] for at in range(0, len(result.oids), 20)} == wanted
    assert int.from_bytes(data[8:12], "big") == len(wanted) == result.count
    for offset, kind, back, base in entries(data, result):
        if kind == OFS_DELTA:
            assert offset - back in set(result.offsets)
        elif kind == REF_DELTA:
            assert base in wanted
    # Our own reader of packs agrees.
    again, _ = parse(data)
    assert (again.oids, again.offsets, again.crcs, again.checksum) == (
        result.oids,
        result.offsets,
        result.crcs,
        result.checksum,
    )
    return data, result


# Real packs


def cut(history: History, wants: Sequence[int], haves: Sequence[int], *options: str) -> Pack:
    return indexed(history.pack(wants, haves, *options), find_base=history.find)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return History(tmp_path_factory.mktemp("history") / "r.git", 1, 120)


OPTIONS = {
    "ofs": ("--delta-base-offset",),
    "ref": (),
    "thin": ("--delta-base-offset", "--thin"),
    "thin ref": ("--thin",),
    "deep": ("--delta-base-offset", "--depth=250", "--window=50"),
}


@pytest.mark.parametrize("step", [None, 97])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_history_in_slices(history: History, tmp_path: Path, options: tuple[str, ...], step: int | None) -> None:
    slices = [0, 40, 60, 61, 90, 120]
    packs = [cut(history, [end], [begin] if begin else [], *options) for begin, end in pairwise(slices)]
    data, result = check(tmp_path, packs, step)
    oids = {result.oids[at : at + 20] for at in range(0, len(result.oids), 20)}
    assert oids == history.all()
    # Every base stands before its delta, so none is named by its oid any more.
    assert REF_DELTA not in {kind for _, kind, _, _ in entries(data, result)}
    if options and "--thin" not in options:
        assert len(data) == sum(len(data) - 32 for data, _ in packs) + 32


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_overlapping_packs(history: History, tmp_path: Path, options: tuple[str, ...]) -> None:
    """Each pack has much of what others have, in other deltas; any order."""
    ranges = [(0, 60), (20, 90), (50, 120), (0, 120), (119, 120)]
    packs = [cut(history, [end], [begin] if begin else [], *options) for begin, end in ranges]
    rng = random.Random(7)
    for _ in range(4):
        check(tmp_path, packs, rng.choice([None, 333, 5000]))
        rng.shuffle(packs)


def test_all_kinds_of_packs_together(history: History, tmp_path: Path) -> None:
    packs = [cut(history, [10 * n + 30], [10 * n], *options) for n, options in enumerate(OPTIONS.values(), 1)]
    check(tmp_path, packs)
    check(tmp_path, packs[::-1])


def test_a_pack_alone_stays_as_it_is(history: History) -> None:
    packs = [cut(history, [120], [], *OPTIONS["ofs"])]
    assert join(packs)[0] == packs[0][0]
    assert join([*packs, packs[0]])[0] == packs[0][0]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_slices_of_any_history(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("any")
    count = data.draw(st.integers(2, 30), "count")
    made = History(folder / "r.git", data.draw(st.integers(0, 1000), "seed"), count, 60)
    number = st.integers(1, count)
    packs = []
    for _ in range(data.draw(st.integers(1, 5), "packs")):
        wants = data.draw(st.lists(number, min_size=1, max_size=2), "wants")
        haves = data.draw(st.lists(number, max_size=1), "haves")
        options = data.draw(st.sampled_from(sorted(OPTIONS.values())), "options")
        packs.append(cut(made, wants, haves, *options))
    check(folder, packs, data.draw(st.sampled_from([None, 1, 50, 4096]), "step"))


# Packs made by hand

A = b"a" * 50 + b"\n"
B = A + b"b" * 50
C = B + b"c" * 50
OID = {data: hash_object(BLOB, data) for data in (A, B, C)}


def built(*steps: tuple[bytes, bytes | None, int]) -> Pack:
    """Entries (object, base, kind): whole, OFS or REF deltas; a base may come later."""
    builder = Builder()
    at: dict[bytes, int] = {}
    for data, base, kind in steps:
        if base is None:
            at[data] = builder.whole(BLOB, data)
        else:
            change = extend(base, data[len(base) :]) if data.startswith(base) else shrink(base, data)
            at[data] = builder.ofs(at[base], change) if kind == OFS_DELTA else builder.ref(OID[base], change)
    return every_entry(builder.pack())


def shrink(base: bytes, data: bytes) -> bytes:
    assert base.startswith(data)
    return delta(base, copy(0, len(data)), size=len(data))


def test_deltas_of_each_other_make_no_circle(tmp_path: Path) -> None:
    one = built((B, A, REF_DELTA), (A, None, 0))  # as a completed thin pack: the base is its tail
    two = built((A, B, REF_DELTA), (B, None, 0))
    for packs in ((one, two), (two, one)):
        data, result = check(tmp_path, packs)
        assert [kind for _, kind, _, _ in entries(data, result)] == [REF_DELTA, BLOB]


def test_a_base_of_an_earlier_pack_is_taken(tmp_path: Path) -> None:
    one = built((A, None, 0), (B, A, OFS_DELTA))
    two = built((C, B, REF_DELTA), (B, None, 0))
    data, result = check(tmp_path, (one, two))
    assert [kind for _, kind, _, _ in entries(data, result)] == [BLOB, OFS_DELTA, OFS_DELTA]
    data, result = check(tmp_path, (two, one))
    assert [kind for _, kind, _, _ in entries(data, result)] == [REF_DELTA, BLOB, BLOB]


def test_an_object_twice_in_one_pack(tmp_path: Path) -> None:
    one = built((A, None, 0), (B, None, 0), (A, None, 0), (C, A, OFS_DELTA), (B, A, OFS_DELTA))
    data, result = check(tmp_path, (one,))
    assert result.count == 3
    assert [(kind, back > 0) for _, kind, back, _ in entries(data, result)] == [
        (BLOB, False),
        (BLOB, False),
        (OFS_DELTA, True),
    ]


def test_nothing_to_join() -> None:
    data, result = join([])
    assert data[8:12] == bytes(4)
    assert result.count == 0
    empty = indexed(Builder().pack())
    one = built((A, None, 0))
    assert join([empty, one, empty, empty])[0] == one[0]


@pytest.mark.parametrize("step", [None, 1 << 16, (1 << 20) + 1])
def test_large_entries_go_through_in_pieces(tmp_path: Path, step: int | None) -> None:
    rng = random.Random(3)
    big, bigger = rng.randbytes(3 << 20), rng.randbytes(2 << 20)
    one, two = Builder(), Builder()
    at = one.whole(BLOB, big)
    one.ofs(at, extend(big, bigger))
    one.whole(BLOB, A)
    two.whole(BLOB, A)
    two.whole(BLOB, big)  # dropped in pieces
    at = two.whole(BLOB, B)
    two.whole(BLOB, big + bigger + b"x")
    two.ref(hash_object(BLOB, big), extend(big, bigger[::-1]))  # a large delta gets a new header
    two.ofs(at, extend(B, b"y"))
    packs = [indexed(one.pack()), indexed(two.pack())]
    splicer = Splicer([part for _, part in packs])
    for data, part in packs:
        for start in range(12, part.end, 1 << 16):
            splicer.feed(data[start : min(start + (1 << 16), part.end)])
            # What waits is bounded, however large an entry is.
            assert splicer._have <= (1 << 20) + (1 << 16)
    splicer.finish()
    _, result = check(tmp_path, packs, step)
    assert result.count == 7


def test_distances_of_every_length(tmp_path: Path) -> None:
    """Dropped entries between a base and its delta make the distance, and its bytes, fewer."""
    rng = random.Random(5)
    for gap in (100, 127, 128, 129, 16000, 16511, 16512, 16600, 2_200_000):
        filler = rng.randbytes(gap)
        one, two = Builder(), Builder()
        one.whole(BLOB, filler)
        at = two.whole(BLOB, A)
        two.whole(BLOB, filler)
        two.ofs(at, extend(A, b"z"))
        data, result = check(tmp_path, [indexed(one.pack()), indexed(two.pack())])
        *_, (_, kind, back, _) = entries(data, result)
        assert (kind, back < 100) == (OFS_DELTA, True)
        # And the other way round: what an earlier pack has is far away.
        three = Builder()
        three.ref(OID[A], extend(A, b"w"))
        three.whole(BLOB, A)
        check(tmp_path, [indexed(two.pack()), indexed(three.pack())])


# Refusals


def test_chains_do_not_grow_without_bound() -> None:
    """Each pack has the deepest object of the one before, whole, and adds its own chain to it."""
    packs = []
    data = A
    for _ in range(4):
        builder = Builder()
        at = builder.whole(BLOB, data)
        for _ in range(30):
            data, before = data + b"+", data
            at = builder.ofs(at, extend(before, b"+"))
        packs.append(indexed(builder.pack()))
    assert join(packs[:3], depth=90)[1].count == 91
    with pytest.raises(LimitExceeded, match="longer than 90"):
        join(packs, depth=90)
    with pytest.raises(LimitExceeded, match="longer than 90"):
        join(packs, depth=90, step=7)


def test_chains_that_run_backwards_are_counted(tmp_path: Path) -> None:
    data = [A + b"+" * n for n in range(40)]
    OID.update({each: hash_object(BLOB, each) for each in data})
    backwards = built(*((data[n], data[n - 1], REF_DELTA) for n in range(39, 0, -1)), (A, None, 0))
    check(tmp_path, [backwards])
    join([backwards], depth=39)
    with pytest.raises(LimitExceeded):
        join([backwards], depth=38)
    for at in range(3):
        with pytest.raises(LimitExceeded):
            join([built((C, None, 0)), backwards, built((B, None, 0))], depth=at)


def flipped(pack: Pack, at: int) -> Pack:
    data = bytearray(pack[0])
    data[at] ^= 1
    return bytes(data), pack[1]


@pytest.mark.parametrize("step", [None, 10])
def test_damage_is_not_copied(history: History, step: int | None) -> None:
    pack = cut(history, [20], [], *OPTIONS["ofs"])
    rng = random.Random(9)
    for _ in range(30):
        with pytest.raises(PackError, match="part 1"):
            join([pack, flipped(pack, rng.randrange(12, pack[1].end))], step)
    with pytest.raises(PackError, match="part 0"):
        join([flipped(pack, pack[1].end - 1), pack], step)
    large = Builder()
    large.whole(BLOB, random.Random(1).randbytes(3 << 20))
    whole = indexed(large.pack())
    for at in (13, 1 << 20, whole[1].end - 1):
        with pytest.raises(PackError, match="CRC-32"):
            join([flipped(whole, at)], 1 << 18)


def test_packs_that_are_not_what_their_index_says() -> None:
    one = built((A, None, 0), (B, A, OFS_DELTA))
    crcs = one[1].crcs
    for offsets in (array("Q", [13, one[1].offsets[1]]), array("Q", [12, 12])):
        with pytest.raises(PackError):
            join([(one[0], Part(one[1].oids, offsets, crcs, one[1].end))])
    splicer = Splicer([one[1]])
    splicer.feed(one[0][12:40])
    with pytest.raises(PackError, match="ends early"):
        splicer.finish()
    with pytest.raises(ValueError, match="more bytes"):
        splicer.feed(one[0][40:])
    with pytest.raises(ValueError, match="more bytes"):
        Splicer([]).feed(b"x")


def test_a_base_outside_of_its_pack_is_missing() -> None:
    one = built((A, None, 0))
    lonely = Builder()
    lonely.ref(OID[A], extend(A, B[len(A) :]))
    data = lonely.pack()
    two = (data, Part(OID[B], array("Q", [12]), array("I", [zlib.crc32(data[12:-20])]), len(data) - 20))
    with pytest.raises(MissingBase):
        join([two])
    with pytest.raises(MissingBase):
        join([two, one])
    assert join([one, two])[1].count == 2
    itself = (data, Part(OID[A], two[1].offsets, two[1].crcs, two[1].end))
    with pytest.raises(PackError, match="itself"):
        join([itself])
