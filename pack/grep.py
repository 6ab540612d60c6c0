"""Search of text by line, with git grep's notion of lines, binaries, words and context.

A line ends before its newline and keeps its carriage return; nothing after the last newline is no line. All offsets
are into the searched buffer, so that many files can be searched in one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from typing import Final, NamedTuple

from pack.lines import MAX_COLUMNS, Line, lines
from pack.pattern import Pattern, Span, union

__all__ = ["MAX_COLUMNS", "Hit", "Options", "Resume", "Searcher", "is_binary"]

_FIRST_FEW: Final = 8000


class Hit(NamedTuple):
    """One pattern's matches in one line.

    `line` counts from 1; [start, end) is the line without its newline; `columns` are offsets into that line, empty
    matches left out; `cut` says that there may be more of them. `before` and `after` are the lines around it that are
    shown with no other line. This is the `nth` line of the file with a hit; `shown` is the last line that was given
    as context before this one's.
    """

    line: int
    start: int
    end: int
    pattern: int
    columns: list[Span]
    cut: bool
    before: list[Span]
    after: list[Span]
    nth: int
    shown: int


@dataclass(frozen=True)
class Options:
    """Lines of context, and how many lines of a file may hit (None: all)."""

    before: int = 0
    after: int = 0
    max_lines: int | None = None


class Resume(NamedTuple):
    """Where the search of a file goes on: right after a hit, whose values these are (`offset` is its line's start)."""

    offset: int
    line: int
    pattern: int
    nth: int
    shown: int


def is_binary(data: bytes) -> bool:
    """git's rule: a NUL among the first 8,000 bytes."""
    return data.find(b"\0", 0, _FIRST_FEW) >= 0


class Searcher:
    """Several patterns over buffers."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self.patterns = list(patterns)
        self._any = union(self.patterns) if len(self.patterns) > 1 else None

    def candidate(self, buffer: bytes, pos: int, end: int) -> int:
        """The first place where a line may hit; -1 where none does."""
        seek = self.patterns[0].seek if len(self.patterns) == 1 else self._any
        if seek is None:
            return pos
        found = seek(buffer, pos, end)
        return -1 if found is None else found[0]

    def lines(self, buffer: bytes, start: int, end: int) -> Iterator[Line]:
        """The lines of one file with a match, by line and then by pattern: neither numbered nor with context."""
        each = [lines(pattern, number, buffer, start, end) for number, pattern in enumerate(self.patterns)]
        return each[0] if len(each) == 1 else merge(*each)

    def hits(
        self, buffer: bytes, start: int, end: int, options: Options = Options(), resume: Resume | None = None
    ) -> Iterator[Hit]:
        """The hits of one file, which lies at [start, end), by line and then by pattern."""
        at, line = (start, 1) if resume is None else (resume.offset, resume.line)
        found = self._numbered(buffer, at, end, line)
        return _shown(buffer, start, end, found, options, resume)

    def _numbered(self, buffer: bytes, at: int, end: int, line: int) -> Numbered:
        for start, pattern, stop, columns, cut in self.lines(buffer, at, end):
            line += buffer.count(b"\n", at, start)
            at = start
            yield line, _Found(start, pattern, stop, [columns] if isinstance(columns, tuple) else columns, cut)


class _Found(NamedTuple):
    start: int
    pattern: int
    end: int
    columns: list[Span]
    cut: bool


Numbered = Iterator[tuple[int, _Found]]


def _shown(
    buffer: bytes, start: int, end: int, found: Numbered, options: Options, resume: Resume | None
) -> Iterator[Hit]:
    """Hits with their context; a line between two hits goes to the one before it, as far as that one reaches."""
    count = resume.nth - 1 if resume is not None else 0
    shown = resume.shown if resume is not None else 0
    most = options.max_lines
    held: tuple[int, list[_Found]] | None = None
    for line, group in groupby(found, _line_of):
        if held is not None:
            yield from _group(buffer, start, end, *held, line, options, count, shown)
            shown = _last_shown(held[0], line, options)
        items = [item for _, item in group]
        count += 1
        if resume is not None and line == resume.line:
            items = [item for item in items if item.pattern > resume.pattern] or items[:0]
        held = (line, items)
        if count == most:
            break
    if held is not None:
        yield from _group(buffer, start, end, *held, None, options, count, shown)


def _line_of(numbered: tuple[int, _Found]) -> int:
    return numbered[0]


def _last_shown(line: int, following: int, options: Options) -> int:
    return min(line + options.after, following - 1)


def _group(
    buffer: bytes,
    start: int,
    end: int,
    line: int,
    items: list[_Found],
    following: int | None,
    options: Options,
    nth: int,
    shown: int,
) -> Iterator[Hit]:
    """The hits of one line; `following` is the next line with one."""
    if not items:
        return
    first = items[0]
    before: list[Span] = []
    if options.before:
        before = _above(buffer, start, first.start, min(options.before, line - 1 - shown))
    after: list[Span] = []
    if options.after:
        room = options.after if following is None else min(options.after, following - line - 1)
        after = _below(buffer, end, first.end, room)
    for item in items:
        yield Hit(line, item.start, item.end, item.pattern, item.columns, item.cut, before, after, nth, shown)


def _above(buffer: bytes, start: int, at: int, count: int) -> list[Span]:
    """Up to `count` lines that end before the line at `at`, in their order."""
    lines: list[Span] = []
    while at > start and len(lines) < count:
        stop = at - 1
        at = buffer.rfind(b"\n", start, stop) + 1 or start
        lines.append((at, stop))
    lines.reverse()
    return lines


def _below(buffer: bytes, end: int, at: int, count: int) -> list[Span]:
    """Up to `count` lines that follow the one which ends at `at`."""
    lines: list[Span] = []
    at += 1
    while at < end and len(lines) < count:
        stop = buffer.find(b"\n", at, end)
        if stop < 0:
            stop = end
        lines.append((at, stop))
        at = stop + 1
    return lines
