"""Reading a pack while it arrives (gitformat-pack(5)), without IO: chunks of any size in, objects out.

Strategy: one pass. Each entry is inflated as its bytes come, and a delta is applied at once when its base is still in
a byte-bounded cache, or can be made again at little cost. Any other (its base comes later in the pack, or is not in
the pack at all) leaves only numbers behind, and is settled at the end, when `pack.late` reads it again from where the
caller has put the pack.

Rules:
- Nothing is looked at twice. Of a chunk's end at most a cut header is kept (30 bytes); an entry that is cut lives on
  in its inflater. Feeding byte by byte is therefore linear too.
- A declared size is a promise to be checked, never a size to allocate.
- Slices given to the inflater are bounded by what the entry probably needs: it copies whatever follows its end.
- Whatever is wrong is a PackError with `object` (number of the entry, from 0) and `offset` (bytes from the start of
  the pack). After it the parser is of no use any more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from io import BytesIO

from pack.basecache import OVERHEAD, BaseCache
from pack.columns import NONE, Columns, PackResult, sort_columns
from pack.delta import apply_delta
from pack.entry import HEADER_BYTES, SIZE_BITS, parse_header
from pack.errors import LimitExceeded, PackChecksumMismatch, PackError, PackTruncated
from pack.faults import located
from pack.inflate import Inflater, ZlibError, crc32, decompressobj
from pack.late import FindBase, HashObject, LateDeltas, OnObject, ReadBack
from pack.limits import UNLIMITED, Limits
from pack.objects import OFS_DELTA, REF_DELTA, TYPE_NAMES
from pack.thin import complete
from pack.writer import SIGNATURE

_HEADER, _ENTRIES, _TRAILER, _END, _REFUSED = range(5)
_PREFIXES = {kind: name + b" %d\0" for kind, name in TYPE_NAMES.items()}
_KIND_BITS = 3
_BIG = 1 << 18
"""Objects of so many bytes are worth a look at the clock."""
_SMALL = 1 << 12
"""Below this, to copy an object behind its header costs less than to hash it in two calls."""
_PIECE = 1 << 14


class _Heads(dict[int, bytes]):
    """What is hashed before an object of a small size, by size and kind."""

    def __missing__(self, key: int) -> bytes:
        head = _PREFIXES[key & (1 << _KIND_BITS) - 1] % (key >> _KIND_BITS)
        if key < _SMALL << _KIND_BITS:
            self[key] = head
        return head


_heads = _Heads()


class StreamParser:
    """Takes a pack apart while it arrives.

    read_back(offset, length)   bytes of the pack that were fed already; the caller stores each chunk BEFORE feeding it
    on_object(type, oid, offset, data)
                                called for each object as it completes, appended bases of a thin pack included
    find_base(oid)              an object outside the pack as (type, data), or None: completes a thin pack
    limits                      see pack.limits
    cache_bytes                 for bases of deltas to come
    deadline()                  called often; raises what it likes when time is up
    hash_object(type, data)     the oid, by a SHA-1 that looks out for collisions; the fast one when None

    `feed` the pack, then `finish`. Both raise PackError or one of its kinds.
    """

    def __init__(
        self,
        *,
        read_back: ReadBack,
        on_object: OnObject | None = None,
        find_base: FindBase | None = None,
        limits: Limits | None = None,
        cache_bytes: int = 64 << 20,
        deadline: Callable[[], None] | None = None,
        hash_object: HashObject | None = None,
    ) -> None:
        self.objects_total: int | None = None
        """Entries that the header announces; None before it has come."""
        self.entries_done = 0
        """Entries that have come whole."""
        self.objects_done = 0
        """Objects that are complete: entries without the deltas that wait."""
        self.bytes_fed = 0
        self.resolved_bytes = 0
        self._limits = limits or Limits()
        self._read_back = read_back
        self._on_object = on_object
        self._find_base = find_base
        self._deadline = deadline
        self._hash_object = hash_object
        self._columns = Columns()
        self._cache = BaseCache(cache_bytes)
        self._late = LateDeltas(
            self._columns,
            self._cache,
            read_back=read_back,
            on_object=on_object,
            limits=self._limits,
            deadline=deadline,
            hash_object=hash_object,
        )
        self._state = _HEADER
        self._rest = b""
        self._offset = 0  # of the first byte of `_rest`
        self._hash = hashlib.sha1(usedforsecurity=False)
        self._checksum = b""
        # The entry that the last chunk cut, if any.
        self._inflater: Inflater | None = None
        self._out = BytesIO()
        self._entry = (0, 0, 0, 0, b"")  # offset, type, declared size, offset of the base, oid of the base
        self._crc = 0
        self._raw_bytes = 0

    def feed(self, chunk: bytes) -> None:
        """The next bytes of the pack, any number of them."""
        if not chunk:
            return
        if self._state == _REFUSED:
            raise PackError("the pack was refused already")
        state, self._state = self._state, _REFUSED
        if self._deadline is not None:
            self._deadline()
        self.bytes_fed += len(chunk)
        if self._limits.pack_bytes is not None and self.bytes_fed > self._limits.pack_bytes:
            raise LimitExceeded(
                f"the pack is longer than the limit of {self._limits.pack_bytes} bytes",
                offset=self._limits.pack_bytes,
                object=len(self._columns),
            )
        kept = len(self._rest)
        data = self._rest + chunk if kept else bytes(chunk)
        at = 0
        if state == _HEADER:
            if len(data) < 12:
                _check_signature(data)
                self._rest, self._state = data, state
                return
            self._begin(data)
            # What was kept of a header has not been hashed yet, what is kept of an entry has.
            at, kept = 12, 0
            state = _ENTRIES
        if state == _ENTRIES:
            at = self._entries(data, at)
            if len(self._columns) < (self.objects_total or 0):
                self._hash.update(memoryview(data)[kept:] if kept else data)
                self._rest = data[at:]
                self._offset += at
                self._state = state
                return
            self._hash.update(memoryview(data)[kept:at])
            self._offset += at
            self._checksum = self._hash.digest()
            data, state = data[at:], _TRAILER
        if state == _TRAILER and len(data) >= 20 and data[:20] != self._checksum:
            raise PackChecksumMismatch(
                f"the pack's bytes hash to {self._checksum.hex()}, its trailer says {data[:20].hex()}",
                offset=self._offset,
            )
        if len(data) > 20:
            raise PackError("the pack goes on after its trailer", offset=self._offset + 20)
        self._rest, self._state = data, _END if len(data) == 20 else _TRAILER

    def recall(self, oid: bytes) -> tuple[int, bytes] | None:
        """(type, data) of an object that came lately, as far as the cache has it still."""
        base = self._cache.find(oid)
        return None if base is None else (base[1], base[4])

    def finish(self) -> PackResult:
        """Settles the deltas that wait, and gives the columns of the whole pack."""
        if self._state == _REFUSED:
            raise PackError("the pack was refused already")
        if self._state != _END:
            total = "its" if self.objects_total is None else self.objects_total
            raise PackTruncated(
                f"the pack ends after {self.bytes_fed} bytes, with {self.entries_done} of {total} objects whole",
                offset=self.bytes_fed,
                object=self.entries_done,
            )
        self._state = _REFUSED
        own_objects, own_end = len(self._columns), self._offset
        late = self._late
        late.resolved_bytes = self.resolved_bytes
        tail = late.settle_all(own_end, self._find_base)
        self.objects_done = len(self._columns)
        self.resolved_bytes = late.resolved_bytes
        self._cache.clear()
        if not tail:
            return sort_columns(self._columns, checksum=self._checksum, own_objects=own_objects, own_end=own_end)
        header, checksum = complete(self._read_back, own_end, tail, len(self._columns), self._deadline)
        return sort_columns(
            self._columns,
            checksum=checksum,
            own_objects=own_objects,
            own_end=own_end,
            tail=tail + checksum,
            header=header,
        )

    def _begin(self, data: bytes) -> None:
        """The pack's own header: signature, version, number of entries."""
        _check_signature(data)
        version = int.from_bytes(data[4:8], "big")
        if version not in (2, 3):
            raise PackError(f"a pack of version {version}; 2 and 3 are known", offset=4)
        total = int.from_bytes(data[8:12], "big")
        if self._limits.objects is not None and total > self._limits.objects:
            raise LimitExceeded(f"the pack announces {total} objects, the limit is {self._limits.objects}", offset=8)
        self.objects_total = total

    def _entries(self, data: bytes, at: int) -> int:
        """Takes entries from `data[at:]`; returns where the first header begins that is cut, or the trailer.

        The hot loop: what it needs is in locals.
        """
        limits, columns, cache, late = self._limits, self._columns, self._cache, self._late
        max_object = UNLIMITED if limits.object_bytes is None else limits.object_bytes
        max_depth = UNLIMITED if limits.delta_depth is None else limits.delta_depth
        max_resolved = UNLIMITED if limits.resolved_bytes is None else limits.resolved_bytes
        max_ratio = UNLIMITED if limits.inflate_ratio is None else limits.inflate_ratio
        ratio_from = limits.inflate_ratio_from
        add_offset, add_crc, add_kind = columns.offsets.append, columns.crcs.append, columns.kinds.append
        add_size, add_base, oids = columns.sizes.append, columns.bases.append, columns.oids
        entries, find_entry, find_oid = cache.entries, cache.entries.get, cache.find
        room, keepable = cache.room, cache.max_bytes - OVERHEAD
        on_object, deadline, hash_object = self._on_object, self._deadline, self._hash_object
        sha1, heads = hashlib.sha1, _heads
        total, row = self.objects_total or 0, len(columns)
        resolved, done = self.resolved_bytes, self.objects_done
        begin, end = self._offset, len(data)
        inflater = self._inflater
        start = begin + at
        try:
            while row < total:
                if inflater is not None:
                    start, kind, size, base_at, base_oid = self._entry
                    p = self._pour(data, at)
                    crc = crc32(memoryview(data)[at : p if p >= 0 else end], self._crc)
                    if p < 0:
                        self._crc = crc
                        at = end
                        break
                    body = self._out.getvalue()
                    self._inflater = inflater = None
                    self._out = BytesIO()
                    raw_bytes = begin + p - start
                else:
                    start = begin + at
                    base_at, base_oid = 0, b""
                    kind = size = 0
                    byte = 0x80
                    if end - at >= HEADER_BYTES:
                        byte = data[at]
                        p = at + 1
                        kind, size = byte >> 4 & 7, byte & 15
                        if byte > 127:
                            byte = data[p]
                            p += 1
                            size |= (byte & 127) << 4
                            shift = 11
                            while byte > 127 and shift < SIZE_BITS - 7:
                                byte = data[p]
                                p += 1
                                size |= (byte & 127) << shift
                                shift += 7
                        if kind == OFS_DELTA and byte < 128:
                            byte = data[p]
                            p += 1
                            back = byte & 127
                            while byte > 127 and back < 1 << 48:
                                byte = data[p]
                                p += 1
                                back = back + 1 << 7 | byte & 127
                            base_at = start - back
                        elif kind == REF_DELTA:
                            base_oid = data[p : p + 20]
                            p += 20
                        elif kind > 4 or kind < 1:
                            byte = 0x80
                    if byte > 127:
                        # Near the chunk's end, or odd: the same again with every check.
                        header = parse_header(data, at)
                        if header is None:
                            break
                        kind, size, back, base_oid, p = header
                        base_at = start - back
                    if size > max_object:
                        raise LimitExceeded(f"it declares {size} bytes, the limit is {max_object}")
                    if kind == OFS_DELTA and not 12 <= base_at < start:
                        raise PackError(f"its base would be at offset {base_at}, where no earlier entry is")
                    # Enough at once for most, little to copy back.
                    piece = data[p : p + (size + 16 if size < 256 else min(size // 2 + 144, _PIECE))]
                    inflater = decompressobj()
                    try:
                        body = inflater.decompress(piece, size + 1)
                    except ZlibError as error:
                        raise PackError(f"it does not inflate: {error}") from error
                    if not inflater.eof:
                        p += len(piece)
                        self._inflater = inflater
                        self._entry = (start, kind, size, base_at, base_oid)
                        self._out.write(body)
                        self._check_out(len(body), begin + p - start)
                        self._crc = crc32(data[at:p])
                        at = p
                        continue
                    p += len(piece) - len(inflater.unused_data)
                    inflater = None
                    crc = crc32(data[at:p])
                    raw_bytes = p - at
                at = p
                if len(body) != size:
                    raise PackError(f"it declares {size} bytes and inflates to {len(body)}{'+' * (len(body) > size)}")
                if size > ratio_from and size > max_ratio * raw_bytes:
                    raise LimitExceeded(f"its {raw_bytes} bytes inflate to {size}, the limit is {max_ratio} to one")

                if kind < OFS_DELTA:
                    depth, base_row = 0, NONE
                else:
                    base = find_entry(base_at) if kind == OFS_DELTA else find_oid(base_oid)
                    if base is None:
                        if kind == OFS_DELTA:
                            base_row = self._base_row(base_at)
                            late.resolved_bytes, cache.room = resolved, room
                            base = late.remake(base_row, start)
                            resolved, room = late.resolved_bytes, cache.room
                            if base is None:
                                late.wait_for_row(row, base_row)
                        else:
                            late.wait_for_oid(row, base_oid)
                        if base is None:
                            columns.wait(start, crc)
                            row += 1
                            continue
                    elif kind == OFS_DELTA:
                        del entries[base_at]  # it was used last
                        entries[base_at] = base
                    base_row, kind, depth, _, base_data = base
                    depth += 1
                    if depth > max_depth:
                        raise LimitExceeded(f"its chain of deltas is longer than the limit of {max_depth}")
                    body = apply_delta(base_data, body, max_object)
                    size = len(body)
                resolved += size
                if resolved > max_resolved:
                    raise LimitExceeded(f"the objects so far have more than the limit of {max_resolved} bytes")
                if size > _BIG and deadline is not None:
                    deadline()
                if hash_object is not None:
                    oid = hash_object(kind, body)
                elif size < _SMALL:
                    oid = sha1(heads[size << _KIND_BITS | kind] + body, usedforsecurity=False).digest()
                else:
                    digest = sha1(heads[size << _KIND_BITS | kind], usedforsecurity=False)
                    digest.update(body)
                    oid = digest.digest()
                add_offset(start)
                add_crc(crc)
                add_kind(kind)
                add_size(size)
                add_base(base_row)
                oids += oid
                if size <= keepable:
                    entries[start] = (row, kind, depth, oid, body)
                    if cache.by_oid is not None:
                        cache.by_oid[oid] = start
                    room -= size + OVERHEAD
                    if room < 0:
                        cache.room = room
                        cache.evict()
                        room = cache.room
                if on_object is not None:
                    on_object(kind, oid, start, body)
                row += 1
                done += 1
        except PackError as error:
            raise located(error, row, start) from error.__cause__
        self.resolved_bytes, self.objects_done, self.entries_done = resolved, done, row
        cache.room = room
        return at

    def _pour(self, data: bytes, at: int) -> int:
        """Goes on inflating the entry that was cut; returns where it ends, or -1 when all of `data` belongs to it."""
        inflater, out = self._inflater, self._out
        assert inflater is not None
        start, _, size, _, _ = self._entry
        end, got = len(data), out.tell()
        view = memoryview(data)
        while at < end:
            piece = view[at : at + _PIECE]
            try:
                more = inflater.decompress(piece, size - got + 1)
            except ZlibError as error:
                raise PackError(f"it does not inflate: {error}") from error
            out.write(more)
            got += len(more)
            at += len(piece)
            if inflater.eof:
                return at - len(inflater.unused_data)
            self._check_out(got, self._offset + at - start)
        return -1

    def _check_out(self, got: int, raw_bytes: int) -> None:
        """Bounds what an entry has inflated to so far; its stream has not ended."""
        size, limits = self._entry[2], self._limits
        if got > size:
            raise PackError(f"it declares {size} bytes and inflates to more")
        if limits.inflate_ratio is not None and got > max(limits.inflate_ratio_from, limits.inflate_ratio * raw_bytes):
            raise LimitExceeded(
                f"its first {raw_bytes} bytes inflate to {got}, the limit is {limits.inflate_ratio} to one"
            )

    def _base_row(self, offset: int) -> int:
        row = self._columns.row_at(offset)
        if row is None:
            raise PackError(f"its base would be at offset {offset}, where no entry begins")
        return row


def _check_signature(data: bytes) -> None:
    if data[:4] != SIGNATURE[: len(data)]:
        raise PackError("this is no pack: it does not begin with PACK", offset=0)
