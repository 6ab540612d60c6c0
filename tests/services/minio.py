"""MinIO, built from its Go module: the project publishes no other form any more. Building takes minutes."""

from __future__ import annotations

import os
import shutil
import subprocess

from tests.services.base import ACCESS, HOST, SECRET, TOOLS, Server, answers, free_ports, make_bucket, until

MODULE = "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c"
PROGRAM = TOOLS / "minio" / "minio"


class Minio(Server):
    name = "minio"

    @classmethod
    def missing(cls) -> str:
        return "" if PROGRAM.is_file() else "MinIO"

    @classmethod
    def install(cls) -> None:
        go = shutil.which("go") or "/usr/local/go/bin/go"
        PROGRAM.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([go, "install", MODULE], check=True, env=os.environ | {"GOBIN": str(PROGRAM.parent)})

    def start(self) -> None:
        data = self.state / "data"
        data.mkdir(exist_ok=True)
        if not self.port:
            self.port, self._console = free_ports(2)
        self.launch(
            "minio",
            str(PROGRAM),
            "server",
            str(data),
            f"--address={HOST}:{self.port}",
            f"--console-address={HOST}:{self._console}",
            env={
                "MINIO_ROOT_USER": ACCESS,
                "MINIO_ROOT_PASSWORD": SECRET,
                "MINIO_UPDATE": "off",
                "HOME": str(self.state),
            },
        )
        until("MinIO", lambda: answers(f"{self.endpoint}/minio/health/ready"), 30, self.check)
        make_bucket(self)
