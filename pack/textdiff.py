"""Line diffs equal to git's: hunks by libgit2's copy of xdiff, with the indent heuristic, framed by our own rules.

libgit2 is given two buffers and returns patch text. A heading behind `@@` is the nearest line above that begins with a
letter, `_` or `$`: its first 80 bytes, without trailing blanks, up to the first byte that is not UTF-8. Lines are
bytes: a CR stays, no encoding is assumed. Whether content is binary is for the caller to ask.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from pygit2.enums import DiffOption

from pack.libgit import create_patch

WHITESPACE: Final[dict[str, DiffOption]] = {
    "none": DiffOption(0),
    "change": DiffOption.IGNORE_WHITESPACE_CHANGE,
    "all": DiffOption.IGNORE_WHITESPACE,
}
DEFAULT_CONTEXT: Final = 3
_LINE: Final = 128
NO_NEWLINE: Final = b"\\ No newline at end of file\n"

_HEADER = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(?: (.*))?\n", re.MULTILINE)
_HEADING = re.compile(rb"^[A-Za-z_$].*", re.MULTILINE)
_HEADING_BYTES: Final = 80
_BLANKS: Final = b" \t\r"
_TAIL_BLOCK: Final = 1024
_FEEDS: Final = b"\v\f"
_LETTERS: Final = bytes([*range(1, 9), *range(14, 32), *range(127, 256)])


class Hunk(NamedTuple):
    """One hunk. `body` is patch text: lines that begin with a blank, `-`, `+` or a backslash.

    Starts count from 1 and are 0 for an empty side.
    """

    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    heading: bytes
    body: bytes

    def header(self) -> bytes:
        """The `@@` line, with its line feed."""
        heading = b" " + self.heading if self.heading else b""
        old, new = _range(self.old_start, self.old_lines), _range(self.new_start, self.new_lines)
        return b"@@ -%b +%b @@%b\n" % (old, new, heading)

    def lines(self) -> Iterator[tuple[str, bytes, bool]]:
        """(op, text without its line feed, whether it ends the file without one); op is a blank, `-` or `+`."""
        op, text = "", b""
        for line in self.body.split(b"\n")[:-1]:
            mark = line[:1]
            if mark == b"\\":
                yield op, text, True
                op = ""
                continue
            if op:
                yield op, text, False
            op, text = mark.decode("ascii"), line[1:]
        if op:
            yield op, text, False


class TextDiff(NamedTuple):
    """All hunks of one file, and how many lines came and went."""

    hunks: tuple[Hunk, ...]
    additions: int
    deletions: int


def diff(old: bytes, new: bytes, context: int = DEFAULT_CONTEXT, whitespace: str = "none") -> TextDiff:
    """The difference of two texts; `whitespace` is a key of WHITESPACE."""
    if old == new:
        return TextDiff((), 0, 0)
    if not old:
        return _one_sided(new, b"+")
    if not new:
        return _one_sided(old, b"-")
    if context == 0:
        old, new = _without_common_tail(old, new)
    flags = DiffOption.INDENT_HEURISTIC | DiffOption.FORCE_TEXT | WHITESPACE[whitespace]
    feeds = any(feed in text for feed in _FEEDS for text in (old, new))
    stand_ins = _stand_ins(old, new) if feeds else b""
    if stand_ins:
        there = bytes.maketrans(_FEEDS, stand_ins)
        patch = create_patch(old.translate(there), new.translate(there), flags, context)
        back = bytes.maketrans(stand_ins, _FEEDS)
        found = tuple(hunk._replace(body=hunk.body.translate(back)) for hunk in _hunks(patch.data))
    else:
        patch = create_patch(old, new, flags, context)
        found = tuple(_hunks(patch.data))
    _, additions, deletions = patch.line_stats
    if feeds:
        found = tuple(hunk._replace(heading=_readable(_heading(old, hunk))) for hunk in found)
    return TextDiff(found, additions, deletions)


def effort(old: bytes, new: bytes) -> int:
    """What comparing them may cost beyond reading them, as bytes that could be inflated meanwhile.

    It goes by the lines between their common beginning and their common end.
    """
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    return _LINE * sum(text.count(b"\n", head, len(text) - tail) for text in (old, new))


def _common(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) >> 1
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def hunks(old: bytes, new: bytes, context: int = DEFAULT_CONTEXT, whitespace: str = "none") -> list[Hunk]:
    """The hunks alone."""
    return list(diff(old, new, context, whitespace).hunks)


def _hunks(patch: bytes) -> Iterator[Hunk]:
    headers = list(_HEADER.finditer(patch))
    for number, found in enumerate(headers):
        old_start, old_lines, new_start, new_lines, heading = found.groups()
        end = headers[number + 1].start() if number + 1 < len(headers) else len(patch)
        yield Hunk(
            int(old_start),
            1 if old_lines is None else int(old_lines),
            int(new_start),
            1 if new_lines is None else int(new_lines),
            # One that was cut by its length has lost no blanks yet.
            _readable(heading.rstrip(_BLANKS) if len(heading) == _HEADING_BYTES else heading) if heading else b"",
            patch[found.end() : end],
        )


def _stand_ins(old: bytes, new: bytes) -> bytes:
    """Two bytes that neither text holds, or none.

    libgit2 takes \\v and \\f for blanks, in lines that are compared without them, in indentation and at the end of a
    heading. git takes them for letters, so letters they must look like.
    """
    spare = [byte for byte in _LETTERS if byte not in old and byte not in new]
    return bytes(spare[:2]) if len(spare) >= len(_FEEDS) else b""


def _heading(old: bytes, hunk: Hunk) -> bytes:
    if not hunk.heading:
        return b""
    above = old.split(b"\n", hunk.old_start)
    above = above[: hunk.old_start - 1] if hunk.old_lines else above[: hunk.old_start]
    return next((line for line in reversed(above) if _HEADING.match(line)), b"")[:_HEADING_BYTES].rstrip(_BLANKS)


def _readable(heading: bytes) -> bytes:
    """Up to the first byte that is not UTF-8; U+FFFE and U+FFFF are not, to git."""
    if heading.isascii():
        return heading
    try:
        text = heading.decode("utf-8")
    except UnicodeDecodeError as error:
        text = heading[: error.start].decode("utf-8")
    return re.split("[\ufffe\uffff]", text, maxsplit=1)[0].encode("utf-8")


def _one_sided(data: bytes, mark: bytes) -> TextDiff:
    """A text that is all new or all gone: what xdiff would say, without asking it."""
    whole = data.endswith(b"\n")
    count = data.count(b"\n") + (not whole)
    body = mark + (data[:-1] if whole else data).replace(b"\n", b"\n" + mark) + b"\n"
    if not whole:
        body += NO_NEWLINE
    if mark == b"+":
        return TextDiff((Hunk(0, 0, 1, count, b"", body),), count, 0)
    return TextDiff((Hunk(1, count, 0, 0, b"", body),), 0, count)


def _without_common_tail(old: bytes, new: bytes) -> tuple[bytes, bytes]:
    """git drops what both texts end in before it diffs without context, whole blocks first, then back to a line end.

    It changes which of several equal diffs is found, so it must be done here as well.
    """
    smaller = min(len(old), len(new))
    cut = 0
    while (
        cut + _TAIL_BLOCK <= smaller
        and old[len(old) - cut - _TAIL_BLOCK : len(old) - cut] == new[len(new) - cut - _TAIL_BLOCK : len(new) - cut]
    ):
        cut += _TAIL_BLOCK
    if not cut:
        return old, new
    line_end = old.find(b"\n", len(old) - cut)
    cut = 0 if line_end < 0 else len(old) - line_end - 1
    return old[: len(old) - cut], new[: len(new) - cut]


def _range(start: int, count: int) -> bytes:
    return b"%d" % start if count == 1 else b"%d,%d" % (start, count)
