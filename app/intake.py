"""One pack on its way into the store: each chunk goes to its place first, then through the parser."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from app.progress import Meter
from app.thrift import give_back
from pack.errors import PackTruncated
from pack.index import write_index
from pack.late import HashObject
from pack.limits import Limits
from pack.stream import StreamParser
from storage import fresh
from storage.arrived import Arrived
from storage.backend import Backend
from storage.keeper import Keeper
from storage.manifest import PackRecord
from storage.sink import PackSink

FindBase = Callable[[bytes], tuple[int, bytes] | None]
CACHE_BYTES = 48 << 20
FED = 32 << 10
"""Bytes that are collected before the parser is called, where chunks are small."""


class Taken:
    """A pack that is in the store, though nothing names it yet."""

    def __init__(self, sink: PackSink, record: PackRecord) -> None:
        self.sink = sink
        self.record = record


async def take(
    backend: Backend,
    owner: str,
    name: str,
    chunks: AsyncIterator[bytes],
    meter: Meter,
    *,
    limits: Limits,
    hash_object: HashObject | None = None,
    arrived: Arrived,
    find_base: FindBase,
    keeper: Keeper | None = None,
) -> Taken | None:
    """Store a pack and its index; None for one without objects. On any error nothing of it stays.

    `arrived` is told of each object, and `keeper` is given pack and index as well, for the node's cache.

    PackError and its kinds name the object and the offset; StoreUnavailable; whatever `chunks` and `meter` raise.
    """
    sink = await PackSink.open(backend, owner, name)
    try:
        objects, received = meter.objects, meter.bytes
        parser = StreamParser(
            read_back=sink.read_back,
            on_object=arrived.on_object,
            find_base=find_base,
            limits=limits,
            hash_object=hash_object,
            cache_bytes=CACHE_BYTES,
            deadline=meter.tick,
        )
        arrived.recall = parser.recall
        announced = meter.total_objects or 0

        def show() -> None:
            meter.objects = objects + parser.objects_done
            meter.bytes = received + parser.bytes_fed
            if parser.objects_total is not None:
                meter.total_objects = announced + parser.objects_total

        async for chunk in _gathered(chunks):
            await sink.write(chunk)
            if keeper is not None:
                await keeper.grow(sink.size)
            parser.feed(chunk)
            show()
        meter.enter("resolving")
        result = parser.finish()
        show()
        give_back()  # the parser keeps no objects any more
        if not result.count:
            await sink.abort()
            return None
        meter.enter("indexing")
        record = await sink.finish(result, write_index(result), keeper.keep if keeper else None)
        fresh.keep(record.name, result)
        return Taken(sink, record)
    except PackTruncated as error:
        await sink.abort()
        error.extra.setdefault("received", sink.size)
        raise
    except BaseException:
        await sink.abort()
        raise


async def _gathered(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in pieces that are worth a call: servers send side-band packets of a few kilobytes."""
    pending: list[bytes] = []
    size = 0
    async for chunk in chunks:
        if not pending and len(chunk) >= FED:
            yield chunk
            continue
        pending.append(chunk)
        size += len(chunk)
        if size >= FED:
            yield b"".join(pending)
            pending.clear()
            size = 0
    if pending:
        yield b"".join(pending)
