"""grep: the lines of a revision's files that match, in git's order of paths."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from orjson import dumps

from app.reads.base import Batch, Params, Rows, Tally, b64, from_b64, named, text
from app.reads.scope import Scope
from app.reads.texts import texts_of
from pack.corpus import STEP, Segment, segments
from pack.errors import WrongType
from pack.grep import Hit, Options, Resume, Searcher
from pack.objects import TREE, TYPE_NAMES
from pack.pattern import Pattern, Span
from pack.revision import locate, show
from pack.view import View

KEY: Final = "matches"
LINE_BYTES: Final = 16 << 10  # of one line of text, or of context, in an answer
_BATCH_BYTES: Final = 32 << 10


def pin(view: View, params: Params) -> dict[str, Any]:
    """The tree to search; patterns, globs, the revision and the paths are refused here."""
    _searcher(params["pattern"], params["fixed"], params["ignore_case"], params["word"])
    found = locate(view, params["rev"])
    if found.type != TREE:
        kind = TYPE_NAMES[found.type].decode()
        raise WrongType(f"{show(params['rev'])} names a {kind}, not a commit or a tree to search in", parameter="rev")
    for path in params["path"]:
        locate(view, params["rev"], path)
    Scope(b"", params["path"], params["glob"])
    return {
        "commit": found.commit.hex() if found.commit is not None else None,
        "tree": found.oid.hex(),
        "below": b64(found.path),
    }


def head(view: View, params: Params, pin: dict[str, Any]) -> dict[str, Any]:
    return {"commit": pin["commit"]}


def rows(view: View, params: Params, pin: dict[str, Any], tally: Tally, position: Any) -> Rows:
    """A row a line and pattern. A position is [place of the file, then where in it the last hit was, if there]."""
    searcher = _searcher(params["pattern"], params["fixed"], params["ignore_case"], params["word"])
    scope = Scope(from_b64(pin["below"], "cursor"), params["path"], params["glob"])
    run = _Run(searcher, Options(params["before"], params["after"], params["max_per_file"]), scope, tally)
    place, inside = (position[0], position[1:]) if position is not None else (None, [])
    for segment in _segments(view, bytes.fromhex(pin["tree"]), scope, place):
        index = 0
        if place is not None:
            index = bisect_left(segment.places, place)
            if index == len(segment.places):
                continue
        resume = None
        if segment.places[index] == place:
            if inside:
                resume = Resume(inside[0] + segment.starts[index], *inside[1:])
            else:
                index += 1
        yield from run.segment(segment, index, resume)
        if tally.resume is not None:
            return
        place = None


def _segments(view: View, tree: bytes, scope: Scope, place: list[int] | None) -> Iterator[Segment]:
    texts = texts_of(view, tree, scope.prefix)
    if scope.whole or texts.at_hand(view):
        return texts.segments(view, place)
    return segments(
        view, tree, prefix=scope.prefix, enter=scope.enter, want=scope.want, after=place, include=place is not None
    )


@lru_cache(maxsize=16)
def _searcher(patterns: tuple[bytes, ...], fixed: bool, ignore_case: bool, word: bool) -> Searcher:
    return Searcher([Pattern(text, fixed=fixed, ignore_case=ignore_case, word=word) for text in patterns])


class _Run:
    """One search over segments."""

    def __init__(self, searcher: Searcher, options: Options, scope: Scope, tally: Tally) -> None:
        self._searcher = searcher
        self._options = options
        self._want: Callable[[bytes], bool] | None = None if scope.whole else scope.want
        self._tally = tally
        self._tags = [named("pattern", pattern.text) for pattern in searcher.patterns]
        if len(self._tags) == 1:
            self._tags = [{}]
        self._plain = not options.before and not options.after
        self._ends = [_end(tag) for tag in self._tags]
        # Encoded records of a list that nobody cuts, their bytes, and the position behind the last one.
        self._lines: list[bytes] = []
        self._size = 0
        self._position: list[Any] = []

    def segment(self, segment: Segment, index: int, resume: Resume | None) -> Rows:
        """The rows of the files from `index` on; `resume` is within that one."""
        buffer, starts = segment.buffer, segment.starts
        candidate = self._searcher.candidate
        size = len(buffer)
        count = len(starts)
        untold = list(reversed(segment.reasons.items()))
        stopped = None
        while index < count:
            if resume is not None:
                hit = index
            else:
                at = starts[index]
                found = candidate(buffer, at, size) if at < size else -1
                hit = bisect_right(starts, found) - 1 if found >= 0 else count
                while untold and untold[-1][0] < hit:
                    number, reason = untold.pop()
                    if number >= index and (self._want is None or self._want(segment.paths[number])):
                        self._tally.skip(segment.paths[number], reason)
            if hit < count:
                path = segment.paths[hit]
                if self._want is None or self._want(path):
                    yield from self._file(segment, hit, resume)
            within = self._tally.visit(min(hit + 1, count) - index)
            index = hit + 1
            resume = None
            if not within:
                stopped = segment.places[min(hit, count - 1)]
                break
        if self._lines:
            yield self._batch()
        if stopped is not None:
            self._tally.stop([stopped])

    def _file(self, segment: Segment, index: int, resume: Resume | None) -> Rows:
        if self._plain and resume is None:
            yield from self._lines_of(segment, index)
            return
        place = segment.places[index]
        for record, where in self._hits_of(segment, index, resume):
            position = [place, *where]
            if not self._tally.whole:
                yield record, position
                continue
            self._lines.append(record)
            self._size += len(record)
            self._position = position
            if self._size > _BATCH_BYTES:
                yield self._batch()

    def _batch(self) -> Batch:
        batch = Batch(b"\n".join(self._lines), len(self._lines), self._position)
        self._lines.clear()
        self._size = 0
        return batch

    def _hits_of(
        self, segment: Segment, index: int, resume: Resume | None
    ) -> Iterator[tuple[bytes, tuple[int, int, int, int, int]]]:
        """Encoded records, each with its position within the file."""
        buffer, begin = segment.buffer, segment.starts[index]
        path = named("path", segment.paths[index])
        tags = self._tags
        for hit in self._searcher.hits(buffer, begin, segment.ends[index], self._options, resume):
            record = dumps(_record(path, buffer, hit, tags[hit.pattern]))
            yield record, (hit.start - begin, hit.line, hit.pattern, hit.nth, hit.shown)

    def _lines_of(self, segment: Segment, index: int) -> Rows:
        """The same without context: most searches are that, and all their cost is here."""
        buffer, begin, place = segment.buffer, segment.starts[index], segment.places[index]
        marks, count = segment.marks, buffer.count
        path = named("path", segment.paths[index])
        front = dumps(path)[:-1]
        ends, whole, lines, size = self._ends, self._tally.whole, self._lines, self._size
        most = self._options.max_lines
        before = segment.newlines(begin) - 1
        nth = line = told = 0
        last = -1
        for start, pattern, stop, columns, cut in self._searcher.lines(buffer, begin, segment.ends[index]):
            if start != last:
                if nth == most:
                    break
                nth += 1
                last = start
                mark = start // STEP
                line = marks[mark] + count(b"\n", mark * STEP, start) - before
            try:
                text = dumps(buffer[start:stop].decode()) if stop - start <= LINE_BYTES and not cut else None
            except UnicodeDecodeError:
                text = None
            if text is not None:
                spans = _SPANS[columns] if isinstance(columns, tuple) else dumps(columns)
                record = b'%b,"line":%d,"text":%b,"columns":%b%b' % (front, line, text, spans, ends[pattern])
            else:
                found = [columns] if isinstance(columns, tuple) else columns
                hit = Hit(line, start, stop, pattern, found, cut, [], [], nth, line - 1)
                record = dumps(_record(path, buffer, hit, self._tags[pattern]))
            if not whole:
                yield record, [place, start - begin, line, pattern, nth, line - 1]
                continue
            lines.append(record)
            size += len(record)
            told = pattern
            if size > _BATCH_BYTES:
                self._position = [place, start - begin, line, pattern, nth, line - 1]
                yield self._batch()
                size = 0
        if nth:
            self._position = [place, last - begin, line, told, nth, line - 1]
            self._size = size


def _end(tag: dict[str, str]) -> bytes:
    """The end of a record without context, behind its columns."""
    return b',"before":[],"after":[]' + (b"," + dumps(tag)[1:] if tag else b"}")


class _Spans(dict[Span, bytes]):
    """Single matches as JSON, remembered for the few thousand that occur."""

    def __missing__(self, span: Span) -> bytes:
        encoded = dumps([span])
        if len(self) < 1 << 14:
            self[span] = encoded
        return encoded


_SPANS: Final = _Spans()


def _record(path: dict[str, str], buffer: bytes, hit: Hit, tag: dict[str, str]) -> dict[str, Any]:
    line = buffer[hit.start : hit.end]
    cut = hit.cut
    if len(line) > LINE_BYTES:
        line = shorten(line, LINE_BYTES)
        cut = True
    before = after = _NOTHING
    if hit.before:
        before, cut = _context(buffer, hit.before, cut)
    if hit.after:
        after, cut = _context(buffer, hit.after, cut)
    record = {
        **path,
        "line": hit.line,
        **named("text", line),
        "columns": hit.columns,
        "before": before,
        "after": after,
        **tag,
    }
    if cut:
        record["truncated"] = True
    return record


_NOTHING: Final[Sequence[str]] = ()


def _context(buffer: bytes, spans: list[Span], cut: bool) -> tuple[list[str], bool]:
    lines = [buffer[start:end] for start, end in spans]
    cut = cut or any(len(line) > LINE_BYTES for line in lines)
    return [text(shorten(line, LINE_BYTES)) for line in lines], cut


def shorten(line: bytes, size: int) -> bytes:
    """At most `size` bytes from the start of the line, not ending within a character of UTF-8."""
    if len(line) <= size:
        return line
    back = 0
    while back < 3 and line[size - back] & 0xC0 == 0x80:
        back += 1
    return line[: size - back]
