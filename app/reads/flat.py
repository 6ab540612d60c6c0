"""Flat trees that a node keeps on disk for recursive listings: of the trees that were listed last, and of later ones.

A tree that was not listed before is walked once, and written down while it is; one that is much like the tree that was
written last is made from that and the difference of the two. Whatever of it is missing or damaged is walked again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from orjson import dumps

from pack import snapshot
from pack.errors import CorruptData, NotFound, TooLarge, WrongType
from pack.objects import BLOB
from pack.sidecar import BadSidecar
from pack.snapshot import BLOCK_ROWS, KIND, MODES, UNKNOWN, VERSION, Block, Part, Row
from pack.tree import DIRECTORY, GITLINK, Entry
from pack.treediff import Change, diff_trees
from pack.treewalk import TreeWalk
from pack.view import View
from storage.shelf import Shelf, shelf_of

_BLOCKS: Final = "rows"
_ON_DISK: Final = 12  # trees of one repository
_CHANGES: Final = 20_000  # more than that is no later form of a tree
_TOGETHER: Final = 1000  # records in a batch
_MIDDLES: Final = tuple(f'"mode":"{mode:06o}","type":"blob","oid":"' for mode in MODES[:2])
# What JSON writes as it is; a NUL stands between two names.
_PLAIN: Final = re.compile(rb"[\0 !#-\[\]-~]*")

Encode = Callable[[bytes, Entry], bytes]
"""(path, entry) → its record."""


class Flat:
    """The snapshot of a tree, on disk."""

    def __init__(self, shelf: Shelf, tree: bytes, parts: list[Part]) -> None:
        self._shelf = shelf
        self._tree = tree
        self._parts = parts
        self.passed: list[Part] = []
        """The parts of the blocks that were given, and of those between that were not wanted."""

    def blocks(self, prefix: bytes = b"") -> Iterator[Block | None]:
        """The blocks, in order, that may have files below `prefix` (empty, or with its slash).

        None ends them where one is gone or damaged: the snapshot will be made anew then.
        """
        for number, part in enumerate(self._parts):
            if self._is_wanted(number, prefix):
                block = self._load(part)
                if block is None:
                    yield None
                    return
                self.passed.append(part)
                yield block
            else:
                self.passed.append(part)

    def _is_wanted(self, number: int, prefix: bytes) -> bool:
        parts = self._parts
        if number + 1 < len(parts) and parts[number + 1].first <= prefix:
            return False
        first = parts[number].first
        return first <= prefix or first.startswith(prefix)

    def _load(self, part: Part) -> Block | None:
        block = _load(self._shelf, part)
        if block is None:
            self._shelf.drop(KIND, _name(self._tree), BadSidecar("a block of it is gone"))
        return block


class _Later(Flat):
    """The snapshot of another tree with the changes that lead to this one; written down once all blocks were read."""

    def __init__(self, view: View, shelf: Shelf, old: bytes, parts: list[Part], new: bytes, changes: list[Change]):
        super().__init__(shelf, old, parts)
        self._view = view
        self._new = new
        self._changes = sorted(changes, key=lambda change: change.path)

    def blocks(self, prefix: bytes = b"") -> Iterator[Block | None]:
        changed = dict(snapshot.edits(self._parts, self._changes))
        found = self.passed
        for number, part in enumerate(self._parts):
            here = changed.get(number)
            if here is None and not self._is_wanted(number, prefix):
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


def flat(view: View, tree: bytes) -> Flat | None:
    """The snapshot of a root tree that is on disk, or can be made from what is there; None where there is none."""
    shelf = shelf_of(view.namespace)
    if shelf is None:
        return None
    parts = _index(shelf, tree)
    return Flat(shelf, tree, parts) if parts is not None else _later(view, shelf, tree)


def make_flat(view: View, tree: bytes, check: Callable[[], None]) -> None:
    """Put the snapshot of a root tree on disk unless it is there. `check` raises to end the work; NotFound, Need."""
    shelf = shelf_of(view.namespace)
    if shelf is None or _index(shelf, tree) is not None:
        return
    later = _later(view, shelf, tree)
    if later is not None:
        for block in later.blocks():
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


def size_of(view: View, mode: int, oid: bytes) -> int:
    """UNKNOWN for what has no size, or none that fits."""
    if mode == GITLINK:
        return UNKNOWN
    try:
        kind, size = view.objects.header(oid)
    except (NotFound, CorruptData, TooLarge, WrongType):
        return UNKNOWN
    return size if kind == BLOB and size < UNKNOWN else UNKNOWN


def _name(tree: bytes) -> str:
    return f"{tree.hex()}-index"


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
    """A tree as a later, or earlier, form of the one that was used last."""
    name = shelf.latest(KIND, "-index")
    if name is None:
        return None
    old = bytes.fromhex(name.removesuffix("-index"))
    parts = _index(shelf, old)
    if not parts:
        return None
    try:
        changes = list(islice(diff_trees(view, old, tree), _CHANGES + 1))
        if len(changes) > _CHANGES or not _in_order(view, tree, changes):
            return None
    except (NotFound, CorruptData, WrongType):
        return None
    return _Later(view, shelf, old, parts, tree, changes)


def _in_order(view: View, tree: bytes, changes: Sequence[Change]) -> bool:
    """Whether the directories that changed are such as git writes them."""
    for folder in {change.path.rpartition(b"/")[0] for change in changes}:
        entry = view.entry(tree, folder)
        if entry is None or entry.mode != DIRECTORY:
            continue
        last = b""
        for each in view.tree(entry.oid):
            key = each.name + b"/" if each.mode == DIRECTORY else each.name
            if key <= last or b"/" in each.name:
                return False
            last = key
    return True


def lines_of(block: Block, prefix: bytes, sizes: bool, encode: Encode) -> Iterator[tuple[list[str], bytes]]:
    """The records of the files of a block that lie below `prefix`, many at a time, with the path of the last one."""
    names, modes, known, hexes = block.names, block.modes, block.sizes, block.hexes()
    plain = _PLAIN.fullmatch(block.text) is not None
    lines: list[str] = []
    for folder, start, end in block.runs():
        if not folder.startswith(prefix):
            continue
        base = folder.decode("ascii") if plain else ""
        for index in range(start, end):
            mode, size = modes[index], known[index]
            if mode > 1 or (sizes and size == UNKNOWN):
                row = block.row(folder, index)
                lines.append(encode(row.path, Entry(row.mode, names[index], row.oid)).decode())
            elif plain:
                tail = f',"size":{size}}}' if sizes else "}"
                name = names[index].decode("ascii")
                lines.append(f'{{"path":"{base}{name}",{_MIDDLES[mode]}{hexes[40 * index : 40 * index + 40]}"{tail}')
            else:
                lines.append(_odd(block.row(folder, index), sizes, encode))
            if len(lines) == _TOGETHER:
                yield lines, folder + names[index]
                lines = []
        last = folder + names[end - 1]
    if lines:
        yield lines, last


def _odd(row: Row, sizes: bool, encode: Encode) -> str:
    try:
        path = dumps(row.path.decode()).decode()
    except UnicodeDecodeError:
        return encode(row.path, Entry(row.mode, row.path, row.oid)).decode()
    tail = f',"size":{row.size}}}' if sizes else "}"
    return f'{{"path":{path},{_MIDDLES[0 if row.mode == MODES[0] else 1]}{row.oid.hex()}"{tail}'
