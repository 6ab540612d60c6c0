"""The endpoints of operations: their state, their events, and asking them to stop."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from app import problems
from app.endpoints import Endpoint
from app.negotiate import JSON, NDJSON, accept
from app.params import read_query
from app.schemas import OperationAnswer
from app.streamed import Streamed
from app.tokens import Verb
from pack.errors import OperationNotFound, RepoNotFound
from storage.operations import Operation

if TYPE_CHECKING:
    from app.service import Service

SSE: Final = "text/event-stream"
HEADERS: Final = {"Cache-Control": "no-store", "Vary": "Accept, Accept-Encoding, Authorization"}


def record(operation: Operation) -> dict[str, Any]:
    """An operation as the API shows it. Times are seconds since the epoch."""
    progress = operation.progress
    return {
        "id": operation.id,
        "kind": operation.kind,
        "owner": operation.owner,
        "name": operation.name,
        "state": operation.state,
        "progress": {
            "phase": progress.phase or None,
            "objects": progress.objects,
            "total_objects": progress.total_objects,
            "bytes": progress.bytes,
        },
        "error": _error(operation.error),
        "generation": operation.generation,
        "refused_refs": operation.refused_refs,
        "created": operation.created,
        "started": operation.started,
        "finished": operation.finished,
    }


def _error(error: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if error is None else {"type": f"{problems.URN}{error.get('code', 'internal')}", **error}


def answer(operation: Operation, status: int = 200) -> Response:
    """The response that shows an operation."""
    document = {"operation": record(operation), "generation": operation.generation}
    headers = HEADERS | {"Location": f"/v1/operations/{operation.id}"} if status == 202 else HEADERS
    return Response(orjson.dumps(document), status, headers, JSON)


async def _find(service: Service, request: Request, verb: Verb) -> Operation:
    """The operation of the request; one of a repository that may not be read does not exist."""
    bearer = service.tokens.identify(request.headers.get("authorization"))
    read_query(request.scope["query_string"], ())
    operation = await service.jobs.get(request.path_params["id"])
    try:
        service.tokens.check(bearer, operation.owner, operation.name, verb)
    except RepoNotFound:
        raise OperationNotFound(f"there is no operation {operation.id}") from None
    return operation


async def _get(service: Service, request: Request) -> Response:
    return answer(await _find(service, request, "read"))


async def _cancel(service: Service, request: Request) -> Response:
    operation = await _find(service, request, "write")
    return answer(await service.jobs.cancel(operation.id), 202)


async def _stream(service: Service, request: Request) -> Response:
    kind = accept(request.headers.get("accept"), (NDJSON, SSE))
    operation = await _find(service, request, "read")

    async def events() -> AsyncGenerator[bytes, None]:
        states = service.jobs.watch(operation.id)
        try:
            async with aclosing(states):
                async for state in states:
                    yield _event(kind, "state", record(state))
        except Exception as error:
            yield _event(kind, "end", {"end": True, "complete": False, "error": problems.problem(error)})
        else:
            yield _event(kind, "end", {"end": True, "complete": True})

    return Streamed(events(), 200, HEADERS, kind)


def _event(kind: str, name: str, document: dict[str, Any]) -> bytes:
    data = orjson.dumps(document)
    return data + b"\n" if kind == NDJSON else b"event: %s\ndata: %s\n\n" % (name.encode(), data)


_PROBLEMS: Final = (400, 401, 404, 406, 500, 503)
ENDPOINTS: Final = (
    Endpoint(
        "getOperation",
        "GET",
        "/v1/operations/{id}",
        _get,
        "Read the state of an operation",
        "operations",
        answer=OperationAnswer,
        problems=_PROBLEMS,
        head=True,
    ),
    Endpoint(
        "cancelOperation",
        "DELETE",
        "/v1/operations/{id}",
        _cancel,
        "Ask an operation to stop",
        "operations",
        answer=OperationAnswer,
        status=202,
        problems=(*_PROBLEMS, 403),
    ),
    Endpoint(
        "streamOperation",
        "GET",
        "/v1/operations/{id}/events",
        _stream,
        "Follow an operation to its end",
        "operations",
        "One state a line (or server-sent event) whenever it changes, then the end record.",
        media=(
            (NDJSON, {"type": "string", "description": "One state a line, then the end record."}),
            (SSE, {"type": "string", "description": "The same as server-sent events."}),
        ),
        problems=_PROBLEMS,
    ),
)
