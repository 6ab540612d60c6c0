"""listRefs: HEAD, then all refs by the bytes of their names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from app.reads.base import Params, Row, Tally, b64, from_b64, named
from pack.objects import TYPE_NAMES
from pack.view import Ref, View

KEY: Final = "refs"


def pin(view: View, params: Params) -> dict[str, Any]:
    return {}


def head(view: View, params: Params, pin: dict[str, Any]) -> dict[str, Any]:
    return {"commit": None}


def rows(view: View, params: Params, pin: dict[str, Any], tally: Tally, position: Any) -> Iterator[Row]:
    """A row a ref; a position is the name of the last one. An unborn HEAD has no row."""
    prefix: bytes = params["prefix"]
    if position is None and not prefix and view.refs.head is not None:
        yield ref_record(view.refs.head), b64(view.refs.head.name)
    after = from_b64(position, "cursor") if position is not None else None
    for ref in view.refs.iterate(prefix, after):
        yield ref_record(ref), b64(ref.name)


def ref_record(ref: Ref) -> dict[str, Any]:
    """The fields of one ref."""
    return {
        **named("name", ref.name),
        "oid": ref.oid.hex(),
        "type": TYPE_NAMES[ref.type].decode(),
        "peeled": ref.peeled.hex() if ref.peeled is not None else None,
        **(named("symref_target", ref.symref_target) if ref.symref_target is not None else {"symref_target": None}),
    }
