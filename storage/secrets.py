"""Keys and sealed credentials.

The cursor key is drawn once per store, by whichever replica comes first. Upstream credentials are sealed with a key
from the settings (AES-256-GCM, RFC 5116), bound to the repository and the origin that they are for: a sealed one that
is copied to another manifest, or whose upstream was changed, does not open.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64decode, urlsafe_b64encode

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pack.errors import CorruptData, UpstreamAuthentication
from storage import layout
from storage.backend import Backend, NotThere

KEY_BYTES = 32
_NONCE_BYTES = 12


async def cursor_key(backend: Backend) -> bytes:
    """32 bytes, the same for all replicas of a store."""
    try:
        key = await backend.get(layout.CURSOR_KEY)
    except NotThere:
        await backend.create(layout.CURSOR_KEY, os.urandom(KEY_BYTES))
        key = await backend.get(layout.CURSOR_KEY)
    if len(key) != KEY_BYTES:
        raise CorruptData(f"{layout.CURSOR_KEY} of the store is damaged.")
    return key


def seal(secret: bytes, key: bytes, context: str) -> str:
    """Text that only `unseal` with the same 32-byte key and the same context (repository and origin) turns back."""
    nonce = os.urandom(_NONCE_BYTES)
    return urlsafe_b64encode(nonce + AESGCM(key).encrypt(nonce, secret, context.encode())).decode()


def unseal(sealed: str, key: bytes, context: str) -> bytes:
    """UpstreamAuthentication when it was sealed with another key or for something else."""
    try:
        data = urlsafe_b64decode(sealed)
        return AESGCM(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], context.encode())
    except (ValueError, InvalidTag) as error:
        raise UpstreamAuthentication("The stored credential cannot be opened with this key; set it again.") from error
