"""What every read of a repository begins with: who asks, what for, at which generation, and where the work is done."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio.to_thread
from starlette.requests import Request

from app import placing
from app.coding import IDENTITY, tagged
from app.negotiate import matches
from app.operations import Operation
from app.questions import Question, ask
from app.tokens import Bearer, Verb
from pack.errors import RepoNotFound
from pack.history import History
from pack.reader import Need
from storage.layout import check_name
from storage.repository import glance, open_view

if TYPE_CHECKING:
    from app.service import Service
    from app.workers import Stream
    from pack.view import View
    from storage.repository import Handle

T = TypeVar("T")
SEGMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")


def authorize(service: Service, request: Request, verb: Verb) -> tuple[str, str, Bearer]:
    """Owner, name and bearer of a request to a repository that may use `verb` on it."""
    owner, name = request.path_params["owner"], request.path_params["name"]
    bearer = service.tokens.identify(request.headers.get("authorization"))
    if request.method == "PUT":
        check_name(owner, name)
    for segment in (owner, name):
        if not SEGMENT.match(segment) or segment.endswith((".git", ".lock")):
            raise RepoNotFound(f"there is no repository {owner[:100]}/{name[:100]}")
    service.tokens.check(bearer, owner, name, verb)
    return owner, name, bearer


class Views:
    """The views that this process reads from on its event loop."""

    def __init__(self, most: int = 256) -> None:
        self._views: OrderedDict[tuple[str, int], View] = OrderedDict()
        self._most = most

    async def open(self, handle: Handle) -> View:
        key = (handle.namespace, handle.generation)
        view = self._views.get(key)
        if view is None:
            # Reading and checking indexes can take a while.
            view = await anyio.to_thread.run_sync(open_view, handle)
            self._views[key] = view
            while len(self._views) > self._most:
                self._views.popitem(last=False)
        else:
            self._views.move_to_end(key)
        return view

    async def commits(self, view: View) -> int:
        """How many commits the commit graph of the view has, which is open then; 0 where there is none."""
        if not view.commits:
            # Reading and checking a large one can take a while.
            await anyio.to_thread.run_sync(History, view)
        return view.commits

    async def near(self, handle: Handle) -> View | None:
        """The view, where it is open or can be opened in no time."""
        view = self._views.get((handle.namespace, handle.generation))
        if view is None and sum(record.objects for record in handle.manifest.packs) <= placing.LOOP_OBJECTS:
            view = await self.open(handle)
        return view

    def glance(self, handle: Handle) -> View:
        """The view as far as it can be had without opening packs: asking it for an object may be Unopened."""
        return self._views.get((handle.namespace, handle.generation)) or glance(handle)


class Asking:
    """Reads of one service, of any kind; they share its views."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._views = service.views

    async def _open(self, request: Request, operation: Operation) -> tuple[Handle, Question, Bearer]:
        owner, name, bearer = authorize(self._service, request, "read")
        question = ask(operation, request.scope["query_string"])
        handle = await self._service.repositories.handle(owner, name, question.params["min_generation"])
        return handle, question, bearer

    async def _supplied(self, handle: Handle, work: Callable[[Handle], Awaitable[T]]) -> T:
        """Do `work`, bringing from the store whatever it finds missing on this node."""
        errand = self._service.repositories.errand(handle)
        while True:
            try:
                return await work(errand.handle)
            except Need as need:
                await errand.bring(need)
            finally:
                self._service.sidecars.look()

    async def _work(self, handle: Handle, name: str, *arguments: Any) -> Any:
        return await self._service.pool.run(name, *arguments, key=handle.namespace)

    def _stream(self, handle: Handle, name: str, *arguments: Any) -> Stream:
        return self._service.pool.stream(name, *arguments, key=handle.namespace)

    async def _begun(
        self, handle: Handle, name: str, arguments: Callable[[Handle], tuple[Any, ...]]
    ) -> tuple[bytes, Stream]:
        """A stream of bytes and its first item: what can be refused is refused here."""

        async def begin(handle: Handle) -> tuple[bytes, Stream]:
            pieces = self._stream(handle, name, *arguments(handle))
            return await anext(pieces), pieces

        return await self._supplied(handle, begin)


def current_tag(request: Request, etag: str, coding: str) -> str | None:
    """The tag of what the client has already: the answer in the coding, or as it is, which is always accepted."""
    header = request.headers.get("if-none-match")
    if matches(header, tagged(etag, coding)):
        return tagged(etag, coding)
    return etag if coding != IDENTITY and matches(header, etag) else None
