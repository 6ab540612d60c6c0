"""Repositories that hold every odd thing git allows, made by the real git, the same bytes each time.

`GENERATORS` names them; `generate(root)` makes all, `Repositories(root)` each when it is first asked for.
All are bare and packed, and have every ref in packed-refs but for a few loose ones in `refs`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.support.corpus import ODD_COMMITS, ODD_NAMES, TEXTS, lines
from tests.support.git import Plumbing, git, init
from tests.support.script import File, Script, Tree

Files = dict[bytes, File | bytes]

T0 = 1700000000
LINK = "120000"
EXEC = "100755"
GITLINK = "160000"
SUB_A = b"ab" * 20
SUB_B = b"cd" * 20


def _pack(path: Path) -> None:
    git(path, "repack", "-a", "-d", "-q")
    git(path, "prune-packed", "-q")
    git(path, "pack-refs", "--all")


def _linear(path: Path) -> None:
    """Thirty commits in a line: files come, change and go."""
    script = Script()
    tree: Files = {b"README": b"readme\n", b"src/main.py": lines(1, 40)}
    parents: tuple[int, ...] = ()
    for i in range(30):
        name = b"src/part%d/file%d.txt" % (i % 4, i % 7)
        tree[name] = lines(i, 20 + i)
        tree[b"src/main.py"] = lines(1, 40) + b"step %d\n" % i
        if i % 5 == 4:
            del tree[name]
        parents = (script.commit(tree, parents, b"step %d\n\nbody of %d\n" % (i, i)),)
        if i % 10 == 0:
            script.ref(f"refs/tags/step-{i}", parents[0])
    script.run(path)


def _merges(path: Path) -> None:
    """Two-way merges, an octopus, a criss-cross, an evil merge, merges equal to one side, unrelated roots."""
    s = Script()
    base: Files = {b"a": b"a\n", b"b": b"b\n", b"d/x": lines(2, 30), b"d/y": b"y\n"}
    root = s.commit(base, message=b"root\n")
    left = s.commit({**base, b"a": b"a2\n"}, (root,), b"left changes a\n")
    right = s.commit({**base, b"b": b"b2\n"}, (root,), b"right changes b\n")
    both: Files = {**base, b"a": b"a2\n", b"b": b"b2\n"}
    merge = s.commit(both, (left, right), b"merge\n")
    arms = [s.commit({**both, b"arm%d" % i: b"%d\n" % i}, (merge,), b"arm %d\n" % i) for i in range(4)]
    grown: Files = {**both, **{b"arm%d" % i: b"%d\n" % i for i in range(4)}}
    octopus = s.commit(grown, arms, b"octopus\n")
    one = s.commit({**grown, b"a": b"one\n"}, (octopus,), b"one\n")
    two = s.commit({**grown, b"b": b"two\n"}, (octopus,), b"two\n")
    crossed: Files = {**grown, b"a": b"one\n", b"b": b"two\n"}
    cross1 = s.commit(crossed, (one, two), b"cross one\n")
    cross2 = s.commit(crossed, (two, one), b"cross two\n")
    tip1 = s.commit({**crossed, b"d/y": b"left\n"}, (cross1,), b"after cross one\n")
    tip2 = s.commit({**crossed, b"d/x": lines(3, 30)}, (cross2,), b"after cross two\n")
    evil: Files = {
        **crossed,
        b"d/y": b"neither\n",
        b"d/x": lines(3, 30),
        b"evil": b"new in the merge\n",
    }
    evil_merge = s.commit(evil, (tip1, tip2), b"evil merge\n")
    side = s.commit({**crossed, b"a": b"thrown away\n"}, (cross1,), b"to be thrown away\n")
    ours = s.commit(evil, (evil_merge, side), b"keep ours\n")
    island = s.commit({b"island": b"1\n"}, (), b"second root\n", ref="refs/heads/island")
    island2 = s.commit({b"island": b"2\n"}, (island,), b"island grows\n", ref="refs/heads/island")
    joined = s.commit({**evil, b"island": b"2\n"}, (ours, island2), b"join the island\n")
    reverted = s.commit({**evil, b"island": b"2\n", b"a": b"a\n"}, (joined,), b"back to the old a\n")
    for name, mark in (("cross1", tip1), ("cross2", tip2), ("side", side), ("octopus", octopus)):
        s.ref(f"refs/heads/{name}", mark)
    s.ref("refs/heads/alone", s.commit({b"z": b"z\n"}, (), b"unrelated\n", ref="refs/heads/alone"))
    s.ref("refs/heads/main", reverted)
    s.run(path)


def _percent(keep: int, tag: bytes = b"") -> bytes:
    """A hundred lines of 28 bytes of which the first `keep` are common to all."""
    rows = (b"line number %03d of the file\n" if i < keep else b"LINE NUMBER %03d OF THE FILE\n" for i in range(100))
    return b"".join(tag + row % i for i, row in enumerate(rows))


def _renames(path: Path) -> None:
    """Renames at every similarity about the threshold, exact ones, swaps, copies, moved directories, crowds."""
    s = Script()
    keeps = (0, 25, 45, 48, 49, 50, 51, 52, 55, 60, 70, 75, 80, 90, 95, 99, 100)
    old: Files = {
        b"stays": b"stays\n",
        b"empty-old": b"",
        b"swap1": lines(4, 50),
        b"swap2": lines(5, 50),
    }
    new: Files = {
        b"stays": b"stays\n",
        b"empty-new": b"",
        b"swap2": lines(4, 50),
        b"swap1": lines(5, 50),
    }
    for keep in keeps:
        old[b"old%03d" % keep] = _percent(100, b"%d " % keep)
        new[b"new%03d" % keep] = _percent(keep, b"%d " % keep)
    for i in range(5):
        old[b"move/dir/f%d.txt" % i] = lines(10 + i, 30)
        new[b"moved/deep/dir/f%d.txt" % i] = lines(10 + i, 30) + (b"a line more\n" if i % 2 else b"")
    old[b"lib/base.c"] = lines(20, 60)
    new[b"other/base.c"] = lines(20, 55) + lines(21, 5)
    new[b"other/decoy.c"] = lines(20, 58)
    old[b"link"] = File(b"stays", LINK)
    new[b"link-moved"] = File(b"stays", LINK)
    old[b"tool"] = File(lines(22, 20))
    new[b"tool-exec"] = File(lines(22, 20), EXEC)
    old[b"noeol"] = lines(23, 20)[:-1]
    new[b"noeol-moved"] = lines(23, 20)
    old[b"crlf"] = lines(24, 20)
    new[b"crlf-moved"] = lines(24, 20).replace(b"\n", b"\r\n")
    old[b"binary"] = b"\0" + random.Random(1).randbytes(5000)
    new[b"binary-moved"] = old[b"binary"][:4000] + random.Random(2).randbytes(900)  # type: ignore[index]
    twin = lines(25, 30)
    old.update({b"twins/a": twin, b"twins/b": twin, b"twins/c": twin})
    new.update({b"pairs/b": twin, b"pairs/x": twin, b"pairs/y": twin + b"y\n", b"pairs/z": twin + b"z\n"})
    first = s.commit(old, message=b"before\n")
    second = s.commit(new, (first,), b"after\n")
    copied: Tree = {**new, b"copy-of-stays": b"stays\n", b"copy-of-base": new[b"other/base.c"]}
    third = s.commit(copied, (second,), b"copies\n")
    walk = {b"walk0": lines(30, 80)}
    parent = s.commit({**copied, **walk}, (third,), b"a file sets out\n")
    for i in range(1, 8):
        parent = s.commit({**copied, b"walk%d" % i: lines(30, 80) + lines(31, i)}, (parent,), b"walk %d\n" % i)
    rivals = {b"crowd/%02d" % i: lines(40, 40) + b"number %d\n" % i for i in range(12)}
    parent = s.commit({**copied, **rivals}, (parent,), b"a crowd\n")
    moved = {b"crowd2/%02d" % (11 - i): lines(40, 39) + b"number %d\n" % i for i in range(12)}
    s.commit({**copied, **moved}, (parent,), b"the crowd moves\n")
    s.run(path)


def _kinds(path: Path) -> None:
    """Modes, links, gitlinks, files and directories turn into one another."""
    s = Script()
    body = lines(50, 12)
    steps: list[Files] = [
        {b"f": body, b"d/in": b"1\n", b"x": b"x\n"},
        {b"f": File(body, EXEC), b"d/in": b"1\n", b"x": b"x\n"},
        {b"f": File(b"x", LINK), b"d/in": b"1\n", b"x": b"x\n"},
        {b"f": File(SUB_A, GITLINK), b"d/in": b"1\n", b"x": b"x\n"},
        {b"f": File(SUB_B, GITLINK), b"d/in": b"1\n", b"x": b"x\n"},
        {b"f/deep/er": body, b"d": b"a file now\n", b"x": b"x\n"},
        {b"f": body, b"d/in": b"1\n", b"d/more": b"2\n", b"x": b"x\n"},
        {b"f": body, b"d": File(b"x", LINK), b"x": b"x\n"},
        {b"f": body, b"d/in": File(b"1\n", EXEC), b"x": b""},
        {b"f": b"", b"d": File(SUB_A, GITLINK), b"x": b"x\n"},
        {b"f": b"\0binary now\n", b"d/in": b"1\n", b"x": File(b"", EXEC)},
        {b"f": b"\0binary still\n", b"d/in": b"1\n", b"x.c": b"", b"x-a": b"", b"x/y": b""},
        {},
        {b"f": body},
    ]
    parents: tuple[int, ...] = ()
    for i, tree in enumerate(steps):
        parents = (s.commit(tree, parents, b"kind %d\n" % i),)
    s.run(path)


def _submodules(path: Path) -> None:
    """Gitlinks with and without a line in .gitmodules, which changes and breaks on the way."""
    s = Script()
    text = (
        b'[submodule "lib"]\n\tpath = vendor/lib\n\turl = https://example.org/lib.git\n'
        b'# a comment\n[submodule "quo\\"ted \\\\ name"]\n\tpath = "vendor/with space" ; trailing\n'
        b"\turl = ../relative.git\n\tbranch = main\n[core]\n\tbare = true\n"
        b'[Submodule "later"]\n\tPath = later\n\tURL = git@example.org:later.git\n\turl = ssh://example.org/later\n'
    )
    links: Files = {
        b"vendor/lib": File(SUB_A, GITLINK),
        b"vendor/with space": File(SUB_B, GITLINK),
        b"later": File(SUB_A, GITLINK),
        b"unnamed": File(SUB_B, GITLINK),
        b"plain": b"plain\n",
    }
    a = s.commit({b".gitmodules": text, **links}, message=b"submodules\n")
    b = s.commit({b".gitmodules": text, **links, b"vendor/lib": File(SUB_B, GITLINK)}, (a,), b"move one on\n")
    c = s.commit({b".gitmodules": b'[submodule "x\n\x00broken', **links}, (b,), b"broken .gitmodules\n")
    d = s.commit({b".gitmodules": File(b"plain", LINK), **links}, (c,), b"a link for .gitmodules\n")
    s.ref("refs/heads/no-file", s.commit(links, (d,), b"none at all\n", ref="refs/heads/no-file"))
    s.ref("refs/heads/broken", c)
    s.ref("refs/heads/link", d)
    s.ref("refs/heads/main", b)
    s.run(path)


def _names(path: Path) -> None:
    """Names are bytes, and directories sort as if they ended in a slash."""
    s = Script()
    flat: Files = {name: b"in %s\n" % name.replace(b"\n", b" ") for name in ODD_NAMES}
    order: Files = dict.fromkeys((b"lib-a", b"lib.c", b"lib/in", b"lib0", b"foo", b"foo.txt", b"lib/"), b"x\n")
    del order[b"lib/"]
    deep: Files = {b"dir \xe9/" + name: b"deep\n" for name in ODD_NAMES[:8]}
    deep.update({b"new\nline dir/tab\tdir/" + name: b"deeper\n" for name in ODD_NAMES[:8]})
    a = s.commit({**flat, **order}, message=b"names\n")
    b = s.commit({**flat, **order, **deep}, (a,), b"names below names\n")
    c = s.commit(
        {**{k: v + b"more\n" for k, v in flat.items() if isinstance(v, bytes)}, **order, **deep}, (b,), b"change all\n"
    )
    marks = {"feature/one": a, "fix/#42": b, "100%": c, "a+b": a, "日本": b, "x=1&y": c, "main": c, "Zebra": a}
    for name, mark in marks.items():
        s.ref(f"refs/heads/{name}", mark)
    s.run(path)


def _texts(path: Path) -> None:
    """What files hold: line ends, encodings, binaries at the edge of the rule, long lines, letters that fold."""
    s = Script()
    tree: Files = dict(TEXTS)
    tree[b"link"] = File(b"word foo a.b", LINK)
    tree[b"exec.sh"] = File(b"#!/bin/sh\necho word foo\n", EXEC)
    tree[b"module"] = File(SUB_A, GITLINK)
    for i in range(40):
        tree[b"pkg/m%d/f%d.txt" % (i % 5, i)] = lines(100 + i, 60)
    a = s.commit(tree, message=b"texts\n")
    changed: Files = {}
    for name, data in TEXTS.items():
        changed[name] = data.replace(b"word", b"WORD").replace(b"\r\n", b"\n") + b"appended\n"
    b = s.commit({**tree, **changed}, (a,), b"change every text\n")
    ends: Files = {k: v[:-1] if v.endswith(b"\n") else v + b"\n" for k, v in TEXTS.items()}
    c = s.commit({**tree, **ends}, (b,), b"only the last newline\n")
    s.ref("refs/heads/changed", b)
    s.ref("refs/heads/ends", c)
    s.ref("refs/heads/main", s.commit(tree, (c,), b"back again\n"))
    s.run(path)


def _big(path: Path) -> None:
    """Files of megabytes: text that deltas well, noise that does not, one beyond git's streaming size."""
    s = Script()
    text = lines(60, 70000)
    noise = b"\0" + random.Random(3).randbytes(3_000_000)
    a = s.commit({b"text": text, b"noise": noise, b"small": b"1\n"}, message=b"big\n")
    middle = len(text) // 2
    edited = text[:middle] + b"an inserted line\n" + text[middle:]
    b = s.commit({b"text": edited, b"noise": noise + b"tail", b"small": b"1\n"}, (a,), b"edit\n")
    s.commit({b"text": edited + b"end\n", b"noise": noise[1:], b"small": b"2\n"}, (b,), b"edit again\n")
    s.run(path)


def _empty(path: Path) -> None:
    """No object and no ref; HEAD names a branch that is not born."""


def _empty_trees(path: Path) -> None:
    """Commits of the empty tree, and a tree that holds one (git allows what it does not write)."""
    p = Plumbing(path)
    empty = p.tree([])
    a = p.commit("nothing", empty)
    p.at(T0 + 60)
    b = p.commit("nothing below", p.tree([("040000", b"hollow", empty), ("100644", b"f", p.blob(b""))]), a)
    p.at(T0 + 120)
    p.ref("refs/heads/main", p.commit("nothing again", empty, b))
    p.ref("refs/heads/hollow", b)


def _detached(path: Path) -> None:
    """HEAD is a commit of its own, though two branches sit beside."""
    p = Plumbing(path)
    a = p.commit("one", p.file(b"f", b"1\n"))
    p.at(T0 + 60)
    b = p.commit("two", p.file(b"f", b"2\n"), a)
    p.ref("refs/heads/main", b)
    p.ref("refs/heads/twin", b)
    git(path, "update-ref", "--no-deref", "HEAD", a)


def _dangling(path: Path) -> None:
    """HEAD names a branch that is gone, while another lives."""
    p = Plumbing(path)
    p.ref("refs/heads/main", p.commit("one", p.file(b"f", b"1\n")))
    git(path, "symbolic-ref", "HEAD", "refs/heads/gone")


def _tags(path: Path) -> None:
    """Tags on commits, trees, blobs and tags; without tagger; in odd encodings; signed; beside branches of one name."""
    p = Plumbing(path)
    blob = p.blob(b"hi\n")
    tree = p.tree([("100644", b"f", blob), ("040000", b"d", p.file(b"g", b"g\n"))])
    a = p.commit("one", tree)
    p.at(T0 + 60)
    b = p.commit("two", tree, a)
    p.ref("refs/heads/main", b)
    p.ref("refs/heads/v1", b)
    p.ref("refs/tags/v1", a)
    p.ref("refs/tags/light/blob", blob)
    p.ref("refs/tags/light/tree", tree)
    p.tag("annotated", b, "subject\n\nbody of the tag")
    p.tag("nested", "annotated", "n")
    p.tag("nested2", "nested", "n2")
    p.tag("ontree", tree, "x")
    p.tag("onblob", blob, "x")
    old = p.raw("tag", f"object {a}\ntype commit\ntag old\n\nno tagger\n".encode())
    p.ref("refs/tags/old", old)
    who = b"tagger Andr\xe9 <a@example.org> 1700000000 +0200\n"
    p.ref("refs/tags/latin", p.raw("tag", b"object %s\ntype commit\ntag latin\n%s\ncaf\xe9\n" % (a.encode(), who)))
    signature = b"-----BEGIN PGP SIGNATURE-----\n\nabc\n-----END PGP SIGNATURE-----\n"
    head = b"object %s\ntype commit\ntag signed\ntagger A <a@example.org> 1700000000 +0000\n\nsigned\n" % b.encode()
    p.ref("refs/tags/signed", p.raw("tag", head + signature))
    p.ref("refs/tags/empty-message", p.raw("tag", head.replace(b"signed", b"bare").removesuffix(b"bare\n")))
    p.ref("refs/notes/commits", p.commit("notes", p.file(b.encode(), b"a note\n")))
    git(path, "symbolic-ref", "refs/heads/alias", "refs/heads/main")
    git(path, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    p.ref("refs/remotes/origin/main", a)


def _idents(path: Path) -> None:
    """Commits whose names, dates, encodings and headers are odd; every one is on main."""
    p = Plumbing(path)
    parent = ""
    for i, (headers, message) in enumerate(ODD_COMMITS):
        tree = p.file(b"f", b"%d\n" % i)
        head = b"tree %s\n" % tree.encode() + (b"parent %s\n" % parent.encode() if parent else b"")
        parent = p.raw("commit", head + headers + b"\n" + message)
    p.ref("refs/heads/main", parent)


def _clocks(path: Path) -> None:
    """Clocks that run backwards, stand still or lie, on branches that part and join."""
    s = Script()
    rng = random.Random(4)
    tips: list[int] = [s.commit({b"f0": b"0\n"}, at=T0)]
    trees: dict[int, Files] = {tips[0]: {b"f0": b"0\n"}}
    for i in range(1, 120):
        count = 2 if i % 6 == 5 and len(tips) > 1 else 3 if i % 29 == 28 and len(tips) > 2 else 1
        parents = rng.sample(tips, count)
        tree: Files = {}
        for parent in reversed(parents):
            tree.update(trees[parent])
        if count == 1 or i % 2:
            tree[b"f%d" % rng.randrange(6)] = b"%d\n" % i
        when = (T0 + i * 60, T0 + rng.randrange(9000), T0, T0 - i * 1000, T0 + 60 * (i // 4))[rng.randrange(5)]
        mark = s.commit(tree, parents, at=when, authored=T0 + rng.randrange(9000))
        trees[mark] = tree
        if count > 1 or rng.random() < 0.7:
            tips = [t for t in tips if t not in parents]
        tips = [*tips, mark][-6:]
    for i, tip in enumerate(tips):
        s.ref(f"refs/heads/tip{i}", tip)
    s.ref("refs/heads/main", tips[-1])
    s.run(path)


def _history(path: Path) -> None:
    """A few hundred commits as a team makes them: topics, merges, reverts, directories; times mostly in order."""
    s = Script()
    rng = random.Random(5)
    tree: Files = {b"src/d%d/f%d.c" % (i % 4, i): lines(200 + i, 30) for i in range(16)}
    main = s.commit(tree, message=b"import\n")
    trees = {main: tree}

    def edit(parent: int, ref: str, note: bytes) -> int:
        new = dict(trees[parent])
        name = rng.choice(sorted(new))
        roll = rng.random()
        old = new[name]
        assert isinstance(old, bytes)
        if roll < 0.7:
            rows = old.splitlines(keepends=True)
            rows[rng.randrange(len(rows))] = lines(rng.randrange(10**6), 1)
            new[name] = b"".join(rows)
        elif roll < 0.8:
            new[b"src/d%d/n%d.c" % (rng.randrange(6), rng.randrange(1000))] = lines(rng.randrange(10**6), 20)
        elif roll < 0.9 and len(new) > 8:
            del new[name]
            new[b"moved/" + name.rsplit(b"/", 1)[1]] = old + b"moved\n"
        else:
            new[name] = old + b"appended\n"
        author = (b"Ada Example <ada@example.org>", b"Bob <bob@example.org>", "Zoë <zoe@example.org>".encode())
        mark = s.commit(new, (parent,), note, ref=ref, author=author[rng.randrange(3)])
        trees[mark] = new
        return mark

    for i in range(40):
        topic = main
        for j in range(rng.randrange(1, 5)):
            topic = edit(topic, f"refs/heads/topic{i}", b"topic %d, step %d\n\nFixes: #%d\n" % (i, j, i))
        for j in range(rng.randrange(3)):
            main = edit(main, "refs/heads/main", b"main %d.%d\n" % (i, j))
        first = trees[main]
        joined = {**trees[topic], **first} if rng.random() < 0.8 else dict(first)
        mark = s.commit(joined, (main, topic), b"Merge topic %d\n" % i)
        trees[mark] = joined
        main = mark
        if i % 10 == 9:
            s.ref(f"refs/tags/v0.{i // 10}", main)
    s.ref("refs/heads/main", main)
    s.run(path)


def _refs(path: Path) -> None:
    """Thousands of refs: packed, loose, nested, of every kind of name."""
    s = Script()
    marks = []
    parents: tuple[int, ...] = ()
    for i in range(20):
        parents = (s.commit({b"f": b"%d\n" % i}, parents),)
        marks.append(parents[0])
    oids = s.run(path)
    rows = []
    for i in range(1500):
        oid = oids[marks[i % 20]]
        rows.append(f"create refs/heads/team{i % 7}/user{i % 31}/branch-{i}\0{oid}\0")
        if i % 3 == 0:
            rows.append(f"create refs/tags/v{i // 100}.{i // 10 % 10}.{i % 10}\0{oid}\0")
        if i % 5 == 0:
            rows.append(f"create refs/pull/{i}/head\0{oid}\0")
    git(path, "update-ref", "-z", "--stdin", stdin="".join(rows).encode())
    git(path, "pack-refs", "--all")
    loose = {
        "refs/heads/main": marks[-1],
        "refs/heads/Main": marks[0],
        "refs/heads/main-2": marks[1],
        "refs/heads/ma": marks[2],
    }
    for name, mark in loose.items():
        git(path, "update-ref", name, oids[mark])
    git(path, "update-ref", "refs/heads/team0/user0/branch-0", oids[marks[5]])


def _deep(path: Path) -> None:
    """A path of a hundred directories, beside shallow ones."""
    s = Script()
    deep = b"/".join(b"d%02d" % i for i in range(100))
    chain: Files = {b"/".join(b"d%02d" % i for i in range(n)) + b"/leaf": b"%d\n" % n for n in range(1, 100, 9)}
    a = s.commit({deep + b"/bottom": b"bottom\n", **chain, b"top": b"top\n"}, message=b"deep\n")
    s.commit({deep + b"/bottom": b"changed\n", **chain, b"top": b"top\n"}, (a,), b"change the bottom\n")
    s.run(path)


def _wide(path: Path) -> None:
    """A directory of three thousand entries, files and directories mixed, of which few change."""
    s = Script()
    tree: Files = {b"wide/f%04d" % i: b"%d\n" % (i % 50) for i in range(3000)}
    tree.update({b"wide/f%04d.d/in" % i: b"%d\n" % i for i in range(0, 3000, 10)})
    tree[b"other"] = b"other\n"
    parents: tuple[int, ...] = (s.commit(tree, message=b"wide\n"),)
    for i in range(5):
        tree[b"wide/f%04d" % (i * 599)] = b"changed %d\n" % i
        tree[b"wide/new%d" % i] = b"new\n"
        del tree[b"wide/f%04d" % (i * 7 + 1)]
        parents = (s.commit(tree, parents, b"change %d\n" % i),)
    s.run(path)


def _packs(path: Path) -> None:
    """Several packs that share objects, long delta chains, and loose objects on top."""
    s = Script()
    text = lines(70, 400)
    parents: tuple[int, ...] = ()
    for i in range(60):
        rows = text.splitlines(keepends=True)
        rows[(i * 37) % 400] = b"revision %d\n" % i
        text = b"".join(rows)
        parents = (s.commit({b"text": text, b"n/%02d" % (i % 9): b"%d\n" % i}, parents, b"revision %d\n" % i),)
        if i in (19, 39):
            s.ref(f"refs/tags/r{i}", parents[0])
    s.run(path)
    git(path, "repack", "-a", "-d", "-f", "-q", "--depth=50", "--window=20")
    for tag in ("r19", "r39"):
        oids = git(path, "rev-list", "--objects", tag).split(b"\n")
        wanted = b"\n".join(row.split(b" ")[0] for row in oids if row)
        git(path, "pack-objects", "-q", "objects/pack/pack", stdin=wanted)
    git(path, "pack-refs", "--all")
    p = Plumbing(path)
    p.at(T0 + 9999)
    tip = git(path, "rev-parse", "main").decode().strip()
    p.ref("refs/heads/main", p.commit("loose", p.file(b"loose", b"loose\n"), tip))


GENERATORS: dict[str, Callable[[Path], None]] = {
    "linear": _linear,
    "merges": _merges,
    "renames": _renames,
    "kinds": _kinds,
    "submodules": _submodules,
    "names": _names,
    "texts": _texts,
    "big": _big,
    "empty": _empty,
    "empty-trees": _empty_trees,
    "detached": _detached,
    "dangling": _dangling,
    "tags": _tags,
    "idents": _idents,
    "clocks": _clocks,
    "history": _history,
    "refs": _refs,
    "deep": _deep,
    "wide": _wide,
    "packs": _packs,
}
NAMES: tuple[str, ...] = tuple(GENERATORS)
# Those whose HEAD is a commit: everything that reads a revision can be asked of them without one.
WITH_HEAD: tuple[str, ...] = tuple(name for name in NAMES if name not in ("empty", "dangling"))
# These keep what they made as they made it: loose objects and refs, several packs.
_LOOSE = ("refs", "packs")


def make(root: Path, name: str) -> Path:
    """Make one of them below `root`; its path."""
    path = init(root / f"{name}.git")
    GENERATORS[name](path)
    if name not in _LOOSE:
        _pack(path)
    return path


def generate(root: Path) -> dict[str, Path]:
    """Make all of them below `root`: name -> bare repository."""
    return {name: make(root, name) for name in NAMES}


class Repositories(Mapping[str, Path]):
    """The same, each made when it is first asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._made: dict[str, Path] = {}

    def __getitem__(self, name: str) -> Path:
        if name not in self._made:
            if name not in GENERATORS:
                raise KeyError(name)
            self._made[name] = make(self.root, name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)
