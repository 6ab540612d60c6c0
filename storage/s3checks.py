"""Whether an answer of an S3 server holds what was asked for: lengths, ranges, checksums."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import md5
from typing import Any

from storage.s3errors import wrong

_MD5 = re.compile(r'"?([0-9a-f]{32})"?')
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_STEP = 1 << 20
# Of objects under a customer's key the ETag is no MD5, and says nothing to us.
_OPAQUE = ("SSEKMSKeyId", "SSECustomerAlgorithm", "ServerSideEncryption")


def digest(data: bytes | memoryview) -> bytes:
    return md5(data, usedforsecurity=False).digest()


def header(checksum: bytes) -> str:
    """As Content-MD5 has it: the server refuses bytes that came damaged."""
    return b64encode(checksum).decode()


def etag_is(answer: dict[str, Any], checksum: bytes, what: str) -> bool:
    """Whether the ETag is the MD5 of the bytes; False where it is none. A passing Failure for that of other bytes."""
    found = _MD5.fullmatch(str(answer.get("ETag", "")))
    if found is None:
        return False
    if found[1] == checksum.hex():
        return True
    if any(answer.get(name) for name in _OPAQUE):
        return False
    raise wrong(f"the checksum of {what} is that of other bytes", reason="wrong_checksum")


async def body(answer: dict[str, Any]) -> bytes:
    """All of a body, as long as its header says."""
    data: bytes = await answer["Body"].read()
    expected = answer.get("ContentLength")
    if expected is not None and len(data) != expected:
        raise wrong(f"{len(data)} of {expected} bytes came", reason="short_answer")
    return data


async def ranged(answer: dict[str, Any], offset: int, length: int) -> bytes:
    """What a request for `length` bytes at `offset` was answered with, fewer only where the value ends."""
    status = answer["ResponseMetadata"]["HTTPStatusCode"]
    given = answer.get("ContentRange")
    if given is None and status != 206:
        return await _cut(answer, offset, length)
    found = _RANGE.fullmatch(given or "")
    if found is None:
        raise wrong(f"a part of the value came, and which one is not said: {given!r}", reason="wrong_range")
    first, last = int(found[1]), int(found[2])
    wanted = offset + length if found[3] == "*" else min(offset + length, int(found[3]))
    if (first, last + 1) != (offset, wanted):
        raise wrong(f"bytes {first} to {last} came instead of {length} at {offset}", reason="wrong_range")
    if status == 206 or answer.get("ContentLength") == wanted - offset:
        data: bytes = await answer["Body"].read()
    else:
        data = await _cut(answer, offset, length)
    if len(data) != wanted - offset:
        raise wrong(f"{len(data)} of {wanted - offset} bytes came", reason="short_answer")
    return data


async def _cut(answer: dict[str, Any], offset: int, length: int) -> bytes:
    """The range out of a whole value, from a server that gives no ranges; what comes behind it is not waited for."""
    stream = answer["Body"]
    at = 0
    pieces = []
    end = offset + length
    while at < end and (chunk := await stream.read(_STEP)):
        pieces.append(chunk[max(0, offset - at) : max(0, end - at)])
        at += len(chunk)
    total = answer.get("ContentLength")
    if total is not None and at < min(end, total):
        raise wrong(f"{at} of {total} bytes came", reason="short_answer")
    if total is None or at < total:
        stream.close()
    return b"".join(pieces)
