"""The peer: the service that many would write first, FastAPI over libgit2, its handlers in threads.

GIT_ROOT=DIR uvicorn bench.peer:app --workers 2
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from typing import Annotated, Any

import pygit2
from fastapi import FastAPI, HTTPException, Query, Response
from fastapi.responses import JSONResponse

ROOT = os.environ.get("GIT_ROOT", ".")
FOLDER, GITLINK = 0o040000, 0o160000
app = FastAPI()
_local = threading.local()


def opened(repo: str) -> pygit2.Repository:
    """Opened once a thread."""
    known = _local.__dict__.setdefault("opened", {})
    if repo not in known:
        known[repo] = pygit2.Repository(os.path.join(ROOT, os.path.basename(repo)))
    return known[repo]


def found(repo: str, rev: str) -> tuple[pygit2.Repository, pygit2.Object]:
    """The repository and the revision's object."""
    try:
        return opened(repo), opened(repo).revparse_single(rev)
    except (KeyError, ValueError):
        raise HTTPException(404) from None


def tip(repo: str, rev: str) -> pygit2.Commit:
    return found(repo, rev)[1].peel(pygit2.Commit)


def record(c: pygit2.Commit) -> dict[str, Any]:
    people = {
        role: {"name": who.name, "email": who.email, "time": who.time}
        for role, who in (("author", c.author), ("committer", c.committer))
    }
    parents = [str(parent) for parent in c.parent_ids]
    return {"oid": str(c.id), "tree": str(c.tree_id), "parents": parents, "message": c.message, **people}


def walk(tree: pygit2.Tree, prefix: str = "") -> Iterator[tuple[str, pygit2.Object]]:
    for entry in tree:
        if entry.filemode == FOLDER:
            yield from walk(entry, f"{prefix}{entry.name}/")
        elif entry.filemode != GITLINK:
            yield prefix + entry.name, entry


@app.get("/{repo}/resolve")
def resolve(repo: str, rev: str) -> JSONResponse:
    found_object = found(repo, rev)[1]
    return JSONResponse({"rev": rev, "oid": str(found_object.id), "type": found_object.type_str})


@app.get("/{repo}/commit")
def commit(repo: str, rev: str) -> JSONResponse:
    return JSONResponse(record(tip(repo, rev)))


@app.get("/{repo}/raw")
def raw(repo: str, rev: str, path: str) -> Response:
    return Response(tip(repo, rev).tree[path].read_raw(), media_type="application/octet-stream")


@app.get("/{repo}/object")
def blob(repo: str, oid: str) -> Response:
    return Response(found(repo, oid)[1].read_raw(), media_type="application/octet-stream")


@app.get("/{repo}/tree")
def tree(repo: str, rev: str) -> JSONResponse:
    rows = [
        {"path": e.name, "mode": f"{e.filemode:06o}", "type": e.type_str, "oid": str(e.id)} for e in tip(repo, rev).tree
    ]
    return JSONResponse({"entries": rows})


@app.get("/{repo}/files")
def files(repo: str, rev: str = "HEAD", sizes: bool = False) -> JSONResponse:
    odb = opened(repo).odb
    rows = []
    for path, entry in walk(tip(repo, rev).tree):
        row = {"path": path, "mode": f"{entry.filemode:06o}", "type": entry.type_str, "oid": str(entry.id)}
        if sizes:
            row["size"] = odb.read_header(entry.id)[1] if hasattr(odb, "read_header") else entry.size
        rows.append(row)
    return JSONResponse({"entries": rows})


@app.get("/{repo}/log")
def log(
    repo: str, rev: Annotated[tuple[str, ...], Query()] = ("HEAD",), n: int = 0, path: str = "", order: str = ""
) -> JSONResponse:
    """Without simplification of history: what differs from all parents at the path."""
    sort = pygit2.enums.SortMode.TOPOLOGICAL if order == "topo" else pygit2.enums.SortMode.NONE
    walker = opened(repo).walk(tip(repo, rev[0]).id, sort)
    for other in rev[1:]:
        walker.push(tip(repo, other).id)
    rows = []
    for c in walker:
        if path and _at(c, path) in ([_at(parent, path) for parent in c.parents] or [None]):
            continue
        rows.append(record(c))
        if len(rows) == n:
            break
    return JSONResponse({"commits": rows})


def _at(c: pygit2.Commit, path: str) -> pygit2.Oid | None:
    try:
        return c.tree[path].id
    except KeyError:
        return None


@app.get("/{repo}/diff")
def diff(repo: str, base: str, head: str = "HEAD", patch: bool = False) -> Response:
    made = tip(repo, base).tree.diff_to_tree(tip(repo, head).tree)
    made.find_similar()
    if patch:
        return Response(made.patch or "", media_type="text/x-diff")
    rows = [
        {"status": d.status_char(), "old": d.old_file.path, "new": d.new_file.path, "oid": str(d.new_file.id)}
        for d in made.deltas
    ]
    return JSONResponse({"files": rows})


@app.get("/{repo}/merge-base")
def merge_base(repo: str, rev: Annotated[list[str], Query()]) -> JSONResponse:
    base = opened(repo).merge_base(tip(repo, rev[0]).id, tip(repo, rev[1]).id)
    return JSONResponse({"bases": [str(base)] if base else []})


@app.get("/{repo}/ahead-behind")
def ahead_behind(repo: str, base: str, head: str) -> JSONResponse:
    ahead, behind = opened(repo).ahead_behind(tip(repo, head).id, tip(repo, base).id)
    return JSONResponse({"ahead": ahead, "behind": behind})


@app.get("/{repo}/grep")
def grep(repo: str, pattern: str, rev: str = "HEAD", fixed: bool = False, ignore_case: bool = False) -> JSONResponse:
    text = pattern.encode()
    expression = re.compile(re.escape(text) if fixed else text, re.IGNORECASE if ignore_case else 0)
    plain = fixed and not ignore_case
    rows = []
    for path, entry in walk(tip(repo, rev).tree):
        data = entry.data
        if b"\0" in data[:8000] or not (text in data if plain else expression.search(data)):
            continue
        rows += [
            {"path": path, "line": number, "text": line.decode(errors="replace")}
            for number, line in enumerate(data.split(b"\n"), 1)
            if (text in line if plain else expression.search(line))
        ]
    return JSONResponse({"matches": rows})
