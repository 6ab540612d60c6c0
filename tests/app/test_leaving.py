"""Work is given up for a client that hangs up, and for no other reason."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app import leaving
from app.leaving import attended


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "AFTER", 0.01)


class Client:
    """What a server tells an application: a request without a body, and some time later that its client is gone."""

    def __init__(self, leaves_after: float | None) -> None:
        self.leaves_after = leaves_after
        self.asked = 0

    async def receive(self) -> dict[str, Any]:
        self.asked += 1
        if self.asked == 1:
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.sleep(3600 if self.leaves_after is None else self.leaves_after)
        return {"type": "http.disconnect"}


async def work(seconds: float, ended: list[str]) -> str:
    try:
        await asyncio.sleep(seconds)
        ended.append("done")
    except asyncio.CancelledError:
        ended.append("cancelled")
        raise
    return "answer"


async def test_a_quick_answer_is_not_watched() -> None:
    client = Client(0)
    assert await attended(client.receive, work(0, [])) == "answer"
    await asyncio.sleep(0.05)
    assert client.asked == 0


async def test_a_slow_answer_is_waited_for() -> None:
    client, ended = Client(None), []
    assert await attended(client.receive, work(0.05, ended)) == "answer"
    assert (client.asked, ended) == (2, ["done"])
    assert len(asyncio.all_tasks()) == 1 or await settle()


async def settle() -> bool:
    await asyncio.sleep(0)
    return len(asyncio.all_tasks()) == 1


async def test_work_ends_when_its_client_leaves() -> None:
    ended: list[str] = []
    assert await asyncio.wait_for(attended(Client(0.02).receive, work(10, ended)), 1) is None
    assert ended == ["cancelled"]


async def test_being_cancelled_by_others_stays_what_it_is() -> None:
    ended: list[str] = []
    task = asyncio.ensure_future(attended(Client(None).receive, work(10, ended)))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cancelled"]


async def test_what_the_work_raises_is_raised() -> None:
    async def fails() -> None:
        await asyncio.sleep(0.03)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await attended(Client(None).receive, fails())
