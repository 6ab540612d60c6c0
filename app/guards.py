"""The layers around the router: who may ask at all, what an exception becomes, and how a handler is called."""

from __future__ import annotations

import contextlib
from functools import lru_cache
from ipaddress import ip_address
from time import perf_counter
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import BaseRoute, Match, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import problems
from app.leaving import attended
from app.metrics import LEFT, NOWHERE, Metrics
from pack.errors import NotAllowed

if TYPE_CHECKING:
    from app.endpoints import Endpoint
    from app.service import Service


class HostGuard:
    """Without tokens, only requests that name this machine are answered.

    A web page whose name was pointed at loopback could otherwise read and write as the person at this machine.
    """

    def __init__(self, app: ASGIApp, tokens: bool) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._tokens and not _local(_host(scope)):
            refusal = NotAllowed("a service without tokens answers only requests to localhost")
            await problems.respond(refusal)(scope, receive, send)
            return
        await self._app(scope, receive, send)


class Problems:
    """Turns what handlers raise into problem documents; what comes after the first byte breaks the connection.

    It is also where requests are counted, since it sees each one from its beginning to the end of its answer.
    """

    def __init__(self, router: Router, metrics: Metrics) -> None:
        self._router = router
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        status = size = 0
        metrics = self._metrics
        metrics.in_flight += 1
        begun = perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.body":
                size += len(message.get("body", b""))
            elif message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        # Starlette's router raises its 404 and 405 instead of answering them where an application is named.
        scope["app"] = scope.get("app", self)
        try:
            if b"%2f" in scope.get("raw_path", b"").lower():
                raise HTTPException(404, "an encoded slash parts no segments of a path, and is in none")
            await self._router(scope, receive, watched)
        except Exception as error:
            if status:
                metrics.broke(_operation(scope))
                raise
            if isinstance(error, HTTPException) and error.status_code == 405:
                error = HTTPException(405, error.detail, {"Allow": ", ".join(_methods(self._router.routes, scope))})
            await problems.handle(scope, error)(scope, receive, watched)
        finally:
            metrics.in_flight -= 1
            metrics.answered(_operation(scope), status or LEFT, perf_counter() - begun, size)


class Handled:
    """One endpoint's handler as an ASGI application, without the layers that a plain function is wrapped in."""

    def __init__(self, service: Service, endpoint: Endpoint) -> None:
        self.id = endpoint.id
        self._service = service
        self._handler = endpoint.handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._handler(self._service, Request(scope, receive, send))
        if scope["method"] not in ("GET", "HEAD"):
            # A client that leaves before it has sent its whole request has no answer to wait for.
            with contextlib.suppress(ClientDisconnect):
                await (await answer)(scope, receive, send)
            return
        response = await attended(receive, answer)
        if response is not None:
            await response(scope, receive, send)


def _operation(scope: Scope) -> str:
    """The operation that the router has found for a request."""
    endpoint = scope.get("endpoint")
    return endpoint.id if isinstance(endpoint, Handled) else NOWHERE


def _methods(routes: list[BaseRoute], scope: Scope) -> list[str]:
    """Every method that some route has at the request's path."""
    methods: set[str] = set()
    for route in routes:
        if route.matches(scope)[0] is not Match.NONE:
            methods |= getattr(route, "methods", None) or set()
    return sorted(methods)


def _host(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"host":
            return bytes(value)
    return b""


@lru_cache(maxsize=256)
def _local(host: bytes) -> bool:
    text = host.decode("latin-1").lower()
    name, colon, port = text.rpartition(":")
    name = (name if colon and port.isdigit() else text).strip("[]")
    if name in ("localhost", "") or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
