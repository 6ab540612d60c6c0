"""Flat trees for recursive listings: those that the store has, and those that this node keeps on disk.

The store has HEAD's, and those of a few tips (`storage.snapshots`); on disk are those of other trees that were listed
last. A tree that is much like one of these is made from it and the difference of the two; any other is walked once, and
written down while it is. Whatever is missing or damaged is walked again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from orjson import dumps

from app.reads.scope import Scope
from pack import snapshot
from pack.flatten import changes_between, size_of
from pack.sidecar import BadSidecar
from pack.snapshot import BLOCK_ROWS, MODES, UNKNOWN, VERSION, Block, Part, Row
from pack.tree import DIRECTORY, Entry
from pack.treediff import Change
from pack.treewalk import TreeWalk
from pack.view import View
from storage.shelf import Shelf, shelf_of

KIND: Final = "flat"
INDEX: Final = "-index"
_BLOCKS: Final = "rows"
_ON_DISK: Final = 12  # trees of one repository
_TOGETHER: Final = 1000  # records in a batch
_ROW_BYTES: Final = 100  # that could be inflated while its record is made
_MIDDLES: Final = tuple(f'"mode":"{mode:06o}","type":"blob","oid":"' for mode in MODES[:2])
# What JSON writes as it is; a NUL stands between two names.
_PLAIN: Final = re.compile(rb"[\0 !#-\[\]-~]*")

Encode = Callable[[bytes, Entry], bytes]
"""(path, entry) → its record."""


class Flat:
    """The snapshot of a tree. `stored`: in the store; it is wanted there if it turns out damaged."""

    def __init__(self, view: View, shelf: Shelf | None, tree: bytes, parts: list[Part], *, stored: bool) -> None:
        self._view = view
        self._shelf = shelf
        self.tree = tree
        self.parts = parts
        self.stored = stored
        self.passed: list[Part] = []
        """The parts of the blocks that were given, and of those between that were not wanted."""

    def blocks(self, prefix: bytes = b"", after: bytes = b"") -> Iterator[Block | None]:
        """The blocks, in order, that may have files below `prefix` (empty, or with its slash) and behind `after`.

        None ends them where one is gone or damaged: the snapshot will be made anew then. Need.
        """
        for number, part in enumerate(self.parts):
            if self._is_wanted(number, prefix, after):
                block = self._load(part)
                if block is None:
                    yield None
                    return
                self.passed.append(part)
                yield block
            else:
                self.passed.append(part)

    def _is_wanted(self, number: int, prefix: bytes, after: bytes) -> bool:
        parts = self.parts
        if number + 1 < len(parts) and parts[number + 1].first <= max(prefix, after):
            return False
        first = parts[number].first
        return first <= prefix or first.startswith(prefix)

    def _load(self, part: Part) -> Block | None:
        self._view.charge(part.files * _ROW_BYTES)
        block = _load(self._shelf, part) if self._shelf is not None and not self.stored else None
        if block is None and self._view.snapshots is not None:
            block = self._view.snapshots.load(part)
        if block is None and self._shelf is not None and not self.stored:
            self._shelf.drop(KIND, _name(self.tree), BadSidecar("a block of it is gone"))
        return block


class _Later(Flat):
    """A snapshot with the changes that lead to another tree; it is written down once all blocks were read."""

    def __init__(self, base: Flat, shelf: Shelf, new: bytes, changes: list[Change]) -> None:
        super().__init__(base._view, shelf, base.tree, base.parts, stored=base.stored)
        self._new = new
        self._changes = changes

    def blocks(self, prefix: bytes = b"", after: bytes = b"") -> Iterator[Block | None]:
        assert self._shelf is not None
        changed = dict(snapshot.edits(self.parts, self._changes))
        found = self.passed
        for number, part in enumerate(self.parts):
            here = changed.get(number)
            if here is None and not self._is_wanted(number, prefix, after):
                found.append(part)
                continue
            block = self._load(part)
            if block is None:
                yield None
                return
            if here is None:
                found.append(part)
                yield block
                continue
            rows = snapshot.edited(block.rows(), here, lambda mode, oid: size_of(self._view, mode, oid))
            size = len(rows) if len(rows) < 2 * BLOCK_ROWS else BLOCK_ROWS
            for start in range(0, len(rows), max(size, 1)):
                new, data = _store(self._shelf, rows[start : start + size])
                found.append(new)
                yield Block(data)
        _store_index(self._shelf, self._new, found)


def flat(view: View, tree: bytes, *, later: bool = True) -> Flat | None:
    """The snapshot of a root tree that is there, or with `later` can be made from what is there; None where there is
    none. Need.
    """
    shelf = shelf_of(view.namespace)
    if shelf is not None:
        parts = _index(shelf, tree)
        if parts is not None:
            return Flat(view, shelf, tree, parts, stored=False)
    stored = view.snapshots.parts(tree) if view.snapshots is not None else None
    if stored is not None:
        return Flat(view, shelf, tree, stored, stored=True)
    return _later(view, shelf, tree) if shelf is not None and later else None


def make_flat(view: View, tree: bytes, check: Callable[[], None]) -> None:
    """Put the snapshot of a root tree on disk unless it is there, or in the store. `check` raises to end the work;
    NotFound, Need.
    """
    shelf = shelf_of(view.namespace)
    found = flat(view, tree) if shelf is not None else None
    if shelf is None or (found is not None and not isinstance(found, _Later)):
        return
    if found is not None:
        for block in found.blocks():
            if block is None:
                break
            check()
        else:
            return
    recorder = Recorder(view, tree)
    for path, entry in TreeWalk(view, tree):
        if entry.mode != DIRECTORY:
            recorder.add(path, entry)
        else:
            check()
    recorder.done()


class Recorder:
    """Takes down the files of a tree as a walk comes by them, all of them or those behind what is in `parts`."""

    def __init__(self, view: View, tree: bytes, parts: Sequence[Part] = (), last: bytes = b"") -> None:
        self._view = view
        self._tree = tree
        self._shelf = shelf_of(view.namespace)
        self._rows: list[Row] = []
        self._parts = list(parts)
        self._last = last
        self._bytes = 0
        if self._shelf is not None:
            self._most = self._shelf.most

    def add(self, path: bytes, entry: Entry) -> None:
        if self._shelf is None:
            return
        # Trees that git would not write are not listed in the order of their paths.
        if path <= self._last or b"/" in entry.name:
            self.give_up()
            return
        self._last = path
        self._rows.append(Row(path, entry.mode, entry.oid, size_of(self._view, entry.mode, entry.oid)))
        if len(self._rows) >= BLOCK_ROWS:
            self._flush()

    def give_up(self) -> None:
        """What is not there in full is not kept."""
        self._shelf = None

    def _flush(self) -> None:
        assert self._shelf is not None
        part, data = _store(self._shelf, self._rows)
        self._parts.append(part)
        self._bytes += len(data)
        self._rows = []
        if self._bytes > self._most:
            self.give_up()

    def done(self) -> None:
        if self._shelf is not None and self._rows:
            self._flush()
        if self._shelf is not None:
            _store_index(self._shelf, self._tree, self._parts)


def place_of(view: View, tree: bytes, path: bytes) -> list[int]:
    """The place of a file in a walk of the tree (see `treewalk`)."""
    place = []
    for name in path.split(b"/"):
        entries = view.tree(tree)
        number = next(number for number, entry in enumerate(entries) if entry.name == name)
        place.append(number)
        tree = entries[number].oid
    return place


def path_at(view: View, tree: bytes, place: Sequence[int]) -> bytes:
    """The path at a place in a walk of the tree, with a slash where it is a directory."""
    path = b""
    for number in place:
        entry = view.tree(tree)[number]
        path += entry.name + b"/" if entry.mode == DIRECTORY else entry.name
        tree = entry.oid
    return path


def _name(tree: bytes) -> str:
    return f"{tree.hex()}{INDEX}"


def _index(shelf: Shelf, tree: bytes) -> list[Part] | None:
    found = shelf.read(KIND, _name(tree), VERSION, snapshot.of_tree(tree))
    try:
        return snapshot.read_index(found.front) if found is not None else None
    except BadSidecar as error:
        shelf.drop(KIND, _name(tree), error)
        return None


def _load(shelf: Shelf, part: Part) -> Block | None:
    name = f"{part.id.hex()}-block"
    found = shelf.read(_BLOCKS, name, VERSION, part.id)
    if found is None:
        return None
    try:
        block = Block(found.front)
        if block.count != part.files:
            raise BadSidecar("it has another number of files")
    except BadSidecar as error:
        shelf.drop(_BLOCKS, name, error)
        return None
    return block


def _store(shelf: Shelf, rows: Sequence[Row]) -> tuple[Part, bytes]:
    data = snapshot.write_block(rows)
    part = Part(len(rows), snapshot.id_of(data), rows[0].path)
    shelf.write(_BLOCKS, f"{part.id.hex()}-block", VERSION, part.id, data, b"")
    return part, data


def _store_index(shelf: Shelf, tree: bytes, parts: Sequence[Part]) -> None:
    shelf.limit(KIND, _ON_DISK)
    shelf.write(KIND, _name(tree), VERSION, snapshot.of_tree(tree), snapshot.write_index(parts), b"")


def _later(view: View, shelf: Shelf, tree: bytes) -> Flat | None:
    """A tree as a later, or earlier, form of one that is there: of the one that was used last, or of HEAD's."""
    bases: list[Flat] = []
    name = shelf.latest(KIND, INDEX)
    if name is not None:
        old = bytes.fromhex(name.removesuffix(INDEX))
        bases.append(Flat(view, shelf, old, _index(shelf, old) or [], stored=False))
    if view.snapshots is not None:
        stored = view.snapshots
        bases += [Flat(view, shelf, old, stored.parts(old) or [], stored=True) for old in stored.trees()[:1]]
    for base in bases:
        if base.parts and (changes := changes_between(view, base.tree, tree)) is not None:
            return _Later(base, shelf, tree, changes)
    return None


def lines_of(
    block: Block, scope: Scope, sizes: bool, encode: Encode, after: bytes = b"", together: int = _TOGETHER
) -> Iterator[tuple[list[str], bytes, int]]:
    """The records of the files of a block that are in scope and behind the path `after`, so many at a time; with the
    path and the number of what was looked at.
    """
    names, modes, known, hexes = block.names, block.modes, block.sizes, block.hexes()
    plain = _PLAIN.fullmatch(block.text) is not None
    prefix, whole = scope.prefix, scope.whole
    lines: list[str] = []
    seen = 0
    last = b""
    for folder, first, end in block.runs():
        if not folder.startswith(prefix) or not (whole or scope.reach(folder)):
            continue
        start = _behind(folder, names, first, end, after) if after else first
        base = folder.decode("ascii") if plain else ""
        for index in range(start, end):
            seen += 1
            if whole or scope.want(folder + names[index]):
                mode, size = modes[index], known[index]
                if mode > 1 or (sizes and size == UNKNOWN):
                    row = block.row(folder, index)
                    lines.append(encode(row.path, Entry(row.mode, names[index], row.oid)).decode())
                elif plain:
                    tail = f',"size":{size}}}' if sizes else "}"
                    name = names[index].decode("ascii")
                    lines.append(
                        f'{{"path":"{base}{name}",{_MIDDLES[mode]}{hexes[40 * index : 40 * index + 40]}"{tail}'
                    )
                else:
                    lines.append(_odd(block.row(folder, index), sizes, encode))
            if seen == together:
                yield lines, folder + names[index], seen
                lines = []
                seen = 0
        last = folder + names[end - 1]
    if seen:
        yield lines, last, seen


def _behind(folder: bytes, names: Sequence[bytes], start: int, end: int, after: bytes) -> int:
    while start < end and folder + names[start] <= after:
        start += 1
    return start


def _odd(row: Row, sizes: bool, encode: Encode) -> str:
    try:
        path = dumps(row.path.decode()).decode()
    except UnicodeDecodeError:
        return encode(row.path, Entry(row.mode, row.path, row.oid)).decode()
    tail = f',"size":{row.size}}}' if sizes else "}"
    return f'{{"path":{path},{_MIDDLES[0 if row.mode == MODES[0] else 1]}{row.oid.hex()}"{tail}'
