"""Types and sizes of what this very process has taken apart a moment ago: they need not be measured in the store."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from typing import Final

from pack.table import UNKNOWN, Table

_ROWS: Final = 4 << 20
_PACKS: Final = 100

_lock = threading.Lock()
_packs: OrderedDict[str, tuple[array[int], array[int]]] = OrderedDict()


def keep(name: str, types: array[int], sizes: array[int]) -> None:
    """Remember a pack, its rows in the order of the oids. The oldest are forgotten where they are many."""
    with _lock:
        _packs[name] = types, sizes
        while _packs and (len(_packs) > _PACKS or sum(len(types) for types, _ in _packs.values()) > _ROWS):
            _packs.popitem(last=False)


def take(name: str) -> Table | None:
    """The table of a pack that is remembered; it is not any more."""
    with _lock:
        found = _packs.pop(name, None)
    if found is None:
        return None
    types, sizes = found
    if max(sizes, default=0) > UNKNOWN:
        sizes = array("Q", [min(size, UNKNOWN) for size in sizes])
    return Table(types.tobytes(), array("I", iter(sizes)))
