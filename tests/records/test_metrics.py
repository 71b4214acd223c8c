"""The table of metrics: every figure of a case is in it, and is written under its public name."""

from __future__ import annotations

from dataclasses import fields
from typing import get_type_hints

import pytest

from torchstone.records import CaseKey, CaseMetrics, Level, Outcome, Verdict
from torchstone.records.metrics import BY_KEY, METRICS, Metric

KEY = CaseKey("suite", "model", "", "inference", "fp32", "inductor")
BESIDE = {"key", "definition", "interval"}


def test_every_field_of_a_case_is_a_metric() -> None:
    assert {field.name for field in fields(CaseMetrics)} - BESIDE <= set(BY_KEY)
    assert len(BY_KEY) == len(METRICS)
    assert len({metric.public_name for metric in METRICS}) == len(METRICS)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.key)
def test_the_kind_is_the_fields_own(metric: Metric) -> None:
    hints = get_type_hints(CaseMetrics)
    if metric.key in hints:
        assert metric.kind.__name__ in str(hints[metric.key])


def test_values_are_written_in_their_unit_and_only_where_they_mean_something() -> None:
    bare = CaseMetrics(KEY, Outcome.OK, speedup=float("nan"), replicates=3)
    case = CaseMetrics(
        KEY,
        Outcome.OK,
        result_id="r1",
        interval=(1.5, 2.5),
        verdict=Verdict.FASTER,
        compile_cold_ns=1_500_000_000,
        new_tensor_bytes=10**400,
        worst_check=Level.WARN,
        checks=("noise",),
        replicates=3,
    )
    written = {metric.public_name: metric.public(case) for metric in METRICS}
    assert (written["speedup_low"], written["speedup_high"]) == (1.5, 2.5)
    assert written["compile_cold_s"] == 1.5
    assert written["new_tensor_bytes"] == 10**400
    assert (written["outcome"], written["verdict"], written["margin"]) == ("ok", "faster", 0.02)
    assert (written["worst_check"], written["checks"], written["replicates"]) == (
        "warn",
        ["noise"],
        3,
    )
    for key in ("speedup", "margin", "worst_check", "replicates"):
        assert BY_KEY[key].public(bare) is None
