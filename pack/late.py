"""Deltas whose base was not at hand when they came.

Their base left the cache, comes later in the pack, or is not in the pack at all. What is needed again is read from
where the caller has put the pack; nothing recurses, and a chain that is longer than the limit is refused.

A base that left the cache is made again at once, while the pack still comes and time costs little, as long as that
stays in proportion to the work that the pack asks for anyway. Of any other delta only numbers are kept: which row
waits for which row or oid, as linked lists in arrays. When the pack is there they are settled base by base, each tree
of deltas depth first, so that a base is made once for all that wait for it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator

from pack.basecache import Base, BaseCache
from pack.columns import NONE, Columns
from pack.delta import apply_delta
from pack.entry import Header, parse_header
from pack.errors import LimitExceeded, MissingBase, PackError
from pack.faults import located
from pack.inflate import ZlibError, crc32, decompressobj
from pack.limits import UNLIMITED, Limits
from pack.objects import OID_BYTES
from pack.objects import hash_object as plain_hash
from pack.writer import whole_entry

ReadBack = Callable[[int, int], bytes]
OnObject = Callable[[int, bytes, int, bytes], None]
FindBase = Callable[[bytes], tuple[int, bytes] | None]
HashObject = Callable[[int, bytes], bytes]

_PIECE = 1 << 16
_HOPS = 64
"""A base is made again at once only over so many deltas,"""
_HOP_BYTES = 4096
"""each charged like so many bytes beside its own,"""
_REMADE_FREE = 16 << 20
"""and while all that was made again is less than half of all that was made, these bytes aside."""


class OidTable:
    """Numbers by oid: open addressing over two columns, for there may be millions."""

    def __init__(self) -> None:
        self._oids = bytearray()
        self._values = array("I")
        self._slots = array("I", [NONE]) * 64

    def __len__(self) -> int:
        return len(self._values)

    def _slot(self, oid: bytes) -> int:
        # hash() is seeded per process, so nobody can choose oids that collide.
        mask = len(self._slots) - 1
        slot = hash(oid) & mask
        while (at := self._slots[slot]) != NONE and self._oids[at * OID_BYTES : (at + 1) * OID_BYTES] != oid:
            slot = slot + 1 & mask
        return slot

    def get(self, oid: bytes) -> int:
        """The number of that oid, or NONE."""
        at = self._slots[self._slot(oid)]
        return NONE if at == NONE else self._values[at]

    def set(self, oid: bytes, value: int) -> None:
        slot = self._slot(oid)
        at = self._slots[slot]
        if at != NONE:
            self._values[at] = value
            return
        self._slots[slot] = len(self._values)
        self._values.append(value)
        self._oids += oid
        if len(self._values) * 2 > len(self._slots):
            self._slots = array("I", [NONE]) * (len(self._slots) * 2)
            for number in range(len(self._values)):
                self._slots[self._slot(self._key(number))] = number

    def _key(self, number: int) -> bytes:
        return bytes(self._oids[number * OID_BYTES : (number + 1) * OID_BYTES])

    def items(self) -> Iterator[tuple[bytes, int]]:
        """In the order in which the oids were set first."""
        for number in range(len(self._values)):
            yield self._key(number), self._values[number]


class LateDeltas:
    """The deltas of one pack that wait, and how they are settled."""

    def __init__(
        self,
        columns: Columns,
        cache: BaseCache,
        *,
        read_back: ReadBack,
        on_object: OnObject | None,
        limits: Limits,
        deadline: Callable[[], None] | None,
        hash_object: HashObject | None,
    ) -> None:
        self.resolved_bytes = 0
        self._columns = columns
        self._cache = cache
        self._read_back = read_back
        self._on_object = on_object
        self._deadline = deadline
        self._hash_object = hash_object or plain_hash
        self._find_base: FindBase | None = None
        self._limits = limits
        self._max_object = UNLIMITED if limits.object_bytes is None else limits.object_bytes
        self._max_depth = UNLIMITED if limits.delta_depth is None else limits.delta_depth
        self._max_resolved = UNLIMITED if limits.resolved_bytes is None else limits.resolved_bytes
        self._end = 0  # of the entries that came in the stream
        self._own = 0  # how many they are
        self._remade = 0
        # Pairs (waiting row, row of its base) as they come; lists are made of them at the end.
        self._rows = array("I")
        self._row_bases = array("I")
        # Rows that wait for an oid: the first one by oid, the others linked.
        self._by_oid = OidTable()
        self._oid_rows = array("I")
        self._oid_next = array("I")
        # Heads by row of the base, and the next of each pair; filled by settle_all.
        self._heads = array("I")
        self._row_next = array("I")

    def __len__(self) -> int:
        return len(self._rows) + len(self._oid_rows)

    def remake(self, row: int, end: int) -> Base | None:
        """The object of a row that left the cache, made again if that is cheap; `end`: where the entries end so far."""
        columns = self._columns
        if not columns.kinds[row]:
            return None
        cost, at = 0, row
        for _ in range(_HOPS):
            cost += columns.sizes[at] + _HOP_BYTES
            base = columns.bases[at]
            if base == NONE or columns.offsets[base] in self._cache.entries:
                break
            at = base
        else:
            return None
        if self._remade + cost > _REMADE_FREE + self.resolved_bytes // 2:
            return None
        self._remade += cost
        self._end, self._own = end, len(columns)
        made = self._fetch(row)
        self._cache.put(columns.offsets[row], made)
        return made

    def wait_for_row(self, row: int, base: int) -> None:
        self._rows.append(row)
        self._row_bases.append(base)

    def wait_for_oid(self, row: int, oid: bytes) -> None:
        self._oid_next.append(self._by_oid.get(oid))
        self._by_oid.set(oid, len(self._oid_rows))
        self._oid_rows.append(row)

    def settle_all(self, end: int, find_base: FindBase | None) -> bytes:
        """Makes objects of all that wait; `end` is where the pack's own entries end.

        Returns the entries to append there, of bases that only `find_base` knew. Raises MissingBase when one is
        nowhere, a base that waits for itself included.
        """
        if not len(self):
            return b""
        columns = self._columns
        self._end, self._own, self._find_base = end, len(columns), find_base
        self._heads = array("I", [NONE]) * len(columns)
        for pair, base in enumerate(self._row_bases):
            self._row_next.append(self._heads[base])
            self._heads[base] = pair
        for row in range(len(columns)):
            # What this settles has had its own waiting ones settled too: their heads are gone.
            if columns.kinds[row] and self._awaited(row):
                self._settle_tree(row)
        tail = self._append_bases() if find_base is not None else b""
        row = columns.kinds.find(0)
        if row >= 0:
            raise self._missing(row)
        return tail

    def _awaited(self, row: int) -> bool:
        if row < len(self._heads) and self._heads[row] != NONE:
            return True
        return len(self._by_oid) > 0 and self._by_oid.get(self._columns.oid(row)) != NONE

    def _take(self, row: int) -> Iterator[int]:
        """The rows that wait for this one, each given once."""
        if row < len(self._heads):
            pair, self._heads[row] = self._heads[row], NONE
            while pair != NONE:
                yield self._rows[pair]
                pair = self._row_next[pair]
        if len(self._by_oid):
            oid = self._columns.oid(row)
            at = self._by_oid.get(oid)
            if at != NONE:
                self._by_oid.set(oid, NONE)
            while at != NONE:
                yield self._oid_rows[at]
                at = self._oid_next[at]

    def _settle_tree(self, root: int) -> None:
        """All that waits for `root`, and for what that makes, and so on."""
        stack = array("I", [root])
        hand: Base | None = None
        while stack:
            base = hand if hand is not None and hand[0] == stack[-1] else self._fetch(stack[-1])
            hand = None
            stack.pop()
            for row in self._take(base[0]):
                offset = self._columns.offsets[row]
                try:
                    made = self._make(row, base)
                    _, kind, _, oid, data = made
                    self._columns.settle(row, kind, len(data), oid, base[0])
                except PackError as error:
                    raise located(error, row, offset) from error.__cause__
                if self._on_object is not None:
                    self._on_object(kind, oid, offset, data)
                if self._awaited(row):
                    # The last of them is next: it goes from hand to hand, for it may be too large to be remembered.
                    self._cache.put(offset, made)
                    stack.append(row)
                    hand = made

    def _make(self, row: int, base: Base, oid: bytes | None = None) -> Base:
        """The object of a delta's row, with its base at hand; hashed unless its oid is known."""
        depth = base[2] + 1
        if depth > self._max_depth:
            raise LimitExceeded(f"its chain of deltas is longer than the limit of {self._max_depth}")
        data = apply_delta(base[4], self._inflate(row), self._max_object)
        self._charge(len(data))
        return row, base[1], depth, oid or self._hash_object(base[1], data), data

    def _charge(self, size: int) -> None:
        self.resolved_bytes += size
        if self.resolved_bytes > self._max_resolved:
            raise LimitExceeded(f"the objects have more than the limit of {self._max_resolved} bytes")
        if self._deadline is not None:
            self._deadline()

    def _fetch(self, row: int) -> Base:
        """A settled object: from the cache, or made again from the nearest base that is there."""
        columns = self._columns
        chain = array("I")
        while True:
            base = self._cache.get(columns.offsets[row])
            if base is not None:
                break
            if columns.bases[row] == NONE:
                base = self._whole(row)
                break
            chain.append(row)
            row = columns.bases[row]
        while chain:
            self._cache.put(columns.offsets[row], base)
            row = chain.pop()
            try:
                base = self._make(row, base, columns.oid(row))
            except PackError as error:
                raise located(error, row, columns.offsets[row]) from error.__cause__
        return base

    def _whole(self, row: int) -> Base:
        kind, oid = self._columns.kinds[row], self._columns.oid(row)
        if row < self._own:
            data = self._inflate(row)
        else:
            found = self._find_base(oid) if self._find_base is not None else None
            if found is None:
                raise MissingBase(f"the base {oid.hex()} was there and is gone")
            data = found[1]
        self._charge(len(data))
        return row, kind, 0, oid, data

    def _extent(self, row: int) -> tuple[int, int]:
        offsets = self._columns.offsets
        return offsets[row], offsets[row + 1] if row + 1 < self._own else self._end

    def _header(self, row: int) -> tuple[Header, bytes]:
        """An entry's header, and the first piece of it as it lies in the pack."""
        offset, end = self._extent(row)
        piece = self._read_back(offset, min(end - offset, _PIECE))
        header = parse_header(piece, 0)
        if header is None:
            raise PackError("the pack reads back otherwise than it was fed")
        return header, piece

    def _inflate(self, row: int) -> bytes:
        """The inflated body of an entry, from the pack as it was stored. The stream has checked it once."""
        offset, end = self._extent(row)
        header, piece = self._header(row)
        stream = decompressobj()
        crc = crc32(piece)
        at = offset + len(piece)
        try:
            body: bytes = stream.decompress(piece[header.end :], header.size + 1)
            if not stream.eof:
                parts, size = [body], len(body)
                while not stream.eof and at < end and size <= header.size:
                    piece = self._read_back(at, min(end - at, _PIECE))
                    if not piece:
                        break
                    crc = crc32(piece, crc)
                    at += len(piece)
                    parts.append(stream.decompress(piece, header.size - size + 1))
                    size += len(parts[-1])
                body = b"".join(parts)
        except ZlibError as error:
            raise PackError(f"it does not inflate when it is read back: {error}") from error
        if crc != self._columns.crcs[row] or len(body) != header.size or not stream.eof:
            raise PackError("the pack reads back otherwise than it was fed")
        return body

    def _append_bases(self) -> bytes:
        """Completes a thin pack: bases that are not in it become entries after its own."""
        find_base, columns = self._find_base, self._columns
        assert find_base is not None
        tail = bytearray()
        for oid, at in self._by_oid.items():
            if at == NONE or columns.kinds[self._oid_rows[at]]:
                continue
            found = find_base(oid)
            if found is None:
                continue
            kind, data = found
            if self._hash_object(kind, data) != oid:
                raise MissingBase(f"what was found as the base {oid.hex()} is another object")
            entry = whole_entry(kind, data)
            offset = self._end + len(tail)
            tail += entry
            row = columns.add(offset, crc32(entry), kind, len(data), oid, NONE)
            self._cache.put(offset, (row, kind, 0, oid, data))
            if self._on_object is not None:
                self._on_object(kind, oid, offset, data)
            self._settle_tree(row)
        return bytes(tail)

    def _missing(self, row: int) -> MissingBase:
        """What the first delta that nothing settled waits for, in words."""
        offset = self._columns.offsets[row]
        header, _ = self._header(row)
        if header.base:
            error = MissingBase(f"its base {header.base.hex()} is not there", base=header.base.hex())
        else:
            error = MissingBase(f"its base at offset {offset - header.back} waits for a base itself")
        return located(error, row, offset)
