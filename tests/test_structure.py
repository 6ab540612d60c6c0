"""The house rules that a reader cannot check by eye: arrows point down, and nothing starts a program."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = ("pack", "storage", "app")
MODULES = sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py"))

STARTS_PROGRAMS = {"subprocess", "pty", "pexpect", "sh", "commands", "popen2"}
OS_CALLS = ("system", "popen", "exec", "spawn", "posix_spawn", "fork")
OWN_PROCESSES = {"app/processes.py"}
IO_MODULES = {"asyncio", "httpx", "httpcore", "socket", "aiobotocore", "fastapi", "starlette", "uvicorn", "anyio"}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module


def label(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_modules_are_found() -> None:
    assert len(MODULES) > 40


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_arrows_point_down(path: Path) -> None:
    floor = label(path).split("/")[0]
    above = FLOORS[FLOORS.index(floor) + 1 :]
    roots = {name.split(".")[0] for name in imports(path)}
    assert not roots & set(above)
    assert not roots & {"tests", "bench"}
    if floor == "pack":
        assert not roots & IO_MODULES


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_nothing_starts_a_program(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports(path)}
    assert not roots & STARTS_PROGRAMS
    if label(path) not in OWN_PROCESSES:
        assert "multiprocessing" not in roots
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name):
            assert node.func.id not in ("eval", "exec", "compile", "__import__"), f"line {node.lineno}"
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            whole = f"{node.func.value.id}.{node.func.attr}"
            assert not (node.func.value.id == "os" and node.func.attr.startswith(OS_CALLS)), (
                f"{whole}, line {node.lineno}"
            )
            assert not whole.startswith("asyncio.create_subprocess"), f"line {node.lineno}"


def test_the_project_speaks_of_itself_alone() -> None:
    """No path of a developer's machine stands in what is shipped."""
    for path in (*MODULES, ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "Makefile"):
        text = path.read_text()
        for folder in ("work", "root"):
            assert f"/{folder}/" not in text, path
