"""Which refs of an upstream a repository follows, said as git says it (git-fetch(1), refspecs), without renaming.

`refs/heads/*`, `+refs/heads/*:refs/heads/*` (the same: every update is forced here), `refs/pull/*/head`, a single
`refs/heads/main`, and `^refs/heads/tmp/*` to leave some out. A ref keeps its name: another one on the right is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pack.advertisement import AdvertisedRef
from pack.errors import BadParameter
from storage.refs import valid_name

DEFAULT: Final = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
MAX_REFSPECS: Final = 100
MAX_LENGTH: Final = 1024


class Refspecs:
    """Parsed refspecs; BadParameter (`refspecs`) names the one that cannot be used."""

    def __init__(self, texts: Sequence[str]) -> None:
        if len(texts) > MAX_REFSPECS:
            raise BadParameter(f"at most {MAX_REFSPECS} refspecs are taken", parameter="refspecs")
        patterns = [_parse(text) for text in texts or DEFAULT]
        self._in = [_split(pattern) for negative, pattern in patterns if not negative]
        self._out = [_split(pattern) for negative, pattern in patterns if negative]
        if not self._in:
            raise BadParameter("refspecs that only leave refs out select none", parameter="refspecs")

    def prefixes(self) -> list[bytes]:
        """Beginnings of ref names to ask the upstream for; it may answer with more."""
        return sorted({before for before, _ in self._in})

    def match(self, name: bytes) -> bool:
        return any(_matches(name, each) for each in self._in) and not any(_matches(name, each) for each in self._out)

    def select(self, refs: Iterable[AdvertisedRef]) -> tuple[list[AdvertisedRef], int]:
        """Those that are followed, and how many of them no repository can hold: their names cannot be refs, or are
        below that of another one, as a file cannot be a folder. HEAD is never among them.
        """
        chosen, refused = [], 0
        for ref in refs:
            if ref.name == b"HEAD" or not self.match(ref.name):
                continue
            if not valid_name(ref.name) or not valid_name(ref.symref_target or ref.name):
                refused += 1
            else:
                chosen.append(ref)
        names = {ref.name for ref in chosen}
        held = [ref for ref in chosen if not any(above in names for above in _above(ref.name))]
        return held, refused + len(chosen) - len(held)


def _above(name: bytes) -> Iterator[bytes]:
    """What would have to be a folder for the ref: `refs/heads/a` and `refs/heads` of `refs/heads/a/b`."""
    end = name.rfind(b"/")
    while end > 0:
        yield name[:end]
        end = name.rfind(b"/", 0, end)


def _parse(text: str) -> tuple[bool, bytes]:
    def refuse(why: str) -> BadParameter:
        return BadParameter(f"the refspec {text[:200]!r} {why}", parameter="refspecs")

    if len(text) > MAX_LENGTH:
        raise refuse("is too long")
    negative = text.startswith("^")
    source, colon, target = text.removeprefix("^").removeprefix("" if negative else "+").partition(":")
    if colon and (negative or source != target):
        raise refuse("renames refs; here they keep their names")
    pattern = source.encode("utf-8", "surrogateescape")
    if not pattern.startswith(b"refs/"):
        raise refuse("does not begin with refs/")
    if pattern.count(b"*") > 1 or not valid_name(pattern.replace(b"*", b"x")):
        raise refuse("names no ref: one * is allowed, and what git-check-ref-format(1) allows")
    return negative, pattern


def _split(pattern: bytes) -> tuple[bytes, bytes | None]:
    before, star, after = pattern.partition(b"*")
    return before, after if star else None


def _matches(name: bytes, split: tuple[bytes, bytes | None]) -> bool:
    before, after = split
    if after is None:
        return name == before
    return len(name) >= len(before) + len(after) and name.startswith(before) and name.endswith(after)
