"""A large run in brief: the same report as from the whole one, with few figures decoded."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from tests.show import synthetic_run as made
from tests.show.reports import run_markdown, run_report

from torchstone.records import (
    CaseMetrics,
    Level,
    Outcome,
    PlannedCase,
    Run,
    RunView,
    Verdict,
)
from torchstone.show.run import MOST_CASES
from torchstone.stats import summarise, verdicts
from torchstone.store import BriefRunView, case_facts, open_store

CASES = 600
NAME = "abc123"


def case(i: int) -> CaseMetrics | None:
    """Modes, precisions, failures, wide intervals, lost verdicts, other margins; None: not run."""
    settings = {"mode": ("inference", "training")[i % 2], "precision": ("fp32", "bf16")[i // 2 % 2]}
    key = made.key(f"m{i:03d}", suite=("huggingface", "timm")[i % 3 == 0], **settings)
    one = replace(made.ok(key, 0.8 + 0.001 * i, 0.02), result_id="", command=("run", str(i)))
    one = replace(one, log_freedom=3.0 + 0.01 * (i % 40))
    if i % 20 == 3:
        return CaseMetrics(key, Outcome.CRASH, f"it died {i % 3}", command=("run", str(i)))
    if i % 20 == 4:
        return CaseMetrics(key, Outcome.NOT_SUPPORTED, f"needs CUDA {i % 2}")
    if i % 20 == 5:
        return replace(one, interval=(0.01, 9.0), log_error=0.9, verdict=Verdict.CANNOT_TELL)
    if i % 20 == 6:
        return replace(one, worst_check=Level.WARN, checks=("noise", "probe"))
    if i % 20 == 7:  # what no column holds
        return replace(one, speedup=math.nan, interval=(math.nan, math.nan), log_error=None)
    if i % 20 in (8, 9):  # by chance
        lost = replace(made.ok(key, 1.05, 0.04), log_error=0.03, verdict=Verdict.FASTER)
        return replace(lost, margin=0.05 if i % 20 == 8 else 0.02, deciding_budget_s=30.0 + i)
    return None if i % 20 == 10 else one


def views(db: Path, count: int = CASES) -> tuple[RunView, RunView]:
    """The run as a whole and in brief, from one open store."""
    found = {i: case(i) for i in range(count)}
    plan = tuple(
        PlannedCase(one.key if one else made.key(f"m{i:03d}"), f"hf:m{i}")
        for i, one in found.items()
    )
    run: Run = replace(made.view([]).run, id=NAME, plan=plan)
    store = open_store(str(db))
    store.import_run(run, [one for one in found.values() if one], "elsewhere")
    return store.find(NAME), store.find(NAME, MOST_CASES)  # type: ignore[return-value]


def test_a_brief_view_makes_the_very_same_report(tmp_path: Path) -> None:
    whole, brief = views(tmp_path / "r.db")
    assert isinstance(brief, BriefRunView)
    told = verdicts(whole.complete)
    assert verdicts(brief.complete) == told
    assert sum(a is not b.verdict for a, b in zip(told, whole.complete, strict=True)) > 5
    summaries = summarise(whole.complete)
    assert len(summaries) >= 8
    assert list(brief.summaries) == summaries
    assert run_report(brief, brief.summaries) == run_report(whole, summaries)
    assert run_markdown(brief, brief.summaries) == run_markdown(whole, summaries)
    text = run_report(brief, brief.summaries, width=200)
    for said in ("in no mean speed-up", "likely by chance", "needs CUDA 0", "noise in", "not run"):
        assert said in text


def test_figures_are_decoded_of_the_cases_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = views(tmp_path / "r.db")
    asked: list[object] = []
    decode = case_facts.metrics_of
    monkeypatch.setattr(case_facts, "metrics_of", lambda row: (asked.append(row), decode(row))[1])
    with open_store(str(tmp_path / "r.db"), create=False) as store:
        brief = store.find(NAME, MOST_CASES)
        assert isinstance(brief, BriefRunView)
        assert asked == []
        run_report(brief, brief.summaries)
    assert len(asked) == MOST_CASES + 1 < len(whole.cases)  # one more: whether it has a command


def test_a_small_run_and_one_with_other_sums_are_read_whole(tmp_path: Path) -> None:
    _, small = views(tmp_path / "s.db", MOST_CASES)
    assert not isinstance(small, BriefRunView)
    views(tmp_path / "r.db")
    with open_store(str(tmp_path / "r.db")) as store:
        with store._writing() as connection:
            connection.exec_driver_sql("UPDATE group_fact SET outcomes = '{\"ok\":1}'")
        found = store.find(NAME, MOST_CASES)
        assert isinstance(found, RunView)
        assert not isinstance(found, BriefRunView)
