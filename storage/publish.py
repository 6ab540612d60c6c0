"""Publishing: generations of a repository are made here and nowhere else.

`prepare` turns what an ingest brought into the manifest that follows a base; `publish` tries to write it. The write is
create-only: of all writers that follow one base exactly one wins, and the others are told the winner.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import orjson

from pack.errors import PackhouseError, RepoNotFound, StoreUnavailable
from pack.view import Ref
from storage import generations, gitview, layout
from storage.backend import Backend
from storage.manifest import (
    DELETED,
    READY,
    REGISTERED,
    Head,
    Manifest,
    ManifestTooLarge,
    PackRecord,
    PacksTable,
    UpstreamRecord,
    pack_rows,
)
from storage.refs import RefsReader, RefsTable, changes_between
from storage.views import settle

INLINE_PACKS = 100
_PAUSES = (0.1, 0.5, 2.0)


@dataclass(frozen=True, slots=True)
class Won:
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Lost:
    """Another writer has published that number. List the upstream's refs again before the next try."""

    winner: Manifest


async def register(
    backend: Backend, owner: str, name: str, upstream: UpstreamRecord | None, operation: str | None = None
) -> Won | Lost:
    """A new registration: generation 1, or the one after a deleted or replaced registration. Its caches start empty."""
    last = await generations.newest(backend, owner, name)
    now = time.time()
    manifest = Manifest(
        number=last.number + 1 if last else 1,
        state=REGISTERED,
        created=now,
        registered=now,
        upstream=upstream,
        operation=operation,
    )
    return await publish(backend, owner, name, manifest)


async def delete(backend: Backend, owner: str, name: str) -> Won | Lost:
    """Publish that the repository is gone. RepoNotFound. Its packs stay until gc, its number stays taken."""
    last = await generations.newest(backend, owner, name)
    if last is None or last.state == DELETED:
        raise RepoNotFound(f"There is no repository {owner}/{name}.")
    gone = Manifest(number=last.number + 1, state=DELETED, registration=last.registration, registered=last.registered)
    return await publish(backend, owner, name, gone)


async def prepare(
    backend: Backend,
    owner: str,
    name: str,
    base: Manifest,
    *,
    refs: Sequence[Ref],
    head: Head,
    new_packs: Sequence[PackRecord] = (),
    closed: bool = True,
    **changes: Any,
) -> Manifest:
    """The ready manifest that follows `base`, with all refs as `refs` (HEAD not among them) and `new_packs` added.

    Writes the tables it needs (refs, packs), which nobody sees until it is published. `changes` are further fields of
    the manifest. UpstreamProtocol for names that no ref can have.
    """
    base = await settle(backend, owner, name, base)
    prefix = layout.repository(owner, name)
    every = (*base.packs, *new_packs)
    fields: dict[str, Any] = {"state": READY, "head": head, "closed": closed, "last_sync": time.time(), **changes}
    table = base.refs
    so_far = await _changes(backend, prefix, base, refs)
    if so_far is None:
        table, so_far = await _write_table(backend, prefix, refs), {}
    manifest = base.successor(**fields, refs=table, changes=so_far, packs=every)
    if len(every) > INLINE_PACKS:
        manifest = await _spill_packs(backend, prefix, manifest)
    with contextlib.suppress(ManifestTooLarge):
        manifest.to_bytes()
        return manifest
    return replace(manifest, refs=await _write_table(backend, prefix, refs), changes={})


async def insist(backend: Backend, owner: str, name: str, manifest: Manifest) -> Won | Lost:
    """`publish`, called again a few times when the store does not answer: the question must not stay open."""
    for pause in _PAUSES:
        with contextlib.suppress(StoreUnavailable):
            return await publish(backend, owner, name, manifest)
        await asyncio.sleep(pause)
    return await publish(backend, owner, name, manifest)


async def publish(backend: Backend, owner: str, name: str, manifest: Manifest) -> Won | Lost:
    """Write `manifest` as its generation. It must follow one that was read, and all that it names must be in the store.

    An error of the store is raised only when it is certain that the manifest was not published or cannot be known; a
    repeated call with the same manifest is safe, and finds out.
    """
    key = layout.generation(owner, name, manifest.number)
    data = manifest.to_bytes()
    if not await backend.create(key, data):
        there = await generations.read(backend, owner, name, manifest.number)
        if there is None:
            raise StoreUnavailable(f"The store says that {key} exists, and does not give it.", operation="create")
        if there.nonce != manifest.nonce:
            return Lost(await generations.newest(backend, owner, name, there) or there)
    # It is published. What follows are a hint and a convenience: their failure must not look like a failed publish.
    with contextlib.suppress(PackhouseError):
        await backend.put(layout.latest(owner, name), data)
    with contextlib.suppress(PackhouseError):
        await gitview.refresh(backend, owner, name)
    return Won(manifest)


async def bury(backend: Backend, owner: str, name: str, manifest: Manifest) -> None:
    """Overwrite the manifest of a generation that has a successor with its tombstone. Its key stays."""
    await backend.put(layout.generation(owner, name, manifest.number), manifest.tombstone().to_bytes())


async def retire(backend: Backend, owner: str, name: str, number: int) -> None:
    """Overwrite a generation that is not the newest with its tombstone, for gc."""
    newest = await generations.newest(backend, owner, name)
    if newest is None or number >= newest.number:
        raise ValueError("only a generation that has a successor can be retired")
    old = await generations.read(backend, owner, name, number)
    if old is not None:
        await bury(backend, owner, name, old)


async def all_refs(backend: Backend, owner: str, name: str, manifest: Manifest) -> list[Ref]:
    """Every ref of a generation, sorted, from any kind of store."""
    return list((await _reader(backend, layout.repository(owner, name), manifest)).iterate())


async def _reader(backend: Backend, prefix: str, manifest: Manifest) -> RefsReader:
    table = await backend.get(prefix + manifest.refs.key) if manifest.refs else b""
    return RefsReader(
        manifest.refs, manifest.changes, manifest.head, lambda offset, length: table[offset : offset + length]
    )


async def _changes(backend: Backend, prefix: str, base: Manifest, refs: Sequence[Ref]) -> dict[bytes, Any] | None:
    if base.refs is None and not base.changes and len(refs) > 200:
        return None  # a first ingest: changes would be all of them
    return changes_between(await _reader(backend, prefix, base), refs, base.changes)


async def _write_table(backend: Backend, prefix: str, refs: Sequence[Ref]) -> Any:
    table = RefsTable(refs)
    if not table.data:
        return None
    record = replace(table.record, key=layout.table(table.record.key))
    await backend.create(prefix + record.key, table.data)
    return record


async def fitted(backend: Backend, prefix: str, manifest: Manifest) -> Manifest:
    """A settled manifest with its packs in a table where they are many."""
    if len(manifest.packs) > INLINE_PACKS:
        return await _spill_packs(backend, prefix, manifest)
    return replace(manifest, packs_table=None)


async def _spill_packs(backend: Backend, prefix: str, manifest: Manifest) -> Manifest:
    # Half of the room stays for those that come next, so that most generations need no new table.
    keep = INLINE_PACKS // 2
    data = orjson.dumps(pack_rows(manifest.packs[:-keep]))
    checksum = sha256(data).digest()
    key = layout.table(f"packhouse/packs-{checksum.hex()[:40]}")
    await backend.create(prefix + key, data)
    return replace(manifest, packs=manifest.packs[-keep:], packs_table=PacksTable(key, checksum))
