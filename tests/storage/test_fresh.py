from __future__ import annotations

from array import array
from dataclasses import dataclass

import pytest

from pack.objects import BLOB, COMMIT
from pack.table import UNKNOWN
from storage import fresh


@dataclass
class Result:
    oids: bytes
    offsets: array[int]
    types: array[int]
    sizes: array[int]


def result(rows: int, largest: int = 7) -> Result:
    """Every third row a commit; the offsets go down."""
    kinds = [COMMIT if row % 3 == 0 else BLOB for row in range(rows)]
    offsets = array("Q", range(rows + 11, 11, -1))
    oids = b"".join(row.to_bytes(20, "big") for row in range(rows))
    return Result(oids, offsets, array("B", kinds), array("Q", [largest] * rows))


def test_each_is_given_once() -> None:
    fresh.keep("one", result(8))
    assert fresh.commits("two") is None
    assert fresh.table("two") is None
    assert fresh.commits("one") == [row.to_bytes(20, "big") for row in (6, 3, 0)]
    assert fresh.commits("one") is None
    table = fresh.table("one")
    assert table is not None
    assert [table.header(row) for row in range(3)] == [(COMMIT, 7), (BLOB, 7), (BLOB, 7)]
    assert fresh.table("one") is None


def test_a_size_beyond_the_table_is_not_known() -> None:
    fresh.keep("large", result(2, UNKNOWN + 5))
    table = fresh.table("large")
    assert table is not None
    assert table.header(0) is None


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh, "_BYTES", 3 * (9 * 30 + 200))
    for number in range(5):
        fresh.keep(f"{number}", result(30))
    assert [fresh.table(f"{number}") is not None for number in range(5)] == [False, False, True, True, True]
    fresh.keep("huge", result(1000))
    assert fresh.commits("huge") is None
