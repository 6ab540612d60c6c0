"""What the services of docker-compose.yml prove to each other who they are with; made once, into two volumes.

keys.py             make what is not there yet
keys.py token       print the administrator's token

keys/tokens.json    packhouse's tokens file: hashes
keys/credentials    how packhouse signs in at the store, as AWS_SHARED_CREDENTIALS_FILE
keys/access, keys/secret, keys/seaweedfs.json     the same for MinIO and for SeaweedFS
admin/token         the administrator's token, for people; no service reads it
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from pathlib import Path

from app.tokens import new_token

KEYS = Path(os.environ.get("KEYS", "/run/packhouse/keys"))
ADMIN = Path(os.environ.get("ADMIN", "/run/packhouse/admin"))


def write(path: Path, text: str, mode: int) -> None:
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(text)
    temporary.chmod(mode)
    temporary.replace(path)


def make() -> None:
    # Each is written last of its kind, so an interrupted start makes them anew. The volumes are what guards them: the
    # store's process has another user, and must read its own.
    if not (KEYS / "credentials").exists():
        access, secret = f"packhouse{secrets.token_hex(4)}", secrets.token_hex(20)
        write(KEYS / "access", access, 0o644)
        write(KEYS / "secret", secret, 0o644)
        keys = {"accessKey": access, "secretKey": secret}
        identity = {
            "name": "packhouse",
            "credentials": [keys],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        write(KEYS / "seaweedfs.json", json.dumps({"identities": [identity]}), 0o644)
        lines = ("[default]", f"aws_access_key_id = {access}", f"aws_secret_access_key = {secret}", "")
        write(KEYS / "credentials", "\n".join(lines), 0o644)
    if not (KEYS / "tokens.json").exists():
        token, record = new_token("administrator", ["*/*"], ["admin"])
        write(ADMIN / "token", token, 0o400)
        write(KEYS / "tokens.json", json.dumps([record], indent=1) + "\n", 0o644)
    print("The administrator's token: docker compose run --rm -T keys token")


if __name__ == "__main__":
    if sys.argv[1:] == ["token"]:
        print((ADMIN / "token").read_text())
    else:
        make()
