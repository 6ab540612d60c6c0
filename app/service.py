"""The application: what a serving process holds, and the FastAPI app around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio.to_thread
from fastapi import FastAPI
from starlette.routing import Route

from app import __version__, openapi
from app.answers import Reads
from app.asking import Views
from app.endpoints import Endpoint
from app.files import Files
from app.gather import Gather, shared
from app.guards import Handled, HostGuard, Problems
from app.jobs import Jobs
from app.metrics import Metrics
from app.operations import DIFF, LIST_REFS, LIST_TREE, LOG, SINGLE_READS
from app.reads import diff, kept, page
from app.registry import Registry
from app.routes import health, operations, reads, repos
from app.settings import Settings, load
from app.sidecars import Sidecars
from app.store import open_store
from app.tokens import Tokens
from app.turns import take_short_turns
from app.workers import Pool
from storage import views
from storage.open import prepare
from storage.repository import ReadSettings, Repositories
from storage.secrets import cursor_key
from storage.supply import Supplier

ENDPOINTS: Final[tuple[Endpoint, ...]] = (*reads.ENDPOINTS, *repos.ENDPOINTS, *operations.ENDPOINTS, *health.ENDPOINTS)

TIDY_SECONDS: Final = 5.0
KEPT_BYTES: Final = 8 << 20
"""Of lists, and of compared texts, that the event loop keeps; read workers keep more."""


class Service:
    """What one serving process holds. Nothing of it is known only here: the store has all that must last."""

    cursor_key: bytes

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.backend, self.supplier = open_store(settings)
        reading = ReadSettings(
            freshness=settings.fresh_seconds, stale=settings.stale_seconds, superseded=2 * settings.read_max
        )
        self.repositories = Repositories(self.backend, reading, self.supplier)
        self.tokens = Tokens(settings.tokens_file)
        self.sidecars = Sidecars(settings)
        self.pool = Pool(
            settings.read_workers,
            nice=settings.nice,
            deadline=settings.read_deadline,
            queue=settings.read_queue,
            lifetime=settings.read_max,
            max_bytes=settings.worker_bytes,
            prepare=("app.reads.ready:prepare", _prepared(settings, self.backend.url)),
            on_wants=self.sidecars.take,
        )
        self.jobs = Jobs(self.backend, settings, deriving=self.sidecars.turn, repositories=self.repositories)
        self.registry = Registry(self.backend, self.repositories, settings)
        self.views = Views()
        self.reads = Reads(self)
        self.files = Files(self)
        self.metrics = Metrics()
        self.gather = Gather(self, shared())
        self.ready = False
        self._tidying: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Prove the store, start the workers. StoreUnavailable where the store does not do what is relied on."""
        take_short_turns()
        await prepare(self.backend)
        self.cursor_key = await cursor_key(self.backend)
        views.configure(object_cache_bytes=self.settings.object_cache_bytes)
        await self.pool.start()
        await self.jobs.start()
        await self.gather.start()
        await anyio.to_thread.run_sync(_load_reads)
        kept.configure(KEPT_BYTES)
        diff.configure(KEPT_BYTES)
        if self.supplier is not None:
            self._tidying = asyncio.get_running_loop().create_task(_tidy(self.supplier))
        self.ready = True

    async def close(self) -> None:
        self.ready = False
        await self.sidecars.close()
        await self.jobs.close()
        await self.gather.close()
        await self.pool.close()
        if self._tidying is not None:
            self._tidying.cancel()
        if self.supplier is not None:
            await self.supplier.close()
        await self.backend.close()


def _load_reads() -> None:
    """The code of what the event loop does itself, which the first to ask would have to wait for."""
    for operation in (*SINGLE_READS, LIST_REFS, LIST_TREE, LOG, DIFF):
        page.load(operation.module)


async def _tidy(supplier: Supplier) -> None:
    while True:
        await supplier.tidy()
        await asyncio.sleep(TIDY_SECONDS)


def _prepared(settings: Settings, store: str) -> dict[str, Any]:
    """What read workers are told when they start."""
    return {
        "object_cache_bytes": int(settings.object_cache_bytes),
        "search_cache_bytes": int(settings.search_cache_bytes),
        "kept": (str(settings.cache_dir), store, int(settings.cache_bytes)),
    }


def create_app(settings: Settings | None = None) -> FastAPI:
    """The ASGI application; settings come from the environment unless given."""
    service = Service(settings or load())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.close()

    app = FastAPI(title="packhouse", version=__version__, lifespan=lifespan, redirect_slashes=False, redoc_url=None)
    app.state.service = service
    document: dict[str, Any] = {}

    def schema() -> dict[str, Any]:
        if not document:
            document.update(openapi.document(ENDPOINTS))
        return document

    app.openapi = schema  # type: ignore[method-assign]
    for endpoint in ENDPOINTS:
        # The table has declared the parameters and the handler reads them, so FastAPI need not do it again.
        methods = [endpoint.method, "HEAD"] if endpoint.head else [endpoint.method]
        route = Route(endpoint.path, Handled(service, endpoint), methods=methods, name=endpoint.id)
        if "HEAD" not in methods and route.methods is not None:
            # Starlette adds HEAD to GET by itself; here it has a row of its own or none.
            route.methods.discard("HEAD")
        app.router.routes.append(route)
    # The stack that FastAPI would build costs as much as a point read; this one does what is needed of it.
    app.middleware_stack = HostGuard(Problems(app.router, service.metrics), service.tokens.required)
    return app
