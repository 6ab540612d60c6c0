"""Tree objects: `mode SP name NUL oid`, repeated (git's tree format; gitglossary "tree object").

Names are bytes without a slash or a NUL. Modes come out as git prints them: of a regular file only the owner's
exec bit counts (0100644, 0100755), whatever is no file, link or directory is a gitlink (0160000).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from pack.errors import BadObject, TooLarge
from pack.objects import BLOB, COMMIT, TREE

REGULAR: Final = 0o100644
EXECUTABLE: Final = 0o100755
SYMLINK: Final = 0o120000
GITLINK: Final = 0o160000
DIRECTORY: Final = 0o040000

_NO_FILES: Final = (DIRECTORY, GITLINK)

MAX_BYTES: Final = 64 << 20  # some million entries

# The last alternative takes all that is left where no entry begins: it shows the damage, and keeps findall from
# looking for an entry at every byte of it. Possessive repeats never try again what failed.
_ENTRY = re.compile(rb"([0-7]++) ([^\0]++)\0(.{20})|(.+)", re.DOTALL)
_CHILD = re.compile(rb"([0-7]++) [^\0]++\0(.{20})|(.+)", re.DOTALL)
_MODE_DIGITS: Final = frozenset(b"01234567")


class Entry(NamedTuple):
    """One entry: its normalised mode, its name, the 20-byte oid."""

    mode: int
    name: bytes
    oid: bytes


def is_tree(mode: int) -> bool:
    return mode == DIRECTORY


def kind_of(mode: int) -> int:
    """The object type that an entry of this mode names: COMMIT for a gitlink."""
    if mode == DIRECTORY:
        return TREE
    return COMMIT if mode == GITLINK else BLOB


def normal_mode(mode: int) -> int:
    """The mode as git's tree walk sees it."""
    kind = mode & 0o170000
    if kind == 0o100000:
        return EXECUTABLE if mode & 0o100 else REGULAR
    if kind in (SYMLINK, DIRECTORY):
        return kind
    return GITLINK


class _Modes(dict[bytes, int]):
    """Octal text → normalised mode. Few texts occur in practice; a hostile tree cannot make it grow."""

    def __missing__(self, text: bytes) -> int:
        mode = normal_mode(int(text, 8))
        if len(self) < 64 and len(text) < 8:
            self[text] = mode
        return mode


_modes = _Modes()


def parse_tree(data: bytes) -> list[Entry]:
    """All entries in stored order, wrong order and duplicates included; BadObject where the bytes are no tree."""
    found = _apart(_ENTRY, data)
    modes = _modes
    new = tuple.__new__  # a third of the time of calling Entry
    return [new(Entry, (modes[mode], name, oid)) for mode, name, oid, _ in found]


def children(data: bytes) -> tuple[list[bytes], list[bytes]]:
    """The oids of the directories and those of the files and links in a tree; BadObject as in `parse_tree`."""
    found = _apart(_CHILD, data)
    modes = _modes
    directories = [oid for mode, oid, _ in found if modes[mode] == DIRECTORY]
    return directories, [oid for mode, oid, _ in found if modes[mode] not in _NO_FILES]


def _apart(pattern: re.Pattern[bytes], data: bytes) -> list[tuple[bytes, ...]]:
    """The groups of every entry; the last group is what is no entry. BadObject, TooLarge."""
    if len(data) > MAX_BYTES:
        raise TooLarge(f"a tree of {len(data)} bytes is not taken apart, the limit is {MAX_BYTES}")
    found = pattern.findall(data)
    if found and found[-1][-1]:
        raise BadObject("the bytes are no tree object")
    return found


def find(data: bytes, name: bytes) -> Entry | None:
    """The first entry called `name`, None where there is none.

    Exact whatever the order of the entries: a tree is searched for the bytes of the name, and a hit counts only at
    the border of an entry, since an oid or another name can hold the same bytes.
    """
    if not name or b"/" in name or b"\0" in name:
        return None
    needle = b" " + name + b"\0"
    hit = data.find(needle)
    border = 0
    while hit >= 0:
        wanted = hit + len(needle) - 1
        nul = data.find(b"\0", border)
        while 0 <= nul < wanted:
            border = nul + 21
            nul = data.find(b"\0", border)
        if nul == wanted and data.find(b" ", border) == hit:
            mode = data[border:hit]
            oid = data[nul + 1 : nul + 21]
            if len(oid) != 20 or not mode or not _MODE_DIGITS.issuperset(mode):
                raise BadObject("the bytes are no tree object")
            return Entry(_modes[mode], name, oid)
        hit = data.find(needle, hit + 1)
    return None
