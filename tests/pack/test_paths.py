"""The index of changed paths: what it says of every commit is what their trees say, however it was made."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pack.graph import Graph
from pack.history import History
from pack.pathindex import UNTOUCHED, PathIndex
from pack.pathlayer import ADDED, DIFFERS, LOOK, NO_LAYER, SAME, PathLayer
from pack.pathwrite import PathWriter
from pack.sidecar import BadSidecar
from pack.simplify import Paths, alike
from pack.view import View
from tests.support.dags import CLOCKS, make
from tests.support.git import init
from tests.support.graphs import graph_of
from tests.support.paths import cut, index_of, layer_from, opened, writer_of
from tests.support.repo import open_git_dir
from tests.support.script import File, Script

PATHS = (b"a", b"a/b", b"a/b/c", b"b", b"b/x", b"c", b"c/d", b"c/d/e", b"c/d/e/f", b"none", b"a!", b"a\xff")


def tangled(path: Path, seed: int) -> View:
    """Files that become directories and back, on lines that part and join as they like."""
    rng = random.Random(seed)
    script = Script()
    trees: dict[int, dict[bytes, File | bytes]] = {}
    marks: list[int] = []
    for _ in range(60):
        parents = rng.sample(marks[-8:], min(len(marks), rng.choice((0, 1, 1, 1, 2, 2, 2, 3))))
        tree: dict[bytes, File | bytes] = {}
        for parent in rng.sample(parents, len(parents)):
            tree |= trees[parent]
        for _ in range(rng.randrange(3)):
            name = rng.choice((b"a", b"a/b", b"a/b/c", b"b", b"b/x", b"c/d", b"c/d/e", b"c/d/e/f", b"a!", b"a\xff"))
            if rng.random() < 0.3:
                tree.pop(name, None)
            else:
                tree[name] = rng.choice((b"1\n", b"2\n", File(b"1\n", "100755"), File(b"1\n", "120000")))
        taken: dict[bytes, File | bytes] = {}
        for name in rng.sample(sorted(tree), len(tree)):
            if not any(name.startswith(other + b"/") or other.startswith(name + b"/") for other in taken):
                taken[name] = tree[name]
        mark = script.commit(taken, parents)
        trees[mark] = taken
        marks.append(mark)
    for mark in marks:
        script.ref(f"refs/all/{mark}", mark)
    script.run(init(path))
    return open_git_dir(path)


def same(view: View, graph: Graph, parent: int, child: int, path: bytes) -> bool:
    spots = [view.entry(graph.tree(n), path) for n in (parent, child)]
    old, new = [(spot.mode, spot.oid) if spot is not None else None for spot in spots]
    return alike(view, old, new)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_said_of_a_commit_is_so(seed: int, tmp_path: Path) -> None:
    view = tangled(tmp_path / "r.git", seed)
    graph = graph_of(view)
    index = index_of(view, graph)
    seen = set()
    for path in PATHS:
        touched = index.touched((path,))
        assert touched is not None
        for n in range(graph.count):
            parents = graph.parents(n)
            code = touched.code(n)
            seen.add(code)
            entry = view.entry(graph.tree(n), path)
            here = (entry.mode, entry.oid) if entry is not None else None
            if not parents:
                assert (code == UNTOUCHED) == alike(view, None, here)
                continue
            assert (code == UNTOUCHED) == same(view, graph, parents[0], n, path), (n, path)
            if code in (DIFFERS, SAME) and len(parents) > 1:
                assert (code == SAME) == same(view, graph, parents[1], n, path), (n, path)
            before = view.entry(graph.tree(parents[0]), path)
            added = before is None and entry is not None and entry.mode != 0o40000
            if len(parents) == 1:
                assert (code == ADDED) == added
            assert (code == LOOK) == (code != UNTOUCHED and len(parents) > 2)
    assert seen == {UNTOUCHED, DIFFERS, SAME, LOOK, ADDED}


@pytest.mark.parametrize("state", ["whole", "layers", "stale", "gaps"])
def test_several_paths_are_said_of_together(state: str, tmp_path: Path) -> None:
    view = tangled(tmp_path / "r.git", 3)
    graph = graph_of(view, "layers" if state == "layers" else "whole")
    index = index_of(view, graph, state)
    plain = History(view)
    rng = random.Random(1)
    for _ in range(40):
        paths = rng.sample(PATHS, rng.choice((2, 3)))
        touched = index.touched(paths)
        assert touched is not None
        for n in range(graph.count):
            slow = Paths(plain, paths)
            number = plain.number(graph.oid(n))
            assert slow.touched is None
            slow_answer = slow.simplify(number, plain.load(number), False)
            code = touched.code(n)
            if code in (DIFFERS, ADDED):
                assert not slow_answer[1]
            elif code == SAME:
                assert slow_answer == ((plain.number(graph.oid(graph.parents(n)[1])),), True)
            elif code == UNTOUCHED and graph.parents(n):
                assert slow_answer == ((plain.number(graph.oid(graph.parents(n)[0])),), True)


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_leap_ends_where_single_steps_do(clock: str, tmp_path: Path) -> None:
    view = open_git_dir(make(tmp_path / "r.git", 4, clock=clock, size=120).path)
    for state in ("whole", "layers", "stale", "gaps"):
        graph = graph_of(view, "layers" if state == "layers" else "whole")
        index = index_of(view, graph, state)
        for path in (b"a", b"dir", b"dir/sub", b"none"):
            touched = index.touched((path,))
            assert touched is not None
            for n in range(graph.count):
                step, before = n, -1
                while touched.code(step) == UNTOUCHED and graph.parents(step):
                    parent = graph.parents(step)[0]
                    if graph.times[parent] > graph.times[step]:
                        break
                    step, before = parent, step
                over = touched.code(step) == UNTOUCHED and not graph.parents(step)
                assert touched.leap(n, -1) == (None if over else (step, before))


def contents(index: PathIndex) -> dict[bytes, list[int | None]]:
    graph = index.graph
    found = {}
    for path in PATHS[:10]:
        touched = index.touched((path,))
        assert touched is not None
        found[path] = [touched.code(n) for n in range(graph.count)]
    return found


def test_what_another_layer_knows_is_taken_over(tmp_path: Path) -> None:
    view = tangled(tmp_path / "r.git", 5)
    graph, other = graph_of(view), graph_of(view, "layers", 7)
    assert [graph.oid(n) for n in range(graph.count)] != [other.oid(n) for n in range(graph.count)]
    whole = layer_from(writer_of(view, graph))
    writer = PathWriter(graph, 0)
    half = graph.count // 2
    for part in (cut(other, half), other):
        writer.take(opened(*layer_from(writer_of(view, part, 0, lambda n: n % 5 != 1))))
    left = list(writer.unknown())
    assert 0 < len(left) < half
    assert {other.find(graph.oid(n)) for n in left} == {n for n in range(other.count) if n % 5 == 1}
    writer.take(opened(*whole))
    assert layer_from(writer) == whole
    assert contents(PathIndex(graph, [opened(*whole)])) == contents(index_of(view, graph, "layers"))


def test_no_damaged_byte_of_a_tail_is_believed(tmp_path: Path) -> None:
    view = tangled(tmp_path / "r.git", 6)
    graph = graph_of(view)
    front, tail = layer_from(writer_of(view, graph))
    whole = contents(PathIndex(graph, [opened(front, tail)]))
    layer = opened(front, tail)
    assert sum(length for _, length, _ in layer.pieces()) == len(tail)
    blocks = layer.offsets[-1]
    for at in range(len(tail)):
        damaged = tail[:at] + bytes([tail[at] ^ 1]) + tail[at + 1 :]
        told: list[str] = []
        index = PathIndex(graph, [opened(front, damaged)], told.append)
        if at < blocks:
            assert index.touched((b"a",)) is None
            assert index.touched((b"a",)) is None
            assert index.entries(b"")(b"a") is None
            assert told == [index.damage]
        else:
            assert contents(index) == whole
            with pytest.raises(BadSidecar):
                opened(front, damaged).oids()
    for short in (b"", front[:50], front[:-1], front + b"x"):
        with pytest.raises(BadSidecar):
            PathLayer(short, lambda offset, length: b"")


def test_an_empty_graph(tmp_path: Path) -> None:
    view = open_git_dir(init(tmp_path / "r.git"))
    graph = graph_of(view)
    front, tail = layer_from(PathWriter(graph, 0), NO_LAYER)
    index = PathIndex(graph, [opened(front, tail)])
    touched = index.touched((b"a",))
    assert touched is not None
    assert touched.code(0) is None
    for path in (b"", b"a/", b"/a", b"a//b"):
        assert index.touched((b"a", path)) is None


@pytest.mark.parametrize("limit", ["MAX_VALUES", "MAX_PATHS"])
def test_what_is_too_much_for_a_layer_is_unknown(limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = tangled(tmp_path / "r.git", 8)
    graph = graph_of(view)
    whole = contents(index_of(view, graph))
    monkeypatch.setattr(f"pack.pathwrite.{limit}", 9)
    writer = writer_of(view, graph)
    left = set(writer.unknown())
    assert 0 < len(left) < graph.count
    known = contents(PathIndex(graph, [opened(*layer_from(writer))]))
    for path, codes in known.items():
        assert codes == [None if n in left else code for n, code in enumerate(whole[path])]
