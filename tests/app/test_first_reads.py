"""The first read of a service waits for no code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CODE = """
import asyncio, json, sys
from pathlib import Path
from app.service import create_app
from app.settings import Settings

async def main():
    app = create_app(Settings(store=sys.argv[1], cache_dir=Path(sys.argv[2]), read_workers=1))
    async with app.router.lifespan_context(app):
        print(json.dumps([name for name in sys.modules if name.startswith(("app.reads.", "anyio._backends."))]))

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_what_the_event_loop_reads_is_loaded_when_the_service_has_started(tmp_path: Path) -> None:
    script = tmp_path / "start.py"
    script.write_text(CODE)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "store"), str(tmp_path / "cache")],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    reads = {f"app.reads.{name}" for name in ("resolve", "commit", "raw", "tree", "log", "mergebase", "aheadbehind")}
    assert reads | {"anyio._backends._asyncio"} <= loaded
