"""The grammar of revisions (gitrevisions(7)), without looking anything up.

    rev    = base suffix* [":" path]  |  ":/" text
    base   = full oid | unique oid prefix | ref name in short or full form | "@" | name "-" n "-g" oid prefix
    suffix = "~" [n] | "^" [n] | "^{" type "}" | "^{}" | "^{/" text "}"

What git takes beyond this needs a work tree, an index or a reflog, or names more than one object: refused with a hint.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from pack.errors import BadRevision
from pack.objects import TYPE_NUMBERS

MAX_LENGTH: Final = 4096
_SHORT: Final = 128
_MAX_NUMBER: Final = (1 << 31) - 1
_STEP = re.compile(rb"([~^])([0-9]*)\Z")
_KINDS: Final[dict[bytes, int | None]] = {**TYPE_NUMBERS, b"": None, b"object": 0}


class Parent(NamedTuple):
    """`^n`: the n-th parent; 0 is the commit itself."""

    number: int


class Ancestor(NamedTuple):
    """`~n`: n times the first parent."""

    generations: int


class Peel(NamedTuple):
    """`^{type}`: to an object of that type; None follows tags to their end, 0 takes the object as it is."""

    kind: int | None


class Search(NamedTuple):
    """`^{/text}` and `:/text`: the youngest commit whose message matches (or does not, when negated)."""

    pattern: bytes
    negated: bool


Suffix = Parent | Ancestor | Peel | Search


class Rev(NamedTuple):
    """A parsed revision: `base` is None for `:/text`, which is then the only suffix; `path` is None without a colon."""

    base: bytes | None
    suffixes: tuple[Suffix, ...]
    path: bytes | None


def parse(rev: bytes) -> Rev:
    """Take a revision apart; BadRevision where it is none."""
    return _known(rev) if len(rev) <= _SHORT else _parse(rev)


def _parse(rev: bytes) -> Rev:
    if not rev:
        raise BadRevision("the revision is empty", parameter="rev")
    if len(rev) > MAX_LENGTH:
        raise BadRevision(f"the revision is longer than {MAX_LENGTH} bytes", parameter="rev")
    if b"\0" in rev:
        raise BadRevision("the revision holds a NUL byte", parameter="rev")
    if rev[:1] == b"-":
        raise _refused(rev, "options are not taken here")
    if rev[:2] == b":/":
        if len(rev) == 2:
            raise _refused(rev, "the text to search for is missing")
        return Rev(None, (_search(rev, rev[2:]),), None)
    if rev[:1] == b":":
        raise _refused(rev, "there is no index; name a revision before the colon, as in HEAD:path")
    colon = _colon(rev)
    left = rev if colon < 0 else rev[:colon]
    path = None if colon < 0 else rev[colon + 1 :]
    if path is not None and path.startswith((b"./", b"../")):
        raise _refused(rev, "there is no current directory; paths are full from the root")
    base, suffixes = _suffixes(rev, left)
    _check_base(rev, base)
    return Rev(base, suffixes, path)


_known = lru_cache(4096)(_parse)  # the same few are asked for all the time


def _colon(rev: bytes) -> int:
    """The first colon outside of braces."""
    depth = 0
    for position, byte in enumerate(rev):
        if byte == 0x7B:
            depth += 1
        elif depth and byte == 0x7D:
            depth -= 1
        elif not depth and byte == 0x3A:
            return position
    return -1


def _suffixes(rev: bytes, text: bytes) -> tuple[bytes, tuple[Suffix, ...]]:
    """Split suffixes off from the right; they come back in the order in which they apply."""
    suffixes: list[Suffix] = []
    while True:
        step = _STEP.search(text)
        if step is not None:
            suffixes.append(_step(rev, step[1], step[2]))
            text = text[: step.start()]
            continue
        brace = text.rfind(b"^{")
        if brace < 0 or not text.endswith(b"}"):
            return text, tuple(reversed(suffixes))
        inner = text[brace + 2 : -1]
        if inner[:1] == b"/":
            suffixes.append(Peel(TYPE_NUMBERS[b"commit"]) if inner == b"/" else _search(rev, inner[1:]))
        elif inner in _KINDS:
            suffixes.append(Peel(_KINDS[inner]))
        else:
            raise _refused(rev, "the types in ^{…} are commit, tree, blob, tag and object")
        text = text[:brace]


def _step(rev: bytes, sign: bytes, digits: bytes) -> Suffix:
    number = 1 if not digits else int(digits) if len(digits) < 12 else _MAX_NUMBER + 1
    if number > _MAX_NUMBER:
        raise _refused(rev, "the number is too large")
    return Parent(number) if sign == b"^" else Ancestor(number)


def _search(rev: bytes, text: bytes) -> Search:
    if text[:1] != b"!":
        return Search(text, False)
    if text[1:2] == b"-":
        return Search(text[2:], True)
    if text[1:2] == b"!":
        return Search(text[1:], False)
    raise _refused(rev, "a search that begins with ! is !-TEXT (not matching) or !!TEXT (a literal !)")


def _check_base(rev: bytes, base: bytes) -> None:
    if not base:
        hint = "to leave a revision out, use not=" if rev[:1] == b"^" else "it names nothing to start from"
        raise _refused(rev, hint)
    if base[:1] == b"^":
        raise _refused(rev, "to leave a revision out, use not=")
    if b".." in base:
        raise _refused(rev, "a range is asked for with rev= and not= (log), or base= and head= (diff)")
    if base.endswith((b"^@", b"^!", b"^-")) or b"^-" in base:
        raise _refused(rev, "it names several commits; ask for each one with rev= and not=")
    if b"@{" in base:
        raise _refused(rev, "there are no reflogs, upstreams or earlier checkouts here; name the branch or the commit")


def _refused(rev: bytes, hint: str) -> BadRevision:
    shown = rev[:200].decode("utf-8", "replace")
    return BadRevision(f"{shown!r} is no revision: {hint}", parameter="rev")
