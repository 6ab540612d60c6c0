"""The endpoints that register, describe, sync and delete repositories."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import orjson
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from app import coders, cursors
from app.asking import authorize
from app.coding import IDENTITY, accepted, choose
from app.endpoints import REPOSITORY, Endpoint
from app.negotiate import JSON, accept
from app.operations import CURSOR
from app.params import Param, read_query
from app.routes import operations
from app.schemas import OperationAnswer, PutRepoBody, RepositoriesAnswer, Repository
from pack.errors import BadCursor, BadParameter, TooLarge

if TYPE_CHECKING:
    from app.service import Service

BODY_BYTES: Final = 256 * 1024
BODY_SECONDS: Final = 15.0
WAIT: Final = Param(
    "wait", "int", "Wait up to so many seconds for the operation to end.", default=0, minimum=0, ceiling=300
)
REPLACE: Final = Param("replace", "bool", "Replace the upstream of a registered repository.", default=False)
LIMIT: Final = Param("limit", "int", "Items in one page, at most 1000.", default=100, minimum=1, ceiling=1000)
LIST_PARAMS: Final = (LIMIT, CURSOR)
PUT_PARAMS: Final = (WAIT, REPLACE)
HEADERS: Final = {"Cache-Control": "no-store", "Vary": "Accept, Accept-Encoding, Authorization"}


async def _body(request: Request) -> PutRepoBody:
    """The JSON body, bounded; BadParameter names the member at fault."""
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                data += chunk
                if len(data) > BODY_BYTES:
                    raise TooLarge(f"the body is larger than {BODY_BYTES} bytes")
    except TimeoutError:
        detail = f"the body did not come within {BODY_SECONDS:g} seconds"
        raise HTTPException(408, detail, {"Connection": "close"}) from None
    try:
        return PutRepoBody.model_validate(orjson.loads(bytes(data)))
    except orjson.JSONDecodeError:
        raise BadParameter("the body is not JSON", parameter="body") from None
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise BadParameter(f"{where}: {first['msg']}", parameter=where) from None


async def _put(service: Service, request: Request) -> Response:
    owner, name, _ = authorize(service, request, "write")
    params = read_query(request.scope["query_string"], PUT_PARAMS)
    accept(request.headers.get("accept"), (JSON,))
    body = await _body(request)
    await service.registry.register(
        owner,
        name,
        url=body.url,
        credential=body.credential.model_dump(exclude_none=True) if body.credential else None,
        mode=body.mode,
        refspecs=tuple(body.refspecs) if body.refspecs is not None else None,
        default_branch=body.default_branch,
        replace=params["replace"],
    )
    return await _ingest(service, owner, name, params["wait"])


async def _sync(service: Service, request: Request) -> Response:
    owner, name, _ = authorize(service, request, "write")
    params = read_query(request.scope["query_string"], (WAIT,))
    accept(request.headers.get("accept"), (JSON,))
    return await _ingest(service, owner, name, params["wait"])


async def _ingest(service: Service, owner: str, name: str, wait: int) -> Response:
    operation = await service.jobs.start_ingest(owner, name)
    if wait:
        operation = await service.jobs.wait(operation.id, wait)
    return operations.answer(operation, 200 if operation.ended else 202)


async def _get(service: Service, request: Request) -> Response:
    owner, name, _ = authorize(service, request, "read")
    read_query(request.scope["query_string"], ())
    document = await service.registry.describe(owner, name)
    return Response(orjson.dumps(document), 200, HEADERS, JSON)


async def _delete(service: Service, request: Request) -> Response:
    owner, name, _ = authorize(service, request, "write")
    read_query(request.scope["query_string"], ())
    generation = await service.registry.delete(owner, name)
    return Response(status_code=204, headers=HEADERS | {"Packhouse-Generation": str(generation)})


async def _list(service: Service, request: Request) -> Response:
    bearer = service.tokens.identify(request.headers.get("authorization"))
    params = read_query(request.scope["query_string"], LIST_PARAMS)
    bound = cursors.binding("", "listRepos", {}, bearer.name)
    after = None
    if params["cursor"] is not None:
        where = cursors.unseal(service.cursor_key, bound, params["cursor"]).after
        if not isinstance(where, list):
            raise BadCursor("the cursor is of another list", parameter="cursor")
        after = (where[0], where[1])
    found: list[dict[str, Any]] = []
    cursor = None
    async for document in service.registry.list(after):
        owner, name = document["owner"], document["name"]
        if not (bearer.covers(owner, name) and bearer.may("read")):
            continue
        if len(found) == params["limit"]:
            last = found[-1]
            cursor = cursors.seal(service.cursor_key, bound, cursors.Position({}, [last["owner"], last["name"]], 0))
            break
        found.append(document)
    body = orjson.dumps({"repositories": found, "complete": cursor is None, "next_cursor": cursor})
    coding = coders.chosen(choose(accepted(request.scope["headers"])), len(body))
    if coding == IDENTITY:
        return Response(body, 200, HEADERS, JSON)
    return Response(await coders.aside(coders.encode, coding, body), 200, HEADERS | {"Content-Encoding": coding}, JSON)


_PROBLEMS: Final = (400, 401, 404, 500, 503)
_OPERATION: Final = {"$ref": "#/components/schemas/OperationAnswer"}
_STARTED: Final = (202, {"description": "The operation goes on.", "content": {JSON: {"schema": _OPERATION}}})
ENDPOINTS: Final = (
    Endpoint(
        "putRepo",
        "PUT",
        REPOSITORY,
        _put,
        "Register an upstream and ingest it",
        "repositories",
        "Idempotent. Another url than the registered one is 409 `upstream_differs` unless `replace=true`.",
        PUT_PARAMS,
        body=PutRepoBody,
        answer=OperationAnswer,
        also=(_STARTED,),
        problems=(*_PROBLEMS, 403, 406, 408, 409, 413),
    ),
    Endpoint(
        "syncRepo",
        "POST",
        REPOSITORY + "/sync",
        _sync,
        "Fetch what is new upstream",
        "repositories",
        params=(WAIT,),
        answer=OperationAnswer,
        also=(_STARTED,),
        problems=(*_PROBLEMS, 403, 406, 409),
    ),
    Endpoint(
        "getRepo",
        "GET",
        REPOSITORY,
        _get,
        "Describe a repository",
        "repositories",
        answer=Repository,
        problems=_PROBLEMS,
        head=True,
    ),
    Endpoint(
        "deleteRepo",
        "DELETE",
        REPOSITORY,
        _delete,
        "Delete a repository",
        "repositories",
        status=204,
        problems=(*_PROBLEMS, 403, 409),
    ),
    Endpoint(
        "listRepos",
        "GET",
        "/v1/repos",
        _list,
        "List repositories",
        "repositories",
        params=LIST_PARAMS,
        answer=RepositoriesAnswer,
        problems=_PROBLEMS,
        head=True,
    ),
)
