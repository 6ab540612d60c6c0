"""The command, as a person runs it: real processes, real ports."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from app import names
from app.tokens import Tokens, read_tokens
from pack.errors import BadParameter, UpstreamRefused
from tests.app.ingesting import refs_of
from tests.support.generate import Repositories
from tests.support.git import git
from tests.support.upstream import Upstream

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "app.cli"]
ENV = {k: v for k, v in os.environ.items() if not k.startswith("PACKHOUSE_")} | {"PYTHONPATH": str(ROOT)}
SECONDS = 60


def packhouse(*arguments: str, cwd: Path, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        env={**ENV, **env},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@contextmanager
def running(*arguments: str, cwd: Path, **env: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, *arguments], cwd=cwd, env={**ENV, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], count: int, pattern: str) -> list[str]:
    """The lines of its output up to the `count`th that the pattern matches."""
    assert process.stdout is not None
    lines: list[str] = []
    while sum(1 for line in lines if re.search(pattern, line)) < count:
        line = process.stdout.readline()
        if not line:
            assert process.stderr is not None
            raise AssertionError(f"it ended: {lines} {process.stderr.read()}")
        lines.append(line.rstrip("\n"))
    return lines


def curl(line: str) -> httpx.Response:
    """What one of the printed lines answers."""
    command, url = shlex.split(line)
    assert command == "curl"
    return httpx.get(url, trust_env=False)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_end_that_comes_early_makes_no_noise(tmp_path: Path, how: signal.Signals) -> None:
    """While it imports, proves the store, starts its processes: as a terminal sends it, to all of them at once."""
    for number in range(8):
        process = subprocess.Popen(
            [*COMMAND, "serve", "--port", "0", "--store", str(tmp_path / "store")],
            cwd=tmp_path,
            env=ENV,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        time.sleep(0.2 + 0.25 * number)
        os.killpg(process.pid, how)
        _, err = process.communicate(timeout=SECONDS)
        assert err == ""
        assert process.returncode in (-how, 128 + how)


def stop(process: subprocess.Popen[str], how: signal.Signals = signal.SIGINT) -> tuple[int, str]:
    process.send_signal(how)
    _, errors = process.communicate(timeout=SECONDS)
    assert "Traceback" not in errors
    return process.returncode, errors


def test_version_and_help(tmp_path: Path) -> None:
    assert packhouse("version", cwd=tmp_path).stdout.startswith("packhouse ")
    told = packhouse("--help", cwd=tmp_path).stdout
    for command in ("run", "serve", "ingest", "export", "fsck", "token", "openapi"):
        assert command in told
    for option in ("--host", "--port", "--store", "--cache-dir"):
        assert option in packhouse("serve", "--help", cwd=tmp_path, COLUMNS="200").stdout


def test_openapi(tmp_path: Path) -> None:
    document = json.loads(packhouse("openapi", cwd=tmp_path).stdout)
    assert document["openapi"].startswith("3.1")
    assert "/v1/repos/{owner}/{name}/log" in document["paths"]
    assert list(tmp_path.iterdir()) == []


def test_ingest_export_and_fsck(repositories: Repositories, tmp_path: Path) -> None:
    source = str(repositories["merges"])
    told = packhouse("ingest", source, "team/project", "--store", "s", cwd=tmp_path).stdout
    assert re.match(r"team/project: generation 2, \d+ objects, ", told)
    assert "up to date" in packhouse("ingest", source, "team/project", "--store", "s", cwd=tmp_path).stdout
    other = packhouse("ingest", str(repositories["tags"]), "team/project", "--store", "s", cwd=tmp_path, code=1)
    assert len(other.stderr.splitlines()) == 1
    packhouse("ingest", str(repositories["tags"]), "team/project", "--replace", "--store", "s", cwd=tmp_path)
    packhouse("export", "team/project", "out.git", "--store", "s", cwd=tmp_path)
    assert refs_of(tmp_path / "out.git") == refs_of(repositories["tags"])
    git(tmp_path / "out.git", "fsck", "--full")
    assert packhouse("fsck", "--store", "s", cwd=tmp_path).stdout.startswith("team/project: good")
    # Both packs: that of the registration before stays until gc.
    for pack in (tmp_path / "s" / "team" / "project.git" / "objects" / "pack").glob("*.pack"):
        data = bytearray(pack.read_bytes())
        data[len(data) // 2] ^= 1
        pack.chmod(0o644)
        pack.write_bytes(data)
    told = packhouse("fsck", "team/project", "--store", "s", cwd=tmp_path, code=1).stdout
    assert "bad_pack" in told


def test_ingest_by_url(repositories: Repositories, upstream: Callable[..., Upstream], tmp_path: Path) -> None:
    """A loopback address that the person names is allowed, and an old registration of it is not needed."""
    source = repositories["merges"]
    server = upstream(source.parent)
    told = packhouse("ingest", server.repo(source.stem), "--store", "s", cwd=tmp_path).stdout
    assert told.startswith(f"127.0.0.1/{source.stem}: generation 2")
    told = packhouse("ingest", server.repo("nothing"), "x/y", "--store", "s", cwd=tmp_path, code=1).stderr
    assert "no such repository" in told


@pytest.mark.parametrize(
    ("arguments", "env", "code", "says"),
    [
        (["serve", "--host", "0.0.0.0"], {}, 2, "PACKHOUSE_TOKENS_FILE"),
        (["run", "--host", "0.0.0.0"], {}, 2, "PACKHOUSE_TOKENS_FILE"),
        (["serve"], {"PACKHOUSE_PORT": "x"}, 2, "PACKHOUSE_PORT"),
        (["serve", "--store", "s3://b/x"], {}, 2, "--store"),
        (["serve", "--host", "192.0.2.7"], {"PACKHOUSE_TOKENS_FILE": "tokens"}, 2, "cannot listen"),
        (["serve"], {"PACKHOUSE_TOKENS_FILE": "broken"}, 2, "tokens file"),
        (["serve", "--store", "file/below"], {}, 1, "store"),
        (["ingest", "nowhere"], {}, 1, "not a git repository"),
        (["ingest", "ftp://x/y"], {}, 1, "only http and https"),
        (["ingest", "http://10.0.0.1/x.git"], {}, 1, "PACKHOUSE_ALLOW_UPSTREAMS"),
        (["export", "a/b", "out"], {}, 1, "a/b"),
        (["export", "ab", "out"], {}, 1, "owner/name"),
        (["token", "ci", "--repos", "team"], {}, 2, "repos"),
        (["token", "ci", "--repos", "team/*", "--verbs", "fly"], {}, 2, "verbs"),
        (["token", "ci", "--repos", "team/*", "--file", "broken"], {}, 2, "tokens file"),
        (["token", "ci", "--repos", "team/*", "--file", "no/folder/tokens"], {}, 1, "no/folder/tokens"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, arguments: list[str], env: dict[str, str], code: int, says: str) -> None:
    (tmp_path / "tokens").write_text("[]")
    (tmp_path / "broken").write_text("{")
    (tmp_path / "file").write_text("")
    told = packhouse(*arguments, cwd=tmp_path, code=code, **env)
    assert says in told.stderr
    assert len(told.stderr.splitlines()) == 1


def test_token(tmp_path: Path) -> None:
    """The secret and its record; the file is added to, and what is in it lets its bearer in."""
    secret, line = packhouse("token", "ci", "--repos", "team/*", "--repos", "a/b", cwd=tmp_path).stdout.splitlines()
    record = json.loads(line)
    assert record == {
        "name": "ci",
        "sha256": hashlib.sha256(secret.encode()).hexdigest(),
        "repos": ["team/*", "a/b"],
        "verbs": ["read"],
    }
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps([record]))
    path.chmod(0o640)
    told = packhouse(
        "token", "bot", "--repos", "*/*", "--verbs", "read, write", "--days", "2", "--file", str(path), cwd=tmp_path
    )
    (other,) = told.stdout.split()
    assert path.stat().st_mode & 0o777 == 0o640
    assert [token.name for token in read_tokens(path)] == ["ci", "bot"]
    tokens = Tokens(path)
    for bearer, verb in ((secret, "read"), (other, "write")):
        tokens.check(tokens.identify(f"Bearer {bearer}"), "team", "x", verb)
    last = read_tokens(path)[-1].expires
    assert last is not None
    assert timedelta(days=1) < last - datetime.now(UTC) < timedelta(days=3)
    assert [entry.name for entry in tmp_path.iterdir()] == ["tokens.json"]
    # The first one makes the file.
    packhouse("token", "first", "--repos", "*/*", "--file", "fresh.json", cwd=tmp_path)
    assert [token.name for token in read_tokens(tmp_path / "fresh.json")] == ["first"]


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        told = packhouse("serve", "--port", str(taken.getsockname()[1]), cwd=tmp_path, code=2)
    assert "cannot listen" in told.stderr


def test_run_a_path(repositories: Repositories, tmp_path: Path) -> None:
    with running("run", str(repositories["merges"]), "--port", "0", "--store", "s", cwd=tmp_path) as process:
        lines = read_until(process, 3, "^curl ")
        resolve, file, log = (curl(line) for line in lines if line.startswith("curl"))
        head = git(repositories["merges"], "rev-parse", "HEAD").decode().strip()
        assert resolve.json()["oid"] == head
        assert file.status_code == 200
        assert file.headers["packhouse-commit"] == head
        assert log.json()["commits"][0]["oid"] == head
        assert any("objects" in line for line in lines)
        stop(process)
    # Once more, on the same store: nothing is in the way.
    with running("run", str(repositories["merges"]), "--port", "0", "--store", "s", cwd=tmp_path) as process:
        read_until(process, 3, "^curl ")
        assert stop(process, signal.SIGTERM)[1] == ""


@pytest.mark.parametrize("name", ["empty", "dangling", "detached", "names"])
def test_run_answers_for_odd_repositories(repositories: Repositories, tmp_path: Path, name: str) -> None:
    with running("run", str(repositories[name]), "--port", "0", cwd=tmp_path) as process:
        lines = [line for line in read_until(process, 3, "^curl ") if line.startswith("curl")]
        assert [curl(line).status_code for line in lines] == [200, 200, 200]


def test_run_a_url(repositories: Repositories, upstream: Callable[..., Upstream], tmp_path: Path) -> None:
    url = upstream(repositories["merges"].parent).repo(repositories["merges"].stem)
    with running("run", url, "--name", "my/own", "--port", "0", cwd=tmp_path) as process:
        lines = [line for line in read_until(process, 3, "^curl ") if line.startswith("curl")]
        assert all("/v1/repos/my/own/" in line for line in lines)
        assert [curl(line).status_code for line in lines] == [200, 200, 200]


def test_run_says_why_it_cannot(tmp_path: Path, upstream: Callable[..., Upstream]) -> None:
    url = upstream(tmp_path).repo("nothing")
    for target in ("nowhere", url):
        told = packhouse("run", target, "--port", "0", cwd=tmp_path, code=1)
        assert len(told.stderr.splitlines()) == 1


def test_run_takes_the_checkout_or_a_sample(repositories: Repositories, tmp_path: Path) -> None:
    git(None, "clone", "-q", str(repositories["merges"]), str(tmp_path / "house"))
    below = tmp_path / "house" / "some" / "folder"
    below.mkdir(parents=True)
    (tmp_path / "bare").mkdir()
    for cwd, name in ((below, "local/house"), (tmp_path / "bare", "local/sample")):
        with running("run", "--port", "0", "--store", str(tmp_path / "s"), cwd=cwd) as process:
            lines = [line for line in read_until(process, 3, "^curl ") if line.startswith("curl")]
            assert all(f"/v1/repos/{name}/" in line for line in lines)
            assert [curl(line).status_code for line in lines] == [200, 200, 200]
    sample = tmp_path / "s" / "local" / "sample.git"
    git(sample, "fsck", "--full", "--strict")
    assert git(sample, "rev-parse", "main") == b"8f7ebe623630af86641d759742fb163895f9cd11\n"


def test_serve_with_several_processes(repositories: Repositories, tmp_path: Path) -> None:
    packhouse("ingest", str(repositories["merges"]), "team/project", "--store", "s", cwd=tmp_path)
    with running("serve", "--port", "0", "--store", "s", cwd=tmp_path, PACKHOUSE_WORKERS="2") as process:
        (line,) = read_until(process, 1, "http://")
        url = line.split()[-1]
        head = git(repositories["merges"], "rev-parse", "HEAD").decode().strip()
        with httpx.Client(trust_env=False, transport=httpx.HTTPTransport(retries=20)) as client:
            for _ in range(20):
                answer = client.get(f"{url}/v1/repos/team/project/resolve", headers={"Connection": "close"}, timeout=30)
                assert answer.json()["oid"] == head
            assert client.get(f"{url}/v1/repos/team/project/log", timeout=30).status_code == 200
        stop(process, signal.SIGTERM)


@pytest.mark.parametrize(
    ("url", "called"),
    [
        ("https://example.org/team/project.git", ("team", "project")),
        ("https://example.org/group/sub/name", ("group.sub", "name")),
        ("https://ada:secret@example.org/team/project/", ("team", "project")),
        ("http://127.0.0.1:8011/h11.git", ("127.0.0.1", "h11")),
        ("https://example.org/~ada/a%20b.git", ("ada", "a-b")),
    ],
)
def test_names_of_urls(url: str, called: tuple[str, str]) -> None:
    assert names.of_url(url) == called


def test_names() -> None:
    assert names.of_path(Path("/srv/git/some project.git")) == ("local", "some-project")
    assert names.of_path(Path("/srv/house/.git")) == ("local", "house")
    assert names.own_upstream("http://127.0.0.1:8011/x.git") == ("127.0.0.1:8011",)
    assert names.own_upstream("http://[::1]/x.git") == ("[::1]:80",)
    assert names.own_upstream("https://example.org/x.git") == ()
    for bad in ("https://example.org/", "https://"):
        with pytest.raises((BadParameter, UpstreamRefused)):
            names.of_url(bad)
    for bad in ("a", "a/b/c", "/", "a/.b"):
        with pytest.raises(BadParameter):
            names.parse(bad)
