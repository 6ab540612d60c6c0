"""The OpenAPI document, written from the table of endpoints and the models of the answers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app import __version__
from app.endpoints import Endpoint
from app.params import openapi_parameters
from app.problems import MEDIA_TYPE
from app.schemas import Problem

_REF: Final = "#/components/schemas/{model}"
_PATH_PARAMETERS: Final[dict[str, tuple[str, str]]] = {
    "owner": ("Owner of the repository.", "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"),
    "name": ("Name of the repository.", "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"),
    "oid": ("Full object id, 40 hex digits.", "^[0-9a-f]{40}$"),
    "id": ("Id of the operation.", "^[A-Za-z0-9_-]{1,64}$"),
}
_PROBLEM_WORDS: Final[dict[int, str]] = {
    400: "The request cannot be understood.",
    401: "A valid bearer token is needed.",
    403: "The token, or the guard over upstream addresses, does not allow it.",
    404: "There is no such thing, or it may not be read.",
    406: "None of the accepted media types can be had.",
    408: "The body did not come in time.",
    409: "The state of the repository does not allow it now.",
    410: "What the cursor was pinned to is gone.",
    413: "Too large to be answered.",
    416: "The range lies outside the content.",
    422: "An object of another type.",
    500: "Something is wrong inside the service or its store.",
    502: "The upstream failed, or what it sent is refused.",
    503: "The store or a worker is not available now.",
    504: "The upstream did not answer in time.",
}

DESCRIPTION: Final = """\
Reads of git repositories over HTTP. Every answer about a repository says which `generation` and `commit` it was read \
at and whether it is `complete`; where a budget ended it, `next_cursor` continues exactly there.

Revisions and paths are query parameters. Percent-encoding carries raw bytes (`%E9` is the byte 0xE9), `+` is a space; \
`rev_b64` and `path_b64` take base64url without padding. In answers, a name or line that is not UTF-8 has a `*_b64` \
member beside the readable form.

Long lists have a second form: with `Accept: application/x-ndjson` the records are streamed one a line, and the last \
line is `{"end": true, ...}` with `complete`, or with the `error` that ended the stream early.

JSON of 4 KiB and more, NDJSON and patches are sent in `zstd` or `gzip` where `Accept-Encoding` allows it; each coding \
has its own `ETag`."""


def document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """The whole document, ready for JSON."""
    rows = list(endpoints)
    models: set[type[BaseModel]] = {Problem}
    for row in rows:
        models.update(model for model in (row.answer, row.body) if model is not None)
    ordered = sorted(models, key=lambda model: model.__name__)
    _, definitions = models_json_schema([(model, "validation") for model in ordered], ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "packhouse",
            "version": __version__,
            "description": DESCRIPTION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(definitions["$defs"].items())),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"bearer": []}],
    }


def _operation(row: Endpoint) -> dict[str, Any]:
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": words,
            "schema": {"type": "string", "pattern": pattern},
        }
        for name in re.findall(r"{(\w+)}", row.path)
        for words, pattern in [_PATH_PARAMETERS[name]]
    ]
    parameters += openapi_parameters(row.params)
    parameters += [
        {"name": name, "in": "header", "required": False, "description": words, "schema": {"type": "string"}}
        for name, words in row.headers
    ]
    answer: dict[str, Any] = {
        "operationId": row.id,
        "summary": row.summary,
        "tags": [row.tag],
        "parameters": parameters,
        "responses": _responses(row),
    }
    if row.description:
        answer["description"] = row.description
    if row.body is not None:
        answer["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": _REF.format(model=row.body.__name__)}}},
        }
    if row.open:
        answer["security"] = []
    return answer


def _responses(row: Endpoint) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if row.answer is not None:
        content["application/json"] = {"schema": {"$ref": _REF.format(model=row.answer.__name__)}}
    content.update({media: {"schema": schema} for media, schema in row.media})
    success: dict[str, Any] = {"description": "The answer."}
    if content:
        success["content"] = content
    responses = {str(row.status): success}
    responses.update({str(status): response for status, response in row.also})
    for status in row.problems:
        responses[str(status)] = {
            "description": _PROBLEM_WORDS[status],
            "content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(model="Problem")}}},
        }
    return dict(sorted(responses.items()))
