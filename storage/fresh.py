"""What this very process has learned of packs that it took apart a moment ago: sidecars need not read them again."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from itertools import compress, repeat
from operator import eq
from typing import Final, Protocol

from pack.objects import COMMIT, OID_BYTES
from pack.table import UNKNOWN, Table

_BYTES: Final = 40 << 20
_PACKS: Final = 100


class Result(Protocol):
    """What of `pack.columns.PackResult` is used here."""

    @property
    def oids(self) -> bytes: ...
    @property
    def offsets(self) -> array[int]: ...
    @property
    def types(self) -> array[int]: ...
    @property
    def sizes(self) -> array[int]: ...


class _Pack:
    def __init__(self, result: Result) -> None:
        self.table: tuple[array[int], array[int]] | None = result.types, result.sizes
        rows = list(compress(range(len(result.types)), map(eq, result.types, repeat(COMMIT))))
        rows.sort(key=result.offsets.__getitem__)
        oids = result.oids
        self.commits: bytes | None = b"".join([oids[row * OID_BYTES : (row + 1) * OID_BYTES] for row in rows])

    @property
    def bytes(self) -> int:
        table = sum(column.itemsize * len(column) for column in self.table or ())
        return table + len(self.commits or b"")


_lock = threading.Lock()
_packs: OrderedDict[str, _Pack] = OrderedDict()


def keep(name: str, result: Result) -> None:
    """Remember a pack. The oldest are forgotten where they are many."""
    pack = _Pack(result)
    with _lock:
        _packs[name] = pack
        while _packs and (len(_packs) > _PACKS or sum(pack.bytes for pack in _packs.values()) > _BYTES):
            _packs.popitem(last=False)


def commits(name: str) -> list[bytes] | None:
    """The oids of the commits of a pack that is remembered, in the order of the pack; they are given once."""
    with _lock:
        pack = _packs.get(name)
        if pack is None or pack.commits is None:
            return None
        oids, pack.commits = pack.commits, None
    return [oids[at : at + OID_BYTES] for at in range(0, len(oids), OID_BYTES)]


def table(name: str) -> Table | None:
    """The types and sizes of a pack that is remembered; they are given once."""
    with _lock:
        pack = _packs.get(name)
        if pack is None or pack.table is None:
            return None
        (types, sizes), pack.table = pack.table, None
    if max(sizes, default=0) > UNKNOWN:
        sizes = array("Q", [min(size, UNKNOWN) for size in sizes])
    return Table(types.tobytes(), array("I", iter(sizes)))
