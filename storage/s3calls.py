"""Requests to an S3 server: one client an event loop, tries that are told apart, pauses between them.

The client library's own retries are off, and so are those of the HTTP client below it, which sends a PUT again when a
kept-alive connection breaks: a conditional write whose first answer was lost would then look like one that lost.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from botocore.handlers import add_expect_header
from botocore.loaders import Loader

from storage.s3errors import Failure, Kind, read
from storage.s3place import Place

_T = TypeVar("_T")
Answer = dict[str, Any]
Consume = Callable[[Answer], Awaitable[_T]]
Parameters = Callable[[], dict[str, Any]]

CONNECTIONS = 32
_CONNECT_SECONDS = 10.0
_KEEP_ALIVE = 10.0  # shorter than servers keep idle connections open
_SLOWEST = 128 << 10  # bytes a second: a body may take so much longer than the time for an answer
_PAUSE = 0.1
_PAUSE_MAX = 3.0
_WAIT_MAX = 10.0  # of a Retry-After, while more tries are left

# The description of S3 takes 60 ms to read, and is the same for all loops and backends of the process.
_loader = Loader()


class _OneTry(AIOHTTPSession):  # type: ignore[misc] # the library has no types
    async def _get_session(self, proxy_url: str | None) -> Any:
        session = await super()._get_session(proxy_url)
        session._retry_connection = False
        return session


class Calls:
    """`requests` counts the tries by the name of their operation at the server."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.requests: Counter[str] = Counter()
        self._closed = False
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[Any]] = WeakKeyDictionary()

    async def call(
        self,
        method: str,
        parameters: Parameters | dict[str, Any],
        *,
        consume: Consume[_T],
        size: int = 0,
        patience: float = 45.0,
        attempts: int | None = None,
    ) -> _T:
        """What `consume` makes of the answer to a request that may be sent again; Failure of any kind.

        `parameters` is called anew for each try where a body can be read once only. `size`: bytes that are sent. No try
        begins later than `patience` seconds after the first.
        """
        begun = time.monotonic()
        tries = 0
        attempts = attempts or self.place.attempts
        while True:
            tries += 1
            try:
                given = parameters() if callable(parameters) else parameters
                return await self.once(method, given, consume=consume, size=size)
            except Failure as failure:
                wait = self.pause(tries, failure)
                again = failure.kind in (Kind.PASSING, Kind.CONFLICT)
                if not again or tries >= attempts or time.monotonic() + wait - begun > patience:
                    failure.tries = tries
                    raise
                await asyncio.sleep(wait)

    async def once(self, method: str, parameters: dict[str, Any], *, consume: Consume[_T], size: int = 0) -> _T:
        """One try of one request. Failure."""
        self.requests[method] += 1
        try:
            wait = self.place.timeout + _CONNECT_SECONDS
            async with asyncio.timeout(wait + size / _SLOWEST) as limit:
                client = await self._client()
                answer: Answer = await getattr(client, method)(Bucket=self.place.bucket, **parameters)
                coming = answer.get("ContentLength") or 0
                limit.reschedule(asyncio.get_running_loop().time() + wait + coming / _SLOWEST)
                try:
                    return await consume(answer)
                except BaseException:
                    if "Body" in answer:
                        answer["Body"].close()  # or its connection stays open, unread
                    raise
        except Exception as error:
            failure = read(error)
            if failure is None or failure is error:
                raise
            raise failure from error

    def pause(self, tries: int, failure: Failure) -> float:
        """Seconds to wait after so many tries."""
        wait: float = min(_PAUSE_MAX, _PAUSE * 2 ** (tries - 1)) * random.uniform(0.5, 1.0)
        return max(wait, min(failure.retry_after or 0.0, _WAIT_MAX))

    async def close(self) -> None:
        """Close the connections of this loop; nothing is sent any more. Those of loops that have ended went with
        them.
        """
        self._closed = True
        await self.release()

    async def release(self) -> None:
        """Close the connections of this loop, until it asks again."""
        future = self._clients.pop(asyncio.get_running_loop(), None)
        if future is not None and not future.cancelled() and future.exception() is None:
            await future.result().__aexit__(None, None, None)

    async def _client(self) -> Any:
        if self._closed:
            raise Failure(Kind.REFUSED, "it is closed here", reason="closed")
        loop = asyncio.get_running_loop()
        future = self._clients.get(loop)
        if future is None or (future.done() and (future.cancelled() or future.exception() is not None)):
            # A task of its own: whoever asked first may be cancelled while others wait for the same client.
            future = self._clients[loop] = loop.create_task(self._connect())
        return await asyncio.shield(future)

    async def _connect(self) -> Any:
        session = AioSession()
        session.register_component("data_loader", _loader)
        place = self.place
        region = place.region or session.get_config_variable("region")
        if region is None and place.endpoint is not None:
            region = "us-east-1"  # what servers other than Amazon's call themselves
        plain = place.endpoint is not None and place.endpoint.startswith("http:")
        client = await session.create_client(
            "s3",
            region_name=region,
            endpoint_url=place.endpoint,
            # Reading the certificates takes 20 ms, and plain HTTP has none.
            verify=place.ca or (False if plain else None),
            config=AioConfig(
                signature_version="s3v4",
                s3={"addressing_style": place.addressing},
                connect_timeout=min(_CONNECT_SECONDS, place.timeout),
                read_timeout=place.timeout,
                retries={"total_max_attempts": 1},
                max_pool_connections=CONNECTIONS,
                parameter_validation=False,
                request_checksum_calculation=place.checksums,
                response_checksum_validation=place.checksums,
                http_session_cls=_OneTry,
                connector_args={"keepalive_timeout": _KEEP_ALIVE},
                user_agent_extra="packhouse",
            ),
        ).__aenter__()
        # Some servers never send the 100 that the body would wait for.
        client.meta.events.unregister("before-call.s3", add_expect_header)
        return client
