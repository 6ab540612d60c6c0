"""Commits of a log as encoded records: the common form read straight from its text, what was encoded kept for a while.

Objects never change, so a record that was encoded once serves every later page and stream of the same history.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import orjson

from app.reads.commit import commit_record
from pack.commit import MAX_BYTES, parse_commit, subject

if TYPE_CHECKING:
    from pack.history import History

KEPT_BYTES: Final = 32 << 20  # of one history
_OVERHEAD: Final = 120  # of Python's objects around one record
_SPACE: Final = " \t\r\n"
_HEADERS: Final = re.compile(
    r"tree ([0-9a-f]{40})\n"
    r"((?:parent [0-9a-f]{40}\n)*)"
    r"author ([^<>\n]*) <([^<>\n]*)> ([0-9]{1,18}) ([+-][0-9]+)\n"
    r"committer ([^<>\n]*) <([^<>\n]*)> ([0-9]{1,18}) ([+-][0-9]+)"
    # Of other headers a signature alone, all its lines but the first beginning with a space.
    r"(\ngpgsig [^\n]*(?:\n [^\n]*)*)?"
)


def commit_line(oid: bytes, data: bytes) -> bytes:
    """The record of a commit object as JSON, the same as `commit_record` gives. BadObject, TooLarge."""
    return _common(oid, data) or orjson.dumps(commit_record(oid, parse_commit(data)))


def _common(oid: bytes, data: bytes) -> bytes | None:
    """The record of a commit as git itself writes it in UTF-8; None for any other."""
    if len(data) > MAX_BYTES:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    head, _, message = text.partition("\n\n")
    found = _HEADERS.fullmatch(head)
    if found is None:
        return None
    tree, parents, author, author_email, authored, author_tz, name, email, time, tz, signature = found.groups()
    title, _, rest = message.partition("\n")
    title = title.rstrip(" \t\r")
    if not title or (rest and rest[0] != "\n"):
        title = subject(message.encode()).decode()
    return orjson.dumps(
        {
            "oid": oid.hex(),
            "tree": tree,
            "parents": parents[7:-1].split("\nparent ") if parents else (),
            "author": {
                "name": author.rstrip(_SPACE),
                "email": author_email,
                "time": int(authored),
                "tz": author_tz,
            },
            "committer": {"name": name.rstrip(_SPACE), "email": email, "time": int(time), "tz": tz},
            "subject": title,
            "message": message,
            "encoding": None,
            "signed": signature is not None,
        }
    )


def lines_of(history: History, numbers: Sequence[int]) -> Iterator[bytes]:
    """The encoded records of these commits."""
    columns = history.columns
    known = columns.lines
    for n in numbers:
        line = known.get(n)
        if line is None:
            line = commit_line(history.oid(n), history.text(n))
            # Of a history that is larger than what may be kept its youngest part is, and stays.
            if columns.line_bytes < KEPT_BYTES:
                known[n] = line
                columns.line_bytes += len(line) + _OVERHEAD
        yield line
