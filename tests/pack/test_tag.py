"""Tag objects, against git for-each-ref, and damaged ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from pack.commit import subject
from pack.errors import BadObject
from pack.objects import COMMIT, TAG, TYPE_NAMES
from pack.tag import parse_tag, target
from tests.support.generate import Repositories
from tests.support.git import Plumbing, git, init
from tests.support.repo import open_git_dir

OBJECT = b"object " + b"ab" * 20 + b"\n"
FIELDS = ("objectname", "object", "type", "tag", "taggername", "taggeremail:trim", "taggerdate:unix", "subject")
FORM = "%01".join(f"%({field})" for field in ("objecttype", *FIELDS))


def test_every_tag_reads_as_git_reads_it(repositories: Repositories) -> None:
    total = 0
    for name in ("tags", "refs", "history", "merges"):
        path = repositories[name]
        view = open_git_dir(path)
        for line in git(path, "for-each-ref", f"--format={FORM}").splitlines():
            kind, oid, *fields = line.decode("utf-8", "replace").split("\x01")
            if kind != "tag":
                continue
            tag = view.tag(bytes.fromhex(oid))
            who = tag.tagger
            ours = [
                tag.object.hex(),
                TYPE_NAMES[tag.type].decode(),
                tag.name.decode("utf-8", "replace"),
                who.name.decode("utf-8", "replace") if who else "",
                who.email.decode("utf-8", "replace") if who else "",
                str(who.time) if who and who.time is not None else "",
                subject(tag.text).decode("utf-8", "replace"),
            ]
            assert ours == fields, (name, oid)
            total += 1
    assert total >= 3


def test_refs_are_peeled_to_the_end(repositories: Repositories) -> None:
    path = repositories["tags"]
    view = open_git_dir(path)
    for ref in view.refs.iterate(b"refs/tags/"):
        peeled = git(path, "rev-parse", ref.name + b"^{}").decode().strip()
        assert (ref.peeled or ref.oid).hex() == peeled
        assert (ref.peeled is not None) == (ref.type == TAG)


def test_parts_of_a_tag() -> None:
    signature = b"-----BEGIN PGP SIGNATURE-----\n\nabc\n-----END PGP SIGNATURE-----\n"
    head = OBJECT + b"type commit\ntag v1\ntagger A <a@b> 5 +0000\nother x\n more\nencoding cp1251\n"
    tag = parse_tag(head + b"\nsubject\n\nbody\n" + signature)
    assert (tag.object.hex(), tag.type, tag.name) == ("ab" * 20, COMMIT, b"v1")
    assert tag.tagger is not None and tag.tagger[:4] == (b"A", b"a@b", 5, b"+0000")
    assert tag.message == b"subject\n\nbody\n" + signature
    assert (tag.signature, tag.encoding, tag.headers) == (signature, b"cp1251", ((b"other", b"x\nmore"),))
    assert parse_tag(head + b"\n" + signature).signature == signature
    assert parse_tag(head + b"\nnot at a line's start " + signature).signature is None


@pytest.mark.parametrize("rest", [b"", b"\n", b"tag v1\n", b"tagger nobody\n\nm", b"\n\n\n", b"\0\0\n"])
def test_old_and_odd_tags_are_tolerated(tmp_path: Path, rest: bytes) -> None:
    p = Plumbing(init(tmp_path / "r.git"))
    commit = p.commit("c", p.tree([]))
    data = b"object %s\ntype commit\n%s" % (commit.encode(), rest)
    oid = p.raw("tag", data)
    assert target(data) == (bytes.fromhex(commit), COMMIT)
    parse_tag(data)
    view = open_git_dir(p.path)
    assert view.peel(bytes.fromhex(oid)).hex() == commit


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"object",
        OBJECT,
        OBJECT + b"type commit",
        OBJECT + b"type bogus\n",
        OBJECT + b"tag x\ntype commit\n",
        b"object " + b"xy" * 20 + b"\ntype commit\n",
        OBJECT.rstrip() + b" \ntype commit\n",
        b"\0" * 100,
    ],
)
def test_what_is_no_tag(data: bytes) -> None:
    with pytest.raises(BadObject):
        parse_tag(data)
