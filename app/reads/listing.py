"""A whole tree, and a directory, as encoded records."""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from orjson import dumps

from app.reads.base import Batch, Rows, Tally, b64, from_b64
from app.reads.flat import Flat, Recorder, flat, lines_of, path_at, place_of
from app.reads.kept import kept
from app.reads.scope import Scope
from pack.allowance import Spent
from pack.corpus import reason_of
from pack.errors import BadObject, CorruptData, NotFound, PackhouseError, TooLarge, WrongType
from pack.tree import DIRECTORY, EXECUTABLE, REGULAR, Entry
from pack.treewalk import MAX_DEPTH, TreeWalk
from pack.view import View

_TOGETHER: Final = 256  # records in a batch
_FILES: Final = {mode: b'"mode":"%06o","type":"blob","oid":"' % mode for mode in (REGULAR, EXECUTABLE)}
_ENTRIES: Final = {**_FILES, DIRECTORY: b'"mode":"%06o","type":"tree","oid":"' % DIRECTORY}

Encode = Callable[[bytes, Entry], bytes]
"""(path, entry) → its record: for all but regular files with a readable name and a known size."""


def listing(
    view: View, tree: bytes, scope: Scope, sizes: bool, root: str | None, position: Any, tally: Tally, encode: Encode
) -> Rows:
    """What is in scope below `tree` and no directory, in git's order, behind `position`; paths begin with the scope's
    prefix.

    `root` is the root tree that urls of submodules come from. Positions are places of a TreeWalk, or paths (base64url).
    """
    rows = _rows(view, tree, scope, sizes, root, position, tally, encode)
    if not tally.whole or not scope.whole or position is not None:
        return rows
    return kept((view.namespace, "listing", tree, scope.prefix, sizes, root), tally, rows)


def directory(
    view: View, tree: bytes, prefix: bytes, sizes: bool, after: Sequence[int] | None, tally: Tally, encode: Encode
) -> Iterator[tuple[bytes, list[int]]]:
    """A row for each entry of `tree` itself, in stored order, behind the place `after`."""
    middles = _FILES if sizes else _ENTRIES
    visit = tally.visit
    entries = view.tree(tree)
    for number in range(after[0] + 1 if after else 0, len(entries)):
        entry = entries[number]
        path = prefix + entry.name
        yield _line(view, path, entry, sizes, middles) or encode(path, entry), [number]
        if not visit():
            tally.stop([number])
            return


def _rows(
    view: View, tree: bytes, scope: Scope, sizes: bool, root: str | None, position: Any, tally: Tally, encode: Encode
) -> Rows:
    """From a snapshot of the root tree, where there is one and a walk would come by most of it."""
    prefix = scope.prefix
    top: bytes | None = tree
    if prefix:
        top = bytes.fromhex(root) if root is not None else None
        entry = view.entry(top, prefix[:-1]) if top is not None else None
        if entry is None or entry.oid != tree:
            top = None
    found = flat(view, top, later=tally.whole) if top is not None and scope.deep else None
    if found is None and view.objects.allowance is not None:
        raise Spent  # somebody with more time also writes down what is walked
    if found is not None:
        yield from _listed(view, found, tree, scope, sizes, position, tally, encode)
    elif tally.whole and scope.whole and position is None:
        recorder = Recorder(view, tree) if top is not None and not prefix else None
        yield from _made(view, tree, prefix, sizes, tally, encode, recorder)
    else:
        place = _place(view, tree, prefix, position)
        yield from _walked(view, tree, scope, sizes, tally, encode, place)


def _place(view: View, tree: bytes, prefix: bytes, position: Any) -> list[int] | None:
    if isinstance(position, str):
        return place_of(view, tree, from_b64(position, "cursor")[len(prefix) :])
    place: list[int] | None = position
    return place


def _listed(
    view: View, found: Flat, tree: bytes, scope: Scope, sizes: bool, position: Any, tally: Tally, encode: Encode
) -> Rows:
    """The rows of a snapshot."""
    last = b""
    if isinstance(position, str):
        last = from_b64(position, "cursor")
    elif position is not None:
        last = scope.prefix + path_at(view, tree, position)
    begun = last
    together = () if tally.whole else (1,)
    for block in found.blocks(scope.start, last):
        if block is None:
            recorded = scope.whole and not (begun or scope.prefix or found.stored)
            recorder = Recorder(view, tree, found.passed, last) if recorded else None
            place = _place(view, tree, scope.prefix, b64(last) if last != begun else position)
            yield from _walked(view, tree, scope, sizes, tally, encode, place, recorder)
            return
        for lines, last, seen in lines_of(block, scope, sizes, encode, begun, *together):
            if lines and tally.whole:
                yield Batch("\n".join(lines).encode(), len(lines), partial(b64, last))
            elif lines:
                yield lines[0].encode(), partial(b64, last)
            if not tally.visit(seen):
                tally.stop(b64(last))
                return


def _walked(
    view: View,
    tree: bytes,
    scope: Scope,
    sizes: bool,
    tally: Tally,
    encode: Encode,
    after: Sequence[int] | None,
    recorder: Recorder | None = None,
) -> Iterator[tuple[bytes, list[int]]]:
    """Rows behind the place `after` from the trees themselves."""

    def lose(path: bytes, place: list[int], error: PackhouseError) -> None:
        tally.skip(path, reason_of(error))
        if recorder is not None:
            recorder.give_up()

    whole = scope.whole
    walk = TreeWalk(view, tree, prefix=scope.prefix, enter=None if whole else scope.enter, lost=lose, after=after)
    for path, entry in walk:
        if entry.mode != DIRECTORY:
            if recorder is not None:
                recorder.add(path, entry)
            if whole or scope.want(path):
                yield _line(view, path, entry, sizes) or encode(path, entry), walk.place()
        if not tally.visit():
            tally.stop(walk.place())
            return
    if recorder is not None:
        recorder.done()


def _made(
    view: View,
    tree: bytes,
    prefix: bytes,
    sizes: bool,
    tally: Tally,
    encode: Encode,
    recorder: Recorder | None = None,
) -> Iterator[Batch]:
    lines: list[bytes] = []
    seen = 0
    place: list[int] = []
    stack = [(prefix, view.tree(tree))]
    numbers = [0]
    while stack:
        prefix, entries = stack[-1]
        for number in range(numbers[-1], len(entries)):
            entry = entries[number]
            path = prefix + entry.name
            seen += 1
            if entry.mode == DIRECTORY:
                numbers[-1] = number + 1
                below = _below(view, path, entry.oid, len(stack), tally)
                if below is None:
                    if recorder is not None:
                        recorder.give_up()
                    continue
                stack.append((path + b"/", below))
                numbers.append(0)
                break
            if recorder is not None:
                recorder.add(path, entry)
            lines.append(_line(view, path, entry, sizes) or encode(path, entry))
            if len(lines) == _TOGETHER:
                place = [*(after - 1 for after in numbers[:-1]), number]
                yield Batch(b"\n".join(lines), len(lines), place)
                lines.clear()
                if not tally.visit(seen):
                    tally.stop(place)
                    return
                seen = 0
        else:
            stack.pop()
            numbers.pop()
            if entries and entries[-1].mode != DIRECTORY:
                place = [*(after - 1 for after in numbers), len(entries) - 1]
    tally.visit(seen)
    if recorder is not None:
        recorder.done()
    if lines:
        yield Batch(b"\n".join(lines), len(lines), place)


def _below(view: View, path: bytes, oid: bytes, depth: int, tally: Tally) -> list[Entry] | None:
    if depth >= MAX_DEPTH:
        raise BadObject(f"trees are nested deeper than {MAX_DEPTH}")
    try:
        return view.tree(oid)
    except (NotFound, CorruptData, WrongType) as error:
        tally.skip(path, reason_of(error))
        return None


def _line(view: View, path: bytes, entry: Entry, sizes: bool, middles: Mapping[int, bytes] = _FILES) -> bytes | None:
    """The record of an entry of the common modes with nothing odd about it."""
    middle = middles.get(entry.mode)
    if middle is None:
        return None
    try:
        name = dumps(path.decode())
        if not sizes:
            return b'{"path":%b,%b%b"}' % (name, middle, hexlify(entry.oid))
        size = view.objects.header(entry.oid)[1]
        return b'{"path":%b,%b%b","size":%d}' % (name, middle, hexlify(entry.oid), size)
    except (UnicodeDecodeError, NotFound, CorruptData, TooLarge, WrongType):
        return None
