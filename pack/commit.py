"""Commit objects (git-commit-tree(1); gitformat-signature(5) for headers that run over several lines)."""

from __future__ import annotations

import codecs
from binascii import unhexlify
from functools import lru_cache
from typing import Final, NamedTuple

from pack.errors import BadObject
from pack.ident import Ident, parse_ident

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
    if data[:5] != b"tree " or data[45:46] != b"\n":
        raise BadObject("the bytes are no commit object")
    try:
        tree = unhexlify(data[5:45])
        if data[46:53] != b"parent ":
            return Links(tree, (), _time(data, 46))
        if data[93:94] != b"\n":
            raise BadObject("a parent line of the commit is damaged")
        parents: tuple[bytes, ...] = (unhexlify(data[53:93]),)
        at = 94
        while data[at : at + 7] == b"parent ":
            if data[at + 47 : at + 48] != b"\n":
                raise BadObject("a parent line of the commit is damaged")
            parents += (unhexlify(data[at + 7 : at + 47]),)
            at += 48
        return Links(tree, parents, _time(data, at))
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
    headers: list[tuple[bytes, bytes]] = []
    for line in head.split(b"\n"):
        if line[:1] == b" " and headers:
            key, value = headers[-1]
            headers[-1] = (key, value + b"\n" + line[1:])
        elif line:
            key, _, value = line.partition(b" ")
            headers.append((key, value))
    return headers


def split(data: bytes) -> tuple[bytes, bytes]:
    """Headers and message of a commit or tag: they part at the first empty line."""
    if data[:1] == b"\n":
        return b"", data[1:]
    head, _, message = data.partition(b"\n\n")
    return head, message


def parse_commit(data: bytes) -> Commit:
    """All of a commit; BadObject only where git's own walk refuses it (tree or parent lines)."""
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
    for line in message.split(b"\n"):
        bare = line.rstrip(b" \t\r\v\f")
        if bare:
            lines.append(bare)
        elif lines:
            break
    return b" ".join(lines)


@lru_cache(maxsize=256)
def codec(name: bytes) -> str:
    """The Python codec for an encoding header's value; UTF-8 for what is unknown or no character encoding."""
    try:
        found = codecs.lookup(name.decode("ascii").strip())
    except (LookupError, UnicodeDecodeError, ValueError):
        return "utf-8"
    return found.name if found.name in _CHARACTER_SETS else "utf-8"


# The names (as codecs.lookup gives them) of encodings that are plain character sets. Python knows more "encodings",
# among them transformations (rot13, zip, hex) and ones that are slow or stateful over hostile input (idna, punycode).
_CHARACTER_SETS: Final = frozenset(
    [
        "ascii",
        "big5",
        "big5hkscs",
        "cp037",
        "cp1006",
        "cp1026",
        "cp1125",
        "cp1140",
        "cp1250",
        "cp1251",
        "cp1252",
        "cp1253",
        "cp1254",
        "cp1255",
        "cp1256",
        "cp1257",
        "cp1258",
        "cp273",
        "cp424",
        "cp437",
        "cp500",
        "cp720",
        "cp737",
        "cp775",
        "cp850",
        "cp852",
        "cp855",
        "cp856",
        "cp857",
        "cp858",
        "cp860",
        "cp861",
        "cp862",
        "cp863",
        "cp864",
        "cp865",
        "cp866",
        "cp869",
        "cp874",
        "cp875",
        "cp932",
        "cp949",
        "cp950",
        "euc_jis_2004",
        "euc_jisx0213",
        "euc_jp",
        "euc_kr",
        "gb18030",
        "gb2312",
        "gbk",
        "hp-roman8",
        "hz",
        "iso2022_jp",
        "iso2022_jp_1",
        "iso2022_jp_2",
        "iso2022_jp_2004",
        "iso2022_jp_3",
        "iso2022_jp_ext",
        "iso2022_kr",
        "iso8859-1",
        "iso8859-10",
        "iso8859-11",
        "iso8859-13",
        "iso8859-14",
        "iso8859-15",
        "iso8859-16",
        "iso8859-2",
        "iso8859-3",
        "iso8859-4",
        "iso8859-5",
        "iso8859-6",
        "iso8859-7",
        "iso8859-8",
        "iso8859-9",
        "johab",
        "koi8-r",
        "koi8-t",
        "koi8-u",
        "kz1048",
        "mac-croatian",
        "mac-cyrillic",
        "mac-greek",
        "mac-iceland",
        "mac-latin2",
        "mac-roman",
        "mac-turkish",
        "ptcp154",
        "shift_jis",
        "shift_jis_2004",
        "shift_jisx0213",
        "tis-620",
        "utf-16",
        "utf-16-be",
        "utf-16-le",
        "utf-32",
        "utf-32-be",
        "utf-32-le",
        "utf-7",
        "utf-8",
    ]
)


def text(data: bytes, encoding: bytes | None) -> str:
    """`data` as text: by the commit's encoding header, else UTF-8; what does not decode becomes U+FFFD.

    Where the named encoding cannot decode the bytes, they are read as UTF-8, as git shows them untouched.
    """
    if encoding is not None:
        try:
            return data.decode(codec(encoding))
        except (UnicodeError, ValueError):
            pass
    return data.decode("utf-8", "replace")
