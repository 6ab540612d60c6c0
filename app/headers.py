"""Headers of answers: which generation and commit they were read at, and how long they may be kept."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from app.coding import IDENTITY

if TYPE_CHECKING:
    from storage.repository import Handle

VARY: Final = "Accept, Accept-Encoding, Authorization"
IMMUTABLE: Final = "private, immutable, max-age=31536000"
NO_CACHE: Final = "private, no-cache"
NO_STORE: Final = "no-store"
OID: Final = re.compile(rb"[0-9a-f]{40}\Z")

# Counts up when the same question to the same generation gets another answer than before.
FORMAT: Final = 2


def headers_of(
    handle: Handle, commit: str | None, etag: str | None, cache: str, coding: str = IDENTITY
) -> dict[str, str]:
    headers = {"Vary": VARY, "Cache-Control": cache, "Packhouse-Generation": str(handle.generation)}
    if commit is not None:
        headers["Packhouse-Commit"] = commit
    if etag is not None:
        headers["ETag"] = etag
    if coding != IDENTITY:
        headers["Content-Encoding"] = coding
    if handle.stale:
        headers["Packhouse-Stale"] = str(round(handle.stale))
    return headers
