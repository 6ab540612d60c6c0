"""The reads of a local store without the service around them, as another program would call them: no HTTP, no worker.

What stands beside it was measured like that.
"""

from __future__ import annotations

import asyncio

import orjson

from app.operations import LIST_READS, RAW_BLOB, SINGLE_READS, Operation
from app.questions import ask
from app.reads import page, raw
from storage.open import open_backend
from storage.repository import Repositories, open_view

_LISTS = {operation.path: operation for operation in LIST_READS}
_SINGLES = {operation.path: operation for operation in SINGLE_READS}


class InProcess:
    """Asks as `bench.client.Connection` does, the paths of `/v1/repos/OWNER/NAME/…`."""

    def __init__(self, store: str) -> None:
        self._repositories = Repositories(open_backend(store))
        self._loop = asyncio.new_event_loop()

    def get(self, target: str, accept: str = "*/*") -> tuple[int, bytes]:
        """200 and the body; errors of the read as they are."""
        path, _, query = target.partition("?")
        owner, name, *rest = path.removeprefix("/v1/repos/").split("/")
        handle = self._loop.run_until_complete(self._repositories.handle(owner, name))
        view = open_view(handle)
        if rest[0] == "objects":
            return 200, view.objects.read(bytes.fromhex(rest[1]))[1]
        operation = self._operation(f"/{rest[0]}")
        params = ask(operation, query.encode()).params
        if operation is RAW_BLOB:
            found = raw.look(view, params)
            return 200, raw.content(view, found, 0, found.size)
        if not operation.listing:
            return 200, page.single(view, page.Request(handle, operation.module, params)).body
        if "ndjson" not in accept:
            limit = params["limit"] or operation.default_limit
            return 200, page.page(view, page.Request(handle, operation.module, params, limit=limit)).body
        blocks = list(page.stream(view, page.Request(handle, operation.module, params)))
        return 200, b"".join([*(block.data for block in blocks), orjson.dumps(blocks[-1].end)])

    @staticmethod
    def _operation(path: str) -> Operation:
        if path == RAW_BLOB.path:
            return RAW_BLOB
        return _LISTS.get(path) or _SINGLES[path]

    def close(self) -> None:
        self._loop.close()
