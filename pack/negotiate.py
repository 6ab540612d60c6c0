"""Which objects do both sides have? The rounds of a fetch over a stateless transport, without IO.

    negotiation = Negotiation(advertisement, wants, haves)
    while True:
        request = negotiation.next()              # one round: POST fetch_request(…, request)
        ... read the answer with a FetchReader ...
        if reader.in_pack: the pack follows, the negotiation is over
        negotiation.answered(reader)

Few haves go into one request that ends in `done`: a server takes those it knows, and a round is saved. Many are offered
in growing batches, each request repeating what is known to be common, until the server is ready, or a batch was common
as a whole (what lies behind it is common too), or too many were offered in vain, or there are no more. Then `done`.
The haves may be a generator; `on_common` tells it what the server acknowledged, so that it can skip what lies behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from pack.advertisement import Advertisement
from pack.errors import UpstreamProtocol
from pack.fetchproto import FetchReader, FetchRequest, supports_filter

ONE_ROUND: Final = 1024  # as many haves are sent at once, with `done`
FIRST_BATCH: Final = 256
LARGEST_BATCH: Final = 8192
IN_VAIN: Final = 16384  # offered since the last acknowledgment
ROUNDS: Final = 256


class Negotiation:
    """Makes the requests. `wants` and `haves` are ids of 20 bytes; the tips come first among the haves."""

    def __init__(
        self,
        advertisement: Advertisement,
        wants: Sequence[bytes],
        haves: Iterable[bytes] = (),
        *,
        filter: bytes | None = None,  # noqa: A002 - git's word
        depth: int | None = None,
        shallow: Sequence[bytes] = (),
        include_tag: bool = False,
        on_common: Callable[[bytes], None] | None = None,
    ) -> None:
        version, capabilities = advertisement.version, advertisement.capabilities
        self.filtered = filter is not None and supports_filter(version, capabilities)
        self._wants = list(dict.fromkeys(wants))
        self._filter = filter if self.filtered else None
        self._depth = depth
        self._shallow = shallow
        self._include_tag = include_tag
        self._on_common = on_common
        self._haves = iter(haves)
        self._common: dict[bytes, None] = {}
        self._batch: list[bytes] = []
        self._size = FIRST_BATCH
        self._in_vain = 0
        self._rounds = 0
        self._enough = False
        self._done = False  # was asked for
        self._wait_for_done = version == 2 and capabilities.offers(b"fetch", b"wait-for-done")
        self._can_wait = version == 2 or b"multi_ack_detailed" in capabilities

    @property
    def common(self) -> list[bytes]:
        """The haves that the server acknowledged."""
        return list(self._common)

    def next(self) -> FetchRequest:
        """The request of the next round."""
        self._rounds += 1
        if self._rounds == 1:
            self._batch = list(islice(self._haves, ONE_ROUND))
            # A server without detailed acknowledgments cannot tell what is common: it gets one round.
            done = len(self._batch) < ONE_ROUND or not self._can_wait
            if not done:
                self._batch, rest = self._batch[:FIRST_BATCH], self._batch[FIRST_BATCH:]
                self._haves = _chain(rest, self._haves)
            return self._request(done)
        self._batch = [] if self._enough else list(islice(self._haves, self._size))
        return self._request(done=self._enough or not self._batch)

    def answered(self, reader: FetchReader) -> None:
        """A round brought acknowledgments and no pack."""
        if self._done:
            raise UpstreamProtocol("the upstream does not send a pack although it was asked to")
        acknowledged = [oid for oid in reader.common if oid not in self._common]
        self._common.update(dict.fromkeys(acknowledged))
        if self._on_common is not None:
            for oid in acknowledged:
                self._on_common(oid)
        self._in_vain = 0 if acknowledged else self._in_vain + len(self._batch)
        whole = bool(self._batch) and self._common.keys() >= set(self._batch)
        self._enough = reader.ready or whole or not self._batch or self._in_vain >= IN_VAIN or self._rounds >= ROUNDS
        self._size = min(self._size * 2, LARGEST_BATCH)

    def _request(self, done: bool) -> FetchRequest:
        self._done = done
        haves = list(dict.fromkeys([*self._common, *self._batch]))
        return FetchRequest(
            self._wants,
            haves,
            done,
            self._filter,
            self._depth,
            self._shallow,
            self._include_tag,
            self._wait_for_done and not done,
        )


def _chain(first: list[bytes], then: Iterable[bytes]) -> Iterator[bytes]:
    yield from first
    yield from then
