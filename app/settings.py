"""Settings of the service and of the command line: environment variables with the prefix `PACKHOUSE_`.

Sizes take suffixes (`512MiB`, `4GB`), lists are separated by commas. `load` is the one way in: whatever is wrong comes
out as a `SettingsError` whose text is a single line for a person.
"""

from __future__ import annotations

import difflib
import os
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import ByteSize, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from pack.errors import BadParameter
from pack.limits import Limits
from storage import cephplace, s3place

PREFIX = "PACKHOUSE_"
CREDENTIALS = PREFIX + "CREDENTIAL_"
"""What variables begin with that hold an upstream's credential; they are no settings."""
STORE_SCHEMES = ("file", "s3", "cephfs")
HOME = Path(".packhouse")


class SettingsError(ValueError):
    """The settings cannot be used; the text is one line."""


class Settings(BaseSettings):
    """Everything that can be set, with its default. Times are seconds, sizes bytes."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True, env_ignore_empty=True)

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8750, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    workers: int = Field(1, ge=1, le=256, description="serving processes")

    store: str = Field(
        "",
        description=(
            "where repositories live: file:///path, a plain path, s3://bucket/prefix?endpoint=…, or "
            "cephfs://name/directory?conf=…"
        ),
    )
    cache_dir: Path = Field(HOME / "cache", description="local folder of the node's cache")
    cache_bytes: ByteSize = Field(ByteSize(8 << 30), ge=1 << 20, description="budget of the cache folder")
    object_cache_bytes: ByteSize = Field(
        ByteSize(96 << 20), ge=1 << 20, description="decoded objects kept by a process"
    )
    search_cache_bytes: ByteSize = Field(
        ByteSize(96 << 20), ge=0, description="text of searched trees kept in memory by a read process"
    )
    answer_cache_bytes: ByteSize = Field(
        ByteSize(16 << 20), ge=0, description="complete answers kept by a process; 0 for none"
    )
    make_sidecars: bool = Field(
        True, description="make the sidecars that reads find missing, and those of what was ingested here"
    )
    snapshot_tips: int = Field(
        4, ge=0, le=100, description="tips listed lately that the snapshot in the store has beside HEAD"
    )
    stream_bytes: ByteSize = Field(
        ByteSize(256 << 20), ge=0, description="text of a repository that is kept ready as gzip streams; 0 for none"
    )
    fresh_seconds: float = Field(1.0, ge=0, le=60, description="how long a read may trust the generation it saw last")
    stale_seconds: float = Field(
        300.0, ge=0, description="how long reads go on from the cache while the store does not answer; 0 refuses them"
    )

    tokens_file: Path | None = Field(None, description="file of bearer tokens (hashes); required off loopback")
    allow_upstreams: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="private hosts and CIDRs to fetch from"
    )
    allow_plain_credentials: bool = Field(False, description="send upstream credentials over plain http, too")
    credentials_dir: Path | None = Field(
        None, description="folder of the credentials that registrations name as file:…"
    )
    secret_key: SecretStr | None = Field(None, description="seals stored upstream credentials")

    read_workers: int = Field(
        default_factory=lambda: max(2, os.cpu_count() or 1), ge=1, le=256, description="niced processes for heavy reads"
    )
    read_queue: int = Field(256, ge=1, description="heavy reads that may wait for a process")
    read_deadline: float = Field(60.0, gt=0, description="work that one heavy read may cost")
    read_max: float = Field(3600.0, gt=0, description="the longest life of one streamed answer")
    read_visits: int = Field(10_000_000, ge=1000, description="entries that one page may look at")
    worker_bytes: ByteSize = Field(ByteSize(1 << 30), ge=64 << 20, description="a read process above this is replaced")
    nice: int = Field(19, ge=0, le=19, description="niceness of read and ingest processes")

    ingests: int = Field(2, ge=1, le=64, description="ingests at a time and serving process")
    ingest_queue: int = Field(1000, ge=0, description="ingests that may wait")
    ingest_deadline: float = Field(6 * 3600.0, gt=0, description="the longest life of one ingest")
    lease_seconds: float = Field(
        30.0, ge=3, le=3600, description="silence of a replica after which its operations are taken for failed"
    )
    compact_packs: int = Field(20, ge=0, description="small packs that syncs leave before they are joined; 0: never")
    connect_timeout: float = Field(10.0, gt=0, description="of an upstream: connecting")
    idle_timeout: float = Field(120.0, gt=0, description="of an upstream: silence while it prepares or sends")

    collision_check: bool = Field(False, description="hash ingested objects by a SHA-1 that detects collisions")

    max_object_bytes: ByteSize | None = Field(None, description="largest object of an ingested pack")
    max_inflate_ratio: int | None = Field(None, ge=2, description="inflated over deflated bytes of one object")
    max_delta_depth: int | None = Field(None, ge=1, description="longest delta chain")
    max_objects: int | None = Field(None, ge=1, description="objects of one pack")
    max_pack_bytes: ByteSize | None = Field(None, ge=32, description="bytes of one pack")
    max_resolved_bytes: ByteSize | None = Field(None, description="bytes of all objects of one pack, resolved")

    @field_validator("port", mode="before")
    @classmethod
    def _port(cls, value: Any) -> Any:
        # An orchestrator that links services sets PACKHOUSE_PORT=tcp://… for a service of that name; it is not ours.
        return 8750 if isinstance(value, str) and value.startswith("tcp://") else value

    @field_validator("store")
    @classmethod
    def _store(cls, value: str) -> str:
        value = value.strip() or str(HOME / "store")
        scheme, separator, _ = value.partition("://")
        if not separator:
            return Path(value.removeprefix("file:")).expanduser().absolute().as_uri()
        if scheme not in STORE_SCHEMES:
            raise ValueError(
                f"the scheme {scheme}:// is not supported, use file:///path, s3://bucket/prefix or "
                "cephfs://name/directory"
            )
        if scheme != "file":
            try:
                return s3place.parse(value).url if scheme == s3place.SCHEME else cephplace.parse(value).url
            except BadParameter as error:
                raise ValueError(error.detail) from None
        parts = urlsplit(value)
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise ValueError("a file store is written file:///absolute/path, with three slashes")
        return value

    @field_validator("cache_dir", "tokens_file", "credentials_dir")
    @classmethod
    def _path(cls, value: Path | None) -> Path | None:
        return None if value is None else value.expanduser().absolute()

    @field_validator("tokens_file")
    @classmethod
    def _tokens(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_file():
            raise ValueError(f"there is no file {value}")
        return value

    @field_validator("allow_upstreams", mode="before")
    @classmethod
    def _list(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("allow_upstreams")
    @classmethod
    def _allow(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value:
            from app.fetch.guard import Policy

            Policy(allow=value)
        return value

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        try:
            return ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return self.host == "localhost"

    def limits(self) -> Limits:
        """The limits of an ingest: the parser's defaults where nothing is set."""
        names = {
            "max_object_bytes": "object_bytes",
            "max_inflate_ratio": "inflate_ratio",
            "max_delta_depth": "delta_depth",
            "max_objects": "objects",
            "max_pack_bytes": "pack_bytes",
            "max_resolved_bytes": "resolved_bytes",
        }
        return Limits(**{to: int(value) for name, to in names.items() if (value := getattr(self, name)) is not None})

    def environment(self) -> dict[str, str]:
        """The variables that make another process load these very settings."""
        found = {}
        for name in self.model_fields_set:
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, SecretStr):
                value = value.get_secret_value()
            found[PREFIX + name.upper()] = ",".join(value) if isinstance(value, tuple) else str(value)
        return found


def load(**given: Any) -> Settings:
    """The settings from the environment, options that are `None` left out.

    Raises SettingsError: a value that cannot be used, or a variable that looks like a misspelt setting.
    """
    known = {PREFIX + name.upper(): name for name in Settings.model_fields}
    for variable in os.environ:
        if variable.startswith(PREFIX) and variable not in known and not variable.startswith(CREDENTIALS):
            near = difflib.get_close_matches(variable, known, n=1, cutoff=0.88)
            if near:
                raise SettingsError(f"{variable} is not a setting; did you mean {near[0]}?")
    options = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**options)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        label = f"--{name.replace('_', '-')}" if name in options else PREFIX + name.upper()
        reason = str(first["msg"]).removeprefix("Value error, ")
        # What is wrong with the URL of a store may be that secrets stand in it.
        hidden = name == "secret_key" or (name == "store" and "://" in str(first["input"]))
        shown = "" if hidden else f" ({first['input']!r})"
        raise SettingsError(" ".join(f"{label}: {reason}{shown}".split())) from None
