"""Commit objects (git-commit-tree(1); gitformat-signature(5) for headers that run over several lines)."""

from __future__ import annotations

from binascii import unhexlify
from typing import Final, NamedTuple

from pack.charset import decode
from pack.errors import BadObject, TooLarge
from pack.ident import Ident, parse_ident

MAX_BYTES: Final = 8 << 20  # of a commit or tag: their lines become objects, of which millions would fill the memory
_SIGNATURES: Final = (b"gpgsig", b"gpgsig-sha256")


class Links(NamedTuple):
    """What a walk needs of a commit: tree and parents as oids, the committer's time as git's walk reads it."""

    tree: bytes
    parents: tuple[bytes, ...]
    time: int


class Commit(NamedTuple):
    """A parsed commit. `headers` holds every other header in order, unfolded; all text is undecoded."""

    tree: bytes
    parents: tuple[bytes, ...]
    author: Ident | None
    committer: Ident | None
    encoding: bytes | None
    message: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    signed: bool


def links(data: bytes) -> Links:
    """Tree, parents and time of a commit's bytes; BadObject where git refuses them.

    The time is 0 where the committer line is not where it should be or holds no number.
    """
    if data[:5] != b"tree " or data[45:46] != b"\n" or len(data) == 46:
        raise BadObject("the bytes are no commit object")
    try:
        tree = unhexlify(data[5:45])
        if data[46:53] != b"parent ":
            return Links(tree, (), _time(data, 46))
        if data[93:94] != b"\n":
            raise BadObject("a parent line of the commit is damaged")
        first = unhexlify(data[53:93])
        if data[94:101] != b"parent ":
            return Links(tree, (first,), _time(data, 94))
        parents = [first]
        at = 94
        while data[at : at + 7] == b"parent ":
            if data[at + 47 : at + 48] != b"\n":
                raise BadObject("a parent line of the commit is damaged")
            parents.append(unhexlify(data[at + 7 : at + 47]))
            at += 48
        return Links(tree, tuple(parents), _time(data, at))
    except ValueError:
        raise BadObject("an id in the commit is damaged") from None


def _time(data: bytes, at: int) -> int:
    line = data.find(b"\n", at)
    if data[at : at + 6] != b"author" or line < 0 or data[line + 1 : line + 10] != b"committer":
        return 0
    start = data.find(b">", line)
    text = data[start + 2 : start + 12]
    if start >= 0 and text.isdigit() and data[start + 12 : start + 13] == b" ":
        return int(text)
    return _odd_time(data, start)


def _odd_time(data: bytes, start: int) -> int:
    """As C's strtoumax reads it: leading space, a sign, digits; a negative number wraps around."""
    end = data.find(b"\n", start)
    if start < 0 or end < 0:
        return 0
    text = data[start + 1 : end].lstrip(b" \t\n\v\f\r")
    sign = text[:1]
    digits = text[1:] if sign in (b"+", b"-") else text
    count = len(digits) - len(digits.lstrip(b"0123456789"))
    if not count:
        return 0
    value = int(digits[:count]) if count <= 20 else 1 << 64
    if value >= 1 << 64:
        return (1 << 64) - 1
    return (1 << 64) - value if sign == b"-" and value else value


def unfold(head: bytes) -> list[tuple[bytes, bytes]]:
    """Header lines of a commit or tag as (key, value); a line that starts with a space continues the one before."""
    keys: list[bytes] = []
    values: list[list[bytes]] = []
    for line in head.split(b"\n"):
        if line[:1] == b" " and values:
            values[-1].append(line[1:])
        elif line:
            key, _, value = line.partition(b" ")
            keys.append(key)
            values.append([value])
    return [(key, b"\n".join(lines)) for key, lines in zip(keys, values, strict=True)]


def split(data: bytes) -> tuple[bytes, bytes]:
    """Headers and message of a commit or tag: they part at the first empty line."""
    if data[:1] == b"\n":
        return b"", data[1:]
    head, _, message = data.partition(b"\n\n")
    return head, message


def parse_commit(data: bytes) -> Commit:
    """All of a commit; BadObject only where git's own walk refuses it (tree or parent lines)."""
    if len(data) > MAX_BYTES:
        raise TooLarge(f"a commit of {len(data)} bytes is not taken apart, the limit is {MAX_BYTES}")
    tree, parents, _ = links(data)
    head, message = split(data)
    author = committer = encoding = None
    others: list[tuple[bytes, bytes]] = []
    # Parents count only right after the tree: a later "parent" is a header like any other, as in git.
    for key, value in unfold(head[46 + 48 * len(parents) :]):
        if key == b"author":
            author = parse_ident(value)
        elif key == b"committer":
            committer = parse_ident(value)
        elif key == b"encoding" and encoding is None:
            encoding = value
        else:
            others.append((key, value))
    signed = any(key in _SIGNATURES for key, _ in others)
    return Commit(tree, parents, author, committer, encoding, message, tuple(others), signed)


def subject(message: bytes) -> bytes:
    """git's %s: the lines of the first paragraph joined by spaces."""
    lines: list[bytes] = []
    at = 0
    while at < len(message):
        end = message.find(b"\n", at)
        end = len(message) if end < 0 else end
        line = message[at:end].rstrip(b" \t\r")
        if line:
            lines.append(line)
        elif lines:
            break
        at = end + 1
    return b" ".join(lines)


def text(data: bytes, encoding: bytes | None) -> str:
    """`data` as text, by the commit's encoding header; see `charset.decode`."""
    return decode(data, encoding)[0]
