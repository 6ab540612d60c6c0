"""The manifest: one generation of one repository, and all that a reader needs to start.

JSON of at most 64 KB, written once under its generation's number. Version 1:

    version        1. A newer one is refused by name: it may mean something that this code would overlook
    number         the generation
    nonce          random; by it a writer whose answer was lost recognises its own manifest
    state          "registered" (no ingest has succeeded yet), "ready", "deleted", or "tombstone" (retired and
                   emptied by gc; only number and nonce are left)
    registration   random per registration: caches are keyed by owner/name and this, so nothing outlives a deleteRepo
    created        when the generation was written; `registered` and `last_sync` likewise; seconds since 1970
    object_format  "sha1"
    head           {target: name or null, oid: hex or null, type, peeled, tree}: a target with null oid is an unborn
                   branch, an oid without target a detached HEAD
    default_branch a full ref name or null
    packs          rows [name, bytes, objects, own_objects, own_end, checksum]
    packs_table    {key, checksum}: a JSON list of such rows that come before those of `packs`, when they are many
    refs           {key, count, bytes, blocks} of the refs table (`storage.refs`), or null
    changes        what changed since that table: [name] (deleted) or [name, type, oid, peeled, symref target, tree]
    closed         whether every commit of every pack has all its ancestors in the packs (`storage.connectivity`)
    upstream       {url, mode, refspecs, credential}: a credential is a reference or sealed, never plain
    operation      the operation that made this generation, or null
    swept          gc may have deleted packs and tables that no manifest names and that the store's listing says were
                   written before this time (`storage.gc`); 0 where it never did
    checksum       SHA-1, in hex, of all that stands before it and a closing brace; always the last member

Ref names are bytes: JSON holds them percent-encoded where they are not plain ASCII. Oids are hex.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha1
from typing import Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

import orjson

from pack.errors import CorruptData, StoreUnavailable

VERSION = 1
MANIFEST_BYTES_MAX = 64 << 10
CHANGES_MAX = 1000

REGISTERED = "registered"
READY = "ready"
DELETED = "deleted"
TOMBSTONE = "tombstone"

_SEAL_BYTES = len(b',"checksum":""}\n') + 40
_SAFE = "/!$&'()*+,;=@-._~:#{}<>|"


class ManifestTooLarge(ValueError):
    """More than 64 KB: the caller moves changes into a new refs table, or packs into a table of packs."""


@dataclass(frozen=True, slots=True)
class PackRecord:
    """A pack of the store. `own_objects` and `own_end` tell what came from outside from what completed a thin pack."""

    name: str
    size: int
    objects: int
    own_objects: int
    own_end: int
    checksum: bytes


@dataclass(frozen=True, slots=True)
class RefChange:
    """What a ref is now; `oid` None where it was deleted. `peeled` is what an annotated tag leads to in the end, `tree`
    the tree that the ref leads to.
    """

    oid: bytes | None
    type: int = 0
    peeled: bytes | None = None
    symref_target: bytes | None = None
    tree: bytes | None = None


@dataclass(frozen=True, slots=True)
class RefsRecord:
    """A refs table: its key relative to the repository, and per block (separator, offset, length, crc32)."""

    key: str
    count: int
    size: int
    blocks: tuple[tuple[bytes, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class PacksTable:
    key: str
    checksum: bytes


@dataclass(frozen=True, slots=True)
class Head:
    """HEAD: a branch (target and oid), an unborn branch (target alone), detached (oid alone), or unknown (neither)."""

    target: bytes | None = None
    oid: bytes | None = None
    type: int = 0
    peeled: bytes | None = None
    tree: bytes | None = None


@dataclass(frozen=True, slots=True)
class UpstreamRecord:
    """Where a repository comes from. `credential` is {"env": …}, {"file": …} or {"sealed": …}, or None."""

    url: str
    mode: str = "full"
    refspecs: tuple[str, ...] = ()
    credential: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    number: int
    state: str = REGISTERED
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    registration: str = field(default_factory=lambda: secrets.token_hex(8))
    created: float = field(default_factory=time.time)
    registered: float = 0.0
    last_sync: float | None = None
    object_format: str = "sha1"
    head: Head = Head()
    default_branch: bytes | None = None
    packs: tuple[PackRecord, ...] = ()
    packs_table: PacksTable | None = None
    refs: RefsRecord | None = None
    changes: Mapping[bytes, RefChange] = field(default_factory=dict)
    closed: bool = True
    upstream: UpstreamRecord | None = None
    operation: str | None = None
    swept: float = 0.0

    @property
    def ready(self) -> bool:
        return self.state == READY

    def successor(self, **changes: Any) -> Manifest:
        """The next generation, like this one but for `changes`, with a nonce of its own."""
        return replace(
            self, **{"number": self.number + 1, "nonce": secrets.token_hex(16), "created": time.time(), **changes}
        )

    def tombstone(self) -> Manifest:
        """What gc leaves of it: the number stays taken."""
        return Manifest(
            number=self.number,
            state=TOMBSTONE,
            nonce=self.nonce,
            registration=self.registration,
            created=self.created,
        )

    def to_bytes(self) -> bytes:
        """JSON; ManifestTooLarge above 64 KB."""
        document: dict[str, Any] = {
            "version": VERSION,
            "number": self.number,
            "nonce": self.nonce,
            "state": self.state,
            "registration": self.registration,
            "created": self.created,
        }
        if self.state != TOMBSTONE:
            document |= {
                "registered": self.registered,
                "last_sync": self.last_sync,
                "object_format": self.object_format,
                "head": {
                    "target": _name_out(self.head.target),
                    "oid": _oid_out(self.head.oid),
                    "type": self.head.type,
                    "peeled": _oid_out(self.head.peeled),
                    "tree": _oid_out(self.head.tree),
                },
                "default_branch": _name_out(self.default_branch),
                "packs": pack_rows(self.packs),
                "packs_table": self.packs_table
                and {"key": self.packs_table.key, "checksum": self.packs_table.checksum.hex()},
                "refs": self.refs and _refs_out(self.refs),
                "changes": [_change_out(name, change) for name, change in sorted(self.changes.items())],
                "closed": self.closed,
                "upstream": self.upstream and _upstream_out(self.upstream),
                "operation": self.operation,
                "swept": self.swept,
            }
        data = sealed(orjson.dumps(document))
        if len(data) > MANIFEST_BYTES_MAX or len(self.changes) > CHANGES_MAX:
            raise ManifestTooLarge(f"{len(data)} bytes, {len(self.changes)} changes")
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """CorruptData; StoreUnavailable for a version that is newer than this code."""
        try:
            document = orjson.loads(data)
            version = document["version"]
            if not isinstance(version, int) or version < 1:
                raise ValueError(f"version {version!r}")
            if version > VERSION:
                raise StoreUnavailable(
                    f"A manifest has version {version}, and this packhouse reads up to {VERSION}: it is too old."
                )
            if sealed(data[:-_SEAL_BYTES] + b"}") != data:
                raise ValueError("its checksum is missing, or that of other bytes")
            return _manifest_in(document)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise CorruptData(f"A manifest cannot be read: {error}.") from error


def sealed(document: bytes) -> bytes:
    """A JSON object with its checksum as one more member, and a newline."""
    return b'%b,"checksum":"%b"}\n' % (document[:-1], sha1(document, usedforsecurity=False).hexdigest().encode())


def pack_rows(packs: tuple[PackRecord, ...]) -> list[list[Any]]:
    return [[p.name, p.size, p.objects, p.own_objects, p.own_end, p.checksum.hex()] for p in packs]


def packs_from_rows(rows: list[list[Any]]) -> tuple[PackRecord, ...]:
    return tuple(
        PackRecord(str(name), int(size), int(objects), int(own), int(end), bytes.fromhex(checksum))
        for name, size, objects, own, end, checksum in rows
    )


def _manifest_in(document: dict[str, Any]) -> Manifest:
    common: dict[str, Any] = {key: document[key] for key in ("number", "nonce", "state", "registration", "created")}
    if document["state"] == TOMBSTONE:
        return Manifest(**common)
    if document["state"] not in (REGISTERED, READY, DELETED):
        raise ValueError(f"state {document['state']!r}")
    table, upstream = document["packs_table"], document["upstream"]
    return Manifest(
        **common,
        registered=document["registered"],
        last_sync=document["last_sync"],
        object_format=document["object_format"],
        head=_head_in(document["head"]),
        default_branch=_name_in(document["default_branch"]),
        packs=packs_from_rows(document["packs"]),
        packs_table=PacksTable(table["key"], bytes.fromhex(table["checksum"])) if table else None,
        refs=_refs_in(document["refs"]) if document["refs"] else None,
        changes=dict(_change_in(row) for row in document["changes"]),
        closed=document["closed"],
        upstream=UpstreamRecord(upstream["url"], upstream["mode"], tuple(upstream["refspecs"]), upstream["credential"])
        if upstream
        else None,
        operation=document["operation"],
        swept=float(document.get("swept", 0.0)),
    )


def _head_in(row: dict[str, Any]) -> Head:
    oids = _oid_in(row["oid"]), row["type"], _oid_in(row["peeled"]), _oid_in(row.get("tree"))
    return Head(_name_in(row["target"]), *oids)


def _refs_out(refs: RefsRecord) -> dict[str, Any]:
    blocks = [[_name_out(separator), *numbers] for separator, *numbers in refs.blocks]
    return {"key": refs.key, "count": refs.count, "bytes": refs.size, "blocks": blocks}


def _refs_in(document: dict[str, Any]) -> RefsRecord:
    blocks = tuple((unquote_to_bytes(row[0]), int(row[1]), int(row[2]), int(row[3])) for row in document["blocks"])
    return RefsRecord(document["key"], document["count"], document["bytes"], blocks)


def _change_out(name: bytes, change: RefChange) -> list[Any]:
    if change.oid is None:
        return [_name_out(name)]
    more = _oid_out(change.peeled), _name_out(change.symref_target), _oid_out(change.tree)
    row = [_name_out(name), change.type, change.oid.hex(), *more]
    while row[-1] is None:
        row.pop()
    return row


def _change_in(row: list[Any]) -> tuple[bytes, RefChange]:
    name = unquote_to_bytes(row[0])
    if len(row) == 1:
        return name, RefChange(None)
    peeled, target, tree = [*row[3:], None, None, None][:3]
    return name, RefChange(bytes.fromhex(row[2]), row[1], _oid_in(peeled), _name_in(target), _oid_in(tree))


def _upstream_out(upstream: UpstreamRecord) -> dict[str, Any]:
    credential = dict(upstream.credential) if upstream.credential else None
    return {"url": upstream.url, "mode": upstream.mode, "refspecs": upstream.refspecs, "credential": credential}


def _name_out(name: bytes | None) -> str | None:
    return None if name is None else quote_from_bytes(name, safe=_SAFE)


def _name_in(text: str | None) -> bytes | None:
    return None if text is None else unquote_to_bytes(text)


def _oid_out(oid: bytes | None) -> str | None:
    return None if oid is None else oid.hex()


def _oid_in(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
