from __future__ import annotations

import asyncio

import pytest

from pack.errors import CorruptData, UpstreamAuthentication
from storage import layout
from storage.backend import Backend
from storage.secrets import KEY_BYTES, cursor_key, seal, unseal

KEY = bytes(range(KEY_BYTES))


async def test_one_cursor_key_for_all_replicas(backend: Backend) -> None:
    keys = await asyncio.gather(*(cursor_key(backend) for _ in range(8)))
    assert len(set(keys)) == 1
    assert len(keys[0]) == KEY_BYTES
    await backend.put(layout.CURSOR_KEY, b"short")
    with pytest.raises(CorruptData):
        await cursor_key(backend)


def test_sealed_credentials() -> None:
    sealed = seal(b"user:secret", KEY, "owner/name https://git.example")
    assert "secret" not in sealed
    assert sealed != seal(b"user:secret", KEY, "owner/name https://git.example")
    assert unseal(sealed, KEY, "owner/name https://git.example") == b"user:secret"
    for text, key, context in (
        (sealed, bytes(KEY_BYTES), "owner/name https://git.example"),
        (sealed, KEY, "owner/name https://evil.example"),
        (sealed[:-4], KEY, "owner/name https://git.example"),
        ("", KEY, "x"),
        ("not base64!", KEY, "x"),
        ("ä", KEY, "x"),
    ):
        with pytest.raises(UpstreamAuthentication):
            unseal(text, key, context)
