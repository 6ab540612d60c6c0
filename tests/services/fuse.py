"""A mount by FUSE that never outlives who wanted it: python fuse.py DIRECTORY COMMAND...

COMMAND mounts DIRECTORY and stays in the foreground. At SIGTERM, or when the parent dies, the directory is free at
once, even if what it shows does not answer any more; the program has some seconds to end.
"""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import threading

SECONDS = 4.0
_PR_SET_PDEATHSIG = 1


def main(directory: str, *command: str) -> int:
    prctl = ctypes.CDLL(None).prctl
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # There is no other thread that could be in the way.
    program = subprocess.Popen(command, preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL))  # noqa: PLW1509
    while program.poll() is None and not ended.wait(0.1):
        pass
    subprocess.run(["umount", "-l", directory], capture_output=True)
    try:
        return program.wait(SECONDS)
    except subprocess.TimeoutExpired:
        program.kill()
        return program.wait()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
