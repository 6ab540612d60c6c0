"""Ceph on one machine: monitor, object store on a file, RADOS gateway (S3), and on demand a metadata server (CephFS)
and a mount of it by FUSE.

Its programs are Debian packages, and are installed by root only. Daemons run in the foreground, without systemd.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from tests.services import fuse
from tests.services.base import ACCESS, HOST, SECRET, Server, answers, free_ports, make_bucket, until

PACKAGES = (
    "ceph-mon",
    "ceph-osd",
    "ceph-mds",
    "radosgw",
    "ceph-common",
    "ceph-fuse",
    "libcephfs2",
)
PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "ceph", "ceph-authtool", "monmaptool")

_CONFIG = """\
[global]
fsid = {fsid}
keyring = {state}/keyring
mon initial members = a
mon host = [v2:{host}:{mon2},v1:{host}:{mon1}]
public network = 127.0.0.0/8
public addr = {host}
cluster addr = {host}
run dir = {state}/run
admin socket = {state}/run/$name.$pid.$cctid.asok
pid file =
log file = {state}/$name.ceph.log
log to stderr = false
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon warn on pool no redundancy = false
auth allow insecure global id reclaim = false
[mon]
mon data = {state}/mon
paxos propose interval = 0.05
paxos min wait = 0.01
mon data avail warn = 2
mon data avail crit = 1
[osd]
osd data = {state}/osd
osd objectstore = bluestore
bluestore block size = 10737418240
bluestore cache autotune = false
bluestore cache size = 67108864
osd memory target = 939524096
osd op num shards = 2
osd class load list = *
osd class default list = *
[mds]
mds data = {state}/mds
mds cache memory limit = 134217728
mds reconnect timeout = 5
[client]
client mount timeout = 30
[client.rgw.a]
rgw data = {state}/rgw
rgw frontends = beast endpoint={host}:{rgw} tcp_nodelay=1
rgw thread pool size = 32
"""


class Ceph(Server):
    """S3; and after `need_fs` a CephFS named cephfs, which after `need_mount` is mounted at `mount`."""

    name = "ceph"

    def __init__(self, state: Path | None = None) -> None:
        super().__init__(state)
        self.config = self.state / "ceph.conf"
        self.mount = self.state / "mnt"
        self._with_fs = False
        self._with_mount = False

    @classmethod
    def missing(cls) -> str:
        return "" if all(shutil.which(program) for program in PROGRAMS) else "Ceph"

    @classmethod
    def install(cls) -> None:
        if os.geteuid() or not shutil.which("apt-get"):
            raise RuntimeError("Ceph is installed by apt, and by root only")
        env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-q"], check=True, env=env)
        options = ["-q", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"]
        subprocess.run(["apt-get", "install", *options, *PACKAGES], check=True, env=env)

    @classmethod
    def missing_fs(cls) -> str:
        """What CephFS needs beyond `missing`."""
        if not shutil.which("ceph-mds"):
            return "ceph-mds"
        try:
            ctypes.CDLL("libcephfs.so.2")
        except OSError:
            return "libcephfs"
        return ""

    @classmethod
    def missing_mount(cls) -> str:
        if not shutil.which("ceph-fuse"):
            return "ceph-fuse"
        return "" if os.access("/dev/fuse", os.R_OK | os.W_OK) and not os.geteuid() else "the right to mount by FUSE"

    def start(self) -> None:
        fresh = not self.config.exists()
        if fresh:
            self._make()
        self.port = int((self.state / "port").read_text())
        self._daemon("mon", "ceph-mon", "-i", "a")
        if not (self.state / "osd" / "ready").exists():
            id_ = str(uuid.uuid4())
            self._ceph("osd", "new", id_, "0")
            self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", id_)
        self._daemon("osd", "ceph-osd", "-i", "0")
        until("osd", lambda: self._json("osd", "stat").get("num_up_osds") == 1, 60, self.check)
        self._daemon("rgw", "radosgw", "-n", "client.rgw.a")
        if self._with_fs:
            self._start_fs()
        if self._with_mount:
            self._start_mount()
        until("radosgw", lambda: answers(self.endpoint), 60, self.check)
        if fresh:
            keys = [f"--access-key={ACCESS}", f"--secret-key={SECRET}"]
            user = ["user", "create", "--uid=tests", "--display-name=tests", *keys]
            self._run("radosgw-admin", "-n", "client.rgw.a", *user)
        make_bucket(self)

    def need_fs(self) -> None:
        if not self._with_fs:
            self._start_fs()
            self._with_fs = True

    def need_mount(self) -> None:
        self.need_fs()
        if not self._with_mount:
            self._start_mount()
            self._with_mount = True

    def fs_url(self, directory: str, **options: str) -> str:
        """The URL of a store in CephFS without a mount."""
        query = "".join(f"&{name}={value}" for name, value in options.items())
        return f"cephfs://cephfs/{directory}?conf={self.config}{query}"

    def clients(self, *pids: int) -> list[int]:
        """The clients that processes are to the metadata server."""
        found = json.loads(self._ceph("tell", "mds.a", "client", "ls"))
        wanted = {str(pid) for pid in pids}
        return [each["id"] for each in found if each["client_metadata"].get("pid") in wanted]

    def evict(self, *pids: int) -> None:
        """Give up the clients of processes that were killed at once; by itself the cluster does in a minute."""
        for each in self.clients(*pids):
            self._ceph("tell", "mds.a", "client", "evict", f"id={each}")

    def kill_one(self, name: str) -> None:
        """Kill one daemon (mon, osd, rgw, mds), as a crash would; `start` brings it back."""
        self.processes.pop(name).stop(signal.SIGKILL)

    def stop(self, number: int = signal.SIGTERM) -> None:
        # The mount ends first, and while there still is somebody to say farewell to.
        mount = self.processes.pop("fuse", None)
        if mount is not None:
            mount.stop()
        super().stop(number)

    def _start_mount(self) -> None:
        if "fuse" in self.processes:
            return
        self.mount.mkdir(exist_ok=True)
        command = ["ceph-fuse", "-f", "-c", str(self.config), "-n", "client.admin", str(self.mount)]
        self.launch("fuse", sys.executable, fuse.__file__, str(self.mount), *command)
        until("ceph-fuse", self.mount.is_mount, 60, self.check)

    def _start_fs(self) -> None:
        if not self._json("fs", "ls"):
            for pool in ("cephfs_metadata", "cephfs_data"):
                self._ceph("osd", "pool", "create", pool, "1")
            self._ceph("fs", "new", "cephfs", "cephfs_metadata", "cephfs_data")
            self._ceph("fs", "set", "cephfs", "session_timeout", "30")  # the least that it takes
        self._daemon("mds", "ceph-mds", "-i", "a")

        def active() -> bool:
            systems = self._json("fs", "dump")["filesystems"]
            return any(mds["state"] == "up:active" for fs in systems for mds in fs["mdsmap"]["info"].values())

        until("mds", active, 90, self.check)

    def _make(self) -> None:
        state = self.state
        for folder in ("mon", "osd", "mds", "rgw", "run"):
            (state / folder).mkdir(exist_ok=True)
        fsid = str(uuid.uuid4())
        mon1, mon2, rgw = free_ports(3)
        (state / "port").write_text(str(rgw))
        keyring = str(state / "keyring")
        everything = ["--cap", "mon", "allow *", "--cap", "osd", "allow *"]
        keys = {
            "mon.": ["--create-keyring", "--cap", "mon", "allow *"],
            "client.admin": [*everything, "--cap", "mds", "allow *", "--cap", "mgr", "allow *"],
            "osd.0": [
                "--cap",
                "mon",
                "allow profile osd",
                "--cap",
                "mgr",
                "allow profile osd",
                "--cap",
                "osd",
                "allow *",
            ],
            "mds.a": [
                "--cap",
                "mon",
                "allow profile mds",
                "--cap",
                "mgr",
                "allow profile mds",
                "--cap",
                "osd",
                "allow rwx",
                "--cap",
                "mds",
                "allow *",
            ],
            "client.rgw.a": ["--cap", "mon", "allow rw", "--cap", "osd", "allow rwx", "--cap", "mgr", "allow rw"],
        }
        for name, caps in keys.items():
            subprocess.run(["ceph-authtool", keyring, "--gen-key", "-n", name, *caps], check=True, capture_output=True)
        address = f"[v2:{HOST}:{mon2},v1:{HOST}:{mon1}]"
        monmap = str(state / "monmap")
        make_map = ["monmaptool", "--create", "--clobber", "--fsid", fsid, "--addv", "a", address, monmap]
        subprocess.run(make_map, check=True, capture_output=True)
        text = _CONFIG.format(fsid=fsid, state=state, host=HOST, mon1=mon1, mon2=mon2, rgw=rgw)
        temporary = state / "new.conf"
        temporary.write_text(text)
        mkfs = ["ceph-mon", "-c", str(temporary), "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring]
        subprocess.run(mkfs, check=True, capture_output=True)
        temporary.rename(self.config)

    def _daemon(self, name: str, *command: str) -> None:
        if name not in self.processes:
            self.launch(name, *command, "-f", "-c", str(self.config))

    def _run(self, program: str, *arguments: str) -> bytes:
        done = subprocess.run([program, "-c", str(self.config), *arguments], capture_output=True, timeout=90)
        if done.returncode:
            raise RuntimeError(f"{program} {arguments}: {done.stderr.decode(errors='replace')[-2000:]}")
        return done.stdout

    def _ceph(self, *command: str) -> bytes:
        return self._run("ceph", "--connect-timeout", "60", *command, "--format", "json")

    def _json(self, *command: str) -> Any:
        return json.loads(self._ceph(*command)) or {}
