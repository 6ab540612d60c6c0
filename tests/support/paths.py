"""Indexes of changed paths of repositories on disk, in the states in which a reader may find them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pack.errors import CorruptData, NotFound, WrongType
from pack.graph import Graph
from pack.pathdiff import changed_paths
from pack.pathindex import PathIndex
from pack.pathlayer import NO_LAYER, PathLayer
from pack.pathwrite import PathWriter
from pack.view import View
from tests.support import graphs
from tests.support.graphs import Opened
from tests.support.repo import open_git_dir

STATES = ("whole", "layers", "stale", "gaps", "part")


def diff(view: View, graph: Graph, n: int) -> dict[bytes, int]:
    return changed_paths(view, graph.tree(n), [graph.tree(parent) for parent in graph.parents(n)])


def writer_of(view: View, graph: Graph, first: int = 0, wanted: Callable[[int], bool] = lambda n: True) -> PathWriter:
    writer = PathWriter(graph, first)
    for n in range(first, graph.count):
        if wanted(n):
            try:
                writer.add(n, diff(view, graph, n))
            except (NotFound, CorruptData, WrongType):
                continue
    return writer


def layer_from(writer: PathWriter, below: bytes = NO_LAYER) -> tuple[bytes, bytes]:
    """Front and tail."""
    pieces: list[bytes] = []
    front = writer.write(pieces.append, below)
    return front, b"".join(pieces)


def opened(front: bytes, tail: bytes) -> PathLayer:
    return PathLayer(front, lambda offset, length: tail[offset : offset + length])


def cut(graph: Graph, count: int) -> Graph:
    """The first commits of a graph, as the graph that it grew from."""
    smaller = Graph.__new__(Graph)
    smaller.__dict__.update(graph.__dict__)
    smaller.count = count
    return smaller


def index_of(view: View, graph: Graph, state: str = "whole", seed: int = 0) -> PathIndex:
    """`whole`: all commits; `layers`: in three layers; `stale`: not the last ones; `gaps`: with unknown ones."""
    rng = random.Random(seed)
    if state == "stale":
        smaller = cut(graph, graph.count * 2 // 3)
        return PathIndex(graph, [opened(*layer_from(writer_of(view, smaller)))])
    if state == "gaps":
        return PathIndex(graph, [opened(*layer_from(writer_of(view, graph, 0, lambda n: rng.random() < 0.7)))])
    if state == "layers":
        layers = []
        first = 0
        for end in (graph.count // 3, graph.count // 2, graph.count):
            below = NO_LAYER if not layers else b"\1" * 32
            layers.append(opened(*layer_from(writer_of(view, cut(graph, end), first), below)))
            first = end
        return PathIndex(graph, layers)
    return PathIndex(graph, [opened(*layer_from(writer_of(view, graph)))])


def opening(state: str) -> Callable[..., View]:
    """As `open_git_dir`, with a graph and an index of changed paths in this state."""
    found: dict[Any, tuple[Graph, PathIndex]] = {}

    def open_with_index(path: Path | str, **options: Any) -> View:
        view = open_git_dir(path, **options)
        key = (str(path), len(view.objects))
        if key not in found:
            graph = graphs.graph_of(view, "part" if state == "part" else "layers" if state == "layers" else "whole")
            found[key] = graph, index_of(view, graph, state)
        graph, index = found[key]
        view.open_graph = Opened(graph, state != "part")
        view.open_changes = lambda asked: index if asked is graph else None
        return view

    return open_with_index
