"""Which repositories there are and where they come from: registering, describing, deleting, listing.

Registering publishes a generation of its own (state `registered`); what is ingested later follows it. Nothing is kept
in this process.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from app.fetch import url as urls
from app.fetch.credentials import Credential, check_way, split
from app.ingestion import policy, vault
from app.refspecs import DEFAULT, Refspecs
from app.settings import Settings
from pack.errors import BadParameter, Conflict, PackhouseError, UpstreamDiffers, UpstreamUnreachable
from storage import generations, layout
from storage import publish as publishing
from storage.backend import Backend
from storage.manifest import DELETED, REGISTERED, Manifest, UpstreamRecord
from storage.operations import SUCCEEDED, Operations
from storage.publish import Won, publish
from storage.refs import valid_name
from storage.repository import Repositories, settle

MODES: Final = ("full",)
ATTEMPTS: Final = 50


@dataclass(frozen=True, slots=True)
class Registration:
    """What a register call asks for. None keeps what is registered, or takes the default."""

    url: str
    credential: Mapping[str, str] | None = None
    mode: str = "full"
    refspecs: tuple[str, ...] | None = None
    default_branch: bytes | None = None


class Registry:
    def __init__(self, backend: Backend, repositories: Repositories, settings: Settings) -> None:
        self.backend = backend
        self.repositories = repositories
        self.settings = settings
        self._operations = Operations(backend)

    async def register(
        self,
        owner: str,
        name: str,
        url: str,
        credential: Any = None,
        mode: str = "full",
        refspecs: tuple[str, ...] | None = None,
        default_branch: str | None = None,
        replace: bool = False,
        *,
        allow: tuple[str, ...] = (),
    ) -> Manifest:
        """Register an http(s) upstream, or change how a registered one is followed; the newest manifest is returned.

        Idempotent. What is not given stays as it is registered. UpstreamDiffers for another url, unless `replace`: then
        the repository begins anew. BadParameter; UpstreamRefused for an address that may not be fetched from (`allow`
        adds to the settings' allowances); UpstreamAuthentication for a reference that leads nowhere.
        """
        layout.check_name(owner, name)
        if mode not in MODES:
            raise BadParameter(
                f"the mode {mode!r} is not supported yet; repositories are fetched whole: full", parameter="mode"
            )
        Refspecs(refspecs or ())
        branch = _branch(default_branch)
        plain, found = split(url)
        given = Credential.parse(credential) if credential is not None else found
        await self._check_address(plain, given is not None, allow)
        sealed = None
        if given is not None:
            kind, _, text = vault(self.settings).seal(given, plain).partition(":")
            sealed = {kind: text}
        return await self._register(owner, name, Registration(plain, sealed, mode, refspecs, branch), replace)

    async def register_local(self, owner: str, name: str, url: str, *, replace: bool = False) -> Manifest:
        """Register a repository in a local folder (a file: URL): for the command line alone."""
        layout.check_name(owner, name)
        if not url.startswith("file:///"):
            raise BadParameter("a local repository is named by a file: URL", parameter="url")
        return await self._register(owner, name, Registration(url), replace)

    async def _register(self, owner: str, name: str, wanted: Registration, anew: bool) -> Manifest:
        for _ in range(ATTEMPTS):
            last = await generations.newest(self.backend, owner, name)
            following = _following(owner, name, last, wanted, anew)
            if following is last:
                return following
            published = await publish(self.backend, owner, name, following)
            if isinstance(published, Won):
                self.repositories.expire(owner, name)
                return published.manifest
        raise Conflict(f"{owner}/{name} is published by others all the time; try again later")

    async def delete(self, owner: str, name: str) -> int:
        """The generation that says that the repository is gone. RepoNotFound."""
        layout.check_name(owner, name)
        for _ in range(ATTEMPTS):
            published = await publishing.delete(self.backend, owner, name)
            if isinstance(published, Won):
                self.repositories.expire(owner, name)
                return published.manifest.number
        raise Conflict(f"{owner}/{name} is published by others all the time; try again later")

    async def describe(self, owner: str, name: str) -> dict[str, Any]:
        """The repository as the API shows it, without secrets. RepoNotFound."""
        manifest = await self.repositories.newest(owner, name, fresh=True)
        return await self._document(owner, name, await settle(self.backend, owner, name, manifest))

    async def list(self, after: tuple[str, str] | None = None) -> AsyncIterator[dict[str, Any]]:
        """Every repository as `describe` shows it, by owner and name, after the one given."""
        async for owner, name, manifest in self.repositories.list(after):
            yield await self._document(owner, name, await settle(self.backend, owner, name, manifest))

    async def _document(self, owner: str, name: str, manifest: Manifest) -> dict[str, Any]:
        upstream = manifest.upstream
        head = manifest.default_branch or manifest.head.target
        last_sync, operation = manifest.last_sync, None
        with contextlib.suppress(PackhouseError):
            last = await self._operations.last(owner, name)
            if last is not None:
                operation = {"id": last.id, "state": last.state}
                # A sync that found nothing new makes no generation, but it has been in sync then.
                if manifest.ready and last.state == SUCCEEDED and (last.finished or 0.0) > (last_sync or 0.0):
                    last_sync = last.finished
        return {
            "owner": owner,
            "name": name,
            "state": manifest.state,
            "generation": manifest.number,
            "mode": upstream.mode if upstream else None,
            "default_branch": head.decode("utf-8", "replace").removeprefix("refs/heads/") if head else None,
            "object_format": manifest.object_format,
            "objects": sum(pack.objects for pack in manifest.packs),
            "bytes": sum(pack.size for pack in manifest.packs),
            "packs": len(manifest.packs),
            "refs": await self._count_refs(owner, name, manifest),
            "registered": _time(manifest.registered),
            "last_sync": _time(last_sync),
            "operation": operation,
            "upstream": {
                "url": upstream.url,
                "refspecs": list(upstream.refspecs),
                "mode": upstream.mode,
                "authenticated": bool(upstream.credential),
            }
            if upstream
            else None,
        }

    async def _count_refs(self, owner: str, name: str, manifest: Manifest) -> int:
        if not manifest.changes:
            return manifest.refs.count if manifest.refs else 0
        return len(await publishing.all_refs(self.backend, owner, name, manifest))

    async def _check_address(self, url: str, secret: bool, allow: tuple[str, ...]) -> None:
        parsed, _ = urls.parse(url)
        origin = urls.origin(parsed)
        rules = policy(self.settings, allow)
        if secret:
            check_way(origin, rules)
        # Whether the name can be resolved just now is for the ingest to find out, and to try again.
        with contextlib.suppress(UpstreamUnreachable):
            await rules.addresses(origin.host, origin.port)


def _following(owner: str, name: str, last: Manifest | None, wanted: Registration, anew: bool) -> Manifest:
    """The manifest to publish; `last` itself where nothing changes."""
    standing = last.upstream if last is not None and last.state != DELETED else None
    if last is not None and standing is not None and standing.url == wanted.url:
        upstream = UpstreamRecord(
            wanted.url,
            wanted.mode,
            standing.refspecs if wanted.refspecs is None else wanted.refspecs or DEFAULT,
            standing.credential if wanted.credential is None else wanted.credential,
        )
        branch = last.default_branch if wanted.default_branch is None else wanted.default_branch
        if upstream == standing and branch == last.default_branch:
            return last
        return last.successor(upstream=upstream, default_branch=branch)
    if standing is not None and not anew:
        raise UpstreamDiffers(
            f"{owner}/{name} is registered with another upstream; replace=true begins anew", parameter="url"
        )
    fresh = Manifest(
        number=1,
        state=REGISTERED,
        upstream=UpstreamRecord(wanted.url, wanted.mode, wanted.refspecs or DEFAULT, wanted.credential),
        default_branch=wanted.default_branch,
    )
    return replace(fresh, number=last.number + 1 if last else 1, registered=fresh.created)


def _branch(text: str | None) -> bytes | None:
    if text is None:
        return None
    name = text if text.startswith("refs/") else f"refs/heads/{text}"
    raw = name.encode("utf-8", "surrogateescape")
    if not valid_name(raw) or not raw.startswith(b"refs/heads/"):
        raise BadParameter(f"{text[:200]!r} cannot name a branch", parameter="default_branch")
    return raw


def _time(seconds: float | None) -> str | None:
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
