"""Opening a generation for reading, in the serving process and in workers alike.

What is opened is kept for the process: indexes and file descriptors belong to a registration and are shared by all of
its generations, views to one generation. Everything that is kept is immutable in the store, so nothing has to be
checked again. Bytes of a store that is no local folder come from the node's cache; what is not there yet is a `Need`,
already when a generation is opened.
"""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

import orjson

from pack.errors import BadIndex, CorruptData, StoreUnavailable
from pack.index import Index
from pack.limits import Limits
from pack.needs import Needs
from pack.reader import ObjectCache, Objects, PackFile
from pack.view import View
from storage import cache, descriptors, layout, shelf
from storage.backend import Backend
from storage.cache import Place
from storage.graphs import Graphs, Opener
from storage.manifest import Manifest, PackRecord, RefsRecord, packs_from_rows
from storage.objects import CachedObjects, NoObjects, Unopened
from storage.open import open_backend
from storage.paths import PathLayers, PathOpener
from storage.refs import RefsReader
from storage.snapshots import SnapshotOpener, snapshots
from storage.sources import CachedSource, LocalSource, RepositorySource
from storage.streams import StreamOpener, streams
from storage.tables import TableOpener, Tables

if TYPE_CHECKING:
    from storage.repository import Handle

__all__ = ["Unopened", "configure", "forget", "glance", "open_objects", "open_view", "settle", "tidy"]

_VIEWS = 64
_REPOSITORIES = 256
_INDEX_BYTES = 512 << 20
# Reads of stored objects have no limit of their own: what came in was within the limits of its ingest.
_LIMITS = replace(Limits(), object_bytes=None, delta_depth=None)

_Key = tuple[str, str, str, int, str]

_lock = threading.RLock()
_cache = ObjectCache(64 << 20)
_views: OrderedDict[_Key, View] = OrderedDict()
_glances: OrderedDict[_Key, View] = OrderedDict()
_repositories: OrderedDict[tuple[str, str, str], _Repository] = OrderedDict()


def configure(*, object_cache_bytes: int, kept: tuple[str, str, int] | None = None) -> None:
    """Set the size of the process's cache of objects, and forget what was opened.

    `kept` says where it may keep derived files: the cache's folder, the store's URL, the cache's budget in bytes.
    """
    global _cache
    if kept is None:
        shelf.configure(None)
    else:
        shelf.configure(Place(kept[0]), kept[1], kept[2])
    with _lock:
        _cache = ObjectCache(object_cache_bytes)
        forget()


def forget() -> None:
    """Close all that this process has opened (descriptors in use by a running read stay open until it ends)."""
    with _lock:
        _views.clear()
        _glances.clear()
        _repositories.clear()
        descriptors.clear()
        cache.pieces.clear()


def tidy() -> None:
    """Let go of what others have made room of; to be called now and then by a process that has nothing to do."""
    descriptors.tidy()


def open_view(handle: Handle) -> View:
    """The generation of `handle` (a settled one), opened now or before. Need; CorruptData, BadIndex."""
    if handle.pieces:
        cache.pieces.add(handle.pieces)
    manifest = handle.manifest
    key = _key(handle)
    with _lock:
        view = _views.get(key)
        if view is not None:
            _views.move_to_end(key)
            return view
        repository = _repository(handle)
    # Reading a large index takes its time: only those who want this very repository wait for it.
    objects = repository.objects(manifest.packs)
    refs = glance(handle).refs
    view = View(objects, refs, manifest.number, handle.namespace)
    _derived(view, repository, handle)
    objects.open_table = TableOpener(repository.tables, handle)
    with _lock:
        view = _views.setdefault(key, view)
        _drop()
        return view


def glance(handle: Handle) -> View:
    """The generation without its objects, unless they are open already: asking for one is Unopened.

    What refs, the commit graph and snapshots know is all there.
    """
    key = _key(handle)
    with _lock:
        view = _views.get(key) or _glances.get(key)
        if view is None:
            if handle.pieces:
                cache.pieces.add(handle.pieces)
            repository = _repository(handle)
            objects = NoObjects(handle.namespace, repository.source, _cache)
            refs = repository.refs(handle.manifest)
            view = _glances[key] = View(objects, refs, handle.generation, handle.namespace)
            _derived(view, repository, handle)
            while len(_glances) > _VIEWS:
                _glances.popitem(last=False)
        return view


def _derived(view: View, repository: _Repository, handle: Handle) -> None:
    view.open_graph = graphs = Opener(repository.graphs, handle)
    view.open_changes = PathOpener(repository.paths, graphs, handle)
    view.snapshots = SnapshotOpener(repository.snapshots, handle)
    view.streams = StreamOpener(repository.streams, handle)


def open_objects(handle: Handle, more: Sequence[PackRecord] = ()) -> Objects:
    """The objects of `handle` and of packs that are in the store but not published yet. Need."""
    if handle.pieces:
        cache.pieces.add(handle.pieces)
    with _lock:
        repository = _repository(handle)
    return repository.objects((*handle.manifest.packs, *more))


async def settle(backend: Backend, owner: str, name: str, manifest: Manifest) -> Manifest:
    """`manifest` with all its packs in `packs`: most have them; one of very many packs names a table of the others."""
    table = manifest.packs_table
    if table is None:
        return manifest
    data = await backend.get(layout.repository(owner, name) + table.key)
    if sha256(data).digest() != table.checksum:
        raise CorruptData(f"The table of packs {table.key} of {owner}/{name} is damaged.")
    return replace(manifest, packs=(*packs_from_rows(orjson.loads(data)), *manifest.packs), packs_table=None)


class _Repository:
    """What one registration has open, for all of its generations."""

    def __init__(self, namespace: str, source: RepositorySource) -> None:
        self.namespace = namespace
        self.source = source
        self.graphs = Graphs(source)
        self.paths = PathLayers(source)
        self.snapshots = snapshots(source)
        self.streams = streams(source)
        self.tables = Tables(source)
        self.index_bytes = 0
        self._packs: dict[str, PackFile] = {}
        self._mended: set[object] = set()
        self._lock = threading.Lock()

    def objects(self, records: Sequence[PackRecord]) -> Objects:
        needs = Needs()
        packs: list[PackFile] = []
        with self._lock:
            # The newest pack first: what was fetched last is asked for most.
            for record in reversed(records):
                with needs:
                    packs.append(self._pack(record))
        needs.settle()
        if isinstance(self.source, LocalSource):
            return Objects(self.namespace, packs, self.source, _cache, _LIMITS)
        return CachedObjects(self.namespace, packs, self.source, _cache, _LIMITS)

    def refs(self, manifest: Manifest) -> RefsReader:
        record = manifest.refs
        if record is None:
            return RefsReader(None, manifest.changes, manifest.head, lambda offset, length: b"")
        self.source.expect(record.key, record.size)
        crcs = {offset: crc for _, offset, _, crc in record.blocks}
        return RefsReader(
            record,
            manifest.changes,
            manifest.head,
            lambda offset, length: self._refs_block(record, offset, length, crcs.get(offset)),
        )

    def _refs_block(self, record: RefsRecord, offset: int, length: int, crc: int | None) -> bytes:
        data = self.source.read(record.key, offset, length)
        if crc is None or zlib.crc32(data) == crc:
            self._mended.discard((record.key, offset))
        elif self._mend((record.key, offset), record.key, [(offset, length)]):
            data = self.source.read(record.key, offset, length)
        return data

    def _mend(self, what: object, name: str, ranges: list[tuple[int, int]] | None = None) -> bool:
        """Whether damage may be the cache's: it is dropped there, once."""
        if what in self._mended:
            return False
        self._mended.add(what)
        return self.source.distrust(name, ranges)

    def _pack(self, record: PackRecord) -> PackFile:
        pack = self._packs.get(record.name)
        if pack is None:
            name = layout.index(record.name)
            self.source.expect(layout.pack(record.name), record.size)
            try:
                index, size = self._index(name, record)
            except BadIndex:
                if not self._mend(name, name):
                    raise
                index, size = self._index(name, record)
            self._mended.discard(name)
            pack = self._packs[record.name] = PackFile(
                layout.pack(record.name), record.size, index, near=isinstance(self.source, LocalSource)
            )
            self.index_bytes += size
        return pack

    def _index(self, name: str, record: PackRecord) -> tuple[Index, int]:
        data = self.source.read_whole(name)
        index = Index.parse(data, verify=True)
        if index.pack_checksum != record.checksum or len(index) != record.objects:
            raise BadIndex(f"{name} is the index of another pack.")
        return index, len(data)


def _key(handle: Handle) -> _Key:
    folder = handle.cache.folder if handle.cache else ""
    return handle.store, folder, handle.namespace, handle.generation, handle.manifest.nonce


def _repository(handle: Handle) -> _Repository:
    key = (handle.store, handle.cache.folder if handle.cache else "", handle.namespace)
    repository = _repositories.get(key)
    if repository is None:
        repository = _repositories[key] = _Repository(handle.namespace, _source(handle))
    _repositories.move_to_end(key)
    return repository


def _source(handle: Handle) -> RepositorySource:
    if handle.cache is not None:
        return CachedSource(handle.cache, handle.cache.shelf(handle.store, handle.namespace))
    folder = open_backend(handle.store).local_path(layout.latest(handle.owner, handle.name))
    if folder is None:
        raise StoreUnavailable("A store that is no local folder is read through a cache, and none is set up.")
    return LocalSource(folder.parent.parent)


def _drop() -> None:
    """Forget what was used least, beyond the bounds; but never the last one."""
    while len(_views) > _VIEWS:
        _views.popitem(last=False)
    used = sum(each.index_bytes for each in _repositories.values())
    while len(_repositories) > 1 and (len(_repositories) > _REPOSITORIES or used > _INDEX_BYTES):
        _, dropped = _repositories.popitem(last=False)
        used -= dropped.index_bytes
        for kept in (_views, _glances):
            for key in [key for key in kept if key[2] == dropped.namespace]:
                del kept[key]
