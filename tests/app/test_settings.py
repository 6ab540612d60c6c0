"""Settings from the environment, and what is said of bad ones."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pydantic import ByteSize

from app.fetch.credentials import ENV_PREFIX
from app.settings import CREDENTIALS, Settings, SettingsError, load

DOCS = Path(__file__).parents[2] / "docs" / "operations.md"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in Settings.model_fields:
        monkeypatch.delenv("PACKHOUSE_" + name.upper(), raising=False)


def test_defaults(tmp_path: Path) -> None:
    settings = load()
    assert settings.store == (tmp_path / ".packhouse" / "store").as_uri()
    assert settings.cache_dir == tmp_path / ".packhouse" / "cache"
    assert (settings.host, settings.port, settings.loopback) == ("127.0.0.1", 8750, True)
    assert settings.limits().object_bytes == 100 << 20


def test_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    values = {
        "STORE": "file:///srv/store",
        "CACHE_BYTES": "10GiB",
        "ALLOW_UPSTREAMS": "git.internal, 10.0.0.0/8,",
        "SECRET_KEY": "hush",
        "MAX_OBJECT_BYTES": "5MB",
        "WORKERS": "3",
        "READ_DEADLINE": "2.5",
        "PORT": "",
    }
    for name, value in values.items():
        monkeypatch.setenv("PACKHOUSE_" + name, value)
    settings = load(host="::1", port=None)
    assert settings.store == "file:///srv/store"
    assert settings.cache_bytes == 10 << 30
    assert settings.allow_upstreams == ("git.internal", "10.0.0.0/8")
    assert settings.limits().object_bytes == 5_000_000
    assert (settings.workers, settings.read_deadline, settings.port, settings.loopback) == (3, 2.5, 8750, True)
    assert "hush" not in repr(settings)
    # Other processes get the very same: by pickle, and by their environment.
    assert pickle.loads(pickle.dumps(settings)) == settings
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert load() == settings


@pytest.mark.parametrize(("given", "path"), [("store", "store"), ("./a b", "a b"), ("file:rel", "rel")])
def test_a_store_may_be_a_path(given: str, path: str, tmp_path: Path) -> None:
    assert load(store=given).store == (tmp_path / path).as_uri()


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("PORT", "x", "PACKHOUSE_PORT"),
        ("PORT", "70000", "PACKHOUSE_PORT"),
        ("STORE", "ftp://x/y", "ftp://"),
        ("STORE", "file://host/x", "three slashes"),
        ("CACHE_BYTES", "lots", "PACKHOUSE_CACHE_BYTES"),
        ("WORKERS", "0", "PACKHOUSE_WORKERS"),
        ("TOKENS_FILE", "/nowhere/tokens.json", "no file"),
        ("ALLOW_UPSTREAMS", "10.0.0.0/99", "10.0.0.0/99"),
        ("TOKEN_FILE", "/x", "PACKHOUSE_TOKENS_FILE"),
        ("READ_WORKER", "2", "PACKHOUSE_READ_WORKERS"),
    ],
)
def test_bad_ones_are_told_in_one_line(monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str) -> None:
    monkeypatch.setenv("PACKHOUSE_" + name, value)
    with pytest.raises(SettingsError) as told:
        load()
    assert says in str(told.value)
    assert "\n" not in str(told.value)


def test_options_are_named_as_options() -> None:
    with pytest.raises(SettingsError, match=r"^--store: "):
        load(store="ftp://x")


def test_secrets_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACKHOUSE_WORKERS", "0")
    monkeypatch.setenv("PACKHOUSE_SECRET_KEY", "hush")
    with pytest.raises(SettingsError) as told:
        load()
    assert "hush" not in str(told.value)


def test_what_an_orchestrator_sets_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PORT": "tcp://10.0.0.1:80",
        "SERVICE_HOST": "10.0.0.1",
        "PORT_80_TCP_ADDR": "10.0.0.1",
    }.items():
        monkeypatch.setenv("PACKHOUSE_" + name, value)
    assert load().port == 8750


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.3.4.5", True), ("localhost", True), ("0.0.0.0", False), ("::", False), ("a.b", False)],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert load(host=host).loopback is loopback


@pytest.mark.parametrize("name", ["CREDENTIAL_GIT", "CREDENTIAL_FORGE", "CREDENTIAL_DIR"])
def test_variables_of_credentials_are_no_misspelt_settings(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("PACKHOUSE_" + name, "https://ada:secret@git.example.org")
    assert load().credentials_dir is None
    assert CREDENTIALS == ENV_PREFIX


def test_the_docs_tell_every_setting() -> None:
    """One row a setting, with its default and the words of the help text."""
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    for name, field in Settings.model_fields.items():
        value = field.default
        if field.default_factory is not None:
            default = "the processors, at least 2"
        elif name == "store":
            default = "`.packhouse/store`"
        elif value is None or value == ():
            default = "none"
        elif isinstance(value, ByteSize):
            default = value.human_readable(separator=" ").replace(".0 ", " ")
        elif isinstance(value, bool):
            default = str(value).lower()
        elif isinstance(value, (int, float)):
            default = f"{value:g}" if isinstance(value, float) else str(value)
        else:
            default = f"`{value}`"
        row = f"| `{name.upper()}` | {default} | {field.description} |"
        assert row in rows, f"docs/operations.md wants this row: {row}"
