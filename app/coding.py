"""Content codings of answers: which one a client and an answer agree on (RFC 9110, section 12.5.3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

IDENTITY: Final = "identity"
GZIP: Final = "gzip"
ZSTD: Final = "zstd"
CODINGS: Final = (ZSTD, GZIP)
"""What answers are coded in, the preferred one first."""

HEADER_BYTES: Final = 1000
"""Longer headers are ignored."""

_ELEMENT: Final = re.compile(
    r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)(?:[ \t]*;[ \t]*[qQ]=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?))?\Z", re.ASCII
)
_ALIASES: Final = {"x-gzip": GZIP}


def tagged(etag: str, coding: str) -> str:
    """The entity tag of an answer in a coding, from the one that it has as it is."""
    return etag if coding == IDENTITY else f'{etag[:-1]}-{coding}"'


def accepted(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The Accept-Encoding of a request's raw headers, whose names are in small letters; None where there is none."""
    found = None
    for name, value in headers:
        if name == b"accept-encoding":
            text = value.decode("latin-1")
            found = text if found is None else f"{found},{text}"
    return found


def choose(header: str | None, offered: Sequence[str] = CODINGS) -> str:
    """The best of the `offered` codings for an Accept-Encoding header, `identity` where none is wanted more.

    The client's weights decide, then the order of `offered`, of which identity is the last. A header that is not well
    formed is ignored as a whole, and so is a refusal of identity: a client that takes nothing we have gets that.
    """
    return _choose(header, tuple(offered)) if header else IDENTITY


@lru_cache(256)
def _choose(header: str, offered: tuple[str, ...]) -> str:
    weights = _weights(header)
    others = weights.get("*", 0.0)
    best, most = IDENTITY, weights.get(IDENTITY, others)
    # From the last to the first, so that the preferred one wins a tie.
    for coding in reversed(offered):
        weight = weights.get(coding, others)
        if weight > 0 and weight >= most:
            best, most = coding, weight
    return best


def _weights(header: str) -> dict[str, float]:
    """coding -> weight, of the first mention of each; empty where the header is malformed or too long."""
    weights: dict[str, float] = {}
    for part in header.split(",") if len(header) <= HEADER_BYTES else ():
        text = part.strip(" \t")
        if not text:
            continue
        match = _ELEMENT.match(text)
        if match is None:
            return {}
        coding = match[1].lower()
        weights.setdefault(_ALIASES.get(coding, coding), float(match[2] or 1))
    return weights
