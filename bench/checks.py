"""Whether an answer is what git says: each function compares a body with the output of a git command."""

from __future__ import annotations

import orjson

from bench.command import WrongAnswer


def same_oid(body: bytes, wanted: bytes) -> bool:
    return str(orjson.loads(body)["oid"]) == wanted.decode().strip()


def same_commit(body: bytes, wanted: bytes) -> bool:
    answer = orjson.loads(body)
    head, _, message = wanted.decode("utf-8", "replace").partition("\n\n")
    lines = [line.split(" ", 1) for line in head.split("\n") if " " in line]
    parents = [value for key, value in lines if key == "parent"]
    tree = next(value for key, value in lines if key == "tree")
    return bool(answer["tree"] == tree and answer["parents"] == parents and answer["message"] == message)


def same_bytes(body: bytes, wanted: bytes) -> bool:
    return body == wanted


def same_tree(body: bytes, wanted: bytes) -> bool:
    rows = [f"{e['mode']} {e['type']} {e['oid']}\t{e['path']}" for e in orjson.loads(body)["entries"]]
    return rows == wanted.decode().splitlines()


def document(body: bytes, key: str) -> list[dict[str, object]]:
    """The records of a page, or of a stream that must end complete."""
    if body[:1] == b"{" and b"\n" not in body:
        found: list[dict[str, object]] = orjson.loads(body)[key]
        return found
    *records, end = [orjson.loads(line) for line in body.splitlines()]
    if not end.get("end") or not end.get("complete"):
        raise WrongAnswer(f"the stream ended with {end}")
    return records


def same_ids(body: bytes, wanted: bytes) -> bool:
    return [record["oid"] for record in document(body, "commits")] == wanted.decode().split()


def same_commits(body: bytes, wanted: bytes) -> bool:
    ids = [piece[:40].decode() for piece in wanted.split(b"\x01")[1:]]
    return [record["oid"] for record in document(body, "commits")] == ids


def same_entries(body: bytes, wanted: bytes) -> bool:
    rows = [f"{e['mode']} {e['type']} {e['oid']}\t{e['path']}" for e in document(body, "entries")]
    return rows == wanted.decode("utf-8", "replace").split("\0")[:-1]


def same_sizes(body: bytes, wanted: bytes) -> bool:
    rows = [
        f"{e['mode']} {e['type']} {e['oid']} {e.get('size', '-'):>7}\t{e['path']}" for e in document(body, "entries")
    ]
    return rows == wanted.decode("utf-8", "replace").split("\0")[:-1]


def same_changes(body: bytes, wanted: bytes) -> bool:
    return len(document(body, "files")) == wanted.count(b":") and all(
        str(record["new_oid"] or "0" * 40).encode() in wanted for record in document(body, "files")
    )


def same_base(body: bytes, wanted: bytes) -> bool:
    return bool(orjson.loads(body)["bases"] == wanted.decode().split())


def same_counts(body: bytes, wanted: bytes) -> bool:
    result = orjson.loads(body)["results"][0]
    return [result["behind"], result["ahead"]] == [int(count) for count in wanted.split()]


def same_lines(body: bytes, wanted: bytes) -> bool:
    # With -z git writes REV:PATH NUL LINE NUL TEXT.
    found = sorted((record["path"], record["line"]) for record in document(body, "matches"))
    rows = [row.split(b"\0") for row in wanted.split(b"\n") if row]
    return found == sorted((row[0].partition(b":")[2].decode("utf-8", "replace"), int(row[1])) for row in rows)
