"""Sidecars that stand on others: each front names the pieces that it needs, in its own tail and in those below.

Such sidecars are opened alike whatever is in them: those made for all packs, and while they are not there, those made
for packs that came earlier.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from pack import inflate
from pack.errors import CorruptData
from pack.sidecar import BadSidecar
from storage.sidecars import MissingSidecar, Sidecar, earlier, key_of, made_from, open_sidecar, want

if TYPE_CHECKING:
    from storage.repository import Handle
    from storage.sources import RepositorySource

_KEPT: Final = 4
_LOOK_SECONDS: Final = 1.0
_TRIES: Final = 4  # earlier pack sets that are asked for when there is none of all packs


class Lower(Protocol):
    """A sidecar below: the id of its pack set, where its tail begins in its file."""

    @property
    def id(self) -> bytes: ...
    @property
    def start(self) -> int: ...


class Layer(Protocol):
    """A front, parsed."""

    @property
    def below(self) -> Sequence[Lower]: ...


_F = TypeVar("_F", bound=Layer)


class Stacked(Generic[_F]):
    """The sidecars of one kind that a process has open of one registration, by the pack sets that they were made for.

    `parse` makes something of a front; it may raise BadSidecar.
    """

    def __init__(self, source: RepositorySource, kind: str, version: int, parse: Callable[[bytes], _F]) -> None:
        self.kind = kind
        self._source = source
        self._version = version
        self._parse = parse
        self._open: OrderedDict[bytes, tuple[Sidecar, _F]] = OrderedDict()

    def get(self, derived: bytes) -> _F:
        """What the sidecar of a set of packs says. MissingSidecar, BadSidecar, Need."""
        found = self._open.get(derived)
        if found is None:
            sidecar = open_sidecar(self._source, self.kind, self._version, derived)
            found = self._open[derived] = sidecar, self._parse(sidecar.front)
            sidecar.front = b""
            while len(self._open) > _KEPT:
                self._open.popitem(last=False)
        return found[1]

    def piece(self, derived: bytes, layer: int, offset: int, length: int, crc: int) -> bytes:
        """A piece that it names, checked: of the tail of the sidecar at that place among those below, or of its own.

        MissingSidecar, BadSidecar, Need.
        """
        below = self.get(derived).below
        if layer == len(below):
            data = self._open[derived][0].tail(offset, length)
        else:
            data = self._below(self._key(below[layer].id), below[layer].start + offset, length)
        if len(data) != length or inflate.crc32(data) != crc:
            raise BadSidecar("the checksum of a piece does not match its bytes")
        return data

    def _below(self, name: str, offset: int, length: int) -> bytes:
        size = self._source.probe(name)
        if size is None:
            raise MissingSidecar(name)
        self._source.expect(name, size)
        try:
            return self._source.read(name, offset, length)
        except CorruptData as error:
            raise BadSidecar(error.detail) from None

    def spoil(self, derived: bytes) -> None:
        """It, or one that it stands on, is damaged: open all anew, copies in a cache go away."""
        found = self._open.get(derived)
        below = [each.id for each in found[1].below] if found is not None else []
        for each in (derived, *below):
            self._source.distrust(self._key(each))
            self._source.reopen(self._key(each))
        self._open.clear()

    def at_hand(self, derived: bytes) -> bool:
        return self._source.at_hand(self._key(derived))

    def is_gone(self, derived: bytes) -> bool:
        return self._source.is_gone(self._key(derived))

    def _key(self, derived: bytes) -> str:
        return key_of(self.kind, self._version, derived)


class StackOpener(Generic[_F]):
    """Gives a view what the store has of one kind. What is missing or damaged is wanted; what is in use is looked for
    now and then, too.
    """

    def __init__(self, stacked: Stacked[_F], handle: Handle) -> None:
        self._stacked = stacked
        self._handle = handle
        self._names = [record.name for record in handle.manifest.packs]
        self._derived = made_from(self._names)
        self._from: bytes | None = None
        self._looked = -_LOOK_SECONDS

    def _piece(self, layer: int, offset: int, length: int, crc: int) -> bytes:
        """A piece that `_layer` names. MissingSidecar, BadSidecar, Need."""
        if self._from is None:
            raise MissingSidecar(self._stacked.kind)
        return self._stacked.piece(self._from, layer, offset, length, crc)

    def _lose(self, damage: str) -> None:
        """What is open turned out to be damaged."""
        if self._from is not None:
            self._stacked.spoil(self._from)
        if self._from == self._derived:
            want(self._handle, self._stacked.kind, self._derived, damage)
        self._from = None
        self._looked = time.monotonic()

    def _layer(self) -> _F | None:
        """The sidecar to look into, None where there is none. Need."""
        now = time.monotonic()
        if self._names and now - self._looked >= _LOOK_SECONDS:
            if self._from != self._derived:
                self._look()
            elif self._stacked.is_gone(self._derived):
                want(self._handle, self._stacked.kind, self._derived)
            self._looked = now
        try:
            return self._stacked.get(self._from) if self._from is not None else None
        except (MissingSidecar, BadSidecar):
            self._from = None
            return None

    def _look(self) -> None:
        try:
            self._stacked.get(self._derived)
            self._from = self._derived
            return
        except MissingSidecar:
            want(self._handle, self._stacked.kind, self._derived)
        except BadSidecar as error:
            self._stacked.spoil(self._derived)
            want(self._handle, self._stacked.kind, self._derived, error.detail)
        if self._from is None:
            self._from = self._earlier()

    def _earlier(self) -> bytes | None:
        for _, derived in earlier(self._names, _TRIES):
            if not self._stacked.at_hand(derived):
                continue
            try:
                self._stacked.get(derived)
            except (MissingSidecar, BadSidecar):
                continue
            return derived
        return None
