"""Nothing is published before what its refs promise is there: all their commits, and the whole trees of the tips.

Commits are proven without walking where possible. A set of packs is *closed* when every commit in it has all its
parents in it; an ingest collects the parents of the commits that arrive (`Arrived`) and looks each one up once. By
induction all ancestors of every commit are then there. Packs that are not closed (they may hold commits that no ref
reaches) are walked from the tips instead.

Trees that were taken apart while they came in are proven with what they name. Others are walked from the tips, each
against a tree that is proven already: the one that the ref had before, or that of another tip. What both contain is not
looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pack import commit as commits
from pack import tag as tags
from pack import tree as trees
from pack.errors import BadObject, IncompleteHistory, ObjectNotFound, WrongType
from pack.objects import COMMIT, EMPTY_TREE, TAG, TREE
from pack.treediff import compare_raw
from pack.view import Ref
from storage.arrived import Arrived
from storage.manifest import Head

_OID = 20
_TAGS_MAX = 1000
_BLOBS_MAX = 1 << 18  # files of all tips that are remembered, so that each is looked up once


class ObjectsLike(Protocol):
    """What is used of `pack.reader.Objects`."""

    def __contains__(self, oid: bytes) -> bool: ...
    def lacking(self, oids: bytes) -> bytes: ...
    def header(self, oid: bytes) -> tuple[int, int]: ...
    def read_as(self, oid: bytes, kind: int) -> bytes: ...


class Advertised(Protocol):
    """What is used of `pack.advertisement.AdvertisedRef`."""

    @property
    def name(self) -> bytes: ...
    @property
    def oid(self) -> bytes: ...
    @property
    def symref_target(self) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class Checked:
    """The refs, sorted and with their types and peeled oids; HEAD; whether the packs together are closed."""

    refs: list[Ref]
    head: Head
    closed: bool


@dataclass(slots=True)
class _Proof:
    objects: ObjectsLike
    links: Mapping[bytes, bytes]
    commits: set[bytes]
    trees: set[bytes] = field(default_factory=lambda: {EMPTY_TREE})
    blobs: set[bytes] = field(default_factory=set)


def check(
    objects: ObjectsLike,
    advertised: Iterable[Advertised],
    *,
    arrived: Arrived | None = None,
    head_target: bytes | None = None,
    head_oid: bytes | None = None,
    base_refs: Iterable[Ref] = (),
    base_closed: bool = True,
) -> Checked:
    """Prove what `advertised` (all refs as they will be, HEAD not among them) and HEAD need.

    `objects` are those of the old packs and the new ones, `base_refs` and `base_closed` those of the generation before
    (proven then). Without `arrived` commits are walked. `head_oid` is wanted for a detached HEAD, and for one whose
    branch is not among the refs but was fetched. IncompleteHistory names (`object`) the first object that is missing,
    and the ref.
    """
    old = {ref.name: ref for ref in base_refs}
    proof = _Proof(objects, arrived.links if arrived else {}, {ref.peeled or ref.oid for ref in old.values()})
    closed = arrived is not None and not arrived.unreadable and base_closed and _closed(proof)
    if arrived is not None:
        _settle(proof, arrived)
    against: bytes | None = None
    refs = []
    for wanted in sorted(advertised, key=lambda each: each.name):
        before = old.get(wanted.name)
        if before is not None and before.oid == wanted.oid:
            refs.append(before._replace(symref_target=wanted.symref_target))
            continue
        tip, against = _prove(proof, wanted.name, wanted.oid, closed, before or against)
        refs.append(tip._replace(symref_target=wanted.symref_target))
    by_name = {ref.name: ref for ref in refs}
    head = Head(head_target)
    if head_target in by_name:
        ref = by_name[head_target]
        head = Head(head_target, ref.oid, ref.type, ref.peeled, ref.tree)
    elif head_oid is not None:
        ref, _ = _prove(proof, b"HEAD", head_oid, closed, against)
        head = Head(head_target, ref.oid, ref.type, ref.peeled, ref.tree)
    return Checked(refs, head, closed)


def _settle(proof: _Proof, arrived: Arrived) -> None:
    """Prove the trees that were read while they came in: what they name and did not see must be there.

    Where most of them came too early, walking from the tips costs less.
    """
    if len(arrived.awaited) > len(arrived.read):
        return
    proof.trees |= arrived.read
    try:
        for oid in arrived.awaited:
            _walk_trees(proof, oid, None)
        lacking = proof.objects.lacking(arrived.blobs.ordered())
        if lacking:
            raise _missing(lacking[:_OID])
    except (ObjectNotFound, WrongType, BadObject):
        # The walk from the refs comes upon it again, and tells whose it is.
        proof.trees, proof.blobs = {EMPTY_TREE}, set()


def _closed(proof: _Proof) -> bool:
    links, objects = proof.links, proof.objects
    for own in links.values():
        for at in range(_OID, len(own), _OID):
            parent = own[at : at + _OID]
            if parent not in links and not (parent in objects and objects.header(parent)[0] == COMMIT):
                return False
    return True


def _prove(
    proof: _Proof, name: bytes, oid: bytes, closed: bool, against: Ref | bytes | None
) -> tuple[Ref, bytes | None]:
    """The ref with its type, and its tree if it has one."""
    try:
        kind, end, end_kind = _peel(proof, oid)
        tree: bytes | None = None
        if end_kind == COMMIT:
            if end not in proof.commits:
                _walk_commits(proof, end, only_first=closed)
            tree = _tree_of(proof, end)
        elif end_kind == TREE:
            tree = end
        if tree is not None:
            _walk_trees(proof, tree, _tree_before(proof, against))
        return Ref(name, oid, kind, end if kind == TAG else None, None, tree), tree or (
            against if isinstance(against, bytes) else None
        )
    except (ObjectNotFound, WrongType, BadObject) as error:
        raise IncompleteHistory(
            f"{name.decode(errors='replace')} needs what is not there, or not what it should be: {error.detail}",
            object=error.extra.get("object", oid.hex()),
            ref=name.decode(errors="replace"),
        ) from error


def _peel(proof: _Proof, oid: bytes) -> tuple[int, bytes, int]:
    """(type, what it leads to in the end, type of that)."""
    kind = first = _kind(proof, oid)
    for _ in range(_TAGS_MAX):
        if kind != TAG:
            return first, oid, kind
        oid = tags.target(proof.objects.read_as(oid, TAG))[0]
        kind = _kind(proof, oid)
    raise BadObject(f"tags are nested deeper than {_TAGS_MAX}")


def _kind(proof: _Proof, oid: bytes) -> int:
    if oid in proof.links:
        return COMMIT
    if oid in proof.objects:
        return proof.objects.header(oid)[0]
    if oid == EMPTY_TREE:
        return TREE
    raise _missing(oid)


def _links(proof: _Proof, oid: bytes) -> bytes:
    known = proof.links.get(oid)
    if known is not None:
        return known
    if oid not in proof.objects:
        raise _missing(oid)
    links = commits.links(proof.objects.read_as(oid, COMMIT))
    return links.tree + b"".join(links.parents)


def _tree_of(proof: _Proof, oid: bytes) -> bytes:
    return _links(proof, oid)[:_OID]


def _walk_commits(proof: _Proof, tip: bytes, *, only_first: bool) -> None:
    pending = [tip]
    while pending:
        oid = pending.pop()
        if oid in proof.commits:
            continue
        proof.commits.add(oid)
        own = _links(proof, oid)
        if not only_first:
            pending.extend(own[at : at + _OID] for at in range(_OID, len(own), _OID))


def _tree_before(proof: _Proof, against: Ref | bytes | None) -> bytes | None:
    if not isinstance(against, Ref):
        return against
    try:
        _, end, end_kind = _peel(proof, against.oid)
        tree = _tree_of(proof, end) if end_kind == COMMIT else end if end_kind == TREE else None
    except (ObjectNotFound, BadObject):
        return None
    return tree


def _walk_trees(proof: _Proof, root: bytes, against: bytes | None) -> None:
    """Prove the tree `root`; what it shares with `against`, a proven tree, is proven as well."""
    objects, proven, blobs = proof.objects, proof.trees, proof.blobs
    pending = [(root, against if against != root else None)]
    if against == root:
        proven.add(root)
    while pending:
        oid, old = pending.pop()
        if oid in proven:
            continue
        proven.add(oid)
        if oid not in objects:
            raise _missing(oid)
        pairs = compare_raw(_tree(proof, old), objects.read_as(oid, TREE))
        shared = {before[3] for before, _ in pairs if before is not None}
        for before, after in pairs:
            if after is None or after[3] in shared:
                continue
            _, mode, _, child = after
            if mode == trees.DIRECTORY:
                if child not in proven:
                    pending.append((child, before[3] if before and before[1] == mode else None))
            elif mode != trees.GITLINK and child not in blobs:
                if child not in objects:
                    raise _missing(child)
                if len(blobs) < _BLOBS_MAX:
                    blobs.add(child)


def _tree(proof: _Proof, tree: bytes | None) -> bytes:
    return b"" if tree is None or tree == EMPTY_TREE else proof.objects.read_as(tree, TREE)


def _missing(oid: bytes) -> ObjectNotFound:
    return ObjectNotFound(f"object {oid.hex()} is missing", object=oid.hex())
