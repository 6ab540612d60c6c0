"""CephFS without a mount: the calls of `storage.posix` by libcephfs, which the machine's package of that name brings.

The library is called by ctypes, and not through Ceph's own module for Python, which fits the one Python that the
distribution has built it for. Calls let other threads of this process run; each may hang for as long as the monitors
and servers of the cluster are away.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import stat
import threading
import time
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_int64, c_uint, c_void_p
from typing import Any, Final

from pack.errors import StoreUnavailable
from storage.cephplace import Place
from storage.posix import Found
from storage.threads import step

LIBRARY: Final = "libcephfs.so.2"
_STEP_BYTES: Final = 8 << 20  # of one call, so that a slow one can be told from one that hangs
_DATA: Final = 1  # nothing but data
_HERE: Final = -1  # as the offset of a write: where the last one ended
_MODE, _MTIME, _SIZE = 0x1, 0x40, 0x200
_IS_DIRECTORY: Final = 4  # DT_DIR
_ERRORS: Final = 1000  # from here on numbers of its own
_OPTIONS: Final = {
    # Rights to files that are closed go back soon: when this process has been killed, whoever wants to have them waits
    # until the server gives it up.
    "client_caps_release_delay": 0,
    # What it may do is what its user of the cluster may do, whoever runs it: owners and modes of files say nothing.
    "client_permissions": "false",
    # A socket for each client of the machine would take its name from the others.
    "admin_socket": "",
    # Of what is read there is a cache on disk, and what is written is synced at once: the library's own cache of
    # 200 MB a process would be of no use.
    "client_oc_size": 32 << 20,
    "client_oc_max_dirty": 16 << 20,
    "client_oc_target_dirty": 8 << 20,
}
_TIMEOUTS: Final = ("client_mount_timeout", "rados_mon_op_timeout", "rados_osd_op_timeout")
_lock = threading.Lock()
_alive = 0
_spoiled = False
LOST: Final = (errno.ENOTCONN, errno.ESHUTDOWN)
"""The cluster has expelled this client, which was silent for too long: it has to come again as a new one."""


class _Time(ctypes.Structure):
    _fields_ = (("seconds", c_int64), ("nanoseconds", c_int64))


class _Statx(ctypes.Structure):
    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("block", ctypes.c_uint32),
        ("links", ctypes.c_uint32),
        ("uid", ctypes.c_uint32),
        ("gid", ctypes.c_uint32),
        ("mode", ctypes.c_uint16),
        ("inode", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("blocks", ctypes.c_uint64),
        ("device", ctypes.c_uint64),
        ("special", ctypes.c_uint64),
        ("accessed", _Time),
        ("changed", _Time),
        ("modified", _Time),
        ("born", _Time),
        ("version", ctypes.c_uint64),
        ("later", c_char * 256),  # what newer libraries may add
    )


class _Dirent(ctypes.Structure):
    _fields_ = (
        ("inode", ctypes.c_uint64),
        ("offset", c_int64),
        ("length", ctypes.c_uint16),
        ("kind", ctypes.c_uint8),
        ("name", c_char * 256),
    )


_SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "ceph_create": (POINTER(c_void_p), c_char_p),
    "ceph_conf_read_file": (c_void_p, c_char_p),
    "ceph_conf_set": (c_void_p, c_char_p, c_char_p),
    "ceph_select_filesystem": (c_void_p, c_char_p),
    "ceph_mount": (c_void_p, c_char_p),
    "ceph_unmount": (c_void_p,),
    "ceph_release": (c_void_p,),
    "ceph_sync_fs": (c_void_p,),
    "ceph_open": (c_void_p, c_char_p, c_int, c_uint),
    "ceph_close": (c_void_p, c_int),
    "ceph_read": (c_void_p, c_int, c_void_p, c_int64, c_int64),
    "ceph_write": (c_void_p, c_int, c_char_p, c_int64, c_int64),
    "ceph_ftruncate": (c_void_p, c_int, c_int64),
    "ceph_fsync": (c_void_p, c_int, c_int),
    "ceph_fstatx": (c_void_p, c_int, POINTER(_Statx), c_uint, c_uint),
    "ceph_statx": (c_void_p, c_char_p, POINTER(_Statx), c_uint, c_uint),
    "ceph_mkdir": (c_void_p, c_char_p, c_uint),
    "ceph_mkdirs": (c_void_p, c_char_p, c_uint),
    "ceph_link": (c_void_p, c_char_p, c_char_p),
    "ceph_rename": (c_void_p, c_char_p, c_char_p),
    "ceph_unlink": (c_void_p, c_char_p),
    "ceph_opendir": (c_void_p, c_char_p, POINTER(c_void_p)),
    "ceph_readdir_r": (c_void_p, c_void_p, POINTER(_Dirent)),
    "ceph_closedir": (c_void_p, c_void_p),
}


@functools.cache
def library() -> Any:
    """StoreUnavailable where it is not installed."""
    try:
        loaded = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise StoreUnavailable(
            f"Stores of cephfs:// need {LIBRARY}, which cannot be loaded ({error}): install libcephfs2 (Debian, "
            "Ubuntu, the packages of Ceph), or mount the file system and name the store by file://.",
            operation="mount",
            reason="no_library",
        ) from None
    for name, arguments in _SIGNATURES.items():
        getattr(loaded, name).argtypes = arguments
    return loaded


class Mount:
    """A client of the cluster, for all threads of this process; paths begin at the directory of the place."""

    def __init__(self, place: Place) -> None:
        """Connect. OSError; StoreUnavailable."""
        if _spoiled:
            raise StoreUnavailable(
                "This process was forked by one that was connected to CephFS, which the library does not survive.",
                operation="mount",
                reason="forked",
            )
        self.lost = False
        self._guard = threading.Lock()
        self._inside = 0
        self._library = library()
        try:
            self._handle: c_void_p | None = self._connect(place, place.path)
        except FileNotFoundError:
            if place.path == "/":
                raise
            self._handle = self._connect(place, "/")
            try:
                self._call("ceph_mkdirs", place.path.encode(), 0o755)
            finally:
                self.unmount()
            self._handle = self._connect(place, place.path)

    def _connect(self, place: Place, path: str) -> c_void_p:
        handle = c_void_p()
        call = self._library
        _checked(call.ceph_create(byref(handle), place.user.encode()))
        try:
            found = call.ceph_conf_read_file(handle, place.conf.encode() if place.conf else None)
            if found < 0:
                what = place.conf or "ceph.conf"
                raise OSError(errno.EINVAL, f"{what} cannot be read ({os.strerror(-found)})")
            seconds = str(max(1, round(place.timeout)))
            for name, value in (_OPTIONS | dict.fromkeys(_TIMEOUTS, seconds)).items():
                call.ceph_conf_set(handle, name.encode(), str(value).encode())
            if place.system:
                _checked(call.ceph_select_filesystem(handle, place.system.encode()))
            step()
            _count(1)
            try:
                _checked(call.ceph_mount(handle, path.encode()))
            except BaseException:
                _count(-1)
                raise
        except BaseException:
            call.ceph_release(handle)
            raise
        return handle

    def unmount(self) -> None:
        """Say farewell when no call is under way any more, however long that takes. OSError."""
        while True:
            with self._guard:
                if not self._inside:
                    handle, self._handle = self._handle, None
                    break
            time.sleep(0.02)
        if handle is not None:
            _checked(self._library.ceph_unmount(handle))
            self._library.ceph_release(handle)
            _count(-1)

    def _call(self, name: str, *arguments: object) -> int:
        step()
        return self._call_on(name, *arguments)

    def _call_on(self, name: str, *arguments: object) -> int:
        """Without a step: what was given up closes its files, too."""
        with self._guard:
            if self._handle is None:
                raise OSError(errno.ENOTCONN, "it is unmounted")
            self._inside += 1
        try:
            return _checked(getattr(self._library, name)(self._handle, *arguments))
        except OSError as error:
            if error.errno in LOST:
                self.lost = True
            raise
        finally:
            with self._guard:
                self._inside -= 1

    def open(self, path: str, flags: int, mode: int = 0) -> int:
        return self._call("ceph_open", path.encode(), flags, mode)

    def close(self, fd: int) -> None:
        self._call_on("ceph_close", fd)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        length = min(length, _STEP_BYTES)
        if not length:
            return b""
        buffer = bytearray(length)
        got = self._call("ceph_read", fd, byref(c_char.from_buffer(buffer)), length, offset)
        return bytes(memoryview(buffer)[:got])

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return self.pwrite(fd, data, _HERE)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        part = bytes(data[:_STEP_BYTES])
        return self._call("ceph_write", fd, part, len(part), offset)

    def truncate(self, fd: int, size: int) -> None:
        self._call("ceph_ftruncate", fd, size)

    def seal(self, fd: int) -> None:
        try:
            self._call("ceph_fsync", fd, _DATA)
        finally:
            self.close(fd)
        # Size and time go to the server only now that the file is closed, and with them the right to write to it. Sent
        # before, that right would stay here: whoever reads the file next would ask for it, and the server, which writes
        # down at its leisure that it is gone, would let the reader wait for up to five seconds.
        self._call("ceph_sync_fs")

    def sync_directory(self, path: str) -> None:
        fd = self.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._call("ceph_fsync", fd, 0)
        finally:
            self.close(fd)

    def fstat(self, fd: int) -> Found:
        found = _Statx()
        self._call("ceph_fstatx", fd, byref(found), _MODE | _SIZE | _MTIME, 0)
        return _found(found)

    def stat(self, path: str) -> Found:
        found = _Statx()
        self._call("ceph_statx", path.encode(), byref(found), _MODE | _SIZE | _MTIME, 0)
        return _found(found)

    def mkdir(self, path: str) -> None:
        self._call("ceph_mkdir", path.encode(), 0o755)

    def link(self, source: str, target: str) -> None:
        self._call("ceph_link", source.encode(), target.encode())

    def rename(self, source: str, target: str) -> None:
        self._call("ceph_rename", source.encode(), target.encode())

    def unlink(self, path: str) -> None:
        self._call("ceph_unlink", path.encode())

    def scan(self, path: str) -> list[tuple[str, bool]]:
        stream = c_void_p()
        self._call("ceph_opendir", path.encode(), byref(stream))
        entry = _Dirent()
        names = []
        try:
            while self._call("ceph_readdir_r", stream, byref(entry)):
                name = entry.name.decode(errors="surrogateescape")
                if name not in (".", ".."):
                    names.append((name, entry.kind == _IS_DIRECTORY))
        finally:
            self._call_on("ceph_closedir", stream)
        return names


def _count(change: int) -> None:
    """Of the connections, whatever they have come to."""
    global _alive
    with _lock:
        _alive += change


def _forked() -> None:
    """Connections of a process share threads, which a child does not have: it would wait for them for ever."""
    global _lock, _spoiled
    _lock = threading.Lock()
    _spoiled = _spoiled or _alive > 0


os.register_at_fork(after_in_child=_forked)


def _checked(result: int) -> int:
    """What a call returned, or the error that it means."""
    if result <= -_ERRORS:
        raise OSError(errno.EIO, "the library could not set up its client; does its configuration name monitors?")
    if result < 0:
        raise OSError(-result, _WORDS.get(-result) or os.strerror(-result))
    return result


_WORDS: Final = {
    errno.ENOTCONN: "the cluster has closed the connection to this client",
    errno.ESHUTDOWN: "the cluster has expelled this client, which was silent for too long",
    errno.EHOSTDOWN: "no metadata server is up",
    errno.ETIMEDOUT: "it did not answer in time",
}


def _found(found: _Statx) -> Found:
    mtime = found.modified.seconds + found.modified.nanoseconds / 1e9
    return Found(found.size, mtime, stat.S_ISDIR(found.mode))
