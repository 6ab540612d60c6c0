"""Random access to objects in packs (gitformat-pack(5)), without IO: bytes come from a `Source`.

A source that does not hold the bytes yet raises `Need`; nothing here changes state before its bytes are there, so
the same call can be made again once they are. Whatever is returned has been hashed: damage is `CorruptObject`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from pack import inflate
from pack.allowance import Allowance
from pack.cache import ObjectCache
from pack.delta import apply_delta, delta_sizes
from pack.entry import parse_header
from pack.errors import CorruptObject, LimitExceeded, ObjectNotFound, PackError, TooLarge, WrongType
from pack.limits import UNLIMITED, Limits
from pack.objects import TYPE_NAMES, hash_object
from pack.pieces import Pieces
from pack.source import Need, PackFile, Source
from pack.table import Table

__all__ = ["Need", "ObjectCache", "Objects", "PackFile", "Source", "wrong_type"]

_HEAD: Final = 512  # enough for an entry's header and, nearly always, for the sizes at the head of a delta
_WHOLE: Final = 1 << 20  # longer entries are measured before they are read
_MIN_OFFSET: Final = 12
_MAX_CHAIN: Final = 10_000
_ENTRY: Final = 512  # bytes that could be inflated in the time in which an entry is found
_CACHED: Final = 64
_KNOWN_TYPES: Final = 1 << 16
_KNOWN_HEADERS: Final = 1 << 15


class Entry(NamedTuple):
    """An entry's header and its bytes, or the first of them."""

    kind: int
    size: int
    base: int | bytes  # distance of an OFS delta, oid of a REF delta, empty where it is no delta
    start: int  # of the zlib stream in `raw`
    raw: bytes


class Objects:
    """The objects of one repository, over all its packs.

    `packs` are asked in the given order, the pack of the last hit first. `namespace` names the repository in the
    shared cache.
    """

    def __init__(
        self,
        namespace: str,
        packs: Sequence[PackFile],
        source: Source,
        cache: ObjectCache,
        limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> None:
        self.namespace = namespace
        self.packs = list(packs)
        self.source = source
        self.cache = cache
        self.limits = limits
        self.open_table: Callable[[PackFile], Table | None] | None = None
        """Gives the table of a pack, where there is one; it may raise Need."""
        self.allowance: Allowance | None = None
        """Bounds what is read, while it is set."""
        self._asked = list(packs)
        self._keys = {pack.name: f"{namespace}\0{pack.name}" for pack in packs}
        self._headers: dict[bytes, tuple[int, int]] = {}
        self._types: dict[tuple[str, int], int] = {}
        self._chain = min(limits.delta_depth or _MAX_CHAIN, _MAX_CHAIN)

    def __contains__(self, oid: bytes) -> bool:
        return self._find(oid) is not None

    def lacking(self, oids: bytes) -> bytes:
        """Those of `oids` (20 bytes each, in order, each once) that are in no pack."""
        for pack in self.packs:
            if not oids:
                break
            oids = pack.index.lacking(oids)
        return oids

    def __len__(self) -> int:
        """Entries of all packs; an object in two packs counts twice."""
        return sum(len(pack.index) for pack in self.packs)

    def charge(self, size: int) -> None:
        """Count bytes that a read takes from elsewhere against the allowance, if there is one. Spent."""
        if self.allowance is not None:
            self.allowance.charge(size)

    def header(self, oid: bytes) -> tuple[int, int]:
        """(type, size in bytes), without resolving deltas; not verified against the oid."""
        known = self._headers.get(oid)
        if known is not None:
            return known
        if self.open_table is not None:
            found = self._tabled(oid, self.open_table)
            if found is not None:
                return found
        pack, offset = self._locate(oid)
        cached = self.cache.get((self._keys[pack.name], offset))
        if cached is not None:
            return cached[0], len(cached[1])
        self.charge(_ENTRY)
        try:
            entry = self._head(pack, offset)
            size = entry.size if not entry.base else self._result_size(pack, offset, entry)
            known = self._type(pack, offset, entry), size
        except PackError as error:
            raise _damaged(oid, pack, error) from error
        if len(self._headers) >= _KNOWN_HEADERS:
            self._headers.clear()
        self._headers[oid] = known
        return known

    def _tabled(self, oid: bytes, open_table: Callable[[PackFile], Table | None]) -> tuple[int, int] | None:
        for pack in self._asked:
            row = pack.index.row(oid)
            if row is not None:
                table = open_table(pack)
                return table.header(row) if table is not None else None
        return None

    def read(self, oid: bytes) -> tuple[int, bytes]:
        """(type, data), verified. ObjectNotFound, CorruptObject, TooLarge above `limits.object_bytes`."""
        pack, offset = self._locate(oid)
        try:
            return self._read_at(oid, pack, offset)
        except CorruptObject:
            # Another pack may hold a sound copy.
            for other in self.packs:
                at = other.index.find(oid) if other is not pack else None
                if at is not None:
                    return self._read_at(oid, other, at)
            raise

    def read_as(self, oid: bytes, kind: int) -> bytes:
        """The data of an object that must be of type `kind`; WrongType otherwise."""
        found, data = self.read(oid)
        if found != kind:
            raise wrong_type(oid, found, kind)
        return data

    def read_many(self, oids: Iterable[bytes]) -> Iterator[tuple[bytes, int, bytes]]:
        """(oid, type, data) of each distinct oid, in pack order.

        Where the source lacks bytes, one Need names those of everything that is left, not of one object.
        """
        order = {pack.name: number for number, pack in enumerate(self.packs)}
        found = [(self._locate(oid), oid) for oid in set(oids)]
        found.sort(key=lambda item: (order[item[0][0].name], item[0][1]))
        for position, ((pack, offset), oid) in enumerate(found):
            try:
                kind, data = self._read_at(oid, pack, offset)
            except Need as need:
                raise Need(self._missing(need.ranges, [place for place, _ in found[position + 1 :]])) from None
            yield oid, kind, data

    def chunks(self, oid: bytes) -> Iterator[bytes]:
        """The data in pieces, verified before the last one is handed out; an object that is no delta is streamed.

        The iterator may be asked again after a Need.
        """
        pack, offset = self._locate(oid)
        entry = self._head(pack, offset)
        if entry.base or entry.size <= _WHOLE:
            return iter([self.read(oid)[1]])
        self._check_size(oid, entry.size)
        start, end = offset + entry.start, offset + pack.length(offset, exact=True)
        return Pieces(self.source, pack.name, start, end, oid, entry.kind, entry.size)

    def prefix(self, digits: str, limit: int) -> list[bytes]:
        """Up to `limit` oids that begin with these hex digits, sorted."""
        found: set[bytes] = set()
        for pack in self.packs:
            found.update(pack.index.prefix(digits, limit))
        return sorted(found)[:limit]

    # Finding

    def _find(self, oid: bytes) -> tuple[PackFile, int] | None:
        asked = self._asked
        for position, pack in enumerate(asked):
            offset = pack.index.find(oid)
            if offset is not None:
                if position:
                    # The neighbours of an object are in its pack: ask that one first from now on.
                    asked.insert(0, asked.pop(position))
                return pack, offset
        return None

    def _locate(self, oid: bytes) -> tuple[PackFile, int]:
        found = self._find(oid)
        if found is None:
            raise ObjectNotFound(f"object {oid.hex()} is not in this repository")
        return found

    def _missing(
        self, ranges: list[tuple[str, int, int]], places: list[tuple[PackFile, int]]
    ) -> list[tuple[str, int, int]]:
        for pack, offset in places:
            if self.cache.get((self._keys[pack.name], offset)) is None:
                try:
                    self._entry(pack, offset)
                except Need as need:
                    ranges = ranges + need.ranges
                except (PackError, CorruptObject, TooLarge):
                    continue
        return ranges

    # Entries

    def _head(self, pack: PackFile, offset: int) -> Entry:
        length = min(pack.length(offset), _HEAD)
        return _entry(self.source.read(pack.name, offset, length))

    def _entry(self, pack: PackFile, offset: int, oid: bytes | None = None) -> Entry:
        length = pack.length(offset)
        if not pack.exact:
            head = self._head(pack, offset)
            self._check_size(oid, head.size)
            length = min(length, head.start + _deflated(head.size))
            if length <= len(head.raw):
                return head
        elif length > _WHOLE:
            size = self._head(pack, offset).size
            self._check_size(oid, size)
        return _entry(self.source.read(pack.name, offset, length))

    def _check_size(self, oid: bytes | None, size: int) -> None:
        limit = self.limits.object_bytes
        if limit is not None and size > limit:
            what = f"object {oid.hex()}" if oid is not None else "an object"
            raise TooLarge(f"{what} has {size} bytes, more than the limit of {limit}", size=size, limit=limit)

    def _base(self, pack: PackFile, offset: int, base: int | bytes) -> tuple[PackFile, int]:
        if isinstance(base, int):
            if not 0 < base <= offset - _MIN_OFFSET:
                raise PackError(f"the delta at offset {offset} has its base outside the pack", offset=offset)
            return pack, offset - base
        at = pack.index.find(base)
        if at is not None:
            return pack, at
        found = self._find(base)
        if found is None:
            raise PackError(f"base {base.hex()} of the delta at offset {offset} is missing", offset=offset)
        return found

    def _type(self, pack: PackFile, offset: int, entry: Entry) -> int:
        types = self._types
        passed: list[tuple[str, int]] = []
        key = (self._keys[pack.name], offset)
        known = types.get(key) if entry.base else entry.kind
        while known is None:
            passed.append(key)
            if len(passed) > self._chain:
                raise PackError(f"the delta chain at offset {offset} is too long", offset=offset)
            pack, offset = self._base(pack, offset, entry.base)
            key = (self._keys[pack.name], offset)
            known = types.get(key)
            if known is None:
                entry = self._head(pack, offset)
                known = None if entry.base else entry.kind
        if len(types) + len(passed) > _KNOWN_TYPES:
            types.clear()
        types.update(dict.fromkeys(passed, known))
        return known

    def _result_size(self, pack: PackFile, offset: int, entry: Entry) -> int:
        raw = entry.raw
        while True:
            try:
                head = inflate.decompressobj().decompress(raw[entry.start :], 32)
            except inflate.ZlibError as error:
                raise PackError(f"the delta at offset {offset} does not inflate: {error}", offset=offset) from None
            if len(head) >= min(entry.size, 20):
                return delta_sizes(head)[1]
            whole = pack.length(offset)
            if len(raw) >= whole:
                raise PackError(f"the delta at offset {offset} ends early", offset=offset)
            raw = self.source.read(pack.name, offset, min(whole, len(raw) * 8))

    # Resolving

    def _read_at(self, oid: bytes, pack: PackFile, offset: int) -> tuple[int, bytes]:
        key = (self._keys[pack.name], offset)
        cached = self.cache.get(key)
        if cached is not None and cached[2] == oid:
            if self.allowance is not None:
                self.allowance.charge(len(cached[1]) + _CACHED)
            return cached[0], cached[1]
        try:
            kind, data = cached[:2] if cached is not None else self._resolve(oid, pack, offset)
        except PackError as error:
            raise _damaged(oid, pack, error) from error
        if hash_object(kind, data) != oid:
            raise CorruptObject(f"object {oid.hex()} is damaged: its bytes have another hash", object=oid.hex())
        self.cache.put(key, (kind, data, oid))
        return kind, data

    def _resolve(self, oid: bytes, pack: PackFile, offset: int) -> tuple[int, bytes]:
        """Follow the chain down to a whole object or a cached one, then apply the deltas upwards."""
        deltas: list[tuple[tuple[str, int], bytes]] = []
        while True:
            key = (self._keys[pack.name], offset)
            cached = self.cache.get(key) if deltas else None
            if cached is not None:
                kind, data = cached[0], cached[1]
                break
            entry = self._entry(pack, offset, oid)
            self._check_size(oid, entry.size)
            self.charge(entry.size + _ENTRY)
            try:
                data = _inflate(entry.raw[entry.start :], entry.size, offset)
            except PackError:
                if pack.exact:
                    raise
                # It may be longer than what zlib would have made of it.
                pack.measure()
                continue
            if not entry.base:
                kind = entry.kind
                if deltas:
                    self.cache.put(key, (kind, data, None))
                break
            deltas.append((key, data))
            if len(deltas) > self._chain:
                raise PackError(f"the delta chain of the object at offset {offset} is too long", offset=offset)
            pack, offset = self._base(pack, offset, entry.base)
        limit = self.limits.object_bytes or UNLIMITED
        while deltas:
            key, delta = deltas.pop()
            try:
                if self.allowance is not None and not deltas:
                    self.allowance.charge(delta_sizes(delta)[1])
                data = apply_delta(data, delta, limit)
            except LimitExceeded:
                self._check_size(oid, delta_sizes(delta)[1])
                raise
            if deltas:
                self.cache.put(key, (kind, data, None))
        return kind, data


def _entry(raw: bytes) -> Entry:
    head = parse_header(raw, 0)
    if head is None:
        raise PackError("an entry's header is cut short")
    base = head.back or head.base
    if not base and head.kind not in TYPE_NAMES:
        raise PackError("a delta names itself as its base")
    return Entry(head.kind, head.size, base, head.end, raw)


def _deflated(size: int) -> int:
    """Bytes that zlib makes of `size` bytes at most with its usual settings."""
    return size + (size >> 8) + 64


def _inflate(raw: bytes, size: int, offset: int) -> bytes:
    """The stream at the front of `raw`, which must give exactly `size` bytes."""
    try:
        # An entry is known to end before the next indexed one; a second copy of an object lies between unindexed.
        data = inflate.decompress(raw, size, alone=False)
    except inflate.ZlibError as error:
        raise PackError(f"the data at offset {offset} does not inflate: {error}", offset=offset) from None
    if len(data) != size:
        raise PackError(f"the data at offset {offset} has {len(data)} bytes and declares {size}", offset=offset)
    return data


def _damaged(oid: bytes, pack: PackFile, error: PackError) -> CorruptObject:
    return CorruptObject(f"object {oid.hex()} is damaged in {pack.name}: {error.detail}", object=oid.hex())


def wrong_type(oid: bytes, found: int, wanted: int) -> WrongType:
    """The error that names both types."""
    names = TYPE_NAMES
    return WrongType(f"{oid.hex()} is a {names[found].decode()}, not a {names[wanted].decode()}")
