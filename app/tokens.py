"""Bearer tokens: who may read or write which repositories.

The tokens file is JSON, a list of

    {"name": "ci", "sha256": "<hex of the token's SHA-256>", "repos": ["team/*"], "verbs": ["read", "write"],
     "expires": "2027-01-01T00:00:00Z"}

`repos` are globs over `owner/name`; `*` does not cross the slash. `verbs` are read, write and admin; write includes
read, admin includes both. Only hashes are kept: tokens are 256 random bits, so a plain hash is enough. The file is read
again when it changes. `packhouse token` makes tokens and their records.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import orjson
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from pack.errors import AuthenticationRequired, NotAllowed, RepoNotFound

Verb = Literal["read", "write", "admin"]
IMPLIED: Final[dict[str, frozenset[str]]] = {
    "read": frozenset({"read"}),
    "write": frozenset({"read", "write"}),
    "admin": frozenset({"read", "write", "admin"}),
}


class Token(BaseModel):
    """One line of the tokens file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=100)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    repos: tuple[str, ...]
    verbs: tuple[Verb, ...]
    expires: AwareDatetime | None = None

    @field_validator("repos")
    @classmethod
    def _globs(cls, repos: tuple[str, ...]) -> tuple[str, ...]:
        for glob in repos:
            if glob.count("/") != 1 or not re.fullmatch(r"[A-Za-z0-9._*?/-]+", glob):
                raise ValueError(f"{glob!r} is no owner/name glob")
        return repos

    def covers(self, owner: str, name: str) -> bool:
        """Whether one of the token's globs takes in the repository."""
        return any(_glob(glob).fullmatch(f"{owner}/{name}") for glob in self.repos)

    def may(self, verb: str) -> bool:
        return any(verb in IMPLIED[held] for held in self.verbs)


def _glob(glob: str) -> re.Pattern[str]:
    return re.compile(re.escape(glob).replace(r"\*", "[^/]*").replace(r"\?", "[^/]"))


class Everyone:
    """Stands for the requests of a service without tokens, which listens on loopback only."""

    name = ""

    def covers(self, owner: str, name: str) -> bool:
        return True

    def may(self, verb: str) -> bool:
        return True


Bearer = Token | Everyone
EVERYONE: Final = Everyone()
_FILE: Final = TypeAdapter(tuple[Token, ...])


class BadTokensFile(ValueError):
    """The tokens file cannot be used; the message says why in one line."""


def read_tokens(path: Path) -> tuple[Token, ...]:
    """The tokens in the file at `path`; BadTokensFile where it cannot be read or does not have the form above."""
    try:
        return _FILE.validate_python(orjson.loads(path.read_bytes()))
    except OSError as error:
        raise BadTokensFile(f"the tokens file cannot be read: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise BadTokensFile(f"the tokens file is not JSON: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadTokensFile(f"the tokens file is wrong at {where}: {first['msg']}") from None


class Tokens:
    """Answers who a request is, and whether it may do what it asks."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._by_hash: dict[str, Token] = {}
        if path is not None:
            self._load()

    @property
    def required(self) -> bool:
        return self._path is not None

    def _load(self) -> None:
        assert self._path is not None
        try:
            stat = self._path.stat()
        except OSError as error:
            raise BadTokensFile(f"the tokens file cannot be read: {error.strerror}") from None
        stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if stamp != self._stamp:
            self._by_hash = {token.sha256: token for token in read_tokens(self._path)}
            self._stamp = stamp

    def identify(self, authorization: str | None) -> Bearer:
        """The bearer of a request's Authorization header; AuthenticationRequired where it names none."""
        if self._path is None:
            return EVERYONE
        # A file that is being replaced, or was broken, opens no door and closes none.
        with contextlib.suppress(BadTokensFile):
            self._load()
        scheme, _, value = (authorization or "").partition(" ")
        token = None
        if scheme.lower() == "bearer":
            token = self._by_hash.get(hashlib.sha256(value.strip().encode("utf-8", "replace")).hexdigest())
        if token is None or (token.expires is not None and token.expires <= datetime.now(UTC)):
            raise AuthenticationRequired("a valid bearer token is needed")
        return token

    def check(self, bearer: Bearer, owner: str, name: str, verb: Verb) -> None:
        """Lets the request pass, or raises RepoNotFound (what may not be read does not exist) or NotAllowed."""
        if not (bearer.covers(owner, name) and bearer.may("read")):
            raise RepoNotFound(f"there is no repository {owner}/{name}")
        if not bearer.may(verb):
            raise NotAllowed(f"the token may not {verb} {owner}/{name}")


def new_token(
    name: str, repos: Sequence[str], verbs: Sequence[str], expires: datetime | None = None
) -> tuple[str, dict[str, Any]]:
    """A fresh token and the record of it for the tokens file.

    BadTokensFile where a record cannot hold what is given.
    """
    secret = secrets.token_urlsafe(32)
    record: dict[str, Any] = {
        "name": name,
        "sha256": hashlib.sha256(secret.encode()).hexdigest(),
        "repos": list(repos),
        "verbs": list(verbs),
    }
    if expires is not None:
        record["expires"] = expires.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    try:
        Token.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadTokensFile(f"{first['loc'][0]}: {first['msg'].removeprefix('Value error, ')}") from None
    return secret, record


def add_record(path: Path, record: dict[str, Any]) -> None:
    """Add a record to the tokens file at `path`, which is made where there is none. BadTokensFile; OSError.

    The file is replaced as a whole: a service that reads it sees it before or after.
    """
    held: list[Any] = []
    mode = None
    if path.exists():
        read_tokens(path)
        held = orjson.loads(path.read_bytes())
        mode = path.stat().st_mode & 0o777
    lines = ",\n ".join(orjson.dumps(one).decode() for one in (*held, record))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        temporary.write_text(f"[{lines}]\n")
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
