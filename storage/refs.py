"""The refs table: all refs of a generation, sorted, immutable, read by block.

The file is its blocks, one after the other, and nothing else; where they start and what is first in them stands in the
manifest (`RefsRecord`), so that one ref costs one ranged read however many there are. A block:

    u32                 length of the names
    names               of the refs, sorted by bytes, joined by LF (git-check-ref-format(1): no ref name holds control
                        characters); a symbolic ref is name NUL target
    61 bytes a name     type (1 byte), oid (20), peeled oid (20; zeros where the ref is no annotated tag), the tree that
                        the ref leads to (20; zeros for a blob); tables that were written first lack the tree

Numbers are big-endian. Each block's crc32 stands in the manifest, the table's SHA-256 in its name. Blocks are 16 KB,
and larger where the list of their separators would outgrow its share of the manifest.

What changed since the table was written stands in the manifest itself; `RefsReader` shows both as one.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise

from pack.errors import CorruptData, UpstreamProtocol
from pack.objects import NULL_OID
from pack.view import Ref
from storage.manifest import CHANGES_MAX, Head, RefChange, RefsRecord

BLOCK_BYTES = 16 << 10
INDEX_BYTES_MAX = 16 << 10  # of a manifest's 64 KB
CHANGES_BYTES_MAX = 24 << 10
_ROW = 61
_ROW_BEFORE = 41
_CACHED_BLOCKS = 64

_FORBIDDEN = re.compile(rb"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|^/|/$|^\.|/\.|\.lock(/|$)|\.$")


def valid_name(name: bytes) -> bool:
    """Whether git-check-ref-format(1) takes it as a full ref name (one without a slash only when it is like HEAD)."""
    if not name or name == b"@" or _FORBIDDEN.search(name):
        return False
    return b"/" in name or re.fullmatch(rb"[A-Z_]+", name) is not None


class RefsTable:
    """Writes a table: `data` goes to `record.key`, `record` into the manifest."""

    def __init__(self, refs: Iterable[Ref]) -> None:
        rows = sorted(refs, key=lambda ref: ref.name)
        for row, following in pairwise(rows):
            if row.name == following.name:
                raise UpstreamProtocol(f"The ref {row.name.decode(errors='replace')} comes twice.")
        for row in rows:
            if not valid_name(row.name) or (row.symref_target and not valid_name(row.symref_target)):
                raise UpstreamProtocol(f"{row.name.decode(errors='replace')!r} cannot name a ref.")
        block_bytes = BLOCK_BYTES
        while True:
            blocks = list(_cut(rows, block_bytes))
            if sum(_printed(separator) + 24 for separator, _ in blocks) <= INDEX_BYTES_MAX:
                break
            block_bytes *= 2
        offset = 0
        listed = []
        for separator, data in blocks:
            listed.append((separator, offset, len(data), zlib.crc32(data)))
            offset += len(data)
        self.data = b"".join(data for _, data in blocks)
        key = f"packhouse/refs-{hashlib.sha256(self.data).hexdigest()[:40]}"
        self.record = RefsRecord(key, len(rows), len(self.data), tuple(listed))


def _cut(rows: list[Ref], block_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    start, size, previous = 0, 0, b""
    for end, row in enumerate(rows):
        size += len(row.name) + 1 + _ROW
        if size >= block_bytes or end == len(rows) - 1:
            first = rows[start].name
            yield (_separator(previous, first) if start else b""), _block(rows[start : end + 1])
            start, size, previous = end + 1, 0, row.name


def _separator(before: bytes, first: bytes) -> bytes:
    """The shortest beginning of `first` that is greater than `before`."""
    common = 0
    while common < len(before) and before[common] == first[common]:
        common += 1
    return first[: common + 1]


def _block(rows: list[Ref]) -> bytes:
    names = b"\n".join(row.name + b"\0" + row.symref_target if row.symref_target else row.name for row in rows)
    table = b"".join(bytes((row.type,)) + row.oid + (row.peeled or NULL_OID) + (row.tree or NULL_OID) for row in rows)
    return len(names).to_bytes(4, "big") + names + table


class RefsReader:
    """`pack.view.Refs` over a table and the changes since; `read(offset, length)` reads of the table's file."""

    def __init__(
        self,
        record: RefsRecord | None,
        changes: Mapping[bytes, RefChange],
        head: Head,
        read: Callable[[int, int], bytes],
    ) -> None:
        self._record = record
        self._separators = [separator for separator, *_ in record.blocks] if record else []
        self._changes = changes
        self._changed = sorted(changes)
        self._read = read
        self._blocks: OrderedDict[int, tuple[list[bytes], bytes]] = OrderedDict()
        self.head_target = head.target
        self.head: Ref | None = None
        if head.oid is not None:
            self.head = Ref(b"HEAD", head.oid, head.type, head.peeled, head.target, head.tree)

    def get(self, name: bytes) -> Ref | None:
        """By its full name; touches one block."""
        change = self._changes.get(name)
        if change is not None:
            return _changed_ref(name, change)
        if not self._separators:
            return None
        names, table = self._block(max(0, bisect_right(self._separators, name) - 1))
        place = bisect_left(names, name)
        if place == len(names) or names[place].partition(b"\0")[0] != name:
            return None
        return _table_ref(names, table, place)

    def iterate(self, prefix: bytes = b"", after: bytes | None = None) -> Iterator[Ref]:
        """Those that start with `prefix` and come after `after`, sorted by name bytes; reads only the blocks they are
        in.
        """
        changed = self._changed
        at = (
            bisect_left(changed, prefix)
            if after is None
            else max(bisect_left(changed, prefix), bisect_right(changed, after))
        )
        for ref in self._iterate_table(prefix, after):
            while at < len(changed) and changed[at] < ref.name:
                if not changed[at].startswith(prefix):
                    break
                new = _changed_ref(changed[at], self._changes[changed[at]])
                at += 1
                if new is not None:
                    yield new
            if ref.name not in self._changes:
                yield ref
        while at < len(changed) and changed[at].startswith(prefix):
            new = _changed_ref(changed[at], self._changes[changed[at]])
            at += 1
            if new is not None:
                yield new

    def _iterate_table(self, prefix: bytes, after: bytes | None) -> Iterator[Ref]:
        start = prefix if after is None or after < prefix else after + b"\0"
        first = max(0, bisect_right(self._separators, start) - 1)
        for number in range(first, len(self._separators)):
            if self._separators[number] > prefix and not self._separators[number].startswith(prefix):
                return
            names, table = self._block(number)
            for place in range(bisect_left(names, start), len(names)):
                if not names[place].startswith(prefix):
                    return
                ref = _table_ref(names, table, place)
                if after is None or ref.name > after:
                    yield ref

    def _block(self, number: int) -> tuple[list[bytes], bytes]:
        cached = self._blocks.get(number)
        if cached is not None:
            self._blocks.move_to_end(number)
            return cached
        assert self._record is not None
        _, offset, length, crc = self._record.blocks[number]
        data = self._read(offset, length)
        if len(data) != length or zlib.crc32(data) != crc:
            raise CorruptData(f"Block {number} of the refs table {self._record.key} is damaged.")
        end = 4 + int.from_bytes(data[:4], "big")
        names = data[4:end].split(b"\n")
        if (length - end) not in (_ROW * len(names), _ROW_BEFORE * len(names)):
            raise CorruptData(f"Block {number} of the refs table {self._record.key} is malformed.")
        block = self._blocks[number] = (names, data[end:])
        if len(self._blocks) > _CACHED_BLOCKS:
            self._blocks.popitem(last=False)
        return block


def changes_between(
    old: RefsReader, new: Iterable[Ref], so_far: Mapping[bytes, RefChange]
) -> dict[bytes, RefChange] | None:
    """`so_far` and what turns the refs of `old` (a reader over that table and `so_far`) into `new`.

    None when they are too many for a manifest: then a new table is due.
    """
    changes = dict(so_far)
    size = sum(_cost(name, change) for name, change in changes.items())
    theirs = iter(sorted(new, key=lambda ref: ref.name))
    mine = old.iterate()
    left, right = next(mine, None), next(theirs, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left.name < right.name):
            assert left is not None
            name, change = left.name, RefChange(None)
            left = next(mine, None)
        elif left is None or right.name < left.name:
            name, change = right.name, _change(right)
            right = next(theirs, None)
        else:
            name, change = right.name, _change(right)
            same = left == right
            left, right = next(mine, None), next(theirs, None)
            if same:
                continue
        if name in changes:
            size -= _cost(name, changes[name])
        changes[name] = change
        size += _cost(name, change)
        if len(changes) > CHANGES_MAX or size > CHANGES_BYTES_MAX:
            return None
    return changes


def _change(ref: Ref) -> RefChange:
    return RefChange(ref.oid, ref.type, ref.peeled, ref.symref_target, ref.tree)


def _printed(name: bytes) -> int:
    """How long a name is in the manifest's JSON."""
    return sum(1 if 0x20 < byte < 0x7F and byte != 0x25 else 3 for byte in name)


def _cost(name: bytes, change: RefChange) -> int:
    return (
        _printed(name)
        + 8
        + (0 if change.oid is None else 46)
        + (43 if change.peeled else 0)
        + (43 if change.tree else 0)
        + 3 * len(change.symref_target or b"")
    )


def _changed_ref(name: bytes, change: RefChange) -> Ref | None:
    if change.oid is None:
        return None
    return Ref(name, change.oid, change.type, change.peeled, change.symref_target, change.tree)


def _table_ref(names: list[bytes], table: bytes, place: int) -> Ref:
    row = len(table) // len(names)
    at = place * row
    kind, oid, peeled, tree = table[at], table[at + 1 : at + 21], table[at + 21 : at + 41], table[at + 41 : at + row]
    name, _, target = names[place].partition(b"\0")
    return Ref(name, oid, kind, _known(peeled), target or None, _known(tree))


def _known(oid: bytes) -> bytes | None:
    return oid if oid and oid != NULL_OID else None
