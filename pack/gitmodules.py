"""Where submodules come from: the `.gitmodules` file (gitmodules(5)), in the syntax of git-config(1)."""

from __future__ import annotations

import re
from typing import Final

MAX_BYTES: Final = 1 << 20

_SECTION = re.compile(rb'\[submodule[ \t]+"((?:[^"\\\n]|\\.)*)"\]', re.IGNORECASE)
_OTHER = re.compile(rb"\[")
_VARIABLE = re.compile(rb"([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=[ \t]*(.*))?\Z", re.DOTALL)
_ESCAPES: Final = {b"n": b"\n", b"t": b"\t", b"b": b"\b"}


def parse_gitmodules(data: bytes) -> dict[bytes, bytes]:
    """Path → url of every submodule that has both; lines that are no configuration are passed over."""
    if len(data) > MAX_BYTES:
        return {}
    modules: dict[bytes, dict[bytes, bytes]] = {}
    here: dict[bytes, bytes] | None = None
    for raw in data.replace(b"\r\n", b"\n").replace(b"\\\n", b"").split(b"\n"):
        line = raw.strip()
        section = _SECTION.match(line)
        if section is not None:
            here = modules.setdefault(section[1], {})
            line = line[section.end() :].strip()
        elif _OTHER.match(line):
            here = None
        if here is None or not line or line[:1] in (b"#", b";"):
            continue
        variable = _VARIABLE.match(line)
        if variable is not None and variable[2] is not None:
            here[variable[1].lower()] = _value(variable[2])
    return {module[b"path"]: module[b"url"] for module in modules.values() if b"path" in module and b"url" in module}


def _value(text: bytes) -> bytes:
    """A value without its quotes, escapes and comment."""
    out = bytearray()
    quoted = False
    kept = 0  # what stands before this is not trailing space
    at = 0
    while at < len(text):
        byte = text[at : at + 1]
        at += 1
        if byte == b'"':
            quoted = not quoted
            kept = len(out)
        elif byte == b"\\":
            escape = text[at : at + 1]
            at += 1
            out += _ESCAPES.get(escape, escape)
            kept = len(out)
        elif byte in (b"#", b";") and not quoted:
            break
        else:
            out += byte
            if quoted or not byte.isspace():
                kept = len(out)
    return bytes(out[:kept])
