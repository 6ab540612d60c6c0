from __future__ import annotations

import random
import zlib
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pack.errors import LimitExceeded, MissingBase, PackError, PackTruncated
from pack.index import write_index
from pack.limits import Limits
from pack.objects import BLOB, COMMIT, TAG, TREE, hash_object
from pack.stream import StreamParser
from tests.pack.packs import Builder, Feeder, copy, delta, extend, insert, parse, stored
from tests.support.generate import Repositories
from tests.support.git import git, init

LONG = b"line of text\n" * 8


def mixed() -> bytes:
    """A small pack with everything: whole objects of all types, both kinds of delta, chains, duplicates, late bases."""
    b = Builder()
    base = b.whole(BLOB, LONG)
    b.whole(BLOB, b"")
    b.whole(TREE, b"100644 f\0" + hash_object(BLOB, LONG))
    b.whole(COMMIT, b"tree " + b"0" * 40 + b"\n")
    b.whole(TAG, b"object " + b"1" * 40 + b"\n")
    one = b.ofs(base, extend(LONG, b"one\n"))
    two = b.ofs(one, extend(LONG + b"one\n", b"two\n"))
    b.ref(hash_object(BLOB, LONG + b"one\ntwo\n"), extend(LONG + b"one\ntwo\n", b"three\n"))
    # Bases that come later: a chain of two that hangs on the last entry.
    late = bytes(range(256)) * 3
    b.ref(hash_object(BLOB, late + b"!"), extend(late + b"!", b"?"))
    waiting = b.ref(hash_object(BLOB, late), extend(late, b"!"))
    b.ofs(waiting, extend(late + b"!", b"#"))
    b.whole(BLOB, LONG)  # again
    b.ofs(base, extend(LONG, b"one\n"))  # again, as a delta
    b.whole(BLOB, late)
    b.ofs(two, extend(LONG + b"one\ntwo\n", b"end\n"))
    return b.pack()


MIXED = mixed()


def test_everything_at_once() -> None:
    result, seen = parse(MIXED)
    late = bytes(range(256)) * 3
    blobs = {b"", LONG, LONG + b"one\n", LONG + b"one\ntwo\n", LONG + b"one\ntwo\nthree\n", LONG + b"one\ntwo\nend\n"}
    blobs |= {late, late + b"!", late + b"!?", late + b"!#"}
    assert {data for kind, _, _, data in seen if kind == BLOB} == blobs
    assert result.entries == result.own_objects == len(seen) == 15
    assert result.count == 13
    assert result.own_end == len(MIXED) - 20
    assert result.checksum == MIXED[-20:]
    assert (result.tail, result.header) == (b"", None)
    by_oid = {oid: (kind, len(data)) for kind, oid, _, data in seen}
    oids = [result.oids[i : i + 20] for i in range(0, len(result.oids), 20)]
    assert oids == sorted(by_oid)
    assert [(t, s) for t, s in zip(result.types, result.sizes, strict=True)] == [by_oid[oid] for oid in oids]
    # Of an object that is there twice, the first entry.
    first: dict[bytes, int] = {}
    for _, oid, offset, _ in seen:
        first[oid] = min(offset, first.get(oid, offset))
    assert list(result.offsets) == [first[oid] for oid in oids]


def test_git_agrees(tmp_path: Path) -> None:
    (tmp_path / "p.pack").write_bytes(MIXED)
    git(None, "index-pack", "-o", str(tmp_path / "p.idx"), str(tmp_path / "p.pack"))
    listed = git(None, "show-index", stdin=(tmp_path / "p.idx").read_bytes()).split()
    result, _ = parse(MIXED)
    crcs = {int(offset): int(crc[1:-1], 16) for offset, crc in zip(listed[::3], listed[2::3], strict=True)}
    assert {listed[i] for i in range(1, len(listed), 3)} == {
        result.oids[i : i + 20].hex().encode() for i in range(0, len(result.oids), 20)
    }
    assert all(crcs[offset] == crc for offset, crc in zip(result.offsets, result.crcs, strict=True))


@pytest.mark.parametrize("step", [1, 2, 3, 7, 19, 20, 21, 64, 1000])
def test_every_step(step: int) -> None:
    assert parse(MIXED, step=step) == parse(MIXED)


def test_every_split() -> None:
    whole = parse(MIXED)
    for at in range(len(MIXED) + 1):
        feeder = Feeder()
        assert (feeder.run([MIXED[:at], MIXED[at:]]), feeder.seen) == whole


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, len(MIXED)), max_size=12), st.integers(0, 3000))
def test_any_splits_and_any_cache(cuts: list[int], cache: int) -> None:
    """However it is cut and however little is remembered: the same columns, the same objects."""
    whole, seen = parse(MIXED)
    points = [0, *sorted(cuts), len(MIXED)]
    feeder = Feeder(cache_bytes=cache)
    assert feeder.run(MIXED[a:b] for a, b in pairwise(points)) == whole
    assert sorted(feeder.seen) == sorted(seen)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_pack(data: st.DataObject) -> None:
    """Packs of random shape: any object may be whole, or a delta by distance or name of any other."""
    rng = random.Random(data.draw(st.integers(0, 1 << 30)))
    builder, objects, later = Builder(), [], []
    for _ in range(rng.randrange(1, 30)):
        shape = rng.randrange(5) if objects else 0
        at, base = rng.choice(objects) if objects else (0, b"")
        more = rng.randbytes(rng.randrange(1, 300))
        if shape == 0 or not base:
            new = more
            objects.append((builder.whole(BLOB, new), new))
        elif shape < 3:
            objects.append((builder.ofs(at, extend(base, more)), base + more))
        elif shape == 3:
            objects.append((builder.ref(hash_object(BLOB, base), extend(base, more)), base + more))
        else:
            hidden = rng.randbytes(50)
            objects.append((builder.ref(hash_object(BLOB, hidden), extend(hidden, more)), hidden + more))
            later.append(hidden)
    for hidden in later:
        objects.append((builder.whole(BLOB, hidden), hidden))
    pack = builder.pack()
    step = rng.choice([1, 5, 50, 10_000])
    result, seen = parse(pack, step=step, cache_bytes=rng.choice([0, 500, 3000, 1 << 20]))
    assert sorted((offset, body) for _, _, offset, body in seen) == sorted(objects)
    assert result.count == len({body for _, body in objects})


def test_nothing_in_it() -> None:
    for step in (None, 1):
        result, seen = parse(Builder().pack(), step=step)
        assert (result.count, result.oids, seen) == (0, b"", [])
        assert result.own_end == 12


def test_version_3() -> None:
    builder = Builder(version=3)
    builder.whole(BLOB, b"x")
    assert parse(builder.pack())[0].count == 1


def test_progress() -> None:
    feeder = Feeder()
    assert feeder.parser.objects_total is None
    feeder.feed(MIXED[:11])
    assert feeder.parser.objects_total is None
    feeder.feed(MIXED[11:12])
    assert (feeder.parser.objects_total, feeder.parser.objects_done, feeder.parser.bytes_fed) == (15, 0, 12)
    feeder.feed(MIXED[12:])
    assert feeder.parser.entries_done == 15
    assert feeder.parser.objects_done == len(feeder.seen) == 12
    feeder.parser.finish()
    assert feeder.parser.objects_done == len(feeder.seen) == 15
    assert feeder.parser.bytes_fed == len(MIXED)


def test_sizes_around_the_borders() -> None:
    """Sizes at which the parser changes its ways, compressible and not."""
    rng = random.Random(2)
    for size in (0, 1, 15, 16, 255, 256, 257, 4095, 4096, 16384, 32768, 1 << 18, (1 << 18) + 1, 1 << 20):
        builder = Builder()
        bodies = [rng.randbytes(size), bytes(size), rng.randbytes(size // 2) + bytes(size - size // 2)]
        for body in bodies:
            builder.whole(BLOB, body)
        pack = builder.pack()
        for step in (None, 100, 65536):
            _, seen = parse(pack, step=step)
            assert [body for _, _, _, body in seen] == bodies


def test_streams_that_are_longer_than_they_must_be() -> None:
    """zlib takes any number of empty blocks; the entry is then longer than its object."""
    stream = zlib.compressobj(0)
    raw = stream.compress(b"ab") + b"".join(stream.flush(zlib.Z_FULL_FLUSH) or b"" for _ in range(1))
    raw += b"\0\0\0\xff\xff" * 20_000
    raw += stream.flush()
    assert zlib.decompress(raw) == b"ab"
    builder = Builder()
    at = builder.entry(b"\x32" + raw)
    builder.ofs(at, extend(b"ab", b"c"))
    for options in ({}, {"cache_bytes": 0}):
        for step in (None, 1, 999):
            assert [body for _, _, _, body in parse(builder.pack(), step=step, **options)[1]] == [b"ab", b"abc"]


def test_a_chain_that_was_forgotten_is_made_again() -> None:
    builder, body, at = Builder(), b"0", 0
    at = builder.whole(BLOB, body)
    chain = [(at, body)]
    for i in range(300):
        more = b"%d" % i
        at = builder.ofs(at, extend(body, more))
        body += more
        chain.append((at, body))
    # Then deltas against members of the chain, far back.
    rng = random.Random(4)
    bodies = [b for _, b in chain]
    for i in range(200):
        at, base = rng.choice(chain)
        builder.ofs(at, extend(base, b"x%d" % i))
        bodies.append(base + b"x%d" % i)
    for cache in (0, 2000, 20_000, 1 << 20):
        _, seen = parse(builder.pack(), cache_bytes=cache)
        assert sorted(body for _, _, _, body in seen) == sorted(bodies)


@pytest.mark.parametrize("cache", [0, 2000, 1 << 20])
def test_what_came_lately_is_recalled(cache: int) -> None:
    """By its oid, with its type, from within the callback too; what was forgotten is not there."""
    builder = Builder()
    for number in range(100):
        builder.whole(BLOB, b"%d" % number)
    recalled = []

    def on_object(kind: int, oid: bytes, offset: int, data: bytes) -> None:
        recalled.append(parser.recall(oid) == (kind, data))

    pack = builder.pack()
    parser = StreamParser(read_back=lambda at, size: pack[at : at + size], on_object=on_object, cache_bytes=cache)
    parser.feed(pack)
    assert all(recalled) is (cache > 0)
    there = [parser.recall(hash_object(BLOB, b"%d" % number)) for number in range(100)]
    assert sum(found is not None for found in there) == {0: 0, 2000: 7, 1 << 20: 100}[cache]
    assert all(found in (None, (BLOB, b"%d" % number)) for number, found in enumerate(there))
    assert parser.recall(b"x" * 20) is None


def test_remaking_stays_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    """When nothing may be made again at once, everything waits, and is settled tree by tree."""
    monkeypatch.setattr("pack.late._REMADE_FREE", 0)
    builder = Builder()
    base = random.Random(1).randbytes(10_000)
    at = builder.whole(BLOB, base)
    for i in range(500):
        builder.ofs(at, extend(base, b"%d" % i))
    feeder = Feeder(cache_bytes=0)
    feeder.feed(builder.pack())
    assert feeder.parser.objects_done < 20
    assert feeder.parser.finish().count == 501
    # The base was made once for all of them, not 500 times.
    assert feeder.parser.resolved_bytes < 550 * 10_100


class TestThin:
    base = bytes(range(200)) * 3

    def outside(self, oid: bytes) -> tuple[int, bytes] | None:
        return (BLOB, self.base) if oid == hash_object(BLOB, self.base) else None

    def thin(self) -> bytes:
        builder = Builder()
        builder.whole(BLOB, b"own")
        at = builder.ref(hash_object(BLOB, self.base), extend(self.base, b"1"))
        builder.ref(hash_object(BLOB, self.base), extend(self.base, b"2"))
        builder.ofs(at, extend(self.base + b"1", b"3"))
        return builder.pack()

    @pytest.mark.parametrize("step", [None, 1])
    @pytest.mark.parametrize("cache", [0, 1 << 20])
    def test_completed(self, tmp_path: Path, step: int | None, cache: int) -> None:
        data = self.thin()
        result, seen = parse(data, step=step, find_base=self.outside, cache_bytes=cache)
        assert (result.count, result.own_objects, result.entries) == (5, 4, 5)
        assert result.own_end == len(data) - 20
        assert sorted(body for _, _, _, body in seen) == sorted(
            [b"own", self.base, self.base + b"1", self.base + b"2", self.base + b"13"]
        )
        whole = stored(data, result)
        assert whole[-20:] == result.checksum
        (tmp_path / "p.pack").write_bytes(whole)
        git(None, "index-pack", "-o", str(tmp_path / "p.idx"), str(tmp_path / "p.pack"))
        assert (tmp_path / "p.idx").read_bytes() == write_index(result)
        # What was completed is a pack like any other.
        assert parse(whole)[0].oids == result.oids

    def test_without_the_base(self) -> None:
        with pytest.raises(MissingBase) as caught:
            parse(self.thin())
        assert caught.value.extra["object"] == 1
        assert caught.value.extra["base"] == hash_object(BLOB, self.base).hex()
        with pytest.raises(MissingBase):
            parse(self.thin(), find_base=lambda oid: None)

    def test_with_another_base(self) -> None:
        with pytest.raises(MissingBase):
            parse(self.thin(), find_base=lambda oid: (BLOB, b"another"))

    def test_a_base_that_comes_later_is_not_looked_for(self) -> None:
        builder = Builder()
        builder.ref(hash_object(BLOB, self.base), extend(self.base, b"1"))
        builder.whole(BLOB, self.base)
        asked: list[bytes] = []
        result, _ = parse(builder.pack(), find_base=asked.append)
        assert (result.count, result.tail, asked) == (2, b"", [])

    def test_made_by_git(self, tmp_path: Path) -> None:
        repo = init(tmp_path / "r.git")
        old = random.Random(1).randbytes(20_000)
        oids = [git(repo, "hash-object", "-w", "--stdin", stdin=old + b"%d" % i).decode().strip() for i in range(3)]
        trees = [git(repo, "mktree", stdin=b"100644 blob %s\tf\n" % oid.encode()).decode().strip() for oid in oids]
        commits: list[str] = []
        for tree in trees:
            parents = ["-p", commits[-1]] if commits else []
            commits.append(git(repo, "commit-tree", "-m", "x", tree, *parents).decode().strip())
        revs = f"{commits[2]}\n^{commits[0]}\n".encode()
        thin = git(repo, "pack-objects", "--revs", "--thin", "--stdout", "-q", stdin=revs)
        assert len(thin) < 5000

        def outside(oid: bytes) -> tuple[int, bytes] | None:
            kinds = {b"blob": BLOB, b"tree": TREE, b"commit": COMMIT}
            kind = kinds[git(repo, "cat-file", "-t", oid.hex()).strip()]
            return kind, git(repo, "cat-file", list(kinds)[list(kinds.values()).index(kind)].decode(), oid.hex())

        result, _ = parse(thin, step=100, find_base=outside)
        assert result.entries > result.own_objects
        (tmp_path / "p.pack").write_bytes(stored(thin, result))
        git(None, "index-pack", "-o", str(tmp_path / "p.idx"), str(tmp_path / "p.pack"))
        assert (tmp_path / "p.idx").read_bytes() == write_index(result)
        with pytest.raises(MissingBase):
            parse(thin)


@pytest.mark.parametrize(
    "options",
    [
        ["--delta-base-offset"],
        [],
        ["--delta-base-offset", "--depth=250", "--window=250"],
        ["--depth=250", "--window=250"],
        ["--delta-base-offset", "--depth=0"],
        ["--compression=0"],
        ["--compression=9", "--delta-base-offset"],
    ],
    ids=" ".join,
)
def test_packs_of_git(repositories: Repositories, tmp_path: Path, options: list[str]) -> None:
    repo = repositories["history"]
    pack = git(repo, "pack-objects", "--all", "--stdout", "-q", "--no-reuse-delta", "--no-reuse-object", *options)
    (tmp_path / "p.pack").write_bytes(pack)
    git(None, "index-pack", "-o", str(tmp_path / "p.idx"), str(tmp_path / "p.pack"))
    expected = (tmp_path / "p.idx").read_bytes()
    for step, cache in ((None, 64 << 20), (1000, 50_000), (65536, 0)):
        feeder = Feeder(cache_bytes=cache)
        result = feeder.run([pack] if step is None else (pack[i : i + step] for i in range(0, len(pack), step)))
        assert write_index(result) == expected
        assert len(feeder.seen) == result.count


def test_hash_object_of_the_caller() -> None:
    asked: list[int] = []

    def slow(kind: int, data: bytes) -> bytes:
        asked.append(kind)
        return hash_object(kind, data)

    assert parse(MIXED, hash_object=slow) == parse(MIXED)
    assert len(asked) == 15

    def collides(kind: int, data: bytes) -> bytes:
        raise PackError("SHA-1 collision attack")

    with pytest.raises(PackError) as caught:
        parse(MIXED, hash_object=collides)
    assert caught.value.extra == {"object": 0, "offset": 12}


class Late(Exception):
    pass


@pytest.mark.parametrize("left", [0, 1, 2, 3])
def test_deadline(left: int) -> None:
    calls = [0]

    def deadline() -> None:
        calls[0] += 1
        if calls[0] > left:
            raise Late

    with pytest.raises(Late):
        parse(MIXED, deadline=deadline)


def test_deadline_within_one_chunk() -> None:
    """A chunk may ask for a lot of work: the clock is looked at within it too."""
    builder = Builder()
    at = builder.whole(BLOB, bytes(1 << 20))
    for _ in range(50):
        builder.ofs(at, delta(bytes(1 << 20), copy(0, 1 << 20), size=1 << 20))
    calls: list[int] = []
    parse(builder.pack(), deadline=lambda: calls.append(1))
    assert len(calls) > 50


class TestLimits:
    def refused(self, pack: bytes, limits: Limits, **options: object) -> dict[str, object]:
        places = []
        for step in (None, 1):
            with pytest.raises(LimitExceeded) as caught:
                parse(pack, step=step, limits=limits, **options)
            places.append(caught.value.extra)
            assert str(caught.value.extra["offset"]) in caught.value.detail or "object" not in caught.value.extra
        assert places[0] == places[1]
        return places[0]

    def test_objects(self) -> None:
        assert parse(MIXED, limits=Limits(objects=15))
        self.refused(MIXED, Limits(objects=14))
        # Announcing is enough.
        feeder = Feeder(limits=Limits(objects=10))
        with pytest.raises(LimitExceeded):
            feeder.feed(b"PACK\0\0\0\2\xff\xff\xff\xff")

    def test_pack_bytes(self) -> None:
        assert parse(MIXED, limits=Limits(pack_bytes=len(MIXED)))
        with pytest.raises(LimitExceeded):
            parse(MIXED, limits=Limits(pack_bytes=len(MIXED) - 1))
        with pytest.raises(LimitExceeded):
            parse(MIXED, limits=Limits(pack_bytes=len(MIXED) - 1), step=1)

    def test_object_bytes(self) -> None:
        builder = Builder()
        builder.whole(BLOB, b"a" * 100)
        at = builder.whole(BLOB, b"b" * 1000)
        assert parse(builder.pack(), limits=Limits(object_bytes=1000))
        assert self.refused(builder.pack(), Limits(object_bytes=999)) == {"object": 1, "offset": at}

    def test_object_bytes_by_delta(self) -> None:
        builder = Builder()
        base = builder.whole(BLOB, b"b" * 100)
        at = builder.ofs(base, delta(b"b" * 100, *[copy(0, 100)] * 9, size=900))
        assert parse(builder.pack(), limits=Limits(object_bytes=900))
        assert self.refused(builder.pack(), Limits(object_bytes=899)) == {"object": 1, "offset": at}

    def test_object_bytes_by_late_delta(self) -> None:
        builder = Builder()
        at = builder.ref(hash_object(BLOB, b"b" * 100), delta(b"b" * 100, *[copy(0, 100)] * 9, size=900))
        builder.whole(BLOB, b"b" * 100)
        assert self.refused(builder.pack(), Limits(object_bytes=899)) == {"object": 0, "offset": at}

    def test_inflate_ratio(self) -> None:
        builder = Builder()
        builder.whole(BLOB, b"fine")
        at = builder.whole(BLOB, bytes(1 << 20))
        limits = Limits(inflate_ratio=1000, inflate_ratio_from=10_000)
        assert self.refused(builder.pack(), limits) == {"object": 1, "offset": at}
        assert parse(builder.pack(), limits=Limits(inflate_ratio=1100, inflate_ratio_from=0))
        assert parse(builder.pack(), limits=Limits(inflate_ratio=10, inflate_ratio_from=1 << 20))
        assert parse(builder.pack(), limits=Limits(inflate_ratio=None, inflate_ratio_from=0))

    def test_inflate_ratio_acts_before_the_end(self) -> None:
        builder = Builder()
        builder.whole(BLOB, bytes(50 << 20))
        feeder = Feeder()
        with pytest.raises(LimitExceeded):
            feeder.feed(builder.pack()[:20_000])

    def chain(self, length: int) -> bytes:
        builder, body = Builder(), b"0"
        at = builder.whole(BLOB, body)
        for _ in range(length):
            at = builder.ofs(at, extend(body, b"1"))
            body += b"1"
        return builder.pack()

    def late_chain(self, length: int) -> bytes:
        builder = Builder()
        for i in range(length, 0, -1):
            builder.ref(hash_object(BLOB, b"0" + b"1" * (i - 1)), extend(b"0" + b"1" * (i - 1), b"1"))
        builder.whole(BLOB, b"0")
        return builder.pack()

    @pytest.mark.parametrize("cache", [0, 1 << 20])
    def test_delta_depth(self, cache: int) -> None:
        for pack in (self.chain(50), self.late_chain(50)):
            assert parse(pack, limits=Limits(delta_depth=50), cache_bytes=cache)[0].count == 51
        assert self.refused(self.chain(51), Limits(delta_depth=50), cache_bytes=cache)["object"] == 51
        assert self.refused(self.late_chain(51), Limits(delta_depth=50), cache_bytes=cache)["object"] == 0

    @pytest.mark.parametrize("cache", [0, 1 << 20])
    def test_long_chains(self, cache: int) -> None:
        for pack in (self.chain(4095), self.late_chain(4095)):
            assert parse(pack, cache_bytes=cache)[0].count == 4096
        self.refused(self.chain(4096), Limits(), cache_bytes=cache)
        assert parse(self.chain(6000), cache_bytes=cache, limits=Limits(delta_depth=None))[0].count == 6001
        assert parse(self.late_chain(6000), cache_bytes=cache, limits=Limits(delta_depth=None))[0].count == 6001

    def test_resolved_bytes(self) -> None:
        builder = Builder()
        for i in range(10):
            builder.whole(BLOB, b"%d" % i * 100)
        assert parse(builder.pack(), limits=Limits(resolved_bytes=1000))
        assert self.refused(builder.pack(), Limits(resolved_bytes=999))["object"] == 9

    def test_resolved_bytes_of_late_deltas(self) -> None:
        builder = Builder()
        for i in range(9):
            builder.ref(hash_object(BLOB, b"b" * 100), delta(b"b" * 100, copy(0, 99), insert(b"%d" % i), size=100))
        builder.whole(BLOB, b"b" * 100)
        assert parse(builder.pack(), limits=Limits(resolved_bytes=1000))
        self.refused(builder.pack(), Limits(resolved_bytes=999))

    def test_off(self) -> None:
        none = Limits(None, None, 0, None, None, None, None)
        assert parse(MIXED, limits=none) == parse(MIXED)


def test_finish_before_the_end() -> None:
    for cut in range(len(MIXED)):
        feeder = Feeder()
        feeder.feed(MIXED[:cut])
        with pytest.raises(PackTruncated) as caught:
            feeder.parser.finish()
        assert caught.value.extra["offset"] == cut


def test_feeding_single_bytes_is_linear() -> None:
    """Bytes fed one by one to one big object are not kept as so many pieces, nor copied again and again."""
    rng = random.Random(1)
    builder = Builder()
    builder.whole(BLOB, rng.randbytes(300_000))
    builder.whole(BLOB, bytes(2_000_000))
    assert parse(builder.pack(), step=1) == parse(builder.pack())
