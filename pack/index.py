"""Pack index files, version 2 (gitformat-pack(5), "Version 2 pack-*.idx files")."""

from __future__ import annotations

import hashlib
import operator
import sys
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, compress, islice, pairwise
from struct import Struct
from typing import Protocol

from pack.errors import BadIndex
from pack.objects import OID_BYTES

MAGIC = b"\xfftOc"
VERSION = 2
_HEAD = 8 + 256 * 4
_TRAILER = 40
_SEARCHED = 200  # rows that are searched as bytes
_TOGETHER = 1 << 16  # rows that are compared at once
_SPARSE = 8  # of so many rows one is looked up alone
_apart = Struct(f"{OID_BYTES}s").iter_unpack
_LARGE = 1 << 31
"""An offset with this bit set is a row of the table of 64-bit offsets."""


class Listed(Protocol):
    """What of a `pack.columns.PackResult` an index is made of: columns sorted by oid, and the pack's checksum."""

    @property
    def oids(self) -> bytes: ...
    @property
    def offsets(self) -> array[int]: ...
    @property
    def crcs(self) -> array[int]: ...
    @property
    def checksum(self) -> bytes: ...


def write_index(result: Listed) -> bytes:
    """The index of a pack, byte for byte as git writes it."""
    fanout = array("I", accumulate(_counts(result.oids)))
    small, large = array("I"), array("Q")
    if not result.offsets or max(result.offsets) < _LARGE:
        small = array("I", iter(result.offsets))
    else:
        for offset in result.offsets:
            small.append(offset if offset < _LARGE else _LARGE | len(large))
            if offset >= _LARGE:
                large.append(offset)
    parts = [
        MAGIC + VERSION.to_bytes(4, "big"),
        _big_endian(fanout),
        result.oids,
        _big_endian(result.crcs),
        _big_endian(small),
        _big_endian(large),
        result.checksum,
    ]
    digest = hashlib.sha1(usedforsecurity=False)
    for part in parts:
        digest.update(part)
    return b"".join((*parts, digest.digest()))


def _counts(oids: bytes) -> list[int]:
    """How many of them begin with each byte."""
    counts = Counter(oids[::OID_BYTES])
    return [counts[byte] for byte in range(256)]


def _big_endian(column: array[int]) -> bytes:
    if sys.byteorder == "little":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()


def _level(oids: bytes) -> Iterator[int]:
    """The rows whose oid does not begin with a greater number than the one before: hardly any where all is in order.

    They are compared as 32-bit numbers first, in bulk, for an index is checked before the first read from its pack; not
    all at once, for nothing else runs meanwhile.
    """
    words = array("I", oids)[:: OID_BYTES // 4]
    if sys.byteorder == "little":
        words.byteswap()
    for start in range(0, len(words) - 1, _TOGETHER):
        some = words[start : start + _TOGETHER + 1]
        yield from compress(range(start + 1, start + len(some)), map(operator.ge, some, islice(some, 1, None)))


class Index:
    """An index that has been read: where each object of a pack begins.

    Rows are in the order of the oids; the methods that take a row count from 0.
    """

    def __init__(self, data: memoryview, fanout: array[int], large: int) -> None:
        count = fanout[255]
        self._fanout = fanout
        self._oids = data[_HEAD : _HEAD + count * OID_BYTES]
        at = _HEAD + count * OID_BYTES
        self._crcs = data[at : at + count * 4]
        at += count * 4
        self._small = data[at : at + count * 4]
        at += count * 4
        self._large = data[at : at + large * 8]
        self._whole = data.obj if isinstance(data.obj, bytes) and data.nbytes == len(data.obj) else None
        self._in_order: array[int] | None = None
        self.pack_checksum = bytes(data[-_TRAILER:-OID_BYTES])
        """The 20 bytes that end the pack which this index is of."""

    @classmethod
    def parse(cls, data: bytes | memoryview, verify: bool = True) -> Index:
        """Reads an index; `data` is kept, not copied.

        With `verify` its checksum and the order of its oids are checked too, once over all of it. What every later
        access relies on is checked always. Raises BadIndex.
        """
        view = memoryview(data)
        if len(view) < _HEAD + _TRAILER:
            raise BadIndex(f"an index of {len(view)} bytes is cut short")
        if view[:4] != MAGIC:
            raise BadIndex("an index of version 1, or none: it lacks the signature")
        version = int.from_bytes(view[4:8], "big")
        if version != VERSION:
            raise BadIndex(f"an index of version {version}; {VERSION} is known")
        fanout = array("I", bytes(view[8:_HEAD]))
        if sys.byteorder == "little":
            fanout.byteswap()
        if any(a > b for a, b in pairwise(fanout)):
            raise BadIndex("the fan-out table of an index goes down")
        count = fanout[255]
        large, odd = divmod(len(view) - _HEAD - _TRAILER - count * (OID_BYTES + 8), 8)
        if odd or not 0 <= large <= count:
            raise BadIndex(f"an index of {count} objects cannot have {len(view)} bytes")
        if verify:
            if hashlib.sha1(view[:-OID_BYTES], usedforsecurity=False).digest() != view[-OID_BYTES:]:
                raise BadIndex("the checksum of an index does not match its bytes")
            oids = bytes(view[_HEAD : _HEAD + count * OID_BYTES])
            for row in _level(oids):
                at = row * OID_BYTES
                if oids[at : at + OID_BYTES] < oids[at - OID_BYTES : at]:
                    raise BadIndex(f"the oids of an index are out of order at row {row}")
            # They are in order, so the ends of each range tell of all between.
            for byte, (low, high) in enumerate(pairwise((0, *fanout))):
                if low < high and not oids[low * OID_BYTES] == oids[(high - 1) * OID_BYTES] == byte:
                    raise BadIndex("the fan-out table of an index does not match its oids")
        return cls(view, fanout, large)

    def __len__(self) -> int:
        return self._fanout[255]

    def __contains__(self, oid: bytes) -> bool:
        return self.row(oid) is not None

    def _lower(self, oid: bytes) -> int:
        """The first row whose oid is not less than `oid` (which may be the beginning of one)."""
        first = oid[0] if oid else 0
        low, high = self._fanout[first - 1] if first else 0, self._fanout[first]
        oids = self._oids
        while low < high:
            middle = (low + high) >> 1
            if oids[middle * OID_BYTES : (middle + 1) * OID_BYTES].tobytes() < oid:
                low = middle + 1
            else:
                high = middle
        return low

    def row(self, oid: bytes) -> int | None:
        whole = self._whole
        if whole is None:
            row = self._lower(oid)
            return row if row < len(self) and self._oids[row * OID_BYTES : (row + 1) * OID_BYTES] == oid else None
        first = oid[0]
        low, high = self._fanout[first - 1] if first else 0, self._fanout[first]
        while high - low > _SEARCHED:
            middle = (low + high) >> 1
            if whole[_HEAD + middle * OID_BYTES : _HEAD + (middle + 1) * OID_BYTES] <= oid:
                low = middle
            else:
                high = middle
        # In a few kilobytes the search of bytes is quicker than halving; a hit may begin inside an oid.
        end = _HEAD + high * OID_BYTES
        at = whole.find(oid, _HEAD + low * OID_BYTES, end)
        while at >= 0:
            row, odd = divmod(at - _HEAD, OID_BYTES)
            if not odd:
                return row
            at = whole.find(oid, at + 1, end)
        return None

    def lacking(self, oids: bytes) -> bytes:
        """Those of `oids` (20 bytes each, in order, each once) that are not here.

        Where many are asked for, each range of the fan-out is looked at as a whole.
        """
        count = len(oids) // OID_BYTES
        if count * _SPARSE < len(self):
            return b"".join([oid for (oid,) in _apart(oids) if self.row(oid) is None])
        found = bytearray()
        start = low = 0
        for high, wanted in zip(self._fanout, _counts(oids), strict=True):
            end = start + wanted
            if wanted:
                here = set(_apart(self._oids[low * OID_BYTES : high * OID_BYTES]))
                some = oids[start * OID_BYTES : end * OID_BYTES]
                found += b"".join([row[0] for row in _apart(some) if row not in here])
            start, low = end, high
        return bytes(found)

    def find(self, oid: bytes) -> int | None:
        """The offset of the object's entry in the pack, None when it is not in it."""
        row = self.row(oid)
        return None if row is None else self.offset(row)

    def oid(self, row: int) -> bytes:
        return self._oids[row * OID_BYTES : (row + 1) * OID_BYTES].tobytes()

    def crc(self, row: int) -> int:
        """CRC-32 of the entry as it lies in the pack."""
        return int.from_bytes(self._crcs[row * 4 : row * 4 + 4], "big")

    def crcs(self) -> array[int]:
        """array('I') of all of them, in the order of the oids."""
        crcs = array("I", bytes(self._crcs))
        if sys.byteorder == "little":
            crcs.byteswap()
        return crcs

    def offset(self, row: int) -> int:
        offset = int.from_bytes(self._small[row * 4 : row * 4 + 4], "big")
        if offset < _LARGE:
            return offset
        at = (offset - _LARGE) * 8
        if at + 8 > len(self._large):
            raise BadIndex(f"row {row} of an index points beyond its table of large offsets")
        return int.from_bytes(self._large[at : at + 8], "big")

    def prefix(self, digits: str, limit: int) -> list[bytes]:
        """At most `limit` oids that begin with these hex digits, in order. Raises ValueError on other characters."""
        odd = len(digits) & 1
        low = bytes.fromhex(digits + "0" * odd)
        high = bytes.fromhex(digits + "f" * odd)
        found: list[bytes] = []
        row = self._lower(low) if low else 0
        while row < len(self) and len(found) < limit:
            oid = self.oid(row)
            if oid[: len(high)] > high:
                break
            if not found or oid != found[-1]:
                found.append(oid)
            row += 1
        return found

    def oids(self) -> Iterator[bytes]:
        """All oids, in order."""
        for row in range(len(self)):
            yield self.oid(row)

    def offsets(self) -> array[int]:
        """array('Q') of the offsets, in the order of the oids."""
        return array("Q", map(self.offset, range(len(self))))

    @property
    def ordered(self) -> bool:
        """Whether `offsets_in_order` has been computed."""
        return self._in_order is not None

    def offsets_in_order(self) -> array[int]:
        """array('Q') of the offsets, ascending: where each entry of the pack begins. Computed once."""
        if self._in_order is None:
            if len(self._large):
                self._in_order = array("Q", sorted(self.offsets()))
            else:
                small = array("I", bytes(self._small))
                if sys.byteorder == "little":
                    small.byteswap()
                self._in_order = array("Q", sorted(small))
        return self._in_order

    def entry_end(self, offset: int, pack_bytes: int) -> int:
        """Where the entry that begins at `offset` ends at the latest, in a pack of `pack_bytes` bytes."""
        offsets = self.offsets_in_order()
        at = bisect_right(offsets, offset)
        return offsets[at] if at < len(offsets) else pack_bytes - OID_BYTES
