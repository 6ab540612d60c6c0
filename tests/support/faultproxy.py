"""A proxy in front of an S3 server that does to chosen requests what networks and servers do now and then.

`proxy.plan` is asked for each request and returns a fault, or None to pass it on. A fault is a coroutine function that
gets the exchange: it may forward the request (as often as it likes), alter the answer, send it, or cut the connection.
Requests are signed for the proxy's address and passed on as they are, so the server takes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Self
from urllib.parse import parse_qs, urlsplit

_HEAD_MAX = 1 << 20


@dataclass
class Request:
    """`number` counts from 1; `operation` is the name that S3 gives to it; `key` lies in the bucket."""

    number: int
    method: str
    target: str
    headers: dict[str, str]
    raw: bytes = field(repr=False)

    @property
    def key(self) -> str:
        return urlsplit(self.target).path.lstrip("/").partition("/")[2]

    @property
    def operation(self) -> str:
        query = parse_qs(urlsplit(self.target).query, keep_blank_values=True)
        if self.method == "PUT":
            return "UploadPart" if "partNumber" in query else "PutObject"
        if self.method == "POST":
            return "CreateMultipartUpload" if "uploads" in query else "CompleteMultipartUpload"
        if self.method == "DELETE":
            return "AbortMultipartUpload" if "uploadId" in query else "DeleteObject"
        if self.method == "HEAD":
            return "HeadObject"
        if "uploads" in query:
            return "ListMultipartUploads"
        return "ListObjectsV2" if "list-type" in query else "GetObject"

    @property
    def create_only(self) -> bool:
        return self.headers.get("if-none-match") == "*"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""
    cut_at: int | None = None
    """Bytes of the body that are sent before the connection breaks; the length that is announced stays."""

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")

    def with_header(self, name: str, value: str) -> Self:
        kept = tuple((key, old) for key, old in self.headers if key.lower() != name.lower())
        return replace(self, headers=(*kept, (name, value)))

    def with_body(self, body: bytes) -> Self:
        """Another body, of the length that is announced."""
        return replace(self.with_header("Content-Length", str(len(body))), body=body)


class Exchange:
    """One request, and its answer."""

    def __init__(self, proxy: FaultProxy, request: Request, writer: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.request = request
        self._writer = writer

    async def forward(self) -> Answer:
        """The server's answer, whole."""
        reader, writer = await asyncio.open_connection(*self.proxy.upstream, limit=_HEAD_MAX)
        try:
            writer.write(self.request.raw)
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            while head.startswith(b"HTTP/1.1 100"):
                head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = tuple((k.strip(), v.strip()) for k, v in (line.split(":", 1) for line in lines if line))
            answer = Answer(int(first.split(" ")[1]), headers)
            if self.request.method == "HEAD" or answer.status in (204, 304):
                return answer
            body = await _body(reader, {key.lower(): value for key, value in headers})
            kept = tuple(pair for pair in headers if pair[0].lower() != "transfer-encoding")
            return replace(answer, headers=kept).with_body(body)
        finally:
            writer.close()

    async def send(self, answer: Answer) -> None:
        lines = [f"HTTP/1.1 {answer.status} X", *(f"{key}: {value}" for key, value in answer.headers)]
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        if answer.cut_at is not None:
            self._writer.write(answer.body[: answer.cut_at])
            await self._writer.drain()
            self.cut()
        if self.request.method != "HEAD":
            self._writer.write(answer.body)
        await self._writer.drain()

    def cut(self) -> None:
        """Break the connection without a word."""
        raise _Cut


Fault = Callable[[Exchange], Awaitable[None]]
Plan = Callable[[Request], Fault | None]


class _Cut(Exception):
    pass


class FaultProxy:
    """Runs in a thread of its own until `close`. `requests` are those that came, in order. `tls` is for its clients."""

    def __init__(self, endpoint: str, tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(endpoint)
        assert parts.hostname is not None
        assert parts.port is not None
        self.upstream = (parts.hostname, parts.port)
        self.plan: Plan = lambda request: None
        self.requests: list[Request] = []
        self._sock = socket.create_server(("127.0.0.1", 0))
        self.port = self._sock.getsockname()[1]
        self.endpoint = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def reset(self, plan: Plan | None = None) -> None:
        self.requests = []
        self.plan = plan or (lambda request: None)

    def operations(self) -> list[str]:
        return [request.operation for request in self.requests]

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self) -> None:
        server = await asyncio.start_server(self._serve, sock=self._sock, limit=_HEAD_MAX, ssl=self._tls)
        await self._stop.wait()
        server.close()
        # A connection that was accepted just now gets its tasks only some rounds later, one after the other; and what
        # was closed is let go in the round after that.
        quiet = 0
        while quiet < 5:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            quiet = 0 if tasks else quiet + 1
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0.005)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Once its client has left, nothing that lives knows of a task that waits for the server's answer.
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(_Cut, OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                first, *lines = head.decode("latin-1").split("\r\n")
                method, target, _ = first.split(" ")
                headers = {k.strip().lower(): v.strip() for k, v in (line.split(":", 1) for line in lines if line)}
                raw = head
                if headers.get("transfer-encoding", "").lower() == "chunked":
                    raw += await _chunks(reader)
                elif "content-length" in headers:
                    raw += await _body(reader, headers)
                request = Request(len(self.requests) + 1, method, target, headers, raw)
                self.requests.append(request)
                fault = self.plan(request) or passed_on
                await fault(Exchange(self, request, writer))
        writer.close()


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    """A chunked body as it came."""
    raw = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        raw += line
        size = int(line.split(b";")[0], 16)
        raw += await reader.readexactly(size + 2)
        if not size:
            return raw


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        pieces = []
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            pieces.append(await reader.readexactly(size))
            await reader.readexactly(2)
        await reader.readuntil(b"\r\n")
        return b"".join(pieces)
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    return await reader.read()


# Faults.


async def passed_on(exchange: Exchange) -> None:
    await exchange.send(await exchange.forward())


async def cut_before(exchange: Exchange) -> None:
    """The request never arrives."""
    exchange.cut()


async def cut_after(exchange: Exchange) -> None:
    """The request is carried out, and its answer is lost."""
    await exchange.forward()
    exchange.cut()


def refuse(status: int, code: str, **headers: str) -> Fault:
    """The request is answered with an error, and not carried out."""

    async def fault(exchange: Exchange) -> None:
        await exchange.send(error(status, code, **headers))

    return fault


def fail_after(status: int, code: str) -> Fault:
    """The request is carried out, and then said to have failed."""

    async def fault(exchange: Exchange) -> None:
        await exchange.forward()
        await exchange.send(error(status, code))

    return fault


def stall(seconds: float, *, carried_out: bool = False) -> Fault:
    """No answer for so long, and none after that."""

    async def fault(exchange: Exchange) -> None:
        if carried_out:
            await exchange.forward()
        await asyncio.sleep(seconds)
        exchange.cut()

    return fault


def alter(change: Callable[[Answer], Answer]) -> Fault:
    """The answer is another one than the server's."""

    async def fault(exchange: Exchange) -> None:
        await exchange.send(change(await exchange.forward()))

    return fault


async def twice(exchange: Exchange) -> None:
    """The request arrives twice; the second answer is given."""
    await exchange.forward()
    await exchange.send(await exchange.forward())


def wrong_etag(answer: Answer) -> Answer:
    return answer.with_header("ETag", f'"{"0" * 32}"') if answer.header("ETag") else answer


def without_keys(answer: Answer) -> Answer:
    """A listing that has not heard of any key yet."""
    body = re.sub(rb"<(Contents|CommonPrefixes|Upload)>.*?</\1>", b"", answer.body, flags=re.DOTALL)
    return answer.with_body(re.sub(rb"<IsTruncated>true", b"<IsTruncated>false", body))


def error(status: int, code: str, **headers: str) -> Answer:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Answer(status, (("Content-Type", "application/xml"), *named)).with_body(body)


# Plans.


def once(fault: Fault, numbers: Iterable[int]) -> Plan:
    wanted = set(numbers)
    return lambda request: fault if request.number in wanted else None


def on(operation: str, fault: Fault, times: int | None = None) -> Plan:
    """The first so many requests of that operation, or all."""
    left = [times]

    def plan(request: Request) -> Fault | None:
        if request.operation != operation or left[0] == 0:
            return None
        if left[0] is not None:
            left[0] -= 1
        return fault

    return plan


def since(fault: Fault, number: int) -> Plan:
    return lambda request: fault if request.number >= number else None
