"""An upstream git server, spoken to in smart HTTP: gitprotocol-http(5), versions 0, 1 and 2 of the protocol."""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, Self

import httpx

from app.fetch import credentials, redirects
from app.fetch import url as urls
from app.fetch.answer import Answer, cut, overdue
from app.fetch.credentials import Credential
from app.fetch.guard import Policy
from app.fetch.timeouts import Retries, Timeouts
from app.fetch.transport import Transport
from pack.advertisement import Advertisement, AdvertisementParser, LsRefsParser, NullRef
from pack.errors import (
    UnsupportedUpstream,
    UpstreamAuthentication,
    UpstreamError,
    UpstreamNotFound,
    UpstreamProtocol,
    UpstreamRedirect,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from pack.fetchproto import FetchReader, fetch_request, ls_refs_request
from pack.negotiate import Negotiation

REFS_BYTES: Final = 256 << 20  # of a list of refs, unpacked
NEGOTIATION_BYTES: Final = 16 << 20  # of a round's answer before its pack begins
BUSY: Final = frozenset({502, 503, 504})
_RETRIED: Final = frozenset({"connect", "tls", "answer"})
_MOVED_PAUSES: Final = (0.1, 0.5)
"""Seconds before refs that moved while they were listed are listed again."""
_ADVERTISEMENT: Final = "application/x-git-upload-pack-advertisement"
_REQUEST: Final = "application/x-git-upload-pack-request"
_RESULT: Final = "application/x-git-upload-pack-result"


def agent() -> str:
    """How the client names itself."""
    try:
        return f"packhouse/{importlib.metadata.version('packhouse')}"
    except importlib.metadata.PackageNotFoundError:
        return "packhouse/0"


class Upstream:
    """One repository on a git server. An async context manager; not for use by several tasks at a time.

    `url` may hold a credential (`https://ada:secret@…`); `credential` counts before it. Credentials go to the origin of
    `url` alone, whatever the server redirects to. `on_progress` gets each line that the server writes for people,
    cleaned. Raises BadParameter for a URL that is none, and UpstreamRefused where credentials would go over plain http.
    """

    def __init__(
        self,
        url: str,
        credential: Credential | None = None,
        policy: Policy | None = None,
        timeouts: Timeouts | None = None,
        on_progress: Callable[[str], None] | None = None,
        *,
        retries: Retries | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        policy = policy or Policy()
        self._timeouts = timeouts or Timeouts()
        self._retries = retries or Retries()
        self._base, user = urls.parse(url)
        self._origin = urls.origin(self._base)
        if credential is None and user is not None:
            credential = Credential(user[1], user[0])
        if credential is not None:
            credentials.check_way(self._origin, policy)
        self._credential = credential
        self._on_progress = on_progress
        self._agent = agent()
        # The transport alone, without httpx's client around it: that one reads the target of every redirect, followed
        # or not, and would add cookies.
        self._transport = transport or Transport(policy, self._timeouts)
        self._advertised: Advertisement | None = None
        self._deadline: float | None = None

    @property
    def url(self) -> str:
        """The repository's URL without credentials; after a redirect, the place it led to."""
        return str(self._base)

    def __repr__(self) -> str:
        return f"Upstream({self.url!r})"

    async def __aenter__(self) -> Self:
        if self._timeouts.total is not None:
            self._deadline = asyncio.get_running_loop().time() + self._timeouts.total
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._transport.aclose()

    async def list_refs(self, prefixes: Sequence[bytes] = ()) -> Advertisement:
        """The refs whose names begin with one of `prefixes` (all of them for none), and HEAD.

        They are asked for again where they moved meanwhile.
        """
        for pause in _MOVED_PAUSES:
            with suppress(NullRef):
                return await self._listed(prefixes)
            await asyncio.sleep(pause)
        return await self._listed(prefixes)

    async def _listed(self, prefixes: Sequence[bytes]) -> Advertisement:
        advertised = await self._discover(again=True)
        if advertised.version == 2:
            body = ls_refs_request(advertised.capabilities, self._agent.encode(), prefixes)
            parser = LsRefsParser()
            async with self._post(body, "gzip") as answer:
                answer.limit = REFS_BYTES
                while (piece := await answer.piece()) is not None:
                    parser.feed(piece)
            advertised = parser.finish(advertised.capabilities)
        return advertised.only(prefixes)

    @asynccontextmanager
    async def fetch(
        self,
        wants: Sequence[bytes],
        haves: Iterable[bytes] = (),
        *,
        filter: bytes | None = None,  # noqa: A002 - git's word
        depth: int | None = None,
        shallow: Sequence[bytes] = (),
        include_tag: bool = False,
        on_common: Callable[[bytes], None] | None = None,
    ) -> AsyncIterator[PackStream]:
        """The pack that holds `wants` and what they need, without what `haves` lead to. Ids are 20 raw bytes.

        `haves` are tips first; a generator is read as far as the negotiation needs. `filter` (a filter spec) is asked
        for where the server offers it: `PackStream.filtered` says whether. Leaving the context early closes the
        connection. A history that the server has cut itself is refused as UnsupportedUpstream, unless `depth` or
        `shallow` says that the caller knows of cut histories.
        """
        advertised = await self._discover()
        negotiation = Negotiation(
            advertised,
            wants,
            haves,
            filter=filter,
            depth=depth,
            shallow=shallow,
            include_tag=include_tag,
            on_common=on_common,
        )
        version, capabilities = advertised.version, advertised.capabilities
        while True:
            request = negotiation.next()
            reader = FetchReader(version, capabilities, request, self._on_progress)
            body = fetch_request(version, capabilities, self._agent.encode(), request)
            async with self._post(body, "identity") as answer:
                stream = PackStream(reader, answer, negotiation)
                if await stream.begins():
                    if stream.shallow and depth is None and not shallow:
                        # Version 2 tells it only here; the older ones in the list of refs.
                        raise UnsupportedUpstream(
                            "the upstream is a shallow repository: part of its history is missing"
                        )
                    yield stream
                    return
            negotiation.answered(reader)

    async def _discover(self, *, again: bool = False) -> Advertisement:
        """What the server says of itself; in versions 0 and 1 with its refs, which `again` lists anew."""
        if self._advertised is not None and (self._advertised.version == 2 or not again):
            return self._advertised
        trail = redirects.Trail(self._base)
        while True:
            parser = AdvertisementParser()
            async with self._send("GET", trail.url, {"Git-Protocol": "version=2", "Accept-Encoding": "gzip"}) as answer:
                if answer.status in redirects.STATUSES:
                    trail.follow(answer.response)
                    continue
                self._check(answer, trail.url)
                if answer.content_type != _ADVERTISEMENT:
                    kind = answer.content_type or "no type"
                    raise UnsupportedUpstream(f"the upstream does not speak git's smart HTTP protocol: it sends {kind}")
                answer.limit = REFS_BYTES
                while (piece := await answer.piece()) is not None:
                    parser.feed(piece)
                self._advertised = parser.finish()
                self._base = trail.base
                return self._advertised

    @asynccontextmanager
    async def _post(self, body: bytes, encoding: str) -> AsyncIterator[Answer]:
        headers = {
            "Accept-Encoding": encoding,
            "Content-Type": _REQUEST,
            "Accept": _RESULT,
        }
        if self._advertised is not None and self._advertised.version:
            # The version that was settled on, not the one that was hoped for: another node of the server may know more.
            headers["Git-Protocol"] = f"version={self._advertised.version}"
        url = redirects.upload_pack(self._base)
        async with self._send("POST", url, headers, body) as answer:
            if answer.status in redirects.STATUSES:
                raise UpstreamRedirect("the upstream redirects a request that cannot be redirected")
            self._check(answer, url)
            if answer.content_type != _RESULT:
                raise UpstreamProtocol(f"the upstream answers a fetch with {answer.content_type or 'no type'}")
            yield answer

    @asynccontextmanager
    async def _send(
        self, method: str, url: httpx.URL, headers: dict[str, str], body: bytes = b""
    ) -> AsyncIterator[Answer]:
        """Send a request, again where no answer had begun; the answer is closed at the end."""
        if self._credential is not None and urls.origin(urls.check(url)) == self._origin:
            headers = {**headers, "Authorization": self._credential.header()}
        attempt = 0
        while True:
            attempt += 1
            last = attempt >= self._retries.attempts
            try:
                response = await self._one(method, url, headers, body)
            except (UpstreamUnreachable, UpstreamTimeout) as error:
                if last or not _worth_another(error):
                    raise
                await self._wait(self._retries.pause(attempt))
                continue
            if method == "GET" and response.status_code in BUSY and not last:
                await response.aclose()
                await self._wait(self._retries.pause(attempt, _retry_after(response)))
                continue
            break
        answer = Answer(response, self._timeouts, self._deadline)
        try:
            yield answer
        finally:
            await answer.aclose()

    async def _one(self, method: str, url: httpx.URL, headers: dict[str, str], body: bytes) -> httpx.Response:
        own = {"User-Agent": self._agent, "Accept": "*/*", "Pragma": "no-cache", **headers}
        request = httpx.Request(method, url, headers=own, content=body or None)
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._transport.handle_async_request(request)
        except TimeoutError:
            raise overdue() from None

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout_at(self._deadline):
                await asyncio.sleep(seconds)
        except TimeoutError:
            raise overdue() from None

    def _check(self, answer: Answer, url: httpx.URL) -> None:
        """Refuses every status but 200."""
        status = answer.status
        if status == 200:
            return
        if status == 401:
            why = "the upstream asks for credentials"
            if self._credential is not None:
                if urls.origin(url) == self._origin:
                    why = "the upstream does not accept the credentials"
                else:
                    why = f"the upstream redirects to {urls.origin(url)}, where the credentials do not belong"
            raise UpstreamAuthentication(f"authentication needed: {why}")
        if status == 403:
            raise UpstreamNotFound("the upstream forbids access to the repository (403)", upstream_status=status)
        if status in (404, 410):
            raise UpstreamNotFound(f"the upstream has no such repository ({status})", upstream_status=status)
        if status in BUSY or status == 429:
            raise UpstreamUnreachable(f"the upstream is not available now ({status})", upstream_status=status)
        raise UpstreamError(f"the upstream answers with the status {status}", upstream_status=status)


class PackStream:
    """The bytes of a pack, and nothing but those, in chunks of at most 64 KB.

    `filtered` says whether the filter was applied, `shallow` and `unshallow` what the server said of cut histories,
    `common` which haves it acknowledged, `received` how many bytes of the pack have come.
    """

    def __init__(self, reader: FetchReader, answer: Answer, negotiation: Negotiation) -> None:
        self._reader = reader
        self._answer = answer
        self._ready: list[bytes] = []
        self._before = 0
        self._ended = False
        self._common = negotiation.common
        self.filtered = negotiation.filtered
        self.received = 0

    @property
    def shallow(self) -> list[bytes]:
        return self._reader.shallow

    @property
    def unshallow(self) -> list[bytes]:
        return self._reader.unshallow

    @property
    def common(self) -> list[bytes]:
        return list(dict.fromkeys([*self._common, *self._reader.common]))

    async def begins(self) -> bool:
        """Read up to the pack; False for an answer without one."""
        while not self._reader.in_pack:
            if not await self._more():
                return False
            if not self._reader.in_pack and self._before > NEGOTIATION_BYTES:
                raise UpstreamProtocol("the upstream negotiates at too great a length")
        return True

    def __aiter__(self) -> PackStream:
        return self

    async def __anext__(self) -> bytes:
        while not self._ready:
            if not await self._more():
                raise StopAsyncIteration
        chunk = self._ready.pop()
        self.received += len(chunk)
        return chunk

    async def _more(self) -> bool:
        """Take one piece of the answer; False at its end."""
        if self._ended:
            return False
        piece = await self._answer.piece()
        if piece is None:
            self._ended = True
            self._reader.finish()
            return False
        self._before += len(piece)
        found = self._reader.receive(piece)
        if found:
            data = found[0] if len(found) == 1 else b"".join(found)
            self._ready = list(cut(data))[::-1]
        return True


def _worth_another(error: UpstreamError) -> bool:
    return error.extra.get("phase") in _RETRIED and not (
        isinstance(error, UpstreamTimeout) and error.extra["phase"] == "answer"
    )


def _retry_after(response: httpx.Response) -> float | None:
    value = response.headers.get("retry-after", "")
    return float(value) if value.isascii() and value.isdigit() and len(value) < 6 else None
