"""What all reads share: names in JSON, and the tally of what an answer must admit.

A list read is a module with

    KEY: str                                    the member that holds the list
    pin(view, params) -> dict                   everything that can be refused is refused here; revisions become hex
                                                ids; JSON-able, since cursors carry it
    rows(view, params, pin, tally, position)    yields (record, position): a JSON-ready record, or one as encoded JSON
                                                (bytes), and the JSON-able position that continues right after it, or a
                                                function that gives it at any time; None starts at the top. Where
                                                `tally.whole` is set it may yield a `Batch`
    head(view, params, pin) -> dict             members known before the rows, `commit` among them
    tail(view, params, pin, tally) -> dict      members known only after them

A single read is a module with `read(view, params) -> dict`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from pack.errors import BadParameter

if TYPE_CHECKING:
    from pack.view import View

Params = dict[str, Any]

MAX_EXAMPLES: Final = 100
HISTORIES: Final = frozenset({"log", "mergebase", "aheadbehind"})  # modules of reads that the commit graph may answer
BLOCK_BYTES: Final = 64 << 10  # NDJSON leaves in blocks of about this size

# Why something that was asked for is not in the answer. Those of QUIET do not make an answer incomplete.
REASONS: Final = ("too_large", "not_fetched", "budget", "bad_object", "rename_limit", "binary")
QUIET: Final = frozenset({"binary"})


def by_snapshot(module: str, params: Params) -> bool:
    """Whether a snapshot may answer a read, so that no pack has to be opened first."""
    return bool(module == "tree" and params["recursive"] and not params["last_commit"])


class Batch(NamedTuple):
    """Many rows at once, for lists that nobody cuts: `lines` are encoded records with a newline between them,
    `position` continues after the last one, as that of a row; None where more rows follow that are made already.
    """

    lines: bytes
    number: int
    position: Any


Row = tuple[dict[str, Any] | bytes, Any]
Rows = Iterator[Row | Batch]


class Tally:
    """Counts what one answer left out, and why.

    `visits` bounds the work of one request: the entries, commits or blobs looked at, returned or not. `whole` says that
    no limit of items or bytes can end the list between two rows.
    """

    def __init__(self, max_visits: int | None = None, *, whole: bool = False) -> None:
        self.whole = whole
        self.skipped: list[dict[str, Any]] = []
        self.counts: dict[str, int] = {}
        self.visits = 0
        self.max_visits = max_visits
        self.resume: Any = None

    def skip(self, path: bytes | None, reason: str) -> None:
        """One thing was left out for `reason`; the first hundred are named."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        if len(self.skipped) < MAX_EXAMPLES:
            self.skipped.append({**(named("path", path) if path is not None else {"path": None}), "reason": reason})

    def admit(self, reason: str) -> None:
        """The answer as a whole lacks something for `reason`."""
        self.counts[reason] = self.counts.get(reason, 0) + 1

    def visit(self, count: int = 1) -> bool:
        """Charge `count` visits; False once the budget is spent (the caller admits `budget` and ends)."""
        self.visits += count
        return self.max_visits is None or self.visits <= self.max_visits

    def stop(self, position: Any) -> None:
        """The work's budget ends the list here; the next page goes on right after `position`."""
        self.admit("budget")
        self.resume = position

    @property
    def complete(self) -> bool:
        return all(reason in QUIET for reason in self.counts)

    def fields(self) -> dict[str, Any]:
        """`complete`, `skipped` and `skipped_counts`, the members of every answer."""
        return {"complete": self.complete, "skipped": self.skipped, "skipped_counts": self.counts}


def b64(data: bytes) -> str:
    """base64url without padding, the form of every `*_b64` member and parameter."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def from_b64(text: str, parameter: str) -> bytes:
    """The bytes behind a `*_b64` parameter; BadParameter where it is no base64url."""
    try:
        raw = text.encode("ascii")
        return base64.b64decode(raw + b"=" * (-len(raw) % 4), altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error, ValueError):
        raise BadParameter(f"{parameter} is not base64url", parameter=parameter) from None


def text(data: bytes) -> str:
    """Readable form of `data`: UTF-8, with U+FFFD for what is not."""
    return data.decode("utf-8", "replace")


def named(key: str, data: bytes) -> dict[str, str]:
    """`{key: text}`, with `key_b64` beside it where the bytes are not UTF-8."""
    try:
        return {key: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {key: data.decode("utf-8", "replace"), f"{key}_b64": b64(data)}


class ListRead(Protocol):
    """The shape of a list read's module."""

    KEY: str

    def pin(self, view: View, params: Params) -> dict[str, Any]: ...
    def rows(self, view: View, params: Params, pin: dict[str, Any], tally: Tally, position: Any) -> Rows: ...
    def head(self, view: View, params: Params, pin: dict[str, Any]) -> dict[str, Any]: ...


def tail_of(read: ModuleType | ListRead, view: View, params: Params, pin: dict[str, Any], tally: Tally) -> Any:
    """The read's `tail`, which it may leave out."""
    tail = getattr(read, "tail", None)
    return tail(view, params, pin, tally) if tail is not None else {}
