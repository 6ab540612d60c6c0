"""Replicas on one store, for tests that kill them or set them against each other."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from tests.support.git import git
from tests.support.processes import family, settled
from tests.support.service import Running

NAME = "project"
LEASE = 6.0
"""Three are allowed; one that lives must not be taken for dead on a busy machine."""
SLACK = 4.0
"""Seconds that a busy machine may take for what takes none."""


class Replica(Running):
    """A service that is ready. `crew` is how many processes it is when nothing is ingested."""

    def __init__(self, folder: Path, url: str, cache: Path, **settings: str) -> None:
        options = {"allow_upstreams": "127.0.0.1", "lease_seconds": str(LEASE)} | settings
        super().__init__(folder, at=url, cache_dir=str(cache), **options)
        if settled(lambda: self.client.get("/readyz").status_code, 200, 20) != 200:
            self.stop()
            raise AssertionError(self.log.read_text())
        self.crew = len(family(self.pid))

    def end(self) -> None:
        """Stop it, unless it has been killed."""
        if family(self.pid):
            self.stop()

    def kill(self) -> list[int]:
        """As a crash of its machine would: all its processes are gone. Which they were."""
        pids = family(self.pid)
        assert self.stop(signal.SIGKILL) == -signal.SIGKILL
        assert settled(lambda: family(self.pid), [], 10) == []
        return pids

    def rests(self) -> None:
        """Wait until its ingests have made their sidecars and joined packs, which they do after they have ended."""
        assert settled(lambda: len(family(self.pid)) <= self.crew, True, 60), family(self.pid)

    def operation(self, id_: str) -> dict[str, Any]:
        answer = self.client.get(f"/v1/operations/{id_}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json()["operation"])

    def begin(self, url: str) -> str:
        """An ingest that goes on; its operation's id."""
        return self._begun(self.client.put(self.repo(NAME).base, json={"url": url}))

    def begin_sync(self) -> str:
        return self._begun(self.client.post(f"{self.repo(NAME).base}/sync"))

    def _begun(self, answer: Any) -> str:
        assert answer.status_code == 202, answer.text
        return str(answer.json()["operation"]["id"])


def refs_of(path: Path) -> dict[str, str]:
    rows = git(path, "for-each-ref", "--format=%(refname) %(objectname)").decode().splitlines()
    return dict(row.split(" ") for row in rows)
