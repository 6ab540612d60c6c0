"""The peer: the service that many would write first, FastAPI over libgit2, its handlers in threads.

GIT_ROOT=DIR uvicorn bench.peer:app --workers 2
"""

from __future__ import annotations

import os
import threading

import pygit2
from fastapi import FastAPI, HTTPException, Response
from fastapi.responses import JSONResponse

ROOT = os.environ.get("GIT_ROOT", ".")
app = FastAPI()
_local = threading.local()


def found(repo: str, rev: str) -> tuple[pygit2.Repository, pygit2.Object]:
    """The repository, opened once a thread, and the revision's object."""
    opened = _local.__dict__.setdefault("opened", {})
    if repo not in opened:
        opened[repo] = pygit2.Repository(os.path.join(ROOT, os.path.basename(repo)))
    try:
        return opened[repo], opened[repo].revparse_single(rev)
    except (KeyError, ValueError):
        raise HTTPException(404) from None


@app.get("/{repo}/resolve")
def resolve(repo: str, rev: str) -> JSONResponse:
    found_object = found(repo, rev)[1]
    return JSONResponse({"rev": rev, "oid": str(found_object.id), "type": found_object.type_str})


@app.get("/{repo}/commit")
def commit(repo: str, rev: str) -> JSONResponse:
    c = found(repo, rev)[1].peel(pygit2.Commit)
    people = {
        role: {"name": who.name, "email": who.email, "time": who.time}
        for role, who in (("author", c.author), ("committer", c.committer))
    }
    parents = [str(parent) for parent in c.parent_ids]
    return JSONResponse({"oid": str(c.id), "tree": str(c.tree_id), "parents": parents, "message": c.message, **people})


@app.get("/{repo}/raw")
def raw(repo: str, rev: str, path: str) -> Response:
    c = found(repo, rev)[1].peel(pygit2.Commit)
    return Response(c.tree[path].read_raw(), media_type="application/octet-stream")


@app.get("/{repo}/object")
def blob(repo: str, oid: str) -> Response:
    return Response(found(repo, oid)[1].read_raw(), media_type="application/octet-stream")


@app.get("/{repo}/tree")
def tree(repo: str, rev: str) -> JSONResponse:
    c = found(repo, rev)[1].peel(pygit2.Commit)
    rows = [{"path": e.name, "mode": f"{e.filemode:06o}", "type": e.type_str, "oid": str(e.id)} for e in c.tree]
    return JSONResponse({"entries": rows})
