"""stat: one path, and what entries of a tree share with it."""

from __future__ import annotations

from typing import Any

from app.reads.base import Params, named
from pack.errors import NotFound, WrongType
from pack.gitmodules import parse_gitmodules
from pack.objects import BLOB, COMMIT, TYPE_NAMES
from pack.revision import Place, locate, show
from pack.tree import GITLINK, SYMLINK
from pack.view import View


def read(view: View, params: Params) -> dict[str, Any]:
    """Mode, type, oid and size of the entry at `path`; PathNotFound (404) says that there is none."""
    place = locate(view, params["rev"], params["path"])
    if place.mode is None:
        kind = TYPE_NAMES[place.type].decode()
        raise WrongType(f"{show(params['rev'])} names a {kind} itself, which has no path and mode", parameter="rev")
    record: dict[str, Any] = {
        "commit": place.commit.hex() if place.commit is not None else None,
        "exists": True,
        **named("path", place.path),
        "mode": f"{place.mode:06o}",
        "type": TYPE_NAMES[place.type].decode(),
        "oid": place.oid.hex(),
        "size": None,
    }
    if place.type == BLOB:
        record["size"] = view.objects.header(place.oid)[1]
    if place.mode == SYMLINK:
        record |= named("link_target", view.objects.read_as(place.oid, BLOB))
    if place.mode == GITLINK:
        record["submodule"] = submodule(view, place)
    return record


def submodule(view: View, place: Place) -> dict[str, Any]:
    """The commit that a gitlink names, and the url that `.gitmodules` of the same revision gives for its path."""
    url = submodule_urls(view, place.root).get(place.path)
    return {"commit": place.oid.hex(), "url": url.decode("utf-8", "replace") if url is not None else None}


def submodule_urls(view: View, root: bytes | None) -> dict[bytes, bytes]:
    """Path → url as `.gitmodules` at the root of a revision's tree says; empty where there is none."""
    entry = view.entry(root, b".gitmodules") if root is not None else None
    if entry is None or entry.mode in (GITLINK, SYMLINK):
        return {}
    try:
        return parse_gitmodules(view.objects.read_as(entry.oid, BLOB))
    except (NotFound, WrongType):
        return {}


def refuse_gitlink(view: View, place: Place) -> None:
    """WrongType where the place is a gitlink: it has no content in this repository."""
    if place.mode == GITLINK and place.type == COMMIT:
        found = submodule(view, place)
        raise WrongType(
            f"{show(place.path)} is a submodule at commit {found['commit']}, not a file of this repository",
            parameter="path",
            submodule=found,
        )
