"""The smart-HTTP client: refs and packs from a git server, through a guard.

    policy = Policy(allow=["git.internal", "10.0.0.0/8"])
    async with Upstream("https://git.example.org/project.git", None, policy) as upstream:
        advertisement = await upstream.list_refs([b"refs/heads/", b"refs/tags/"])
        async with upstream.fetch([ref.oid for ref in advertisement.refs]) as chunks:
            async for chunk in chunks:
                ...

Everything that goes wrong is an UpstreamError (or a BadParameter for a URL that is none).
"""

from __future__ import annotations

from app.fetch.client import PackStream, Upstream
from app.fetch.credentials import Credential, Reference, Vault, split
from app.fetch.guard import Policy
from app.fetch.timeouts import Retries, Timeouts

__all__ = ["Credential", "PackStream", "Policy", "Reference", "Retries", "Timeouts", "Upstream", "Vault", "split"]
