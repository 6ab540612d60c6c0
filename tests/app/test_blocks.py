"""A stream of records that breaks off behind any of its blocks goes on from there, with nothing lost or told twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from app.operations import DIFF, GREP, LIST_REFS, LIST_TREE, LOG, Operation
from app.reads import page
from app.reads.base import BLOCK_BYTES
from storage.repository import Handle, open_view
from tests.support.derived import built
from tests.support.git import Plumbing, git, init
from tests.support.service import OWNER, bring, serving

COMMITS = 700
READS: dict[str, tuple[Operation, dict[str, Any]]] = {
    "log": (LOG, {}),
    "log, topological": (LOG, {"order": "topo"}),
    "log, without what another reaches": (LOG, {"not": (b"HEAD~600",)}),
    "log, first parents": (LOG, {"first_parent": True}),
    "log of a message": (LOG, {"message": b"number"}),
    "grep": (GREP, {"pattern": (b"line",), "fixed": True}),
    "grep with context": (GREP, {"pattern": (b"line 1",), "after": 1, "before": 0}),
    "tree": (LIST_TREE, {"recursive": True}),
    "tree, with sizes": (LIST_TREE, {"recursive": True, "sizes": True}),
    "directory": (LIST_TREE, {}),
    "diff": (DIFF, {"base": b"empty", "head": b"HEAD"}),
    "refs": (LIST_REFS, {}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository, `source.git`, and a store that has it with all its sidecars."""
    folder = tmp_path_factory.mktemp("blocks")
    p = Plumbing(init(folder / "source.git"))
    text = b"".join(b"line %d of a file that is searched\n" % number for number in range(40))
    rows = [("100644", b"a file with a long name, number %05d" % n, p.blob(text + b"%d\n" % n)) for n in range(1500)]
    tree = p.tree(rows)
    parents: list[str] = []
    refs = ["# pack-refs with: peeled fully-peeled sorted \n"]
    for number in range(COMMITS):
        parents = [p.commit(f"number {number}\n\n" + "word " * 150, tree, *parents)]
        refs.append(f"{parents[0]} refs/heads/a-branch-with-a-long-name/{number:04d}\n")
    (p.path / "packed-refs").write_text("".join(refs))
    p.ref("refs/heads/main", parents[0])
    p.ref("refs/heads/empty", p.commit("empty", p.tree([])))
    bring(folder / "store", "blocks", p.path)
    built(folder / "store", "blocks")
    return folder


@pytest.fixture(scope="module")
def handle(folder: Path) -> Handle:
    return built(folder / "store", "blocks")


@pytest.mark.parametrize("name", READS)
def test_it_goes_on_behind_any_block(handle: Handle, name: str) -> None:
    operation, given = READS[name]
    params = {p.name: p.empty if p.default is None else p.default for p in operation.params} | given
    request = page.Request(handle, operation.module, params)
    view = open_view(handle)
    blocks = list(page.stream(view, request))
    whole = b"".join(block.data for block in blocks)
    assert len(blocks) >= 2
    assert all(len(block.data) >= BLOCK_BYTES for block in blocks[:-1])
    before = b""
    for number, block in enumerate(blocks[:-1]):
        before += block.data
        assert block.count == before.count(b"\n"), number
        rest = list(page.stream(open_view(handle), block.behind(request)))
        assert before + b"".join(each.data for each in rest) == whole, (number, block.position)
        assert rest[-1].count == blocks[-1].count
        assert rest[-1].end == blocks[-1].end


@pytest.mark.parametrize("share", [0.35, 0.6, 0.8, 0.95])
@pytest.mark.parametrize("order", ["default", "topo"])
def test_a_walk_goes_on_where_the_graph_turns_out_to_be_damaged(
    folder: Path, tmp_path: Path, share: float, order: str
) -> None:
    """The process that listens begins such a walk; it has no pack open, and leaves the rest to another."""
    store = tmp_path / "store"
    shutil.copytree(folder / "store", store)
    (graph,) = (store / OWNER / "blocks.git" / "packhouse").glob("graph-*[0-9]")
    data = bytearray(graph.read_bytes())
    data[int(len(data) * share)] ^= 1
    graph.chmod(0o644)
    graph.write_bytes(data)
    wanted = git(folder / "source.git", "rev-list", *(["--topo-order"] if order == "topo" else []), "main")
    with serving(store, make_sidecars="false") as running:
        records, end = running.repo("blocks").stream("/log", rev="main", order=order)
    assert [record["oid"] for record in records] == wanted.decode().split()
    assert end["complete"] is True
