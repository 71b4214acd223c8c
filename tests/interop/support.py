"""Files of the runner's shape, and runs of ours, as the tests of this room need them."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchstone.interop import Imported
from torchstone.interop.dynamo_csv import DYNAMO_CSV
from torchstone.interop.hud_v3 import HUD_V3
from torchstone.records import (
    CaseKey,
    CaseMetrics,
    ForeignMetrics,
    Level,
    Outcome,
    PlannedCase,
    Run,
    RunView,
    Verdict,
)

FIXTURES = Path(__file__).parent / "fixtures"
HUGGINGFACE = "inductor_no_cudagraphs_huggingface_bfloat16_inference_cuda"
TIMM = "inductor_with_cudagraphs_timm_models_amp_training_cuda_a10g"
TORCHBENCH = "inductor_no_cudagraphs_torchbench_float32_inference_cpu_x86"
TABLES = ("performance", "accuracy")

MEDIANS = {"fast": (9.5e6, 5.0e6), "unfit": (4.0e6, 2.0e6), "same": (8.0e6, 8.0e6)}
"""Of the cases that passed, in nanoseconds: baseline, new arm."""


def read_csv(*names: str) -> Imported:
    return DYNAMO_CSV.read([FIXTURES / f"{name}.csv" for name in names])


def read_hud(*names: str) -> Imported:
    return HUD_V3.read([FIXTURES / f"{name}.json" for name in names])


def table(data: bytes) -> list[list[str]]:
    return [row for row in csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")) if row]


def records(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.decode().splitlines()]


def put(folder: Path, files: dict[str, bytes]) -> list[Path]:
    """Write files as `torchstone export` does; gives their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        assert Path(name).name == name
        (folder / name).write_bytes(data)
    return [folder / name for name in files]


def cases_of(imported: Imported) -> dict[str, CaseMetrics]:
    """By model; the models of an import differ in these tests."""
    found = {case.key.model: case for case in imported.cases}
    assert len(found) == len(imported.cases)
    return found


def foreign(imported: Imported) -> list[ForeignMetrics]:
    """Every row that was read and counts, in the order of the cases."""
    return [one for case in imported.cases for one in case.foreign]


def own_key(model: str, **changes: Any) -> CaseKey:
    key = CaseKey("huggingface", model, "small", "inference", "fp32", "inductor", "cpu", 1)
    return replace(key, **changes)


def passed(key: CaseKey, **changes: Any) -> CaseMetrics:
    """A case that was measured to the end."""
    case = CaseMetrics(
        key,
        Outcome.OK,
        result_id="r1",
        speedup=1.87,
        interval=(1.8, 1.95),
        log_error=0.01,
        log_freedom=5.0,
        verdict=Verdict.FASTER,
        base_ns=9.1e6,
        new_ns=4.87e6,
        compile_cold_ns=12_000_000_000,
        compile_warm_ns=3_000_000_000,
        base_tensor_bytes=1_500_000_000,
        new_tensor_bytes=750_000_000,
        graphs=2,
        graph_breaks=1,
        replicates=4,
    )
    return replace(case, **changes)


def failed(key: CaseKey, outcome: Outcome, reason: str, arm: str = "inductor") -> CaseMetrics:
    return CaseMetrics(key, outcome, reason, arm)


def own_view() -> RunView:
    """A run of ours in which every outcome happens; one planned case never started."""
    cases = (
        passed(own_key("fast")),
        passed(own_key("unfit"), worst_check=Level.FAIL, checks=("output-check",)),
        passed(own_key("same", scale="full", mode="training"), compile_cold_ns=None),
        passed(own_key("samples-gone", suite="timm")),
        failed(own_key("wrong"), Outcome.WRONG_ANSWER, "output[0]: cosine 0.4"),
        failed(own_key("dice"), Outcome.NONDETERMINISTIC, "two runs differ", "eager"),
        failed(own_key("raises"), Outcome.ERROR, 'first call: "x", then\ny'),
        failed(own_key("segfault"), Outcome.CRASH, "SIGSEGV in a turn"),
        failed(own_key("base-dies"), Outcome.CRASH, "SIGABRT", "eager"),
        failed(own_key("fat"), Outcome.OOM, "killed"),
        failed(own_key("slow"), Outcome.TIMEOUT, "no step in 60 s"),
        failed(own_key("foreign"), Outcome.NOT_SUPPORTED, "needs CUDA", ""),
    )
    planned = [PlannedCase(case.key, f"hf:{case.key.model}") for case in cases]
    planned.append(PlannedCase(own_key("never"), "hf:never"))
    run = Run("abc123", "2026-11-15T20:00:00+00:00", ("torchstone", "run"), tuple(planned))
    return RunView(replace(run, torch="2.13.0+cpu"), cases)


def medians(case: CaseMetrics) -> tuple[float, float] | None:
    return MEDIANS.get(case.key.model)
