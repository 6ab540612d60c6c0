"""The page of the benchmarks: sections that replace their own, and the picture drawn from them."""

from __future__ import annotations

from pathlib import Path

from bench import page, plot
from bench.report import Part, Row


def section(key: str, body: str, missed: tuple[str, ...] = ()) -> page.Section:
    return page.Section(key, f"About {key}", f"`make {key}`", ["- a machine"], missed, body)


def table(*rows: Row) -> str:
    return Part("A table", "How it was measured.", list(rows)).text()


def test_each_command_replaces_its_own_section_only(tmp_path: Path) -> None:
    file = tmp_path / "RESULTS.md"
    page.write(file, section("big", "first big"))
    page.write(file, section("reads", "first reads", ("a row",)))
    page.write(file, section("big", "second big"))
    text = file.read_text()
    assert "first big" not in text
    assert text.index("first reads") < text.index("second big")
    assert "- a row" in text
    again = page.Section("reads", "About reads", "`make reads`", ["- a machine"], ("a row",), "first reads")
    page.write(file, again)
    assert file.read_text() == text


def test_a_page_of_another_form_is_begun_anew(tmp_path: Path) -> None:
    file = tmp_path / "RESULTS.md"
    file.write_text("# Something else\n")
    page.write(file, section("load", "loads"))
    assert "Something else" not in file.read_text()
    assert "loads" in file.read_text()


def test_bars_say_the_ratio_and_shorter_is_better() -> None:
    text = "### repo: 3 objects\n" + table(
        Row("quick", "ms", [1.0], "git", [4.0], 0.5),
        Row("slow", "ms", [8.0], "git", [4.0], 0.5),
        Row("rate", "req/s", [4000.0], "git", [1000.0], 2.0, at_least=True, digits=0),
        Row("shown", "entries/s", [2000.0], "git", [1000.0], digits=0),
    )
    (group,) = plot.groups(text + "\n#### Another\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    assert group.title == "repo — A table"
    assert [(bar.name, bar.ratio, bar.target) for bar in group.bars] == [
        ("quick / git", 0.25, 0.5),
        ("slow / git", 2.0, 0.5),
        ("rate / git", 0.25, 0.5),
        ("shown / git", 0.5, None),
    ]
    assert [bar.colour for bar in group.bars] == [plot.GOOD, plot.BAD, plot.GOOD, plot.PLAIN]
    assert plot.draw(text).count("<rect") == 1 + 4
