"""Checking a repository of a store: manifests, tables, packs, indexes, every object's hash, and that what refs
reach is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha1

from pack import tree as trees
from pack.errors import CorruptData, ObjectNotFound, PackhouseError, WrongType
from pack.index import Index
from pack.objects import BLOB, COMMIT, EMPTY_TREE, TAG, TREE
from pack.tag import target
from pack.view import View
from storage import generations, layout
from storage.backend import Backend, NotThere
from storage.manifest import READY, Manifest, PackRecord
from storage.refs import RefsReader
from storage.repository import Handle, Repositories
from storage.supply import Supplier, supplying
from storage.views import open_view, settle

_CHUNK = 8 << 20
_EXAMPLES = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong. `code` is one of bad_manifest, missing_generation, bad_table, missing_pack, bad_pack, bad_index,
    corrupt_object, missing_object; `where` a key or an oid.
    """

    code: str
    where: str
    detail: str


@dataclass(slots=True)
class Report:
    owner: str
    name: str
    generation: int = 0
    packs: int = 0
    objects: int = 0
    refs: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.findings

    def add(self, code: str, where: str, detail: str) -> None:
        self.findings.append(Finding(code, where, detail))


async def fsck(backend: Backend, owner: str, name: str, supplier: Supplier | None = None) -> Report:
    """Read everything of the current generation, and all older manifests. RepoNotFound is a finding, too: nothing is
    raised but StoreUnavailable.
    """
    report = Report(owner, name)
    manifest = await _check_generations(backend, report)
    if manifest is None or manifest.state != READY:
        return report
    prefix = layout.repository(owner, name)
    try:
        manifest = await settle(backend, owner, name, manifest)
    except CorruptData as error:
        report.add("bad_table", manifest.packs_table.key if manifest.packs_table else "", error.detail)
        return report
    report.packs = len(manifest.packs)
    whole = True
    for record in manifest.packs:
        whole &= await _check_pack(backend, prefix, record, report)
    whole &= await _check_refs(backend, prefix, manifest, report)
    if whole:
        async with supplying(backend, supplier) as near:
            place = near.place if near is not None else None
            handle = Handle(backend.url, owner, name, manifest, place)
            if near is not None:
                await near.complete(handle)
            findings = list(report.findings)

            def check(pinned: Handle) -> None:
                # From the beginning each time that something had to be brought.
                report.objects, report.findings[:] = 0, findings
                view = open_view(pinned)
                _check_objects(view, report)
                _check_reach(view, report)

            await Repositories(backend, supplier=near).read(handle, check)
    return report


async def _check_generations(backend: Backend, report: Report) -> Manifest | None:
    owner, name = report.owner, report.name
    newest: Manifest | None = None
    number = 0
    try:
        last = await generations.newest(backend, owner, name)
        number = last.number if last else 0
    except CorruptData as error:
        report.add("bad_manifest", layout.latest(owner, name), error.detail)
    for each in range(1, number + 1):
        try:
            newest = await generations.read(backend, owner, name, each)
            if newest is None:
                report.add("missing_generation", layout.generation(owner, name, each), "It is not there.")
        except CorruptData as error:
            newest = None
            report.add("bad_manifest", layout.generation(owner, name, each), error.detail)
    if newest is None:
        report.add("missing_generation", f"{owner}/{name}", "There is no generation that can be read.")
        return None
    report.generation = newest.number
    return newest


async def _check_pack(backend: Backend, prefix: str, record: PackRecord, report: Report) -> bool:
    key = prefix + layout.pack(record.name)
    try:
        size = await backend.size(key)
        digest = sha1(usedforsecurity=False)
        offset, last = 0, b""
        while offset < size:
            data = await backend.read(key, offset, min(_CHUNK, size - offset))
            if not data:
                break
            offset += len(data)
            last += data
            digest.update(last[:-20])
            last = last[-20:]
        if (offset, last) != (record.size, record.checksum) or digest.digest() != record.checksum:
            report.add("bad_pack", key, "It is not the pack that the manifest names: size or checksum differ.")
            return False
    except NotThere as error:
        report.add("missing_pack", key, error.detail)
        return False
    key = prefix + layout.index(record.name)
    try:
        index = Index.parse(await backend.get(key), verify=True)
        if index.pack_checksum != record.checksum or len(index) != record.objects:
            report.add("bad_index", key, "It is the index of another pack.")
            return False
    except CorruptData as error:  # NotThere is one, too
        report.add("bad_index", key, error.detail)
        return False
    return True


async def _check_refs(backend: Backend, prefix: str, manifest: Manifest, report: Report) -> bool:
    record = manifest.refs
    key = record.key if record else "changes"
    try:
        table = await backend.get(prefix + key) if record else b""
        refs = RefsReader(record, manifest.changes, manifest.head, lambda at, length: table[at : at + length])
        names = [ref.name for ref in refs.iterate()]
    except CorruptData as error:
        report.add("bad_table", key, error.detail)
        return False
    if names != sorted(set(names)) or (record and len(table) != record.size):
        report.add("bad_table", key, "Its refs are not sorted, or its size is another one.")
        return False
    report.refs = len(names)
    return True


def _check_objects(view: View, report: Report) -> None:
    """Every object of every pack has the hash that it is listed under."""
    for pack in view.objects.packs:
        for oid in [oid for _, oid in sorted((pack.index.find(oid) or 0, oid) for oid in pack.index.oids())]:
            report.objects += 1
            try:
                view.objects.read(oid)
            except (CorruptData, ObjectNotFound) as error:
                if len(report.findings) < _EXAMPLES:
                    report.add("corrupt_object", oid.hex(), error.detail)


def _check_reach(view: View, report: Report) -> None:
    """Everything that a ref leads to is there, of the right type."""
    seen: set[bytes] = {EMPTY_TREE}
    pending = [(ref.oid, ref.type) for ref in view.refs.iterate()]
    if view.refs.head is not None:
        pending.append((view.refs.head.oid, view.refs.head.type))
    while pending:
        oid, kind = pending.pop()
        if oid in seen:
            continue
        seen.add(oid)
        try:
            if kind == BLOB:
                if view.objects.header(oid)[0] != BLOB:
                    raise WrongType(f"object {oid.hex()} is no blob")
            else:
                pending.extend(_children(view, oid, kind))
        except PackhouseError as error:
            if len(report.findings) < _EXAMPLES:
                report.add("missing_object", oid.hex(), error.detail)


def _children(view: View, oid: bytes, kind: int) -> Iterator[tuple[bytes, int]]:
    if kind == COMMIT:
        links = view.links(oid)
        yield links.tree, TREE
        for parent in links.parents:
            yield parent, COMMIT
    elif kind == TAG:
        yield target(view.objects.read_as(oid, TAG))
    else:
        for entry in view.tree(oid):
            if entry.mode != trees.GITLINK:
                yield entry.oid, trees.kind_of(entry.mode)
