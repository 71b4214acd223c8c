"""Figures over a suite: their denominators, and what is counted."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stats.suite_cases import anything, case
from torchstone.records import (
    FOREIGN_DEFINITION,
    SUITE_DEFINITION,
    CaseMetrics,
    Mean,
    Outcome,
    SuiteSummary,
    UsageError,
    Verdict,
    from_data,
    to_data,
)
from torchstone.stats import (
    geometric_mean_speedup,
    pass_rate,
    suite,
    summarise,
    verdicts,
)
from torchstone.stats.compare import benjamini_hochberg

MIB = 2**20


def test_a_crash_and_a_case_not_run_count_against_the_pass_rate() -> None:
    cases = [
        *[case(outcome=Outcome.OK)] * 5,
        case(outcome=Outcome.CRASH),
        case(outcome=Outcome.WRONG_ANSWER),
        *[case(outcome=Outcome.NOT_RUN)] * 2,
        *[case(outcome=Outcome.NOT_SUPPORTED)] * 4,
    ]
    rate = pass_rate(cases)
    assert (rate.passed, rate.counted, rate.planned) == (5, 9, 13)
    assert rate.rate == pytest.approx(5 / 9)
    assert rate.outcomes == {
        "ok": 5,
        "wrong_answer": 1,
        "nondeterministic": 0,
        "error": 0,
        "crash": 1,
        "oom": 0,
        "timeout": 0,
        "not_supported": 4,
        "not_run": 2,
    }
    assert pass_rate([]).rate is None
    assert pass_rate(cases[-4:]).rate is None


@given(st.lists(anything, max_size=12))
def test_outcomes_add_up(cases: list[CaseMetrics]) -> None:
    rate = pass_rate(cases)
    assert sum(rate.outcomes.values()) == rate.planned == len(cases)
    assert rate.counted + rate.outcomes["not_supported"] == rate.planned
    assert rate.rate is None or 0.0 <= rate.rate <= 1.0


def test_compile_times_are_arithmetic_means_of_those_that_have_one() -> None:
    cases = [
        case(compile_cold_ns=10, compile_warm_ns=4),
        case(compile_cold_ns=30),
        case(),
        case(compile_cold_ns=10**9, compile_warm_ns=10**9, outcome=Outcome.CRASH),
    ]
    (found,) = summarise(cases)
    assert found.compile_cold_ns == Mean(20.0, 2, 3)
    assert found.compile_warm_ns == Mean(4.0, 1, 3)
    (none,) = summarise(cases[-1:])
    assert none.compile_cold_ns == Mean(None, 0, 0)


def test_memory_ratios_are_geometric_means_where_both_peaks_are_known() -> None:
    cases = [
        case(base_tensor_bytes=400, new_tensor_bytes=100),
        case(base_tensor_bytes=100, new_tensor_bytes=100),
        case(base_tensor_bytes=400),
        case(base_tensor_bytes=0, new_tensor_bytes=100),
        case(base_tensor_bytes=900, new_tensor_bytes=1, outcome=Outcome.OOM),
    ]
    (found,) = summarise(cases)
    assert found.memory_ratio == Mean(pytest.approx(2.0), 2, 4)  # type: ignore[arg-type]


def test_the_process_and_the_compiler_are_told_apart_from_the_tensors() -> None:
    """As compiled BERT: fewer tensors, a larger process, 33 MB of it the compiler's."""
    cases = [
        case(base_peak_bytes=100, new_peak_bytes=400, base_tensor_bytes=8, new_tensor_bytes=2),
        case(base_overhead_bytes=10, new_overhead_bytes=43),
        case(base_overhead_bytes=12, new_overhead_bytes=11),
        case(new_overhead_bytes=43),
    ]
    (found,) = summarise(cases)
    process = found.process_memory_ratio
    assert process == Mean(pytest.approx(0.25), 1, 4)  # type: ignore[arg-type]
    assert found.memory_ratio == Mean(pytest.approx(4.0), 1, 4)  # type: ignore[arg-type]
    assert [one.compiler_bytes for one in cases] == [None, 33, -1, None]
    assert found.compiler_bytes == Mean(16.0, 2, 4)


def test_groups_are_those_that_differ_in_their_model_alone() -> None:
    cases = [
        case("a"),
        case("a", mode="training"),
        case("b", outcome=Outcome.OOM),
        case("b", mode="training"),
        case("c", suite="huggingface", scale="", threads=1),
        case("a", device="cuda"),
        case("a", variant="aot_eager", outcome=Outcome.NOT_SUPPORTED),
        case("a", precision="amp"),
    ]
    found = summarise(cases)
    rows = [
        (s.suite, s.scale, s.mode, s.precision, s.variant, s.device, s.threads, s.passes.planned)
        for s in found
    ]
    assert rows == [
        ("timm", "small", "inference", "fp32", "inductor", "cpu", 0, 2),
        ("timm", "small", "training", "fp32", "inductor", "cpu", 0, 2),
        ("huggingface", "", "inference", "fp32", "inductor", "cpu", 1, 1),
        ("timm", "small", "inference", "fp32", "inductor", "cuda", 0, 1),
        ("timm", "small", "inference", "fp32", "aot_eager", "cpu", 0, 1),
        ("timm", "small", "inference", "amp", "inductor", "cpu", 0, 1),
    ]
    assert summarise([]) == []
    assert (found[0].passes.passed, found[0].passes.counted) == (1, 2)
    assert (found[4].passes.counted, found[4].speedup.value) == (0, None)


def test_a_summary_holds_every_figure_and_says_its_version() -> None:
    cases = [
        case("a", math.log(2), compile_cold_ns=10, base_tensor_bytes=4, new_tensor_bytes=2),
        case("b", 0.0, compile_warm_ns=3, verdict=Verdict.SAME),
        case("c", None, verdict=None),
        case("d", outcome=Outcome.TIMEOUT),
    ]
    (summary,) = summarise(cases, level=0.9, q=0.1)
    assert summary.speedup == geometric_mean_speedup(cases, 0.9)
    assert summary.compile_cold_ns == Mean(10.0, 1, 3)
    assert summary.compile_warm_ns == Mean(3.0, 1, 3)
    assert summary.memory_ratio == Mean(pytest.approx(2.0), 1, 3)  # type: ignore[arg-type]
    told = {"faster": 1, "same": 1}
    assert summary.verdicts == {one.value: told.get(one.value, 0) for one in Verdict}
    assert summary.no_verdict == 1
    assert (summary.false_discovery_rate, summary.definition) == (0.1, SUITE_DEFINITION)


@given(st.lists(anything, max_size=10))
def test_counts_add_up_and_agree_with_the_table_of_cases(cases: list[CaseMetrics]) -> None:
    found = summarise(cases)
    told = Counter(
        v for c, v in zip(cases, verdicts(cases), strict=True) if c.outcome is Outcome.OK
    )
    for verdict in Verdict:
        assert sum(s.verdicts[verdict.value] for s in found) == told[verdict]
    for s in found:
        assert sum(s.verdicts.values()) + s.no_verdict == s.passes.passed
        for mean in (s.speedup, s.compile_cold_ns, s.compile_warm_ns, s.memory_ratio):
            assert mean.n <= mean.of == s.passes.passed
            assert (mean.value is None) == (mean.n == 0)
        assert from_data(SuiteSummary, json.loads(json.dumps(to_data(s), allow_nan=False))) == s


def test_figures_of_two_definitions_are_not_mixed() -> None:
    old, new = case("a", definition=1), case("b", definition=2)
    for figure in (
        geometric_mean_speedup,
        verdicts,
        summarise,
    ):
        with pytest.raises(UsageError, match="definitions 1 and 2"):
            figure([old, new])
        with pytest.raises(UsageError, match="measured by another tool"):
            figure([case("a", definition=FOREIGN_DEFINITION), new])
    never_run = case("c", outcome=Outcome.NOT_RUN, definition=1)
    (summary,) = summarise([new, never_run])
    assert summary.figures_definition == 2


def test_every_field_is_documented() -> None:
    reference = Path(__file__).parents[2] / "docs" / "reference"
    text = "".join((reference / page).read_text("utf-8") for page in ("figures.md", "csv.md"))
    fields = [f.name for record in (CaseMetrics, SuiteSummary) for f in dataclasses.fields(record)]
    assert [name for name in fields if f"`{name}`" not in text] == []


def test_what_else_was_measured_that_night_changes_no_verdict_of_a_suite() -> None:
    """Corrected over its own suite, as a comparison of two runs does."""
    few = [case(f"m{i}", log_speedup=0.06, error=0.01, freedom=6.0) for i in range(3)]
    open_ones = {"log_speedup": 0.0, "error": 0.02, "verdict": Verdict.CANNOT_TELL}
    others = [case(f"o{i}", suite="huggingface", **open_ones) for i in range(300)]  # type: ignore[arg-type]
    own = [case(f"o{i}", **open_ones) for i in range(300)]  # type: ignore[arg-type]
    alone = verdicts(few)
    assert alone == (Verdict.FASTER,) * 3
    assert verdicts([*few, *others])[:3] == alone
    assert verdicts([*few, *own])[:3] != alone  # its own cases do count


def test_clear_differences_survive_without_their_exact_p_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Survivors are those of the exact p-values, and hardly any of these are computed."""
    draw = random.Random(7)
    cases = [case(f"m{i}", draw.gauss(0.0, 0.3), 0.01, verdict=Verdict.FASTER) for i in range(200)]
    exact = [suite.p_value(one) for one in cases]
    assert all(p is not None for p in exact)
    survive = [p <= 0.05 for p in benjamini_hochberg([p or 0.0 for p in exact])]
    asked: list[str] = []
    counted = suite.p_value
    monkeypatch.setattr(
        suite, "p_value", lambda one: (asked.append(one.key.model), counted(one))[1]
    )
    found = suite.verdicts(cases)
    assert [one is Verdict.FASTER for one in found] == survive
    assert 0 < sum(survive) < len(cases)
    assert len(asked) < len(cases)
