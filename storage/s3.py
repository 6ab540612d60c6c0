"""The store in a bucket of an S3 server: Amazon's, Ceph's RGW, SeaweedFS, MinIO and others.

A value is one object. `create` is a PUT with `If-None-Match: *`, which these servers carry out alike: of all writers
exactly one wins. When the answer to such a write is lost, the object is read and compared, so that a write of ours that
did win is known as ours. Nothing else is conditional: conditions on completing, deleting and copying are ignored by
some servers. Nothing is believed unseen: lengths, ranges and MD5 sums of what comes and goes are compared.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from storage import s3checks
from storage.backend import Item, NotThere, Upload, check_key
from storage.s3calls import Answer, Calls
from storage.s3errors import Failure, Kind, told, wrong
from storage.s3list import PAGE, Listing
from storage.s3place import Place
from storage.s3upload import PART_BYTES, S3Upload, put, sending

_LARGE = 1 << 20  # from here on a checksum is worth a thread
PROOF_PAGE = 5
PROOF_PART_BYTES = 5 << 20  # the least that S3 takes


class S3Backend:
    """`spool`: the folder where uploads are buffered (the system's own for temporary files unless given). `page` and
    `part_bytes` are for tests and the start-up proof.
    """

    probe_is_cheap = False

    def __init__(
        self,
        place: Place,
        *,
        spool: Path | None = None,
        page: int = PAGE,
        part_bytes: int = PART_BYTES,
        calls: Calls | None = None,
    ) -> None:
        self.url = place.url
        self._place = place
        self._spool = spool
        self._part_bytes = part_bytes
        self._calls = calls or Calls(place)
        self._listing = Listing(self._calls, page)

    @property
    def requests(self) -> Counter[str]:
        """Requests sent so far, each try of each, by the server's name for the operation."""
        return self._calls.requests

    def local_path(self, key: str) -> Path | None:
        check_key(key)
        return None

    async def get(self, key: str) -> bytes:
        target = self._target(key)
        with told("get", key):
            return await self._calls.call("get_object", target, consume=_whole)

    async def read(self, key: str, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0:
            raise ValueError("negative range")
        if not length:
            await self.size(key)
            return b""

        async def part(answer: Answer) -> bytes:
            return await s3checks.ranged(answer, offset, length)

        target = self._target(key) | {"Range": f"bytes={offset}-{offset + length - 1}"}
        with told("read", key):
            try:
                return await self._calls.call("get_object", target, consume=part)
            except Failure as failure:
                if failure.kind is Kind.RANGE:  # behind the end, where an empty value has everything
                    return b""
                raise

    async def size(self, key: str) -> int:
        target = self._target(key)
        with told("size", key):
            return await self._calls.call("head_object", target, consume=_length)

    async def create(self, key: str, data: bytes) -> bool:
        target = self._target(key)
        with told("create", key):
            return await self._create(target, data, s3checks.digest(data))

    async def _create(self, target: dict[str, Any], data: bytes, checksum: bytes) -> bool:
        async def check(answer: Answer) -> None:
            s3checks.etag_is(answer, checksum, "what was written")

        calls = self._calls
        unsure = False
        tries = 0
        while True:
            tries += 1
            try:
                parameters = target | sending(data, checksum) | {"IfNoneMatch": "*"}
                await calls.once("put_object", parameters, consume=check, size=len(data))
                return True
            except Failure as failure:
                if failure.kind is Kind.EXISTS and not unsure:
                    return False
                if failure.kind is Kind.PASSING:
                    unsure = True  # the server may have written it, and may still be writing
                elif failure.kind not in (Kind.EXISTS, Kind.CONFLICT):
                    raise
                failure.tries = tries
                last = failure
            if last.kind is not Kind.EXISTS:
                await asyncio.sleep(calls.pause(tries, last))
            if unsure:
                there = await self._value(target, last)
                if there is not None:
                    return there == data
            if tries >= self._place.attempts:
                raise last

    async def _value(self, target: dict[str, Any], doubt: Failure) -> bytes | None:
        """What is there now, None for nothing. When that cannot be known, the doubt is what is raised."""
        try:
            return await self._calls.call("get_object", target, consume=_whole)
        except Failure as failure:
            if failure.kind is Kind.MISSING:
                return None
            raise doubt from failure

    async def put(self, key: str, data: bytes) -> None:
        target = self._target(key)
        checksum = s3checks.digest(data)
        with told("put", key):
            await put(self._calls, lambda: target | sending(data, checksum), checksum, len(data))

    async def delete(self, key: str) -> None:
        target = self._target(key)
        try:
            with told("delete", key):
                await self._calls.call("delete_object", target, consume=_nothing)
        except NotThere:
            return

    def list(self, prefix: str, start_after: str = "") -> AsyncIterator[Item]:
        return self._listing.items(prefix, start_after)

    def list_folders(self, prefix: str, start_after: str = "") -> AsyncIterator[str]:
        if prefix and not prefix.endswith("/"):
            raise ValueError(f"not a folder: {prefix!r}")
        return self._listing.folders(prefix, start_after)

    async def upload(self, key: str) -> Upload:
        return S3Upload(self._calls, check_key(key), part_bytes=self._part_bytes, spool=self._spool)

    async def sweep(self, prefix: str, older_than: float) -> int:
        """Abort the multipart uploads below `prefix` that began more than so many seconds ago by the server's clock."""
        swept = 0
        oldest = time.time() - older_than
        async for row in self._uploads(prefix):
            if row["Initiated"].timestamp() < oldest:
                with told("sweep", prefix or "everything"):
                    swept += await self._abort({"Key": row["Key"], "UploadId": row["UploadId"]})
        return swept

    async def _abort(self, target: dict[str, str]) -> int:
        try:
            await self._calls.call("abort_multipart_upload", target, consume=_nothing)
        except Failure as failure:
            if failure.kind in (Kind.NO_UPLOAD, Kind.MISSING):
                return 0
            raise
        return 1

    async def _uploads(self, prefix: str) -> AsyncIterator[dict[str, Any]]:
        marker: dict[str, str] = {}
        seen: set[str] = set()
        while True:
            with told("sweep", prefix or "everything"):
                given = {"Prefix": self._place.key(prefix), **marker}
                answer = await self._calls.call("list_multipart_uploads", given, consume=_same)
            # SeaweedFS says that there is more when there is not, and names no key to go on from.
            fresh = [row for row in answer.get("Uploads", ()) if row["UploadId"] not in seen]
            seen.update(row["UploadId"] for row in fresh)
            for row in fresh:
                yield row
            following = {"KeyMarker": answer.get("NextKeyMarker"), "UploadIdMarker": answer.get("NextUploadIdMarker")}
            marker = {name: value for name, value in following.items() if value}
            if not fresh or not marker or not answer.get("IsTruncated"):
                return

    async def prove(self) -> None:
        from storage.proof import prove

        small = S3Backend(
            self._place, spool=self._spool, page=PROOF_PAGE, part_bytes=PROOF_PART_BYTES, calls=self._calls
        )
        await prove(small, upload_bytes=PROOF_PART_BYTES + 70_000)

    async def close(self) -> None:
        await self._calls.close()

    def _target(self, key: str) -> dict[str, Any]:
        return {"Key": self._place.key(check_key(key))}


async def _whole(answer: Answer) -> bytes:
    data = await s3checks.body(answer)
    if len(data) < _LARGE:
        checksum = s3checks.digest(data)
    else:
        checksum = await asyncio.to_thread(s3checks.digest, data)
    s3checks.etag_is(answer, checksum, "what came")
    return data


async def _length(answer: Answer) -> int:
    length = answer.get("ContentLength")
    if not isinstance(length, int):
        raise wrong("it did not say how long the value is")
    return length


async def _nothing(answer: Answer) -> None:
    return None


async def _same(answer: Answer) -> Answer:
    return answer
