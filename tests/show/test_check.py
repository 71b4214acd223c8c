"""The report of `check` in each form; from JSON that nobody trusts, too."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.show.reports import check_report
from torchstone.records import CheckedTarget, CheckReport, Revision, Shift, Status, UsageError
from torchstone.show.check import (
    MARKER,
    annotation_lines,
    check_dumps,
    check_loads,
    check_markdown,
    headline,
)

SLOWER = CheckedTarget(
    "bench.py:step()",
    Status.SLOWER,
    time_ratio=1.052,
    interval=(1.041, 1.063),
    base_s=0.001,
    new_s=0.001052,
    first_ratio=1.06,
    file="bench.py",
    line=3,
)
FINE = CheckedTarget(
    "bench.py:other()", Status.NOT_SLOWER, time_ratio=1.001, interval=(0.99, 1.012), base_s=2.0
)
REPORT = CheckReport(
    base=Revision("a" * 40, "merge base with origin/main", "first"),
    new=Revision("b" * 40, "working copy", "second"),
    margin=0.03,
    targets=(SLOWER, FINE),
    controls=(replace(FINE, target="kernel", status=Status.SAME_CODE),),
    control_shift=Shift(1.001, (0.998, 1.004), 1, False),
    machine="AMD EPYC · Linux",
    command=("torchstone", "check", "bench.py:step()", "--base", "a" * 40),
    elapsed_s=61.0,
)
EVIL = "</details><script>alert(1)</script> @everyone ::error::x\n::warning::y ![x](http://e.vil/x)"


def test_the_terminal_says_it_in_one_line_first() -> None:
    text = check_report(REPORT, 1, width=90)
    assert text.startswith("Slower: 1 of 2 targets (bench.py:step() +5.2 %).\n")
    assert "did not move" in text
    assert max(map(len, text.splitlines())) <= 90


@pytest.mark.parametrize(
    ("statuses", "code", "word"),
    [
        ((Status.NOT_SLOWER,), 0, "Not slower"),
        ((Status.CANNOT_TELL, Status.NOT_SLOWER), 3, "Cannot tell"),
        ((Status.WRONG_ANSWER,), 1, "Broken"),
        ((Status.FAILS,), 1, "Broken"),
        ((Status.NOT_COMPARED, Status.NOT_SLOWER), 4, "Could not compare 1 of 2"),
        ((Status.SAME_CODE,), 0, "is the same in both revisions"),
    ],
)
def test_headlines(statuses: tuple[Status, ...], code: int, word: str) -> None:
    targets = tuple(replace(FINE, status=status) for status in statuses)
    assert word in headline(replace(REPORT, targets=targets), code)


def test_a_comment_has_ten_rows_and_folds_the_rest() -> None:
    many = tuple(replace(FINE, target=f"bench.py:f{i}()") for i in range(25))
    text = check_markdown(replace(REPORT, targets=many), 0)
    assert text.startswith(MARKER)
    shown, folded = text.split("<details>", 1)
    assert shown.count("`bench.py:f") == 10
    assert "15 more targets" in folded
    assert folded.count("`bench.py:f") == 15
    assert "AMD EPYC" in text
    assert "torchstone check" in text


def test_nothing_in_a_report_becomes_markup_or_a_command() -> None:
    hostile = CheckedTarget(EVIL, Status.FAILS, EVIL, file=EVIL, line=1)
    report = replace(
        REPORT,
        base=Revision(EVIL, EVIL, EVIL),
        targets=(hostile,),
        machine=EVIL,
        command=(EVIL,),
        notes=(EVIL,),
    )
    text = check_markdown(report, 1)
    assert "<script" not in text
    assert "![x]" not in text
    assert "@everyone" not in text.replace("<code>", "")
    assert text.count("</details>") == text.count("<details>")
    (line,) = annotation_lines(report)
    assert "\n" not in line
    assert line.startswith("::error file=")


def test_annotations_name_the_line() -> None:
    assert annotation_lines(REPORT) == [
        "::error file=bench.py,line=3,title=torchstone check::bench.py:step(): slower +5.2 %25 "
        "(+4.1 %25 to +6.3 %25)."
    ]


def test_json_and_back() -> None:
    text = check_dumps(REPORT, 1)
    assert json.loads(text)["exit_code"] == 1
    assert json.loads(text)["answer"] == "slower, wrong or failing"
    assert check_loads(text) == REPORT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "not json",
        '{"a": ' * 100_000,
        json.dumps({"base": 1}),
        check_dumps(replace(REPORT, machine="x" * 5000), 1),
        check_dumps(replace(REPORT, targets=(FINE,) * 1001), 1),
        check_dumps(replace(REPORT, schema=99), 1),
        check_dumps(REPORT, 1).replace('"margin": 0.03', '"margin": NaN'),
        " " * (1 << 20) + "{}",
    ],
    ids=lambda text: text[:12],
)
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        check_loads(text)
