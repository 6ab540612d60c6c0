"""Which commits an author or a message pattern picks (git-log(1), --author and --grep), in RE2's syntax.

As in git a pattern is tried on one line at a time: on `name <email>` of the author line, and on each line of the
message as well as the empty line before it; text that its encoding header says is not UTF-8 is converted first, and
nothing counts from a NUL on. Matching heeds case. Unlike `git log`, and like `git rev-list`, names are matched as they
are written: a mailmap changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import re2

from pack.charset import codec
from pack.commit import split
from pack.errors import BadPattern

Matcher = Callable[[bytes], bool]


def compile_pattern(pattern: bytes, parameter: str) -> Any:
    """The compiled RE2 pattern; BadPattern names what is wrong with it."""
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise BadPattern(f"{parameter} is no RE2 pattern: {text}", parameter=parameter) from None


def commit_matcher(author: bytes | None, message: bytes | None) -> Matcher | None:
    """A test of a commit's bytes against both patterns, None where there is none."""
    if author is None and message is None:
        return None
    by_author = compile_pattern(author, "author") if author is not None else None
    by_message = compile_pattern(message, "message") if message is not None else None

    def matches(data: bytes) -> bool:
        data = _readable(data)
        return (by_author is None or _author_matches(by_author, data)) and (
            by_message is None or _message_matches(by_message, data)
        )

    return matches


def _readable(data: bytes) -> bytes:
    """The commit in UTF-8, up to its first NUL."""
    head = data[: data.find(b"\n\n") + 1]
    at = head.find(b"\nencoding ")
    if at >= 0:
        name = codec(head[at + 10 : head.find(b"\n", at + 1)])
        if name is not None and name != "utf-8":
            # What does not decode stays as it is, as in git.
            with suppress(ValueError):
                data = data.decode(name).encode()
    nul = data.find(b"\0")
    return data if nul < 0 else data[:nul]


def _author_matches(pattern: Any, data: bytes) -> bool:
    head, _ = split(data)
    for line in head.split(b"\n"):
        if line.startswith(b"author "):
            end = line.rfind(b">", 8)
            if pattern.search(line[7 : end + 1] if end > 0 else line[7:]) is not None:
                return True
    return False


def _message_matches(pattern: Any, data: bytes) -> bool:
    start = 0 if data[:1] == b"\n" else data.find(b"\n\n") + 1
    if not start and data[:1] != b"\n":
        return False
    lines = data[start:].split(b"\n")
    if not lines[-1]:
        lines.pop()
    search = pattern.search
    return any(search(line) is not None for line in lines)
