"""Author, committer and tagger lines: `name SP <email> SP seconds SP zone` (git-commit-tree(1), "DATE FORMATS")."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_SPACE: Final = b" \t\n\r"  # git's isspace knows no vertical tab and no form feed
_DATE = re.compile(rb"([0-9]+)[ \t\n\r]*([+-][0-9]+)")
MAX_TIME: Final = (1 << 63) - 1
_LAST: Final = (1 << 64) - 1


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
    with a stray `>` exist. As in git, a time without a zone is no time; what stands there is then kept in `tz`.
    """
    begin = raw.find(b"<")
    end = raw.find(b">", begin)
    if begin < 0 or end < 0:
        return Ident(b"", b"", None, b"", raw)
    name = raw[:begin].rstrip(_SPACE)
    email = raw[begin + 1 : end]
    date = raw[raw.rfind(b">") + 1 :].lstrip(_SPACE)
    found = _DATE.match(date)
    if found is None:
        return Ident(name, email, None, date.rstrip(_SPACE), raw)
    # Twenty digits and more overflow anyway, and reading thousands of them would take long.
    time = int(found[1]) if len(found[1]) < 20 else MAX_TIME + 1
    return Ident(name, email, time if time <= MAX_TIME else None, found[2], raw)


def sort_time(ident: Ident) -> int:
    """The time as git sorts by it: what is too large for 64 bits is the largest number there, no time is 0."""
    if ident.time is not None:
        return ident.time
    found = _DATE.match(ident.raw[ident.raw.rfind(b">") + 1 :].lstrip(_SPACE))
    if found is None or b"<" not in ident.raw:
        return 0
    digits = found[1].lstrip(b"0")
    return min(int(digits), _LAST) if len(digits) <= 20 else _LAST
