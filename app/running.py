"""`packhouse run`: serve, ingest what was named, show how to ask for it, go on serving."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote_from_bytes

import uvicorn

from app import __version__, bringing, serving
from app.bar import Bar, size
from app.bringing import Named
from app.service import create_app
from app.settings import Settings
from pack.errors import PackhouseError, UnsupportedUpstream, UpstreamNotFound
from pack.objects import COMMIT
from pack.view import Ref, View
from storage.operations import SUCCEEDED, Operation
from storage.repository import Handle, open_view

if TYPE_CHECKING:
    from app.service import Service

FILES = (b"README.md", b"README", b"README.rst", b"LICENSE", b"Makefile")
DEPTH = 20


class IngestFailed(PackhouseError):
    """The ingest of `packhouse run` did not succeed; its operation says why."""


async def run(settings: Settings, target: str | None, called: tuple[str, str] | None) -> None:
    """Serve until a signal comes. Raises before anything is served where the settings or the target are no good."""
    if target is not None:
        bringing.look(target)
    # Of the ingest that this is about the command itself tells.
    logging.getLogger("packhouse.jobs").setLevel(logging.ERROR)
    await serving.check(settings)
    with serving.bind(settings) as sock:
        application = create_app(settings)
        service: Service = application.state.service
        url = serving.address(settings, sock)
        server = uvicorn.Server(serving.config(settings, application, factory=False))
        task = asyncio.ensure_future(server.serve(sockets=[sock]))
        try:
            if await serving.started(server, task):
                _say(f"packhouse {__version__} serves {settings.store} at {url}")
                named = await _bring(service, target, called)
                await _show(service, named, url)
        except BaseException:
            server.should_exit = True
            await asyncio.wait((task,))
            raise
        await task


async def _bring(service: Service, target: str | None, called: tuple[str, str] | None) -> Named:
    if target is None:
        checkout = next((p for p in (Path.cwd(), *Path.cwd().parents) if (p / ".git").exists()), None)
        try:
            if checkout is not None:
                named = await bringing.register(service.registry, str(checkout), called, True)
                await _ingest(service, named)
                return named
            _say("there is no git repository here; a generated sample takes its place")
        except (UnsupportedUpstream, UpstreamNotFound) as error:
            _say(f"{checkout} cannot be ingested ({error.detail}); a generated sample takes its place")
        return await bringing.bring_sample(service.backend)
    named = await bringing.register(service.registry, target, called, True)
    await _ingest(service, named)
    return named


async def _ingest(service: Service, named: Named) -> None:
    begun = time.monotonic()
    operation = await service.jobs.start_ingest(named.owner, named.name, allow=named.allow)
    with Bar(f"{named.owner}/{named.name}") as bar:
        async with aclosing(service.jobs.watch(operation.id)) as states:
            async for operation in states:
                bar.show(operation.progress)
    if operation.state != SUCCEEDED:
        raise IngestFailed(_why(operation))
    progress = operation.progress
    _say(
        f"{named.owner}/{named.name}: generation {operation.generation}, {progress.objects:,} objects, "
        f"{size(progress.bytes)} in {time.monotonic() - begun:.1f} s"
    )


def _why(operation: Operation) -> str:
    return str((operation.error or {}).get("detail") or f"the ingest is {operation.state}")


async def _show(service: Service, named: Named, url: str) -> None:
    """Three requests that answer."""
    base = f"{url}/v1/repos/{named.owner}/{named.name}"
    handle = await service.repositories.handle(named.owner, named.name)
    head, path = await service.repositories.read(handle, _look)
    secret = " -H 'Authorization: Bearer TOKEN'" if service.tokens.required else ""
    _say("")
    if head is None:
        _say(f"curl{secret} '{base}'")
        _say(f"curl{secret} '{base}/refs'")
        _say(f"curl '{url}/version'")
    else:
        _say(f"curl{secret} '{base}/resolve?rev=HEAD'")
        if path is None:
            _say(f"curl{secret} '{base}/tree?rev=HEAD'")
        else:
            _say(f"curl{secret} '{base}/raw?rev=HEAD&path={quote_from_bytes(path, safe='/')}'")
        _say(f"curl{secret} '{base}/log?limit=5'")
    _say("")


def _look(handle: Handle) -> tuple[Ref | None, bytes | None]:
    """HEAD, and a file in it."""
    view = open_view(handle)
    head = view.refs.head
    return head, None if head is None else _file(view, head.peeled or head.oid)


def _file(view: View, commit: bytes) -> bytes | None:
    """A file that is there: the README, or the first one found."""
    if view.objects.header(commit)[0] != COMMIT:
        return None
    tree = view.commit_tree(commit)
    for path in FILES:
        entry = view.entry(tree, path)
        if entry is not None and entry.mode & 0o170000 == 0o100000:
            return path
    return _first(view, tree, b"", DEPTH)


def _first(view: View, tree: bytes, prefix: bytes, depth: int) -> bytes | None:
    entries = view.tree(tree)
    for entry in entries:
        if entry.mode & 0o170000 == 0o100000:
            return prefix + entry.name
    for entry in entries:
        if depth and entry.mode == 0o40000:
            found = _first(view, entry.oid, prefix + entry.name + b"/", depth - 1)
            if found is not None:
                return found
    return None


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - this is the command's output
