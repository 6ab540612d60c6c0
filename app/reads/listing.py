"""A whole tree, and a directory, as encoded records."""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from orjson import dumps

from app.reads.base import Batch, Rows, Tally
from app.reads.flat import Flat, Recorder, flat, lines_of, place_of
from app.reads.kept import kept
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
    view: View, tree: bytes, prefix: bytes, sizes: bool, root: str | None, tally: Tally, encode: Encode
) -> Iterator[Batch]:
    """All that is below `tree` and no directory, in git's order; paths begin with `prefix`.

    `root` is the root tree that urls of submodules come from. Positions are places of a TreeWalk.
    """
    key = (view.namespace, "listing", tree, prefix, sizes, root)
    return kept(key, tally, _rows(view, tree, prefix, sizes, root, tally, encode))


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


def _rows(view: View, tree: bytes, prefix: bytes, sizes: bool, root: str | None, tally: Tally, encode: Encode) -> Rows:
    """From a snapshot of the root tree, where there is one."""
    top = tree
    if prefix:
        top = bytes.fromhex(root) if root is not None else tree
        entry = view.entry(top, prefix[:-1]) if root is not None else None
        if entry is None or entry.oid != tree:
            yield from _made(view, tree, prefix, sizes, tally, encode)
            return
    found = flat(view, top)
    if found is not None:
        yield from _listed(view, found, tree, prefix, sizes, tally, encode)
    else:
        yield from _made(view, tree, prefix, sizes, tally, encode, None if prefix else Recorder(view, tree))


def _listed(view: View, found: Flat, tree: bytes, prefix: bytes, sizes: bool, tally: Tally, encode: Encode) -> Rows:
    """The rows of a snapshot that are below `prefix`, where `tree` lies."""
    last = b""

    def position(path: bytes) -> Callable[[], list[int]]:
        return lambda: place_of(view, tree, path[len(prefix) :])

    for block in found.blocks(prefix):
        if block is None:
            recorder = Recorder(view, tree, found.passed, last) if not prefix else None
            yield from _walked(view, tree, prefix, sizes, tally, encode, last, recorder)
            return
        for lines, last in lines_of(block, prefix, sizes, encode):
            yield Batch("\n".join(lines).encode(), len(lines), position(last))
            if not tally.visit(len(lines)):
                tally.stop(position(last)())
                return


def _walked(
    view: View,
    tree: bytes,
    prefix: bytes,
    sizes: bool,
    tally: Tally,
    encode: Encode,
    after: bytes,
    recorder: Recorder | None,
) -> Iterator[tuple[bytes, list[int]]]:
    """Rows behind the path `after` (empty: all), from the trees themselves."""

    def lose(path: bytes, place: list[int], error: PackhouseError) -> None:
        tally.skip(path, reason_of(error))
        if recorder is not None:
            recorder.give_up()

    start = place_of(view, tree, after[len(prefix) :]) if after else None
    walk = TreeWalk(view, tree, prefix=prefix, lost=lose, after=start)
    for path, entry in walk:
        if entry.mode != DIRECTORY:
            if recorder is not None:
                recorder.add(path, entry)
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
