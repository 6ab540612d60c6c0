"""Patch text as `git diff --full-index --binary` writes it (git-diff(1), "Generating patch text with -p").

Names are quoted as in C wherever a byte is a control character, a quote, a backslash or beyond ASCII
(core.quotePath). A change of type is a deletion and an addition. `git apply` takes what is written here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from pack import textdiff
from pack.binarypatch import binary_patch
from pack.errors import CorruptObject, ObjectNotFound, PackhouseError, TooLarge
from pack.filediff import Cache, FileDiff, Options, Texts, contents, split, texts
from pack.objects import NULL_OID
from pack.similarity import is_binary
from pack.treediff import Change

if TYPE_CHECKING:
    from pack.view import View

_UNSAFE = re.compile(rb'[\x00-\x1f"\\\x7f-\xff]')
_ESCAPES: Final = {
    0x07: b"\\a", 0x08: b"\\b", 0x09: b"\\t", 0x0A: b"\\n", 0x0B: b"\\v", 0x0C: b"\\f", 0x0D: b"\\r",
    0x22: b'\\"', 0x5C: b"\\\\",
}  # fmt: skip


def write(view: View, changes: Iterable[Change], options: Options, cache: Cache) -> Iterator[bytes]:
    """The patch, a piece for each file. TooLarge and the like where content cannot be had."""
    for change, found in texts(view, changes, options, cache):
        if isinstance(found, str):
            raise _unavailable(change, found)
        piece = _file(view, change, found, options)
        if piece:
            yield piece


def _unavailable(change: Change, reason: str) -> PackhouseError:
    path = change.path.decode("utf-8", "replace")
    if reason == "too_large":
        return TooLarge(f"{path} is too large for a patch")
    if reason == "not_fetched":
        return ObjectNotFound(f"the content of {path} is not here")
    return CorruptObject(f"the content of {path} is damaged")


def _file(view: View, change: Change, found: Texts, options: Options) -> bytes:
    if change.status == "T":
        # Each half has its own binary flag; together they are not what `found` says.
        item = next(contents(view, [change], options.file_bytes))
        return b"".join(_half(half, item, options) for half in split(change))
    if found.binary:
        if change.old_oid == change.new_oid:
            return header(change)
        item = next(contents(view, [change], options.file_bytes))
        return header(change) + binary_patch(item.old or b"", item.new or b"")
    return _text(change, found.hunks)


def _half(half: Change, item: FileDiff, options: Options) -> bytes:
    old = item.old or b"" if half.status == "D" else b""
    new = item.new or b"" if half.status == "A" else b""
    if is_binary(old) or is_binary(new):
        return header(half) + binary_patch(old, new)
    return _text(half, textdiff.diff(old, new, options.context, options.whitespace).hunks)


def _text(change: Change, hunks: tuple[textdiff.Hunk, ...]) -> bytes:
    if not hunks:
        # Nothing but blanks that do not count: git shows no trace of it unless something else changed.
        silent = change.status == "M" and change.old_mode == change.new_mode
        return b"" if silent else header(change)
    old = b"/dev/null" if change.old_path is None else _label(b"a/", change.old_path)
    new = b"/dev/null" if change.new_path is None else _label(b"b/", change.new_path)
    pieces = [header(change), b"--- %b%b\n+++ %b%b\n" % (old, _end(old), new, _end(new))]
    for hunk in hunks:
        pieces.append(hunk.header())
        pieces.append(hunk.body)
    return b"".join(pieces)


def header(change: Change) -> bytes:
    """From `diff --git` to the `index` line."""
    old_path = change.old_path if change.old_path is not None else change.path
    new_path = change.new_path if change.new_path is not None else change.path
    lines = [b"diff --git %b %b\n" % (_label(b"a/", old_path), _label(b"b/", new_path))]
    old_mode, new_mode = change.old_mode, change.new_mode
    if old_mode is None:
        lines.append(b"new file mode %06o\n" % (new_mode or 0))
    elif new_mode is None:
        lines.append(b"deleted file mode %06o\n" % old_mode)
    elif old_mode != new_mode:
        lines.append(b"old mode %06o\nnew mode %06o\n" % (old_mode, new_mode))
    if change.status == "R":
        lines.append(b"similarity index %d%%\n" % (change.similarity or 0))
        lines.append(b"rename from %b\nrename to %b\n" % (quote(old_path), quote(new_path)))
    old_oid, new_oid = change.old_oid or NULL_OID, change.new_oid or NULL_OID
    if old_oid != new_oid:
        old, new = old_oid.hex().encode(), new_oid.hex().encode()
        mode = b" %06o" % old_mode if old_mode is not None and old_mode == new_mode else b""
        lines.append(b"index %b..%b%b\n" % (old, new, mode))
    return b"".join(lines)


def _label(side: bytes, path: bytes) -> bytes:
    """The path below `a/` or `b/`. One that begins with a slash, as no sane tree has it, gets no second one."""
    return quote(side + path.removeprefix(b"/"))


def quote(path: bytes) -> bytes:
    """The path as git writes it: bare, or quoted with escapes where it holds an unusual byte."""
    if _UNSAFE.search(path) is None:
        return path
    return b'"' + _UNSAFE.sub(_escape, path) + b'"'


def _escape(found: re.Match[bytes]) -> bytes:
    byte = found[0][0]
    return _ESCAPES.get(byte) or b"\\%03o" % byte


def _end(label: bytes) -> bytes:
    """A tab behind names with a blank, so that tools know where the name ends."""
    return b"\t" if b" " in label else b""
