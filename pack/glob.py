"""Globs over paths: bytes in, linear time.

A glob without a slash is compared with the last component of a path, at any depth; one with a slash with the whole
path from the root. `*` and `?` stay within a component, `[…]` is one byte of a class, a backslash takes the next byte
as it is. `**` as a whole component stands for any number of them, also none (`**/x`, `a/**/b`), at the end for
everything below (`a/**`); elsewhere it is a `*`, as in gitglossary's "glob" pathspecs. A glob without any of these
signs also matches what lies below the path that it names, and a slash at the end means just what is below.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import re2

from pack.errors import BadPattern

MAX_GLOB_BYTES: Final = 4096

_ASCII: Final = [chr(value) for value in range(128)]
_CLASSES: Final[dict[bytes, frozenset[int]]] = {
    name: frozenset(ord(char) for char in _ASCII if test(char))
    for name, test in (
        (b"alnum", str.isalnum),
        (b"alpha", str.isalpha),
        (b"blank", " \t".__contains__),
        (b"cntrl", lambda char: not char.isprintable()),
        (b"digit", str.isdigit),
        (b"graph", lambda char: char.isprintable() and char != " "),
        (b"lower", str.islower),
        (b"print", str.isprintable),
        (b"punct", lambda char: char.isprintable() and not char.isalnum() and char != " "),
        (b"space", " \t\n\v\f\r".__contains__),
        (b"upper", str.isupper),
        (b"xdigit", "0123456789abcdefABCDEF".__contains__),
    )
}
_SLASH: Final = ord("/")
_NAME: Final = rb"[^/]*"
_FROM_SIGN: Final = re.compile(rb"[*?[\\].*", re.DOTALL)


class Globs:
    """Several globs of which any one may match."""

    def __init__(self, globs: Sequence[bytes]) -> None:
        """BadPattern where a glob is malformed or longer than MAX_GLOB_BYTES."""
        paths: list[bytes] = []
        folders: list[bytes] = []
        for glob in globs:
            path, folder = _translate(glob)
            paths.append(path)
            folders.append(folder)
        self._path = _compile(paths)
        self._folder = _compile(folders)

    def match(self, path: bytes) -> bool:
        """Whether a glob matches this path (full, from the root)."""
        return self._path.fullmatch(path) is not None

    def may_enter(self, folder: bytes) -> bool:
        """Whether something below this directory may match; true for the root, whose path is empty."""
        return not folder or self._folder.fullmatch(folder) is not None


def folder_of(globs: Sequence[bytes]) -> bytes:
    """A directory, with its slash, below which all lies that the globs match; empty where there may be more."""
    literal = [_FROM_SIGN.sub(b"", glob.lstrip(b"/")) if b"/" in glob.rstrip(b"/") else b"" for glob in globs]
    first, last = min(literal, default=b""), max(literal, default=b"")
    end = 0
    while (at := first.find(b"/", end) + 1) and last.startswith(first[:at]):
        end = at
    return first[:end]


def compile(globs: Sequence[bytes]) -> Globs:  # noqa: A001 - as in re
    """The globs ready to match."""
    return Globs(globs)


def _compile(parts: list[bytes]) -> re2._Regexp:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.dot_nl = True
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(b"|".join(b"(?:" + part + b")" for part in parts), options)
    except re2.error:
        raise BadPattern("the globs together are too large", parameter="glob") from None


def _refuse(glob: bytes, why: str) -> BadPattern:
    return BadPattern(f"the glob {glob[:100].decode('utf-8', 'replace')!r} {why}", parameter="glob")


def _translate(glob: bytes) -> tuple[bytes, bytes]:
    """(pattern of the paths that match, pattern of the directories that may hold such paths)."""
    if len(glob) > MAX_GLOB_BYTES:
        raise _refuse(glob, f"is longer than {MAX_GLOB_BYTES} bytes")
    below = glob.endswith(b"/")
    body = glob.strip(b"/")
    if not body:
        return b".*", b".*"
    anchored = b"/" in glob.rstrip(b"/")
    parts: list[bytes | None] = []
    plain = True
    for piece in _components(glob, body):
        part, literal = (None, False) if piece == b"**" else _component(glob, piece)
        plain = plain and literal
        if part is not None or not parts or parts[-1] is not None:
            parts.append(part)
    if below:
        tail = b"/.*"
    elif plain:
        tail = b"(?:/.*)?"
    else:
        tail = b""
    if not anchored:
        (only,) = parts
        name = _NAME if only is None else only
        return b"(?:.*/)?" + name + tail, b".*"
    return _path(parts) + tail, _folder(parts, bool(tail))


def _components(glob: bytes, body: bytes) -> list[bytes]:
    """The glob between its slashes; one in a class is no border, and matches nothing."""
    pieces: list[bytes] = []
    start = at = 0
    while at < len(body):
        byte = body[at : at + 1]
        if byte == b"\\":
            at += 2
        elif byte == b"[":
            at = _class(glob, body, at)[1]
        else:
            if byte == b"/":
                pieces.append(body[start:at])
                start = at + 1
            at += 1
    pieces.append(body[start:])
    return pieces


def _component(glob: bytes, piece: bytes) -> tuple[bytes, bool]:
    """(pattern of one component, whether it is plain text)."""
    out: list[bytes] = []
    plain = True
    at = 0
    while at < len(piece):
        byte = piece[at : at + 1]
        if byte == b"*":
            while piece[at : at + 1] == b"*":
                at += 1
            out.append(_NAME)
            plain = False
            continue
        if byte == b"?":
            out.append(rb"[^/]")
            plain = False
        elif byte == b"[":
            text, at = _class(glob, piece, at)
            out.append(text)
            plain = False
            continue
        elif byte == b"\\":
            at += 1
            if at >= len(piece):
                raise _refuse(glob, "ends in a backslash")
            out.append(_byte(piece[at]))
        else:
            out.append(_byte(piece[at]))
        at += 1
    return b"".join(out), plain


def _byte(value: int) -> bytes:
    return b"\\x%02x" % value


def _class(glob: bytes, text: bytes, at: int) -> tuple[bytes, int]:
    """The class that opens at `at`, as a pattern, and where the text goes on. No class matches a slash."""
    at += 1
    negated = text[at : at + 1] in (b"!", b"^")
    at += negated
    members: set[int] = set()
    first = at
    while at == first or text[at : at + 1] != b"]":
        if at >= len(text):
            raise _refuse(glob, "has a [ without its ]")
        if text.startswith(b"[:", at):
            end = text.find(b":]", at)
            named = _CLASSES.get(text[at + 2 : end]) if end >= 0 else None
            if named is None:
                raise _refuse(glob, "names an unknown class of characters")
            members |= named
            at = end + 2
            continue
        low, at = _member(glob, text, at)
        high = low
        if text[at : at + 1] == b"-" and text[at + 1 : at + 2] not in (b"]", b""):
            high, at = _member(glob, text, at + 1)
        members.update(range(low, high + 1))
    if negated:
        members = set(range(256)) - members
    members.discard(_SLASH)
    if not members:
        return rb"[^\x00-\xff]", at + 1
    return b"[" + b"".join(_byte(value) for value in sorted(members)) + b"]", at + 1


def _member(glob: bytes, text: bytes, at: int) -> tuple[int, int]:
    if text[at : at + 1] == b"\\":
        at += 1
        if at >= len(text):
            raise _refuse(glob, "has a [ without its ]")
    return text[at], at + 1


def _path(parts: list[bytes | None]) -> bytes:
    """Components joined; None is `**`."""
    out = b""
    for i, part in enumerate(parts):
        last = i == len(parts) - 1
        if part is None:
            # Any components with their slashes; at the end there must be something below.
            out += b".+" if last else b"(?:.*/)?"
        else:
            out += part + (b"" if last else b"/")
    return out


def _folder(parts: list[bytes | None], tail: bool) -> bytes:
    """Leading directories of what `_path` matches."""
    if parts[0] is None:
        return b".*"
    out = b"(?:/.*)?" if tail else b""
    # From the last component to the first, which itself holds nothing unless it has a tail or is `**`.
    for part in reversed(parts if tail or parts[-1] is None else parts[:-1]):
        if part is None:
            out = b"/.*"
            continue
        out = part + (b"(?:" + (b"" if out.startswith((b"/", b"(?:/")) else b"/") + out + b")?" if out else b"")
    return out
