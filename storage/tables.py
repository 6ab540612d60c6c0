"""Types and sizes of objects, as views find them in their sidecar (`pack.table` has the format)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pack.sidecar import BadSidecar
from pack.table import KIND, NOTHING, VERSION, Place, Table, read_front
from storage.sidecars import MissingSidecar, Sidecar, key_of, made_from, open_sidecar, want

if TYPE_CHECKING:
    from pack.source import PackFile
    from storage.repository import Handle
    from storage.sources import RepositorySource

MAX_LAYERS: Final = 16
_LOOK_SECONDS: Final = 1.0
# So many objects are looked up in their packs before a table is worth opening, and before it is worth bringing.
_FEW: Final = 16
_MANY: Final = 1000


class Tables:
    """The tables that a process has open of one registration, by the name of the pack."""

    def __init__(self, source: RepositorySource) -> None:
        self._source = source
        self._places: dict[str, tuple[bytes, Sidecar, Place]] = {}
        self._tables: dict[str, Table] = {}
        self._opened: set[bytes] = set()

    def open(self, derived: bytes) -> None:
        """Take up the tables of a set of packs, and those that they stand on. MissingSidecar, BadSidecar, Need."""
        opened: list[bytes] = []
        below = derived
        while below != NOTHING and below not in self._opened:
            sidecar = open_sidecar(self._source, KIND, VERSION, below)
            front = read_front(sidecar.front)
            sidecar.front = b""
            for name, place in front.packs.items():
                self._places[name] = below, sidecar, place
            opened.append(below)
            if len(opened) > MAX_LAYERS:
                raise BadSidecar("it stands on too many others")
            below = front.below
        self._opened.update(opened)

    def get(self, name: str) -> Table | None:
        """The table of one pack, None where it is in none that was opened. BadSidecar, Need."""
        table = self._tables.get(name)
        if table is None and name in self._places:
            _, sidecar, place = self._places[name]
            data = sidecar.tail(place.offset, place.rows * 5)
            table = self._tables[name] = Table.parse(data, place)
        return table

    def spoil(self, derived: bytes) -> None:
        """One of those that `derived` stands on is damaged: open all anew, copies in a cache go away."""
        for each in {derived, *self._opened}:
            self._source.distrust(key_of(KIND, VERSION, each))
        self._places.clear()
        self._opened.clear()

    def at_hand(self, derived: bytes) -> bool:
        return self._source.at_hand(key_of(KIND, VERSION, derived))

    def is_gone(self, derived: bytes) -> bool:
        return self._source.is_gone(key_of(KIND, VERSION, derived))


class TableOpener:
    """Gives the objects of a view the tables of their packs, as far as they are there.

    Those that are missing or damaged are wanted; what is in use is looked for now and then, too.
    """

    def __init__(self, tables: Tables, handle: Handle) -> None:
        self._tables = tables
        self._handle = handle
        self._derived = made_from(record.name for record in handle.manifest.packs)
        self._known: dict[str, Table] = {}
        self._asked = 0
        self._looked = -_LOOK_SECONDS
        self._open = False

    def __call__(self, pack: PackFile) -> Table | None:
        self._asked += 1
        if self._asked < _FEW:
            return None
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self._look()
        table = self._known.get(pack.name)
        if table is None and self._open:
            name = pack.name.rpartition("/")[2].removesuffix(".pack")
            table = self._tried(lambda: self._tables.get(name))
            if table is not None and len(table.sizes) == len(pack.index):
                self._known[pack.name] = table
        return table

    def _look(self) -> None:
        if not self._open:
            if self._asked >= _MANY or self._tables.at_hand(self._derived):
                self._tried(lambda: self._tables.open(self._derived))
        elif self._tables.is_gone(self._derived):
            want(self._handle, KIND, self._derived)

    def _tried(self, work: Callable[[], Table | None]) -> Table | None:
        try:
            found = work()
            self._open = True
            return found
        except MissingSidecar:
            want(self._handle, KIND, self._derived)
        except BadSidecar as error:
            self._open = False
            self._tables.spoil(self._derived)
            want(self._handle, KIND, self._derived, error.detail)
        return None
