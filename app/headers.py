"""Headers of answers: which generation and commit they were read at, and how long they may be kept."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from app.operations import Operation
from app.reads.base import Params

if TYPE_CHECKING:
    from storage.repository import Handle

VARY: Final = "Accept, Accept-Encoding, Authorization"
IMMUTABLE: Final = "private, immutable, max-age=31536000"
NO_CACHE: Final = "private, no-cache"
NO_STORE: Final = "no-store"
OID: Final = re.compile(rb"[0-9a-f]{40}\Z")

# Counts up when the same question to the same generation gets another answer than before.
FORMAT: Final = 1


def headers_of(handle: Handle, commit: str | None, etag: str | None, cache: str) -> dict[str, str]:
    headers = {"Vary": VARY, "Cache-Control": cache, "Packhouse-Generation": str(handle.generation)}
    if commit is not None:
        headers["Packhouse-Commit"] = commit
    if etag is not None:
        headers["ETag"] = etag
    if handle.stale:
        headers["Packhouse-Stale"] = str(round(handle.stale))
    return headers


def cache_of(operation: Operation, params: Params) -> str:
    """Immutable where the answer depends on nothing but full object ids."""
    revs: list[bytes] = []
    for param in operation.params:
        value = params[param.name] if param.kind == "rev" else None
        if value is not None:
            revs.extend(value if isinstance(value, tuple) else (value,))
    return IMMUTABLE if revs and all(OID.match(rev) for rev in revs) else NO_CACHE


def etag_of(operation: Operation, params: Params, handle: Handle, kind: str) -> str:
    """A strong tag of one representation: a generation never changes, so neither does its answer to a question."""
    asked = sorted((name, repr(value)) for name, value in params.items() if name != "min_generation")
    basis = repr((FORMAT, operation.id, kind, handle.namespace, handle.generation, asked))
    return f'"{hashlib.sha256(basis.encode("utf-8", "surrogatepass")).hexdigest()[:32]}"'
