"""Install servers, or run one by hand."""

from __future__ import annotations

import signal
import sys

from tests.services.running import SERVERS


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
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    finally:
        server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
