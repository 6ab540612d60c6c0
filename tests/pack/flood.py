"""A pack of any size, generated while it is fed: `python -m tests.pack.flood BYTES`.

Prints a line when it is through and waits for its input to end, so that its memory can be looked at from outside.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import tempfile
import zlib
from collections.abc import Iterator

from pack.entry import write_distance, write_header
from pack.objects import BLOB, OFS_DELTA, REF_DELTA, hash_object
from pack.stream import StreamParser
from tests.pack.packs import copy, delta, extend, insert

MEAN = 12_000
"""Bytes of an entry on average; what decides how many entries the header announces."""


def entries(count: int) -> Iterator[bytes]:
    """Whole objects from empty to 8 MB, deltas near and far, and deltas that name a base which comes later."""
    rng = random.Random(1)
    offset = 12
    bases: list[tuple[int, bytes]] = []
    awaited: list[bytes] = []
    for row in range(count):
        shape = rng.random()
        if awaited and (shape < 0.02 or count - row <= len(awaited)):
            body = awaited.pop()
            raw = write_header(BLOB, len(body)) + zlib.compress(body, 1)
        elif shape < 0.04 and count - row > len(awaited) + 2:
            body = rng.randbytes(rng.randrange(1, 3000))
            awaited.append(body)
            change = extend(body, b"late%d" % row)
            raw = write_header(REF_DELTA, len(change)) + hash_object(BLOB, body) + zlib.compress(change, 1)
        elif bases and shape < 0.6:
            at, base = rng.choice(bases)
            cut = rng.randrange(len(base))
            change = delta(base, *_copies(cut), insert(more := rng.randbytes(20)), size=cut + len(more))
            raw = write_header(OFS_DELTA, len(change)) + write_distance(offset - at) + zlib.compress(change, 1)
        else:
            size = rng.choice((0, 10, 300, 5_000, 20_000, 60_000)) if shape < 0.999 else rng.randrange(8 << 20)
            body = rng.randbytes(size)
            raw = write_header(BLOB, size) + zlib.compress(body, 0)
            if 0 < size <= 60_000:
                # A few bases are kept for later deltas: old ones too, which the parser has long forgotten.
                if len(bases) < 200:
                    bases.append((offset, body))
                elif rng.random() < 0.2:
                    bases[rng.randrange(200)] = (offset, body)
        yield raw
        offset += len(raw)


def _copies(size: int) -> list[bytes]:
    return [copy(0, size)] if size else []


def chunks(total: int) -> Iterator[bytes]:
    """The pack in chunks of mixed sizes: single bytes among 64 KB."""
    rng = random.Random(2)
    count = total // MEAN
    digest = hashlib.sha1()
    waiting = bytearray(b"PACK\0\0\0\2" + count.to_bytes(4, "big"))
    stream = entries(count)
    last = False
    while not last or waiting:
        while len(waiting) < 1 << 17 and not last:
            entry = next(stream, None)
            if entry is None:
                digest.update(waiting)
                waiting += digest.digest()
                last = True
            else:
                waiting += entry
        size = rng.choice((1, 1, 1, 20, 1000, 8192, 65516, 1 << 16, 1 << 16, 1 << 16))
        chunk = bytes(waiting[:size])
        del waiting[:size]
        if not last:
            digest.update(chunk)
        yield chunk


def main() -> None:
    with tempfile.TemporaryFile() as spool:
        seen = [0]

        def count(kind: int, oid: bytes, offset: int, data: bytes) -> None:
            seen[0] += 1

        parser = StreamParser(
            read_back=lambda offset, length: os.pread(spool.fileno(), length, offset), on_object=count
        )
        for chunk in chunks(int(sys.argv[1])):
            os.write(spool.fileno(), chunk)
            parser.feed(chunk)
        result = parser.finish()
        assert seen[0] == result.entries == parser.objects_total
        print(parser.bytes_fed, result.entries, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
