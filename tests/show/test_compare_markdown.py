"""The Markdown of a comparison: short, folded, and no text becomes markup."""

from __future__ import annotations

import re

import pytest

from tests.show.reports import compare_markdown

from . import synthetic_comparison as made


@pytest.mark.parametrize("name", made.ALL)
@pytest.mark.parametrize("everything", [False, True])
def test_tables_are_whole_and_folds_are_closed(name: str, everything: bool) -> None:
    text = compare_markdown(made.ALL[name](), everything=everything)
    assert text.count("<details>") == text.count("</details>") > 0
    block: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            block.append(line)
        elif block:
            assert len({row.count("|") for row in block}) == 1, block
            block = []


def test_the_first_line_says_it_all() -> None:
    first, *rest = compare_markdown(made.planted()).splitlines()
    assert re.match(r"\*\*\d slower, \d faster, .*2 newly failing\*\*", first)
    shown = "\n".join(rest).split("<details>")[0]
    assert "**2 newly failing**" in shown, "what fails is not hidden"
    assert "58 cases pass in both runs, of 60 of base and 60 of new" in shown
    assert "⚠️ run-new is the newest of 3" in shown


def test_cases_are_behind_a_click() -> None:
    text = compare_markdown(made.planted())
    fold = text.split("<details><summary>")[1]
    assert re.match(r"\d+ of 58 paired cases changed", fold)
    assert re.search(r"`timm/model03 inference` .*\| \*\*slower\*\* \| arm \|", fold)


def test_hostile_names_stay_text() -> None:
    text = compare_markdown(made.hostile(), everything=True)
    assert "<script" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "@someone" not in re.sub(r"<code>.*?</code>", "", text)
    tags = set(re.findall(r"</?([a-z]+)", text))
    assert tags <= {"details", "summary", "code"}


def test_a_large_one_fits_in_a_comment_and_says_what_is_left_out() -> None:
    text = compare_markdown(made.large(), everything=True)
    assert len(text) < 65_000
    assert "did not fit in a comment" in text
    assert re.search(r"- and \d+ more", text)
    assert text.count("<details>") == text.count("</details>")
