"""Install servers, or run one by hand."""

from __future__ import annotations

import signal
import sys

from tests.services.ceph import Ceph
from tests.services.running import SERVERS

_ENDS = {signal.SIGINT, signal.SIGTERM}


def main(arguments: list[str]) -> int:
    if len(arguments) < 2 or arguments[0] not in ("install", "run") or not set(arguments[1:]) <= set(SERVERS):
        print(f"usage: python -m tests.services install|run {'|'.join(SERVERS)}", file=sys.stderr)
        return 2
    command, *names = arguments
    failed = 0
    if command == "install":
        for name in names:
            if SERVERS[name].missing():
                print(f"installing {name}", flush=True)
                try:
                    SERVERS[name].install()
                except Exception as error:
                    failed += 1
                    print(f"{name} cannot be had here: {error}", file=sys.stderr)
            print(f"{name}: {'missing' if SERVERS[name].missing() else 'there'}", flush=True)
        return 1 if failed else 0
    server = SERVERS[names[0]]()
    try:
        server.start()
        for name, value in server.environment().items():
            print(f"export {name}={value}")
        print(f"export PACKHOUSE_STORE='{server.url()}'", flush=True)
        if isinstance(server, Ceph) and not server.missing_fs():
            server.need_fs()
            print(f"# or '{server.fs_url('store')}'", flush=True)
            if not server.missing_mount():
                server.need_mount()
                print(f"# or {server.mount}/store", flush=True)
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
        signal.sigwait(_ENDS)
    finally:
        server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
