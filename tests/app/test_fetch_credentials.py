"""Forms of credentials, and the vault that keeps them."""

from __future__ import annotations

import base64
import pickle
from pathlib import Path

import pytest

from app.fetch.credentials import Credential, Reference, Vault, split
from pack.errors import BadParameter, UpstreamAuthentication

URL = "https://git.example.org/project.git"


def test_forms() -> None:
    basic = Credential.parse({"username": "ada", "password": "s3cret:ü"})
    assert isinstance(basic, Credential)
    assert basic.header() == "Basic " + base64.b64encode("ada:s3cret:ü".encode()).decode()
    bearer = Credential.parse({"token": "t0ken"})
    assert isinstance(bearer, Credential)
    assert bearer.header() == "Bearer t0ken"
    assert Credential.parse("env:PACKHOUSE_CREDENTIAL_X") == Reference("env", "PACKHOUSE_CREDENTIAL_X")
    assert Credential.parse({"file": "git/token"}) == Reference("file", "git/token")
    assert pickle.loads(pickle.dumps(basic)) == basic


@pytest.mark.parametrize(
    "given",
    [
        "s3cret",
        "ada:s3cret",
        "",
        None,
        7,
        [],
        {},
        {"username": "ada"},
        {"password": "s3cret"},
        {"token": ""},
        {"username": "ada", "password": 7},
        {"token": "s3cret", "username": "ada"},
        {"token": "s3 cret"},
        {"token": "s3cret\r\nX: y"},
        {"username": "a\nb", "password": "s3cret"},
        {"username": "a:b", "password": "s3cret"},
        {"token": "s3cret" * 10_000},
        {"token": "s3crét"},
        {"env": "A", "file": "B"},
    ],
)
def test_what_is_no_credential(given: object) -> None:
    with pytest.raises(BadParameter) as caught:
        Credential.parse(given)
    assert caught.value.parameter == "credential"
    assert "s3cr" not in str(caught.value)


def test_in_a_url() -> None:
    assert split("https://ada:p%40ss@git.example.org/x.git") == (
        "https://git.example.org/x.git",
        Credential("p@ss", "ada"),
    )
    assert split("https://git.example.org/x.git") == ("https://git.example.org/x.git", None)


def test_sealing() -> None:
    vault = Vault("key one")
    for credential in (Credential("s3cret", "ada"), Credential("t0ken")):
        text = vault.seal(credential, URL)
        assert text.startswith("sealed:")
        assert "s3cret" not in text
        assert "t0ken" not in text
        assert vault.unseal(text, URL) == credential
        assert vault.unseal(text, "https://git.example.org:443/other.git") == credential


def test_keys_change() -> None:
    text = Vault("old").seal(Credential("t0ken"), URL)
    assert Vault("new", "old").unseal(text, URL) == Credential("t0ken")
    for other in (Vault("new"), Vault()):
        with pytest.raises(UpstreamAuthentication):
            other.unseal(text, URL)


def test_without_a_key_nothing_is_stored() -> None:
    with pytest.raises(BadParameter, match="PACKHOUSE_SECRET_KEY"):
        Vault().seal(Credential("t0ken"), URL)


@pytest.mark.parametrize(
    "url", ["http://git.example.org/x", "https://evil.example/x", "https://git.example.org:8443/x"]
)
def test_a_sealed_credential_is_for_one_origin(url: str) -> None:
    vault = Vault("key")
    with pytest.raises(UpstreamAuthentication, match="not meant for"):
        vault.unseal(vault.seal(Credential("t0ken"), URL), url)


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "PACKHOUSE_CREDENTIAL_MAIN"
    monkeypatch.setenv(name, "https://bob:other@other.example.org\nhttps://ada:s3cret@git.example.org\n")
    vault = Vault()
    text = vault.seal(Reference("env", name), URL)
    assert text == "env:PACKHOUSE_CREDENTIAL_MAIN"
    assert vault.unseal(text, URL) == Credential("s3cret", "ada")
    monkeypatch.setenv(name, '{"origin": "https://git.example.org", "token": "t0ken"}')
    assert vault.unseal(text, URL) == Credential("t0ken")
    for url in ("https://evil.example/x", "http://git.example.org/x"):
        with pytest.raises(UpstreamAuthentication, match="holds no credential for"):
            vault.seal(Reference("env", name), url)


@pytest.mark.parametrize(
    "value",
    [
        "t0ken",
        "ada:t0ken",
        "",
        "{",
        '{"token": "t0ken"}',
        "[]",
        '{"origin": 7, "token": "t0ken"}',
        '{"origin": "https://git.example.org", "env": "X"}',
        "https://git.example.org",
    ],
)
def test_a_reference_must_say_where_its_secret_may_go(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("PACKHOUSE_CREDENTIAL_MAIN", value)
    with pytest.raises(UpstreamAuthentication, match="holds no credential for") as caught:
        Vault().seal(Reference("env", "PACKHOUSE_CREDENTIAL_MAIN"), URL)
    assert "t0ken" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "HOME",
        "PATH",
        "PACKHOUSE_SECRET_KEY",
        "PACKHOUSE_CREDENTIAL_",
        "",
        "PACKHOUSE_CREDENTIAL_MISSING",
        "PACKHOUSE_CREDENTIAL_A=B",
        "packhouse_credential_x",
    ],
)
def test_other_variables_are_not_read(name: str) -> None:
    with pytest.raises(BadParameter):
        Vault().seal(Reference("env", name), URL)


def test_files(tmp_path: Path) -> None:
    folder = tmp_path / "credentials"
    (folder / "sub").mkdir(parents=True)
    line = "https://ada:s3cret@git.example.org\n"
    (folder / "one").write_text(line)
    (folder / "sub" / "two").write_text(line)
    (folder / "link").symlink_to("sub/two")
    (tmp_path / "outside").write_text(line)
    (folder / "out").symlink_to(tmp_path / "outside")
    vault = Vault(directory=folder)
    for name in ("one", "sub/two", "link", str(folder / "one"), "sub/../one"):
        assert vault.unseal(f"file:{name}", URL) == Credential("s3cret", "ada")
    for name in (
        "../outside",
        str(tmp_path / "outside"),
        "out",
        "missing",
        "sub",
        "",
        ".",
        "one\0",
        "/etc/passwd",
        "x" * 9000,
    ):
        with pytest.raises(BadParameter, match="no such file"):
            vault.unseal(f"file:{name}", URL)
    with pytest.raises(BadParameter, match="PACKHOUSE_CREDENTIALS_DIR"):
        Vault().unseal("file:one", URL)


@pytest.mark.parametrize("text", ["", "nonsense", "sealed:", "sealed:xyz", "sealed:gAAAA"])
def test_damaged_text(text: str) -> None:
    with pytest.raises(UpstreamAuthentication):
        Vault("key").unseal(text, URL)
