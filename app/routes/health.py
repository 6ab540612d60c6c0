"""Liveness, readiness, the version and the metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from app import __version__, metrics
from app.endpoints import Endpoint
from app.schemas import Health, Version
from pack.errors import StoreUnavailable
from storage import layout
from storage.open import FORMAT

if TYPE_CHECKING:
    from app.service import Service

_HEADERS: Final = {"Cache-Control": "no-store"}


async def _livez(service: Service, request: Request) -> Response:
    return Response(orjson.dumps({"status": "ok"}), headers=_HEADERS, media_type="application/json")


async def _readyz(service: Service, request: Request) -> Response:
    if not service.ready:
        raise StoreUnavailable("the service is starting or stopping")
    await service.backend.get(layout.FORMAT_KEY)
    document = {"status": "ok", "checks": {"store": "ok", "workers": len(service.pool.workers)}}
    return Response(orjson.dumps(document), headers=_HEADERS, media_type="application/json")


async def _version(service: Service, request: Request) -> Response:
    document = {"name": "packhouse", "version": __version__, "api": "v1", "store_format": FORMAT}
    return Response(orjson.dumps(document), headers=_HEADERS, media_type="application/json")


async def _metrics(service: Service, request: Request) -> Response:
    page = metrics.text(await service.gather.samples())
    return Response(page, headers=_HEADERS, media_type=metrics.MEDIA_TYPE)


ENDPOINTS: Final = (
    Endpoint(
        "livez", "GET", "/livez", _livez, "Whether the process lives", "service", answer=Health, head=True, open=True
    ),
    Endpoint(
        "readyz",
        "GET",
        "/readyz",
        _readyz,
        "Whether the service can answer: its store is reachable and proven",
        "service",
        answer=Health,
        problems=(500, 503),
        head=True,
        open=True,
    ),
    Endpoint(
        "version",
        "GET",
        "/version",
        _version,
        "Name and version of the build",
        "service",
        answer=Version,
        head=True,
        open=True,
    ),
    Endpoint(
        "metrics",
        "GET",
        "/metrics",
        _metrics,
        "Counts and measures of this replica, in Prometheus' text format",
        "service",
        "Needs no token, and names no repository.",
        media=(("text/plain", {"type": "string"}),),
        problems=(500,),
        head=True,
        open=True,
    ),
)
