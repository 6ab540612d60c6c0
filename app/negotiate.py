"""What a client asked for in its headers: media types, entity tags, ranges (RFC 9110)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pack.errors import NotAcceptable, RangeNotSatisfiable

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
PATCH: Final = "text/x-diff"

_RANGE = re.compile(r"bytes\s*=\s*(\d*)\s*-\s*(\d*)\s*\Z", re.ASCII)
_ETAG = re.compile(r'(?:W/)?"[^"]*"')


def accept(header: str | None, offered: Sequence[str]) -> str:
    """The best of the `offered` media types (first is preferred on a tie); NotAcceptable where none will do."""
    if not header or header == "*/*":
        return offered[0]
    ranges = []
    for part in header.split(","):
        kind, *parameters = [piece.strip() for piece in part.split(";")]
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        ranges.append((kind.lower(), quality))
    best, best_quality = "", 0.0
    for kind in offered:
        major = kind.split("/")[0]
        for wanted in (kind, f"{major}/*", "*/*"):
            found = [quality for name, quality in ranges if name == wanted]
            if found:
                if found[0] > best_quality:
                    best, best_quality = kind, found[0]
                break
    if not best:
        raise NotAcceptable(f"this can be had as {', '.join(offered)}")
    return best


def matches(header: str | None, etag: str) -> bool:
    """Whether If-None-Match names `etag` (weak comparison)."""
    if not header:
        return False
    if header.strip() == "*":
        return True
    return etag in (tag.removeprefix("W/") for tag in _ETAG.findall(header))


def byte_range(header: str | None, size: int) -> tuple[int, int] | None:
    """The one range asked for as (start, end), end exclusive; None where the whole is to be sent.

    What is no valid single range is ignored, as RFC 9110 section 14.2 allows; RangeNotSatisfiable where nothing of it
    lies inside.
    """
    match = _RANGE.match(header.strip()) if header else None
    if not match or not (match[1] or match[2]):
        return None
    if not match[1]:
        length = _number(match[2])
        start, end = max(0, size - length), size
        if length == 0 or size == 0:
            raise RangeNotSatisfiable("the range lies outside the content", size=size)
        return start, end
    start = _number(match[1])
    if match[2] and _number(match[2]) < start:
        return None
    if start >= size:
        raise RangeNotSatisfiable("the range lies outside the content", size=size)
    end = min(_number(match[2]) + 1, size) if match[2] else size
    return start, end


def _number(digits: str) -> int:
    """The number, or one that lies behind the end of everything."""
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) < 19 else 10**18
