"""Text of commits and tags: which encodings are honoured, and what becomes of bytes that do not decode."""

from __future__ import annotations

import codecs
from functools import lru_cache
from typing import Final

# The names, as codecs.lookup gives them, of encodings that are plain character sets. Python knows more "encodings":
# transformations (rot13, zip, hex), ones that are slow over hostile input (idna, punycode), and ones that can give
# lone surrogates (utf-7).
_CHARACTER_SETS: Final = frozenset(
    [
        *("ascii", "utf-8", "utf-16", "utf-16-be", "utf-16-le", "utf-32", "utf-32-be", "utf-32-le"),
        *(f"iso8859-{number}" for number in range(1, 17) if number != 12),
        *(f"cp{number}" for number in (1125, 1250, 1251, 1252, 1253, 1254, 1255, 1256, 1257, 1258)),
        *(f"cp{number}" for number in (437, 737, 775, 850, 852, 855, 857, 858, 860, 861, 862, 863, 864, 865, 866)),
        *(f"cp{number}" for number in (869, 874, 932, 949, 950)),
        *("koi8-r", "koi8-u", "koi8-t", "kz1048", "ptcp154", "tis-620", "hp-roman8"),
        *("mac-cyrillic", "mac-greek", "mac-iceland", "mac-latin2", "mac-roman", "mac-turkish"),
        *("big5", "big5hkscs", "gb2312", "gbk", "gb18030", "hz", "johab"),
        *("euc_jp", "euc_jis_2004", "euc_kr", "shift_jis", "shift_jis_2004", "shift_jisx0213"),
        *("iso2022_jp", "iso2022_jp_1", "iso2022_jp_2", "iso2022_jp_2004", "iso2022_jp_3", "iso2022_kr"),
    ]
)


@lru_cache(maxsize=256)
def codec(name: bytes) -> str | None:
    """The Python codec for an encoding header's value; None for what is unknown or no character set."""
    try:
        found = codecs.lookup(name.decode("ascii").strip())
    except (LookupError, ValueError):
        return None
    return found.name if found.name in _CHARACTER_SETS else None


def decode(data: bytes, encoding: bytes | None) -> tuple[str, bool]:
    """(text, exact). By the named encoding; where that is none or fails, as UTF-8, with U+FFFD for what is not.

    git shows the bytes untouched in that case. `exact` is False where the text does not hold all of the bytes.
    """
    name = codec(encoding) if encoding is not None else None
    if name is not None:
        try:
            return data.decode(name), True
        except ValueError:
            pass
    try:
        return data.decode("utf-8"), True
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace"), False
