"""resolve: revisions to object ids."""

from __future__ import annotations

from typing import Any

from app.reads.base import Params, named
from pack.objects import TYPE_NAMES
from pack.revision import Resolved, resolve
from pack.view import View


def read(view: View, params: Params) -> dict[str, Any]:
    """The fields of one revision; of several `results`, and `commit` is that of the first."""
    revs: tuple[bytes, ...] = params["rev"]
    records = [_record(rev, resolve(view, rev)) for rev in revs]
    return records[0] if len(records) == 1 else {"commit": records[0]["commit"], "results": records}


def _record(rev: bytes, found: Resolved) -> dict[str, Any]:
    return {
        **named("rev", rev),
        "oid": found.oid.hex(),
        "type": TYPE_NAMES[found.type].decode(),
        "commit": _hex(found.commit),
        "tree": _hex(found.tree),
        **_named("ref", found.ref),
        **_named("path", found.path),
        "mode": f"{found.mode:06o}" if found.mode is not None else None,
    }


def _hex(oid: bytes | None) -> str | None:
    return oid.hex() if oid is not None else None


def _named(key: str, value: bytes | None) -> dict[str, Any]:
    return named(key, value) if value is not None else {key: None}
