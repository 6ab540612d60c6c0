"""Cursors continue what they were made for, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cursors import Position, binding, seal, unseal
from app.reads.base import b64, from_b64
from pack.errors import BadCursor

KEY = b"k" * 32
POSITION = Position({"commit": "a" * 40, "paths": ["x"] * 50}, ["path", 3], 7)
PARAMS = {"rev": b"main", "path": b"", "limit": 5, "cursor": None, "max_bytes": None, "min_generation": None}


def bound(
    params: dict[str, object] = PARAMS, repository: str = "r@1", operation: str = "log", scope: str = ""
) -> bytes:
    return binding(repository, operation, params, scope)


def test_round_trip() -> None:
    assert unseal(KEY, bound(), seal(KEY, bound(), POSITION)) == POSITION
    small = Position({}, None, 1)
    assert unseal(KEY, bound(), seal(KEY, bound(), small)) == small


def test_budgets_may_differ() -> None:
    cursor = seal(KEY, bound(), POSITION)
    assert unseal(KEY, bound({**PARAMS, "limit": 9, "max_bytes": 1, "cursor": cursor, "min_generation": 3}), cursor)


@pytest.mark.parametrize(
    "other",
    [
        bound({**PARAMS, "rev": b"other"}),
        bound({**PARAMS, "path": b"x"}),
        bound(repository="r@2"),
        bound(operation="tree"),
        bound(scope="ci"),
    ],
)
def test_bound(other: bytes) -> None:
    with pytest.raises(BadCursor):
        unseal(KEY, other, seal(KEY, bound(), POSITION))


def test_another_key_is_refused() -> None:
    with pytest.raises(BadCursor):
        unseal(b"x" * 32, bound(), seal(KEY, bound(), POSITION))


def test_every_flipped_bit_is_refused() -> None:
    data = from_b64(seal(KEY, bound(), POSITION), "cursor")
    for at in range(len(data)):
        broken = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(BadCursor):
            unseal(KEY, bound(), b64(broken))


@given(st.text(max_size=80))
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(BadCursor):
        unseal(KEY, bound(), text)
