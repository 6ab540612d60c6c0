"""Connections: the checked address is the one connected to, and the host's name stays for TLS and the Host header."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import httpcore
import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from app.fetch import Policy, Timeouts
from app.fetch.transport import Backend, Transport, trusted
from pack.errors import UpstreamProtocol, UpstreamRefused, UpstreamTimeout, UpstreamUnreachable
from tests.app.fetching import LOOPBACK, QUICK, clone
from tests.support.cases import Cases

NAME = "git.example.org"


class Stream(httpcore.AsyncNetworkStream):
    async def aclose(self) -> None:
        pass


class Wire(httpcore.AsyncNetworkBackend):
    """Notes where connections go; those to `dead` addresses fail."""

    def __init__(self, *dead: str) -> None:
        self.dead = dead
        self.went: list[str] = []

    async def connect_tcp(self, host: str, port: int, **options: object) -> httpcore.AsyncNetworkStream:  # type: ignore[override]
        self.went.append(host)
        if host in self.dead:
            raise httpcore.ConnectError("refused")
        return Stream()


def answering(*addresses: str) -> Policy:
    async def resolver(host: str, port: int) -> list[str]:
        return list(addresses)

    return Policy(resolver=resolver)


async def test_the_next_address_is_tried() -> None:
    wire = Wire("1.1.1.1", "1.0.0.1")
    await Backend(answering("1.1.1.1", "1.0.0.1", "8.8.8.8", "9.9.9.9"), QUICK, wire).connect_tcp(NAME, 443)
    assert wire.went == ["1.1.1.1", "1.0.0.1", "8.8.8.8"]
    wire = Wire("1.1.1.1")
    with pytest.raises(UpstreamUnreachable, match=NAME):
        await Backend(answering("1.1.1.1"), QUICK, wire).connect_tcp(NAME, 443)
    wire = Wire(*(f"1.1.1.{n}" for n in range(10)))
    with pytest.raises(UpstreamUnreachable):
        await Backend(answering(*wire.dead), QUICK, wire).connect_tcp(NAME, 443)
    assert len(wire.went) == 4


async def test_no_connection_is_made_where_one_address_is_refused() -> None:
    wire = Wire()
    with pytest.raises(UpstreamRefused):
        await Backend(answering("1.1.1.1", "127.0.0.1"), QUICK, wire).connect_tcp(NAME, 443)
    assert wire.went == []


async def test_unix_sockets_are_refused() -> None:
    with pytest.raises(UpstreamRefused):
        await Backend(Policy(), QUICK).connect_unix_socket("/var/run/docker.sock")


async def test_a_slow_resolver() -> None:
    import asyncio

    async def resolver(host: str, port: int) -> list[str]:
        await asyncio.sleep(60)
        return []

    with pytest.raises(UpstreamTimeout) as caught:
        await Backend(Policy(resolver=resolver), Timeouts(resolve=0.05)).connect_tcp(NAME, 443)
    assert caught.value.extra["phase"] == "resolve"


async def test_environment_has_no_say(
    cases: Cases, upstream: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ada password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    server = upstream(cases["h11"].root)  # type: ignore[operator]
    listed, _ = await clone(server.repo("h11"))
    assert len(listed.refs) == 4
    assert all("authorization" not in request.headers for request in server.requests)


# TLS


def certificate(folder: Path, name: str) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path


class Secure:
    """A TLS server that says one thing, and notes the name asked for and the request."""

    def __init__(self, pem: Path) -> None:
        self.names: list[str | None] = []
        self.heads: list[bytes] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(pem)
        self._context.sni_callback = lambda _, name, __: self.names.append(name)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._socket.accept()
            except OSError:
                return
            try:
                with self._context.wrap_socket(plain, server_side=True) as secure:
                    self.heads.append(secure.recv(65536))
                    secure.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            except OSError:
                plain.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Secure]:
    server = Secure(certificate(tmp_path, NAME))
    yield server
    server.close()


def at_home() -> Policy:
    async def resolver(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    return Policy(allow=["127.0.0.0/8"], resolver=resolver)


async def get(transport: Transport, url: str) -> bytes:
    try:
        response = await transport.handle_async_request(httpx.Request("GET", url))
        return b"".join([part async for part in response.aiter_raw()])
    finally:
        await transport.aclose()


async def test_tls_is_for_the_name(secure: Secure, tmp_path: Path) -> None:
    context = ssl.create_default_context(cafile=str(tmp_path / f"{NAME}.pem"))
    assert await get(Transport(at_home(), QUICK, context), f"https://{NAME}:{secure.port}/x") == b"ok"
    assert secure.names == [NAME]
    assert f"Host: {NAME}:{secure.port}\r\n".encode() in secure.heads[0]


async def test_tls_with_another_name(secure: Secure, tmp_path: Path) -> None:
    context = ssl.create_default_context(cafile=str(tmp_path / f"{NAME}.pem"))
    with pytest.raises(UpstreamUnreachable, match=r"TLS with other\.example\.org fails.*match") as caught:
        await get(Transport(at_home(), QUICK, context), f"https://other.example.org:{secure.port}/x")
    assert caught.value.extra["phase"] == "tls"


async def test_tls_with_a_stranger(secure: Secure) -> None:
    with pytest.raises(UpstreamUnreachable, match="self-signed certificate"):
        await get(Transport(at_home(), QUICK), f"https://{NAME}:{secure.port}/x")
    assert trusted().verify_mode is ssl.CERT_REQUIRED
    assert trusted().check_hostname


def silent() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


async def test_tls_that_never_answers() -> None:
    with silent() as listener, pytest.raises(UpstreamTimeout) as caught:
        await get(Transport(at_home(), Timeouts(tls=0.1)), f"https://{NAME}:{listener.getsockname()[1]}/x")
    assert caught.value.extra["phase"] == "tls"


@pytest.mark.parametrize(
    "said",
    [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 999999 x\r\n\r\n", b"\x00" * 100, b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300_000],
)
async def test_what_is_not_http(said: bytes) -> None:
    with silent() as listener:

        def speak() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                try:
                    connection.sendall(said)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65536):
                        pass
                except OSError:
                    pass

        thread = threading.Thread(target=speak)
        thread.start()
        with pytest.raises((UpstreamProtocol, UpstreamUnreachable), match=r"not proper HTTP|without an answer"):
            await get(Transport(LOOPBACK, QUICK), f"http://127.0.0.1:{listener.getsockname()[1]}/x")
        thread.join()
