"""How much may be read in one go, by those who must not be held up for long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pack.reader import Objects


class Spent(Exception):
    """Control flow: what was allowed is used up, somebody with more time must do this."""


class Allowance:
    """So many bytes that the thread which makes it may inflate or take from a cache; others are not counted."""

    def __init__(self, size: int) -> None:
        self.left = size
        self._thread = get_ident()

    def charge(self, size: int) -> None:
        """Spent, where there is not as much left."""
        if get_ident() == self._thread:
            self.left -= size
            if self.left < 0:
                raise Spent


@contextmanager
def allowed(objects: Objects, size: int) -> Iterator[None]:
    """What is done within may read so many bytes of the objects; Spent."""
    objects.allowance = Allowance(size)
    try:
        yield
    finally:
        objects.allowance = None
