"""The ways to speak to one S3 server: TLS with an authority of one's own, checksums, virtual hosts, several loops."""

from __future__ import annotations

import asyncio
import random
import secrets
import ssl
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pack.errors import StoreUnavailable
from storage.backend import KEPT_BYTES
from storage.open import open_backend, prepare
from storage.s3 import S3Backend
from storage.s3place import parse
from tests.services import running
from tests.services.base import BUCKET
from tests.support.faultproxy import Answer, Exchange, FaultProxy

PART = 5 << 20


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """A certificate that nobody knows, and a server's use of it."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "packhouse tests")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = folder / "ca.pem"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = folder / "key.pem"
    encoding = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    private.write_bytes(key.private_bytes(*encoding))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, private)
    return pem, context


@pytest.fixture(scope="module", params=["seaweed", "ceph", "minio"])
def secured(
    request: pytest.FixtureRequest, authority: tuple[Path, ssl.SSLContext]
) -> Iterator[tuple[FaultProxy, Path]]:
    with FaultProxy(running.get(request.param).endpoint, authority[1]) as proxy:
        yield proxy, authority[0]


@pytest.fixture
async def over_tls(secured: tuple[FaultProxy, Path], tmp_path: Path) -> AsyncIterator[S3Backend]:
    backend = tls_backend(secured, tmp_path)
    yield backend
    await backend.close()


def tls_backend(secured: tuple[FaultProxy, Path], spool: Path, checksums: str = "when_required") -> S3Backend:
    proxy, ca = secured
    url = f"s3://{BUCKET}/tls-{secrets.token_hex(6)}?endpoint={proxy.endpoint}&ca={ca}&checksums={checksums}"
    return S3Backend(parse(url), spool=spool, part_bytes=PART)


async def test_newer_checksums_over_tls(
    request: pytest.FixtureRequest, secured: tuple[FaultProxy, Path], tmp_path: Path
) -> None:
    """They make bodies of chunks with a trailer, which Ceph 16 does not know: why they are not what we ask for."""
    backend = tls_backend(secured, tmp_path, "when_supported")
    if request.node.callspec.params["secured"] == "ceph":
        with pytest.raises(StoreUnavailable, match="411 MissingContentLength"):
            await prepare(backend)
    else:
        await prepare(backend)
    await backend.close()


async def test_everything_over_tls(over_tls: S3Backend) -> None:
    await prepare(over_tls)
    content = random.randbytes(2 * PART + KEPT_BYTES + 10)
    upload = await over_tls.upload("p/pack")
    await upload.write(content)
    await upload.finish()
    assert await over_tls.get("p/pack") == content
    large = random.randbytes(600_000)
    assert await over_tls.create("large", large)
    assert await over_tls.read("large", 5, 500_000) == large[5:500_005]


async def test_an_unknown_authority_is_not_trusted(secured: tuple[FaultProxy, Path]) -> None:
    backend = open_backend(f"s3://{BUCKET}/x?endpoint={secured[0].endpoint}")
    with pytest.raises(StoreUnavailable, match="certificate") as caught:
        await backend.get("k")
    assert caught.value.extra["reason"] == "tls"
    await backend.close()


@pytest.mark.parametrize("server", ["seaweed", "ceph", "minio"])
async def test_newer_checksums_without_tls(server: str, tmp_path: Path) -> None:
    url = running.get(server).url(f"sums-{secrets.token_hex(6)}", checksums="when_supported")
    backend = open_backend(url, tmp_path)
    await prepare(backend)
    await backend.close()


async def test_virtual_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bucket's name is part of the host's."""
    running.get("seaweed")

    async def here(*_: Any, **__: Any) -> list[Any]:
        return [(2, 1, 6, "", ("127.0.0.1", proxy.port))]

    async def answered(exchange: Exchange) -> None:
        await exchange.send(Answer(200, (("ETag", '"x"'),)).with_body(b"value"))

    with FaultProxy("http://127.0.0.1:1") as proxy:
        proxy.plan = lambda request: answered
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", here, raising=False)
        for addressing, host, target in (
            ("virtual", f"{BUCKET}.s3.test:{proxy.port}", "/pre/fix/a/b"),
            ("path", f"s3.test:{proxy.port}", f"/{BUCKET}/pre/fix/a/b"),
        ):
            url = f"s3://{BUCKET}/pre/fix?endpoint=http://s3.test:{proxy.port}&addressing={addressing}"
            backend = open_backend(url)
            assert await backend.get("a/b") == b"value"
            await backend.close()
            assert (proxy.requests[-1].headers["host"], proxy.requests[-1].target) == (host, target)


def test_one_backend_in_several_loops() -> None:
    backend = open_backend(running.get("seaweed").url(f"loops-{secrets.token_hex(6)}"))

    async def use(number: int) -> None:
        assert await backend.create(f"k{number}", b"%d" % number)
        assert await backend.get(f"k{number}") == b"%d" % number

    async def last() -> None:
        await use(3)
        await backend.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await backend.get("k1")

    with asyncio.Runner() as one, asyncio.Runner() as other:
        one.run(use(1))
        other.run(use(2))
        other.run(backend._calls.release())  # type: ignore[attr-defined]
        one.run(last())


async def test_huge_uploads_have_larger_parts(tmp_path: Path) -> None:
    """Ten thousand parts must hold any pack, and few parts be in memory."""
    backend = S3Backend(parse("s3://bucket?endpoint=http://127.0.0.1:1"), spool=tmp_path)
    upload = await backend.upload("p/pack")
    sizes = []
    for number in range(9_999):
        sizes.append(upload._length())  # type: ignore[attr-defined]
        upload._sums[number] = b""  # type: ignore[attr-defined]
    assert sizes == sorted(sizes)
    assert sum(sizes) > 800 << 30
    assert max(sizes) <= 128 << 20
    await upload.abort()
    await backend.close()
