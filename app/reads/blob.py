"""readBlob: a file as JSON, as text by lines or as base64."""

from __future__ import annotations

import base64
import re
from typing import Any, Final

from app.reads.base import Params, Tally, named
from app.reads.stat import refuse_gitlink
from pack.errors import WrongType
from pack.objects import BLOB, TYPE_NAMES
from pack.revision import locate, show
from pack.tree import SYMLINK
from pack.view import View

BINARY_BYTES: Final = 8000  # where git looks for a NUL
_LFS_BYTES: Final = 1024
_LFS = re.compile(
    rb"version https://(?:git-lfs\.github\.com|hawser\.github\.com)/spec/v1\n"
    rb"(?:ext-[^\n]*\n)*oid sha256:([0-9a-f]{64})\nsize ([0-9]{1,18})\n(?:[^\n]*\n)*\Z"
)


def read(view: View, params: Params) -> dict[str, Any]:
    """The blob at `path` in `rev`.

    `lines` is a pair (first, last or None). Content ends at `max_bytes`, after a whole line where that can be;
    what is cut off makes the answer incomplete for `budget`, and `next_line` is where to go on. It is None where a line
    was cut.
    """
    place = locate(view, params["rev"], params["path"])
    refuse_gitlink(view, place)
    if place.type != BLOB:
        what = show(place.path or params["rev"])
        raise WrongType(f"{what} is a {TYPE_NAMES[place.type].decode()}, not a blob", parameter="path")
    data = view.objects.read_as(place.oid, BLOB)
    tally = Tally()
    record: dict[str, Any] = {
        "commit": place.commit.hex() if place.commit is not None else None,
        **named("path", place.path),
        "oid": place.oid.hex(),
        "mode": f"{place.mode:06o}" if place.mode is not None else None,
        "size": len(data),
        **content(data, params["lines"], params["max_bytes"], tally),
    }
    pointer = _LFS.match(data) if len(data) <= _LFS_BYTES else None
    if pointer is not None:
        record["lfs"] = {"oid": pointer[1].decode(), "size": int(pointer[2])}
    if place.mode == SYMLINK:
        record |= named("link_target", data)
    return record | tally.fields()


def content(data: bytes, lines: tuple[int, int | None] | None, max_bytes: int | None, tally: Tally) -> dict[str, Any]:
    """`is_binary`, `encoding`, `content`, `lines` and `next_line` of a blob's bytes."""
    binary = data.find(b"\0", 0, BINARY_BYTES) >= 0
    if binary and lines is None:
        cut = data if max_bytes is None else data[:max_bytes]
        if len(cut) < len(data):
            tally.admit("budget")
        return {"is_binary": True, **_encoded(cut, True), "lines": None, "next_line": None}
    total = data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
    first, last = lines if lines is not None else (1, None)
    last = total if last is None else min(last, total)
    begin, end = _span(data, first, last, total)
    next_line = None
    if max_bytes is not None and end - begin > max_bytes:
        end, last, next_line = _cut(data, begin, end, first, last, max_bytes)
        tally.admit("budget")
    return {
        "is_binary": binary,
        **_encoded(data[begin:end], binary),
        "lines": {"start": first, "end": max(last, first - 1), "total": total},
        "next_line": next_line,
    }


def _span(data: bytes, first: int, last: int, total: int) -> tuple[int, int]:
    """Where lines `first` to `last` (from 1, inclusive) begin and end."""
    if first > last:
        return len(data), len(data)
    begin = _line_start(data, 0, first - 1)
    return begin, len(data) if last == total else _line_start(data, begin, last - first + 1)


def _line_start(data: bytes, at: int, lines: int) -> int:
    for _ in range(lines):
        at = data.index(b"\n", at) + 1
    return at


def _cut(data: bytes, begin: int, end: int, first: int, last: int, max_bytes: int) -> tuple[int, int, int | None]:
    """(end, last line, next line) of at most `max_bytes` from `begin`: whole lines, or a part of a longer one.

    There is no next line then: going on there would lose the rest.
    """
    newline = data.rfind(b"\n", begin, begin + max_bytes)
    if newline >= 0:
        whole = first + data.count(b"\n", begin, newline + 1)
        return newline + 1, whole - 1, whole
    stop = begin + max_bytes
    # Not in the middle of a character.
    back = stop
    while back > max(begin, stop - 4) and data[back] & 0xC0 == 0x80:
        back -= 1
    if data[back] >= 0xC0 and back > begin:
        stop = back
    return stop, first, None


def _encoded(data: bytes, binary: bool) -> dict[str, str]:
    if not binary:
        try:
            return {"encoding": "utf-8", "content": data.decode("utf-8")}
        except UnicodeDecodeError:
            pass
    return {"encoding": "base64", "content": base64.b64encode(data).decode("ascii")}
