"""Faults that projects of this kind really had, asked of the running service: what it must answer instead.

The inputs are made by tests/support/cases.py. What needs an upstream is in test_handed_upstream.py, what breaks on
its way to the client in test_handed_breaks.py.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_from_bytes

import pytest

from app.reads.base import b64, from_b64
from storage.open import prepare
from tests.conftest import Served
from tests.storage.conftest import BACKENDS
from tests.support.cases import H04_NAMES, H07_BRANCHES, H07_FILES, SUB_A, SUB_B, Cases
from tests.support.git import ENV, git
from tests.support.service import Repo

NO_ARCHIVE = "archives are not built yet"
NO_BLAME = "blame is not built yet"


def raw(record: dict[str, Any], key: str) -> bytes:
    """The bytes behind a name of a record."""
    twin = record.get(f"{key}_b64")
    return from_b64(twin, key) if twin is not None else str(record[key]).encode()


def data_of(repo: Repo, **params: Any) -> bytes:
    answer = repo.ask("/raw", accept="*/*", **params)
    assert answer.status_code == 200, answer.text
    return answer.content


def refused(repo: Repo, where: str, /, **params: Any) -> str:
    """The code of a refusal: a clear 4xx."""
    problem = repo.problem(where, **params)
    assert 400 <= problem["status"] < 500
    assert problem["detail"] and problem["title"]
    return str(problem["code"])


def subjects(repo: Repo, **params: Any) -> list[str]:
    return [commit["subject"] for commit in repo.pages("/log", "commits", **params)]


# H01


def test_a_directory_sorts_as_if_its_name_ended_in_a_slash(served: Served, cases: Cases) -> None:
    repo, oids = served.case("h01"), cases["h01"].oids
    entries = repo.json("/tree", rev="main")["entries"]
    assert [entry["path"] for entry in entries] == ["foo", "foo.txt", "lib-a", "lib.c", "lib", "lib0"]
    assert [entry["type"] for entry in entries] == ["blob", "blob", "blob", "blob", "tree", "blob"]
    for path in ("foo", "foo.txt", "lib-a", "lib.c", "lib0", "lib/in"):
        assert repo.json("/stat", rev="main", path=path)["oid"] == oids["blob"]
        assert repo.json("/resolve", rev=f"main:{path}")["oid"] == oids["blob"]
        assert data_of(repo, rev="main", path=path) == b"x\n"
    assert repo.json("/stat", rev="main", path="lib")["type"] == "tree"
    assert repo.json("/resolve", rev="main:lib")["oid"] == oids["lib"]
    assert [entry["path"] for entry in repo.json("/tree", rev="main", path="lib")["entries"]] == ["lib/in"]


# H02


def test_commit_text_in_another_encoding(served: Served, cases: Cases) -> None:
    repo, oids = served.case("h02"), cases["h02"].oids
    for commits in (repo.json("/log", rev="main")["commits"], repo.stream("/log", rev="main")[0]):
        newer, older = commits
        assert (newer["oid"], older["oid"]) == (oids["b"], oids["a"])
        assert (older["encoding"], older["subject"], older["author"]["name"]) == ("ISO-8859-1", "café", "André")
        assert newer["encoding"] is None
        assert newer["subject"] == "bad \ufffd byte"
        assert from_b64(newer["message_b64"], "message") == b"bad \xff byte\n"
    assert repo.json("/commit", rev=oids["a"])["message"] == "café\n"
    # The ids are hashes of the untouched bytes.
    for oid in (oids["a"], oids["b"]):
        assert repo.ask(f"/objects/{oid}", accept="*/*").content == git(cases["h02"].path, "cat-file", "commit", oid)


# H03


def test_commit_headers_that_run_over_several_lines(served: Served, cases: Cases) -> None:
    repo, oids = served.case("h03"), cases["h03"].oids
    commit = repo.json("/commit", rev="main")
    assert commit["parents"] == [oids["p1"], oids["p2"]]
    assert commit["subject"] == "Merge tag v1"
    assert commit["message"] == "Merge tag v1\n\nbody\n"
    assert commit["encoding"] == "UTF-8"
    assert commit["signed"] is True
    assert repo.json("/log", rev="main")["commits"][0]["message"] == commit["message"]
    assert subjects(repo, rev="main") == ["Merge tag v1", "two", "one"]


# H04


def test_names_are_bytes(served: Served, cases: Cases) -> None:
    repo = served.case("h04")
    entries = repo.json("/tree", rev="main")["entries"]
    wanted = git(cases["h04"].path, "ls-tree", "-z", "--name-only", "main").split(b"\0")[:-1]
    assert len(entries) == 7
    assert [raw(entry, "path") for entry in entries] == wanted
    assert sorted(wanted) == sorted(H04_NAMES)
    assert [raw(entry, "path") for entry in repo.stream("/tree", rev="main")[0]] == wanted
    for entry, name in zip(entries, wanted, strict=True):
        # As bytes in the query, and in the form that the answer gave.
        back = {"path_b64": entry["path_b64"]} if "path_b64" in entry else {"path": entry["path"]}
        for given in ({"path": name}, {"path_b64": b64(name)}, back):
            assert data_of(repo, rev="main", **given) == b"x\n"
            assert raw(repo.json("/stat", rev="main", **given), "path") == name
            assert raw(repo.json("/blob", rev="main", **given), "path") == name
            assert subjects(repo, rev="main", **given) == ["names"]
            (file,) = repo.json("/diff", head="main", **given)["files"]
            assert raw(file, "new_path") == name
            patch = repo.ask("/diff", accept="text/x-diff", head="main", **given)
            assert patch.content == git(
                cases["h04"].path, "diff-tree", "-p", "--binary", "--full-index", "-M", "--root", "--no-commit-id",
                "main", "--", b":(literal)" + name,
            )  # fmt: skip
            (match,) = repo.json("/grep", rev="main", pattern="x", **given)["matches"]
            assert raw(match, "path") == name
    # The composed and the decomposed form of a letter are two files.
    assert len({raw(entry, "path") for entry in entries if entry["path"].startswith("caf")}) == 2


@pytest.mark.xfail(strict=True, reason=NO_ARCHIVE)
def test_names_are_bytes_in_archives(served: Served) -> None:
    answer = served.case("h04").ask("/archive", accept="*/*", rev="main", format="tar")
    assert answer.status_code == 200
    with tarfile.open(fileobj=io.BytesIO(answer.content), errors="surrogateescape") as archive:
        assert sorted(name.encode("utf-8", "surrogateescape") for name in archive.getnames()) == sorted(H04_NAMES)


# H05


def test_tags_on_tags_trees_and_blobs(served: Served, cases: Cases) -> None:
    repo, oids, path = served.case("h05"), cases["h05"].oids, cases["h05"].path
    say = lambda rev: git(path, "rev-parse", rev).decode().strip()  # noqa: E731
    nested = repo.json("/resolve", rev="nested")
    assert (nested["type"], nested["oid"], nested["commit"]) == ("tag", say("nested"), oids["b"])
    assert repo.json("/resolve", rev="nested^{}")["oid"] == oids["b"]
    assert repo.json("/resolve", rev="nested~1")["oid"] == oids["a"]
    assert repo.json("/resolve", rev="nested^{tree}")["oid"] == oids["tree"]
    assert repo.json("/commit", rev="nested")["oid"] == oids["b"]
    tag = repo.json("/tag", rev="nested")
    assert (tag["object"], tag["type"], tag["name"]) == (say("v1"), "tag", "nested")
    listing = repo.json("/tree", rev="nested")
    assert (listing["commit"], listing["entries"]) == (oids["b"], [])
    assert repo.problem("/stat", rev="nested", path="nothing")["code"] == "path_not_found"
    assert repo.json("/tree", rev="ontree")["entries"] == []
    assert data_of(repo, rev="onblob") == b"hi\n"
    assert repo.json("/blob", rev="onblob")["content"] == "hi\n"
    for rev in ("ontree", "onblob"):
        assert refused(repo, "/log", rev=rev) == "wrong_type"
        assert rev in repo.problem("/log", rev=rev)["detail"]
        assert refused(repo, "/resolve", rev=f"{rev}^{{commit}}") in ("wrong_type", "revision_not_found")
    for ref in repo.json("/refs")["refs"]:
        assert ref["oid"] == say(ref["name"])
        assert ref["peeled"] == (say(ref["name"] + "^{}") if ref["type"] == "tag" else None)
    kinds = {ref["name"]: ref["type"] for ref in repo.json("/refs", prefix="refs/tags/")["refs"]}
    assert kinds == dict.fromkeys((f"refs/tags/{name}" for name in ("nested", "onblob", "ontree", "v1")), "tag")


# H06


def test_a_branch_and_a_tag_of_one_name(served: Served, cases: Cases) -> None:
    repo, oids = served.case("h06"), cases["h06"].oids
    for rev, subject in (("v1", "tagged"), ("tags/v1", "tagged"), ("heads/v1", "branch"), ("refs/heads/v1", "branch")):
        assert subjects(repo, rev=rev, limit=1)[0] == subject
        assert repo.json("/commit", rev=rev)["subject"] == subject
    assert repo.json("/resolve", rev="v1")["ref"] == "refs/tags/v1"
    assert repo.json("/resolve", rev="refs/heads/v1")["oid"] == oids["b"]
    (result,) = repo.json("/ahead-behind", base="main", head="refs/heads/v1")["results"]
    assert (result["ahead"], result["behind"]) == (0, 0)
    (result,) = repo.json("/ahead-behind", base="main", head="v1")["results"]
    assert (result["ahead"], result["behind"]) == (0, 1)


# H07


def test_names_in_urls_and_headers(served: Served, cases: Cases) -> None:
    repo, oids = served.case("h07"), cases["h07"].oids
    refs = repo.json("/refs", prefix="refs/heads/")["refs"]
    assert sorted(ref["name"] for ref in refs) == sorted(f"refs/heads/{branch}" for branch in H07_BRANCHES)
    assert len(repo.json("/tree", rev="main", recursive=True)["entries"]) == 7
    for branch in H07_BRANCHES:
        for safe in ("", "/"):
            rev = quote(branch, safe=safe)
            assert repo.client.get(f"{repo.base}/resolve?rev={rev}").json()["oid"] == oids["c"]
            for name in H07_FILES:
                answer = repo.client.get(f"{repo.base}/raw?rev={rev}&path={quote_from_bytes(name, safe='')}")
                assert (answer.status_code, answer.content) == (200, b"x\n")
                assert answer.headers["packhouse-commit"] == oids["c"]
                wanted = f"attachment; filename*=UTF-8''{quote_from_bytes(name, safe='')}"
                assert answer.headers["content-disposition"] == wanted
    answer = repo.client.get(f"{repo.base}/raw?rev=main&path=%252F.txt")
    assert answer.content == b"x\n"
    # Not a path: a name that begins with a slash is refused.
    answer = repo.client.get(f"{repo.base}/raw?rev=main&path=%2F.txt")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_parameter")
    # A plus is a space, as in forms; a plus sign is %2B.
    assert repo.client.get(f"{repo.base}/raw?rev=main&path=a+b.txt").content == b"x\n"
    assert repo.client.get(f"{repo.base}/stat?rev=main&path=a+b.txt").json()["path"] == "a b.txt"
    assert repo.client.get(f"{repo.base}/stat?rev=a%2Bb&path=a%2Bb.txt").json()["path"] == "a+b.txt"


@pytest.mark.xfail(strict=True, reason=NO_ARCHIVE)
def test_names_in_headers_of_archives(served: Served) -> None:
    answer = served.case("h07").ask("/archive", accept="*/*", rev="日本", format="tar")
    assert answer.status_code == 200
    disposition = answer.headers["content-disposition"]
    assert "filename*=UTF-8''" in disposition and quote("日本") in disposition


# H08: the pack itself comes from an upstream in test_handed_upstream.py


def test_a_delta_whose_base_comes_later(served: Served, cases: Cases) -> None:
    repo = served.case("h08")
    assert repo.client.get(repo.base).json()["objects"] == 4
    data = data_of(repo, rev="main", path="f")
    assert (len(data), data.splitlines()[-1]) == (109, b"more")


# H15


def test_the_history_of_one_file_over_a_merge(served: Served) -> None:
    repo = served.case("h15")
    for params, wanted in (
        ({"path": "a"}, ["a-on-side", "root"]),
        ({"path": "b"}, ["b-again", "b-on-main", "root"]),
        ({"path": "c"}, []),
        ({}, ["b-again", "merge", "b-on-main", "a-on-side", "root"]),
    ):
        assert subjects(repo, rev="main", **params) == wanted
        assert subjects(repo, rev="main", limit=1, **params) == wanted
        commits, end = repo.stream("/log", rev="main", **params)
        assert [commit["subject"] for commit in commits] == wanted
        assert end["complete"] is True


# H16 to H19: pairs of trees, the newer one on branch pairN


def compare(repo: Repo, number: int, **params: Any) -> list[dict[str, Any]]:
    answer = repo.json("/diff", base=f"pair{number}~1", head=f"pair{number}", **params)
    assert answer["complete"] is True
    # Without a base it is the first parent.
    assert repo.json("/diff", head=f"pair{number}", **params)["files"] == answer["files"]
    return list(answer["files"])


def patch(repo: Repo, number: int, **params: Any) -> bytes:
    answer = repo.ask("/diff", accept="text/x-diff", head=f"pair{number}", **params)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/x-diff")
    return answer.content


def changes(text: bytes) -> list[bytes]:
    """What the handed case prints of a patch: modes and changed lines."""
    heads = (b"old mode", b"new mode", b"deleted file", b"new file")
    return [
        line for line in text.splitlines()
        if line.startswith(heads) or (line[:1] in b"-+" and line[1:2] not in (b"-", b"+"))
    ]  # fmt: skip


def test_files_without_a_final_newline(served: Served, cases: Cases, tmp_path: Path) -> None:
    repo, case = served.case("h16"), cases["h16"]
    mark = b"\\ No newline at end of file"
    wanted: list[tuple[bytes, list[bytes]]] = [
        (b"@@ -1,2 +1,2 @@", [b" a", b"-b", mark, b"+c", mark]),
        (b"@@ -1,2 +1,2 @@", [b" a", b"-b", mark, b"+b"]),
        (b"@@ -1,2 +1,2 @@", [b" a", b"-b", b"+b", mark]),
        (b"@@ -1 +1,2 @@", [b"-x", mark, b"+x", b"+y", mark]),
    ]
    for number, (header, lines) in enumerate(wanted):
        text = patch(repo, number)
        at = text.index(b"@@")
        assert text[at:] == b"\n".join([header, *lines]) + b"\n"
        ((hunk,),) = [file["hunks"] for file in compare(repo, number)]
        shown: list[bytes] = []
        for line in hunk["lines"]:
            shown.append((line["op"] + line["text"]).encode())
            shown += [mark] if line.get("no_newline") else []
        assert shown == lines
        folder = tmp_path / str(number)
        folder.mkdir()
        old, new = case.pairs[number]
        (folder / "f").write_bytes(git(case.path, "cat-file", "blob", f"{old}:f"))
        subprocess.run(["git", "apply"], input=text, cwd=folder, env=ENV, check=True)
        assert (folder / "f").read_bytes() == git(case.path, "cat-file", "blob", f"{new}:f")


def test_the_rename_threshold(served: Served) -> None:
    repo = served.case("h17")

    def told(number: int, **params: Any) -> list[tuple[str, int | None, str | None, str | None]]:
        files = compare(repo, number, **params)
        return [(file["status"], file["similarity"], file["old_path"], file["new_path"]) for file in files]

    apart = [("A", None, None, "new"), ("D", None, "old", None)]
    assert told(0) == apart
    assert told(1) == [("R", 50, "old", "new")]
    assert told(2) == [("R", 60, "old", "new")]
    assert told(3) == [("R", 100, "old", "new")]
    assert compare(repo, 3)[0]["hunks"] == []
    assert b"@@" not in patch(repo, 3)
    assert b"similarity index 100%" in patch(repo, 3)
    for number in range(4):
        assert told(number, renames="false") == apart


def test_what_is_binary(served: Served) -> None:
    repo = served.case("h18")
    wanted = [True, False, True, False, False]
    for number, binary in enumerate(wanted):
        (file,) = compare(repo, number)
        assert file["is_binary"] is binary
        assert repo.json("/blob", rev=f"pair{number}", path="f")["is_binary"] is (binary and number == 2)
        assert (file["additions"], file["deletions"]) == ((None, None) if binary else (1, 0))
        assert bool(file["hunks"]) is not binary
        assert (b"GIT binary patch" in patch(repo, number)) is binary
        # Of the old sides the first and the third are binary.
        answer = repo.json("/grep", rev=f"pair{number}~1", pattern=".*", limit=10_000)
        assert bool(answer["matches"]) is (number in (1, 3))
        assert answer["skipped_counts"] == ({"binary": 1} if binary else {})
        assert answer["complete"] is True


def test_changes_of_type_and_mode(served: Served) -> None:
    repo = served.case("h19")
    zero = b"Subproject commit "
    a, b = SUB_A.encode(), SUB_B.encode()
    wanted = [
        ("M", [b"old mode 100644", b"new mode 100755"]),
        ("T", [b"deleted file mode 100644", b"-target", b"new file mode 120000", b"+target"]),
        ("T", [b"deleted file mode 100644", b"-target", b"new file mode 160000", b"+" + zero + a]),
        ("M", [b"-" + zero + a, b"+" + zero + b]),
    ]
    for number, (status, lines) in enumerate(wanted):
        (file,) = compare(repo, number)
        assert (file["status"], file["new_path"]) == (status, "f")
        assert changes(patch(repo, number)) == lines
    assert compare(repo, 0)[0]["hunks"] == []
    (file,) = compare(repo, 3)
    assert (file["old_mode"], file["new_mode"], file["new_oid"]) == ("160000", "160000", SUB_B)
    for answer in (repo.ask(where, accept="*/*", rev="pair3", path="f") for where in ("/blob", "/raw")):
        assert (answer.status_code, answer.json()["code"]) == (422, "wrong_type")
        assert "submodule" in answer.json()["detail"]
    (entry,) = repo.json("/tree", rev="pair3")["entries"]
    assert (entry["type"], entry["mode"], entry["oid"]) == ("commit", "160000", SUB_B)


# H20


def test_branches_apart_and_clocks_wrong(served: Served, cases: Cases) -> None:
    repo, oids = served.case("h20"), cases["h20"].oids
    (result,) = repo.json("/ahead-behind", base="old", head="main")["results"]
    assert (result["ahead"], result["behind"], result["merge_base"]) == (1, 2, oids["c"])
    answer = repo.json("/merge-base", rev=["main", "old"])
    assert (answer["bases"], answer["is_ancestor"]) == ([oids["c"]], False)
    assert subjects(repo, rev="main", not_="old") == ["new"]
    (result,) = repo.json("/ahead-behind", base="unrelated", head="main")["results"]
    assert (result["ahead"], result["behind"], result["merge_base"]) == (4, 1, None)
    assert repo.json("/merge-base", rev=["main", "unrelated"], all=True)["bases"] == []


# H21


@pytest.mark.xfail(strict=True, reason=NO_BLAME)
def test_blame_of_the_last_line_line_ends_and_a_merge(served: Served, cases: Cases) -> None:
    repo, oids = served.case("h21"), cases["h21"].oids
    names = {oids[name]: name for name in ("root", "left", "right", "merge", "dos")}
    for rev, wanted in ((oids["merge"], "left root root root right"), (oids["dos"], "dos root root root dos")):
        lines = repo.json("/blame", rev=rev, path="f")["lines"]
        assert " ".join(names[line["oid"]] for line in lines) == wanted
        assert [line["line"] for line in lines] == [1, 2, 3, 4, 5]
    assert lines[0]["text"] == "ONE\r"


# H22


def test_grep_of_literals_case_context_and_the_last_line(served: Served) -> None:
    repo = served.case("h22")

    def lines(pattern: str, **params: Any) -> list[int]:
        answer = repo.json("/grep", rev="main", pattern=pattern, **params)
        assert {match["path"] for match in answer["matches"]} <= {"a.txt"}
        assert answer["complete"] is True
        assert repo.stream("/grep", rev="main", pattern=pattern, **params)[0] == answer["matches"]
        return [match["line"] for match in answer["matches"]]

    assert lines("a.b", fixed=True) == [1, 8]
    assert lines("a.b") == [1, 2, 8]
    assert lines("a.b", fixed=True, ignore_case=True) == [1, 6, 8]
    assert lines("éclair", fixed=True, ignore_case=True) == [3]
    assert lines("éclair", ignore_case=True) == [3]
    assert lines("b$") == [1, 2]
    (match,) = repo.json("/grep", rev="main", pattern="A.B", fixed=True, before=2, after=2)["matches"]
    assert (match["line"], match["before"], match["after"]) == (6, ["3", "4"], ["7", "a.b end"])
    assert match["columns"] == [[0, 3]]
    # Overlapping context is shown once.
    matches = repo.json("/grep", rev="main", pattern="^[347]", before=2, after=2)["matches"]
    shown = []
    for match in matches:
        first = match["line"] - len(match["before"])
        shown += range(first, match["line"] + len(match["after"]) + 1)
    assert shown == sorted(set(shown)) == list(range(2, 9))
    assert refused(repo, "/grep", rev="main", pattern="a(b") == "bad_pattern"
    assert lines("a(b", fixed=True) == []


# H23


def archived(answer: Any) -> dict[str, tarfile.TarInfo]:
    assert answer.status_code == 200
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        return {member.name: member for member in archive.getmembers()}


@pytest.mark.xfail(strict=True, reason=NO_ARCHIVE)
@pytest.mark.parametrize("format_", ["tar", "tar.gz"])
def test_links_exec_bits_and_submodules_in_a_tar(served: Served, format_: str) -> None:
    repo = served.case("h23")
    answer = repo.ask("/archive", accept="*/*", rev="main", format=format_, prefix="p/")
    members = archived(answer)
    assert sorted(members) == ["p", "p/link", "p/mod", "p/plain", "p/run"]
    assert (members["p/link"].issym(), members["p/link"].linkname) == (True, "plain")
    assert members["p/mod"].isdir()
    assert (bool(members["p/run"].mode & 0o100), bool(members["p/plain"].mode & 0o100)) == (True, False)
    assert {member.mtime for member in members.values()} == {1700000007}
    again = repo.ask("/archive", accept="*/*", rev="main", format=format_, prefix="p/")
    assert again.content == answer.content


@pytest.mark.xfail(strict=True, reason=NO_ARCHIVE)
def test_links_exec_bits_and_submodules_in_a_zip(served: Served) -> None:
    answer = served.case("h23").ask("/archive", accept="*/*", rev="main", format="zip")
    assert answer.status_code == 200
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
        assert archive.read("link") == b"plain"
    assert sorted(modes) == ["link", "mod/", "plain", "run"]
    assert modes["link"] & 0o170000 == 0o120000
    assert modes["run"] & 0o100


# H24


def test_nothing_at_all_and_pieces(served: Served) -> None:
    repo = served.case("h24")
    entries = repo.json("/tree", rev="main", sizes=True)["entries"]
    assert [(entry["path"], entry["size"]) for entry in entries] == [("empty", 0), ("ten", 10)]
    found = repo.json("/stat", rev="main", path="empty")
    assert (found["oid"], found["size"]) == ("e69de29bb2d1d6434b8b29ae775ad8c2e48c5391", 0)
    answer = repo.ask("/raw", accept="*/*", rev="main", path="empty")
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", "0")
    assert repo.ask(f"/objects/{found['oid']}", accept="*/*").content == b""
    assert repo.json("/blob", rev="main", path="empty")["content"] == ""

    def part(path: str, wanted: str) -> tuple[int, bytes, str | None]:
        answer = repo.ask("/raw", accept="*/*", rev="main", path=path, headers={"Range": wanted})
        if answer.status_code == 416:
            assert answer.json()["code"] == "range_not_satisfiable"
            return 416, b"", answer.headers.get("content-range")
        assert answer.headers["content-length"] == str(len(answer.content))
        return answer.status_code, answer.content, answer.headers.get("content-range")

    assert part("ten", "bytes=0-0") == (206, b"0", "bytes 0-0/10")
    assert part("ten", "bytes=-3") == (206, b"789", "bytes 7-9/10")
    assert part("ten", "bytes=8-99") == (206, b"89", "bytes 8-9/10")
    assert part("ten", "bytes=10-") == (416, b"", "bytes */10")
    assert part("ten", "bytes=5-2") == (200, b"0123456789", None)
    for wanted in ("bytes=0-0", "bytes=0-", "bytes=-1", "bytes=5-9"):
        assert part("empty", wanted) == (416, b"", "bytes */0")


@pytest.mark.parametrize("store", sorted(BACKENDS))
async def test_nothing_at_all_and_pieces_in_a_store(tmp_path: Path, store: str) -> None:
    backend = BACKENDS[store](tmp_path)
    try:
        await prepare(backend)
        await backend.create("handed/empty", b"")
        await backend.create("handed/ten", b"0123456789")
        assert (await backend.size("handed/empty"), await backend.get("handed/empty")) == (0, b"")
        assert await backend.read("handed/empty", 0, 10) == b""
        for start, length, wanted in (
            (0, 1, b"0"),
            (7, 3, b"789"),
            (8, 92, b"89"),
            (10, 5, b""),
            (0, 10, b"0123456789"),
        ):
            assert await backend.read("handed/ten", start, length) == wanted
    finally:
        await backend.close()
