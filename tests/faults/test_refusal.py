"""A service before a server that takes no notice of conditions: it does not start, and says why in one line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import running


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("run", "https://git.example/a/b.git", "--port", "0")])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_rclone_is_refused(command: tuple[str, ...], workers: str, tmp_path: Path) -> None:
    url = running.get("rclone").url("refused")
    root = Path(__file__).parents[2]
    env = os.environ | {"PACKHOUSE_WORKERS": workers, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-m", "app.cli", *command, "--store", url],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    line = f"packhouse: The store {re.escape(url)} cannot be used, it fails at create-only writes: [2-8] of 8 won .*\n"
    assert re.fullmatch(line, done.stderr), done.stderr
