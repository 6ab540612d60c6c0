"""Children to be killed: forked, so that hundreds of them are cheap."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable


def fork(work: Callable[[], object]) -> int:
    """Run `work` in a child; it exits with 0, or with 1 after a traceback."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def wait(child: int) -> int:
    """The exit status; negative for a signal, as in subprocess."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill(child: int) -> int:
    os.kill(child, signal.SIGKILL)
    return wait(child)
