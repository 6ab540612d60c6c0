"""Cursors: opaque, authenticated, bound to one operation, its parameters and what it was pinned to.

A cursor is base64url of a 16-byte HMAC-SHA256 tag and a JSON document. The key lies in the store, so any replica
continues a list that another one began.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from dataclasses import dataclass
from typing import Any, Final

import orjson

from app.reads.base import b64, from_b64
from pack.errors import BadCursor, RequestError

TAG_BYTES: Final = 16
MAX_CURSOR_BYTES: Final = 64 * 1024

# What may differ between two pages of one list.
UNBOUND: Final = frozenset({"limit", "max_bytes", "cursor", "min_generation"})


@dataclass(frozen=True)
class Position:
    """Where a list goes on: the ids it was pinned to, the position behind its last record, and its generation."""

    pin: dict[str, Any]
    after: Any
    generation: int


def binding(repository: str, operation: str, params: dict[str, Any], scope: str) -> bytes:
    """A digest of everything that a cursor must not be used apart from.

    `repository` carries the registration, so a repository that was deleted and made anew refuses old cursors;
    `scope` names the token.
    """
    bound = sorted((name, repr(value)) for name, value in params.items() if name not in UNBOUND)
    return hashlib.sha256(repr((repository, operation, scope, bound)).encode("utf-8", "surrogatepass")).digest()[:16]


def seal(key: bytes, bound: bytes, position: Position) -> str:
    body = orjson.dumps([position.generation, position.pin, position.after])
    packed = zlib.compress(body) if len(body) > 200 else body
    return b64(_tag(key, bound, packed) + packed)


def unseal(key: bytes, bound: bytes, cursor: str) -> Position:
    """The position in `cursor`; BadCursor where it is damaged, forged, or of another request."""
    try:
        data = from_b64(cursor, "cursor")
    except RequestError:
        data = b""
    tag, packed = data[:TAG_BYTES], data[TAG_BYTES:]
    if not packed or not hmac.compare_digest(tag, _tag(key, bound, packed)):
        raise BadCursor(
            "the cursor is damaged, or belongs to another operation, other parameters or another token",
            parameter="cursor",
        )
    body = packed if packed[:1] == b"[" else zlib.decompress(packed)
    generation, pin, after = orjson.loads(body)
    return Position(pin, after, generation)


def _tag(key: bytes, bound: bytes, packed: bytes) -> bytes:
    return hmac.digest(key, bound + packed, "sha256")[:TAG_BYTES]
