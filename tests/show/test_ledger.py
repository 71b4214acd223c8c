"""The ledger for people: terminal, Markdown, JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.explain.ledger_synthetic import ARM, ledger, op
from torchstone.explain.differences import difference
from torchstone.explain.findings.base import with_findings
from torchstone.explain.findings.code import graph_breaks
from torchstone.explain.findings.python import sleep
from torchstone.records import Ledger, LedgerPart, SourceLine, Verification
from torchstone.show.ledger import (
    difference_markdown,
    difference_report,
    ledger_dumps,
    ledger_markdown,
    ledger_report,
)
from torchstone.show.table import cells

HOSTILE = "\x1b[31m<script>|`evil`"


@pytest.fixture
def found() -> Ledger:
    made = ledger(
        {"interpreter": 0.2, "dispatch": 0.1, "kernels": 0.3, "sleep": 0.32, "breaks": 0.05},
        arm=replace(ARM, target=f"{HOSTILE}.py:make"),
        breaks=(SourceLine("print " * 60, "/home/user/project/model.py", 9),),
        checks=("The thread waited for a core.",),
        notes=("a note",),
        interpreter="This interpreter has a lock.",
        hardware=("1.00 of 2 cores were busy.",),
        ops=(op(HOSTILE, 1e-3, calls=3),),
    )
    lines = tuple(
        replace(line, parts=(LedgerPart(HOSTILE, 1e-3, 3, "/a/b/c.py:1"),), spread=0.02)
        for line in made.lines
    )
    return with_findings(replace(made, lines=lines), [sleep, graph_breaks])


@pytest.mark.parametrize("width", [20, 60, 80, 140])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_too_wide_and_nothing_of_theirs_gets_through(
    found: Ledger, width: int, unicode: bool
) -> None:
    both = difference(found, replace(found, arm=replace(found.arm, variant="inductor")))
    for text in (
        ledger_report(found, width=width, unicode=unicode),
        difference_report(both, width=width, unicode=unicode),
    ):
        assert "\x1b" not in text
        assert max(cells(line) for line in text.splitlines()) <= max(width, 60)
        if not unicode:
            assert text.isascii()


def test_lines_by_level_with_the_rest_last_of_those_that_add_up(found: Ledger) -> None:
    text = ledger_report(found)
    places = [text.index(word) for word in ("1 Python", "2 PyTorch", "3 PyTorch", "off the CPU")]
    assert places == sorted(places)
    assert text.index("not explained") > places[-1]
    assert "20.0 %" in text
    assert "3.0 %" in text.split("not explained")[1]
    assert "10.00 ms a step" in text or "10.0 ms a step" in text


def test_findings_in_order_with_what_is_predicted(found: Ledger) -> None:
    text = ledger_report(found)
    assert text.index("1. Sleeping") < text.index("2. Graph breaks")
    assert "Predicted: 1.11× to 1.6× faster." in text
    assert "By hand:" in text
    assert "project/model.py:9" in text


@pytest.mark.parametrize(
    ("held", "said"), [(True, "held"), (False, "did not hold"), (None, "told")]
)
def test_a_test_stands_beside_its_finding(found: Ledger, held: Any, said: str) -> None:
    test = Verification("sleep", (0.6, 0.9), 0.7, (0.6, 0.8), held, f"The prediction: {said}.")
    text = ledger_report(replace(found, verifications=(test,)), color=True)
    assert said in text
    assert said in ledger_markdown(replace(found, verifications=(test,)))


def test_nothing_to_find_is_said() -> None:
    assert "no finding" in ledger_report(ledger())


def test_markdown_is_harmless(found: Ledger) -> None:
    text = ledger_markdown(found)
    assert "<script>" not in text
    assert "\x1b" not in text
    assert "| PyTorch back end | kernels | 30.0 % |" in text


def test_json_has_every_line_and_reads_back(found: Ledger) -> None:
    data = json.loads(ledger_dumps(found))
    assert data["kind"] == "ledger"
    assert {line["name"]: line["share"] for line in data["lines"]}["kernels"] == 0.3
    assert data["findings"][0]["time_ratio"] == [
        pytest.approx(1 - 1.1 * 0.32 - 0.03),  # and what is not explained
        pytest.approx(1 - 0.3 * 0.32),
    ]
    two = json.loads(ledger_dumps(difference(found, found)))
    assert (two["kind"], two["base"]["kind"]) == ("ledger difference", "ledger")


def test_the_difference_in_markdown_says_why(found: Ledger) -> None:
    kernel = op("cpp_fused_relu_0", 1e-3, generated=True, ops=("relu",))
    new = replace(
        found,
        arm=replace(found.arm, variant="inductor"),
        ops=(kernel,),
        recompiles=(SourceLine("size mismatch", "model.py", 4),),
    )
    before = replace(found, ops=(op("aten::relu", 2e-3, calls=3), *found.ops))
    text = difference_markdown(difference(before, new))
    assert "eager against inductor" in text.splitlines()[0]
    assert "| aten::relu | fused |" in text
    assert "cpp_fused_relu_0 |" in text
    assert "Graph breaks:" in text
    assert "model.py:4 size mismatch" in text
    assert "one after the other, not in turns" in text
    assert text.count("### Ledger of") == 2
    assert "<script>" not in text


def test_findings_that_are_shown_are_the_ones_that_were_tested(found: Ledger) -> None:
    test = Verification("sleep", (0.6, 0.9), 0.7, (0.6, 0.8), True, "The prediction held: yes.")
    new = replace(found, arm=replace(found.arm, variant="inductor"), verifications=(test,))
    text = difference_report(difference(found, new))
    assert "What would help under inductor:" in text
    assert "The prediction held: yes." in text


def test_beside_each_other_both_say_what_they_say_alone(found: Ledger) -> None:
    """The lock, the hardware, notes such as stale peaks; once where they say the same."""
    new = replace(
        found,
        arm=replace(found.arm, variant="inductor"),
        interpreter="This interpreter has a lock, and the step waited.",
        notes=("a note", "The peaks are stale."),
        facts={"drift": "1.061"},
    )
    both = difference(found, new)
    text = difference_report(both, width=140)
    for said in (
        "eager: This interpreter has a lock.",
        "inductor: This interpreter has a lock, and the step waited.",
        "both: 1.00 of 2 cores were busy.",
        "inductor: Traced times were scaled by 1.061",
        "! both: The thread waited for a core.",
        "- both: a note",
        "- inductor: The peaks are stale.",
    ):
        assert text.count(said) == 1, said
    pasted = difference_markdown(both)
    for said in (found.interpreter, new.interpreter, "The peaks are stale."):
        assert f"- {said}\n" in pasted


def test_drift_is_shown(found: Ledger) -> None:
    drifted = replace(found, facts={"drift": "1.061"})
    assert "scaled by 1.061" in ledger_report(drifted)
    assert "scaled by 1.061" in ledger_markdown(drifted)
    assert "scaled" not in ledger_report(replace(found, facts={"drift": "1.000"}))
