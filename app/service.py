"""The application: what a serving process holds, and the FastAPI app around it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from app import __version__, openapi, problems
from app.answers import Reads
from app.endpoints import Endpoint
from app.guards import HostGuard
from app.jobs import Jobs
from app.registry import Registry
from app.routes import health, operations, reads, repos
from app.settings import Settings, load
from app.tokens import Tokens
from app.workers import Pool
from pack.errors import PackhouseError
from storage import views
from storage.open import open_backend, prepare
from storage.repository import ReadSettings, Repositories
from storage.secrets import cursor_key

ENDPOINTS: Final[tuple[Endpoint, ...]] = (*reads.ENDPOINTS, *repos.ENDPOINTS, *operations.ENDPOINTS, *health.ENDPOINTS)


class Service:
    """What one serving process holds. Nothing of it is known only here: the store has all that must last."""

    cursor_key: bytes

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.backend = open_backend(settings.store)
        self.repositories = Repositories(self.backend, ReadSettings(freshness=settings.fresh_seconds))
        self.tokens = Tokens(settings.tokens_file)
        self.pool = Pool(
            settings.read_workers,
            nice=settings.nice,
            deadline=settings.read_deadline,
            queue=settings.read_queue,
            lifetime=settings.read_max,
            max_bytes=settings.worker_bytes,
        )
        self.jobs = Jobs(self.backend, settings)
        self.registry = Registry(self.backend, self.repositories, settings)
        self.reads = Reads(self)
        self.ready = False

    async def start(self) -> None:
        """Prove the store, start the workers. StoreUnavailable where the store does not do what is relied on."""
        await prepare(self.backend)
        self.cursor_key = await cursor_key(self.backend)
        views.configure(object_cache_bytes=self.settings.object_cache_bytes)
        await self.pool.start()
        await self.jobs.start()
        self.ready = True

    async def close(self) -> None:
        self.ready = False
        await self.jobs.close()
        await self.pool.close()
        await self.backend.close()


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

    app = FastAPI(
        title="packhouse",
        version=__version__,
        lifespan=lifespan,
        redirect_slashes=False,
        redoc_url=None,
        exception_handlers={
            PackhouseError: problems.handle,
            HTTPException: problems.handle,
            RequestValidationError: problems.handle,
            Exception: problems.handle,
        },
    )
    app.state.service = service
    document: dict[str, Any] = {}

    def schema() -> dict[str, Any]:
        if not document:
            document.update(openapi.document(ENDPOINTS))
        return document

    app.openapi = schema  # type: ignore[method-assign]
    for endpoint in ENDPOINTS:
        # Plain routes: the table has declared and the handler reads the parameters, so FastAPI need not do it again.
        methods = [endpoint.method, "HEAD"] if endpoint.head else [endpoint.method]
        app.router.routes.append(_route(service, endpoint, methods))
    app.add_middleware(HostGuard, service=service)
    return app


def _route(service: Service, endpoint: Endpoint, methods: list[str]) -> Route:
    handler: Callable[[Service, Request], Awaitable[Response]] = endpoint.handler

    async def run(request: Request) -> Response:
        return await handler(service, request)

    route = Route(endpoint.path, run, methods=methods, name=endpoint.id)
    if "HEAD" not in methods and route.methods is not None:
        # Starlette adds HEAD to GET by itself; here it has a row of its own or none.
        route.methods.discard("HEAD")
    return route


def allowed_methods(app: FastAPI, scope: dict[str, Any]) -> list[str]:
    """Every method that some route has at the request's path."""
    methods: set[str] = set()
    for route in app.router.routes:
        if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    return sorted(methods)
