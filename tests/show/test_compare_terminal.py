"""The terminal report of a comparison: what changed first, every denominator, nothing too wide."""

from __future__ import annotations

import re

import pytest

from tests.show.reports import compare_report
from torchstone.show.table import cells

from . import synthetic_comparison as made

SGR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("name", made.ALL)
@pytest.mark.parametrize("width", [40, 72, 100, 160])
@pytest.mark.parametrize("everything", [False, True])
def test_no_line_is_too_wide_and_nothing_hostile_gets_through(
    name: str, width: int, everything: bool
) -> None:
    comparison = made.ALL[name]()
    text = compare_report(comparison, width=width, everything=everything)
    assert text.endswith("\n")
    for line in text.splitlines():
        assert cells(line) <= width, line
    assert "\x1b" not in text
    assert "\u202e" not in text
    plain = compare_report(comparison, width=width, unicode=False, everything=everything)
    assert plain.isascii()
    painted = compare_report(comparison, width=width, color=True, everything=everything)
    assert SGR.sub("", painted) == text


def test_what_was_planted_is_shown_with_its_side_and_the_worst_first() -> None:
    text = compare_report(made.planted(), width=140)
    lines = text.splitlines()
    assert lines[0].startswith("base  run-base · 2026-11-15 02:00 · git 0123456789 main")
    assert lines[1].startswith("new   run-new")
    assert "! run-new is the newest of 3" in text
    assert "58 cases pass in both runs, of 60 of base and 60 of new" in text
    rows = [line for line in lines if re.search(r"(slower|faster) +(arm|baseline)", line)]
    assert len(rows) >= 5
    verdicts = [re.search(r"(slower|faster)", row)[1] for row in rows]  # type: ignore[index]
    assert verdicts == sorted(verdicts, reverse=True)
    assert re.search(r"timm/model03 inference .* slower +arm", text)
    assert re.search(r"huggingface/model07 training .* slower +baseline", text)
    assert re.search(r"timm/model11 inference .*\d\.\d\d× !", text)
    assert "2 newly failing" in text
    assert "crash (inductor): first call: it died" in text
    assert "not run" not in text


def test_groups_carry_their_denominators() -> None:
    text = compare_report(made.every_kind(), width=200)
    assert re.search(r"timm@small inference inductor +5 of 11 / 10", text)
    assert re.search(r"timm@small inference aot_eager +0 of 3 / 0", text)
    assert re.search(r"timm@small training inductor +0 of 0 / 2", text)
    assert "9 → 7" in text
    for said in ("2 newly failing", "1 newly passing", "1 failing in both", "only in base"):
        assert said in text
    assert "not run (inductor): first call: it died" in text


def test_thresholds_and_drift_are_said() -> None:
    text = " ".join(compare_report(made.planted()).split())
    assert "same: all of the interval lies within 2.0 %; not slower, not faster: it excl" in text
    assert "beyond 1.0 % (the larger of half the margin and what identical arms may differ" in text
    assert "false discovery rate of 5.0 %" in text
    assert re.search(r"drift: the baselines of new took [\d.]+ % (longer|less) in the middle", text)
    assert re.search(
        r"! marks a mean beyond compile [\d.]+ %.*; a case beyond compile [\d.]+ %", text
    )
    assert "too few cases to say" in " ".join(compare_report(made.few()).split())


def test_marks_stand_above_the_tables() -> None:
    text = compare_report(made.across())
    first = text.index("! another machine, as asked")
    assert first < text.index("new / base")
    assert text.index("! another build of torch") < text.index("new / base")
    assert "torch 2.13.0+cpu" in text.splitlines()[0]


def test_everything_shows_every_paired_case() -> None:
    comparison = made.planted()
    short, long = (compare_report(comparison, everything=e) for e in (False, True))
    assert "all 58 paired cases" in long
    assert "model15" in long
    assert "model15" not in short


def test_nothing_changed_is_said_in_a_sentence() -> None:
    assert "none of the 4 paired cases changed" in compare_report(made.nothing_changed())


def test_without_a_process_to_compare_with_there_is_no_interval() -> None:
    text = compare_report(made.one_process(), everything=True)
    assert "5 cannot tell" in text
    assert "–" not in text.split("all 5 paired")[1].split("moved:")[0]
