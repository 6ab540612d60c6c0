"""What docker-compose.yml says, carried out without an engine: the same commands, environments and configuration.

    unshare --net --mount --pid --fork --kill-child python -m tests.services.compose PROFILE FOLDER

It runs in namespaces of its own: volumes are folders, services are processes on loopback addresses of their own under
their names, and images are the programs of this machine. What stays untried is
what engines do: pulling, users, read-only file systems, networks that are apart. Ends with 0 when the requests of the
docs have got their answers through the balancer.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
from ruamel.yaml import YAML

from tests.services import minio, seaweed
from tests.support.upstream import Upstream

ROOT = Path(__file__).parents[2]
ADDRESSES = {"packhouse-one": "127.0.0.2", "packhouse-two": "127.0.0.3", "store": "127.0.0.4"}
VARIABLE = re.compile(r"\$\{(\w+)(?::-((?:[^{}])*))?\}")
BALANCER = "http://127.0.0.1:8000"


def moved(text: str, folder: Path) -> str:
    """A path inside a container as one of this machine, wherever it stands in a text."""
    places = {
        "/run/packhouse/keys": folder / "keys",
        "/run/packhouse/admin": folder / "admin",
        "/usr/local/etc/haproxy": ROOT / "deploy",
    }
    for inside, outside in places.items():
        text = text.replace(inside, str(outside))
    return re.sub(r"(^|=)/data$", rf"\1{folder / 'data'}", re.sub(r"^/deploy/", f"{ROOT / 'deploy'}/", text))


def filled(value: Any, variables: dict[str, str]) -> Any:
    """A compose file's value with its variables put in."""
    if isinstance(value, str):
        return VARIABLE.sub(lambda found: variables.get(found[1]) or found[2] or "", value).replace("$$", "$")
    if isinstance(value, dict):
        return {key: filled(part, variables) for key, part in value.items()}
    return [filled(part, variables) for part in value] if isinstance(value, list) else value


def services(profile: str, variables: dict[str, str]) -> dict[str, dict[str, Any]]:
    """The services of a profile by name, everything filled in."""
    document = YAML(typ="safe").load((ROOT / "docker-compose.yml").read_text())
    found: dict[str, dict[str, Any]] = filled(document["services"], variables)
    return {name: one for name, one in found.items() if not one.get("profiles") or profile in one["profiles"]}


def missing(profile: str) -> str:
    """What this machine lacks to run a profile; '' where nothing is missing."""
    program = {"minio": minio.PROGRAM, "seaweedfs": seaweed.PROGRAM}[profile]
    if not program.is_file():
        return profile
    for needed in ("haproxy", "unshare", "mount"):
        if shutil.which(needed) is None:
            return needed
    tried = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else "the right to make namespaces"


class Scene:
    """The services as processes."""

    def __init__(self, profile: str, folder: Path, variables: dict[str, str]) -> None:
        self.services = services(profile, variables)
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.done: set[str] = set()

    def up(self) -> None:
        for name in self.services:
            self.start(name)

    def start(self, name: str) -> None:
        """A service, after those that it depends on are as far as it asks."""
        if name in self.running or name in self.done:
            return
        service = self.services[name]
        for other, wanted in service.get("depends_on", {}).items():
            self.start(other)
            if wanted["condition"] == "service_healthy":
                self.healthy(other)
            elif other not in self.done:
                raise AssertionError(f"{other} has not ended, and {name} waits for that")
        if service.get("restart") == "no" and name == "bucket":
            # Compose starts the engine beside it; here it comes first.
            for engine in ("minio", "seaweedfs"):
                if engine in self.services:
                    self.start(engine)
        once = service.get("restart") == "no"
        log = (self.folder / f"{name}.log").open("ab")
        process = subprocess.Popen(
            self.command(name), env=self.environment(name), stdout=log, stderr=log, cwd=self.folder / "empty"
        )
        if once:
            assert process.wait(180) == 0, f"{name}: {self.log(name)}"
            self.done.add(name)
        else:
            self.running[name] = process

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]

    def environment(self, name: str) -> dict[str, str]:
        given = {key: str(value) for key, value in self.services[name].get("environment", {}).items()}
        base = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"}
        if name.startswith("packhouse-"):
            base["PACKHOUSE_CACHE_DIR"] = str(self.folder / f"cache-{name}")
        if name == "keys":
            base |= {"KEYS": "/run/packhouse/keys", "ADMIN": "/run/packhouse/admin"}
        return {key: moved(value, self.folder) for key, value in (base | given).items()}

    def command(self, name: str, *arguments: str) -> list[str]:
        service = self.services[name]
        given = [*service.get("entrypoint", []), *(arguments or service.get("command", []))]
        if name.startswith("packhouse-"):
            given = [sys.executable, "-m", "app.cli", "serve", "--host", ADDRESSES[name]]
        elif name == "balancer":
            given = ["haproxy", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]
        elif name == "minio":
            given = [str(minio.PROGRAM), *given]
        given = [moved(str(part), self.folder) for part in given]
        given[0] = {"python": sys.executable, "/usr/bin/weed": str(seaweed.PROGRAM)}.get(given[0], given[0])
        return given

    def healthy(self, name: str) -> None:
        """Wait for its health check to pass."""
        test = self.services[name]["healthcheck"]["test"]
        command = ["sh", "-c", test[1]] if test[0] == "CMD-SHELL" else list(test[1:])
        command[0] = sys.executable if command[0] == "python" else command[0]
        if name.startswith("packhouse-"):
            command = [part.replace("127.0.0.1", ADDRESSES[name]) for part in command]
        end = time.monotonic() + 120
        while subprocess.run(command, capture_output=True, check=False).returncode:
            code = self.running[name].poll()
            assert code is None, f"{name} ended with {code}: {self.log(name)}"
            assert time.monotonic() < end, f"{name} is not healthy: {self.log(name)}"
            time.sleep(0.5)

    def down(self) -> None:
        for process in reversed(self.running.values()):
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def prepare(folder: Path) -> None:
    """Loopback and names, for these namespaces alone."""
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        up = struct.pack("16sh", b"lo", 0x41)  # IFF_UP | IFF_RUNNING
        fcntl.ioctl(sock, 0x8914, up)  # SIOCSIFFLAGS
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in ADDRESSES.items()))
    subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)
    for name in ("keys", "admin", "data", "empty"):
        (folder / name).mkdir()


def requests(scene: Scene, url: str) -> None:
    """The requests of the docs, and what only replicas can show."""
    told = subprocess.run(
        scene.command("keys", "token"), env=scene.environment("keys"), capture_output=True, text=True, check=True
    )
    token = told.stdout.strip()
    assert httpx.get(f"{BALANCER}/v1/repos").status_code == 401
    assert httpx.get(f"{BALANCER}/metrics").status_code == 404
    with httpx.Client(base_url=BALANCER, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
        answer = client.put("/v1/repos/team/project", params={"wait": 30}, json={"url": url})
        assert answer.status_code == 200, answer.text
        generation = answer.json()["generation"]
        names = {"min_generation": generation}
        log = client.get("/v1/repos/team/project/log", params=names | {"limit": 5}).json()
        assert log["commits"], log
        stream = client.get(
            "/v1/repos/team/project/tree", params={"recursive": True}, headers={"Accept": "application/x-ndjson"}
        )
        assert json.loads(stream.text.splitlines()[-1])["complete"] is True
        for address in ("127.0.0.2", "127.0.0.3"):
            alone = client.get(f"http://{address}:8750/v1/repos/team/project/log", params=names | {"limit": 5})
            assert alone.json()["commits"] == log["commits"], alone.text
            metrics = httpx.get(f"http://{address}:8750/metrics").text
            assert re.search(r"^packhouse_store_requests_total [1-9]", metrics, re.MULTILINE), metrics
            assert "project" not in metrics
        # One of them goes, and nobody notices.
        scene.running["packhouse-one"].kill()
        scene.running.pop("packhouse-one").wait()
        for _ in range(20):
            assert client.get("/v1/repos/team/project/resolve", params={"rev": "HEAD"}).status_code == 200


def main(profile: str, folder: Path) -> None:
    prepare(folder)
    source = folder / "project.git"
    subprocess.run(["git", "clone", "-q", "--bare", str(ROOT), str(source)], check=True)
    with Upstream(folder) as upstream:
        port = upstream.url.rpartition(":")[2]
        scene = Scene(profile, folder, {"PACKHOUSE_ALLOW_UPSTREAMS": "127.0.0.1"})
        print("services:", ", ".join(scene.services), f"(upstream on port {port})", flush=True)
        try:
            scene.up()
            requests(scene, upstream.repo("project"))
            scene.start("keys")
        except BaseException:
            for name in scene.services:
                path = folder / f"{name}.log"
                if path.exists():
                    print(f"--- {name}: {shlex.join(scene.command(name))}\n{scene.log(name)}", file=sys.stderr)
            raise
        finally:
            scene.down()
    print("good")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).resolve())
