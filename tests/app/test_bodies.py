"""Bodies of requests that do not come, or not all of them."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx

from tests.support.processes import settled
from tests.support.service import Running, serving


def send(running: Running, data: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", httpx.URL(running.url).port or 0))
    client.sendall(
        b"PUT /v1/repos/tests/new HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: 1000\r\n\r\n" + data
    )
    return client


def test_a_client_that_leaves_within_its_body(tmp_path: Path) -> None:
    with serving(tmp_path / "store") as running:
        send(running, b'{"url"').close()
        assert settled(lambda: running.client.get("/metrics").text.count('operation="putRepo"') > 0, True)
        assert running.client.get("/v1/repos").json()["repositories"] == []
        assert "failed" not in running.log.read_text()
        assert "Traceback" not in running.log.read_text()


def test_a_body_that_does_not_come(tmp_path: Path) -> None:
    with serving(tmp_path / "store") as running, send(running, b'{"url"') as client:
        client.settimeout(60)
        answer = b""
        while piece := client.recv(4096):
            answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 ")
        assert b"application/problem+json" in head
        assert b'"request_timeout"' in body
