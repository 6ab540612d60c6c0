"""Query parameters: one table that requests are read by and the OpenAPI document is written from.

Revisions, paths, globs and patterns are bytes, taken from the raw query string, since a name in git is bytes:
`%E9` reaches the store as the byte 0xE9. `+` is a space. Revisions and paths have a `*_b64` twin (base64url without
padding) for clients that cannot send bytes.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from app.reads.base import from_b64
from pack.errors import BadParameter, UnknownParameter

BYTE_KINDS: Final = frozenset({"rev", "path", "prefix", "glob", "pattern"})
TWIN_KINDS: Final = frozenset({"rev", "path", "prefix"})

_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_INTEGER = re.compile(r"-?[0-9]{1,18}\Z")
_LINES = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})?)?\Z")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)\Z")

MAX_VALUE_BYTES: Final = 16 * 1024


@dataclass(frozen=True)
class Param:
    """One query parameter.

    `kind`: rev, path, prefix, glob, pattern (bytes); text, bool, int, enum, time (RFC 3339, becomes integer seconds),
    lines (`a-b`, becomes a pair), renames (true, false or 1 to 100; becomes a percentage or False).
    `ceiling` clamps an int from above; below `minimum` it is refused.
    """

    name: str
    kind: str
    description: str
    repeat: bool = False
    default: Any = None
    required: bool = False
    choices: tuple[str, ...] = ()
    minimum: int = 0
    ceiling: int | None = None
    many: int = 1000

    @property
    def empty(self) -> Any:
        """The value of the parameter where a request does not give it."""
        if self.repeat:
            return self.default if self.default is not None else ()
        return self.default

    def read(self, raw: bytes) -> Any:
        """The value behind one percent-decoded `raw`; BadParameter says what is wrong with it."""
        if len(raw) > MAX_VALUE_BYTES:
            raise BadParameter(f"{self.name} is longer than {MAX_VALUE_BYTES} bytes", parameter=self.name)
        if self.kind in BYTE_KINDS:
            return self._read_bytes(raw)
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise BadParameter(f"{self.name} is not UTF-8", parameter=self.name) from None
        return getattr(self, f"_read_{self.kind}")(text)

    def _refuse(self, what: str) -> BadParameter:
        return BadParameter(f"{self.name} {what}", parameter=self.name)

    def _read_bytes(self, raw: bytes) -> bytes:
        if b"\0" in raw:
            raise self._refuse("holds a NUL byte")
        if self.kind == "path" and raw and (raw[:1] == b"/" or raw[-1:] == b"/" or b"//" in raw):
            raise self._refuse("has a leading or trailing slash, or an empty component")
        if self.kind in ("rev", "glob", "pattern") and not raw:
            raise self._refuse("is empty")
        return raw

    def _read_text(self, text: str) -> str:
        return text

    def _read_bool(self, text: str) -> bool:
        if text not in ("true", "false"):
            raise self._refuse("is neither true nor false")
        return text == "true"

    def _read_int(self, text: str) -> int:
        if not _INTEGER.match(text):
            raise self._refuse("is no integer")
        value = int(text)
        if value < self.minimum:
            raise self._refuse(f"is below {self.minimum}")
        return value if self.ceiling is None else min(value, self.ceiling)

    def _read_enum(self, text: str) -> str:
        if text not in self.choices:
            raise self._refuse(f"is none of {', '.join(self.choices)}")
        return text

    def _read_time(self, text: str) -> int:
        try:
            if not _RFC3339.match(text):
                raise ValueError
            return int(datetime.fromisoformat(text.upper()).timestamp())
        except (ValueError, OverflowError):
            raise self._refuse("is no RFC 3339 time, such as 2026-01-31T12:00:00Z") from None

    def _read_lines(self, text: str) -> tuple[int, int | None]:
        match = _LINES.match(text)
        if not match:
            raise self._refuse("is no line range such as 10-20, 10- or 10")
        start = int(match[1])
        end = int(match[2]) if match[2] else (None if "-" in text else start)
        if start < 1 or (end is not None and end < start):
            raise self._refuse("counts lines from 1 and does not end before it starts")
        return start, end

    def _read_renames(self, text: str) -> int | bool:
        if text in ("true", "false"):
            return 50 if text == "true" else False
        if not _INTEGER.match(text) or not 1 <= int(text) <= 100:
            raise self._refuse("is neither true, false nor a percentage from 1 to 100")
        return int(text)


def _b64(param: Param) -> str | None:
    return f"{param.name}_b64" if param.kind in TWIN_KINDS else None


def split_query(query: bytes) -> list[tuple[str, bytes]]:
    """The pairs of a raw query string, percent-decoded to bytes, in order."""
    pairs = []
    for piece in query.split(b"&"):
        if not piece:
            continue
        if b"%" in piece and _BAD_ESCAPE.search(piece):
            raise BadParameter("a percent sign in the query is not followed by two hex digits (a literal one is %25)")
        name, _, value = piece.replace(b"+", b" ").partition(b"=")
        pairs.append((unquote_to_bytes(name).decode("utf-8", "replace"), unquote_to_bytes(value)))
    return pairs


def read_query(query: bytes, params: Sequence[Param]) -> dict[str, Any]:
    """All parameters of a request by name, defaults filled in.

    Unknown names are UnknownParameter, naming the nearest known one; a parameter given twice that is not repeatable,
    or in both its forms, is BadParameter.
    """
    by_name = {param.name: param for param in params}
    given: dict[str, list[Any]] = {}
    for name, raw in split_query(query):
        param = by_name.get(name)
        if param is None and name.endswith("_b64"):
            param = by_name.get(name[:-4])
            if param is not None and param.kind in TWIN_KINDS:
                raw = from_b64(raw.decode("ascii", "replace"), name)  # noqa: PLW2901
            else:
                param = None
        if param is None:
            raise _unknown(name, params)
        values = given.setdefault(param.name, [])
        if values and not param.repeat:
            raise BadParameter(f"{param.name} is given more than once", parameter=param.name)
        if len(values) >= param.many:
            raise BadParameter(f"{param.name} is given more than {param.many} times", parameter=param.name)
        values.append(param.read(raw))
    answer = {}
    for param in params:
        values = given.get(param.name, [])
        if not values and param.required:
            raise BadParameter(f"{param.name} is required", parameter=param.name)
        if param.repeat:
            answer[param.name] = tuple(values) or param.empty
        else:
            answer[param.name] = values[0] if values else param.empty
    return answer


def _unknown(name: str, params: Iterable[Param]) -> UnknownParameter:
    known = [param.name for param in params] + [twin for param in params if (twin := _b64(param))]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; the nearest known one is {near[0]}" if near else f"; known are {', '.join(known)}"
    return UnknownParameter(f"there is no parameter {name[:100]!r} here{hint}", parameter=name[:100])


def schema(param: Param) -> dict[str, Any]:
    """The JSON schema of one value of `param`."""
    if param.kind == "bool":
        base: dict[str, Any] = {"type": "boolean"}
    elif param.kind == "int":
        base = {"type": "integer", "minimum": param.minimum}
    elif param.kind == "enum":
        base = {"type": "string", "enum": list(param.choices)}
    elif param.kind == "time":
        base = {"type": "string", "format": "date-time"}
    else:
        base = {"type": "string"}
    default = param.default
    if isinstance(default, tuple):
        default = None
    if isinstance(default, bytes):
        default = default.decode()
    if param.repeat:
        return {"type": "array", "items": base}
    if param.kind == "renames":
        default = "true"
    return base if default is None else {**base, "default": default}


def openapi_parameters(params: Sequence[Param]) -> list[dict[str, Any]]:
    """The OpenAPI parameter objects of `params`, `*_b64` twins included."""
    answer = []
    for param in params:
        answer.append(
            {
                "name": param.name,
                "in": "query",
                "required": param.required and param.kind not in TWIN_KINDS,
                "description": param.description,
                "schema": schema(param),
            }
        )
        twin = _b64(param)
        if twin:
            one = {"type": "string"}
            answer.append(
                {
                    "name": twin,
                    "in": "query",
                    "required": False,
                    "description": f"`{param.name}` as base64url without padding, for names that are not UTF-8.",
                    "schema": {"type": "array", "items": one} if param.repeat else one,
                }
            )
    return answer
