"""Tree objects: `mode SP name NUL oid`, repeated (git's tree format; gitglossary "tree object").

Names are bytes without a slash or a NUL. Modes come out as git prints them: of a regular file only the owner's
exec bit counts (0100644, 0100755), whatever is no file, link or directory is a gitlink (0160000).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from pack.errors import BadObject
from pack.objects import BLOB, COMMIT, TREE

REGULAR: Final = 0o100644
EXECUTABLE: Final = 0o100755
SYMLINK: Final = 0o120000
GITLINK: Final = 0o160000
DIRECTORY: Final = 0o040000

_ENTRY = re.compile(rb"([0-7]+) ([^\0]+)\0(.{20})", re.DOTALL)
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
    modes = _modes
    found = _ENTRY.findall(data)
    entries = [Entry(modes[mode], name, oid) for mode, name, oid in found]
    # findall steps over what does not match: only an exact sum of lengths proves that nothing was stepped over.
    if sum(map(len, (part for entry in found for part in entry))) + 2 * len(found) != len(data):
        raise BadObject("the bytes are no tree object")
    return entries


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
        while border <= hit:
            space = data.find(b" ", border)
            if space == hit:
                oid = data[hit + len(needle) : hit + len(needle) + 20]
                mode = data[border:space]
                if len(oid) != 20 or not mode or not _MODE_DIGITS.issuperset(mode):
                    raise BadObject("the bytes are no tree object")
                return Entry(_modes[mode], name, oid)
            nul = data.find(b"\0", space)
            if space < 0 or nul < 0:
                raise BadObject("the bytes are no tree object")
            border = nul + 21
        hit = data.find(needle, hit + 1)
    return None
