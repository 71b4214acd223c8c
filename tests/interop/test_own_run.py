"""A run of ours in the PyTorch project's files: nothing lost, nothing under a false name."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop.dashboard import dashboard
from tests.interop.support import (
    medians,
    own_key,
    own_view,
    passed,
    put,
    records,
    table,
)
from torchstone.interop import Format, Imported, medians_of
from torchstone.interop.dynamo_csv import DYNAMO_CSV
from torchstone.interop.hud_v3 import HUD_V3
from torchstone.records import (
    FOREIGN_DEFINITION,
    ArmSpec,
    CaseMetrics,
    ForeignMetrics,
    Measurement,
    Method,
    Noise,
    Outcome,
    PlannedCase,
    Result,
    Run,
    RunView,
    Turn,
    UsageError,
)

FORMATS: tuple[Format, ...] = (DYNAMO_CSV, HUD_V3)
NAMES = [one.name for one in FORMATS]
SMALL = "inductor_no_cudagraphs_huggingface_float32_inference_cpu"
STATUS = {
    "fast@small": "pass",
    "unfit@small": "pass",
    "wrong@small": "fail_accuracy",
    "dice@small": "eager_two_runs_differ",
    "raises@small": "fail_to_run",
    "segfault@small": "fail_to_run",
    "base-dies@small": "eager_1st_run_fail",
    "fat@small": "OOM",
    "slow@small": "timeout",
    "foreign@small": "model_fail_to_load",
    "never@small": "not_run",
}


def as_rows(data: bytes) -> dict[str, dict[str, str]]:
    header, *rows = table(data)
    return {row[1]: dict(zip(header, row, strict=True)) for row in rows}


def out_and_in(form: Format, view: RunView, folder: Path) -> Imported:
    return form.read(put(folder, form.write(view, medians)))


def test_there_is_a_table_for_each_configuration() -> None:
    files = DYNAMO_CSV.write(own_view(), medians)
    configurations = (
        SMALL,
        "inductor_no_cudagraphs_huggingface_float32_training_cpu",
        "inductor_no_cudagraphs_timm_models_float32_inference_cpu",
    )
    assert sorted(files) == sorted(
        f"{name}_{kind}.csv" for name in configurations for kind in ("performance", "accuracy")
    )
    assert sorted(HUD_V3.write(own_view(), medians)) == sorted(
        name.replace(".csv", ".json") for name in files
    )


def test_the_figures_follow_the_runners_definitions() -> None:
    row = as_rows(DYNAMO_CSV.write(own_view(), medians)[f"{SMALL}_performance.csv"])["fast@small"]
    assert float(row["speedup"]) == 9.5 / 5.0, "median over median, not our floor ratio of 1.87"
    assert float(row["abs_latency"]) == 5.0, "milliseconds of the compiled arm"
    # Five compiled calls, the first with its cold cost of 12 s, less five eager ones.
    assert float(row["compilation_latency"]) == pytest.approx(12.0 + 5 * (0.005 - 0.0095))
    assert float(row["compression_ratio"]) == 2.0
    assert float(row["eager_peak_mem"]) == 1.5
    assert float(row["dynamo_peak_mem"]) == 0.75
    assert (row["unique_graphs"], row["graph_breaks"]) == ("2", "1")


def test_every_planned_case_has_a_row_in_both_tables() -> None:
    files = DYNAMO_CSV.write(own_view(), medians)
    speed = as_rows(files[f"{SMALL}_performance.csv"])
    answer = as_rows(files[f"{SMALL}_accuracy.csv"])
    assert {name: row["accuracy"] for name, row in answer.items()} == STATUS
    assert set(speed) == set(STATUS)
    for name, row in speed.items():
        if STATUS[name] != "pass":
            assert (row["speedup"], row["abs_latency"], row["batch_size"]) == ("0.0", "0.0", "0")


def test_a_number_that_is_not_believed_or_not_known_is_left_empty_and_said() -> None:
    view = own_view()
    files = DYNAMO_CSV.write(view, medians)
    unfit = as_rows(files[f"{SMALL}_performance.csv"])["unfit@small"]
    assert unfit["speedup"] == unfit["abs_latency"] == unfit["compilation_latency"] == ""
    assert unfit["compression_ratio"] == "2.0"
    for form in FORMATS:
        remarks = " ".join(form.remarks(view, medians))
        assert "2 cases have no speedup" in remarks
        assert "unfit, samples-gone" in remarks
        assert "9 cases that did not pass have rows" in remarks
        assert "true peak" in remarks
    assert "4 cases have no speedup" in " ".join(DYNAMO_CSV.remarks(view))


@pytest.mark.parametrize("form", FORMATS, ids=NAMES)
def test_outcomes_come_back_as_they_were(form: Format, tmp_path: Path) -> None:
    view = own_view()
    imported = out_and_in(form, view, tmp_path)
    found = {c.key: (c.outcome, c.reason, c.failed_arm) for c in imported.cases}
    assert found == {c.key: (c.outcome, c.reason, c.failed_arm) for c in view.complete}
    assert all(case.definition == FOREIGN_DEFINITION for case in imported.cases)
    assert "process dies" not in " ".join(imported.notes), "ours leaves a row"


@pytest.mark.parametrize("form", FORMATS, ids=NAMES)
def test_figures_come_back_as_they_were(form: Format, tmp_path: Path) -> None:
    view = own_view()
    imported = out_and_in(form, view, tmp_path)
    # Through either format, and out again as tables: the same cells, to the last digit.
    again = DYNAMO_CSV.write(imported.view)
    for name, data in DYNAMO_CSV.write(view, medians).items():
        wanted, found = as_rows(data), as_rows(again[name])
        assert set(found) == set(wanted)
        for model, row in wanted.items():
            for column in ("speedup", "abs_latency", "compilation_latency", "eager_peak_mem"):
                if row.get(column) not in (None, "", "0"):
                    assert float(found[model][column]) == float(row[column]), (model, column)


def test_records_have_the_databases_shape() -> None:
    files = HUD_V3.write(own_view(), medians)
    speed = records(files[f"{SMALL}_performance.json"])
    first = speed[0]
    assert first["benchmark"]["name"] == "TorchInductor"
    assert (first["benchmark"]["mode"], first["benchmark"]["dtype"]) == ("inference", "float32")
    extra = first["benchmark"]["extra_info"]
    # The dashboard reads the compiler from this name.
    assert extra["output"] == f"{SMALL}_performance.csv"
    assert extra["device"] == "cpu"
    assert first["model"]["name"] == "fast@small"
    assert first["model"]["backend"] == "inductor"
    assert first["model"]["origins"] == ["huggingface"]
    assert first["metric"] == {"name": "speedup", "benchmark_values": [1.9]}
    assert first["dependencies"] == {"torch": {"version": "2.13.0+cpu"}}
    crashed = [r["metric"] for r in speed if r["model"]["name"] == "segfault@small"]
    assert crashed == [
        {"name": "speedup", "benchmark_values": [0.0]},
        {"name": "abs_latency", "benchmark_values": [0.0]},
    ]
    answers = records(files[f"{SMALL}_accuracy.json"])
    assert {r["model"]["name"]: r["metric"] for r in answers} == {
        name: {"name": "accuracy", "extra_info": {"benchmark_values": [status]}}
        for name, status in STATUS.items()
    }


def test_the_run_keeps_its_torch(tmp_path: Path) -> None:
    assert out_and_in(HUD_V3, own_view(), tmp_path).run.torch == "2.13.0+cpu"


@pytest.mark.parametrize("form", FORMATS, ids=NAMES)
def test_cases_that_differ_in_anything_stay_apart(form: Format, tmp_path: Path) -> None:
    keys = [
        own_key("m"),
        own_key("m", threads=4),
        own_key("m", scale="full"),
        own_key("m", scale=""),
        own_key("m", precision="amp-bf16"),
        own_key("m", variant="inductor+dynamic"),
        own_key("m", variant="inductor+dynamic", device="cuda:0"),
        own_key("m", variant="my/odd variant"),
        own_key("m", suite="a_suite/of mine", mode="training"),
        own_key("m@small", scale="full"),
    ]
    view = RunView(
        Run("x", "", (), tuple(PlannedCase(key, "") for key in keys)),
        tuple(passed(key) for key in keys),
    )
    imported = form.read(put(tmp_path, form.write(view, lambda case: (2e6, 1e6))))
    assert {case.key for case in imported.cases} == set(keys)
    assert all(case.outcome is Outcome.OK for case in imported.cases)


@pytest.mark.parametrize("form", FORMATS, ids=NAMES)
@pytest.mark.parametrize("field", ["suite", "variant", "device", "precision"])
def test_a_long_name_loses_no_figure(form: Format, field: str, tmp_path: Path) -> None:
    long = [own_key("m", **{field: "a" * 165 + end}) for end in ("one", "two")]
    view = RunView(
        Run("x", "", (), tuple(PlannedCase(key, "") for key in long)),
        tuple(passed(key) for key in long),
    )
    files = form.write(view, lambda case: (2e6, 1e6))
    assert len(files) == 4
    imported = form.read(put(tmp_path, files))
    assert {case.key for case in imported.cases} == set(long)
    for case in imported.cases:
        assert {one.table for one in case.foreign} == {"performance", "accuracy"}
        # And once more, from what was read.
    again = form.read(put(tmp_path / "again", form.write(imported.view)))
    assert {case.key for case in again.cases} == set(long)
    assert all(len(case.foreign) == 2 for case in again.cases)


def turn(walls: tuple[int, ...], index: int) -> Turn:
    return Turn(
        replicate=index % 2,
        index=index,
        wall_ns=walls,
        cpu_ns=walls,
        probe_ns=(),
        probe_every=0,
        first_ns=1,
        minor_faults=0,
        major_faults=0,
        noise=Noise(sum(walls), sum(walls)),
    )


def measurement(arm: ArmSpec, walls: list[int], loops: int) -> Measurement:
    turns = tuple(turn(tuple(walls[i : i + 3]), i) for i in range(0, len(walls), 3))
    return Measurement(arm, Outcome.OK, turns=turns, loops=loops)


def test_medians_are_taken_over_all_samples_of_the_cases_own_arm() -> None:
    rng = random.Random(3)
    base, new, other = ([rng.randrange(10**6, 10**7) for _ in range(21)] for _ in range(3))
    arms = (
        measurement(ArmSpec("eager", "t"), base, 1),
        measurement(ArmSpec("aot", "t", "aot_eager"), other, 1),
        measurement(ArmSpec("inductor", "t", "inductor"), new, 2),
    )
    method = Method(1, 0.01, 0.02, 0, 1, 1)
    result = Result("r", "", (), arms, (), (), method)
    case = passed(own_key("m"))
    assert medians_of(result, case) == (sorted(base)[10], sorted(new)[10] / 2)
    assert medians_of(result, passed(own_key("m", variant="export"))) is None
    assert medians_of(replace(result, arms=arms[:1]), case) is None
    empty = replace(arms[2], turns=())
    assert medians_of(replace(result, arms=(arms[0], empty)), case) is None


def test_figures_of_a_third_tool_are_not_passed_off_as_the_runners() -> None:
    other = ForeignMetrics("tool", "tool-defs", "performance", "f", 1, ("speedup",), ("2",))
    case = CaseMetrics(own_key("m"), Outcome.OK, foreign=(other,), definition=FOREIGN_DEFINITION)
    view = RunView(Run("x", "", (), (PlannedCase(case.key, ""),)), (case,))
    for form in FORMATS:
        with pytest.raises(UsageError, match="another tool"):
            form.write(view)


def test_the_dashboard_counts_what_the_run_counts() -> None:
    (row,) = [
        one
        for one in dashboard(own_view(), medians)
        if one.suite == "huggingface" and one.mode == "inference"
    ]
    assert row.compiler == "inductor_no_cudagraphs"
    # `unfit` passed, but has no speed that could be believed; the dashboard wants one.
    assert (row.pass_count, row.total_count) == (1, len(STATUS))
    assert row.geomean == pytest.approx(1.9)
