"""Credentials of upstreams: given once, bound to an origin, never shown again.

A credential is given with a registration, in one of these forms:

    {"username": "ada", "password": "…"}    sent as Basic
    {"token": "…"}                           sent as Bearer
    "env:NAME", "file:PATH"                  a reference to what the operator keeps; also {"env": NAME}, {"file": PATH}

`Vault.seal` makes of it the text that a manifest may hold: a reference as it is, anything else encrypted together with
its origin. `Vault.unseal` gives the credential back, for that origin only. What a reference names must say where it may
be sent, so that whoever registers an upstream cannot have the operator's secrets sent elsewhere. It holds lines as of
git-credential-store(1), or JSON:

    https://ada:secret@git.example.org
    {"origin": "https://git.example.org", "token": "…"}
"""

from __future__ import annotations

import base64
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from app.fetch import url as urls
from app.fetch.guard import Policy
from app.fetch.url import Origin
from pack.errors import BadParameter, PackhouseError, UpstreamAuthentication, UpstreamRefused

ENV_PREFIX: Final = "PACKHOUSE_CREDENTIAL_"
MAX_SECRET: Final = 16 * 1024
_SEALED: Final = "sealed:"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class Credential:
    """A name and a password (Basic), or a token alone (Bearer, `username` None). It shows neither."""

    secret: str = field(repr=False)
    username: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        text = (self.username or "") + self.secret
        if len(text) > MAX_SECRET or _CONTROL.search(text) or ":" in (self.username or ""):
            raise BadParameter(
                "a credential holds a character that it cannot hold, or is too long", parameter="credential"
            )
        if self.username is None and not _TOKEN.fullmatch(self.secret):
            raise BadParameter("a token is one word of ASCII", parameter="credential")

    def __repr__(self) -> str:
        return f"Credential({'bearer' if self.username is None else 'basic'}, …)"

    __str__ = __repr__

    def header(self) -> str:
        """The value of the Authorization header."""
        if self.username is None:
            return f"Bearer {self.secret}"
        return "Basic " + base64.b64encode(f"{self.username}:{self.secret}".encode()).decode("ascii")

    @classmethod
    def parse(cls, given: Any) -> Credential | Reference:
        """A credential as a registration gives it; BadParameter, which never repeats it, for anything else."""
        if isinstance(given, str):
            kind, _, name = given.partition(":")
            if kind in ("env", "file"):
                return Reference(kind, name)
            raise BadParameter("a credential as text is env:NAME or file:PATH", parameter="credential")
        if isinstance(given, dict) and all(isinstance(value, str) for value in given.values()):
            match sorted(given):
                case ["password", "username"]:
                    return cls(given["password"], given["username"])
                case ["token"]:
                    return cls(given["token"])
                case [("env" | "file") as kind]:
                    return Reference(kind, given[kind])
        raise BadParameter(
            "a credential is {username, password}, {token}, env:NAME or file:PATH", parameter="credential"
        )


@dataclass(frozen=True, slots=True)
class Reference:
    """Names a credential that the operator keeps: `kind` is env or file."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


class Vault:
    """Turns credentials to text and back. `keys` are the secrets of the settings: the first seals, each unseals.

    References name environment variables that begin with PACKHOUSE_CREDENTIAL_, and files below `directory`.
    """

    def __init__(self, *keys: str, directory: Path | None = None) -> None:
        self._fernet = MultiFernet([_fernet(key) for key in keys]) if keys else None
        self._directory = directory

    def seal(self, credential: Credential | Reference, url: str) -> str:
        """The text that stands for a credential of the upstream `url`. References are tried: mistakes show now."""
        origin = urls.origin(urls.parse(url)[0])
        if isinstance(credential, Reference):
            self._look_up(credential, origin)
            return str(credential)
        if self._fernet is None:
            raise BadParameter(
                "PACKHOUSE_SECRET_KEY is not set, so a credential cannot be stored; give env:NAME or file:PATH",
                parameter="credential",
            )
        plain = {"origin": str(origin), "secret": credential.secret, "username": credential.username}
        return _SEALED + self._fernet.encrypt(json.dumps(plain).encode()).decode("ascii")

    def unseal(self, text: str, url: str) -> Credential:
        """The credential that `seal` made the text of. Raises UpstreamAuthentication when it cannot be had."""
        origin = urls.origin(urls.parse(url)[0])
        kind, _, name = text.partition(":")
        if kind in ("env", "file"):
            return self._look_up(Reference(kind, name), origin)
        if self._fernet is None or not text.startswith(_SEALED):
            raise UpstreamAuthentication("the stored credential cannot be read without PACKHOUSE_SECRET_KEY")
        try:
            plain = json.loads(self._fernet.decrypt(text.removeprefix(_SEALED)))
        except (InvalidToken, ValueError):
            raise UpstreamAuthentication("the stored credential was sealed with another key") from None
        if plain["origin"] != str(origin):
            raise UpstreamAuthentication(f"the stored credential is not meant for {origin}")
        return Credential(plain["secret"], plain["username"])

    def _look_up(self, reference: Reference, origin: Origin) -> Credential:
        text = self._environment(reference.name) if reference.kind == "env" else self._file(reference.name)
        credential = _bound(text, origin)
        if credential is None:
            raise UpstreamAuthentication(f"{reference} holds no credential for {origin}")
        return credential

    def _environment(self, name: str) -> str:
        if not _NAME.fullmatch(name) or not name.startswith(ENV_PREFIX) or name == ENV_PREFIX:
            raise BadParameter(f"a credential's variable is named {ENV_PREFIX}…", parameter="credential")
        value = os.environ.get(name)
        if value is None:
            raise BadParameter(f"the variable {name} is not set", parameter="credential")
        return value

    def _file(self, name: str) -> str:
        if self._directory is None:
            raise BadParameter("PACKHOUSE_CREDENTIALS_DIR is not set", parameter="credential")
        refused = BadParameter("there is no such file in PACKHOUSE_CREDENTIALS_DIR", parameter="credential")
        if "\0" in name:
            raise refused
        try:
            root = self._directory.resolve(strict=True)
            # Links may stay inside (mounted secrets are links), but never lead out.
            path = (root / name).resolve(strict=True)
            if not path.is_relative_to(root) or not path.is_file():
                raise refused
            with path.open("rb") as file:
                data = file.read(MAX_SECRET * 4)
        except (OSError, RuntimeError):
            raise refused from None
        return data.decode("utf-8", "replace")


def split(url: str) -> tuple[str, Credential | None]:
    """The URL of an upstream without the credential that stands in it, and that."""
    parsed, user = urls.parse(url)
    if user is None:
        return str(parsed), None
    name, password = user
    return str(parsed), Credential(password, name)


def check_way(origin: Origin, policy: Policy) -> None:
    """Refuses to send credentials where others can read them: over http to another machine."""
    if origin.scheme == "https" or policy.allow_plain_credentials or is_loopback(origin.host):
        return
    raise UpstreamRefused(f"credentials are not sent to {origin} over plain http")


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or re.fullmatch(r"127(?:\.[0-9]{1,3}){3}", host) is not None


def _bound(text: str, origin: Origin) -> Credential | None:
    """The credential for an origin in what a reference names."""
    text = text.strip()
    try:
        if text.startswith("{"):
            plain = json.loads(text)
            bound = urls.origin(urls.parse(plain.pop("origin"))[0])
            given = Credential.parse(plain)
            return given if bound == origin and isinstance(given, Credential) else None
        for line in text.splitlines():
            url, found = split(line.strip())
            if found is not None and urls.origin(urls.parse(url)[0]) == origin:
                return found
    except (ValueError, KeyError, TypeError, AttributeError, PackhouseError):
        return None
    return None


def _fernet(key: str) -> Fernet:
    derived = HKDF(hashes.SHA256(), 32, salt=None, info=b"packhouse upstream credentials").derive(key.encode())
    return Fernet(base64.urlsafe_b64encode(derived))
