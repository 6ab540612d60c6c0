"""Packs that nobody sends by mistake: each is refused whole, with a typed error that says where, in bounded time."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from pack.entry import write_distance, write_header
from pack.errors import (
    BadDelta,
    LimitExceeded,
    MissingBase,
    PackChecksumMismatch,
    PackError,
    PackTruncated,
)
from pack.limits import Limits
from pack.objects import BLOB, OFS_DELTA, REF_DELTA, hash_object
from tests.pack.packs import Builder, Feeder, copy, delta, extend, insert, number, parse, seal
from tests.support.generate import Repositories
from tests.support.git import ENV, git

BASE = b"line of text\n" * 8
MORE = extend(BASE, b"more")
OID = hash_object(BLOB, BASE)


def one(raw: bytes) -> bytes:
    """A pack of a good object and a bad one, at offset AT."""
    builder = Builder()
    builder.whole(BLOB, BASE)
    builder.entry(raw)
    return builder.pack()


def good() -> Builder:
    builder = Builder()
    builder.whole(BLOB, BASE)
    return builder


AT = len(good().pack()) - 20
GOOD = one(write_header(BLOB, 3) + zlib.compress(b"abc"))


def ofs(back: int, body: bytes = MORE) -> bytes:
    return write_header(OFS_DELTA, len(body)) + write_distance(back) + zlib.compress(body)


def whole(body: bytes, size: int) -> bytes:
    return write_header(BLOB, size) + zlib.compress(body)


def ref(base: bytes, body: bytes = MORE) -> bytes:
    return write_header(REF_DELTA, len(body)) + base + zlib.compress(body)


def after(raw: bytes) -> bytes:
    """The bad one first, its base after it."""
    builder = Builder()
    builder.entry(raw)
    builder.whole(BLOB, BASE)
    return builder.pack()


def cycle() -> bytes:
    builder = Builder()
    a, b = b"\x11" * 20, b"\x22" * 20
    at = builder.ref(a, MORE)
    builder.ref(b, MORE)
    builder.ofs(at, MORE)
    builder.ref(hash_object(BLOB, BASE + b"more"), MORE)
    return builder.pack()


# name: (pack, error, object at fault or None, offset or None)
TABLE: dict[str, tuple[bytes, type[PackError], int | None, int | None]] = {
    "not a pack": (b"GARBAGE" + GOOD, PackError, None, 0),
    "not even its first byte": (b"x", PackError, None, 0),
    "html": (b"<html><body>502</body></html>", PackError, None, 0),
    "version 0": (seal(b"PACK\0\0\0\0" + GOOD[8:-20]), PackError, None, 4),
    "version 1": (seal(b"PACK\0\0\0\1" + GOOD[8:-20]), PackError, None, 4),
    "version 4": (seal(b"PACK\0\0\0\4" + GOOD[8:-20]), PackError, None, 4),
    "version huge": (seal(b"PACK\xff\xff\xff\xff" + GOOD[8:-20]), PackError, None, 4),
    "huge count": (b"PACK\0\0\0\2\xff\xff\xff\xff" + GOOD[12:], LimitExceeded, None, 8),
    "one object more announced": (seal(GOOD[:8] + struct.pack(">I", 3) + GOOD[12:-20]), PackError, 2, len(GOOD) - 20),
    "one object fewer announced": (seal(GOOD[:11] + b"\x01" + GOOD[12:-20]), PackChecksumMismatch, None, AT),
    "no object announced": (seal(GOOD[:8] + bytes(4) + GOOD[12:-20]), PackChecksumMismatch, None, 12),
    "something after it": (GOOD + b"j", PackError, None, len(GOOD)),
    "much after it": (GOOD + bytes(100_000), PackError, None, len(GOOD)),
    "two packs": (GOOD + GOOD, PackError, None, len(GOOD)),
    "wrong trailer": (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), PackChecksumMismatch, None, len(GOOD) - 20),
    "zero trailer": (GOOD[:-20] + bytes(20), PackChecksumMismatch, None, len(GOOD) - 20),
    "type 0": (one(b"\x03" + zlib.compress(b"abc")), PackError, 1, AT),
    "type 5": (one(b"\x53" + zlib.compress(b"abc")), PackError, 1, AT),
    "type 0 and large": (one(b"\x83\x7f" + zlib.compress(b"abc")), PackError, 1, AT),
    "size without end": (one(b"\xbf" + b"\xff" * 100), PackError, 1, AT),
    "size of 64 bits": (one(b"\xbf" + b"\xff" * 8 + b"\x7f" + zlib.compress(b"abc")), PackError, 1, AT),
    "size of 63 bits": (one(whole(b"abc", (1 << 63) - 1)), LimitExceeded, 1, AT),
    "size of 4 GB": (one(whole(b"abc", 1 << 32)), LimitExceeded, 1, AT),
    "size of 100 MB, empty": (one(whole(b"", 100 << 20)), PackError, 1, AT),
    "size too small": (one(whole(b"abc", 2)), PackError, 1, AT),
    "size too large": (one(whole(b"abc", 4)), PackError, 1, AT),
    "size 0, not empty": (one(whole(b"abc", 0)), PackError, 1, AT),
    "size small, inflates to much": (one(whole(bytes(50 << 20), 5)), PackError, 1, AT),
    "no zlib": (one(b"\x33abcdefgh" + bytes(100)), PackError, 1, AT),
    "raw deflate": (one(b"\x33" + zlib.compress(b"abc")[2:-4]), PackError, 1, AT),
    "zlib with a dictionary": (one(b"\x33\x78\xbb" + bytes(30)), PackError, 1, AT),
    "zlib window too large": (one(b"\x33\x88\x1c" + zlib.compress(b"abc")[2:]), PackError, 1, AT),
    "zlib checksum": (one(b"\x33" + zlib.compress(b"abc")[:-1] + b"\0"), PackError, 1, AT),
    "garbage after zlib": (one(whole(b"abc", 3) + b"\0garbage"), PackError, None, None),
    "distance 0": (one(ofs(0)), PackError, 1, AT),
    "distance before the pack": (one(ofs(AT + 1)), PackError, 1, AT),
    "distance to the pack's header": (one(ofs(AT)), PackError, 1, AT),
    "distance to the count": (one(ofs(AT - 8)), PackError, 1, AT),
    "distance just before the first entry": (one(ofs(AT - 11)), PackError, 1, AT),
    "distance into an entry": (one(ofs(AT - 13)), PackError, 1, AT),
    "distance 1": (one(ofs(1)), PackError, 1, AT),
    "distance huge": (one(ofs((1 << 63) - 1)), PackError, 1, AT),
    "distance without end": (one(b"\x65" + b"\xff" * 100), PackError, 1, AT),
    "distance of 64 bits": (one(b"\x65" + b"\xff" * 9 + b"\x00" + bytes(40)), PackError, 1, AT),
    "base missing": (one(ref(b"\x11" * 20)), MissingBase, 1, AT),
    "base missing, first": (after(ref(b"\x11" * 20)), MissingBase, 0, 12),
    "bases in a cycle": (cycle(), MissingBase, 0, 12),
    "delta empty": (one(ofs(AT - 12, b"")), BadDelta, 1, AT),
    "delta for another base": (one(ofs(AT - 12, extend(BASE + b"x", b"y"))), BadDelta, 1, AT),
    "delta with instruction 0": (one(ofs(AT - 12, delta(BASE, b"\0", size=0))), BadDelta, 1, AT),
    "delta copies from beyond": (one(ofs(AT - 12, delta(BASE, copy(0, 105), size=105))), BadDelta, 1, AT),
    "delta copies from far beyond": (one(ofs(AT - 12, delta(BASE, copy(1 << 31, 5), size=5))), BadDelta, 1, AT),
    "delta makes more": (one(ofs(AT - 12, delta(BASE, copy(0, 10), insert(b"x"), size=10))), BadDelta, 1, AT),
    "delta makes more, by a copy": (one(ofs(AT - 12, delta(BASE, copy(0, 9), copy(0, 9), size=9))), BadDelta, 1, AT),
    "delta makes less": (one(ofs(AT - 12, delta(BASE, copy(0, 10), size=11))), BadDelta, 1, AT),
    "delta cut in a copy": (one(ofs(AT - 12, delta(BASE, b"\xff\x01", size=11))), BadDelta, 1, AT),
    "delta cut in an insert": (one(ofs(AT - 12, delta(BASE, b"\x7fabc", size=11))), BadDelta, 1, AT),
    "delta of 4 GB": (one(ofs(AT - 12, delta(BASE, copy(0, 10), size=1 << 32))), LimitExceeded, 1, AT),
    "delta of 2^62 bytes": (one(ofs(AT - 12, delta(BASE, copy(0, 10), size=1 << 62))), LimitExceeded, 1, AT),
    "delta's size without end": (one(ofs(AT - 12, b"\xff" * 1000)), BadDelta, 1, AT),
    "delta's result size without end": (one(ofs(AT - 12, number(len(BASE)) + b"\xff" * 1000)), BadDelta, 1, AT),
    "late delta for another base": (after(ref(OID, extend(BASE + b"x", b"y"))), BadDelta, 0, 12),
    "late delta with instruction 0": (after(ref(OID, delta(BASE, b"\0", size=0))), BadDelta, 0, 12),
    "late delta of 2^62 bytes": (after(ref(OID, delta(BASE, copy(0, 10), size=1 << 62))), LimitExceeded, 0, 12),
}


@pytest.mark.parametrize("name", TABLE)
def test_refused(name: str) -> None:
    pack, error, row, offset = TABLE[name]
    steps = [None, 4096] if len(pack) > 20_000 else [None, 1, 2, 7, 30]
    for step in steps:
        for cache in (0, 1 << 20):
            with pytest.raises(error) as caught:
                parse(pack, step=step, cache_bytes=cache)
            assert caught.value.code == error.code or error is PackError
            if step is None or offset is not None:
                assert caught.value.extra.get("object", row) == row, caught.value.detail
                if offset is not None:
                    assert caught.value.extra["offset"] == offset, caught.value.detail
            if row is not None:
                assert caught.value.detail.startswith(f"object {row} at offset {offset}: ")


@pytest.mark.parametrize("name", [name for name in TABLE if name not in ("huge count", "size of 100 MB, empty")])
def test_git_refuses_it_too(name: str, tmp_path: Path) -> None:
    (tmp_path / "p.pack").write_bytes(TABLE[name][0])
    done = subprocess.run(
        ["git", "index-pack", "-o", tmp_path / "p.idx", tmp_path / "p.pack"], env=ENV, capture_output=True, check=False
    )
    # git knows no limits but those of the machine; what it takes is refused here for its size alone.
    assert done.returncode != 0


@pytest.mark.parametrize("step", [None, 1])
def test_refused_once_is_refused_for_good(step: int | None) -> None:
    feeder = Feeder()
    with pytest.raises(PackError):
        feeder.run([TABLE["type 5"][0]])
    with pytest.raises(PackError):
        feeder.feed(b"more")
    with pytest.raises(PackError):
        feeder.parser.finish()


def test_cut_anywhere() -> None:
    for cut in range(len(GOOD)):
        for step in (None, 1):
            with pytest.raises(PackTruncated):
                parse(GOOD[:cut], step=step)


def test_a_flipped_bit_anywhere() -> None:
    """No change goes unnoticed: every byte is covered by the trailer at the latest."""
    builder = good()
    builder.ofs(12, MORE)
    builder.ref(OID, extend(BASE, b"xyz"))
    pack = builder.pack()
    for at in range(len(pack)):
        for bit in range(8):
            bad = bytearray(pack)
            bad[at] ^= 1 << bit
            with pytest.raises(PackError):
                parse(bytes(bad))


def mutations(pack: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """A changed copy: bytes set, cut out, doubled or brought from another pack; half the time with a right trailer."""
    body = bytearray(pack[:-20])
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(body))
        length = min(rng.choice((1, 1, 2, 4, 20, 200)), len(body) - at)
        match rng.randrange(6):
            case 0:
                body[at] ^= 1 << rng.randrange(8)
            case 1:
                body[at : at + length] = rng.randbytes(length)
            case 2:
                del body[at : at + length]
            case 3:
                body[at:at] = body[at : at + length]
            case 4:
                other = rng.choice(others)
                start = rng.randrange(len(other))
                body[at : at + length] = other[start : start + length]
            case 5:
                body[8:12] = rng.choice((0, 1, 5, 100, 0xFFFF, 0xFFFFFFFF)).to_bytes(4, "big")
        if not body:
            body = bytearray(b"P")
    return seal(bytes(body)) if rng.random() < 0.7 else bytes(body) + pack[-20:]


def reworked(pack: bytes, rng: random.Random) -> bytes:
    """A change below the compression: entries taken apart, their bodies changed, and packed again with a right trailer.

    Flipped bits mostly end as damaged zlib; this is what reaches the deltas.
    """
    from pack.entry import parse_header

    at, out = 12, bytearray(pack[:12])
    for _ in range(int.from_bytes(pack[8:12], "big")):
        header = parse_header(pack, at)
        assert header is not None
        stream = zlib.decompressobj()
        body = bytearray(stream.decompress(pack[header.end :]))
        end = len(pack) - len(stream.unused_data)
        kind, size, back, base = header.kind, header.size, header.back, header.base
        if rng.random() < 0.05:
            match rng.randrange(6):
                case 0:
                    back = max(0, back + rng.randrange(-50, 50))
                case 1:
                    kind = rng.randrange(8)
                case 2:
                    size = max(0, size + rng.randrange(-3, 3))
                case 3 if base:
                    base = rng.randbytes(20)
                case _ if body:
                    for _ in range(rng.randrange(1, 4)):
                        where = rng.randrange(min(len(body), 40))
                        body[where] = rng.choice((0, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        raw = write_header(kind, size)
        if kind == OFS_DELTA:
            raw += write_distance(back)
        elif kind == REF_DELTA:
            raw += base or bytes(20)
        out += raw + zlib.compress(bytes(body), 1)
        at = end
    return seal(bytes(out))


def small_packs(repositories: Repositories) -> list[bytes]:
    packs = []
    for name in ("linear", "renames", "tags"):
        for options in (["--delta-base-offset"], []):
            command = ["pack-objects", "--all", "--stdout", "-q", "--no-reuse-delta", *options]
            packs.append(git(repositories[name], *command))
    return packs


def mutate(
    packs: list[bytes], count: int, seed: int, change: Callable[[bytes, random.Random], bytes]
) -> dict[str, int]:
    """Feeds so many changed packs; returns how often each outcome came. Any other exception fails the test."""
    rng = random.Random(seed)
    limits = Limits(object_bytes=1 << 20, resolved_bytes=1 << 26, objects=100_000)
    outcomes: dict[str, int] = {}
    for _ in range(count):
        bad = change(rng.choice(packs), rng)
        started = time.monotonic()
        try:
            result, seen = parse(
                bad, step=rng.choice((None, 64, 1000)), limits=limits, cache_bytes=rng.choice((0, 1 << 20))
            )
            outcome = "taken"
            assert result.entries == len(seen)
        except PackError as error:
            outcome = error.code
            assert "offset" in error.extra
        assert time.monotonic() - started < 20
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


def test_mutated_packs(repositories: Repositories) -> None:
    packs = small_packs(repositories)
    outcomes = mutate(packs, 4000, 1, lambda pack, rng: mutations(pack, rng, packs))
    assert len(outcomes) > 2


def test_reworked_packs(repositories: Repositories) -> None:
    outcomes = mutate(small_packs(repositories), 1000, 2, reworked)
    assert {"bad_delta", "bad_pack", "missing_base"} <= set(outcomes)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_mutated_packs(repositories: Repositories) -> None:
    packs = small_packs(repositories)
    mutate(packs, 80_000, 3, lambda pack, rng: mutations(pack, rng, packs))
    mutate(packs, 20_000, 4, reworked)


def test_what_is_taken_git_takes(repositories: Repositories, tmp_path: Path) -> None:
    """Of changed packs the parser and git take the same ones."""
    rng = random.Random(6)
    packs = small_packs(repositories)
    taken = 0
    for _ in range(150):
        bad = reworked(rng.choice(packs), rng)
        (tmp_path / "p.pack").write_bytes(bad)
        done = subprocess.run(
            ["git", "index-pack", "-o", tmp_path / "p.idx", tmp_path / "p.pack"],
            env=ENV,
            capture_output=True,
            check=False,
        )
        try:
            result, _ = parse(bad)
        except PackError as error:
            assert done.returncode != 0, error.detail
            continue
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip().decode() == result.checksum.hex()
        taken += 1
        for name in ("p.idx", "p.rev"):
            (tmp_path / name).unlink(missing_ok=True)
    assert 0 < taken < 150


CHILD = """
import resource, sys
from tests.hostile.test_packs import BOMBS
from tests.pack.packs import parse
from pack.errors import PackError
pack = BOMBS[sys.argv[1]]()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    parse(pack, step=1 << 16)
    print("taken", end=" ")
except PackError as error:
    print(error.code, end=" ")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def copies() -> bytes:
    """A few bytes of delta that ask for a gigabyte, by copies of 16 MB."""
    builder = Builder()
    base = bytes(0xFFFFFF)
    at = builder.whole(BLOB, base)
    builder.ofs(at, delta(base, *[copy(0, 0xFFFFFF)] * 64, size=64 * 0xFFFFFF))
    return builder.pack()


def doubling() -> bytes:
    """Each object twice the one before."""
    builder, size = Builder(), 1 << 10
    at = builder.whole(BLOB, bytes(size))
    for _ in range(40):
        ops = [copy(i, min(0xFFFFFF, size - i)) for i in range(0, size, 0xFFFFFF)] * 2
        at = builder.ofs(at, number(size) + number(size * 2) + b"".join(ops))
        size *= 2
        if size > 1 << 32:
            break
    return builder.pack()


def late_doubling() -> bytes:
    builder, size = Builder(), 1 << 10
    oids, bodies = [], []
    while size <= 1 << 25:
        oids.append(hash_object(BLOB, bytes(size)))
        bodies.append(number(size) + number(size * 2) + copy(0, size) * 2 if size <= 0xFFFFFF else b"\x80\x80\x01")
        size *= 2
    for oid, body in reversed(list(zip(oids, bodies, strict=True))):
        builder.ref(oid, body)
    builder.whole(BLOB, bytes(1 << 10))
    return builder.pack()


BOMBS: dict[str, Callable[[], bytes]] = {
    "zeros": lambda: one(whole(bytes(200 << 20), 99 << 20)),
    "more zeros than declared": lambda: one(whole(bytes(200 << 20), 5)),
    "delta of zeros": lambda: one(
        write_header(OFS_DELTA, 90 << 20) + write_distance(AT - 12) + zlib.compress(bytes(90 << 20))
    ),
    "copies": copies,
    "doubling": doubling,
    "late doubling": late_doubling,
    "declared, not sent": lambda: one(whole(b"", 100 << 20)),
    "count": lambda: seal(b"PACK\0\0\0\2" + (9_999_999).to_bytes(4, "big") + GOOD[12:-20]),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_stay_small(name: str) -> None:
    """In a process of its own: what a bomb costs in memory beyond the pack that is fed, in KB."""
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", CHILD, name], capture_output=True, check=True, text=True)
    code, grown = done.stdout.split()
    assert code in ("bad_pack", "limit_exceeded", "bad_delta", "pack_truncated")
    assert int(grown) < 400 << 10
    assert time.monotonic() - started < 30


def test_many_deltas_of_a_large_base_take_one_base_at_a_time() -> None:
    """A base that is larger than the cache is made once for all that wait for it, not once for each."""
    base = bytes(8 << 20)
    builder = Builder()
    at = builder.whole(BLOB, base)
    for i in range(60):
        builder.ofs(at, delta(base, copy(0, 10), insert(b"%d" % i), size=10 + len(b"%d" % i)))
    feeder = Feeder(cache_bytes=1 << 20)
    feeder.run([builder.pack()])
    assert feeder.parser.resolved_bytes < 8 * len(base)


def test_no_name_collides_on_purpose() -> None:
    """Fifty thousand bases that share their first bytes are looked up as fast as any."""
    builder = Builder()
    for i in range(50_000):
        builder.entry(b"\x73" + bytes(16) + i.to_bytes(4, "big") + b"\x78\x9c\x63\x60\x60\x00\x00\x00\x03\x00\x01")
    started = time.process_time()
    with pytest.raises(MissingBase):
        parse(builder.pack())
    assert time.process_time() - started < 10
