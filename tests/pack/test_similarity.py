"""Chunk hashes and scores against a byte-by-byte reading of git's rule."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pack.similarity import (
    MAX_SCORE,
    SPANS,
    chunk_weights,
    hash_chunks,
    is_binary,
    may_reach,
    percent,
    sizes_within_reach,
    spans,
)

WORD = 0xFFFFFFFF


def plain_spans(data: bytes) -> dict[int, int]:
    """One byte after the other, as the rule is written."""
    found: Counter[int] = Counter()
    text = b"\0" not in data[:8000]
    low = high = count = 0
    for at, byte in enumerate(data):
        if text and byte == 13 and data[at + 1 : at + 2] == b"\n":
            continue
        low, high = (low << 7 & WORD) ^ high >> 25, (high << 7 & WORD) ^ low >> 25
        low = low + byte & WORD
        count += 1
        if count == 64 or byte == 10:
            found[(low + high * 0x61 & WORD) % SPANS] += count
            low = high = count = 0
    return dict(found)


CONTENT = st.lists(
    st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b"line of text\n", b"x" * 63, b"y" * 64, b"z" * 65, b"\xff", b"\0"]),
    max_size=60,
).map(b"".join)


@settings(max_examples=300, deadline=None)
@given(CONTENT | st.binary(max_size=400))
@example(b"")
@example(b"x" * 64)
@example(b"x" * 64 + b"\n")
@example(b"x" * 63 + b"\r\n")
@example(b"x" * 63 + b"\r\r\n")
@example(b"\xff" * 640)
@example(b"no end")
def test_spans_equal_the_plain_rule(data: bytes) -> None:
    assert spans([chunk_weights(data)]) == [plain_spans(data)]


def test_many_chunks_at_once() -> None:
    blobs = [b"".join(b"%d line %d of %s\n" % (n * k, n, b"x" * (n % 90)) for n in range(700)) for k in range(12)]
    assert spans([chunk_weights(data) for data in blobs]) == [plain_spans(data) for data in blobs]
    assert hash_chunks([]) == {}


def test_full_chunks_of_one_byte_all_collide() -> None:
    assert len(set(hash_chunks([bytes([byte]) * 64 for byte in range(32, 127)]).values())) == 1


def test_binary_is_a_nul_in_the_first_8000_bytes() -> None:
    assert is_binary(b"x" * 7999 + b"\0")
    assert not is_binary(b"x" * 8000 + b"\0")
    assert not is_binary(b"\x01\xff")
    assert not is_binary(b"")


@pytest.mark.parametrize(
    ("old", "new", "minimum", "room"),
    [(100, 100, 60000, True), (100, 101, 60000, False), (100, 200, 30000, True), (100, 201, 30000, False),
     (0, 1, 600, False), (1, 0, 30000, False)],
)  # fmt: skip
def test_sizes_that_leave_room(old: int, new: int, minimum: int, room: bool) -> None:
    assert may_reach(old, new, minimum) is room


@given(st.integers(0, 300), st.integers(0, 700), st.integers(1, MAX_SCORE) | st.integers(1, 100).map((600).__mul__))
def test_sizes_within_reach_are_those_that_leave_room(old: int, new: int, minimum: int) -> None:
    low, high = sizes_within_reach(old, minimum)
    assert (low <= new <= high) is may_reach(old, new, minimum)


def test_percent_rounds_down() -> None:
    assert [percent(points) for points in (0, 29999, 30000, 59999, 60000)] == [0, 49, 50, 99, 100]
