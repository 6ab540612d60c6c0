from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pack import delta as module
from pack.delta import apply_delta, apply_delta_reference, delta_sizes, write_number
from pack.errors import BadDelta, LimitExceeded
from tests.pack.packs import copy, delta, extend, insert, number

BASE = bytes(range(100))


def reference(base: bytes, data: bytes, max_size: int) -> bytes:
    assert delta_sizes(data)[1] <= max_size
    return apply_delta_reference(base, data)


@pytest.fixture(params=[apply_delta, reference], ids=["compiled", "reference"])
def apply(request: pytest.FixtureRequest) -> object:
    return request.param


def test_the_compiled_one_is_there() -> None:
    assert module._compiled is not None


def test_applies(apply: object) -> None:
    assert callable(apply)
    assert apply(BASE, extend(BASE, b"more"), 1000) == BASE + b"more"
    assert apply(BASE, delta(BASE, copy(90, 10), copy(0, 5), insert(b"x"), size=16), 16) == BASE[90:] + BASE[:5] + b"x"
    # A copy of size 0 means 64 KB; absent argument bytes are zeros.
    big = bytes(70_000)
    assert apply(big, delta(big, b"\x80", size=0x10000), 1 << 20) == bytes(0x10000)
    assert apply(BASE, delta(BASE, b"\x91\x05\x03", size=3), 10) == BASE[5:8]
    assert apply(BASE, delta(BASE, size=0), 10) == b""
    assert apply(b"", delta(b"", insert(b"new"), size=3), 10) == b"new"


BAD = {
    "empty": b"",
    "size cut": b"\x80",
    "size without end": b"\xff" * 50,
    "result size missing": number(100),
    "result size without end": number(100) + b"\xff" * 1000,
    "other base size": number(99) + number(1) + insert(b"x"),
    "reserved instruction": delta(BASE, b"\0", size=0),
    "reserved instruction late": delta(BASE, insert(b"x"), b"\0", size=1),
    "copy cut": delta(BASE, b"\xff\x01", size=10),
    "copy cut at its first argument": delta(BASE, b"\x91", size=10),
    "copy beyond the base": delta(BASE, copy(95, 6), size=6),
    "copy from beyond the base": delta(BASE, copy(101, 1), size=1),
    "copy far beyond": delta(BASE, copy(0xFFFFFFFF, 0xFFFFFF), size=100),
    "copy of 64 KB beyond": delta(BASE, b"\x80", size=0x10000),
    "more than declared by copy": delta(BASE, copy(0, 10), copy(0, 10), size=15),
    "more than declared by insert": delta(BASE, insert(b"abc"), insert(b"abc"), size=5),
    "less than declared": delta(BASE, copy(0, 10), size=11),
    "nothing": delta(BASE, size=1),
    "copy beyond the base, after all is there": delta(BASE, insert(b"x"), copy(101, 1), size=1),
    "copy too much, after all is there": delta(BASE, copy(0, 10), copy(0, 10), size=10),
    "insert cut": delta(BASE, b"\x05abc", size=5),
    "huge result": delta(BASE, copy(0, 10), size=1 << 62),
    "large result": delta(BASE, copy(0, 10), size=1 << 40),
}


@pytest.mark.parametrize("name", BAD)
def test_refuses(name: str) -> None:
    with pytest.raises((BadDelta, LimitExceeded)):
        apply_delta(BASE, BAD[name], 1 << 20)
    if "result" not in name:
        with pytest.raises(BadDelta):
            apply_delta_reference(BASE, BAD[name])


def test_a_panic_is_a_bad_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panics(base: bytes, delta: bytes) -> list[bytes]:
        raise PanicException("range end index 200 out of range")

    monkeypatch.setattr(module, "_compiled", panics)
    with pytest.raises(BadDelta):
        apply_delta(BASE, extend(BASE, b"x"), 1000)


def test_without_the_compiled_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_compiled", None)
    assert apply_delta(BASE, extend(BASE, b"x"), 1000) == BASE + b"x"


def test_the_limit_is_on_the_result() -> None:
    assert apply_delta(BASE, extend(BASE, b"x"), 101) == BASE + b"x"
    with pytest.raises(LimitExceeded):
        apply_delta(BASE, extend(BASE, b"x"), 100)


def outcome(function: object, *args: object) -> object:
    assert callable(function)
    try:
        return function(*args)
    except BadDelta:
        return BadDelta


@settings(max_examples=500)
@given(st.binary(max_size=300), st.data())
def test_the_two_agree_on_anything(base: bytes, data: st.DataObject) -> None:
    tail = data.draw(st.binary(max_size=60))
    bad = number(len(base)) + number(data.draw(st.integers(0, 400))) + tail
    assert outcome(apply_delta, base, bad, 1 << 20) == outcome(apply_delta_reference, base, bad)


def test_the_two_agree_on_mutations() -> None:
    rng = random.Random(1)
    for _ in range(5000):
        base = rng.randbytes(rng.randrange(1, 200))
        ops, size = [], 0
        for _ in range(rng.randrange(6)):
            if rng.random() < 0.5:
                at = rng.randrange(len(base))
                length = rng.randrange(1, len(base) - at + 1)
                ops.append(copy(at, length))
            else:
                length = rng.randrange(1, 127)
                ops.append(insert(rng.randbytes(length)))
            size += length
        good = delta(base, *ops, size=size)
        assert apply_delta(base, good, size) == apply_delta_reference(base, good)
        bad = bytearray(good)
        for _ in range(rng.randrange(1, 3)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        if delta_sizes_or_none(bytes(bad)) and delta_sizes(bytes(bad))[1] < 1 << 20:
            assert outcome(apply_delta, base, bytes(bad), 1 << 20) == outcome(apply_delta_reference, base, bytes(bad))


def delta_sizes_or_none(data: bytes) -> tuple[int, int] | None:
    try:
        return delta_sizes(data)
    except BadDelta:
        return None


def test_sizes_of_63_bits() -> None:
    assert delta_sizes(number((1 << 63) - 1) + number(5) + b"rest") == ((1 << 63) - 1, 5)
    with pytest.raises(BadDelta):
        delta_sizes(number(1 << 63) + number(5))


@given(st.integers(0, (1 << 63) - 1))
def test_numbers(value: int) -> None:
    assert write_number(value) == number(value)
    assert delta_sizes(number(value) + number(0)) == (value, 0)
