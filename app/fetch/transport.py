"""The way out: an httpx transport on httpcore's pool, with a network backend that asks the guard first.

Requests go directly to checked addresses: no proxy, no netrc, no environment variable has a say. The name of the host
stays what it was in the Host header and for TLS; only the connection is made to an address.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import httpcore
import httpx

from app.fetch import url as urls
from app.fetch.guard import Policy
from app.fetch.timeouts import Timeouts
from pack.errors import UpstreamError, UpstreamProtocol, UpstreamRefused, UpstreamTimeout, UpstreamUnreachable

ADDRESSES_TRIED: Final = 4


class Transport(httpx.AsyncBaseTransport):
    """Sends requests where the policy allows. Everything that goes wrong comes out as an UpstreamError.

    Errors of phases before an answer has begun carry `phase` among their members: resolve, connect, tls, write, answer;
    those within an answer say `body`.
    """

    def __init__(self, policy: Policy, timeouts: Timeouts, ssl_context: ssl.SSLContext | None = None) -> None:
        self._timeouts = timeouts
        self._extensions = {
            "connect": timeouts.connect,
            "read": timeouts.read,
            "write": timeouts.write,
            "pool": timeouts.read,
        }
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl_context or trusted(),
            max_connections=4,
            max_keepalive_connections=2,
            keepalive_expiry=15.0,
            http1=True,
            http2=False,
            retries=0,
            network_backend=Backend(policy, timeouts),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        urls.check(request.url)
        asked = httpcore.Request(
            method=request.method,
            url=httpcore.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions={**request.extensions, "timeout": self._extensions},
        )
        with _translated("answer"):
            answer = await self._pool.handle_async_request(asked)
        return httpx.Response(
            status_code=answer.status, headers=answer.headers, stream=_Body(answer.stream), extensions=answer.extensions
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class Backend(httpcore.AsyncNetworkBackend):
    """Connects to checked addresses only."""

    def __init__(self, policy: Policy, timeouts: Timeouts, inner: httpcore.AsyncNetworkBackend | None = None) -> None:
        self._policy = policy
        self._timeouts = timeouts
        self._inner = inner or httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface of httpcore
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            async with asyncio.timeout(self._timeouts.resolve):
                addresses = await self._policy.addresses(host, port)
        except TimeoutError:
            raise UpstreamTimeout(f"resolving {host} took too long", phase="resolve") from None
        failed: UpstreamError | None = None
        for address in addresses[:ADDRESSES_TRIED]:
            try:
                stream = await self._inner.connect_tcp(
                    address,
                    port,
                    timeout=self._timeouts.connect,
                    local_address=local_address,
                    socket_options=socket_options,
                )
            except httpcore.ConnectTimeout:
                failed = UpstreamTimeout(f"connecting to {host} took too long", phase="connect")
            except (httpcore.ConnectError, OSError):
                failed = UpstreamUnreachable(f"{host} does not accept a connection on port {port}", phase="connect")
            else:
                return _Stream(stream, host, self._timeouts.tls)
        raise failed or UpstreamUnreachable(f"the host {host} has no address", phase="resolve")

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface of httpcore
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        raise UpstreamRefused("a Unix socket is no upstream")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Stream(httpcore.AsyncNetworkStream):
    """A connection whose TLS handshake has a time-out and an error text of its own."""

    def __init__(self, inner: httpcore.AsyncNetworkStream, host: str, tls_timeout: float) -> None:
        self._inner = inner
        self._host = host
        self._tls_timeout = tls_timeout

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        return await self._inner.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore.AsyncNetworkStream:
        try:
            return await self._inner.start_tls(ssl_context, server_hostname, self._tls_timeout)
        except httpcore.ConnectTimeout:
            raise UpstreamTimeout(f"the TLS handshake with {self._host} took too long", phase="tls") from None
        except (httpcore.ConnectError, OSError) as error:
            cause = error.__cause__ if isinstance(error, httpcore.ConnectError) else error
            why = f": {cause.verify_message}" if isinstance(cause, ssl.SSLCertVerificationError) else ""
            raise UpstreamUnreachable(f"TLS with {self._host} fails{why}", phase="tls") from None

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Body(httpx.AsyncByteStream):
    """The body of an answer, its errors translated."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _translated("body"):
            async for part in self._stream:
                yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


@lru_cache(maxsize=1)
def trusted() -> ssl.SSLContext:
    """The certificates that are trusted: the locked bundle, and what the machine trusts beside it."""
    context = httpx.create_ssl_context(trust_env=False)
    context.load_default_certs()
    return context


@contextmanager
def _translated(phase: str) -> Iterator[None]:
    """Errors of httpcore as UpstreamErrors. Their texts may quote the other side, so none is repeated."""
    try:
        yield
    except httpcore.WriteTimeout:
        raise UpstreamTimeout("the upstream does not take the request", phase="write") from None
    except (httpcore.ReadTimeout, httpcore.PoolTimeout):
        raise UpstreamTimeout("the upstream was silent for too long", phase=phase) from None
    except httpcore.ConnectTimeout:
        raise UpstreamTimeout("connecting to the upstream took too long", phase="connect") from None
    except httpcore.ConnectError:
        raise UpstreamUnreachable("the upstream cannot be connected to", phase="connect") from None
    except httpcore.NetworkError:
        raise UpstreamUnreachable("the connection to the upstream broke", phase=phase) from None
    except httpcore.RemoteProtocolError as error:
        if "without sending a response" in str(error):
            raise UpstreamUnreachable("the upstream closed the connection without an answer", phase=phase) from None
        if phase == "body":
            raise UpstreamProtocol("the upstream's answer was cut short, or is not proper HTTP", phase=phase) from None
        raise UpstreamProtocol("the upstream's answer is not proper HTTP", phase="http") from None
    except httpcore.ProtocolError:
        raise UpstreamProtocol("the request cannot be sent as HTTP", phase="http") from None
