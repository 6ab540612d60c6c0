"""Rows of columns put in the order of their oids.

Each row becomes a record of bytes, its oid first, and the records are sorted; no number is looked at alone. They are
sorted by first byte apart, so that only a 256th of the rows are Python objects at any time.
"""

from __future__ import annotations

import operator
import sys
from array import array
from collections.abc import Sequence
from itertools import compress, islice
from struct import Struct
from typing import TYPE_CHECKING

from pack.objects import OID_BYTES

if TYPE_CHECKING:
    Column = array[int] | bytearray
    """Unsigned numbers of one, four, or eight bytes."""

_TOGETHER = 1 << 15
_WORD = 4


def by_oid(
    oids: bytes | bytearray, columns: Sequence[Column] = (), *, spend: bool = False
) -> tuple[bytes, list[array[int]]]:
    """The distinct oids in order, one after another, and the columns in the same order.

    Of rows with the same oid the one stays that has the least number in the first column. With `spend` what was given
    is empty afterwards: it goes as the result comes, for there may be millions of rows.
    """
    places, width = _places(columns)
    given = [oids, *columns] if spend else []
    groups = _grouped(oids, columns, places, width, given)
    records = bytearray()
    apart = Struct(f"{width}s").iter_unpack
    for number, group in enumerate(groups):
        groups[number] = bytearray()
        records += b"".join(sorted([record for (record,) in apart(group)]))
        del group
    _drop_repeated(records, width)
    if not columns:
        return bytes(records), []
    count = len(records) // width
    picked = bytearray(count * OID_BYTES)
    _gather(records, 0, width, picked, OID_BYTES)
    sorted_oids = bytes(picked)
    result = []
    for number, (place, column) in enumerate(zip(places, columns, strict=True)):
        picked = bytearray(count * _itemsize(column))
        _gather(records, place, width, picked, _itemsize(column))
        ordered = array(column.typecode if isinstance(column, array) else "B", picked)
        if not number and sys.byteorder == "little":
            ordered.byteswap()
        result.append(ordered)
    return sorted_oids, result


def _grouped(
    oids: bytes | bytearray,
    columns: Sequence[Column],
    places: list[int],
    width: int,
    given: Sequence[bytes | Column],
) -> list[bytearray]:
    """The records by the first byte of their oids. What is `given` is cut off from the end as it is used."""
    apart = Struct(f"{width}s").iter_unpack
    groups = [bytearray() for _ in range(256)]
    count = len(oids) // OID_BYTES
    for start in reversed(range(0, count, _TOGETHER)):
        end = min(start + _TOGETHER, count)
        some = bytearray((end - start) * width)
        _spread(some, 0, width, oids[start * OID_BYTES : end * OID_BYTES], OID_BYTES)
        for number, (place, column) in enumerate(zip(places, columns, strict=True)):
            piece = column[start:end]
            _spread(some, place, width, piece if number else _big_endian(piece), _itemsize(column))
        for (record,) in apart(some):
            groups[record[0]] += record
        for number, each in enumerate(given):
            if not isinstance(each, bytes):
                del each[start if number else start * OID_BYTES :]
    return groups


def oid_order(oids: bytes | bytearray) -> tuple[bytes, array[int]]:
    """The distinct oids in order, one after another, and the first row of each."""
    ordered, [rows] = by_oid(oids, [array("I", range(len(oids) // OID_BYTES))])
    return ordered, rows


def _places(columns: Sequence[Column]) -> tuple[list[int], int]:
    """Where in a record each column is, and how long a record is: whole words."""
    places, at = [], OID_BYTES
    for column in columns:
        places.append(at)
        at += -(-_itemsize(column) // _WORD) * _WORD
    return places, at


def _itemsize(column: Column) -> int:
    return column.itemsize if isinstance(column, array) else 1


def _big_endian(column: Column) -> Column:
    """A copy as it is compared."""
    if isinstance(column, array) and sys.byteorder == "little":
        column = array(column.typecode, column)
        column.byteswap()
    return column


def _spread(records: bytearray, place: int, width: int, column: bytes | Column, size: int) -> None:
    """Write a column of `size` bytes a row into records of `width` bytes."""
    unit = min(size, _WORD)
    target, source = _units(records, unit), _units(column, unit)
    for part in range(size // unit):
        target[place // unit + part :: width // unit] = source[part :: size // unit]


def _gather(records: bytearray, place: int, width: int, column: bytearray, size: int) -> None:
    """Read one."""
    unit = min(size, _WORD)
    target, source = _units(column, unit), _units(records, unit)
    for part in range(size // unit):
        target[part :: size // unit] = source[place // unit + part :: width // unit]


def _units(data: bytes | Column, unit: int) -> memoryview:
    return memoryview(data).cast("B").cast("B" if unit == 1 else "I")


def _drop_repeated(records: bytearray, width: int) -> None:
    """Leave the first one of sorted records with the same oid."""
    heads = array("Q", bytes(len(records) // width * 8))
    _units(heads, _WORD)[0::2] = _units(records, _WORD)[0 :: width // _WORD]
    _units(heads, _WORD)[1::2] = _units(records, _WORD)[1 :: width // _WORD]
    alike = compress(range(1, len(heads)), map(operator.eq, heads, islice(heads, 1, None)))
    kept, pieces = 0, []
    for row in alike:
        at = row * width
        if records[at : at + OID_BYTES] == records[at - width : at - width + OID_BYTES]:
            pieces.append(records[kept:at])
            kept = at + width
    if pieces:
        records[:] = b"".join((*pieces, records[kept:]))
