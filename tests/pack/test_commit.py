"""Commits, against git log on every generated commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from pack.charset import codec, decode
from pack.commit import Commit, links, parse_commit, subject, text
from pack.errors import BadObject, WrongType
from pack.ident import parse_ident
from pack.objects import TREE
from tests.support.cases import Cases
from tests.support.generate import Repositories
from tests.support.git import Plumbing, git, init
from tests.support.repo import open_git_dir

FIELDS = ("%H", "%T", "%P", "%an", "%ae", "%at", "%cn", "%ce", "%ct", "%s", "%e", "%B")
TREE_LINE = b"tree " + b"ab" * 20 + b"\n"
WHO = b"author A <a@example.org> 1700000000 +0000\ncommitter A <a@example.org> 1700000000 +0000\n"


def as_git_says(path: Path, oids: list[str]) -> dict[str, list[str]]:
    form = "%x01".join(FIELDS)
    out = git(
        path,
        *("log", "--no-walk=unsorted", "--no-mailmap", "-z", "--encoding=UTF-8", f"--format={form}", "--stdin"),
        stdin="\n".join(oids).encode(),
    )
    rows = [row.decode("utf-8", "replace").split("\x01") for row in out.rstrip(b"\0").split(b"\0")]
    return {row[0]: row[1:] for row in rows}


def as_we_say(commit: Commit) -> list[str]:
    def ident(found: object) -> list[str]:
        if found is None:
            return ["", "", ""]
        one = parse_ident(found.raw)  # type: ignore[attr-defined]
        time = "" if one.time is None else str(one.time)
        return [text(one.name, commit.encoding), text(one.email, commit.encoding), time]

    return [
        commit.tree.hex(),
        " ".join(parent.hex() for parent in commit.parents),
        *ident(commit.author),
        *ident(commit.committer),
        text(subject(commit.message), commit.encoding),
        (commit.encoding or b"").decode(),
        text(commit.message, commit.encoding),
    ]


def test_every_commit_reads_as_git_reads_it(repositories: Repositories) -> None:
    total = 0
    for name in repositories:
        path = repositories[name]
        view = open_git_dir(path)
        oids = git(path, "rev-list", "--all").decode().split()[:300]
        if not oids:
            continue
        expected = as_git_says(path, oids)
        for oid in oids:
            commit = view.commit(bytes.fromhex(oid))
            ours, gits = as_we_say(commit), expected[oid]
            for number in (4, 7):
                # git prints digits that no clock can hold.
                if len(gits[number]) > 18:
                    gits[number] = ""
            # %B ends in one newline of its own, and begins after blank lines.
            assert (ours[:-1], ours[-1].strip("\n")) == (gits[:-1], gits[-1].strip("\n")), (name, oid)
            total += 1
    assert total > 500


def test_links_are_what_rev_list_walks(repositories: Repositories) -> None:
    for name in repositories:
        path = repositories[name]
        view = open_git_dir(path)
        out = git(path, "rev-list", "--all", "--timestamp", "--parents")
        for line in out.splitlines():
            time, oid, *parents = line.decode().split()
            found = view.links(bytes.fromhex(oid))
            assert (found.time, [parent.hex() for parent in found.parents]) == (int(time), parents), (name, oid)


def test_text_in_another_encoding(cases: Cases) -> None:
    view = open_git_dir(cases["h02"].path)
    head = view.refs.head
    assert head is not None
    newer = view.commit(head.oid)
    assert newer.encoding is None
    assert text(newer.message, newer.encoding) == "bad \ufffd byte\n"
    older = view.commit(newer.parents[0])
    assert older.encoding == b"ISO-8859-1"
    assert older.author is not None
    assert text(older.author.name, older.encoding) == "André"
    assert text(subject(older.message), older.encoding) == "café"


def test_headers_over_several_lines(cases: Cases) -> None:
    view = open_git_dir(cases["h03"].path)
    head = view.refs.head
    assert head is not None
    commit = view.commit(head.oid)
    assert len(commit.parents) == 2
    assert subject(commit.message) == b"Merge tag v1"
    assert commit.message == b"Merge tag v1\n\nbody\n"
    assert commit.encoding == b"UTF-8"
    assert commit.signed
    assert [key for key, _ in commit.headers] == [b"mergetag", b"gpgsig"]
    assert commit.headers[0][1].endswith(b"\n\nparent of nothing\nencoding of nothing")
    assert commit.headers[1][1] == b"-----BEGIN PGP SIGNATURE-----\n\ntree 123\n-----END PGP SIGNATURE-----"


def test_parents_count_only_after_the_tree() -> None:
    parent = b"parent " + b"cd" * 20 + b"\n"
    commit = parse_commit(TREE_LINE + WHO + parent + b"\nm\n")
    assert commit.parents == ()
    assert commit.headers == ((b"parent", b"cd" * 20),)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\n", b"tree", b"tree " + b"ab" * 20, TREE_LINE, b"tree " + b"xy" * 20 + b"\n", TREE_LINE[:-1] + b" \n",
        WHO, b"parent " + b"ab" * 20 + b"\n", TREE_LINE + b"parent " + b"ab" * 19 + b"\n" + WHO,
        TREE_LINE + b"parent " + b"xy" * 20 + b"\n" + WHO, TREE_LINE + b"parent " + b"ab" * 20 + b" \n" + WHO,
        TREE_LINE + b"parent " + b"ab" * 20 + b"\nparent \n" + WHO, b"\0" * 100,
    ],
)  # fmt: skip
def test_what_is_no_commit(data: bytes) -> None:
    with pytest.raises(BadObject):
        links(data)
    with pytest.raises(BadObject):
        parse_commit(data)


@pytest.mark.parametrize(
    "rest",
    [
        b"\n",
        b"author",
        b"author \ncommitter \n\nm\n",
        b"committer A <a@b> 1 +0000\n\nm\n",
        WHO.replace(b">", b""),
        b" continued from nothing\n\nm\n",
        b"author A <a@b> 1 +0000\n\nm\n",
        b"\n\nauthor A <a@b> 1 +0000\n",
        b"author A <a@b> 12345678901 +0000\ncommitter A <a@b> 12345678901 +0000\n\nm\n",
        b"x" * 1000,
        b"\0" * 100 + b"\n\n\n",
        b"author A <a@b> 1 +0000\ncommitter A <a@b>\n\nm\n",
        b"author A <a@b> 1 +0000\ncommitter A <a@b> 1",
        b"encoding \n\n",
        b"author A <a@b> 1 +0000\ncommitter A <a@b> \t 12 +0000\n\nm\n",
        b"author A <a@b> 1 +0000\ncommitter A <a@b>5\n\nm\n",
    ],
)
def test_damage_below_the_parents_is_tolerated_as_git_tolerates_it(tmp_path: Path, rest: bytes) -> None:
    p = Plumbing(init(tmp_path / "r.git"))
    tree = p.tree([])
    data = b"tree " + tree.encode() + b"\n" + rest
    oid = p.raw("commit", data)
    out = git(p.path, "rev-list", "--timestamp", "--no-walk", oid).split()
    assert links(data).time == int(out[0])
    commit = parse_commit(data)
    if b"\0" not in rest:
        assert as_we_say(commit)[:-1] == as_git_says(p.path, [oid])[oid][:-1]


def test_times_as_the_walk_reads_them(tmp_path: Path) -> None:
    p = Plumbing(init(tmp_path / "r.git"))
    tree = p.tree([])
    stamps = (
        b" 1 +0000",
        b" -5 +0000",
        b" +5 +0000",
        b"  1700000000 +0000",
        b" 170000000 +0000",
        b" 17000000000 +0000",
    )
    stamps += (
        b" 18446744073709551615 +0000",
        b" 18446744073709551616 +0000",
        b" 99999999999999999999999 +0000",
        b" x",
        b"",
    )
    stamps += (
        b" 1700000000",
        b"1700000000 +0000",
        b"\t1700000000 +0000",
        b" 1700000000x",
        b" 0x10 +0000",
        b" - 5",
        b" 1e9",
    )
    for stamp in stamps:
        data = b"tree %s\nauthor A <a@b> 1 +0000\ncommitter A <a@b>%s\n\nm\n" % (tree.encode(), stamp)
        oid = p.raw("commit", data)
        out = git(p.path, "rev-list", "--timestamp", "--no-walk", oid).split()
        assert links(data).time == int(out[0]), stamp


def test_an_ident_that_is_damaged() -> None:
    assert parse_ident(b"A <a@b> 5 +0100") == (b"A", b"a@b", 5, b"+0100", b"A <a@b> 5 +0100")
    assert parse_ident(b"A <a@b> yesterday")[2:4] == (None, b"yesterday")
    assert parse_ident(b"A <a@b>")[2:4] == (None, b"")
    assert parse_ident(b"A <a> b> 5 -0000")[:4] == (b"A", b"a", 5, b"-0000")
    assert parse_ident(b"nobody")[:4] == (b"", b"", None, b"")
    assert parse_ident(b"A <a@b> " + b"9" * 100_000 + b" +0000")[2] is None


def test_only_character_sets_are_encodings() -> None:
    for name in (
        b"rot13",
        b"zip",
        b"hex",
        b"base64",
        b"idna",
        b"punycode",
        b"unicode_escape",
        b"undefined",
        b"mbcs",
        b"utf-7",
    ):
        assert codec(name) is None
    for name in (b"", b"\xff", b"x" * 5000, b"../../etc", b"a\0b", b"utf8\n", b"no such"):
        decode(b"caf\xe9", name)
    assert decode("дом".encode("cp1251"), b"windows-1251") == ("дом", True)
    assert decode("日本".encode("euc-jp"), b"EUC-JP") == ("日本", True)
    assert decode(b"caf\xe9", b"latin1") == ("café", True)
    assert decode(b"caf\xe9", b"no-such") == ("caf\ufffd", False)
    assert decode("é".encode(), b"US-ASCII") == ("é", True)
    assert decode(b"\xd8\x00", b"UTF-16BE")[0].encode() == b"\xef\xbf\xbd\x00", "no lone surrogate comes out"


def test_subjects() -> None:
    assert subject(b"") == b""
    assert subject(b"\n \n one \ntwo\t\n \nbody") == b" one two"
    assert subject(b"one\r\n\r\nbody") == b"one"


def test_a_view_refuses_other_objects_by_name(repositories: Repositories) -> None:
    view = open_git_dir(repositories["linear"])
    head = view.refs.head
    assert head is not None
    tree = view.links(head.oid).tree
    assert view.objects.header(tree)[0] == TREE
    for call in (view.commit, view.links, view.tag):
        with pytest.raises(WrongType):
            call(tree)
