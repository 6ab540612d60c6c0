"""Whole lists as they were encoded, kept for those who ask again: what they are made from never changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from orjson import dumps

from app.reads.base import Batch, Rows, Tally
from app.reads.recent import Recent

# Bytes of one list that is kept, and of all of them.
_EACH: Final = 8 << 20
_ALL: Final = 48 << 20
_BATCH_BYTES: Final = 48 << 10

# Batches, and what the tally counts for them.
_lists: Recent[tuple[list[Batch], int]] = Recent(_ALL)


def kept(key: tuple[object, ...], tally: Tally, rows: Rows) -> Iterator[Batch]:
    """`rows` from their start, or what they gave before under the same `key`, which begins with the repository.

    For a `tally.whole` alone. A list that lacks something is not kept: it may not lack it tomorrow.
    """
    known = _lists.get(key)
    if known is not None and not tally.visits and (tally.max_visits is None or known[1] <= tally.max_visits):
        tally.visit(known[1])
        yield from known[0]
        return
    made: list[Batch] = []
    size = 0
    for batch in _gathered(rows):
        size += len(batch.lines)
        if size <= _EACH:
            made.append(batch)
        yield batch
    if size <= _EACH and not tally.counts:
        _lists.remember(key, (made, tally.visits), size + 500 * len(made) + 500)


def _gathered(rows: Rows) -> Iterator[Batch]:
    """Single rows in batches."""
    lines: list[bytes] = []
    size = 0
    position = None
    for row in rows:
        if isinstance(row, Batch):
            if lines:
                yield Batch(b"\n".join(lines), len(lines), position)
                lines, size = [], 0
            yield row
            continue
        record, position = row
        data = record if isinstance(record, bytes) else dumps(record)
        lines.append(data)
        size += len(data)
        if size > _BATCH_BYTES:
            yield Batch(b"\n".join(lines), len(lines), position)
            lines, size = [], 0
    if lines:
        yield Batch(b"\n".join(lines), len(lines), position)


def configure(max_bytes: int) -> None:
    """Set the bytes of lists that this process keeps."""
    global _lists
    _lists = Recent(max_bytes)


def forget() -> None:
    _lists.clear()
