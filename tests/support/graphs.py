"""Commit graphs of repositories on disk, in the states in which a reader may find them."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pack.graph import NO_LAYER, Graph, Layer
from pack.graphwrite import Commits, write_layer
from pack.objects import COMMIT
from pack.view import View
from tests.support.repo import open_git_dir

STATES = ("whole", "layers", "part", "columns")


def commits_of(view: View) -> list[bytes]:
    """All commits of all packs."""
    found = {oid for pack in view.objects.packs for oid in pack.index.oids()}
    return sorted(oid for oid in found if view.objects.header(oid)[0] == COMMIT)


def layer_of(view: View, oids: Iterable[bytes], base: Graph | None = None) -> tuple[bytes, bytes]:
    """Front and tail of a layer."""
    pieces: list[bytes] = []
    commits = Commits(io.BytesIO())
    for oid in oids:
        commits.add(oid, view.objects.read_as(oid, COMMIT))
    written = write_layer(commits, pieces.append, base, NO_LAYER if base is None else b"\1" * 32)
    tail = b"".join(pieces)
    assert len(tail) == written.tail_bytes
    return written.front, tail


def graph_from(parts: Iterable[tuple[bytes, bytes]]) -> Graph:
    fronts, tails = zip(*parts, strict=True)
    return Graph([Layer(front) for front in fronts], lambda n, offset, length: tails[n][offset : offset + length])


def graph_of(view: View, state: str = "whole", seed: int = 0) -> Graph:
    """`whole`: all commits; `layers`: in up to three layers; `part`: only some; `columns`: all, without texts."""
    rng = random.Random(seed)
    oids = commits_of(view)
    rng.shuffle(oids)
    if state == "whole":
        return graph_from([layer_of(view, oids)])
    if state == "columns":
        return Graph(graph_from([layer_of(view, oids)]).layers)
    some: list[tuple[bytes, bytes]] = []
    base: Graph | None = None
    closed = _closed(view, rng.sample(oids, min(len(oids), 1 + len(oids) // 20)))
    for part in [closed] if state == "part" else [closed, oids[: len(oids) // 2], oids]:
        new = [oid for oid in part if base is None or base.find(oid) is None]
        if new:
            some.append(layer_of(view, new, base))
            base = graph_from(some)
    return base if base is not None else graph_from([layer_of(view, [])])


def _closed(view: View, oids: list[bytes]) -> list[bytes]:
    found: dict[bytes, None] = {}
    pending = list(oids)
    while pending:
        oid = pending.pop()
        if oid not in found:
            found[oid] = None
            pending.extend(view.links(oid).parents)
    return list(found)


class Opened:
    """What a view's `open_graph` is."""

    def __init__(self, graph: Graph, whole: bool = True) -> None:
        self.graph = graph
        self.whole = whole

    def __call__(self) -> Graph:
        return self.graph


def opening(state: str) -> Callable[..., View]:
    """As `open_git_dir`, with a graph in this state."""
    graphs: dict[Any, Graph] = {}

    def open_with_graph(path: Path | str, **options: Any) -> View:
        view = open_git_dir(path, **options)
        key = (str(path), len(view.objects))
        if key not in graphs:
            graphs[key] = graph_of(view, state)
        view.open_graph = Opened(graphs[key], state != "part")
        return view

    return open_with_graph
