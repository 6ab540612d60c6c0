"""One page, one stream or one single answer of a read, encoded; the same code on the event loop and in a worker."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from app.coders import chosen, encode
from app.coding import IDENTITY
from app.cursors import Position, seal
from app.reads.base import BLOCK_BYTES, HISTORIES, Batch, ListRead, Params, Rows, Tally, by_snapshot, tail_of
from pack.allowance import Spent
from storage.repository import Unopened, glance, open_view

if TYPE_CHECKING:
    from pack.view import View
    from storage.repository import Handle

ENTIRE_BYTES: Final = 512 << 10


@dataclass(frozen=True)
class Request:
    """A read as it crosses to a worker.

    `module` is a name in app.reads; `bound` and `key` make the cursor of the next page.
    `pin` and `position` come from a cursor, or from a stream that has to begin again in its middle: then `done` records
    went out before, `over` of them from behind `position`. `coding` is what a worker codes a large answer in.
    """

    handle: Handle
    module: str
    params: Params
    key: bytes = b""
    bound: bytes = b""
    pin: dict[str, Any] | None = None
    position: Any = None
    done: int = 0
    over: int = 0
    limit: int | None = None
    max_bytes: int | None = None
    max_visits: int | None = None
    coding: str = IDENTITY
    bare: bool = False
    """Only what comes before the first record is asked for."""


@dataclass(frozen=True)
class Answer:
    """A JSON body, the commit it was read at (hex), whether it is complete, its working time, and its coding."""

    body: bytes
    commit: str | None
    complete: bool
    seconds: float
    coding: str = IDENTITY


@dataclass(frozen=True)
class Block:
    """A piece of a stream: NDJSON records, and all that is needed to go on behind them.

    `count` records of the stream have come with it, the last `over` of them from behind `position`. Everything that can
    be refused has passed when the first one comes. The last one holds the end record's members in `end`.
    """

    data: bytes
    pin: dict[str, Any]
    position: Any = None
    count: int = 0
    over: int = 0
    commit: str | None = None
    end: dict[str, Any] | None = None

    def behind(self, request: Request) -> Request:
        """The request for what follows."""
        return replace(request, pin=self.pin, position=self.position, done=self.count, over=self.over)


@dataclass
class _Run:
    """A list read under way: its rows, budgets and tally."""

    view: View
    request: Request
    read: ListRead
    pin: dict[str, Any]
    tally: Tally
    started: float = field(default_factory=perf_counter)

    def records(self) -> Iterator[tuple[bytes, Any]]:
        """Encoded records one by one, each with the position behind it."""
        for row in self.rows():
            assert not isinstance(row, Batch)
            record, position = row
            yield record if type(record) is bytes else orjson.dumps(record), position

    def close(self, last: Any, more: bool) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """Where the list goes on, what every answer says of its end, and what this kind of read says there.

        `last` is the position behind the last record that was given, `more` says that others follow.
        """
        request, tally = self.request, self.tally
        # The walk's own budget ended it: go on where it stopped.
        if not more and tally.resume is not None:
            more, last = True, tally.resume
        tail = tail_of(self.read, self.view, request.params, self.pin, tally)
        members = tally.fields()
        members["complete"] = members["complete"] and not more
        members["next_cursor"] = None
        if more:
            position = Position(self.pin, _given(last), request.handle.generation)
            members["next_cursor"] = seal(request.key, request.bound, position)
        return last, members, tail

    def rows(self) -> Rows:
        return self.read.rows(self.view, self.request.params, self.pin, self.tally, self.request.position)


def _given(position: Any) -> Any:
    """A position as it goes into cursors."""
    return position() if callable(position) else position


def load(module: str) -> Any:
    return importlib.import_module(f"app.reads.{module}")


def _start(view: View, request: Request, *, whole: bool = False) -> _Run:
    read = cast(ListRead, load(request.module))
    pin = request.pin if request.pin is not None else read.pin(view, request.params)
    return _Run(view, request, read, pin, Tally(request.max_visits, whole=whole))


def single(view: View, request: Request) -> Answer:
    """The answer of a single read."""
    started = perf_counter()
    answer = load(request.module).read(view, request.params)
    base = {
        "generation": request.handle.generation,
        "commit": answer.get("commit"),
        "complete": True,
        "next_cursor": None,
        "skipped": [],
        "skipped_counts": {},
    }
    document = base | answer
    return Answer(orjson.dumps(document), document["commit"], document["complete"], perf_counter() - started)


def page(view: View, request: Request) -> Answer:
    """One page of a list: up to `limit` records and `max_bytes` of them, but one record at least."""
    run = _start(view, request)
    head = run.read.head(view, request.params, run.pin)
    records: list[bytes] = []
    size, last, more = 0, request.position, False
    for record, position in run.records():
        full = (request.limit is not None and len(records) >= request.limit) or (
            request.max_bytes is not None and size + len(record) > request.max_bytes and records
        )
        if full:
            more = True
            break
        records.append(record)
        size += len(record) + 1
        last = position
    last, members, tail = run.close(last, more)
    document = {"generation": request.handle.generation, "commit": None, **members, **head, **tail}
    body = b'%s,"%s":[%s]}' % (orjson.dumps(document)[:-1], run.read.KEY.encode(), b",".join(records))
    return Answer(body, document["commit"], document["complete"], perf_counter() - run.started)


def stream(view: View, request: Request) -> Iterator[Block]:
    """The list as NDJSON blocks."""
    whole = request.limit is None and request.max_bytes is None
    run = _start(view, request, whole=whole)
    head = run.read.head(view, request.params, run.pin)
    commit = head.get("commit")
    if request.bare:
        yield Block(b"", run.pin, request.position, request.done, request.over, commit)
        return
    lines: list[bytes] = []
    size, total, more = 0, 0, False
    count, over, last = request.done, request.over, request.position
    for row in _behind(run.rows(), over):
        if isinstance(row, Batch):
            data, number, position = row
        else:
            record, position = row
            data, number = record if type(record) is bytes else orjson.dumps(record), 1
        length = len(data)
        if not whole and (
            (request.limit is not None and count >= request.limit)
            or (request.max_bytes is not None and total + length > request.max_bytes and count)
        ):
            more = True
            break
        lines.append(data)
        size += length + 1
        total += length + 1
        count += number
        last, over = (last, over + number) if position is None else (position, 0)
        if size >= BLOCK_BYTES:
            yield Block(b"\n".join(lines) + b"\n", run.pin, _given(last), count, over, commit)
            lines, size = [], 0
    last, members, tail = run.close(last, more)
    end = {"end": True, **members, "generation": request.handle.generation, **head, **tail}
    data = b"\n".join(lines) + b"\n" if lines else b""
    yield Block(data, run.pin, _given(last), count, over, commit, end)


def _behind(rows: Rows, over: int) -> Rows:
    """The rows without the first `over` records."""
    for row in rows:
        number = row.number if isinstance(row, Batch) else 1
        if over >= number:
            over -= number
        elif over and isinstance(row, Batch):
            lines = row.lines.split(b"\n")[over:]
            yield Batch(b"\n".join(lines), len(lines), row.position)
            over = 0
        else:
            yield row


def entire(view: View, request: Request) -> Block:
    """All that `stream` gives, in one block; Spent where it is too much for that."""
    pieces: list[bytes] = []
    size = 0
    for block in stream(view, request):
        pieces.append(block.data)
        size += len(block.data)
        if block.end is not None:
            return replace(block, data=b"".join(pieces))
        if size > ENTIRE_BYTES:
            break
    raise Spent


def work_single(request: Request) -> Answer:
    """`single` in a worker."""
    return _coded(_lightly(single, request), request.coding)


def work_page(request: Request) -> Answer:
    """`page` in a worker."""
    return _coded(_lightly(page, request), request.coding)


def _coded(answer: Answer, coding: str) -> Answer:
    """The answer in the coding, where that is worth it."""
    if chosen(coding, len(answer.body)) == IDENTITY:
        return answer
    started = perf_counter()
    body = encode(coding, answer.body)
    return replace(answer, body=body, coding=coding, seconds=answer.seconds + perf_counter() - started)


def _lightly(read: Callable[[View, Request], Answer], request: Request) -> Answer:
    """The answer, without opening packs where what is derived from them gives it."""
    view = _light(request)
    if view is not None:
        with suppress(Unopened):
            return read(view, request)
    return read(open_view(request.handle), request)


def _light(request: Request) -> View | None:
    """The view without its packs, where the commit graph or a snapshot is likely to answer alone; or it is Unopened."""
    listed = by_snapshot(request.module, request.params)
    if request.module not in HISTORIES and not listed:
        return None
    view = glance(request.handle)
    if listed:
        return view if view.snapshots is not None and view.snapshots.trees() else None
    return view if view.graph is not None and view.commits else None


def work_stream(request: Request) -> Iterator[Block]:
    """`stream` in a worker."""
    view = _light(request) if request.module == "tree" else None
    if view is not None:
        with suppress(Unopened):
            for block in stream(view, request):
                request = block.behind(request)
                yield block
            return
    yield from stream(open_view(request.handle), request)
