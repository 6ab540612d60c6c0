"""What is known of each object of a pack: columns of numbers, no Python object per entry.

`Columns` has a row per entry in the order of the pack, filled while it streams in. `PackResult` is the same sorted by
oid, each object once, as an index wants it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass

from pack.objects import NULL_OID, OID_BYTES
from pack.oidsort import by_oid

NONE = 0xFFFFFFFF
"""No row."""


class Columns:
    """Rows in pack order.

    offsets  where the entry begins, ascending
    crcs     CRC-32 of the entry as it lies in the pack
    kinds    object type (1 to 4); 0 while a delta waits for its base
    sizes    bytes of the object
    oids     20 bytes each
    bases    row of the delta's base; NONE for a whole object
    """

    def __init__(self) -> None:
        self.offsets = array("Q")
        self.crcs = array("I")
        self.kinds = bytearray()
        self.sizes = array("Q")
        self.oids = bytearray()
        self.bases = array("I")

    def __len__(self) -> int:
        return len(self.offsets)

    def row_at(self, offset: int) -> int | None:
        """The row whose entry begins at `offset`."""
        row = bisect_left(self.offsets, offset)
        return row if row < len(self.offsets) and self.offsets[row] == offset else None

    def oid(self, row: int) -> bytes:
        return bytes(self.oids[row * OID_BYTES : (row + 1) * OID_BYTES])

    def add(self, offset: int, crc: int, kind: int, size: int, oid: bytes, base: int) -> int:
        """A new last row; returns its number."""
        self.offsets.append(offset)
        self.crcs.append(crc)
        self.kinds.append(kind)
        self.sizes.append(size)
        self.oids += oid
        self.bases.append(base)
        return len(self.offsets) - 1

    def wait(self, offset: int, crc: int) -> int:
        """A new last row of a delta that waits for its base."""
        return self.add(offset, crc, 0, 0, NULL_OID, NONE)

    def settle(self, row: int, kind: int, size: int, oid: bytes, base: int) -> None:
        """A delta that waited has become an object."""
        self.kinds[row] = kind
        self.sizes[row] = size
        self.oids[row * OID_BYTES : (row + 1) * OID_BYTES] = oid
        self.bases[row] = base


@dataclass(frozen=True)
class PackResult:
    """A pack that has been read to its end; the columns are sorted by oid, `count` rows, each object once.

    Of an object that the pack holds twice the first entry is listed.

    oids         20 bytes each, one after another
    offsets      array('Q'), crcs array('I'), types array('B') (1 to 4), sizes array('Q'), in the same order
    checksum     the pack's own, as it will be stored
    entries      entries of the pack as it will be stored, duplicates and appended bases included
    own_objects  entries that came in the stream
    own_end      where they end, in bytes: what came after it was the trailer
    tail         what must be written at `own_end` in place of the trailer that came, to complete a thin pack: the
                 bases, and the new trailer; empty when the pack was complete
    header       the 12 bytes that replace the pack's first ones when there is a tail, else None
    """

    oids: bytes
    offsets: array[int]
    crcs: array[int]
    types: array[int]
    sizes: array[int]
    checksum: bytes
    count: int
    entries: int
    own_objects: int
    own_end: int
    tail: bytes = b""
    header: bytes | None = None


def sort_columns(
    columns: Columns,
    *,
    checksum: bytes,
    own_objects: int,
    own_end: int,
    tail: bytes = b"",
    header: bytes | None = None,
) -> PackResult:
    """The rows by oid, as a result. All of them must be settled; the columns are empty afterwards."""
    entries = len(columns)
    columns.bases = array("I")
    oids, (offsets, crcs, sizes, types) = by_oid(
        columns.oids, [columns.offsets, columns.crcs, columns.sizes, columns.kinds], spend=True
    )
    return PackResult(
        oids=oids,
        offsets=offsets,
        crcs=crcs,
        types=types,
        sizes=sizes,
        checksum=checksum,
        count=len(offsets),
        entries=entries,
        own_objects=own_objects,
        own_end=own_end,
        tail=tail,
        header=header,
    )
