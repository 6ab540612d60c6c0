"""Listing a bucket in byte order of whole keys, from servers that do it in another order.

S3 lists keys in byte order. A server on top of a file system (SeaweedFS) lists folder by folder, `a/b` before `a-b/c`,
and takes `StartAfter` in that order, too. So each folder is listed by itself, with the delimiter, and its entries are
put in order here: an entry is held back until nothing that sorts before it can come any more. That costs a request a
folder, and our folders are few and flat.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import AsyncIterator
from typing import Any

from storage.backend import Item, check_key
from storage.s3calls import Answer, Calls
from storage.s3errors import told, wrong

PAGE = 1000
_BEFORE_SLASH = "-."  # characters of keys that sort before '/'
Entries = dict[str, Item | None]
"""Key -> what it is; None for folders, whose keys end in a slash."""


class Listing:
    """`page`: keys that a server is asked for at a time."""

    def __init__(self, calls: Calls, page: int = PAGE) -> None:
        self._calls = calls
        self._page = page

    async def items(self, prefix: str, start_after: str) -> AsyncIterator[Item]:
        """As `storage.backend.Backend.list`."""
        folder = prefix[: prefix.rfind("/") + 1]
        if start_after < prefix:
            start_after = ""
        elif not start_after.startswith(prefix):
            return  # all that starts with the prefix sorts before it
        async for item in self._walk(folder, prefix, start_after):
            yield item

    async def folders(self, prefix: str, start_after: str) -> AsyncIterator[str]:
        """As `storage.backend.Backend.list_folders`."""
        if start_after < prefix:
            start_after = ""
        elif not start_after.startswith(prefix):
            return
        async for key, item in self._entries(prefix, prefix, start_after):
            if item is None and key > start_after:
                yield key

    async def _walk(self, folder: str, prefix: str, after: str) -> AsyncIterator[Item]:
        async for key, item in self._entries(folder, prefix, after):
            if item is not None:
                yield item
            elif key > after or after.startswith(key):
                async for inner in self._walk(key, key, after if after.startswith(key) else ""):
                    yield inner

    async def _entries(self, folder: str, prefix: str, after: str) -> AsyncIterator[tuple[str, Item | None]]:
        """The entries of `folder` that start with `prefix` and sort behind `after`, and the folder that it lies in."""
        first, slash, _ = after[len(folder) :].partition("/")
        waiting = await self._before(folder, prefix, first, slash) if after else {}
        heap = sorted(waiting)
        done = ""
        start = folder + first + slash if after else ""
        async for page in self._pages(prefix, start):
            fresh = {key: item for key, item in page.items() if key > after and key > done and key not in waiting}
            waiting |= fresh
            for key in fresh:
                heapq.heappush(heap, key)
            # In either order nothing that sorts before this can come on a later page.
            reached = max((key.rstrip("/") for key in page), default="")
            while heap and heap[0] <= reached:
                done = heapq.heappop(heap)
                yield done, waiting.pop(done)
        while heap:
            done = heapq.heappop(heap)
            yield done, waiting.pop(done)

    async def _before(self, folder: str, prefix: str, first: str, slash: str) -> Entries:
        """Folders that sort behind a key that begins with `first`, and that a server may think lie before it."""
        names = [first[:at] for at, character in enumerate(first) if at and character in _BEFORE_SLASH]
        if first and not slash:
            names.append(first)
        keys = [f"{folder}{name}/" for name in names if f"{folder}{name}/".startswith(prefix)]
        there = await asyncio.gather(*(self._has(key) for key in keys))
        found: Entries = {key: None for key, has in zip(keys, there, strict=True) if has}
        if slash and first:
            found[f"{folder}{first}/"] = None
        return found

    async def _has(self, folder: str) -> bool:
        with told("list", folder):
            key = self._calls.place.key(folder)
            answer = await self._calls.call("list_objects_v2", {"Prefix": key, "MaxKeys": 1}, consume=_as_it_is)
        return bool(answer.get("Contents"))

    async def _pages(self, prefix: str, start: str) -> AsyncIterator[Entries]:
        place = self._calls.place
        cut = len(place.prefix)
        given: dict[str, Any] = {"Prefix": place.key(prefix), "Delimiter": "/", "MaxKeys": self._page}
        if start:
            given["StartAfter"] = place.key(start)
        token: str | None = None
        while True:
            with told("list", prefix or "everything"):
                more = {"ContinuationToken": token} if token else {}
                answer = await self._calls.call("list_objects_v2", {**given, **more}, consume=_page)
            page: Entries = {}
            for row in answer.get("Contents", ()):
                item = Item(row["Key"][cut:], int(row["Size"]), row["LastModified"].timestamp())
                # What others have put there, markers of folders for example, is none of ours.
                with contextlib.suppress(ValueError):
                    page[check_key(item.key)] = item
            for row in answer.get("CommonPrefixes", ()):
                page[row["Prefix"][cut:]] = None
            yield page
            if not answer.get("IsTruncated"):
                return
            token = answer["NextContinuationToken"]


async def _as_it_is(answer: Answer) -> Answer:
    return answer


async def _page(answer: Answer) -> Answer:
    if answer.get("IsTruncated") and not answer.get("NextContinuationToken"):
        raise wrong("a listing was cut off without saying where it goes on")
    return answer
