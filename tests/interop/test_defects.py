"""Known defects of the PyTorch dashboard's runner, and that ours does not have them.

Where one can be shown in this room: by files of the runner's shape beside files of ours about the
same models. The runner's files below are what it writes; see the field's record of each defect.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.interop.dashboard import dashboard
from tests.interop.support import failed, own_key, passed, put, table
from torchstone.interop.dynamo_csv import DYNAMO_CSV
from torchstone.records import CaseMetrics, Outcome, PlannedCase, Run, RunView

STEM = "inductor_no_cudagraphs_huggingface_float32_inference_cpu"
SPEEDUPS = {"a": 2.0, "b": 2.0, "c": 0.5}


def medians(case: CaseMetrics) -> tuple[float, float]:
    return SPEEDUPS[case.key.model] * 1e6, 1e6


def view_of(*cases: CaseMetrics, planned: tuple[str, ...] = ()) -> RunView:
    keys = [*(case.key for case in cases), *(own_key(name, scale="full") for name in planned)]
    return RunView(Run("x", "", (), tuple(PlannedCase(key, "") for key in keys)), cases)


def ok(model: str) -> CaseMetrics:
    return passed(own_key(model, scale="full"))


def crash(model: str) -> CaseMetrics:
    return failed(own_key(model, scale="full"), Outcome.CRASH, "SIGSEGV")


def runner_files(folder: Path, *, without: str = "") -> list[Path]:
    """What the runner leaves of the three models; one whose process died leaves nothing."""
    models = [name for name in SPEEDUPS if name not in without]
    speed = "".join(f"cpu,{name},8,{SPEEDUPS[name]:.6f},1.0\n" for name in models)
    answer = "".join(f"cpu,{name},1,pass\n" for name in models)
    return put(
        folder,
        {
            f"{STEM}_performance.csv": f"dev,name,batch_size,speedup,abs_latency\n{speed}".encode(),
            f"{STEM}_accuracy.csv": f"dev,name,batch_size,accuracy\n{answer}".encode(),
        },
    )


def test_a_crash_is_a_row_and_counts(tmp_path: Path) -> None:
    """Theirs: a model that segfaults leaves no row, and the pass rate is of the survivors."""
    (theirs,) = dashboard(DYNAMO_CSV.read(runner_files(tmp_path, without="c")).view)
    assert (theirs.pass_count, theirs.total_count) == (2, 2), "the defect, as it is"

    view = view_of(ok("a"), ok("b"), crash("c"))
    (ours,) = dashboard(view, medians)
    assert (ours.pass_count, ours.total_count) == (2, 3)
    for name, data in DYNAMO_CSV.write(view, medians).items():
        assert [row[1] for row in table(data)[1:]] == ["a", "b", "c"], name


def test_what_was_planned_and_never_run_is_in_the_denominator() -> None:
    """Theirs: a run that is cut off has the rows that it came to."""
    (ours,) = dashboard(view_of(ok("a"), planned=("b", "c")), medians)
    assert (ours.pass_count, ours.total_count) == (1, 3)


def test_two_exported_runs_have_the_same_rows_whatever_failed() -> None:
    """Theirs: averages shift when models fail, and nothing says over which they were taken.

    A geometric mean can rise because a slow model crashed. Ours still can, for whoever takes the
    dashboard's mean; but the rows are the same, so the models in common can be found.
    """
    before = view_of(ok("a"), ok("b"), ok("c"))
    after = view_of(ok("a"), ok("b"), crash("c"))
    means = [dashboard(view, medians)[0].geomean for view in (before, after)]
    assert means == [pytest.approx(math.pow(2.0, 1 / 3)), pytest.approx(2.0)]
    names = [
        [row[1] for row in table(DYNAMO_CSV.write(view, medians)[f"{STEM}_accuracy.csv"])]
        for view in (before, after)
    ]
    assert names[0] == names[1]


def test_memory_is_in_bytes_of_this_world() -> None:
    """Theirs: on the CPU, a percentage is used as a ratio, so that 0.78 GB reads as 73 "GB"."""
    case = passed(own_key("a", scale="full"), base_tensor_bytes=512 * 2**20, new_tensor_bytes=2**28)
    header, row = table(DYNAMO_CSV.write(view_of(case), medians)[f"{STEM}_performance.csv"])
    cells = dict(zip(header, row, strict=True))
    assert float(cells["eager_peak_mem"]) * 1e9 == 512 * 2**20
    assert float(cells["dynamo_peak_mem"]) * 1e9 == 2**28
    assert float(cells["compression_ratio"]) == 2.0


def test_a_file_with_the_factor_of_100_is_marked_and_never_becomes_a_peak_of_ours(
    tmp_path: Path,
) -> None:
    text = "dev,name,batch_size,speedup,dynamo_peak_mem\ncpu,a,8,1.7,73.1\n"
    imported = DYNAMO_CSV.read(put(tmp_path, {f"{STEM}_performance.csv": text.encode()}))
    assert any("100 times too large" in note for note in imported.notes)
    (case,) = imported.cases
    assert case.new_tensor_bytes is None
    assert case.foreign[0].cell("dynamo_peak_mem") == "73.1"


def test_the_accuracy_tables_compile_time_is_not_taken_for_the_other(tmp_path: Path) -> None:
    """Theirs: one column name, two quantities (five calls' wall time; the compiler's own clock)."""
    imported = DYNAMO_CSV.read(
        put(
            tmp_path,
            {
                f"{STEM}_performance.csv": b"dev,name,speedup,compilation_latency\ncpu,a,1.5,40\n",
                f"{STEM}_accuracy.csv": b"dev,name,accuracy,compilation_latency\ncpu,a,pass,17\n",
            },
        )
    )
    assert dashboard(imported.view)[0].compilation_latency == 40.0
    (tmp_path / f"{STEM}_performance.csv").write_text("dev,name,speedup\ncpu,a,1.5\n")
    assert dashboard(DYNAMO_CSV.read([tmp_path]).view)[0].compilation_latency is None
    header, *_ = table(DYNAMO_CSV.write(view_of(ok("a")), medians)[f"{STEM}_accuracy.csv"])
    assert "compilation_latency" not in header


def test_the_answer_that_was_checked_is_the_one_that_was_timed() -> None:
    """Theirs: accuracy is another run, at another batch size and with TF32 off.

    Ours has one case for both: what its accuracy row says and what its performance row says were
    seen in the same processes, so that a wrong answer has no speed.
    """
    wrong = failed(own_key("a", scale="full"), Outcome.WRONG_ANSWER, "cosine 0.4")
    files = DYNAMO_CSV.write(view_of(wrong), medians)
    speed = table(files[f"{STEM}_performance.csv"])
    answer = table(files[f"{STEM}_accuracy.csv"])
    assert dict(zip(*speed, strict=True))["speedup"] == "0.0"
    assert dict(zip(*answer, strict=True))["accuracy"] == "fail_accuracy"
    assert (
        dict(zip(*speed, strict=True))["torchstone_case"]
        == (dict(zip(*answer, strict=True))["torchstone_case"])
    )


def test_a_rerun_is_not_counted_twice(tmp_path: Path) -> None:
    """Theirs: with `--only`, failed and later rows pile up in one table."""
    text = "dev,name,batch_size,speedup\ncpu,a,0,0.0\ncpu,a,8,2.0\n"
    paths = runner_files(tmp_path)
    paths[0].write_text(text + "cpu,b,8,2.0\ncpu,c,8,0.5\n")
    (row,) = dashboard(DYNAMO_CSV.read(paths).view)
    assert (row.pass_count, row.total_count) == (3, 3)
    assert row.geomean == pytest.approx(math.pow(2.0, 1 / 3))
