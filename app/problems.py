"""Errors on the wire: RFC 9457 problem documents, made in one place from all three sources (HTTP, validation, ours)."""

from __future__ import annotations

import logging
from typing import Any, Final

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from pack.errors import PackhouseError

log = logging.getLogger("packhouse")

MEDIA_TYPE: Final = "application/problem+json"
URN: Final = "urn:packhouse:problem:"

_HTTP_CODES: Final = {
    400: "bad_request",
    404: "no_such_path",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "too_large",
}


def title(code: str) -> str:
    return code.replace("_", " ").capitalize()


def problem(error: BaseException) -> dict[str, Any]:
    """The problem document of any exception; what is not ours says nothing about itself."""
    if isinstance(error, PackhouseError):
        document: dict[str, Any] = {
            "type": URN + error.code,
            "title": title(error.code),
            "status": error.status,
            "detail": error.detail,
            "code": error.code,
        }
        if error.parameter is not None:
            document["parameter"] = error.parameter
        return document | {key: value for key, value in error.extra.items() if key not in document}
    if isinstance(error, HTTPException):
        code = _HTTP_CODES.get(error.status_code, "http_error")
        return {
            "type": URN + code,
            "title": title(code),
            "status": error.status_code,
            "detail": str(error.detail),
            "code": code,
        }
    return {
        "type": URN + "internal",
        "title": title("internal"),
        "status": 500,
        "detail": "something went wrong inside the service; its log says what",
        "code": "internal",
    }


def respond(error: BaseException) -> Response:
    """The response to an error."""
    document = problem(error)
    headers = {"Cache-Control": "no-store", "Vary": "Accept, Accept-Encoding, Authorization"}
    if isinstance(error, PackhouseError) and error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if document["status"] == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="packhouse"'
    if isinstance(error, HTTPException) and error.headers:
        headers.update(error.headers)
    size = document.get("size")
    if document["status"] == 416 and isinstance(size, int):
        headers["Content-Range"] = f"bytes */{size}"
    return Response(orjson.dumps(document, default=str), document["status"], headers, MEDIA_TYPE)


def handle(scope: Scope, error: Exception) -> Response:
    """The response to what a request's handler raised; what is a fault of ours is logged."""
    if not isinstance(error, PackhouseError | HTTPException):
        log.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
    elif isinstance(error, PackhouseError) and error.status >= 500:
        log.warning("%s %s: %s: %s", scope["method"], scope["path"], error.code, error.detail)
    return respond(error)
