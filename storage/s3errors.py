"""What an S3 server or the way to it says when it says no: told apart once, here.

A `Failure` is what one try came to. It never leaves the S3 modules: callers act on its kind, or give it to the rest of
the program as `StoreUnavailable`, which names the operation of the store and the key.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import re
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ReadTimeoutError,
    SSLError,
)
from botocore.exceptions import ConnectionError as UnreachableError
from botocore.parsers import ResponseParserError

from pack.errors import StoreUnavailable
from storage.backend import NotThere

RETRY_AFTER_MAX = 30
SKEW_SECONDS = 300.0
"""Servers take requests that are at most 15 minutes off; from here on the clock is worth a word."""

_CREDENTIALS = frozenset(
    {
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "InvalidToken",
        "TokenRefreshRequired",
        "InvalidSecurity",
        "AuthorizationHeaderMalformed",
        "MissingAuthenticationToken",
    }
)
_PASSING = frozenset(
    {"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling", "TooManyRequests", "BadDigest"}
)


class Kind(enum.Enum):
    MISSING = "missing"  # the key
    EXISTS = "exists"  # a condition did not hold
    CONFLICT = "conflict"  # another conditional write is under way
    RANGE = "range"  # nothing of the range is there
    NO_UPLOAD = "no_upload"  # the multipart upload has ended or was aborted
    REFUSED = "refused"  # asking again would not help
    PASSING = "passing"  # it may; whether the server has acted is not known


class Failure(Exception):
    """One try of one request. `reason` is a word for the problem document, `text` a clause for a person."""

    def __init__(
        self, kind: Kind, text: str, *, reason: str = "", status: int = 0, retry_after: float | None = None
    ) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text
        self.reason = reason
        self.status = status
        self.retry_after = retry_after
        self.tries = 1

    @property
    def passing(self) -> bool:
        return self.kind is Kind.PASSING

    def told(self, operation: str, key: str) -> StoreUnavailable:
        """The error for the rest of the program."""
        again = f" ({self.tries} tries)" if self.tries > 1 else ""
        extra = {"reason": self.reason} if self.reason else {}
        error = StoreUnavailable(
            f"The store failed to {operation} {key}: {self.text}{again}.", operation=operation, **extra
        )
        if self.retry_after is not None:
            error.retry_after = max(1, min(RETRY_AFTER_MAX, round(self.retry_after)))
        elif not self.passing:
            error.retry_after = 10  # somebody has to do something first
        return error


@contextlib.contextmanager
def told(operation: str, key: str) -> Iterator[None]:
    """Failures become the store's errors, with the operation and the key in them."""
    try:
        yield
    except Failure as failure:
        if failure.kind is Kind.MISSING:
            raise NotThere(key) from failure
        raise failure.told(operation, key) from failure


def wrong(text: str, reason: str = "wrong_answer") -> Failure:
    """An answer that is not what was asked for; another one may be."""
    return Failure(Kind.PASSING, text, reason=reason)


def read(error: Exception) -> Failure | None:
    """The failure that an exception of the client library stands for; None for what is a fault of the program."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, ClientError):
        return _answered(error.response)
    if isinstance(error, NoCredentialsError | PartialCredentialsError | CredentialRetrievalError):
        return Failure(
            Kind.REFUSED,
            "no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role",
            reason="credentials",
        )
    if isinstance(error, NoRegionError):
        return Failure(Kind.REFUSED, "no region is set; say region= or endpoint= in the store's URL", reason="region")
    if isinstance(error, SSLError):
        return Failure(Kind.REFUSED, f"its TLS certificate is not trusted or TLS failed: {_short(error)}", reason="tls")
    if isinstance(error, ReadTimeoutError | asyncio.TimeoutError):
        return Failure(Kind.PASSING, "it did not answer in time", reason="timeout")
    if isinstance(error, UnreachableError | HTTPClientError | aiohttp.ClientError | OSError):
        # A new CA file or a broken one is a fault of the setup, and comes wrapped.
        return Failure(Kind.PASSING, f"the connection failed: {_short(error)}", reason="unreachable")
    if isinstance(error, BotoCoreError | ResponseParserError):
        # An answer that cannot be parsed, and everything else that the library does not like about it.
        return Failure(Kind.PASSING, f"its answer made no sense: {_short(error)}", reason="wrong_answer")
    return None


def _answered(response: dict[str, Any]) -> Failure:
    about = response.get("ResponseMetadata", {})
    status = int(about.get("HTTPStatusCode") or 0)
    headers = about.get("HTTPHeaders", {})
    code = str(response.get("Error", {}).get("Code") or "")
    said = _short(response.get("Error", {}).get("Message") or code or "no reason given")
    answer = f"it answered {status} {code}".rstrip()
    wait = _retry_after(headers)
    if status == 404:
        return _not_found(code, answer)
    if status == 412:
        return Failure(Kind.EXISTS, answer, reason="exists", status=status)
    if status == 409 and code != "BucketNotEmpty":
        return Failure(Kind.CONFLICT, answer, reason="conflict", status=status)
    if status == 416:
        return Failure(Kind.RANGE, answer, reason="range", status=status)
    if code in ("RequestTimeTooSkewed", "RequestExpired"):
        return Failure(Kind.REFUSED, _skewed(headers), reason="clock_skew", status=status)
    if code in _CREDENTIALS or status == 401:
        return Failure(
            Kind.REFUSED, f"it refused the credentials: {said} ({code})", reason="credentials", status=status
        )
    if status == 403:
        # A proxy or an old server may say no more than 403 where the clock is what is wrong.
        off = _offset(headers)
        if off is not None and abs(off) > SKEW_SECONDS:
            return Failure(Kind.REFUSED, _skewed(headers), reason="clock_skew", status=status)
        return Failure(Kind.REFUSED, f"it does not allow that: {said} ({code})", reason="access_denied", status=status)
    if status in (301, 307, 308) or code == "PermanentRedirect":
        where = response.get("Error", {}).get("Endpoint") or headers.get("x-amz-bucket-region") or "elsewhere"
        return Failure(
            Kind.REFUSED, f"the bucket is at {where}: set endpoint and region", reason="region", status=status
        )
    if (status >= 500 and status != 501) or status in (0, 200, 408, 429) or code in _PASSING:
        return Failure(Kind.PASSING, f"{answer}: {said}", reason="server_error", status=status, retry_after=wait)
    return Failure(Kind.REFUSED, f"{answer}: {said}", reason="refused", status=status)


def _not_found(code: str, answer: str) -> Failure:
    if code == "NoSuchBucket":
        return Failure(Kind.REFUSED, "there is no such bucket", reason="no_bucket", status=404)
    if code == "NoSuchUpload":
        return Failure(Kind.NO_UPLOAD, answer, reason="no_upload", status=404)
    return Failure(Kind.MISSING, answer, reason="missing", status=404)


def _retry_after(headers: dict[str, str]) -> float | None:
    value = headers.get("retry-after", "")
    if re.fullmatch(r"\d{1,6}", value):
        return float(value)
    return None


def _offset(headers: dict[str, str]) -> float | None:
    """Seconds that the server's clock is ahead of ours."""
    with contextlib.suppress(ValueError, TypeError, IndexError):
        return parsedate_to_datetime(headers.get("date", "")).timestamp() - time.time()
    return None


def _skewed(headers: dict[str, str]) -> str:
    off = _offset(headers)
    if off is None or abs(off) < 1:
        return "it says that the clock of this machine is wrong"
    way = "behind" if off > 0 else "ahead of"
    return f"the clock of this machine is {abs(off):,.0f} seconds {way} the store's"


def _short(what: object) -> str:
    text = " ".join(str(what).split()).rstrip(".")
    return text if len(text) <= 300 else f"{text[:297]}..."
