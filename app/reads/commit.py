"""getCommit, and the record of a commit that log shares with it."""

from __future__ import annotations

from typing import Any

from app.reads.base import Params, b64, named
from pack.charset import decode
from pack.commit import Commit, subject
from pack.ident import Ident
from pack.revision import resolve_commit
from pack.view import View


def read(view: View, params: Params) -> dict[str, Any]:
    oid = resolve_commit(view, params["rev"])
    commit = view.commit(oid)
    return {
        "commit": oid.hex(),
        **commit_record(oid, commit),
        "signature": next((_text(value) for key, value in commit.headers if key.startswith(b"gpgsig")), None),
        "headers": header_records(commit.headers),
    }


def commit_record(oid: bytes, commit: Commit) -> dict[str, Any]:
    """The fields of a commit; text is decoded by its encoding header, `*_b64` holds what does not decode."""
    encoding = commit.encoding
    return {
        "oid": oid.hex(),
        "tree": commit.tree.hex(),
        "parents": [parent.hex() for parent in commit.parents],
        "author": ident_record(commit.author, encoding),
        "committer": ident_record(commit.committer, encoding),
        **message_record(commit.message, encoding),
        "encoding": _text(encoding) if encoding is not None else None,
        "signed": commit.signed,
    }


def message_record(message: bytes, encoding: bytes | None) -> dict[str, Any]:
    """`subject` and `message` as text."""
    text, exact = decode(message, encoding)
    record = {"subject": decode(subject(message), encoding)[0], "message": text}
    return record if exact else {**record, "message_b64": b64(message)}


def ident_record(ident: Ident | None, encoding: bytes | None) -> dict[str, Any] | None:
    """Name, e-mail, time and zone of an author, committer or tagger."""
    if ident is None:
        return None
    return {
        **_decoded("name", ident.name, encoding),
        **_decoded("email", ident.email, encoding),
        "time": ident.time,
        "tz": _text(ident.tz),
    }


def header_records(headers: tuple[tuple[bytes, bytes], ...]) -> list[dict[str, Any]]:
    """Further headers in their order, lines of a long value joined by line ends."""
    return [{**named("name", key), **named("value", value)} for key, value in headers]


def _decoded(key: str, data: bytes, encoding: bytes | None) -> dict[str, str]:
    text, exact = decode(data, encoding)
    return {key: text} if exact else {key: text, f"{key}_b64": b64(data)}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
