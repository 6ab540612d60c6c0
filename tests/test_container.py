"""The image and the compose file: what they promise, checked by reading them, and by every tool that is at hand."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from app.metrics import FAMILIES
from app.tokens import Tokens
from tests.conftest import Served
from tests.services import compose

ROOT = Path(__file__).parent.parent
PINNED = re.compile(r"[a-z0-9./-]+:(?P<tag>[A-Za-z0-9._-]+)@sha256:[0-9a-f]{64}\Z")
ONCE = {"keys", "bucket"}
PROFILES = ("minio", "seaweedfs")


def instructions() -> Iterator[tuple[str, str]]:
    """The Dockerfile's instructions, their lines joined."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name, " ".join(rest.split())


def found(name: str) -> list[str]:
    return [rest for instruction, rest in instructions() if instruction == name]


def document() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load((ROOT / "docker-compose.yml").read_text())
    return loaded


def services() -> dict[str, dict[str, Any]]:
    return {name: one for profile in PROFILES for name, one in compose.services(profile, {}).items()}


def tool(*names: str) -> str:
    """A program by one of its names, also from the folder of the Python that runs this; else the test is skipped."""
    for name in names:
        path = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
        if path is not None:
            return path
    pytest.skip(f"{names[0]} is not installed")


def locked(name: str) -> dict[str, str]:
    """The packages of a lock file with their versions; each has a hash."""
    text = (ROOT / name).read_text()
    pins = dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)", text, re.MULTILINE))
    for block in re.split(r"^(?=[a-z0-9-]+==)", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in block, block.splitlines()[0]
    return pins


def test_all_stages_are_pinned() -> None:
    arguments = dict(argument.split("=", 1) for argument in found("ARG") if "=" in argument)
    bases = [rest.split()[0] for rest in found("FROM")]
    assert len(bases) > 1
    for base in bases:
        image = re.sub(r"\$\{(\w+)\}", lambda name: arguments[name[1]], base)
        pin = PINNED.match(image)
        assert pin, image
        assert "slim" in pin["tag"]
        assert re.match(r"\d+\.\d+\.\d+-", pin["tag"]), "the whole version"


def test_the_image_is_small_and_modest() -> None:
    assert found("USER") == ["10001:10001"], "a number, so that engines can see that it is not root"
    assert found("ENTRYPOINT") == ['["packhouse"]']
    assert json.loads(found("CMD")[-1]) == ["serve", "--host", "0.0.0.0"]
    assert found("EXPOSE") == ["8750"]
    assert json.loads(found("VOLUME")[0]) == ["/var/lib/packhouse", "/var/cache/packhouse"]
    assert "org.opencontainers.image.title" in found("LABEL")[0]
    assert not found("ADD")
    installs = [line for line in found("RUN") if "install" in line and "pip" in line]
    assert any("--require-hashes" in line for line in installs)
    assert all("--require-hashes" in line or "--no-deps" in line for line in installs)
    assert not any(word in line for line in found("RUN") + found("HEALTHCHECK") for word in ("curl", "wget", "apt-get"))


def test_the_context_holds_what_is_copied_and_no_more() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = {source for rest in found("COPY") if not rest.startswith("--from") for source in rest.split()[:-1]}
    assert kept == copied
    assert all((ROOT / name).exists() for name in kept)


def test_the_locks_agree() -> None:
    """The image gets the versions that the tests ran with, all that packhouse needs, and nothing for development."""
    image, development = locked("requirements-runtime.lock"), locked("requirements.lock")
    assert image.items() <= development.items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[^A-Za-z0-9-]", one)[0].lower() for one in requirements}

    extras = project["optional-dependencies"]
    assert names(project["dependencies"]) <= image.keys()
    assert not (names(extras["dev"]) - names(extras["build"])) & image.keys()
    assert names(extras["build"]) <= names(extras["dev"])


def test_the_health_check_sees_what_lives(served: Served) -> None:
    kind, _, rest = found("HEALTHCHECK")[0].partition("CMD ")
    assert "--interval" in kind
    command = json.loads(rest)
    assert command[0] == "python"
    port = served.running.url.rpartition(":")[2]
    for number, good in ((port, True), ("1", False)):
        done = subprocess.run(
            [sys.executable, *command[1:]],
            env=os.environ | {"PACKHOUSE_PORT": number},
            capture_output=True,
            check=False,
        )
        assert (done.returncode == 0) is good


def test_images_are_pinned_and_settable() -> None:
    written = {name: one["image"] for name, one in document()["services"].items() if "image" in one}
    assert written.keys() == document()["services"].keys()
    for name, image in written.items():
        variable = re.match(r"\$\{([A-Z]+_IMAGE):-([^}]+)\}\Z", image)
        assert variable, f"{name}: one variable sets it"
        if "build" not in services()[name]:
            assert PINNED.match(variable[2]), name
    # Its last official image has a known hole, and no later one will come.
    assert not any(re.search(r"\bminio/minio\b", image) for image in written.values())


@pytest.mark.parametrize("name", sorted(services()))
def test_every_service_is_confined(name: str) -> None:
    service = services()[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.get("privileged")
    assert ("healthcheck" in service) and (service["healthcheck"] == {"disable": True}) == (name in ONCE)
    assert service["restart"] == ("no" if name in ONCE else "unless-stopped")
    # Only the balancer is published, and to this machine alone.
    assert service.get("ports", []) == (["127.0.0.1:8750:8000"] if name == "balancer" else [])
    for key, value in service.get("environment", {}).items():
        if re.search(r"SECRET|PASSWORD|TOKEN|KEY", key):
            assert value == "" or value.startswith("/run/packhouse/keys/"), f"{key} stands in the file"
    for volume in service.get("volumes", []):
        source, inside, *mode = volume.split(":")
        if source.startswith("."):
            assert (ROOT / source).is_file()
            assert mode == ["ro"]
        else:
            assert source in document()["volumes"]
            assert inside != "/run/packhouse/admin" or name == "keys", "only people have use for that"
            assert inside != "/run/packhouse/keys" or mode == ["ro"] or name == "keys"


def test_two_replicas_differ_in_nothing_but_their_cache() -> None:
    one, two = ({**services()[f"packhouse-{name}"]} for name in ("one", "two"))
    assert one.pop("volumes") != two.pop("volumes")
    assert one == two
    assert set(services()["balancer"]["depends_on"]) == {"packhouse-one", "packhouse-two"}
    assert "command" not in one
    assert "entrypoint" not in one


@pytest.mark.parametrize("profile", PROFILES)
def test_each_profile_has_one_store(profile: str) -> None:
    chosen = compose.services(profile, {})
    stores = [
        one
        for one in chosen.values()
        if isinstance(one.get("networks"), dict) and "store" in one["networks"]["back"]["aliases"]
    ]
    assert len(stores) == 1
    assert all(set(one.get("depends_on", {})) <= chosen.keys() for one in chosen.values())
    assert f"COMPOSE_PROFILES={PROFILES[0]}" in (ROOT / ".env").read_text().splitlines()
    assert document()["networks"]["back"] == {"internal": True}


def test_keys_are_made_once(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "admin").mkdir()
    env = os.environ | {"KEYS": str(tmp_path / "keys"), "ADMIN": str(tmp_path / "admin"), "PYTHONPATH": str(ROOT)}

    def run(*arguments: str) -> str:
        command = [sys.executable, str(ROOT / "deploy" / "keys.py"), *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    said = run()
    made = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    run()
    assert made == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    token = run("token").strip()
    assert token not in said, "what is printed at start stays in logs"
    tokens = Tokens(tmp_path / "keys" / "tokens.json")
    tokens.check(tokens.identify(f"Bearer {token}"), "any", "repository", "admin")
    assert (tmp_path / "admin" / "token").stat().st_mode & 0o077 == 0
    profile = configparser.ConfigParser()
    profile.read(tmp_path / "keys" / "credentials")
    access, secret = (profile["default"][f"aws_{name}"] for name in ("access_key_id", "secret_access_key"))
    assert (access, secret) == tuple((tmp_path / "keys" / name).read_text() for name in ("access", "secret"))
    (identity,) = json.loads((tmp_path / "keys" / "seaweedfs.json").read_text())["identities"]
    assert identity["credentials"] == [{"accessKey": access, "secretKey": secret}]
    # MinIO takes 3 to 20 characters for the one and 8 to 40 for the other.
    assert 3 <= len(access) <= 20
    assert 8 <= len(secret) <= 40


def test_hadolint() -> None:
    done = subprocess.run([tool("hadolint"), str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("profile", PROFILES)
def test_docker_compose_takes_the_file(profile: str) -> None:
    done = subprocess.run(
        [tool("docker-compose"), "-f", "docker-compose.yml", "config", "-q"],
        cwd=ROOT,
        env=os.environ | {"COMPOSE_PROFILES": profile},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_the_compose_plugin_takes_the_file() -> None:
    docker = tool("docker")
    if subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker has no compose plugin")
    done = subprocess.run([docker, "compose", "config", "-q"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_haproxy_takes_its_configuration(tmp_path: Path) -> None:
    # Their names are known inside the network alone.
    text = (ROOT / "deploy" / "haproxy.cfg").read_text()
    for name in ("packhouse-one", "packhouse-two"):
        assert f"{name}:8750" in text
        text = text.replace(name, "127.0.0.1")
    (tmp_path / "haproxy.cfg").write_text(text)
    program = tool("haproxy", "/usr/sbin/haproxy")
    done = subprocess.run(
        [program, "-c", "-f", str(tmp_path / "haproxy.cfg")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_the_services_work_together(tmp_path: Path, profile: str) -> None:
    """Real servers with the compose file's own commands; what it cannot show stands at the top of that module."""
    lacking = compose.missing(profile)
    if lacking:
        pytest.skip(f"{lacking} is not installed")
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", sys.executable]
    done = subprocess.run(
        [*command, "-m", "tests.services.compose", profile, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("good\n")


@pytest.mark.slow
def test_the_image_is_built_and_runs() -> None:
    if os.geteuid() != 0:
        pytest.skip("root is needed to build an image without a daemon")
    for name in ("buildah", "crun", "debootstrap", "jq", "curl", "unshare", "setpriv"):
        tool(name)
    done = subprocess.run(
        [str(ROOT / "tests" / "services" / "build_image.sh")], capture_output=True, text=True, timeout=3000, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert done.stdout.endswith("== good\n")


def test_the_docs_name_all_that_can_be_set() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    compose_file = (ROOT / "docker-compose.yml").read_text()
    variables = set(re.findall(r"\$\{(\w+)", compose_file)) | {"COMPOSE_PROFILES"}
    assert all(f"`{variable}`" in text for variable in variables)
    assert "CVE-2025-62506" in text
    for name in re.findall(r"`(packhouse_[a-z_]+|process_[a-z_]+)", text):
        assert name in FAMILIES
    assert all(f"`{name}" in text for name in FAMILIES if name != "packhouse_build_info")
