"""Columns of numbers as files and caches hold them: little-endian, whatever the machine is."""

from __future__ import annotations

import sys
from array import array


def encode(column: array[int]) -> bytes:
    if sys.byteorder == "big":  # pragma: no cover
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()


def decode(code: str, data: bytes | memoryview) -> array[int]:
    """The column of type `code` (as `array` has it); ValueError where the bytes are not whole numbers."""
    column = array(code)
    column.frombytes(data)
    if sys.byteorder == "big":  # pragma: no cover
        column.byteswap()
    return column
