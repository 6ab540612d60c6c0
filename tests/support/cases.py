"""Twenty-four faults that other projects had, as inputs; the tests hold the right answers.

A case has a fixed set of oids: they are compared when it is made, so that a case that drifts fails by itself.
"""

from __future__ import annotations

import hashlib
import random
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.git import Plumbing, git, init

SUB_A = "ab" * 20
SUB_B = "cd" * 20


@dataclass
class Case:
    """One input. `repos` are bare and loose, as plumbing wrote them; `oids` name commits, trees and blobs (hex)."""

    root: Path
    repos: dict[str, Path] = field(default_factory=dict)
    oids: dict[str, str] = field(default_factory=dict)
    packs: dict[str, bytes] = field(default_factory=dict)
    pairs: list[tuple[str, str]] = field(default_factory=list)

    def new(self, name: str) -> Plumbing:
        self.repos[name] = init(self.root / f"{name}.git")
        return Plumbing(self.repos[name])

    @property
    def path(self) -> Path:
        """The only repository, or the first one."""
        return next(iter(self.repos.values()))


def _h01(case: Case) -> None:
    """Directories sort as if their names ended in a slash."""
    p = case.new("h01")
    b = p.blob(b"x\n")
    sub = p.tree([("100644", b"in", b)])
    files = [("100644", name, b) for name in (b"lib-a", b"lib.c", b"lib0", b"foo", b"foo.txt")]
    p.ref("refs/heads/main", p.commit("order", p.tree([*files, ("040000", b"lib", sub)])))
    case.oids.update(blob=b, lib=sub)
    assert b == "587be6b4c3f93f93c489c0111bba5596147a26cb"


def _h02(case: Case) -> None:
    """Commit text in another encoding, and in none."""
    p = case.new("h02")
    e = p.tree([])
    who = b"Ada Example <ada@example.org> 1700000000 +0000"
    a = p.raw(
        "commit",
        b"tree %s\nauthor Andr\xe9 <ada@example.org> 1700000000 +0000\ncommitter %s\nencoding ISO-8859-1\n\ncaf\xe9\n"
        % (e.encode(), who),
    )
    who = b"A <a@example.org> 1700000060 +0000"
    b = p.raw(
        "commit",
        b"tree %s\nparent %s\nauthor %s\ncommitter %s\n\nbad \xff byte\n" % (e.encode(), a.encode(), who, who),
    )
    p.ref("refs/heads/main", b)
    case.oids.update(a=a, b=b, tree=e)


def _h03(case: Case) -> None:
    """Headers that run over several lines."""
    p = case.new("h03")
    e = p.tree([])
    p1 = p.commit("one", e)
    p.at(1700000060)
    p2 = p.commit("two", e)
    who = "A <a@example.org> 1700000100 +0000"
    c = p.raw(
        "commit",
        (
            f"tree {e}\nparent {p1}\nparent {p2}\nauthor {who}\ncommitter {who}\n"
            f"mergetag object {p2}\n type commit\n tag v1\n tagger A <a@example.org> 1700000050 +0000\n \n"
            " parent of nothing\n encoding of nothing\n"
            "gpgsig -----BEGIN PGP SIGNATURE-----\n \n tree 123\n -----END PGP SIGNATURE-----\n"
            "encoding UTF-8\n\nMerge tag v1\n\nbody\n"
        ).encode(),
    )
    p.ref("refs/heads/main", c)
    case.oids.update(p1=p1, p2=p2, c=c)


H04_NAMES = (b"latin\xe9", b"caf\xc3\xa9", b"cafe\xcc\x81", b"new\nline", b"tab\there", b'quo"te', b"back\\slash")


def _h04(case: Case) -> None:
    """Names are bytes."""
    p = case.new("h04")
    b = p.blob(b"x\n")
    p.ref("refs/heads/main", p.commit("names", p.tree([("100644", name, b) for name in H04_NAMES])))
    case.oids.update(blob=b)


def _h05(case: Case) -> None:
    """Tags on tags, trees and blobs."""
    p = case.new("h05")
    e = p.tree([])
    a = p.commit("one", e)
    p.at(1700000060)
    b = p.commit("two", e, a)
    p.ref("refs/heads/main", b)
    p.tag("v1", b, "t")
    p.tag("nested", "v1", "n")
    p.tag("ontree", e, "x")
    p.tag("onblob", p.blob(b"hi\n"), "x")
    case.oids.update(a=a, b=b, tree=e)


def _h06(case: Case) -> None:
    """A branch and a tag of one name."""
    p = case.new("h06")
    e = p.tree([])
    a = p.commit("tagged", e)
    p.at(1700000060)
    b = p.commit("branch", e, a)
    p.ref("refs/heads/main", b)
    p.ref("refs/heads/v1", b)
    p.ref("refs/tags/v1", a)
    case.oids.update(a=a, b=b)


H07_FILES = (b"a b.txt", b"50%.txt", b"c#.txt", b"a+b.txt", "ü.txt".encode(), b"%2F.txt", b"q&a=1.txt")
H07_BRANCHES = ("main", "feature/one", "fix/#42", "100%", "a+b", "日本", "x=1&y")


def _h07(case: Case) -> None:
    """Names in URLs and headers."""
    p = case.new("h07")
    b = p.blob(b"x\n")
    c = p.commit("names", p.tree([("100644", name, b) for name in H07_FILES]))
    for branch in H07_BRANCHES:
        p.ref(f"refs/heads/{branch}", c)
    case.oids.update(c=c, blob=b)


def _entry(kind: int, data: bytes) -> bytes:
    """A pack entry: type and size as a varint, then the deflated data."""
    size = len(data)
    byte, size = kind << 4 | size & 15, size >> 4
    head = bytearray()
    while size:
        head.append(byte | 128)
        byte, size = size & 127, size >> 7
    return bytes([*head, byte])


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _h08(case: Case) -> None:
    """A REF delta whose base comes later in the pack."""
    p = case.new("h08")
    base = b"line of text\n" * 8
    new = base + b"more\n"

    def oid(kind: bytes, data: bytes) -> bytes:
        return hashlib.sha1(b"%s %d\0" % (kind, len(data)) + data).digest()

    tree = b"100644 f\0" + oid(b"blob", new)
    who = b"A <a@example.org> 1700000000 +0000\n"
    commit = b"tree %s\nauthor %scommitter %s\nref first\n" % (oid(b"tree", tree).hex().encode(), who, who)
    copy = b"\x90" + bytes([len(base)])  # copy from offset 0, one byte of size
    delta = _varint(len(base)) + _varint(len(new)) + copy + b"\x05more\n"
    pack = b"PACK" + struct.pack(">II", 2, 4) + _entry(7, delta) + oid(b"blob", base) + zlib.compress(delta)
    for kind, data in ((3, base), (2, tree), (1, commit)):
        pack += _entry(kind, data) + zlib.compress(data)
    pack += hashlib.sha1(pack).digest()
    git(p.path, "index-pack", "--stdin", stdin=pack)
    p.ref("refs/heads/main", oid(b"commit", commit).hex())
    case.packs["h08"] = pack
    case.oids.update(base=oid(b"blob", base).hex(), new=oid(b"blob", new).hex(), commit=oid(b"commit", commit).hex())


def _h09(case: Case) -> None:
    """Forty files of a megabyte of noise: something to break half way."""
    p = case.new("h09")
    rng = random.Random(9)
    rows = [("100644", b"f%02d" % i, p.blob(rng.randbytes(1 << 20))) for i in range(1, 41)]
    p.ref("refs/heads/main", p.commit("forty", p.tree(rows)))


def _h10(case: Case) -> None:
    """A pack that is damaged at its ends."""
    p = case.new("h10")
    c = p.commit("one", p.file(b"f", b"".join(b"%d\n" % i for i in range(1, 1001))))
    p.ref("refs/heads/main", c)
    ok = git(p.path, "pack-objects", "-q", "--revs", "--stdout", stdin=c.encode() + b"\n")
    count = bytearray(ok)
    count[11] += 1
    case.packs.update(
        ok=ok, short=ok[:-5], half=ok[: len(ok) // 2], sum=ok[:-1] + b"\0", count=bytes(count), junk=ok + b"junk\n"
    )
    if ok[-1] == 0:
        case.packs["sum"] = ok[:-1] + b"\1"
    case.oids.update(c=c)


def _h11(case: Case) -> None:
    """What a server of protocol v0 or v1 shows."""
    p = case.new("h11")
    c = p.commit("one", p.tree([]))
    p.ref("refs/heads/main", c)
    p.ref("refs/heads/other", c)
    p.tag("v1", c, "t")
    case.oids.update(c=c)


def _h12(case: Case) -> None:
    """Empty repositories and unusual HEADs: h12a unborn, h12b detached, h12c dangling, h12d not the first of equals."""
    a = case.new("h12a")
    git(a.path, "symbolic-ref", "HEAD", "refs/heads/trunk")
    b = case.new("h12b")
    e = b.tree([])
    one = b.commit("one", e)
    b.at(1700000060)
    two = b.commit("two", e, one)
    b.ref("refs/heads/main", two)
    b.ref("refs/heads/twin", two)
    git(b.path, "update-ref", "--no-deref", "HEAD", one)
    c = case.new("h12c")
    c.at(1700000060)
    c.ref("refs/heads/main", c.commit("one", c.tree([])))
    git(c.path, "symbolic-ref", "HEAD", "refs/heads/gone")
    d = case.new("h12d")
    d.at(1700000060)
    tip = d.commit("one", d.tree([]))
    d.ref("refs/heads/zeta", tip)
    d.ref("refs/heads/alpha", tip)
    git(d.path, "symbolic-ref", "HEAD", "refs/heads/zeta")
    case.oids.update(one=one, two=two, d=tip)


def _h13(case: Case) -> None:
    """What redirects and credentials are tried on."""
    p = case.new("h13")
    p.ref("refs/heads/main", p.commit("moved", p.tree([])))


def _h14(case: Case) -> None:
    """What compressed and chunked answers are tried on."""
    p = case.new("h14")
    p.ref("refs/heads/main", p.commit("packed", p.file(b"f", b"".join(b"%d\n" % i for i in range(1, 20001)))))


def _h15(case: Case) -> None:
    """One file's history over a merge."""
    p = case.new("h15")

    def tree(a: bytes, b: bytes) -> str:
        return p.tree([("100644", b"a", p.blob(a + b"\n")), ("100644", b"b", p.blob(b + b"\n"))])

    root = p.commit("root", tree(b"1", b"1"))
    p.at(1700000010)
    side = p.commit("a-on-side", tree(b"2", b"1"), root)
    p.at(1700000020)
    main = p.commit("b-on-main", tree(b"1", b"2"), root)
    p.at(1700000030)
    merge = p.commit("merge", tree(b"2", b"2"), main, side)
    p.at(1700000040)
    p.ref("refs/heads/main", p.commit("b-again", tree(b"2", b"3"), merge))
    case.oids.update(root=root, side=side, main=main, merge=merge)


def _pairs(case: Case, p: Plumbing, trees: list[tuple[str, str]]) -> None:
    """Pairs of trees to diff, each also as a commit and its parent: branch pair0, pair1 …"""
    for i, (old, new) in enumerate(trees):
        p.at(1700000000)
        parent = p.commit(f"old {i}", old)
        p.at(1700000060)
        p.ref(f"refs/heads/pair{i}", p.commit(f"new {i}", new, parent))
    case.pairs.extend(trees)
    p.ref("refs/heads/main", git(p.path, "rev-parse", "refs/heads/pair0").decode().strip())


def _h16(case: Case) -> None:
    """Files without a final newline."""
    p = case.new("h16")
    texts = ((b"a\nb", b"a\nc"), (b"a\nb", b"a\nb\n"), (b"a\nb\n", b"a\nb"), (b"x", b"x\ny"))
    _pairs(case, p, [(p.file(b"f", old), p.file(b"f", new)) for old, new in texts])


def _h17(case: Case) -> None:
    """The rename threshold: pairs that keep 49, 50, 60 and 100 of 100 lines."""
    p = case.new("h17")

    def text(keep: int) -> bytes:
        rows = (b"line number %03d of the file\n", b"LINE NUMBER %03d OF THE FILE\n")
        return b"".join(rows[i >= keep] % i for i in range(100))

    _pairs(case, p, [(p.file(b"old", text(100)), p.file(b"new", text(k))) for k in (49, 50, 60, 100)])


def _h18(case: Case) -> None:
    """What is binary: only the first 8,000 bytes count, and only NUL."""
    p = case.new("h18")
    wide = b"\xff\xfe" + "one\ntwo\n".encode("utf-16-le")
    texts = (b"x" * 7999 + b"\0\n", b"x\n" * 4000 + b"\0\n", wide, b"\1\2\xff\n", b"")
    _pairs(case, p, [(p.file(b"f", text), p.file(b"f", b"new\n" + text)) for text in texts])


def _h19(case: Case) -> None:
    """Type and mode changes, links and gitlinks."""
    p = case.new("h19")
    text = b"target"

    def link(oid: str) -> str:
        return p.tree([("160000", b"f", oid)])

    plain = p.file(b"f", text)
    others = [p.file(b"f", text, "100755"), p.file(b"f", text, "120000"), link(SUB_A)]
    _pairs(case, p, [*((plain, other) for other in others), (link(SUB_A), link(SUB_B))])


def _h20(case: Case) -> None:
    """Branches apart, clocks wrong."""
    p = case.new("h20")
    e = p.tree([])

    def commit(message: str, time: int, *parents: str) -> str:
        p.at(time)
        return p.commit(message, e, *parents)

    a = commit("a", 1700001000)
    b = commit("b", 1700002000, a)
    c = commit("c", 1700003000, b)
    old1 = commit("old1", 1700000010, c)
    old2 = commit("old2", 1700000020, old1)
    new = commit("new", 1700004000, c)
    unrelated = commit("unrelated", 1700004000)
    p.ref("refs/heads/main", new)
    p.ref("refs/heads/old", old2)
    p.ref("refs/heads/unrelated", unrelated)
    case.oids.update(a=a, b=b, c=c, old1=old1, old2=old2, new=new, unrelated=unrelated)


def _h21(case: Case) -> None:
    """Blame: the last line, line ends, a merge."""
    p = case.new("h21")

    def commit(message: str, time: int, text: bytes, *parents: str) -> str:
        p.at(time)
        return p.commit(message, p.file(b"f", text), *parents)

    root = commit("root", 1700000000, b"1\n2\n3\n4\n5")
    left = commit("left", 1700000010, b"ONE\n2\n3\n4\n5", root)
    right = commit("right", 1700000020, b"1\n2\n3\n4\nFIVE", root)
    merge = commit("merge", 1700000030, b"ONE\n2\n3\n4\nFIVE", left, right)
    dos = commit("dos", 1700000040, b"ONE\r\n2\n3\n4\nFIVE\n", merge)
    p.ref("refs/heads/main", dos)
    case.oids.update(root=root, left=left, right=right, merge=merge, dos=dos)


def _h22(case: Case) -> None:
    """Grep: literal, case, context, last line."""
    p = case.new("h22")
    text = "a.b\naxb\nÉclair\n3\n4\nA.B hit\n7\na.b end".encode()
    rows = [
        ("100644", b"a.txt", p.blob(text)),
        ("120000", b"link", p.blob(b"a.b")),
        ("100644", b"z.bin", p.blob(b"a.b\0")),
    ]
    p.ref("refs/heads/main", p.commit("g", p.tree(rows)))


def _h23(case: Case) -> None:
    """Archive: links, exec bits, gitlinks."""
    p = case.new("h23")
    b = p.blob(b"x\n")
    rows = [
        ("100644", b"plain", b),
        ("100755", b"run", b),
        ("120000", b"link", p.blob(b"plain")),
        ("160000", b"mod", SUB_A),
    ]
    tree = p.tree(rows)
    p.at(1700000007)
    p.ref("refs/heads/main", p.commit("ar", tree))


def _h24(case: Case) -> None:
    """Nothing at all, and pieces."""
    p = case.new("h24")
    rows = [("100644", b"empty", p.blob(b"")), ("100644", b"ten", p.blob(b"0123456789"))]
    p.ref("refs/heads/main", p.commit("e", p.tree(rows)))


_BUILDERS: dict[str, Callable[[Case], None]] = {
    f"h{i:02}": build
    for i, build in enumerate(
        (
            *(_h01, _h02, _h03, _h04, _h05, _h06, _h07, _h08, _h09, _h10, _h11, _h12),
            *(_h13, _h14, _h15, _h16, _h17, _h18, _h19, _h20, _h21, _h22, _h23, _h24),
        ),
        1,
    )
}


class Cases(Mapping[str, Case]):
    """name -> case, each made when it is first asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._made: dict[str, Case] = {}

    def __getitem__(self, name: str) -> Case:
        if name not in self._made:
            build = _BUILDERS[name]
            case = Case(self.root / name)
            build(case)
            for repo, path in case.repos.items():
                if repo in _MAIN:
                    found = git(path, "rev-parse", "refs/heads/main").decode().strip()
                    assert found.startswith(_MAIN[repo]), f"the input {repo} has drifted: main is {found}"
            self._made[name] = case
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_BUILDERS)

    def __len__(self) -> int:
        return len(_BUILDERS)


# Where `main` must be, so that an input cannot drift unnoticed.
_MAIN: dict[str, str] = {
    "h01": "a580845502f3", "h02": "1cd5097964b8", "h03": "eebab59fae2e", "h04": "5436d16c5def", "h05": "ea1311a157be",
    "h06": "af5cb471b633", "h07": "070824a24d64", "h08": "0ac591df51ea", "h10": "8aa017a9c5ec", "h11": "e1b7a8820593",
    "h12b": "ea1311a157be", "h12c": "cc02ab0097fe", "h13": "7630e6b0a1ab", "h14": "cb8bf27ba586", "h15": "6bd069fc3dcf",
    "h20": "b561015f90bc", "h21": "acd8b6fe454f", "h22": "b5385649aafe", "h23": "9f4efbcffbe1", "h24": "1f9e745ea8b2",
}  # fmt: skip
