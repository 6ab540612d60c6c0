"""An ingest in its plainest form: what the storage tests need of one, without jobs and networks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pack.index import write_index
from pack.reader import Objects
from pack.stream import StreamParser
from pack.view import View
from storage import connectivity, publish
from storage.arrived import Arrived
from storage.backend import Backend
from storage.localgit import LocalRepository
from storage.manifest import Manifest, PackRecord, UpstreamRecord
from storage.repository import Handle, Repositories, open_objects, open_view
from storage.sink import PackSink
from storage.supply import supplying

OWNER, NAME = "owner", "name"
_T = TypeVar("_T")


async def look(backend: Backend, work: Callable[[View], _T]) -> _T:
    """What `work` finds in the current generation, through a cache where the store is no local folder."""
    async with supplying(backend) as near:
        repositories = Repositories(backend, supplier=near)
        handle = await repositories.handle(OWNER, NAME)
        return await repositories.read(handle, lambda pinned: work(open_view(pinned)))


async def look_at(backend: Backend, base: Manifest, records: Iterable[PackRecord], work: Callable[[Objects], _T]) -> _T:
    """What `work` finds among the objects of a generation and of packs that none names yet."""
    async with supplying(backend) as near:
        whole = replace(base, packs=(*base.packs, *records))
        handle = Handle(backend.url, OWNER, NAME, whole, near.place if near else None)
        return await Repositories(backend, supplier=near).read(handle, lambda pinned: work(open_objects(pinned)))


async def store_pack(
    backend: Backend,
    chunks: Iterable[bytes],
    arrived: Arrived | None = None,
    find_base: Callable[[bytes], tuple[int, bytes] | None] | None = None,
) -> PackRecord:
    """Put one pack into the store, its index with it."""
    sink = await PackSink.open(backend, OWNER, NAME)
    on_object = arrived.on_object if arrived else None
    parser = StreamParser(read_back=sink.read_back, on_object=on_object, find_base=find_base)
    try:
        for chunk in chunks:
            await sink.write(chunk)
            parser.feed(chunk)
        result = parser.finish()
    except BaseException:
        await sink.abort()
        raise
    return await sink.finish(result, write_index(result))


async def register(backend: Backend) -> Manifest:
    won = await publish.register(backend, OWNER, NAME, UpstreamRecord("https://git.example/owner/name"))
    assert isinstance(won, publish.Won)
    return won.manifest


async def ingest(backend: Backend, source: Path) -> Manifest:
    """Everything of the repository at `source`, as one new generation of owner/name."""
    try:
        base = await Repositories(backend).newest(OWNER, NAME)
    except Exception:
        base = await register(backend)
    arrived = Arrived()
    with LocalRepository(source) as local:
        records = [await store_pack(backend, stream.chunks, arrived) for stream in local.packs()]
        advertisement = local.advertisement
    head = advertisement.head
    before = await publish.all_refs(backend, OWNER, NAME, base)

    def check(objects: Objects) -> connectivity.Checked:
        return connectivity.check(
            objects,
            [ref for ref in advertisement.refs if ref.name != b"HEAD"],
            arrived=arrived,
            head_target=advertisement.head_target,
            head_oid=head.oid if head else None,
            base_refs=before,
            base_closed=base.closed,
        )

    checked = await look_at(backend, base, records, check)
    manifest = await publish.prepare(
        backend,
        OWNER,
        NAME,
        base,
        refs=checked.refs,
        head=checked.head,
        new_packs=records,
        closed=checked.closed,
        default_branch=advertisement.head_target,
    )
    won = await publish.publish(backend, OWNER, NAME, manifest)
    assert isinstance(won, publish.Won)
    return won.manifest
