"""What every request passes before it is routed."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

from app import problems
from pack.errors import NotAllowed

if TYPE_CHECKING:
    from app.service import Service


class HostGuard:
    """Without tokens, only requests that name this machine are answered.

    A web page whose name was pointed at loopback could otherwise read and write as the person at this machine.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._open = service.tokens.required

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._open and not _local(_host(scope)):
            refusal = NotAllowed("a service without tokens answers only requests to localhost")
            await problems.respond(refusal)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _host(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"host":
            return str(value.decode("latin-1"))
    return ""


def _local(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    name = name.strip("[]").lower()
    if name in ("localhost", "") or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
