"""Open files that end badly: of a mount that is gone."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from storage.descriptors import File


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_file_of_a_mount_that_is_gone_is_let_go_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """close(2) says what was not written; nothing was, and the descriptor is free all the same."""
    path = tmp_path / "file"
    path.write_bytes(b"data")
    file = File(str(path))
    fd = file.fd
    real = os.close

    def close(number: int) -> None:
        real(number)
        if number == fd:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    monkeypatch.setattr(os, "close", close)
    del file
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(fd)
