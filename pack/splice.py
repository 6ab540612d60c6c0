"""Joining packs into one without inflating their objects (gitformat-pack(5)), without IO: bytes in, bytes out.

Strategy: the entries of all packs are copied in their order, and of an object that comes several times the first entry
stays. What follows a dropped entry moves, so the distance between an OFS delta and its base is written anew where it
has changed; as a base always stands before its delta in the output, the offset of the one is known when the other is
written, and one pass is enough.

Rules:
- No object is in the result twice: git refuses a clone in which one is.
- A delta whose base was dropped is based on the entry that stayed: the same bytes, for the oid is the same.
- A REF delta becomes an OFS delta, unless its base comes later in the same pack; it stays as it is then. What a pack
  was completed with (`pack.thin`) is an entry like others, and goes where an earlier pack has the object.
- So a base stands earlier in the output, or in the same pack as before. Chains can therefore not run in circles, which
  they could if any entry of an object were as good as another: two packs may hold two objects as deltas of each other.
- Taking another entry of a base can make chains longer. One that is longer than git writes any is LimitExceeded.
- The CRC-32 of every entry is compared with its index on the way: damage is not copied.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from pack.entry import HEADER_BYTES, Header, parse_header, write_distance, write_header
from pack.errors import LimitExceeded, MissingBase, PackError
from pack.index import Index
from pack.inflate import crc32
from pack.objects import OFS_DELTA, OID_BYTES, REF_DELTA, TYPE_NAMES
from pack.oidsort import oid_order
from pack.writer import pack_header

HEAD = 12
DEPTH = 4_095
_WHOLE = 1 << 20
"""An entry up to this size is waited for; a larger one goes through as it comes."""
_LATE = 0xFFFF
"""The depth of a delta whose base has not come yet."""


@dataclass(frozen=True, slots=True)
class Part:
    """A pack that is to be joined: its entries in the order of the pack, all of them.

    oids 20 bytes each; offsets array('Q') and crcs array('I'); `end` is where the entries end, and the trailer begins.
    """

    oids: bytes
    offsets: array[int]
    crcs: array[int]
    end: int

    @classmethod
    def of(cls, index: Index, size: int) -> Part:
        """The part that a pack of `size` bytes is, when its index lists every entry: none comes twice in it."""
        offsets, crcs, oids = index.offsets(), index.crcs(), b"".join(index.oids())
        rows = sorted(range(len(index)), key=offsets.__getitem__)
        return cls(
            b"".join([oids[row * OID_BYTES : (row + 1) * OID_BYTES] for row in rows]),
            array("Q", map(offsets.__getitem__, rows)),
            array("I", map(crcs.__getitem__, rows)),
            size - OID_BYTES,
        )


@dataclass(frozen=True, slots=True)
class Spliced:
    """The joined pack: `count` objects, sorted by oid, each once; what `write_index` and a sink want to know of it."""

    oids: bytes
    offsets: array[int]
    crcs: array[int]
    checksum: bytes
    count: int
    own_objects: int
    own_end: int
    tail: bytes = b""
    header: bytes | None = None


class Splicer:
    """Takes the bytes [12, end) of each part, one part after the other, and gives the bytes of the joined pack.

    The pack is `header`, what the calls of `feed` return, and the checksum of what `finish` returns. PackError and its
    kinds, with `part` (from 0) and `offset`, when a part is not what its index says; the splicer is of no use then.
    """

    def __init__(self, parts: Sequence[Part], *, depth: int = DEPTH) -> None:
        self._parts = list(parts)
        self._depth = min(depth, _LATE - 1)
        self._oids = b"".join(part.oids for part in parts)
        self._sorted, self._rows = oid_order(self._oids)
        count = len(self._oids) // OID_BYTES
        self._keep = bytearray(count)
        for row in self._rows:
            self._keep[row] = 1
        self._crcs = array("I")
        for part in parts:
            self._crcs += part.crcs
        self._out = array("Q", bytes(8 * count))  # where an entry begins in the output; 0: not there (yet)
        self._depths = array("H", bytes(2 * count))
        self._late: dict[int, int] = {}  # deltas of this part whose depth is not known yet, and their bases
        self.count = len(self._rows)
        """Objects of the joined pack."""
        self.header = pack_header(self.count)
        self.size = HEAD
        """Bytes of the joined pack so far."""
        self._hash = hashlib.sha1(self.header, usedforsecurity=False)
        self._number = -1  # of the part that comes
        self._first = 0  # row of its first entry
        self._next = 0  # entry of the part that comes next
        self._at = 0  # offset in the part of the first byte that was not used yet
        self._pending: list[bytes | memoryview] = []
        self._have = 0
        self._need = 0
        # The middle of a large entry: bytes left, whether they are kept, CRC-32 as it was and as it becomes.
        self._left = 0
        self._kept = False
        self._crc = self._new_crc = 0
        self._enter()

    def feed(self, chunk: bytes | memoryview) -> bytes:
        """The next bytes of the part at hand; what they come to in the output. Large chunks are quick."""
        self._pending.append(chunk)
        self._have += len(chunk)
        if self._number == len(self._parts) and self._have:
            raise ValueError("more bytes than the parts have")
        if self._have < self._need:
            return b""
        data = memoryview(chunk if len(self._pending) == 1 else b"".join(self._pending))
        if self._at + len(data) > self._parts[self._number].end:
            raise ValueError("more bytes than the part has")
        pieces: list[bytes | memoryview] = []
        used = self._stream(data, 0, pieces) if self._left else 0
        if not self._left:
            used = self._entries(data, used, pieces)
        self._at += used
        rest = data[used:]
        self._pending, self._have = ([rest], len(rest)) if rest else ([], 0)
        out = b"".join(pieces)
        self._hash.update(out)
        if self._next == len(self._parts[self._number].offsets) and not self._left:
            self._settle()
            self._enter()
        return out

    def finish(self) -> Spliced:
        """The columns of the joined pack. PackError where bytes of a part are missing."""
        if self._number < len(self._parts):
            raise PackError(f"part {self._number} ends early", part=self._number, offset=self._at + self._have)
        rows = self._rows
        return Spliced(
            oids=self._sorted,
            offsets=array("Q", map(self._out.__getitem__, rows)),
            crcs=array("I", map(self._crcs.__getitem__, rows)),
            checksum=self._hash.digest(),
            count=self.count,
            own_objects=self.count,
            own_end=self.size,
        )

    def _enter(self) -> None:
        """Go on to the next part that has entries."""
        while True:
            if self._number >= 0:
                self._first += len(self._parts[self._number].offsets)
            self._number += 1
            if self._number == len(self._parts):
                return
            part = self._parts[self._number]
            if len(part.offsets):
                break
        self._next, self._at, self._need = 0, HEAD, 1
        if part.offsets[0] != HEAD:
            raise self._wrong("the first entry does not follow the header", part.offsets[0])

    def _entries(self, data: memoryview, used: int, pieces: list[bytes | memoryview]) -> int:
        """All entries that are whole in `data`, from `used` on; returns where they end."""
        part, first, keep, out, crcs = self._parts[self._number], self._first, self._keep, self._out, self._crcs
        offsets, base, size, position = part.offsets, self._at, len(data), self.size
        run = -1  # where bytes begin that go out as they are, and have not yet
        number, last = self._next, len(offsets) - 1
        self._need = 1
        while number <= last:
            start = offsets[number] - base
            end = (offsets[number + 1] if number < last else part.end) - base
            if end <= start:
                raise self._wrong("its index lists an entry of no bytes", offsets[number])
            row = first + number
            if end > size:
                if end - start > _WHOLE and size - start >= HEADER_BYTES:
                    self.size = position
                    if run >= 0:
                        pieces.append(data[run:start])
                    return self._begin(data, start, end, number, pieces)
                self._need = HEADER_BYTES if end - start > _WHOLE else end - start
                break
            raw = data[start:end]
            if crc32(raw) != crcs[row]:
                raise self._wrong("an entry has another CRC-32 than its index says", offsets[number])
            if not keep[row]:
                if run >= 0:
                    pieces.append(data[run:start])
                    run = -1
            else:
                kind = raw[0] >> 4 & 7
                out[row] = position
                if run < 0:
                    run = start
                if kind >= OFS_DELTA:
                    head, skip = self._head(raw, number, position)
                    if head:
                        if run < start:
                            pieces.append(data[run:start])
                        pieces.append(head)
                        run = start + skip
                        crcs[row] = crc32(raw[skip:], crc32(head))
                        position += len(head) - skip
                elif kind not in TYPE_NAMES:
                    raise self._wrong(f"an entry has the type {kind}, which is none", offsets[number])
                position += end - start
            used = end
            number += 1
        if run >= 0:
            pieces.append(data[run:used])
        self._next, self.size = number, position
        return used

    def _begin(self, data: memoryview, start: int, end: int, number: int, pieces: list[bytes | memoryview]) -> int:
        """A large entry whose end is not there yet."""
        row = self._first + number
        self._kept = bool(self._keep[row])
        self._crc = self._new_crc = 0
        self._left = end - start
        self._next = number + 1
        if self._kept:
            self._out[row] = self.size
            if data[start] >> 4 & 7 >= OFS_DELTA:
                head, skip = self._head(data[start : start + HEADER_BYTES], number, self.size)
                if head:
                    pieces.append(head)
                    self.size += len(head)
                    self._crc, self._new_crc = crc32(data[start : start + skip]), crc32(head)
                    self._left -= skip
                    start += skip
        return self._stream(data, start, pieces)

    def _stream(self, data: memoryview, at: int, pieces: list[bytes | memoryview]) -> int:
        """More of a large entry; returns how far it goes in `data`."""
        piece = data[at : at + self._left]
        self._crc = crc32(piece, self._crc)
        self._left -= len(piece)
        if self._kept:
            self._new_crc = crc32(piece, self._new_crc)
            pieces.append(piece)
            self.size += len(piece)
        if not self._left:
            row = self._first + self._next - 1
            if self._crc != self._crcs[row]:
                offset = self._parts[self._number].offsets[self._next - 1]
                raise self._wrong("an entry has another CRC-32 than its index says", offset)
            if self._kept:
                self._crcs[row] = self._new_crc
        return at + len(piece)

    def _head(self, raw: memoryview, number: int, position: int) -> tuple[bytes, int]:
        """The header that a delta has in the output, and the bytes of the one it had; empty where they are the same."""
        offset = self._parts[self._number].offsets[number]
        header = parse_header(raw, 0)
        if header is None:
            raise self._wrong("an entry's header is cut short", offset)
        row, base = self._first + number, self._base(header, offset)
        if base == row:
            raise self._wrong("a delta names itself as its base", offset)
        if not self._out[base]:
            self._depths[row] = _LATE
            self._late[row] = base
            return b"", 0
        depth = self._depths[base]
        if depth == _LATE:
            self._late[row] = base
        elif depth >= self._depth:
            raise LimitExceeded(f"a chain of deltas would be longer than {self._depth}", part=self._number)
        else:
            depth += 1
        self._depths[row] = depth
        back = position - self._out[base]
        if back == header.back:
            return b"", 0
        return write_header(OFS_DELTA, header.size) + write_distance(back), header.end

    def _base(self, header: Header, offset: int) -> int:
        """The row of the entry that stayed of a delta's base."""
        if header.kind == REF_DELTA:
            row = self._row(header.base)
            if row is None or row >= self._first + len(self._parts[self._number].offsets):
                error = MissingBase(f"the base {header.base.hex()} of a delta is not in its pack")
                error.extra |= {"part": self._number, "offset": offset}
                raise error
            return row
        offsets = self._parts[self._number].offsets
        number = bisect_left(offsets, offset - header.back)
        if not header.back or number == len(offsets) or offsets[number] != offset - header.back:
            raise self._wrong("a delta has its base where no entry begins", offset)
        row = self._first + number
        if self._keep[row]:
            return row
        kept = self._row(self._oids[row * OID_BYTES : (row + 1) * OID_BYTES])
        assert kept is not None
        return kept

    def _row(self, oid: bytes) -> int | None:
        low, high = 0, self.count
        oids = self._sorted
        while low < high:
            middle = (low + high) >> 1
            if oids[middle * OID_BYTES : (middle + 1) * OID_BYTES] < oid:
                low = middle + 1
            else:
                high = middle
        if low < self.count and oids[low * OID_BYTES : (low + 1) * OID_BYTES] == oid:
            return self._rows[low]
        return None

    def _settle(self) -> None:
        """The depths that were not known while the part came."""
        for row in self._late:
            chain = []
            at = row
            while self._depths[at] == _LATE:
                chain.append(at)
                at = self._late[at]
                if len(chain) > self._depth or at == row:
                    raise LimitExceeded(f"a chain of deltas would be longer than {self._depth}", part=self._number)
            depth = self._depths[at]
            while chain:
                depth += 1
                self._depths[chain.pop()] = depth
            if depth > self._depth:
                raise LimitExceeded(f"a chain of deltas would be longer than {self._depth}", part=self._number)
        self._late = {}

    def _wrong(self, what: str, offset: int) -> PackError:
        return PackError(f"{what} (part {self._number}, offset {offset})", part=self._number, offset=offset)
