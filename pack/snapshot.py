"""The files of a whole tree, flat: what a recursive listing shows, as columns that need no parsing.

A snapshot is an index and blocks of rows. Blocks are named by what is in them, so that the snapshots of trees that are
much alike share most of theirs: a later tree is made from an earlier one and what differs between both.

A block, little-endian: directories, files (u32 each); then of the directories, in order, those with files in them:

    files       u32 a directory
    sizes       u32 a file, UNKNOWN for what is not known, is larger, or has none
    modes       u8 a file: its place in MODES
    oids        20 bytes a file
    directories each with its slash, a NUL between two
    names       of the files, in the directory, a NUL between two; with one more before them

An index is for each block its files (u32), its id (32 bytes) and the length of the path of its first file (u32), then
these paths. Files are in git's order, which is that of the bytes of their paths.
"""

from __future__ import annotations

from array import array
from binascii import hexlify
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from struct import Struct
from typing import Final, NamedTuple

from pack import little
from pack.objects import OID_BYTES
from pack.sidecar import BadSidecar
from pack.tree import EXECUTABLE, GITLINK, REGULAR, SYMLINK
from pack.treediff import Change

KIND: Final = "snapshot"
VERSION: Final = 1
MODES: Final = (REGULAR, EXECUTABLE, SYMLINK, GITLINK)
UNKNOWN: Final = 0xFFFFFFFF
BLOCK_ROWS: Final = 1 << 12
ID_BYTES: Final = 32
_HEAD: Final = Struct("<II")
_ENTRY: Final = Struct("<I32sI")
SizeOf = Callable[[int, bytes], int]
"""(mode, oid) → the size of a file, UNKNOWN where it is not known or has none."""

_CODES: Final = {mode: code for code, mode in enumerate(MODES)}


class Row(NamedTuple):
    """One file; `size` is UNKNOWN where it is not known."""

    path: bytes
    mode: int
    oid: bytes
    size: int


class Part(NamedTuple):
    """A block as an index names it."""

    files: int
    id: bytes
    first: bytes


def of_tree(tree: bytes) -> bytes:
    """What the header of an index is derived from."""
    return sha256(b"snapshot of %b" % tree).digest()


def write_index(parts: Sequence[Part]) -> bytes:
    heads = b"".join([_ENTRY.pack(part.files, part.id, len(part.first)) for part in parts])
    return _HEAD.pack(len(parts), sum(part.files for part in parts)) + heads + b"".join([part.first for part in parts])


def read_index(front: bytes) -> list[Part]:
    """BadSidecar where it is none."""
    if len(front) < _HEAD.size:
        raise BadSidecar("it is cut short")
    count, total = _HEAD.unpack_from(front)
    at = _HEAD.size + count * _ENTRY.size
    if len(front) < at:
        raise BadSidecar("it is cut short")
    parts = []
    for rows, name, length in _ENTRY.iter_unpack(front[_HEAD.size : at]):
        parts.append(Part(rows, name, front[at : at + length]))
        at += length
    if at != len(front) or sum(part.files for part in parts) != total:
        raise BadSidecar("it is of another length")
    return parts


def write_block(rows: Sequence[Row]) -> bytes:
    """KeyError where a mode is none that git writes."""
    folders: list[bytes] = []
    counts, sizes = array("I"), array("I")
    names = []
    last: bytes | None = None
    for path, _, _, size in rows:
        at = path.rfind(b"/") + 1
        folder = path[:at]
        if folder != last:
            folders.append(folder)
            counts.append(0)
            last = folder
        counts[-1] += 1
        names.append(path[at:])
        sizes.append(size)
    return b"".join(
        (
            _HEAD.pack(len(folders), len(rows)),
            little.encode(counts),
            little.encode(sizes),
            bytes([_CODES[row.mode] for row in rows]),
            b"".join([row.oid for row in rows]),
            b"\0".join(folders),
            b"\0",
            b"\0".join(names),
        )
    )


def id_of(block: bytes) -> bytes:
    return sha256(block).digest()


class Block:
    """Rows as columns: `names` within `folders`, of which each has the next `counts` files. `text` is all of the names.

    BadSidecar.
    """

    def __init__(self, data: bytes) -> None:
        if len(data) < _HEAD.size:
            raise BadSidecar("it is cut short")
        folders, self.count = _HEAD.unpack_from(data)
        at = _HEAD.size
        self.counts = _u32(data[at : at + 4 * folders])
        at += 4 * folders
        self.sizes = _u32(data[at : at + 4 * self.count])
        at += 4 * self.count
        self.modes = data[at : at + self.count]
        at += self.count
        self.oids = data[at : at + OID_BYTES * self.count]
        at += OID_BYTES * self.count
        self.text = data[at:]
        texts = self.text.split(b"\0")
        self.folders, self.names = texts[:folders], texts[folders:]
        if len(self.names) != self.count or sum(self.counts) != self.count or len(self.counts) != folders:
            raise BadSidecar("its columns are of other lengths")

    def hexes(self) -> str:
        """The oids as hex digits, one after the other."""
        return hexlify(self.oids).decode()

    def runs(self) -> Iterator[tuple[bytes, int, int]]:
        """(directory with its slash, first file, the one after the last)."""
        at = 0
        for folder, count in zip(self.folders, self.counts, strict=True):
            yield folder, at, at + count
            at += count

    def rows(self) -> Iterator[Row]:
        for folder, start, end in self.runs():
            for index in range(start, end):
                yield self.row(folder, index)

    def row(self, folder: bytes, index: int) -> Row:
        oid = self.oids[index * OID_BYTES : (index + 1) * OID_BYTES]
        return Row(folder + self.names[index], MODES[self.modes[index]], oid, self.sizes[index])


def edits(parts: Sequence[Part], changes: Iterable[Change]) -> Iterator[tuple[int, list[Change]]]:
    """(number of a block, its changes), in order; `changes` are in the order of their paths, `parts` at least one."""
    firsts = [part.first for part in parts]
    here: list[Change] = []
    number = -1
    for change in changes:
        at = max(0, bisect_right(firsts, change.path) - 1)
        if at != number and here:
            yield number, here
            here = []
        number = at
        here.append(change)
    if here:
        yield number, here


def edited(rows: Iterable[Row], changes: Iterable[Change], size_of: SizeOf) -> list[Row]:
    """Rows with changes applied."""
    found = {row.path: row for row in rows}
    for change in changes:
        if change.new_oid is None:
            found.pop(change.path, None)
        else:
            mode, oid = change.new_mode, change.new_oid
            assert mode is not None
            found[change.path] = Row(change.path, mode, oid, size_of(mode, oid))
    return [found[path] for path in sorted(found)]


def _u32(data: bytes) -> array[int]:
    if len(data) % 4:
        raise BadSidecar("it is cut short")
    return little.decode("I", data)
