"""The lines in which one pattern matches, and all its matches there.

Three ways to the same lines: literal text is found byte by byte, where case is ignored and lines are many in a copy of
small letters; a pattern that holds literal text is tried only on lines that hold it; any other runs over the buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from pack.pattern import Pattern, Span

MAX_COLUMNS: Final = 1000
# To find all matches of a line is quadratic in the worst case: this bounds the bytes that one line may have looked at.
_LINE_WORK: Final = 64 << 20
_FEW: Final = 16  # lines of a file from which on a copy in small letters is worth making
_MAX_COPY: Final = 8 << 20

# (start of the line, number of the pattern, end of the line without its newline, the one match or a list of them,
# whether there may be more); matches are offsets into the line.
Line = tuple[int, int, int, "Span | list[Span]", bool]


def lines(pattern: Pattern, number: int, buffer: bytes, pos: int, end: int) -> Iterator[Line]:
    """The lines from `pos`, the start of one, up to `end` where the pattern matches; empty matches have no columns."""
    if pattern.word:
        return _by_word(pattern, number, buffer, pos, end)
    if pattern.needle is not None:
        return _by_literal(pattern.needle, number, buffer, pos, end)
    if pattern.folded is not None:
        return _by_folded(pattern, pattern.folded, number, buffer, pos, end)
    if pattern.part is not None:
        return _by_part(pattern, pattern.part, number, buffer, pos, end)
    return _by_pattern(pattern, number, buffer, pos, end)


def _by_literal(needle: bytes, number: int, buffer: bytes, pos: int, end: int, shift: int = 0) -> Iterator[Line]:
    """`shift` is added to all offsets into the buffer."""
    size = len(needle)
    find = buffer.find
    backwards = buffer.rfind
    left = find(needle, pos, end)
    while left >= 0:
        start = backwards(b"\n", pos, left) + 1 or pos
        pos = find(b"\n", left, end)
        if pos < 0:
            pos = end
        right = left + size
        following = find(needle, right, end)
        if not 0 <= following < pos:
            yield start + shift, number, pos + shift, (left - start, right - start), False
            left = following
            continue
        columns = [(left - start, right - start)]
        cut = False
        left = following
        while 0 <= left < pos:
            if len(columns) == MAX_COLUMNS:
                left = find(needle, pos, end)
                cut = True
                break
            columns.append((left - start, left - start + size))
            left = find(needle, left + size, end)
        yield start + shift, number, pos + shift, columns, cut


def _by_folded(pattern: Pattern, folded: bytes, number: int, buffer: bytes, pos: int, end: int) -> Iterator[Line]:
    found = _by_pattern(pattern, number, buffer, pos, end)
    if end - pos > _MAX_COPY:
        yield from found
        return
    few = 0
    for line in islice(found, _FEW):
        yield line
        few += 1
        pos = line[2] + 1
    if few == _FEW and pos < end:
        yield from _by_literal(folded, number, buffer[pos:end].lower(), 0, end - pos, pos)


def _by_part(pattern: Pattern, part: bytes, number: int, buffer: bytes, pos: int, end: int) -> Iterator[Line]:
    find = pattern.find
    locate = buffer.find
    began, fruitless = pos, 0
    at = locate(part, pos, end)
    while at >= 0:
        start = buffer.rfind(b"\n", pos, at) + 1 or pos
        stop = locate(b"\n", at, end)
        if stop < 0:
            stop = end
        span = find(buffer, start, stop)
        pos = stop + 1
        at = locate(part, pos, end) if pos < end else -1
        if span is None:
            fruitless += 1
            continue
        left, right = span
        if locate(part, right, stop) < 0:
            yield start, number, stop, (left - start, right - start), False
        else:
            columns, cut = _columns(pattern, buffer, start, stop, span)
            yield start, number, stop, columns, cut
    pattern.weigh(fruitless, end - began)


def _by_pattern(pattern: Pattern, number: int, buffer: bytes, pos: int, end: int) -> Iterator[Line]:
    find = pattern.find
    locate = buffer.find
    while pos < end:
        span = find(buffer, pos, end)
        if span is None:
            return
        left = span[0]
        if left == end and buffer[end - 1] == 10:
            return
        start = buffer.rfind(b"\n", pos, left) + 1 or pos
        stop = locate(b"\n", left, end)
        if stop < 0:
            stop = end
        columns, cut = _columns(pattern, buffer, start, stop, span)
        yield start, number, stop, columns, cut
        pos = stop + 1


def _by_word(pattern: Pattern, number: int, buffer: bytes, pos: int, end: int) -> Iterator[Line]:
    find = pattern.find
    while pos < end:
        found = find(buffer, pos, end)
        if found is None:
            return
        left = found[0]
        if left == end and buffer[end - 1] == 10:
            return
        start = buffer.rfind(b"\n", pos, left) + 1 or pos
        stop = buffer.find(b"\n", left, end)
        if stop < 0:
            stop = end
        span = pattern.first(buffer, start, start, stop, found)
        if span is not None:
            columns, cut = _columns(pattern, buffer, start, stop, span)
            yield start, number, stop, columns, cut
        pos = stop + 1


def _columns(pattern: Pattern, buffer: bytes, start: int, end: int, span: Span | None) -> tuple[list[Span], bool]:
    """All matches of a line whose first one is `span`."""
    columns: list[Span] = []
    first = pattern.first if pattern.word else None
    find = pattern.find
    limit = min(MAX_COLUMNS, max(16, _LINE_WORK // (end - start + 1)))
    tries = 0
    while span is not None:
        left, right = span
        if left < right:
            if len(columns) >= limit:
                return columns, True
            columns.append((left - start, right - start))
            pos = right
        else:
            tries += 1
            if tries > limit:
                return columns, True
            pos = left + 1
        if pos >= end:
            break
        span = first(buffer, pos, start, end) if first is not None else find(buffer, pos, end)
    return columns, False
