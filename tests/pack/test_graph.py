"""The commit graph: what is written is read again, in one piece or grown, and no damaged byte is believed."""

from __future__ import annotations

import io
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pack.commit import links
from pack.graph import VERSION, Graph, Layer
from pack.graphwrite import Commits, write_layer
from pack.objects import COMMIT, hash_object
from pack.sidecar import HEADER_BYTES, BadSidecar, check_front, read_header, write_header
from tests.support.dags import CLOCKS, make
from tests.support.graphs import commits_of, graph_from, graph_of, layer_of
from tests.support.repo import open_git_dir

MADE_FROM = bytes(range(32))
TREE = b"4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def commit(parents: list[bytes], time: int, salt: int) -> tuple[bytes, bytes]:
    text = b"tree " + TREE + b"\n" + b"".join(b"parent " + parent.hex().encode() + b"\n" for parent in parents)
    text += b"author A <a@example.org> 1 +0000\ncommitter A <a@example.org> %d +0000\n\n%d\n" % (time, salt)
    return hash_object(COMMIT, text), text


@st.composite
def histories(draw: Any) -> list[tuple[bytes, bytes]]:
    """(oid, commit object) with parents before children."""
    found: list[tuple[bytes, bytes]] = []
    for number in range(draw(st.integers(0, 25))):
        count = draw(st.integers(0, min(4, number)))
        chosen = draw(st.permutations(range(number)))[:count]
        found.append(commit([found[at][0] for at in chosen], draw(st.integers(0, 8)), number))
    return found


def same(graph: Graph, history: list[tuple[bytes, bytes]]) -> None:
    """The graph has these commits and no others, and says of them what they say themselves."""
    assert graph.count == len(history)
    for oid, text in history:
        n = graph.find(oid)
        assert n is not None
        tree, parents, time = links(text)
        assert (graph.oid(n), graph.tree(n), graph.times[n]) == (oid, tree, time)
        assert [graph.oid(parent) for parent in graph.parents(n)] == list(parents)
        assert graph.text(n) == text
        assert all(parent < n for parent in graph.parents(n))
        assert graph.levels[n] == 1 + max([graph.levels[parent] for parent in graph.parents(n)], default=0)
    order, places, tied = graph.by_time()
    assert sorted(order) == list(range(graph.count))
    assert [(graph.times[n], n) for n in order] == sorted(((graph.times[n], n) for n in order), reverse=True)
    assert all(places[n] == place for place, n in enumerate(order))
    times = [graph.times[n] for n in order]
    marks = [
        (2 if time not in times[:place] else 1) if times.count(time) > 1 else 0 for place, time in enumerate(times)
    ]
    assert list(tied) == [*marks, 0]


def written(history: list[tuple[bytes, bytes]], base: Graph | None = None) -> tuple[bytes, bytes]:
    pieces: list[bytes] = []
    commits = Commits(io.BytesIO())
    for oid, text in history:
        commits.add(oid, text)
    layer = write_layer(commits, pieces.append, base)
    return layer.front, b"".join(pieces)


@settings(max_examples=60, deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_round_trip(history: list[tuple[bytes, bytes]], rng: random.Random) -> None:
    mixed = [*history, *history[:3]]
    rng.shuffle(mixed)
    same(graph_from([written(mixed)]), history)
    assert graph_from([written(history)]).find(b"\xff" * 20) is None


@settings(max_examples=60, deadline=None)
@given(histories(), st.lists(st.integers(0, 25), max_size=3))
def test_grown_is_as_made_at_once(history: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    parts: list[tuple[bytes, bytes]] = []
    base: Graph | None = None
    bounds = [0, *sorted(cuts), len(history)]
    for begin, end in pairwise(bounds):
        numbers = {oid: base.find(oid) for oid, _ in history[:begin]} if base is not None else {}
        parts.append(written(history[begin:end], base))
        base = graph_from(parts)
        assert all(base.find(oid) == number for oid, number in numbers.items())
    assert base is not None
    same(base, history)


@settings(max_examples=30, deadline=None)
@given(histories(), st.data())
def test_what_lacks_an_ancestor_is_left_out(history: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    missing = set(data.draw(st.lists(st.sampled_from(history), max_size=2)) if history else [])
    whole: list[tuple[bytes, bytes]] = []
    gone = {oid for oid, _ in missing}
    for oid, text in history:
        if oid in gone or any(parent in gone for parent in links(text).parents):
            gone.add(oid)
        else:
            whole.append((oid, text))
    same(graph_from([written([each for each in history if each not in missing])]), whole)


def test_a_commit_that_git_would_not_read_is_left_out() -> None:
    good = commit([], 5, 1)
    bad = (b"\1" * 20, b"tree none\n")
    child = commit([bad[0]], 6, 2)
    same(graph_from([written([bad, good, child])]), [good])


def test_no_damaged_byte_is_believed() -> None:
    history = [commit([], 1, 0)]
    for number in range(1, 6):
        history.append(commit([history[-1][0]], number, number))
    front, tail = written(history)
    whole = write_header("graph", VERSION, MADE_FROM, front, len(tail)) + front + tail

    def read(data: bytes) -> Graph:
        header = read_header(data, "graph", VERSION, MADE_FROM)
        body = data[HEADER_BYTES : HEADER_BYTES + header.front_bytes]
        check_front(header, body)
        start = HEADER_BYTES + header.front_bytes
        return Graph([Layer(body)], lambda _, offset, length: data[start + offset : start + offset + length])

    same(read(whole), history)
    lost = 0
    for at in range(len(whole)):
        for change in (1, 128):
            damaged = bytearray(whole)
            damaged[at] ^= change
            try:
                graph = read(bytes(damaged))
            except BadSidecar:
                continue
            assert at >= len(whole) - len(tail)
            assert all(graph.text(n) is None for n in range(graph.count))
            lost += 1
    assert lost == 2 * len(tail)
    for length in range(len(whole)):
        try:
            graph = read(whole[:length])
        except BadSidecar:
            continue
        assert graph.text(0) is None


def test_a_sidecar_of_something_else_is_refused() -> None:
    front, tail = written([commit([], 1, 0)])
    for header in (
        write_header("graph", VERSION + 1, MADE_FROM, front, len(tail)),
        write_header("grape", VERSION, MADE_FROM, front, len(tail)),
        write_header("graph", VERSION, bytes(32), front, len(tail)),
    ):
        with pytest.raises(BadSidecar):
            read_header(header, "graph", VERSION, MADE_FROM)
    with pytest.raises(BadSidecar):
        Layer(front[:-4])
    with pytest.raises(BadSidecar):
        Layer(b"")
    upper = written([commit([], 2, 1)], graph_from([(front, tail)]))
    with pytest.raises(BadSidecar):
        Graph([Layer(upper[0])])


def test_damaged_texts_are_told_once_and_the_columns_stay() -> None:
    history = [commit([], 1, 0)]
    front, tail = written(history)
    told: list[str] = []
    graph = Graph([Layer(front)], lambda *_: tail[:-1], told.append)
    assert graph.text(0) is None
    assert graph.text(0) is None
    assert told == [graph.damage]
    assert graph.find(history[0][0]) == 0


@pytest.mark.parametrize("clock", CLOCKS)
def test_many_blocks(clock: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pack.graphwrite.BLOCK_BYTES", 1000)
    view = open_git_dir(make(tmp_path / "r.git", 5, clock=clock, size=80).path)
    history = [(oid, view.objects.read_as(oid, COMMIT)) for oid in commits_of(view)]
    same(graph_of(view), history)
    same(graph_of(view, "layers"), history)
    front, _ = layer_of(view, commits_of(view))
    assert len(Layer(front).block_rows) > 5
