"""An S3 server that fails in every way that we know of, one request at a time: a proxy in front of a real SeaweedFS.

Nothing that was acknowledged is lost, nothing half is visible, errors are typed and name the operation of the store.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.ingest import Outcome, ingest
from app.registry import Registry
from app.settings import Settings
from app.source import local
from pack.errors import PackhouseError, StoreUnavailable
from storage import generations, layout, publish
from storage.fsck import fsck
from storage.open import prepare
from storage.publish import Lost, Won
from storage.repository import ReadSettings, Repositories
from storage.s3 import S3Backend
from storage.s3place import parse
from tests.services import running
from tests.services.base import BUCKET
from tests.storage.support import NAME, OWNER, register
from tests.support import faultproxy as faults
from tests.support.faultproxy import FaultProxy
from tests.support.generate import Repositories as Generated
from tests.support.git import Plumbing, git, init

PART = 5 << 20  # the least that S3 takes
STALL = 1.0
ONCE = {
    "503": faults.refuse(503, "SlowDown"),
    "500 and done": faults.fail_after(500, "InternalError"),
    "cut before": faults.cut_before,
    "cut after": faults.cut_after,
    "stall": faults.stall(2 * STALL),
    "stall and done": faults.stall(2 * STALL, carried_out=True),
    "wrong etag": faults.alter(faults.wrong_etag),
    "twice": faults.twice,
    "half an answer": faults.alter(lambda answer: replace(answer, cut_at=len(answer.body) // 2)),
}


def rarely(*names: str) -> list[Any]:
    """Parameters that only long runs try."""
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.fixture(scope="module")
def proxy() -> Iterator[FaultProxy]:
    with FaultProxy(running.get("seaweed").endpoint) as made:
        yield made


@pytest.fixture
async def backend(proxy: FaultProxy, tmp_path: Path) -> AsyncIterator[S3Backend]:
    proxy.reset()
    made = behind(proxy, tmp_path)
    yield made
    proxy.reset()
    await made.close()


@pytest.fixture
async def hasty(proxy: FaultProxy, tmp_path: Path) -> AsyncIterator[S3Backend]:
    """One that does not wait long."""
    proxy.reset()
    made = behind(proxy, tmp_path, timeout=f"{STALL}")
    yield made
    proxy.reset()
    await made.close()


def behind(proxy: FaultProxy, folder: Path, **options: str) -> S3Backend:
    query = {"timeout": "10", "attempts": "4"} | options
    text = "&".join(f"{name}={value}" for name, value in query.items())
    place = parse(f"s3://{BUCKET}/faults-{secrets.token_hex(6)}?endpoint={proxy.endpoint}&{text}")
    return S3Backend(place, spool=folder / "spool", part_bytes=PART)


async def keys(backend: S3Backend) -> list[str]:
    return [item.key async for item in backend.list("")]


async def send(backend: S3Backend, content: bytes, key: str = "p/pack") -> None:
    """An upload that behaves as that of a pack does."""
    upload = await backend.upload(key)
    try:
        for start in range(0, len(content), 10_000):
            await upload.write(content[start : start + 10_000])
        await upload.finish(b"head")
    except BaseException:
        await upload.abort()
        raise


# Uploads.


@pytest.mark.parametrize("fault", ONCE)
async def test_an_upload_survives_any_one_fault(hasty: S3Backend, proxy: FaultProxy, fault: str) -> None:
    backend = hasty
    content = random.randbytes(2 * PART + 1000)
    await send(backend, content)
    operations = proxy.operations()
    assert operations[0] == "CreateMultipartUpload"
    assert operations[-1] == "CompleteMultipartUpload"
    assert operations.count("UploadPart") >= 3
    for number in range(1, 6):
        proxy.reset(faults.once(ONCE[fault], [number]))
        content = random.randbytes(2 * PART + 1000)
        await send(backend, content, f"p/{number}")
        proxy.reset()
        assert await backend.get(f"p/{number}") == b"head" + content[4:]


async def test_the_first_part_is_sent_last(backend: S3Backend, proxy: FaultProxy) -> None:
    """It waits for the end, which may replace the header; only what has been held back for the end is sent with it."""

    def numbers() -> list[str]:
        sent = [request.target.partition("partNumber=")[2] for request in proxy.requests]
        return [number.partition("&")[0] for number in sent if number]

    content = random.randbytes(4 * PART)
    upload = await backend.upload("p/pack")
    await upload.write(content)
    while len(numbers()) < 2:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    assert sorted(numbers()) == ["2", "3"]
    await upload.finish(b"head")
    assert sorted(numbers()[2:]) == ["1", "4"]
    assert await backend.get("p/pack") == b"head" + content[4:]


@pytest.mark.parametrize(
    "operation", ["CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "PutObject", "HeadObject"]
)
async def test_an_upload_that_cannot_be_done_leaves_nothing(
    backend: S3Backend, proxy: FaultProxy, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.s3upload._TRIES", 2)
    proxy.reset(faults.on(operation, faults.refuse(503, "SlowDown", Retry_After="2")))
    small = operation in ("PutObject", "HeadObject")
    size = 1000 if small else 3 * PART
    if operation == "HeadObject":
        await send(backend, bytes(size))  # nothing asks it, where the answer to the last request is complete
        return
    with pytest.raises(StoreUnavailable, match="failed to upload p/pack: it answered 503 SlowDown") as caught:
        await send(backend, bytes(size))
    assert caught.value.extra["operation"] == "upload"
    assert caught.value.retry_after == pickle.loads(pickle.dumps(caught.value)).retry_after == 2
    proxy.reset()
    assert await keys(backend) == []
    assert await backend.sweep("", -3600) == 0


async def test_an_upload_whose_abort_fails_is_swept(backend: S3Backend, proxy: FaultProxy) -> None:
    proxy.reset(faults.on("AbortMultipartUpload", faults.cut_before))
    upload = await backend.upload("p/pack")
    await upload.write(bytes(3 * PART))
    await upload.abort()
    proxy.reset()
    assert await backend.sweep("p/", 3600) == 0
    assert await backend.sweep("p/", -3600) == 1
    assert await keys(backend) == []


@pytest.mark.parametrize("server", ["seaweed", "ceph", "minio"])
@pytest.mark.parametrize("fault", ["cut after", "500 and done"])
async def test_a_lost_answer_to_the_end_of_an_upload(server: str, fault: str, tmp_path: Path) -> None:
    """Asked again, some servers say the same again and others know no such upload any more."""
    with FaultProxy(running.get(server).endpoint) as proxy:
        backend = behind(proxy, tmp_path)
        content = random.randbytes(2 * PART)
        proxy.reset(faults.on("CompleteMultipartUpload", ONCE[fault], 1))
        await send(backend, content)
        assert proxy.operations().count("CompleteMultipartUpload") == 2
        assert await backend.get("p/pack") == b"head" + content[4:]
        # One that was never carried out, and is not known any more, is no success.
        gone = faults.refuse(404, "NoSuchUpload")
        proxy.reset(faults.on("CompleteMultipartUpload", gone))
        with pytest.raises(StoreUnavailable, match="lost the upload"):
            await send(backend, content, "p/other")
        proxy.reset()
        assert await keys(backend) == ["p/pack"]
        await backend.close()


async def test_wrong_etags_of_parts_are_not_believed(
    backend: S3Backend, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.s3upload._TRIES", 2)
    proxy.reset(faults.on("UploadPart", faults.alter(faults.wrong_etag)))
    with pytest.raises(StoreUnavailable, match=r"checksum of part \d is that of other bytes") as caught:
        await send(backend, random.randbytes(3 * PART))
    assert caught.value.extra["reason"] == "wrong_checksum"
    proxy.reset()
    assert await keys(backend) == []
    # One that is of no kind we know is not compared.
    proxy.reset(faults.on("UploadPart", faults.alter(lambda answer: answer.with_header("x-amz-id-2", "x"))))
    await send(backend, random.randbytes(3 * PART))


async def test_an_error_in_an_answer_that_says_200(
    backend: S3Backend, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = faults.error(200, "InternalError")
    fault = faults.alter(lambda answer: replace(bad, status=200))
    proxy.reset(faults.on("CompleteMultipartUpload", fault, 1))
    content = random.randbytes(2 * PART)
    await send(backend, content)
    assert await backend.get("p/pack") == b"head" + content[4:]

    async def instead(exchange: faults.Exchange) -> None:
        await exchange.send(replace(bad, status=200))

    proxy.reset(faults.on("CompleteMultipartUpload", instead))
    with pytest.raises(StoreUnavailable, match="failed to upload p/other"):
        await send(backend, content, "p/other")
    proxy.reset()
    assert await keys(backend) == ["p/pack"]
    for operation in ("PutObject", "ListObjectsV2"):
        proxy.reset(faults.on(operation, instead))
        with pytest.raises(StoreUnavailable):
            await backend.put("x", b"1")
            await keys(backend)


async def test_back_pressure(backend: S3Backend, proxy: FaultProxy) -> None:
    """A sender is not ahead of the store by more than the parts under way."""
    proxy.reset(faults.on("UploadPart", faults.stall(5)))
    upload = await backend.upload("p/pack")
    for _ in range(5 * 7):
        if sum(operation == "UploadPart" for operation in proxy.operations()) >= 3:
            break
        await upload.write(bytes(PART // 7))
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await upload.write(bytes(4 * PART))
    assert time.monotonic() - begun > 0.4
    await upload.abort()


# Create-only writes.


@pytest.mark.parametrize("fault", ["cut after", "500 and done", "stall and done", "twice", "half an answer"])
async def test_a_win_whose_answer_was_lost_is_ours(hasty: S3Backend, proxy: FaultProxy, fault: str) -> None:
    backend = hasty
    await keys(backend)  # a connection is there, and is used again
    proxy.reset(faults.on("PutObject", ONCE[fault], 1))
    won = await backend.create("c", b"ours")
    proxy.reset()
    assert await backend.get("c") == b"ours"
    assert won or fault == "twice"  # the second arrival is told that it exists, and that is all we hear
    assert not await backend.create("c", b"theirs")


async def test_the_http_client_does_not_repeat_writes_by_itself(backend: S3Backend, proxy: FaultProxy) -> None:
    """It would, on a connection that was used before, and a conditional write would seem to have lost."""
    await backend.put("warm", b"")
    proxy.reset(faults.on("PutObject", faults.cut_after))
    assert await backend.create("c", b"ours")
    assert proxy.operations() == ["PutObject", "GetObject"]


@pytest.mark.parametrize("fault", ["503", "cut before", "stall", "cut after", "500 and done"])
async def test_a_loss_is_a_loss_whatever_happens(hasty: S3Backend, proxy: FaultProxy, fault: str) -> None:
    backend = hasty
    await backend.put("c", b"theirs")
    proxy.reset(faults.on("PutObject", ONCE[fault], 1))
    assert not await backend.create("c", b"ours")
    assert await backend.get("c") == b"theirs"


async def test_a_write_that_was_not_carried_out_is_repeated(hasty: S3Backend, proxy: FaultProxy) -> None:
    backend = hasty
    for fault in ("503", "cut before", "stall"):
        proxy.reset(faults.on("PutObject", ONCE[fault], 2))
        assert await backend.create(f"c/{fault.replace(' ', '-')}", b"ours")


async def test_another_conditional_write_under_way(backend: S3Backend, proxy: FaultProxy) -> None:
    proxy.reset(faults.on("PutObject", faults.refuse(409, "ConditionalRequestConflict"), 1))
    assert await backend.create("c", b"ours")
    proxy.reset(faults.on("PutObject", faults.refuse(409, "ConditionalRequestConflict"), 1))
    assert not await backend.create("c", b"ours")


async def test_what_cannot_be_known_is_said(backend: S3Backend, proxy: FaultProxy) -> None:
    proxy.reset(lambda request: faults.cut_after if request.operation == "PutObject" else faults.cut_before)
    with pytest.raises(StoreUnavailable, match="failed to create c: the connection failed") as caught:
        await backend.create("c", b"ours")
    assert caught.value.extra == {"operation": "create", "reason": "unreachable"}


@pytest.mark.parametrize("fault", ["cut after", "500 and done", "stall and done", "503", "cut before"])
async def test_publishing_with_lost_answers(hasty: S3Backend, proxy: FaultProxy, fault: str) -> None:
    backend = hasty
    base = await register(backend)
    for number in range(2, 5):
        manifest = await publish.prepare(backend, OWNER, NAME, base, refs=[], head=base.head)
        rival = replace(manifest, nonce="rival")
        proxy.reset(lambda request: ONCE[fault] if request.create_only and request.number == 1 else None)
        assert await publish.publish(backend, OWNER, NAME, manifest) == Won(manifest)
        proxy.reset()
        assert await publish.publish(backend, OWNER, NAME, rival) == Lost(manifest)
        assert await generations.newest(backend, OWNER, NAME) == manifest
        assert manifest.number == number
        base = manifest


# Reads.


@pytest.mark.parametrize("fault", [name for name in ONCE if name != "wrong etag"])
async def test_reads_survive_any_one_fault(hasty: S3Backend, proxy: FaultProxy, fault: str) -> None:
    backend = hasty
    value = random.randbytes(200_000)
    await backend.put("v", value)
    for call, wanted in (
        (lambda: backend.get("v"), value),
        (lambda: backend.read("v", 1000, 5000), value[1000:6000]),
        (lambda: backend.size("v"), len(value)),
        (lambda: keys(backend), ["v"]),
    ):
        proxy.reset(faults.once(ONCE[fault], [1]))
        assert await call() == wanted  # type: ignore[no-untyped-call]


def announced(size: int) -> faults.Fault:
    """A body that is too short, and says so."""
    return faults.alter(lambda answer: answer.with_body(answer.body[:size]))


async def test_wrong_answers_to_reads(backend: S3Backend, proxy: FaultProxy) -> None:
    value = random.randbytes(20_000)
    await backend.put("v", value)
    flipped = faults.alter(lambda answer: answer.with_body(bytes([answer.body[0] ^ 1]) + answer.body[1:]))
    elsewhere = faults.alter(lambda answer: answer.with_header("Content-Range", "bytes 7-106/20000"))
    for fault, get, read in (
        (announced(50), "wrong_checksum", "short_answer"),
        (announced(0), "wrong_checksum", "short_answer"),
        (flipped, "wrong_checksum", None),
        (elsewhere, None, "wrong_range"),
        (faults.alter(lambda answer: answer.with_header("Content-Range", "nonsense")), None, "wrong_range"),
    ):
        for call, reason in ((backend.get("v"), get), (backend.read("v", 5, 100), read)):
            proxy.reset(faults.on("GetObject", fault))
            if reason is None:
                call.close()
                continue
            with pytest.raises(StoreUnavailable) as caught:
                await call
            assert caught.value.extra["reason"] == reason
            assert len(proxy.requests) == 4
    proxy.reset(faults.on("GetObject", faults.alter(lambda answer: answer.with_body(b"<html>")), 1))
    assert await backend.read("v", 5, 100) == value[5:105]


async def test_servers_that_give_no_ranges(backend: S3Backend, proxy: FaultProxy) -> None:
    """As `rclone serve s3` does, and some caches: 200 for a range, or the whole value."""
    value = random.randbytes(3_000_000)
    await backend.put("v", value)
    await backend.put("empty", b"")

    async def whole(exchange: faults.Exchange) -> None:
        raw = exchange.request.raw
        # The range is not signed away: it is left out of the answer instead.
        answer = await exchange.forward()
        assert answer.status in (206, 416)
        assert raw
        await exchange.send(faults.Answer(200, (("ETag", '"x"'),)).with_body(value))

    plain = faults.alter(lambda answer: replace(answer, status=200 if answer.status == 206 else answer.status))
    for fault in (whole, plain):
        for offset, length in ((0, 10), (1_500_000, 100), (2_999_990, 10), (2_999_990, 100), (0, 3_000_000)):
            proxy.reset(faults.on("GetObject", fault))
            assert await backend.read("v", offset, length) == value[offset : offset + length]
    proxy.reset(faults.on("GetObject", plain))
    assert await backend.read("empty", 0, 5) == b""
    assert await backend.read("v", 3_000_000, 5) == b""


async def test_a_store_that_is_away(backend: S3Backend, proxy: FaultProxy) -> None:
    proxy.reset(lambda request: faults.cut_before)
    calls = {
        "get": backend.get("k"),
        "read": backend.read("k", 0, 1),
        "size": backend.size("k"),
        "put": backend.put("k", b""),
        "create": backend.create("k", b""),
        "delete": backend.delete("k"),
        "list": keys(backend),
        "sweep": backend.sweep("", 0),
    }
    for operation, call in calls.items():
        with pytest.raises(StoreUnavailable, match=f"failed to {operation} ") as caught:
            await call
        assert caught.value.extra["operation"] == operation
        assert caught.value.status == 503
        assert caught.value.retry_after is not None


async def test_a_stall_ends(hasty: S3Backend, proxy: FaultProxy) -> None:
    backend = hasty
    proxy.reset(faults.on("GetObject", faults.stall(30)))
    begun = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"did not answer in time \(4 tries\)"):
        await backend.get("k")
    assert time.monotonic() - begun < 20


async def test_the_server_says_when_to_come_back(backend: S3Backend, proxy: FaultProxy) -> None:
    proxy.reset(faults.on("GetObject", faults.refuse(503, "SlowDown", Retry_After="1"), 1))
    begun = time.monotonic()
    with pytest.raises(PackhouseError, match="has no k"):
        await backend.get("k")
    assert time.monotonic() - begun >= 1


# What no repetition helps against.


@pytest.mark.parametrize(
    ("status", "code", "headers", "reason", "text"),
    [
        (403, "RequestTimeTooSkewed", {"Date": "Mon, 30 Nov 2020 00:00:00 GMT"}, "clock_skew", "seconds ahead of"),
        (403, "AccessDenied", {"Date": "Mon, 30 Nov 2099 00:00:00 GMT"}, "clock_skew", "seconds behind"),
        (403, "AccessDenied", {}, "access_denied", "does not allow that"),
        (403, "InvalidAccessKeyId", {}, "credentials", "refused the credentials"),
        (403, "SignatureDoesNotMatch", {}, "credentials", "refused the credentials"),
        (400, "ExpiredToken", {}, "credentials", "refused the credentials"),
        (404, "NoSuchBucket", {}, "no_bucket", "no such bucket"),
        (400, "InvalidRequest", {}, "refused", "400 InvalidRequest"),
        (501, "NotImplemented", {}, "refused", "501 NotImplemented"),
    ],
)
async def test_refusals(
    backend: S3Backend, proxy: FaultProxy, status: int, code: str, headers: dict[str, str], reason: str, text: str
) -> None:
    for call in (backend.get("k"), backend.create("k", b"x"), send(backend, bytes(1000)), keys(backend)):
        proxy.reset(lambda request: faults.refuse(status, code, **headers))
        with pytest.raises(StoreUnavailable, match=text) as caught:
            await call
        assert caught.value.extra["reason"] == reason
        assert len(proxy.requests) == 1


async def test_a_wrong_clock_before_a_real_server(backend: S3Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    import botocore.auth

    real = botocore.auth.get_current_datetime
    from datetime import timedelta

    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *a, **k: real(*a, **k) - timedelta(hours=3))
    with pytest.raises(StoreUnavailable) as caught:
        await backend.get("k")
    assert caught.value.extra["reason"] in ("clock_skew", "access_denied")


async def test_wrong_credentials_before_a_real_server(
    proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.reset()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2hunter2hunter2")
    backend = behind(proxy, tmp_path)
    with pytest.raises(StoreUnavailable) as caught:
        await prepare(backend)
    assert caught.value.extra["reason"] == "credentials"
    assert "hunter2" not in str(caught.value)
    await backend.close()
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name)
    backend = behind(proxy, tmp_path)
    with pytest.raises(StoreUnavailable, match="no credentials were found"):
        await prepare(backend)
    await backend.close()


async def test_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
    place = parse("s3://bucket?endpoint=http://127.0.0.1:1&attempts=2")
    backend = S3Backend(place, spool=tmp_path)
    with pytest.raises(StoreUnavailable, match="failed to get k: the connection failed"):
        await backend.get("k")
    await backend.close()


# Whole ingests.


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose pack has several parts."""
    p = Plumbing(init(tmp_path_factory.mktemp("source") / "source.git"))
    rng = random.Random(7)
    parent: list[str] = []
    for number in range(4):
        rows = [("100644", b"f%d" % each, p.blob(rng.randbytes(450_000))) for each in range(3)]
        parent = [p.commit(f"number {number}", p.tree(rows), *parent)]
        p.ref(f"refs/heads/n{number}", parent[0])
    p.ref("refs/heads/main", parent[0])
    git(p.path, "repack", "-adq")
    return p.path


async def bring(backend: S3Backend, source: Path) -> Outcome:
    if await generations.newest(backend, OWNER, NAME) is None:
        settings = Settings(store=backend.url)
        await Registry(backend, Repositories(backend), settings).register_local(OWNER, NAME, source.as_uri())
    async with local(source) as opened:
        return await ingest(backend, OWNER, NAME, opened)


async def is_whole(backend: S3Backend, source: Path) -> None:
    report = await fsck(backend, OWNER, NAME)
    assert report.findings == []
    listed = git(source, "for-each-ref", "--format=%(refname) %(objectname)").decode().splitlines()
    newest = await generations.newest(backend, OWNER, NAME)
    assert newest is not None
    refs = await publish.all_refs(backend, OWNER, NAME, newest)
    assert [f"{ref.name.decode()} {ref.oid.hex()}" for ref in refs] == listed


@pytest.mark.parametrize("fault", ["cut after", *rarely("503", "cut before", "500 and done", "half an answer")])
async def test_an_ingest_survives_any_one_fault(proxy: FaultProxy, tmp_path: Path, source: Path, fault: str) -> None:
    proxy.reset()
    first = behind(proxy, tmp_path)
    await bring(first, source)
    total = len(proxy.requests)
    assert {"CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "PutObject"} <= set(proxy.operations())
    await first.close()
    for number in range(1, total + 1):
        backend = behind(proxy, tmp_path)
        proxy.reset(faults.once(ONCE[fault], [number]))
        outcome = await bring(backend, source)
        assert outcome.generation == 2
        proxy.reset()
        await is_whole(backend, source)
        await backend.close()


@pytest.mark.parametrize("fault", ["cut before", *rarely("503", "cut after")])
async def test_a_store_that_goes_away_during_an_ingest(
    proxy: FaultProxy, tmp_path: Path, source: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From each request on all others fail; when it is back, the repository is as before or as after."""
    monkeypatch.setattr("storage.s3upload._TRIES", 1)
    monkeypatch.setattr("storage.s3calls._PAUSE", 0.005)
    proxy.reset()
    first = behind(proxy, tmp_path, attempts="1")
    await bring(first, source)
    total = len(proxy.requests)
    await first.close()
    ends = set()
    for number in range(1, total + 1):
        backend = behind(proxy, tmp_path, attempts="1")
        proxy.reset(faults.since(ONCE[fault], number))
        try:
            acknowledged: Outcome | None = await bring(backend, source)
        except StoreUnavailable as error:
            assert error.extra["operation"] in error.detail
            acknowledged = None
        proxy.reset()
        newest = await generations.newest(backend, OWNER, NAME)
        state = newest.state if newest is not None else "nothing"
        ends.add(state)
        if acknowledged is not None:
            assert newest is not None
            assert newest.number == acknowledged.generation
        if state == "ready":
            await is_whole(backend, source)
        # Whatever it left behind holds nobody up.
        outcome = await bring(backend, source)
        assert outcome.generation == 2
        await is_whole(backend, source)
        await backend.close()
    assert ends == {"nothing", "registered", "ready"}


async def test_listings_that_lag(backend: S3Backend, proxy: FaultProxy, source: Path) -> None:
    """Nothing that is published or read rests on a listing."""

    def plan(request: faults.Request) -> faults.Fault | None:
        listing = request.operation in ("ListObjectsV2", "ListMultipartUploads")
        return faults.alter(faults.without_keys) if listing else None

    proxy.reset(plan)
    await bring(backend, source)
    await is_whole(backend, source)
    readers = Repositories(backend, ReadSettings(freshness=0))
    assert (await readers.current(OWNER, NAME)).number == 2
    assert [row async for row in readers.list()] == []
    proxy.reset()
    assert [(owner, name) async for owner, name, _ in readers.list()] == [(OWNER, NAME)]


async def test_a_store_that_cannot_be_proven(backend: S3Backend, proxy: FaultProxy) -> None:
    """What a server lacks is named."""

    async def ignored(exchange: faults.Exchange) -> None:
        await exchange.send(faults.Answer(204, ()))

    await prepare(backend)
    for plan, lack in (
        (faults.on("ListObjectsV2", faults.alter(faults.without_keys)), "listing"),
        (faults.on("GetObject", announced(3)), "failed to get"),
        (faults.on("AbortMultipartUpload", ignored), "uploads"),
    ):
        proxy.reset(plan)
        with pytest.raises(StoreUnavailable, match=lack):
            await prepare(backend)


async def test_a_server_without_create_only_writes_is_refused(tmp_path: Path) -> None:
    server = running.get("rclone")
    backend = S3Backend(parse(server.url("proof")), spool=tmp_path)
    with pytest.raises(StoreUnavailable, match=r"fails at create-only writes: [2-8] of 8 won one name") as caught:
        await prepare(backend)
    await backend.close()
    assert caught.value.extra["lacks"] == "create-only writes"


async def test_settled_names(backend: S3Backend, source: Path, repositories: Generated) -> None:
    """Ingest after ingest of different repositories through a store with parts: each generation is whole."""
    await bring(backend, source)
    async with local(repositories["merges"]) as opened:
        outcome = await ingest(backend, OWNER, NAME, opened)
    assert outcome.generation == 3
    await is_whole(backend, repositories["merges"])
    assert layout.latest(OWNER, NAME) in await keys(backend)
    assert os.listdir(backend._spool or "") == []
