"""Tokens: who may do what with which repository."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from app.tokens import BadTokensFile, Tokens, new_token
from pack.errors import AuthenticationRequired, NotAllowed, RepoNotFound


def write(path: Path, *records: dict[str, object]) -> Path:
    path.write_text(json.dumps(records))
    return path


def test_matrix(tmp_path: Path) -> None:
    reader, reads = new_token("reader", ["team/*"], ["read"])
    writer, writes = new_token("writer", ["team/app-*", "solo/x"], ["write"])
    tokens = Tokens(write(tmp_path / "tokens.json", reads, writes))
    assert tokens.required
    for secret, owner, name, verb, error in (
        (reader, "team", "app-1", "read", None),
        (reader, "team", "app-1", "write", NotAllowed),
        (reader, "solo", "x", "read", RepoNotFound),
        (reader, "team2", "x", "read", RepoNotFound),
        (writer, "team", "app-1", "read", None),
        (writer, "team", "app-1", "write", None),
        (writer, "team", "app-1", "admin", NotAllowed),
        (writer, "team", "other", "write", RepoNotFound),
        (writer, "solo", "x", "write", None),
        (writer, "solo", "xy", "write", RepoNotFound),
    ):
        bearer = tokens.identify(f"Bearer {secret}")
        if error is None:
            tokens.check(bearer, owner, name, verb)
        else:
            with pytest.raises(error):
                tokens.check(bearer, owner, name, verb)


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer wrong", "Basic abc", "wrong"])
def test_strangers(tmp_path: Path, header: str | None) -> None:
    tokens = Tokens(write(tmp_path / "tokens.json", new_token("a", ["*/*"], ["read"])[1]))
    with pytest.raises(AuthenticationRequired):
        tokens.identify(header)


def test_expiry(tmp_path: Path) -> None:
    secret, record = new_token("a", ["*/*"], ["read"])
    tokens = Tokens(write(tmp_path / "tokens.json", record | {"expires": "2001-01-01T00:00:00Z"}))
    with pytest.raises(AuthenticationRequired):
        tokens.identify(f"Bearer {secret}")


def test_the_file_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    old, first = new_token("a", ["*/*"], ["read"])
    new, second = new_token("b", ["*/*"], ["read"])
    tokens = Tokens(write(path, first))
    tokens.identify(f"Bearer {old}")
    write(tmp_path / "next", second)
    os.replace(tmp_path / "next", path)
    tokens.identify(f"bearer {new}")
    with pytest.raises(AuthenticationRequired):
        tokens.identify(f"Bearer {old}")
    path.write_text("{broken")
    tokens.identify(f"Bearer {new}")


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "{}",
        '[{"name": "a"}]',
        '[{"name": "a", "sha256": "x", "repos": ["*/*"], "verbs": ["read"]}]',
        '[{"name": "a", "sha256": "%s", "repos": ["*"], "verbs": ["read"]}]' % ("0" * 64),
        '[{"name": "a", "sha256": "%s", "repos": ["*/*"], "verbs": ["fly"]}]' % ("0" * 64),
    ],
)
def test_bad_files(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(content)
    with pytest.raises(BadTokensFile) as caught:
        Tokens(path)
    assert "\n" not in str(caught.value)


def test_without_a_file_everyone_may() -> None:
    tokens = Tokens(None)
    tokens.check(tokens.identify(None), "any", "repo", "admin")
