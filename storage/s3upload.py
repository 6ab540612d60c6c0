"""A pack on its way into a bucket, part by part while it arrives.

All bytes go to a local spool first. Each part is read from there when it is sent and when it has to be sent again, so
that no more of the pack is in memory than the parts that are under way. The first part is sent last: it holds the
header, which `finish` may replace; and the last bytes are held back for the same reason. What fits into one part is
written by one plain request.

The object appears when the server is told to put the parts together, and that is the last request. It is idempotent:
when its answer is lost it is asked again, and when the server then knows no such upload the object itself is looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Callable
from hashlib import md5
from pathlib import Path
from typing import Any

from pack.errors import PackhouseError, StoreUnavailable
from storage import s3checks
from storage.backend import KEPT_BYTES
from storage.s3calls import Answer, Calls
from storage.s3errors import Failure, Kind, told, wrong
from storage.spool import Spool

PART_BYTES = 8 << 20
IN_FLIGHT = 3
PARTS_MAX = 10_000
_PATIENCE = 180.0  # seconds in which a part may be tried again
_TRIES = 12
_LARGE = 256 << 10


class S3Upload:
    """`storage.backend.Upload`. `part_bytes` is the size of the first parts; later ones of a huge pack are larger."""

    def __init__(self, calls: Calls, key: str, *, part_bytes: int = PART_BYTES, spool: Path | None = None) -> None:
        self.key = key
        self.size = 0
        self._calls = calls
        self._target: dict[str, Any] = {"Key": calls.place.key(key)}
        self._part_bytes = part_bytes
        self._spool = Spool(spool)
        self._id: str | None = None
        self._next = part_bytes  # where the next part begins; the first one stays behind
        self._parts: dict[int, dict[str, Any]] = {}
        self._sums: dict[int, bytes] = {}
        self._opaque = False  # an ETag was none that we can check
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None
        self._over = False

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        self._check()
        self._spool.append(chunk)
        self.size = self._spool.size
        while self.size >= self._next + self._length() + KEPT_BYTES:
            await self._dispatch(self._length())
        if self._tasks:
            await asyncio.sleep(0)  # whoever feeds us may never wait for anything else

    def read_back(self, offset: int, length: int) -> bytes:
        return self._spool.read(offset, length)

    async def finish(self, head: bytes = b"", cut: int = 0, tail: bytes = b"") -> None:
        if not 0 <= cut <= min(KEPT_BYTES, self.size) or len(head) > min(self._part_bytes, self.size - cut):
            raise ValueError("more than was held back is to be replaced")
        self._check()
        self._spool.settle(head, cut, tail)
        self.size = self._spool.size
        if self._id is None and self.size <= self._part_bytes:
            await self._put()
        else:
            while self._next < self.size:
                await self._dispatch(min(self._length(), self.size - self._next))
            await self._take_slot()
            self._send(1, 0, min(self._part_bytes, self.size))
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._check()
            await self._complete()
        self._over = True
        self._spool.close()

    async def abort(self) -> None:
        if self._over:
            return
        self._over = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._spool.close()
        if self._id is not None:
            with contextlib.suppress(PackhouseError, Failure):
                await self._calls.call(
                    "abort_multipart_upload", self._target | {"UploadId": self._id}, consume=_nothing
                )

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._over:
            raise ValueError("the upload is over")

    def _length(self) -> int:
        """Bytes of the next part: larger in steps, so that ten thousand parts hold any pack."""
        done = len(self._sums)
        return self._part_bytes * (1 if done < 1000 else 4 if done < 4000 else 16)

    async def _dispatch(self, length: int) -> None:
        if len(self._sums) + 2 > PARTS_MAX:
            raise StoreUnavailable(f"{self.key} has more than {PARTS_MAX} parts.", operation="upload")
        if self._id is None:
            with told("upload", self.key):
                self._id = await self._calls.call("create_multipart_upload", self._target, consume=_upload_id)
        await self._take_slot()
        self._send(len(self._sums) + 2, self._next, length)
        self._next += length

    async def _take_slot(self) -> None:
        await self._slots.acquire()
        try:
            self._check()
        except BaseException:
            self._slots.release()
            raise

    def _send(self, number: int, offset: int, length: int) -> None:
        if number > 1:
            self._sums[number] = b""
        task = asyncio.get_running_loop().create_task(self._part(number, offset, length))
        self._tasks.add(task)
        task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._slots.release()
        if not task.cancelled() and self._error is None:
            self._error = task.exception()

    async def _part(self, number: int, offset: int, length: int) -> None:
        data, checksum = await asyncio.to_thread(self._load, offset, length)
        what = f"part {number}"

        async def part(answer: Answer) -> dict[str, Any]:
            if not answer.get("ETag"):
                raise wrong(f"{what} was taken without an ETag")
            if not s3checks.etag_is(answer, checksum, what):
                self._opaque = True
            found = {"PartNumber": number, "ETag": answer["ETag"]}
            return found | {name: answer[name] for name in answer if name.startswith("Checksum") and answer[name]}

        with told("upload", self.key):
            self._parts[number] = await self._calls.call(
                "upload_part",
                lambda: self._sending(data, checksum) | {"PartNumber": number, "UploadId": self._id},
                consume=part,
                size=length,
                patience=_PATIENCE,
                attempts=max(_TRIES, self._calls.place.attempts),
            )
        self._sums[number] = checksum

    def _load(self, offset: int, length: int) -> tuple[bytes, bytes]:
        data = self._spool.read(offset, length)
        if len(data) != length:
            raise StoreUnavailable("The local disk lost bytes of an upload.", operation="spool")
        return data, s3checks.digest(data)

    def _sending(self, data: bytes, checksum: bytes) -> dict[str, Any]:
        return self._target | sending(data, checksum)

    async def _put(self) -> None:
        data, checksum = await asyncio.to_thread(self._load, 0, self.size)
        with told("upload", self.key):
            await put(self._calls, lambda: self._sending(data, checksum), checksum, len(data))

    async def _complete(self) -> None:
        parts = [self._parts[number] for number in sorted(self._parts)]
        sums = md5(b"".join(self._sums[number] for number in sorted(self._sums)), usedforsecurity=False)
        etag = f"{sums.hexdigest()}-{len(parts)}"
        parameters = self._target | {"UploadId": self._id, "MultipartUpload": {"Parts": parts}}
        with told("upload", self.key):
            try:
                made = await self._calls.call(
                    "complete_multipart_upload", parameters, consume=_etag, patience=_PATIENCE
                )
            except Failure as failure:
                if failure.kind is not Kind.NO_UPLOAD:
                    raise
                made = ""  # an earlier try may have been carried out
            if made == etag:
                return
            # The answer says nothing that we know: the object itself does.
            try:
                await self._calls.call("head_object", self._target, consume=self._is_whole(etag))
            except Failure as failure:
                if failure.kind is not Kind.MISSING:
                    raise
                raise Failure(Kind.REFUSED, "it has lost the upload", reason="no_upload") from failure

    def _is_whole(self, etag: str) -> Callable[[Answer], Any]:
        async def check(answer: Answer) -> None:
            if answer.get("ContentLength") != self.size:
                raise wrong(f"it has {answer.get('ContentLength')} bytes there instead of {self.size}", "short_answer")
            there = str(answer.get("ETag", "")).strip('"')
            if not self._opaque and there.endswith(f"-{len(self._parts)}") and there != etag:
                raise wrong("its checksum there is that of other bytes", "wrong_checksum")

        return check


def sending(data: bytes, checksum: bytes) -> dict[str, Any]:
    """The parameters of a body."""
    # A large one is sent in pieces, so that the loop is not held up.
    body = io.BytesIO(data) if len(data) >= _LARGE else data
    return {"Body": body, "ContentMD5": s3checks.header(checksum)}


async def put(calls: Calls, parameters: Callable[[], dict[str, Any]], checksum: bytes, size: int) -> None:
    """A plain write of `size` bytes. Failure."""

    async def check(answer: Answer) -> None:
        s3checks.etag_is(answer, checksum, "what was written")

    await calls.call("put_object", parameters, consume=check, size=size)


async def _nothing(answer: Answer) -> None:
    return None


async def _upload_id(answer: Answer) -> str:
    if not answer.get("UploadId"):
        raise wrong("it began an upload without an id")
    return str(answer["UploadId"])


async def _etag(answer: Answer) -> str:
    return str(answer.get("ETag", "")).strip('"')
