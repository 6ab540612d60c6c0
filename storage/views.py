"""Opening a generation for reading, in the serving process and in workers alike.

What is opened is kept for the process: indexes and file descriptors belong to a registration and are shared by all of
its generations, views to one generation. Everything that is kept is immutable in the store, so nothing has to be
checked again. Bytes are read with pread(2), never mapped: a cold or truncated map stops or kills every thread of the
process.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from pack.errors import BadIndex, CorruptData, StoreUnavailable
from pack.index import Index
from pack.limits import Limits
from pack.reader import ObjectCache, Objects, PackFile
from pack.view import View
from storage import layout
from storage.backend import Backend
from storage.manifest import Manifest, PackRecord, packs_from_rows
from storage.open import open_backend
from storage.refs import RefsReader

if TYPE_CHECKING:
    from storage.repository import Handle

_VIEWS = 64
_REPOSITORIES = 256
_INDEX_BYTES = 512 << 20
_OPEN_FILES = 512
# Reads of stored objects have no limit of their own: what came in was within the limits of its ingest.
_LIMITS = replace(Limits(), object_bytes=None, delta_depth=None)

_lock = threading.RLock()
_cache = ObjectCache(64 << 20)
_views: OrderedDict[tuple[str, str, int, str], View] = OrderedDict()
_repositories: OrderedDict[tuple[str, str], _Repository] = OrderedDict()
_files: OrderedDict[str, _File] = OrderedDict()


def configure(*, object_cache_bytes: int) -> None:
    """Set the size of the process's cache of objects, and forget what was opened."""
    global _cache
    with _lock:
        _cache = ObjectCache(object_cache_bytes)
        forget()


def forget() -> None:
    """Close all that this process has opened (descriptors in use by a running read stay open until it ends)."""
    with _lock:
        _views.clear()
        _repositories.clear()
        _files.clear()


def open_view(handle: Handle) -> View:
    """The generation of `handle` (a settled one), opened now or before. CorruptData, BadIndex."""
    manifest = handle.manifest
    key = (handle.store, handle.namespace, manifest.number, manifest.nonce)
    with _lock:
        view = _views.get(key)
        if view is not None:
            _views.move_to_end(key)
            return view
        repository = _repository(handle.store, handle.owner, handle.name, handle.namespace)
    # Reading a large index takes its time: only those who want this very repository wait for it.
    objects = repository.objects(manifest.packs)
    view = View(objects, repository.refs(manifest), manifest.number, handle.namespace)
    with _lock:
        view = _views.setdefault(key, view)
        _drop()
        return view


def open_objects(handle: Handle, more: Sequence[PackRecord] = ()) -> Objects:
    """The objects of `handle` and of packs that are in the store but not published yet."""
    with _lock:
        repository = _repository(handle.store, handle.owner, handle.name, handle.namespace)
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


class LocalSource:
    """`pack.reader.Source` over the files of one repository in a local folder; names are keys below the repository."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def read(self, name: str, offset: int, length: int) -> bytes:
        return _pread(_file(f"{self._folder}/{name}"), offset, length)

    def read_whole(self, name: str) -> bytes:
        """All of a file that is read once: its descriptor is not kept."""
        file = _File(f"{self._folder}/{name}")
        return _pread(file, 0, os.fstat(file.fd).st_size)


class _File:
    """A descriptor that is closed when nobody holds it any more: readers outlive its place in the cache."""

    def __init__(self, path: str) -> None:
        self.fd = -1
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise CorruptData(f"{path.rpartition('/')[2]} is missing from the store.") from error
        except OSError as error:
            raise StoreUnavailable(f"The store failed to open a file: {error.strerror}.", operation="open") from error

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


def _pread(file: _File, offset: int, length: int) -> bytes:
    try:
        data = os.pread(file.fd, length, offset)
        while len(data) < length and (more := os.pread(file.fd, length - len(data), offset + len(data))):
            data += more
    except OSError as error:
        raise StoreUnavailable(f"The store failed to read a file: {error.strerror}.", operation="read") from error
    return data


def _file(path: str) -> _File:
    with _lock:
        file = _files.get(path)
        if file is not None:
            _files.move_to_end(path)
            return file
        file = _files[path] = _File(path)
        while len(_files) > _OPEN_FILES:
            _files.popitem(last=False)
        return file


class _Repository:
    """What one registration has open, for all of its generations."""

    def __init__(self, namespace: str, source: LocalSource) -> None:
        self.namespace = namespace
        self.source = source
        self.index_bytes = 0
        self._packs: dict[str, PackFile] = {}
        self._lock = threading.Lock()

    def objects(self, records: Sequence[PackRecord]) -> Objects:
        # The newest pack first: what was fetched last is asked for most.
        with self._lock:
            packs = [self._pack(record) for record in reversed(records)]
        return Objects(self.namespace, packs, self.source, _cache, _LIMITS)

    def refs(self, manifest: Manifest) -> RefsReader:
        record = manifest.refs
        key = record.key if record else ""
        return RefsReader(
            record, manifest.changes, manifest.head, lambda offset, length: self.source.read(key, offset, length)
        )

    def _pack(self, record: PackRecord) -> PackFile:
        pack = self._packs.get(record.name)
        if pack is None:
            name = layout.index(record.name)
            data = self.source.read_whole(name)
            index = Index.parse(data, verify=True)
            if index.pack_checksum != record.checksum or len(index) != record.objects:
                raise BadIndex(f"{name} is the index of another pack.")
            pack = self._packs[record.name] = PackFile(layout.pack(record.name), record.size, index)
            self.index_bytes += len(data)
        return pack


def _repository(store: str, owner: str, name: str, namespace: str) -> _Repository:
    repository = _repositories.get((store, namespace))
    if repository is None:
        backend = open_backend(store)
        folder = backend.local_path(layout.latest(owner, name))
        if folder is None:
            raise StoreUnavailable("Only stores in a local folder can be read so far.")
        repository = _repositories[store, namespace] = _Repository(namespace, LocalSource(folder.parent.parent))
    _repositories.move_to_end((store, namespace))
    return repository


def _drop() -> None:
    """Forget what was used least, beyond the bounds; but never the last one."""
    while len(_views) > _VIEWS:
        _views.popitem(last=False)
    used = sum(each.index_bytes for each in _repositories.values())
    while len(_repositories) > 1 and (len(_repositories) > _REPOSITORIES or used > _INDEX_BYTES):
        _, dropped = _repositories.popitem(last=False)
        used -= dropped.index_bytes
        for key in [key for key in _views if key[1] == dropped.namespace]:
            del _views[key]
