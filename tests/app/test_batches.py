"""Batches of a log that nobody cuts."""

from __future__ import annotations

from app.reads.base import BLOCK_BYTES
from app.reads.log import batches


def test_batches_are_of_about_a_block_and_the_last_one_alone_has_the_position() -> None:
    lines = [b"%d " % number * 300 for number in range(500)]
    found = list(batches(iter(lines), len(lines), "behind"))
    assert b"\n".join(batch.lines for batch in found) == b"\n".join(lines)
    assert sum(batch.number for batch in found) == 500
    assert [batch.position for batch in found] == [None] * (len(found) - 1) + ["behind"]
    assert len(found) > 5
    assert max(len(batch.lines) for batch in found) < 2 * BLOCK_BYTES


def test_a_record_larger_than_a_block_is_a_batch() -> None:
    lines = [b"x" * (3 * BLOCK_BYTES), b"y" * BLOCK_BYTES]
    assert [batch.number for batch in batches(iter(lines), 2, 7)] == [1, 1]
