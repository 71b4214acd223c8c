"""Markdown: the same facts, and no foreign text that turns into markup."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.show.markdown import code, escape, markdown

from . import synthetic_result as made


def table(text: str) -> list[list[str]]:
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row[1:-1].split("|")] for row in rows]


@pytest.mark.parametrize("name", made.ALL)
def test_rows_have_as_many_cells_as_the_heading(name: str) -> None:
    result = made.ALL[name]()
    rows = table(markdown(result))
    assert len(rows) == 2 + len(result.arms)
    assert {len(row) for row in rows} == {len(rows[0])}
    assert all(re.fullmatch(r":--|--:", mark) for mark in rows[1])


def test_same_columns_as_the_terminal() -> None:
    heading, _, base, new = table(markdown(made.two_faster()))
    assert heading[:4] == ["arm", "floor per call", "speed-up (95 %)", "verdict"]
    assert heading[5:] == ["typical", "memory", "process", "compiler", "compile cold / warm"]
    assert base[6:9] == ["10.0 MiB", "12.0 MiB", ""]
    assert new[6:9] == ["5.00 MiB 0.500× as much", "31.0 MiB", "24.0 MiB"]
    assert base[0] == "`eager`"
    assert base[3] == "baseline"
    assert new[0] == "`inductor`"
    assert new[2:4] == ["1.52× 1.51–1.53", "faster"]
    assert new[4].startswith("`│█")
    assert new[9:] == ["12.1 s / 2.30 s"]


def test_failures_doubts_and_checks_are_listed() -> None:
    text = markdown(made.four_with_failures())
    assert "- `inductor` **crash** (first call): the worker died &#91;SIGSEGV, exit code" in text
    assert "- **fail** contract: half does not keep the contract." in text
    assert "- 7 checks ok" in text
    assert "`channels_last` cannot tell: The interval is" in markdown(made.cannot_tell())


def test_hostile_names_do_no_harm() -> None:
    text = markdown(made.hostile())
    assert "<script" not in text
    assert "&#60;script&#62;alert(1)&#60;/script&#62;" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "&#124;and &#96;ticks&#96;" in text
    assert "@someone" not in text


def test_tame_names_stay_readable() -> None:
    assert code("two_layer.py:make") == "`two_layer.py:make`"
    assert escape("two_layer") == "two_layer"
    assert escape("__init__") == "&#95;&#95;init&#95;&#95;"
    assert escape("see https://a.b and www.c.d") == "see https:&#47;&#47;a.b and www&#46;c.d"
    assert code("") == "<code></code>"


@given(st.text(max_size=30))
def test_nothing_can_leave_its_cell(name: str) -> None:
    for shown in (code(name), escape(name)):
        inner = re.sub(r"&#\d+;|<!-- -->|^<code>|</code>$", "", shown)
        assert not re.search(r"[|<>&*\n\r]", inner)
        assert inner.count("`") in (0, 2)
