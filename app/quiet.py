"""Imported first by the command: Ctrl-C while it still starts ends it as it ends any program, and not in a traceback of
what was being imported.
"""

from __future__ import annotations

import signal
import threading


def _take() -> bool:
    # Where a shell has it ignored, for what runs in the background, it stays so.
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return True


_taken = _take()


def no_longer() -> None:
    """From now on Ctrl-C is a KeyboardInterrupt, so that what has begun is taken back."""
    global _taken
    if _taken:
        _taken = False
        signal.signal(signal.SIGINT, signal.default_int_handler)
