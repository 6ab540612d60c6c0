"""Answers that are kept for whoever asks the same of the same generation.

An answer is kept under its entity tag, which names all that it depends on: the registration of the repository, the
generation, the question and the form. Only complete ones are kept; who may read, and which generation is the current
one, is found out before anybody looks here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from app.reads.page import Answer
from app.reads.recent import Recent

_OVERHEAD: Final = 500  # of Python's objects about one answer, in bytes
_SHARE: Final = 64  # no answer takes more than one part in so many


class Kept:
    """The answers of one process, the least recently used dropped first; none at all where `max_bytes` is 0."""

    def __init__(self, max_bytes: int) -> None:
        self._largest = max_bytes // _SHARE
        self._answers: Recent[Answer] = Recent(max_bytes)

    def get(self, etag: str) -> Answer | None:
        return self._answers.get((etag,))

    def fits(self, size: int) -> bool:
        """Whether a body of so many bytes is kept."""
        return size + _OVERHEAD <= self._largest

    def put(self, etag: str, answer: Answer) -> None:
        cost = len(answer.body) + _OVERHEAD
        if answer.complete and cost <= self._largest:
            self._answers.remember((etag,), replace(answer, seconds=0.0), cost)


class Keeping:
    """A body that is kept when it has come to its end, unless it has become too large by then."""

    def __init__(self, kept: Kept, etag: str, commit: str | None, wanted: bool) -> None:
        self._kept = kept
        self._etag = etag
        self._commit = commit
        self._pieces: list[bytes] | None = [] if wanted else None
        self._size = 0

    def add(self, data: bytes) -> None:
        if self._pieces is not None:
            self._size += len(data)
            if self._kept.fits(self._size):
                self._pieces.append(data)
            else:
                self._pieces = None

    def end(self, data: bytes) -> None:
        """The last piece."""
        self.add(data)
        if self._pieces is not None:
            self._kept.put(self._etag, Answer(b"".join(self._pieces), self._commit, True, 0.0))
