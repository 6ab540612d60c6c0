"""One search pattern: literal bytes or RE2 (its syntax page), matched within single lines of a larger buffer.

Matching is as `git grep` in a UTF-8 locale: leftmost, first alternative first; `^` and `$` are the ends of a line;
ignoring case folds letters beyond ASCII too; `\\w`, `\\d` and `\\b` know ASCII only. What is not UTF-8 in the buffer
matches no `.` and no class, only literal text that heeds case is compared byte by byte. Time is linear in the buffer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ctypes import CDLL, c_char_p, c_size_t, c_void_p, cast
from typing import Any, Final

import re2

from pack.errors import BadPattern
from pack.literal import required

MAX_PATTERN_BYTES: Final = 4096
MAX_PROGRAM: Final = 50_000  # RE2 instructions
_MEMORY: Final = 16 << 20  # of one compiled pattern, in bytes
_TRIED: Final = 1000  # lines without a match before the use of `part` is judged
_WORTH: Final = 2000  # bytes that must be passed over for each of them

_LONG: Final = 8  # bytes of text from which on `memmem` is the faster one

_memmem: Any
try:
    _memmem = CDLL(None).memmem
    _memmem.restype = c_void_p
    _memmem.argtypes = [c_void_p, c_size_t, c_char_p, c_size_t]
except (OSError, AttributeError, TypeError):  # not in every C library
    _memmem = None

Span = tuple[int, int]
Find = Callable[[bytes, int, int], "Span | None"]

_SIGNS: Final = frozenset(rb"\.+*?()|[]{}^$")
# K and S are letters beyond ASCII as well when case is ignored: the sign of Kelvin and the long s.
_FOLDS_ALONE: Final = re.compile(rb"[\x00-JL-RT-jl-rt-\x7f]+").fullmatch
_NON_WORD: Final = re.compile(rb"[^0-9A-Za-z_]")
_WORD: Final = bytes(chr(value).isascii() and (chr(value).isalnum() or value == 0x5F) for value in range(256))

_TOKEN: Final = re.compile(
    rb"""
    \\Q.*?(?:\\E|\Z)                                   # quoted text
  | \\.                                                # an escape
  | \[\^?\]?(?:\\.|\[:\^?\w*:\]|[^\]\\])*\]            # a class
  | \(\?(?P<on>[a-zA-Z]*)(?:-(?P<off>[a-zA-Z]*))?(?P<end>[:)])
    """,
    re.DOTALL | re.VERBOSE,
)


class Pattern:
    """A compiled pattern.

    `text` is what was asked for; `find(buffer, pos, end)` its first match there, or None. `seek` is for long stretches
    without a match: it finds the first one, or something in a line before it or in its line. `needle` is the text where
    it is compared byte by byte; `folded` is that text in small letters, where it matches whatever is the same in small
    letters and nothing else; `part` is literal text that every match holds, where there is some worth looking for.
    """

    def __init__(self, text: bytes, *, fixed: bool = False, ignore_case: bool = False, word: bool = False) -> None:
        """BadPattern where the text is no pattern, too long, or too large when compiled."""
        if not text:
            raise _refuse(text, "is empty")
        if len(text) > MAX_PATTERN_BYTES:
            raise _refuse(text, f"is longer than {MAX_PATTERN_BYTES} bytes")
        if b"\n" in text or b"\0" in text:
            raise _refuse(text, "holds a line end or a NUL, which no line has")
        self.text = text
        self.word = word
        # Text without any sign of RE2's is itself, and bytes are compared faster than programs run.
        fixed = fixed or (_SIGNS.isdisjoint(text) and _is_utf8(text))
        self.ignore_case = ignore_case
        self.needle = text if fixed and not ignore_case else None
        self.source = re2.escape(text) if fixed else _by_line(text)
        self.folded = text.lower() if fixed and ignore_case and _FOLDS_ALONE(text) else None
        self.part: bytes | None = None
        self._fruitless = self._passed = 0
        self._longest: Find | None = None
        if self.needle is not None:
            self.find = _literal(text)
            self.seek = _seeker(text)
            return
        self.find = self.seek = _finder(_compile(text, self.source, ignore_case, False))
        if not fixed and not ignore_case:
            self.part = required(text)
            if self.part is not None:
                self.seek = _seeker(self.part)
        if word and not fixed:
            self._longest = _finder(_compile(text, self.source, ignore_case, True))

    def weigh(self, fruitless: int, passed: int) -> None:
        """So many lines held `part` without a match, in so many bytes: give it up where it costs too much."""
        self._fruitless += fruitless
        self._passed += passed
        if self._fruitless >= _TRIED and self._passed < self._fruitless * _WORTH:
            self.part = None
            self.seek = self.find

    def first(self, buffer: bytes, start: int, line: int, end: int, known: Span | None = None) -> Span | None:
        """The first match at or after `start` of the line from `line` to `end`; with `word`, the first whole word.

        `known` is the first match, word or not, where the caller has it.

        A word has no word character before or after it and is not empty. As in git, what was found at one place and
        is no word is looked for again only behind the next character that is none; unlike there, the longest match
        at that place gets its chance as well as the preferred one.
        """
        found = known or self.find(buffer, start, end)
        if not self.word:
            return found
        while found is not None:
            at = found[0]
            if _is_word(buffer, found, line, end):
                return found
            if self._longest is not None:
                longest = self._longest(buffer, at, end)
                if longest is not None and longest[0] == at and _is_word(buffer, longest, line, end):
                    return longest
            border = _NON_WORD.search(buffer, at, end)
            if border is None or border.end() >= end:
                return None
            found = self.find(buffer, border.end(), end)
        return None


def union(patterns: list[Pattern]) -> Find | None:
    """Finds where any of the patterns matches, None where they are too large together."""
    try:
        whole = b"|".join(b"(?:" + pattern.source + b")" for pattern in patterns)
        return _finder(_compile(b"", whole, any(pattern.ignore_case for pattern in patterns), False))
    except BadPattern:
        return None


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_word(buffer: bytes, span: Span, line: int, end: int) -> bool:
    start, stop = span
    return start < stop and (start == line or not _WORD[buffer[start - 1]]) and (stop == end or not _WORD[buffer[stop]])


def _refuse(text: bytes, why: str) -> BadPattern:
    return BadPattern(f"the pattern {text[:100].decode('utf-8', 'replace')!r} {why}", parameter="pattern")


def _literal(text: bytes) -> Find:
    size = len(text)

    def find(buffer: bytes, pos: int, end: int) -> Span | None:
        at = buffer.find(text, pos, end)
        return None if at < 0 else (at, at + size)

    return find


def _seeker(text: bytes) -> Find:
    """As `_literal`, faster where the text is rare."""
    if len(text) >= _LONG and _memmem is not None:
        return _skipper(text, _memmem)
    try:
        return _finder(_compile(text, re2.escape(text), False, False))
    except BadPattern:  # not UTF-8
        return _literal(text)


def _skipper(text: bytes, memmem: Any) -> Find:
    """The C library skips about as many bytes as long text has, whichever they are; RE2 stops at every byte of text
    that begins alike.
    """
    size = len(text)

    def find(buffer: bytes, pos: int, end: int) -> Span | None:
        if end - pos < size:
            return None
        start: int = cast(c_char_p(buffer), c_void_p).value or 0
        found = memmem(start + pos, end - pos, text, size)
        return None if found is None else (found - start, found - start + size)

    return find


def _by_line(text: bytes) -> bytes:
    """The pattern with every anchor meaning a line: the buffer holds many."""

    def rewrite(token: re.Match[bytes]) -> bytes:
        whole = token[0]
        if whole == b"\\A":
            return b"^"
        if whole == b"\\z":
            return b"$"
        if whole == b"\\C":
            raise _refuse(text, "has a \\C, which could be half a character or a line end")
        if token["end"] is None:
            return whole
        on = token["on"].replace(b"m", b"")
        off = (token["off"] or b"").replace(b"m", b"")
        if not on and not off and whole[2:3] not in (b":", b")"):
            return b"(?:" if token["end"] == b":" else b"(?:)"
        return b"(?" + on + (b"-" + off if off else b"") + token["end"]

    return b"(?m)" + _TOKEN.sub(rewrite, text)


def _compile(text: bytes, source: bytes, ignore_case: bool, longest: bool) -> Any:
    options = re2.Options()
    options.case_sensitive = not ignore_case
    options.longest_match = longest
    options.never_nl = True
    options.never_capture = True
    options.max_mem = _MEMORY
    options.log_errors = False
    try:
        regex = re2.compile(source, options)
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        said = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise _refuse(text, f"does not compile: {said}") from None
    if regex.programsize > MAX_PROGRAM:
        raise _refuse(text, "is too large")
    return regex


def _finder(regex: Any) -> Find:
    # The module's own search() makes a generator and two objects for each call: go to the class it wraps.
    match = regex._regexp.Match
    unanchored = re2._re2.RE2.Anchor.UNANCHORED

    def find(buffer: bytes, pos: int, end: int) -> Span | None:
        span: Span = match(unanchored, buffer, pos, end)[0]
        return span if span[0] >= 0 else None

    return find
