"""Author, committer and tagger lines: `name SP <email> SP seconds SP zone` (git-commit-tree(1), "DATE FORMATS")."""

from __future__ import annotations

from typing import Final, NamedTuple

# git's isspace: no vertical tab, no form feed.
_SPACE: Final = b" \t\n\r"
_DIGITS: Final = frozenset(b"0123456789")
MAX_TIME: Final = (1 << 63) - 1


class Ident(NamedTuple):
    """A person and a time. `time` is seconds since 1970 or None where git reads none; `tz` is the text as written."""

    name: bytes
    email: bytes
    time: int | None
    tz: bytes
    raw: bytes


def parse_ident(raw: bytes) -> Ident:
    """Read the value of an author, committer or tagger line; never fails, damaged parts come out empty.

    The e-mail begins at the first `<` and ends at the first `>`; the time follows the last `>`, since addresses
    with a stray `>` exist.
    """
    begin = raw.find(b"<")
    end = raw.find(b">", begin)
    if begin < 0 or end < 0:
        return Ident(b"", b"", None, b"", raw)
    name = raw[:begin].rstrip(_SPACE)
    email = raw[begin + 1 : end]
    rest = raw[raw.rfind(b">") + 1 :].strip(_SPACE)
    seconds, _, tz = rest.partition(b" ")
    tz = tz.strip(_SPACE)
    if seconds and _DIGITS.issuperset(seconds) and tz[:1] in (b"+", b"-") and tz[1:2].isdigit() and len(seconds) < 20:
        time = int(seconds)
        return Ident(name, email, time if time <= MAX_TIME else None, tz, raw)
    return Ident(name, email, None, tz or (rest if seconds and not seconds.isdigit() else b""), raw)
