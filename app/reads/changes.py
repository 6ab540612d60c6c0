"""Changed files as records: what the trees tell, and hunks."""

from __future__ import annotations

from typing import Any

import orjson

from app.reads.base import named
from app.reads.recent import Recent
from pack.filediff import Options, Texts, cache_key
from pack.textdiff import Hunk
from pack.treediff import Change
from pack.view import View

# By bytes.
_encoded: Recent[bytes] = Recent(64 << 20)


def change_record(change: Change) -> dict[str, Any]:
    """The fields that the trees tell."""
    return {
        "status": change.status,
        **_path("old_path", change.old_path),
        **_path("new_path", change.new_path),
        "old_mode": _mode(change.old_mode),
        "new_mode": _mode(change.new_mode),
        "old_oid": _hex(change.old_oid),
        "new_oid": _hex(change.new_oid),
        "similarity": change.similarity,
    }


def _path(key: str, path: bytes | None) -> dict[str, Any]:
    return {key: None} if path is None else named(key, path)


def _mode(mode: int | None) -> str | None:
    return f"{mode:06o}" if mode is not None else None


def encoded_hunks(view: View, change: Change, found: Texts, options: Options) -> orjson.Fragment | list[object]:
    """The hunks as JSON, kept encoded: a line costs more to encode than to find in a cache."""
    if not found.hunks:
        return []
    key = cache_key(view, change, options)
    encoded = _encoded.get(key)
    if encoded is None:
        encoded = orjson.dumps([_hunk(hunk) for hunk in found.hunks])
        _encoded.remember(key, encoded, len(encoded) + 500)
    return orjson.Fragment(encoded)


def _hunk(hunk: Hunk) -> dict[str, Any]:
    return {
        "old_start": hunk.old_start,
        "old_lines": hunk.old_lines,
        "new_start": hunk.new_start,
        "new_lines": hunk.new_lines,
        **named("heading", hunk.heading),
        "lines": _lines(hunk),
    }


def _lines(hunk: Hunk) -> list[dict[str, Any]]:
    try:
        text = hunk.body.decode("utf-8")
    except UnicodeDecodeError:
        return [_odd_line(*line) for line in hunk.lines()]
    lines: list[dict[str, Any]] = []
    add = lines.append
    for line in text.split("\n")[:-1]:
        op = line[0]
        if op == "\\":
            lines[-1]["no_newline"] = True
        else:
            add({"op": op, "text": line[1:]})
    return lines


def _odd_line(op: str, data: bytes, no_newline: bool) -> dict[str, Any]:
    line: dict[str, Any] = {"op": op, **named("text", data)}
    if no_newline:
        line["no_newline"] = True
    return line


def _hex(oid: bytes | None) -> str | None:
    return oid.hex() if oid is not None else None
