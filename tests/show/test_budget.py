"""The budget that would probably decide: in every report, and in words that the options take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.show import synthetic_result, synthetic_run
from tests.show.reports import run_markdown, run_report
from torchstone.cli.options import parse_duration
from torchstone.records import CASE_KIND, Comparison, Result, RunView, Verdict
from torchstone.show.evidence import BENCH, CALL, RUN, budget_advice, duration
from torchstone.show.markdown import document, markdown
from torchstone.show.terminal import report
from torchstone.stats import summarise
from torchstone.stats.compare import PLAIN_BUDGETS_S


def test_what_is_said_can_be_typed() -> None:
    said = [duration(seconds) for seconds in PLAIN_BUDGETS_S]
    assert said[:7] == ["5s", "10s", "15s", "20s", "30s", "45s", "1m"]
    assert said[-1] == "1h"
    assert [parse_duration(text) for text in said] == list(PLAIN_BUDGETS_S)


def test_the_advice_names_the_option_and_the_change() -> None:
    assert budget_advice(45.0, 0.02) == "--budget 45s would probably tell 2 %."
    assert budget_advice(120.0, 0.05, RUN) == "--budget-per-case 2m would probably tell 5 %."
    assert budget_advice(120.0, 0.05, CALL) == "budget=120 would probably tell 5 %."
    assert budget_advice(None, 0.02) == ""
    four = synthetic_result.method(budget_s=20.0, asked_replicates=4)
    assert "--budget 1m --replicates 12 would" in budget_advice(60.0, 0.02, BENCH, four)
    assert "--budget 20s would" in budget_advice(20.0, 0.02, BENCH, four)


def open_result(verdict: Verdict, kind: str = "bench") -> Result:
    made = synthetic_result.cannot_tell()
    (found,) = made.comparisons
    found = replace(found, verdict=verdict, deciding_budget_s=45.0, threshold=0.01)
    return replace(made, comparisons=(found,), kind=kind)


@pytest.mark.parametrize("verdict", [one for one in Verdict if one.undecided])
def test_an_open_comparison_says_it_in_every_report(verdict: Verdict) -> None:
    made = open_result(verdict)
    for text in (report(made, width=200), markdown(made)):
        assert verdict.value in text
        assert "--budget 45s would probably tell 2 %." in text
    (row,) = document(made)["comparisons"]
    assert (row["verdict"], row["deciding_budget_s"]) == (verdict.value, 45.0)
    assert (row["margin"], row["threshold"]) == (0.02, 0.01)
    of_run = report(open_result(verdict, CASE_KIND), width=200)
    assert "--budget-per-case 45s would probably tell 2 %." in of_run


@pytest.mark.parametrize("verdict", [one for one in Verdict if not one.undecided])
def test_a_decided_one_wants_no_budget(verdict: Verdict) -> None:
    assert "would probably tell" not in report(open_result(verdict), width=200)
    bare = Comparison("a", "b", verdict, "low1")
    assert bare.deciding_budget_s is None


def open_run() -> RunView:
    made = []
    for name, verdict, seconds in (
        ("m0", Verdict.CANNOT_TELL, 45.0),
        ("m1", Verdict.NOT_SLOWER, 120.0),
        ("m2", Verdict.NOT_FASTER, None),
        ("m3", Verdict.FASTER, 300.0),
    ):
        half = 0.03 if verdict is Verdict.FASTER else 0.4
        case = synthetic_run.ok(synthetic_run.key(name), 1.3, half)
        made.append(replace(case, verdict=verdict, deciding_budget_s=seconds))
    return synthetic_run.view(made)


def test_a_run_says_what_would_decide_what_is_open() -> None:
    view = open_run()
    said = "--budget-per-case 2m would probably tell 2 % in 2 of 3 cases still open"
    text = run_report(view, summarise(view.complete), width=120)
    assert said in text
    for verdict in ("cannot tell", "not slower", "not faster"):
        assert f"1 {verdict}" in text
    assert said.replace("-", "\\-") in run_markdown(view, summarise(view.complete)) or (
        said in run_markdown(view, summarise(view.complete))
    )
    decided = synthetic_run.view([case for case in view.cases if case.verdict is Verdict.FASTER])
    assert "would probably" not in run_report(decided, summarise(decided.complete))
