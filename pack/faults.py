"""Where in a pack an error lies."""

from __future__ import annotations

from typing import TypeVar

from pack.errors import PackError

E = TypeVar("E", bound=PackError)


def located(error: E, row: int, offset: int) -> E:
    """The same error, which now says at which entry (from 0) and offset (bytes) it is; the first place told stays."""
    if "object" not in error.extra and "offset" not in error.extra:
        error.extra["object"] = row
        error.extra["offset"] = offset
        error.detail = f"object {row} at offset {offset}: {error.detail}"
        error.args = (error.detail,)
    return error
