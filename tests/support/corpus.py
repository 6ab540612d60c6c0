# ruff: noqa: E501
"""Odd names, texts and commits: what the generated repositories are filled with, and property tests draw from."""

from __future__ import annotations

import random


def lines(seed: int, count: int, width: int = 6) -> bytes:
    """Text of pronounceable nonsense, so that lines differ and words repeat."""
    rng = random.Random(seed)
    words = [a + b + c for a in ("ba", "de", "fi", "go", "lu") for b in ("r", "n", "s") for c in ("um", "et", "ix")]
    return "".join(" ".join(rng.choice(words) for _ in range(width)) + "\n" for _ in range(count)).encode()


ODD_NAMES: tuple[bytes, ...] = (
    b"latin\xe9", b"caf\xc3\xa9", b"cafe\xcc\x81", b"new\nline", b"tab\there", b'quo"te', b"back\\slash", b"a b.txt",
    b"50%.txt", b"c#.txt", b"a+b.txt", b"\xc3\xbc.txt", b"%2F.txt", b"q&a=1.txt", b"star*", b"what?", b"[class]", b"{brace}",
    b":(glob)x", b":colon", b"-dash", b"!bang", b"~tilde", b"^caret", b"@", b" leading", b"trailing ", b"dot.", b".hidden",
    b"\xff\xfe", b"\x01\x7f", b"cr\rhere", b"\xe6\x97\xa5\xe6\x9c\xac", b"\xed\xa0\x80surrogate", b"UPPER", b"upper",
    b"con", b"$dollar", b"'single'", b"`tick`", b"a;b", b"a|b", b"x" * 255,
)  # fmt: skip

TEXTS: dict[bytes, bytes] = {
    b"crlf.txt": b"one\r\ntwo words\r\nthree\r\n",
    b"mixed.txt": b"unix\ndos\r\nlone\rcr\nend\r",
    b"noeol.txt": b"first\nlast without newline",
    b"empty.txt": b"",
    b"newlines.txt": b"\n\n\n",
    b"one-newline.txt": b"\n",
    b"blank-ends.txt": b"\n\ntext\n\n\n",
    b"bom.txt": b"\xef\xbb\xbfwith a mark\nsecond\n",
    b"utf16.txt": "one\ntwo\n".encode("utf-16"),
    b"latin1.txt": b"caf\xe9 au lait\nna\xefve word\nplain cafe\n",
    b"invalid.txt": b"ok\n\xff\xfe one bad\nmid\xc3dle word\n\xed\xa0\x80 surrogate\n\xc0\xaf overlong\nend \xf0\x9f\x98\n",
    b"control.bin": b"\x01\x02\xff\nword\n",
    b"nul7999.bin": b"x" * 7999 + b"\0\nword\n",
    b"nul8000.txt": b"x\n" * 4000 + b"\0\nword after nul\n",
    b"early.bin": b"word\0word\nword\n",
    b"long.txt": b"start " + b"word " * 40000 + b"end\nshort word\n" + b"z" * 100000,
    b"many.txt": b"aa aaa a aaaa\nabababab\nword word,word;word_word wordword word\n" * 3,
    b"words.txt": b"foo\nfoobar\nbar foo\nfoo_bar\nfoo-bar\nxfoo foo\nfoofoo foo\n.foo.\nfoo foo\n foo1 1foo\n_foo foo_\nfoo\xc3\xa9\n\xc3\xa9foo\nfoo\xff\n",
    b"folds.txt": "Éclair\néclair\nECLAIR\nstraße STRASSE STRAẞE\nİstanbul ıstanbul istanbul ISTANBUL\nσίγμα ς Σ ΣΊΓΜΑΣ\nKelvin K k\nlong ſ s S\nÅngström Å å\nǅ ǆ Ǆ\nмир МИР\nµ μ Μ\nDŽ\nﬁ fi\n".encode(),
    b"code.c": b'#include <stdio.h>\n\nint main(void)\n{\n\tint a[3] = {1, 2, 3};\n\tprintf("a.b %d\\n", a[0]); /* TODO: fix */\n\treturn a.b(1) + axb(2);\n}\n',
    b"code.py": b"import os\n\n\nclass Error(Exception):\n    pass\n\n\nclass BadError(Error):\n    def __init__(self):\n        raise ValueError('x') from KeyError(\"y\")\n",
    b"meta.txt": b"a.b\na*b\na+b\na?b\n[ab]\n(a|b)\n{1,2}\n^a$\n\\n\n$HOME\na/b\na\\b\n-e\n--\n#hash\n",
    b"gitattributes-like": b"*.c diff=cpp\n",
    b"context.txt": b"".join(
        b"%d%s\n" % (i, b" hit" if i in (1, 4, 5, 9, 20, 21, 22, 30) else b"") for i in range(1, 31)
    ),
    b"tabs.txt": b"\tindented\n\t\ttwice indented\n    spaces\ntrailing \t\n",
}

ODD_COMMITS: tuple[tuple[bytes, bytes], ...] = (
    # (headers after tree and parents, message)
    (b"author Andr\xe9 <a@example.org> 1700000000 +0000\ncommitter Andr\xe9 <a@example.org> 1700000000 +0000\nencoding ISO-8859-1\n", b"caf\xe9\n"),
    (b"author A <a@example.org> 1700000060 +0000\ncommitter A <a@example.org> 1700000060 +0000\n", b"bad \xff byte\n"),
    (b"author A <a@example.org> 1700000120 +0000\ncommitter A <a@example.org> 1700000120 +0000\nencoding no-such-charset\n", b"unknown \xe9\n"),
    (b"author A <a@example.org> 1700000180 +0000\ncommitter A <a@example.org> 1700000180 +0000\nencoding Shift_JIS\n", "日本語\n".encode("shift_jis")),
    (b"author  <> 1700000240 +0000\ncommitter <a@example.org> 1700000240 -0000\n", b"no name\n"),
    (b"author A <a@example.org> 1700000300 +051800\ncommitter A <a@example.org> 1700000300 -1234\n", b"odd zones\n"),
    (b"author A <a@example.org> 0 +0000\ncommitter A <a@example.org> 0 +0000\n", b"the epoch\n"),
    (b"author A <a@example.org> 4102444800 +1400\ncommitter A <a@example.org> 99999999999 +0000\n", b"far in the future\n"),
    (b"author A <a@example.org> 18446744073709551617 +0000\ncommitter A <a@example.org> 1700000360 +0000\n", b"time beyond 64 bits\n"),
    (b"author A <a@example.org>\ncommitter A <a@example.org>\n", b"no date\n"),
    (b"author A <a@example.org> yesterday\ncommitter A <a@example.org> -5 +0000\n", b"no number\n"),
    (b"author A a@example.org 1700000420 +0000\ncommitter A <a@b> c> 1700000420 +0000\n", b"odd brackets\n"),
    (b"author A < a@example.org > 1700000480 +0000\ncommitter  A  <a@example.org>  1700000480  +0000\n", b"odd spaces\n"),
    (b"author \"A, 'B'\" <a@example.org> 1700000540 +0000\ncommitter A.B. <a@example.org> 1700000540 +0000\n", b"\n\n  leading blank lines\nand two lines\n\nbody\n\n\n"),
    (b"author A <a@example.org> 1700000600 +0000\ncommitter A <a@example.org> 1700000600 +0000\n", b""),
    (b"author A <a@example.org> 1700000660 +0000\ncommitter A <a@example.org> 1700000660 +0000\n", b"no newline at the end"),
    (b"author A <a@example.org> 1700000720 +0000\ncommitter A <a@example.org> 1700000720 +0000\n", b"crlf\r\n\r\nbody\r\n"),
    (b"author A <a@example.org> 1700000780 +0000\ncommitter A <a@example.org> 1700000780 +0000\n"
     b"gpgsig -----BEGIN PGP SIGNATURE-----\n \n tree 123\n -----END PGP SIGNATURE-----\nunknown field\n more of it\nencoding UTF-8\n", b"signed\n\nbody\n"),
    (b"author A <a@example.org> 1700000840 +0000\ncommitter A <a@example.org> 1700000840 +0000\n"
     b"mergetag object abababababababababababababababababababab\n type commit\n tag v1\n tagger A <a@example.org> 1 +0000\n \n parent of nothing\n encoding of nothing\n", b"a tag within\n"),
    (b"author A <a@example.org> 1700000900 +0000\ncommitter A <a@example.org> 1700000900 +0000\n", "überlänge ✓ \u202e\n".encode()),
    (b"author A <a@example.org> 1700000960 +0000\ncommitter A <a@example.org> 1700000960 +0000\n", b"subject over\ntwo lines\n\nbody\n"),
    (b"author A <a@example.org> 1700001020 +0000\ncommitter A <a@example.org> 1700001020 +0000\n", b"last\n"),
)  # fmt: skip
