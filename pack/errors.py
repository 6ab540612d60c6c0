"""The one error tree. Each class knows its HTTP status and its stable code.

PackhouseError
├── RequestError (400)             the request cannot be understood
│   ├── BadParameter               bad_parameter
│   ├── UnknownParameter           unknown_parameter
│   ├── BadRevision                bad_revision
│   ├── AmbiguousRevision          ambiguous_revision
│   ├── BadPattern                 bad_pattern
│   └── BadCursor                  bad_cursor
├── AuthenticationRequired (401)   authentication_required
├── NotAllowed (403)               not_allowed
├── NotFound (404)                 not_found
│   ├── RepoNotFound               repo_not_found
│   ├── RevisionNotFound           revision_not_found
│   ├── UnbornHead                 unborn_head
│   ├── PathNotFound               path_not_found
│   ├── ObjectNotFound             object_not_found
│   └── OperationNotFound          operation_not_found
├── NotAcceptable (406)            not_acceptable
├── Conflict (409)                 conflict
│   ├── NotReady                   not_ready
│   ├── GenerationNotReached       generation_not_reached
│   └── UpstreamDiffers            upstream_differs
├── CursorExpired (410)            cursor_expired
├── TooLarge (413)                 too_large
├── RangeNotSatisfiable (416)      range_not_satisfiable
├── WrongType (422)                wrong_type
├── CorruptData (500)              corrupt_data       bytes of the store are not what they should be
│   ├── BadObject                  bad_object
│   ├── BadIndex                   bad_index
│   └── CorruptObject              corrupt_object
├── PackError (502)                bad_pack           a pack from outside is refused
│   ├── BadDelta                   bad_delta
│   ├── PackChecksumMismatch       pack_checksum_mismatch
│   ├── PackTruncated              pack_truncated
│   ├── MissingBase                missing_base
│   └── LimitExceeded              limit_exceeded
├── UpstreamError (502)            upstream_error
│   ├── UpstreamRefused (403)      upstream_refused   the guard does not allow the address
│   ├── UpstreamAuthentication     upstream_authentication
│   ├── UpstreamNotFound           upstream_not_found
│   ├── UpstreamUnreachable        upstream_unreachable
│   ├── UpstreamTimeout (504)      upstream_timeout
│   ├── UpstreamRedirect           upstream_redirect
│   ├── UpstreamProtocol           upstream_protocol
│   └── UnsupportedUpstream (422)  unsupported_upstream
├── IncompleteHistory (502)        incomplete_history objects that refs need are not there
├── StoreUnavailable (503)         store_unavailable
├── WorkerLost (503)               worker_lost
├── DeadlineExceeded (503)         deadline_exceeded
├── Overloaded (503)               overloaded         too much waits already
└── Cancelled (409)                cancelled
"""

from __future__ import annotations

from typing import Any


class PackhouseError(Exception):
    """Anything that the service says no with.

    `detail` is one sentence for a person; `parameter` names the request parameter at fault;
    `extra` holds more members of the problem document (JSON-able).
    """

    status = 500
    code = "internal"
    retry_after: int | None = None

    def __init__(self, detail: str, *, parameter: str | None = None, **extra: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.parameter = parameter
        self.extra = extra

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross the border of worker processes whole, keyword-only members included.
        # The last member is set on the new one: a time to come back, where a store has said one.
        own = {"retry_after": self.retry_after} if "retry_after" in self.__dict__ else None
        return (_rebuild, (type(self), self.detail, self.parameter, self.extra), own)


def _rebuild(kind: type[PackhouseError], detail: str, parameter: str | None, extra: dict[str, Any]) -> PackhouseError:
    return kind(detail, parameter=parameter, **extra)


class RequestError(PackhouseError):
    status = 400
    code = "bad_request"


class BadParameter(RequestError):
    code = "bad_parameter"


class UnknownParameter(RequestError):
    code = "unknown_parameter"


class BadRevision(RequestError):
    code = "bad_revision"


class AmbiguousRevision(RequestError):
    code = "ambiguous_revision"


class BadPattern(RequestError):
    code = "bad_pattern"


class BadCursor(RequestError):
    code = "bad_cursor"


class AuthenticationRequired(PackhouseError):
    status = 401
    code = "authentication_required"


class NotAllowed(PackhouseError):
    status = 403
    code = "not_allowed"


class NotFound(PackhouseError):
    status = 404
    code = "not_found"


class RepoNotFound(NotFound):
    code = "repo_not_found"


class RevisionNotFound(NotFound):
    code = "revision_not_found"


class UnbornHead(NotFound):
    code = "unborn_head"


class PathNotFound(NotFound):
    code = "path_not_found"


class ObjectNotFound(NotFound):
    code = "object_not_found"


class OperationNotFound(NotFound):
    code = "operation_not_found"


class NotAcceptable(PackhouseError):
    status = 406
    code = "not_acceptable"


class Conflict(PackhouseError):
    status = 409
    code = "conflict"


class NotReady(Conflict):
    code = "not_ready"
    retry_after = 1


class GenerationNotReached(Conflict):
    code = "generation_not_reached"
    retry_after = 1


class UpstreamDiffers(Conflict):
    code = "upstream_differs"


class CursorExpired(PackhouseError):
    status = 410
    code = "cursor_expired"


class TooLarge(PackhouseError):
    status = 413
    code = "too_large"


class RangeNotSatisfiable(PackhouseError):
    status = 416
    code = "range_not_satisfiable"


class WrongType(PackhouseError):
    status = 422
    code = "wrong_type"


class CorruptData(PackhouseError):
    status = 500
    code = "corrupt_data"


class BadObject(CorruptData):
    code = "bad_object"


class BadIndex(CorruptData):
    code = "bad_index"


class CorruptObject(CorruptData):
    code = "corrupt_object"


class PackError(PackhouseError):
    """A pack from outside is refused; `offset` (bytes from its start) and `object` say where, when known."""

    status = 502
    code = "bad_pack"


class BadDelta(PackError):
    code = "bad_delta"


class PackChecksumMismatch(PackError):
    code = "pack_checksum_mismatch"


class PackTruncated(PackError):
    code = "pack_truncated"


class MissingBase(PackError):
    code = "missing_base"


class LimitExceeded(PackError):
    code = "limit_exceeded"


class UpstreamError(PackhouseError):
    status = 502
    code = "upstream_error"


class UpstreamRefused(UpstreamError):
    status = 403
    code = "upstream_refused"


class UpstreamAuthentication(UpstreamError):
    code = "upstream_authentication"


class UpstreamNotFound(UpstreamError):
    code = "upstream_not_found"


class UpstreamUnreachable(UpstreamError):
    code = "upstream_unreachable"


class UpstreamTimeout(UpstreamError):
    status = 504
    code = "upstream_timeout"


class UpstreamRedirect(UpstreamError):
    code = "upstream_redirect"


class UpstreamProtocol(UpstreamError):
    code = "upstream_protocol"


class UnsupportedUpstream(UpstreamError):
    status = 422
    code = "unsupported_upstream"


class IncompleteHistory(PackhouseError):
    status = 502
    code = "incomplete_history"


class StoreUnavailable(PackhouseError):
    status = 503
    code = "store_unavailable"
    retry_after = 1


class WorkerLost(PackhouseError):
    status = 503
    code = "worker_lost"
    retry_after = 1


class DeadlineExceeded(PackhouseError):
    status = 503
    code = "deadline_exceeded"
    retry_after = 1


class Overloaded(PackhouseError):
    status = 503
    code = "overloaded"
    retry_after = 1


class Cancelled(PackhouseError):
    status = 409
    code = "cancelled"
