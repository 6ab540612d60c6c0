"""What an endpoint is: the row from which both its route and its part of the OpenAPI document are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from app.params import Param

if TYPE_CHECKING:
    from app.service import Service

Handler = Callable[["Service", Request], Awaitable[Response]]

REPOSITORY: Final = "/v1/repos/{owner}/{name}"


@dataclass(frozen=True)
class Endpoint:
    """One operation of the API.

    `answer` is the model of its JSON body at `status`; `also` holds further responses of the document by status, and
    `media` further forms of the body by media type (a JSON schema each). `problems` are the statuses it may refuse
    with.
    """

    id: str
    method: str
    path: str
    handler: Handler
    summary: str
    tag: str
    description: str = ""
    params: tuple[Param, ...] = ()
    body: type[BaseModel] | None = None
    answer: type[BaseModel] | None = None
    status: int = 200
    media: tuple[tuple[str, dict[str, Any]], ...] = ()
    also: tuple[tuple[int, dict[str, Any]], ...] = ()
    problems: tuple[int, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    head: bool = False
    open: bool = False
