"""Packs that are copied out of a bucket by programs that know nothing of packhouse: git takes them as they are."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Callable
from pathlib import Path

import botocore.session
import pytest
from botocore.config import Config

from storage import layout
from storage.compaction import compact
from storage.open import opened
from storage.s3place import Place, parse
from tests.services import rclone, running, stores
from tests.services.base import ACCESS, SECRET
from tests.storage.growth import begin, grow, newest
from tests.storage.support import NAME, OWNER
from tests.support.git import git, init
from tests.support.history import History

BELOW = layout.repository(OWNER, NAME)


def by_botocore(place: Place, folder: Path) -> None:
    client = botocore.session.Session().create_client(
        "s3",
        region_name="us-east-1",
        endpoint_url=place.endpoint,
        aws_access_key_id=ACCESS,
        aws_secret_access_key=SECRET,
        config=Config(s3={"addressing_style": "path"}),
    )
    prefix = f"{place.prefix}{BELOW}{layout.PACKS}"
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=place.bucket, Prefix=prefix):
        for row in page["Contents"]:
            with client.get_object(Bucket=place.bucket, Key=row["Key"])["Body"] as body:
                (folder / row["Key"].rpartition("/")[2]).write_bytes(body.read())
    client.close()


def by_rclone(place: Place, folder: Path) -> None:
    running.insist("rclone", "a copy", rclone.Rclone.missing())
    remote = {
        "TYPE": "s3",
        "PROVIDER": "Other",
        "ACCESS_KEY_ID": ACCESS,
        "SECRET_ACCESS_KEY": SECRET,
        "REGION": "us-east-1",
        "ENDPOINT": place.endpoint or "",
        "FORCE_PATH_STYLE": "true",
    }
    env = os.environ | {f"RCLONE_CONFIG_PLAIN_{name}": value for name, value in remote.items()}
    source = f"plain:{place.bucket}/{place.prefix}{BELOW}{layout.PACKS}"
    command = [str(rclone.PROGRAM), "--config", "", "copy", source, str(folder)]
    subprocess.run(command, env=env, check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize("copy", [by_botocore, by_rclone])
@pytest.mark.parametrize("store", ["ceph-rgw", "minio", "seaweed"])
async def test_git_verifies_what_was_copied(store: str, copy: Callable[[Place, Path], None], tmp_path: Path) -> None:
    """Packs as they came, thin ones completed, and the one that they were joined to."""
    history = History(tmp_path / "r.git", 5, 40, 100)
    url = stores.url(store, f"plain-{secrets.token_hex(6)}")
    async with opened(url, tmp_path / "spool") as backend:
        await begin(backend)
        await grow(backend, history, [0, 20, 30, 40], "--delta-base-offset", "--thin")
        came = {pack.name for pack in (await newest(backend)).packs}
        assert await compact(backend, OWNER, NAME, whole=True)
        (joined,) = (await newest(backend)).packs
    copied = init(tmp_path / "copied.git")
    packs = copied / "objects" / "pack"
    copy(parse(url), packs)
    assert {path.name for path in packs.glob("*.pack")} == {
        layout.pack(name).rpartition("/")[2] for name in (*came, joined.name)
    }
    for index in packs.glob("*.idx"):
        listed = git(copied, "verify-pack", "-v", str(index))
        assert listed.endswith(b": ok\n")
    alone = init(tmp_path / "alone.git")
    for path in packs.glob(f"*{joined.name}*"):
        path.rename(alone / "objects" / "pack" / path.name)
    git(alone, "update-ref", "refs/heads/main", history.oid(40).hex())
    git(alone, "fsck", "--full", "--strict")
    assert set(git(alone, "cat-file", "--batch-all-objects", "--batch-check").splitlines()) == set(
        git(history.path, "cat-file", "--batch-all-objects", "--batch-check").splitlines()
    )
