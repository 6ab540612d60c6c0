"""What a request asks: its parameters, read once, and all that follows from them alone.

Clients ask the same over and over. What was read from a query is kept for the next request with the very same query.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from app.headers import FORMAT, IMMUTABLE, NO_CACHE, OID
from app.operations import Operation
from app.params import read_query
from app.reads.base import Params

if TYPE_CHECKING:
    from storage.repository import Handle

MOST: Final = 4096
QUERY_BYTES: Final = 512
"""Longer queries are read anew each time, which bounds what is kept."""


class Question:
    """`params` are shared by all who ask the same: not to be changed. `cache` is the answer's Cache-Control."""

    __slots__ = ("_asked", "cache", "operation", "params")

    def __init__(self, operation: Operation, params: Params) -> None:
        self.operation = operation
        self.params = params
        self.cache = _cache(operation, params)
        asked = sorted((name, repr(value)) for name, value in params.items() if name != "min_generation")
        self._asked = repr((operation.id, asked))

    def etag(self, handle: Handle, kind: str) -> str:
        """A strong tag of one representation: a generation never changes, so neither does its answer to a question."""
        return _etag(self._asked, kind, handle.namespace, handle.generation)


@lru_cache(MOST)
def _etag(asked: str, kind: str, namespace: str, generation: int) -> str:
    basis = repr((FORMAT, asked, kind, namespace, generation))
    return f'"{hashlib.sha256(basis.encode("utf-8", "surrogatepass")).hexdigest()[:32]}"'


def _cache(operation: Operation, params: Params) -> str:
    """Immutable where the answer depends on nothing but full object ids."""
    revs: list[bytes] = []
    for param in operation.params:
        value = params[param.name] if param.kind == "rev" else None
        if value is not None:
            revs.extend(value if isinstance(value, tuple) else (value,))
    return IMMUTABLE if revs and all(OID.match(rev) for rev in revs) else NO_CACHE


_known: OrderedDict[tuple[str, bytes], Question] = OrderedDict()


def ask(operation: Operation, query: bytes) -> Question:
    """The question in a raw query string. Errors as `read_query`."""
    key = (operation.id, query)
    question = _known.get(key)
    if question is not None:
        _known.move_to_end(key)
        return question
    question = Question(operation, read_query(query, operation.params))
    if len(query) <= QUERY_BYTES:
        _known[key] = question
        if len(_known) > MOST:
            _known.popitem(last=False)
    return question
