"""A process that brings a repository up to its upstream, again and again, for tests that kill it or race it.

    python -m tests.faults.syncing STORE OWNER NAME [STOP]

Without STOP it ingests once. With it, it goes on until the file STOP is there, then ingests a last time. It prints
"begin" when it starts to work, and what each ingest came to.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from app.ingestion import Order, run
from app.progress import Meter
from app.settings import Settings
from storage.open import opened


async def main(store: str, owner: str, name: str, stop: str | None = None) -> None:
    settings = Settings(store=store, allow_upstreams=("127.0.0.1",))
    order = Order(settings, owner, name)
    async with opened(store) as backend:
        print("begin", flush=True)
        while True:
            last = stop is None or Path(stop).exists()
            outcome = await run(backend, order, Meter())
            if outcome.changed or outcome.races or last:
                print(outcome.generation, outcome.changed, outcome.races, flush=True)
            if last:
                return


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
