from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from pack.advertisement import AdvertisedRef
from pack.errors import IncompleteHistory, WrongType
from pack.objects import BLOB, COMMIT, TAG, TREE
from pack.view import Ref, View
from storage import arrived as seen
from storage.arrived import Arrived
from storage.connectivity import Checked, check
from tests.support.generate import GENERATORS
from tests.support.generate import Repositories as Generated
from tests.support.git import Plumbing, git, init
from tests.support.repo import open_git_dir


def everything(view: View) -> Arrived:
    return passing_by(view, (), everywhere(view))


def everywhere(view: View) -> list[bytes]:
    return [oid for pack in view.objects.packs for oid in pack.index.oids()]


def passing_by(view: View, tips: Iterable[bytes], oids: Iterable[bytes], keep: int = 0) -> Arrived:
    """What is seen of objects that come in this order, of which the last `keep` can be recalled."""
    arrived = Arrived(tips)
    kept: dict[bytes, tuple[int, bytes]] = {}
    arrived.recall = kept.get
    for oid in oids:
        kept[oid] = view.objects.read(oid)
        arrived.on_object(kept[oid][0], oid, 0, kept[oid][1])
        while len(kept) > keep:
            del kept[next(iter(kept))]
    return arrived


def in_order(path: Path) -> list[bytes]:
    """All that refs reach, as pack-objects orders it: commits and tags, then trees from the roots, then blobs."""
    listed = git(path, "rev-list", "--objects", "--no-object-names", "--all", "--in-commit-order")
    kinds = {}
    for line in git(path, "cat-file", "--batch-check", "--batch-all-objects").decode().splitlines():
        oid, kind, _ = line.split()
        kinds[oid] = kind
    oids = listed.decode().split()
    order = ("commit", "tag", "tree", "blob")
    return [bytes.fromhex(oid) for kind in order for oid in oids if kinds[oid] == kind]


def advertised(view: View) -> list[AdvertisedRef]:
    return [AdvertisedRef(ref.name, ref.oid, None, ref.symref_target) for ref in view.refs.iterate()]


def tree_of(view: View, oid: bytes) -> bytes | None:
    try:
        return view.tree_of(oid)
    except WrongType:
        return None


@pytest.mark.parametrize("generator", sorted(GENERATORS))
@pytest.mark.parametrize("walked", [False, True])
def test_whole_repositories_pass(repositories: Generated, generator: str, walked: bool) -> None:
    view = open_git_dir(repositories[generator])
    head = view.refs.head
    checked = check(
        view.objects,
        advertised(view),
        arrived=None if walked else everything(view),
        head_target=view.refs.head_target,
        head_oid=head.oid if head else None,
    )
    assert checked.refs == [ref._replace(tree=tree_of(view, ref.oid)) for ref in view.refs.iterate()]
    assert checked.head.tree == (tree_of(view, head.oid) if head else None)
    assert checked.head.target == view.refs.head_target
    assert checked.head.oid == (head.oid if head else None)
    assert checked.closed is (not walked)


@pytest.mark.parametrize("generator", sorted(GENERATORS))
@pytest.mark.parametrize("order", ["as packs have it", "backwards", "by oid", "any"])
@pytest.mark.parametrize("keep", [0, 30, 1 << 20])
def test_trees_that_were_seen_while_they_came_in(
    repositories: Generated, generator: str, order: str, keep: int
) -> None:
    path = repositories[generator]
    view = open_git_dir(path)
    oids = in_order(path)
    if order == "backwards":
        oids.reverse()
    elif order == "by oid":
        oids.sort()
    elif order == "any":
        random.Random(generator).shuffle(oids)
    wanted = advertised(view)
    head = view.refs.head
    objects = Without(view)
    heads = {"head_target": view.refs.head_target, "head_oid": head.oid if head else None}
    arrived = passing_by(view, {ref.oid for ref in wanted} | ({head.oid} if head else set()), oids, keep)
    assert check(objects, wanted, arrived=arrived, **heads) == check(
        view.objects, wanted, arrived=everything(view), **heads
    )
    if keep > len(oids) and order != "backwards":
        assert not arrived.awaited
    if order == "as packs have it" and generator in ("big", "refs"):
        assert not arrived.awaited
        trees = [oid for oid in objects.read if view.objects.header(oid)[0] == TREE]
        assert len(trees) <= sum(1 for ref in wanted if tree_of(view, ref.oid) == ref.oid), trees


class Without:
    """Objects with some taken away; remembers what was read."""

    def __init__(self, view: View, *gone: str) -> None:
        self.objects = view.objects
        self.gone = {bytes.fromhex(oid) for oid in gone}
        self.read: list[bytes] = []

    def __contains__(self, oid: bytes) -> bool:
        return oid not in self.gone and oid in self.objects

    def lacking(self, oids: bytes) -> bytes:
        gone = [oid for oid in self.gone if oid in {oids[at : at + 20] for at in range(0, len(oids), 20)}]
        return b"".join(sorted(gone)) + self.objects.lacking(oids)

    def header(self, oid: bytes) -> tuple[int, int]:
        assert oid not in self.gone
        return self.objects.header(oid)

    def read_as(self, oid: bytes, kind: int) -> bytes:
        assert oid not in self.gone
        self.read.append(oid)
        return self.objects.read_as(oid, kind)


class Small:
    """root <- middle <- tip (main), side (a tag of a tag of it), a tag of a tree and one of a blob, and a gitlink."""

    def __init__(self, path: Path) -> None:
        p = Plumbing(init(path))
        self.path = path
        self.blob, self.other, self.lost = p.blob(b"1\n"), p.blob(b"2\n"), p.blob(b"3\n")
        self.sub = p.tree([("100644", b"f", self.blob), ("160000", b"module", "ab" * 20)])
        self.tree = p.tree([("040000", b"d", self.sub), ("100644", b"g", self.other)])
        self.root = p.commit("root", p.tree([]))
        self.middle = p.commit("middle", p.tree([("100644", b"lost", self.lost)]), self.root)
        self.tip = p.commit("tip", self.tree, self.middle)
        self.side = p.commit("side", self.sub, self.root)
        p.ref("refs/heads/main", self.tip)
        p.tag("one", self.side)
        p.tag("two", "one")
        p.tag("tree", self.sub)
        p.tag("blob", self.lost)
        p.ref("refs/tags/plain", self.other)

    def view(self) -> View:
        return open_git_dir(self.path)

    def oid(self, name: str) -> bytes:
        return bytes.fromhex(git(self.path, "rev-parse", name).decode().strip())


@pytest.fixture
def small(tmp_path: Path) -> Small:
    return Small(tmp_path / "small.git")


def run(view: View, objects: Without, *, arrived: bool = True, **more: object) -> Checked:
    present = Arrived()
    for oid, links in everything(view).links.items():
        if oid not in objects.gone:
            present.links[oid] = links
    return check(objects, advertised(view), arrived=present if arrived else None, **more)  # type: ignore[arg-type]


def test_types_and_peeling(small: Small) -> None:
    view = small.view()
    refs = {ref.name: ref for ref in run(view, Without(view)).refs}
    assert refs[b"refs/tags/two"].type == TAG
    assert refs[b"refs/tags/two"].peeled == bytes.fromhex(small.side)
    assert refs[b"refs/tags/tree"].peeled == bytes.fromhex(small.sub)
    assert refs[b"refs/tags/blob"].peeled == bytes.fromhex(small.lost)
    assert (refs[b"refs/tags/plain"].type, refs[b"refs/tags/plain"].peeled) == (BLOB, None)
    assert refs[b"refs/heads/main"].type == COMMIT
    assert view.objects.header(bytes.fromhex(small.sub))[0] == TREE


@pytest.mark.parametrize("arrived", [True, False])
@pytest.mark.parametrize("what", ["blob", "other", "sub", "tree", "root", "middle", "tip", "side", "tag one"])
def test_each_missing_object_is_named(small: Small, what: str, arrived: bool) -> None:
    view = small.view()
    gone = small.oid("refs/tags/one").hex() if what == "tag one" else getattr(small, what)
    with pytest.raises(IncompleteHistory, match="not there") as caught:
        run(view, Without(view, gone), arrived=arrived)
    assert caught.value.extra["object"] == gone
    assert caught.value.extra["ref"].startswith("refs/")


@pytest.mark.parametrize("what", ["blob", "other", "sub", "tree", "lost", "tag one"])
def test_what_did_not_come_is_named(small: Small, what: str) -> None:
    view = small.view()
    gone = small.oid("refs/tags/one").hex() if what == "tag one" else getattr(small, what)
    came = [oid for oid in in_order(small.path) if oid.hex() != gone]
    wanted = advertised(view)
    arrived = passing_by(view, [ref.oid for ref in wanted], came)
    with pytest.raises(IncompleteHistory, match="not there") as caught:
        check(Without(view, gone), wanted, arrived=arrived)
    assert caught.value.extra["object"] == gone
    assert caught.value.extra["ref"].startswith("refs/")


@pytest.mark.parametrize("most", [0, 1, 3, 4])
def test_what_is_too_much_to_remember_is_walked(
    small: Small, repositories: Generated, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(seen, "_MOST", most)
    monkeypatch.setattr(seen, "_PASSED", 1)
    path = repositories["big"]
    view = open_git_dir(path)
    wanted = advertised(view)
    arrived = passing_by(view, [ref.oid for ref in wanted], in_order(path), keep=1 << 20)
    assert len(arrived.blobs) + len(arrived.read) <= most
    assert check(view.objects, wanted, arrived=arrived) == check(view.objects, wanted, arrived=everything(view))
    view = small.view()
    wanted = advertised(view)
    for gone in (small.blob, small.sub):
        came = [oid for oid in in_order(small.path) if oid.hex() != gone]
        with pytest.raises(IncompleteHistory, match="not there") as caught:
            check(Without(view, gone), wanted, arrived=passing_by(view, [ref.oid for ref in wanted], came))
        assert caught.value.extra["object"] == gone


@pytest.mark.parametrize(
    "entries",
    [
        b"40000 d\0%(blob)b",  # a directory that is a file
        b"100644 f\0%(sub)b40000 d\0%(blob)b",
        b"40000 a\0%(blob)b100644 b\0%(blob)b",  # the same object as both
        b"100644 f\0%(blob)b1",
        b"100644 f\0%(none)b",
        b"100664 f\0%(none)b",
        b"40000 d\0%(none)b",
        b"040000 d\0%(none)b",
        b"garbage",
    ],
)
def test_odd_trees_come_to_the_same(small: Small, entries: bytes) -> None:
    """Whether a tree was seen passing by or is read afterwards: the same objection, or none."""
    p = Plumbing(small.path)
    named = {b"blob": bytes.fromhex(small.blob), b"sub": bytes.fromhex(small.sub), b"none": b"\1" * 20}
    tree = p.raw("tree", entries % named)
    p.ref("refs/heads/odd", p.commit("odd", p.raw("tree", b"40000 odd\0" + bytes.fromhex(tree)), small.tip))
    view = small.view()
    wanted = advertised(view)

    def said(arrived: Arrived) -> object:
        try:
            return check(view.objects, wanted, arrived=arrived)
        except IncompleteHistory as error:
            return error.detail, error.extra

    oids = everywhere(view)
    orders = [oids, oids[::-1], sorted(oids, key=lambda oid: (view.objects.header(oid)[0], oid))]
    plain = said(everything(view))
    for order in orders:
        for keep in (0, len(order)):
            assert said(passing_by(view, [ref.oid for ref in wanted], order, keep)) == plain


def test_old_trees_are_not_promised(small: Small) -> None:
    """Only the tips' trees are: those of older commits may be missing, as in git."""
    view = small.view()
    git(small.path, "update-ref", "-d", "refs/tags/blob")
    view = small.view()
    assert run(view, Without(view, small.lost)).closed


def test_commits_that_no_ref_reaches_may_be_cut(small: Small) -> None:
    git(small.path, "update-ref", "refs/heads/main", small.side)
    view = small.view()
    checked = run(view, Without(view, small.middle))
    assert not checked.closed
    # Nor may the next generation lean on it.
    assert not run(view, Without(view, small.middle), base_closed=False).closed
    assert not run(view, Without(view), base_closed=False).closed


def test_unreadable_commits(small: Small) -> None:
    p = Plumbing(small.path)
    bad = p.raw("commit", b"tree of nothing\n")
    view = small.view()
    assert not check(view.objects, advertised(view), arrived=everything(view)).closed
    (small.path / "refs/heads/bad").write_text(bad + "\n")
    child = p.commit("child of a bad one", small.tree, small.tip)
    view = small.view()
    names = {b"refs/heads/bad": bad, b"refs/heads/c": child}
    wanted = [AdvertisedRef(name, bytes.fromhex(oid)) for name, oid in names.items()]
    with pytest.raises(IncompleteHistory) as caught:
        check(view.objects, wanted, arrived=everything(view))
    assert caught.value.extra["ref"] == "refs/heads/bad"


def test_wrong_types(small: Small) -> None:
    p = Plumbing(small.path)
    who = "author A <a> 1 +0000\ncommitter A <a> 1 +0000\n\nx"
    odd = p.raw("commit", f"tree {small.blob}\n{who}".encode())
    parent = p.raw("commit", f"tree {small.tree}\nparent {small.blob}\n{who}".encode())
    view = small.view()
    for oid in (odd, parent):
        with pytest.raises(IncompleteHistory):
            check(view.objects, [AdvertisedRef(b"refs/heads/x", bytes.fromhex(oid))], arrived=everything(view))


def test_only_what_is_new_is_read(small: Small) -> None:
    view = small.view()
    before = run(view, Without(view)).refs
    p = Plumbing(small.path)
    tree = p.tree([("040000", b"d", small.sub), ("100644", b"g", p.blob(b"new\n"))])
    new = p.commit("new", tree, small.tip)
    git(small.path, "update-ref", "refs/heads/main", new)
    git(small.path, "update-ref", "refs/heads/branch", small.middle)
    view = small.view()
    arrived = Arrived()
    arrived.on_object(COMMIT, bytes.fromhex(new), 0, view.objects.read(bytes.fromhex(new))[1])
    objects = Without(view)
    checked = check(objects, advertised(view), arrived=arrived, base_refs=before)
    assert checked.closed
    assert bytes.fromhex(small.sub) not in objects.read
    assert bytes.fromhex(small.root) not in objects.read
    assert [ref.name for ref in checked.refs] == [ref.name for ref in view.refs.iterate()]


def test_unchanged_refs_cost_nothing(small: Small) -> None:
    view = small.view()
    before: list[Ref] = run(view, Without(view)).refs
    objects = Without(view)
    assert check(objects, advertised(view), arrived=Arrived(), base_refs=before).refs == before
    assert objects.read == []


def test_heads(small: Small) -> None:
    view = small.view()
    tip, side = bytes.fromhex(small.tip), bytes.fromhex(small.side)
    head = run(view, Without(view), head_target=b"refs/heads/main", head_oid=side).head
    assert (head.target, head.oid, head.type) == (b"refs/heads/main", tip, COMMIT)
    head = run(view, Without(view), head_target=b"refs/heads/none").head
    assert (head.target, head.oid) == (b"refs/heads/none", None)
    head = run(view, Without(view), head_oid=side).head
    assert (head.target, head.oid, head.type) == (None, side, COMMIT)
    with pytest.raises(IncompleteHistory, match="HEAD"):
        run(view, Without(view), head_oid=b"\1" * 20)
