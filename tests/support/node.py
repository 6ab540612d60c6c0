"""A service in this very process, over a store that behaves like a distant one; its workers are real processes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import orjson

from app.ingest import Outcome, ingest
from app.registry import Registry
from app.service import Service, create_app
from app.settings import Settings
from app.source import local
from storage import views
from storage.cache import Place
from storage.repository import Repositories
from storage.supply import Supplier
from storage.wanted import Sizes
from tests.support.remote import RemoteBackend
from tests.support.service import OWNER, query

_COUNTS = re.compile(r"requests=([0-9]+) bytes=([0-9]+)")


async def bring(backend: RemoteBackend, name: str, path: Path, supplier: Supplier | None = None) -> Outcome:
    """Ingest a local repository as `tests/{name}`, through a cache of its own unless one is given."""
    settings = Settings(store=str(backend.root))
    await Registry(backend, Repositories(backend), settings).register_local(OWNER, name, path.as_uri())
    async with local(path) as source:
        return await ingest(backend, OWNER, name, source, supplier=supplier)


class Node:
    """Requests to one node. `cold` makes it one that has never seen anything."""

    def __init__(self, service: Service, backend: RemoteBackend, client: httpx.AsyncClient, folder: Path) -> None:
        self.service = service
        self.backend = backend
        self.client = client
        self.folder = folder
        self._caches = 0

    @property
    def cache(self) -> Path:
        assert self.service.supplier is not None
        return Path(self.service.supplier.place.folder)

    def files(self, end: str = "") -> list[Path]:
        """What lies in the cache, blocks and whole files."""
        return sorted(p for p in (self.cache / "data").rglob("*") if p.is_file() and p.name.endswith(end))

    def cold(self) -> None:
        self._caches += 1
        assert self.service.supplier is not None
        place = self.service.supplier.place
        self.service.supplier.place = Place(str(self.folder / f"cold{self._caches}"), place.block)
        self.service.supplier.evictor.place = self.service.supplier.place
        self.later()
        self.forget()
        self.backend.take()

    def forget(self) -> None:
        """As after a start: nothing is open, nothing is known in this process."""
        self.forget_views()
        self.service.repositories._known.clear()

    def forget_views(self) -> None:
        views.forget()
        self.service.reads._views._views.clear()

    def later(self) -> None:
        """What was known of generations is older than the freshness bound."""
        for known in self.service.repositories._known.values():
            known.asked -= self.service.repositories.settings.freshness

    async def ask(self, name: str, path: str, /, accept: str = "application/json", **params: Any) -> httpx.Response:
        headers = {"Accept": accept} | params.pop("headers", {})
        return await self.client.get(f"/v1/repos/{OWNER}/{name}{path}?{query(params)}", headers=headers)

    async def get(self, name: str, path: str, /, accept: str = "application/json", **params: Any) -> httpx.Response:
        """An answer that must be 200."""
        answer = await self.ask(name, path, accept, **params)
        assert answer.status_code == 200, answer.text
        return answer

    async def json(self, name: str, path: str, /, **params: Any) -> Any:
        return orjson.loads((await self.get(name, path, **params)).content)


def counted(answer: httpx.Response) -> tuple[int, int]:
    """Requests to the store and bytes from it, as Server-Timing says."""
    found = _COUNTS.search(answer.headers["server-timing"])
    assert found is not None, answer.headers
    return int(found[1]), int(found[2])


@asynccontextmanager
async def node(
    backend: RemoteBackend, folder: Path, *, block: int = 1 << 20, sizes: Sizes | None = None, **settings: Any
) -> AsyncIterator[Node]:
    options = {"read_workers": 1, "nice": 0, "fresh_seconds": 60.0, "answer_cache_bytes": 0} | settings
    loaded = Settings(store=str(backend.root), cache_dir=folder / "cache", **options)
    with patch("app.store.open_backend", return_value=backend):
        app = create_app(loaded)
    service: Service = app.state.service
    assert service.supplier is not None
    service.supplier.place = Place(str(folder / "cache"), block)
    service.supplier.evictor.place = service.supplier.place
    if sizes is not None:
        service.supplier.sizes = sizes
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as client:
            backend.take()
            yield Node(service, backend, client, folder)
    views.forget()
