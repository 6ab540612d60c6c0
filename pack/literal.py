"""Literal text that every match of an RE2 pattern holds: far quicker to look for than the pattern.

Only what is certain counts: text at the top level of a pattern without alternatives and without flags of its own.
Syntax that is not known here yields nothing.
"""

from __future__ import annotations

import re
from typing import Final

MIN_BYTES: Final = 3

_TOKEN: Final = re.compile(
    r"""
    (?P<repeat>[*+?]|\{\d+(?:,\d*)?\})
  | (?P<escaped>\\[^a-zA-Z0-9])
  | (?P<kind>\\[bBdDsSwW]|\[\^?\]?(?:\\[^pPQE]|\[:\^?\w*:\]|[^\]\\])*\]|[.^$])
  | (?P<open>\((?:\?:)?)
  | (?P<close>\))
  | (?P<or>\|)
  | (?P<plain>[^\\\[\](){}|*+?.^$])
    """,
    re.DOTALL | re.VERBOSE,
)


def required(text: bytes) -> bytes | None:
    """The longest such text of at least MIN_BYTES bytes; None where there is none, or none that is certain.

    `text` is a pattern whose case counts.
    """
    try:
        pattern = text.decode()
    except UnicodeDecodeError:
        return None
    runs: list[str] = []
    run, before = "", None
    depth = position = 0
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None or (pattern.startswith("(?", position) and token[0] != "(?:"):
            return None
        position = token.end()
        kind = token.lastgroup
        if (kind == "or" and depth == 0) or (kind == before == "repeat" and token[0] != "?"):
            return None
        before = kind
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth -= 1
        if depth < 0:
            return None
        if depth == 0 and kind in ("plain", "escaped"):
            run += token[0][-1]
            continue
        if kind == "repeat" and token[0] != "+":
            # What may be there no time, or several times, is in no run.
            run = run[:-1]
        runs.append(run)
        run = ""
    runs.append(run)
    longest = max((run.encode() for run in runs), key=len)
    return longest if depth == 0 and len(longest) >= MIN_BYTES else None
