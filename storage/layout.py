"""Where things lie in a store.

    {owner}/{name}.git/
      objects/pack/pack-{40 random hex}.pack .idx    immutable; named at random: names are needed before checksums
      packhouse/generations/{number:020}             the authority: a manifest each, created once, never deleted
      packhouse/latest                               a hint: a copy of a recent manifest
      packhouse/refs-{hash}-{random}                 a sorted immutable table of all refs
      packhouse/packs-{hash}-{random}                the packs of a manifest that has too many to name them itself
      packhouse/{kind}-{pack set}[-…]                sidecars: derived from a set of packs, and named by it
      packhouse/operation                            the id of the operation that was started last (a hint, too)
    _packhouse/format                                the version of all this
    _packhouse/cursor-key                            what cursors are authenticated with
    _packhouse/gc                                    written when gc begins: its time is the store's clock
    _packhouse/operations/{id}[.cancel|.end]         operations
    _packhouse/proof/…                               scratch of the start-up proof

An owner never starts with an underscore, so the two kinds cannot meet.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable
from hashlib import sha256

from pack.errors import BadParameter

FORMAT_KEY = "_packhouse/format"
CURSOR_KEY = "_packhouse/cursor-key"
GC_KEY = "_packhouse/gc"
OPERATIONS = "_packhouse/operations/"
PROOF = "_packhouse/proof/"
PACKS = "objects/pack/"
TABLES = ("packhouse/refs-", "packhouse/packs-")
SIDECARS = ("packhouse/objects-", "packhouse/graph-", "packhouse/paths-", "packhouse/snapshot-", "packhouse/streams-")
RANGED = ("packhouse/snapshot-", "packhouse/streams-")
"""Sidecars that are brought by ranges where they are large: often a part of one is enough, or comes first."""

_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_OPERATION = re.compile(r"[0-9a-z]{8,40}")
_TIMED = re.compile(r"[0-9a-f]{11}[0-9a-f]{20}")
_PACK_NAME = re.compile(r"pack-[0-9a-f]{40}")
_PACK_SET = re.compile(r"[0-9a-f]{40}")


def is_segment(text: str) -> bool:
    return _SEGMENT.fullmatch(text) is not None and not text.endswith((".git", ".lock"))


def check_name(owner: str, name: str) -> None:
    """BadParameter when one of them cannot be part of a repository's name."""
    for parameter, value in (("owner", owner), ("name", name)):
        if not is_segment(value):
            raise BadParameter(
                "Owner and name are 1 to 100 of A-Z a-z 0-9 . _ -, start with a letter or digit, "
                "and do not end in .git or .lock.",
                parameter=parameter,
            )


def repository(owner: str, name: str) -> str:
    """The prefix of all keys of a repository, with its slash."""
    check_name(owner, name)
    return f"{owner}/{name}.git/"


def pack_name() -> str:
    """A new name for a pack, without its extension."""
    return f"pack-{secrets.token_hex(20)}"


def is_pack_name(text: str) -> bool:
    return _PACK_NAME.fullmatch(text) is not None


def pack(name: str) -> str:
    return f"objects/pack/{name}.pack"


def index(name: str) -> str:
    return f"objects/pack/{name}.idx"


def table(stem: str) -> str:
    """A key of its own for a table whose contents give `stem`.

    Were it named by its contents alone, a writer could find it there and rely on it while gc is about to delete it.
    """
    return f"{stem}-{secrets.token_hex(4)}"


def pack_set(names: Iterable[str]) -> str:
    """What sidecars are named by: 40 hex digits that stand for a set of packs."""
    return sha256("\n".join(sorted(names)).encode()).hexdigest()[:40]


def sidecar(kind: str, pack_set: str, version: int) -> str:
    """Other versions have other names: mixed replicas do not replace each other's sidecars all the time."""
    return f"packhouse/{kind}-{pack_set}-{version}"


def lease(sidecar: str) -> str:
    """Held by whoever makes that sidecar."""
    return f"{sidecar}.lease"


def is_pack_set(text: str) -> bool:
    return _PACK_SET.fullmatch(text) is not None


def generations(owner: str, name: str) -> str:
    return f"{repository(owner, name)}packhouse/generations/"


def generation(owner: str, name: str, number: int) -> str:
    return f"{generations(owner, name)}{number:020}"


def latest(owner: str, name: str) -> str:
    return f"{repository(owner, name)}packhouse/latest"


def last_operation(owner: str, name: str) -> str:
    return f"{repository(owner, name)}packhouse/operation"


def is_operation(id_: str) -> bool:
    return _OPERATION.fullmatch(id_) is not None


def operation_id() -> str:
    """A new one. They sort by the time when they were made, to the millisecond."""
    return f"{int(time.time() * 1000):011x}{secrets.token_hex(10)}"


def operation_time(id_: str) -> float | None:
    """When an id was made, in seconds since 1970; None for what is none."""
    return int(id_[:11], 16) / 1000 if _TIMED.fullmatch(id_) else None


def operation(id_: str) -> str:
    return OPERATIONS + id_


def operation_cancel(id_: str) -> str:
    return f"{OPERATIONS}{id_}.cancel"


def operation_end(id_: str) -> str:
    return f"{OPERATIONS}{id_}.end"
