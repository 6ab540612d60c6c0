"""The OpenAPI document: snapshotted, and what clients are generated from."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from app import openapi
from app.service import ENDPOINTS
from tests.conftest import Served

SNAPSHOT = Path(__file__).parent.parent / "snapshots" / "openapi.json"
TYPESCRIPT = ("openapi-typescript@7.13.0", "typescript@5.9.3")


def document() -> dict[str, Any]:
    return openapi.document(ENDPOINTS)


def test_snapshot() -> None:
    """A change of the contract is a change of this file: `make openapi` writes it."""
    assert json.loads(SNAPSHOT.read_text()) == document()


def test_problems_are_the_only_errors() -> None:
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    assert list(response["content"]) == ["application/problem+json"], (method, path, status)
                    schema = response["content"]["application/problem+json"]["schema"]
                    assert schema == {"$ref": "#/components/schemas/Problem"}


def test_bytes_have_their_statuses() -> None:
    responses = document()["paths"]["/v1/repos/{owner}/{name}/raw"]["get"]["responses"]
    assert {"200", "206", "304", "416"} <= responses.keys()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The client that openapi-python-client makes, imported."""
    root = tmp_path_factory.mktemp("client")
    (root / "openapi.json").write_text(json.dumps(document()))
    tools = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    command = [str(tools / "openapi-python-client"), "generate", "--path", "openapi.json", "--meta", "none"]
    run = subprocess.run(
        [*command, "--output-path", "packhouse_client", "--fail-on-warning"],
        cwd=root,
        env=env,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "arning" not in run.stdout + run.stderr
    sys.path.insert(0, str(root))
    yield importlib.import_module("packhouse_client")
    sys.path.remove(str(root))


def call(tag: str, name: str) -> Any:
    return importlib.import_module(f"packhouse_client.api.{tag}.{name}").sync_detailed


def test_the_python_client_drives_the_service(client: ModuleType, served: Served) -> None:
    repo = served.repo("linear")
    with client.Client(base_url=served.running.url) as api:
        where = {"owner": "tests", "name": "linear", "client": api}
        resolved = call("reads", "resolve")(**where, rev=["main"]).parsed
        assert resolved.oid == repo.json("/resolve", rev="main")["oid"]
        assert resolved.complete is True
        log = call("reads", "log")(**where, limit=3, path=["src/main.py"]).parsed
        assert [commit.oid for commit in log.commits] == [
            commit["oid"] for commit in repo.json("/log", limit=3, path="src/main.py")["commits"]
        ]
        more = call("reads", "log")(**where, limit=3, path=["src/main.py"], cursor=log.next_cursor).parsed
        assert more.commits[0].oid not in {commit.oid for commit in log.commits}
        tree = call("reads", "list_tree")(**where, recursive=True, sizes=True).parsed
        assert {entry.path for entry in tree.entries} >= {"README", "src/main.py"}
        blob = call("reads", "read_blob")(**where, path="README").parsed
        assert blob.content == "readme\n"
        raw = call("reads", "raw_blob")(**where, path="README").parsed
        assert raw.payload.read() == b"readme\n"
        diff = call("reads", "diff")(**where, base="HEAD~2").parsed
        assert diff.summary.files == len(diff.files) > 0
        assert diff.files[0].hunks[0].lines[0].op in " +-"
        grep = call("reads", "grep")(**where, pattern=["step"], fixed=True).parsed
        assert grep.matches[0].line > 0
        refs = call("reads", "list_refs")(**where).parsed
        assert refs.refs[0].name == "HEAD"
        assert call("reads", "merge_base")(**where, rev=["HEAD", "HEAD~3"]).parsed.bases
        assert call("reads", "ahead_behind")(**where, base="HEAD~3", head=["HEAD"]).parsed.results[0].ahead == 3
        assert call("reads", "get_commit")(**where).parsed.author.time > 0
        assert call("reads", "stat")(**where, path="src").parsed.type_.value == "tree"
        assert call("repositories", "get_repo")(**where).parsed.state == "ready"
        assert call("repositories", "list_repos")(client=api).parsed.repositories
        missing = call("reads", "resolve")(**where, rev=["nope"])
        assert (missing.status_code.value, missing.parsed.code) == (404, "revision_not_found")
        assert call("service", "version")(client=api).parsed.name == "packhouse"


def test_typescript(tmp_path: Path) -> None:
    """openapi-typescript takes the document without a word, and its types compile."""
    if not shutil.which("npm"):
        pytest.skip("npm is not installed: the TypeScript client is not generated")
    (tmp_path / "package.json").write_text("{}")
    install = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", *TYPESCRIPT], cwd=tmp_path, capture_output=True, text=True
    )
    if install.returncode and os.environ.get("CI") != "true":
        pytest.skip("npm cannot install openapi-typescript here")
    assert install.returncode == 0, install.stderr
    (tmp_path / "openapi.json").write_text(json.dumps(document()))
    for command in (
        ["npx", "openapi-typescript", "openapi.json", "-o", "client.d.ts"],
        ["npx", "tsc", "--noEmit", "--strict", "client.d.ts"],
    ):
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr
        assert "warn" not in (run.stdout + run.stderr).lower()
