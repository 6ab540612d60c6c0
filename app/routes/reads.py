"""The endpoints that read one repository."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from app import operations as ops
from app.endpoints import REPOSITORY, Endpoint, Handler
from app.negotiate import NDJSON, PATCH
from app.operations import Operation
from app.schemas import (
    AheadBehindAnswer,
    BlobAnswer,
    CommitAnswer,
    DiffAnswer,
    GrepAnswer,
    LogAnswer,
    MergeBaseAnswer,
    RefsAnswer,
    ResolveAnswer,
    StatAnswer,
    TagAnswer,
    TreeAnswer,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

    from app.service import Service

PROBLEMS: Final = (400, 401, 403, 404, 406, 409, 422, 500, 503)
BYTES: Final = {"type": "string", "format": "binary"}
NOT_MODIFIED: Final[tuple[int, dict[str, Any]]] = (304, {"description": "The client's copy is current."})
CONDITION: Final = ("If-None-Match", "Entity tags the client holds; 304 where one is current.")

_ANSWERS: Final[dict[str, type[BaseModel]]] = {
    "resolve": ResolveAnswer,
    "getCommit": CommitAnswer,
    "getTag": TagAnswer,
    "readBlob": BlobAnswer,
    "stat": StatAnswer,
    "mergeBase": MergeBaseAnswer,
    "aheadBehind": AheadBehindAnswer,
    "listRefs": RefsAnswer,
    "listTree": TreeAnswer,
    "log": LogAnswer,
    "diff": DiffAnswer,
    "grep": GrepAnswer,
}

GET_OBJECT: Final = Operation(
    "getObject", "/objects/{oid}", "raw", "Read any object's bytes by its full id", (ops.MIN_GENERATION,)
)


def _single(operation: Operation) -> Handler:
    async def handler(service: Service, request: Request) -> Response:
        return await service.reads.single(request, operation)

    return handler


def _listing(operation: Operation) -> Handler:
    async def handler(service: Service, request: Request) -> Response:
        return await service.reads.listing(request, operation)

    return handler


async def _raw(service: Service, request: Request) -> Response:
    return await service.files.raw(request, ops.RAW_BLOB)


async def _object(service: Service, request: Request) -> Response:
    return await service.files.object(request, GET_OBJECT)


def _endpoint(operation: Operation) -> Endpoint:
    media: tuple[tuple[str, dict[str, Any]], ...] = ()
    if operation.listing:
        media += ((NDJSON, {"type": "string", "description": "One record a line, then the end record."}),)
    if operation is ops.DIFF:
        media += ((PATCH, {"type": "string", "description": "A patch that `git apply` takes."}),)
    return Endpoint(
        operation.id,
        "GET",
        REPOSITORY + operation.path,
        _listing(operation) if operation.listing else _single(operation),
        operation.summary,
        "reads",
        operation.description,
        operation.params,
        answer=_ANSWERS[operation.id],
        media=media,
        also=(NOT_MODIFIED,),
        problems=(*PROBLEMS, 410, 413) if operation.listing else (*PROBLEMS, 413),
        headers=(CONDITION,),
        head=True,
    )


_PART: Final[tuple[int, dict[str, Any]]] = (
    206,
    {"description": "A part of the bytes.", "content": {"application/octet-stream": {"schema": BYTES}}},
)


def _bytes(operation: Operation, handler: Handler, method: str = "GET") -> Endpoint:
    return Endpoint(
        operation.id if method == "GET" else f"{operation.id}Head",
        method,
        REPOSITORY + operation.path,
        handler,
        operation.summary if method == "GET" else f"{operation.summary}: headers only",
        "reads",
        params=operation.params,
        media=(("application/octet-stream", BYTES),) if method == "GET" else (),
        also=(_PART, NOT_MODIFIED) if method == "GET" else (NOT_MODIFIED,),
        problems=(*PROBLEMS, 413, 416) if method == "GET" else PROBLEMS,
        headers=(CONDITION, ("Range", "One byte range."), ("If-Range", "The entity tag that the range is of."))
        if method == "GET"
        else (CONDITION,),
    )


ENDPOINTS: Final = (
    *(_endpoint(operation) for operation in (*ops.SINGLE_READS, *ops.LIST_READS)),
    _bytes(ops.RAW_BLOB, _raw),
    _bytes(ops.RAW_BLOB, _raw, "HEAD"),
    _bytes(GET_OBJECT, _object),
    _bytes(GET_OBJECT, _object, "HEAD"),
)
