"""Runs made up for the tests of `show`: no clock, a fixed seed, every outcome there is."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torchstone import stats
from torchstone.records import (
    FOREIGN_DEFINITION,
    CaseKey,
    CaseMetrics,
    ForeignMetrics,
    GitState,
    Level,
    Outcome,
    PlannedCase,
    Run,
    RunView,
    SuiteSummary,
    Verdict,
)

from .synthetic_result import HOSTILE, MIB, method

HF = ("AlbertForMaskedLM", "BertForMaskedLM", "BlenderbotForConditionalGeneration", "GoogleFnet")
TIMM = ("mobilenetv3_large_100", "ghostnet_100", "convnextv2_nano.fcmae_ft_in22k_in1k")
CRASH = "first call: the worker died of SIGSEGV while inductor compiled the first graph"
WIDE_NAMES = ("双语模型-大规模预训练", "größe_модель", "名" * 60, "a" * 200)
PREFIX = {"huggingface": "hf"}


def key(model: str = "BertForMaskedLM", **changes: Any) -> CaseKey:
    made = CaseKey(
        "huggingface", model, "small", "inference", "fp32", "inductor", threads=1, allocator="keep"
    )
    return replace(made, **changes)


def ok(of: CaseKey, speedup: float = 1.32, half: float = 0.03, **changes: Any) -> CaseMetrics:
    """A case that passed; `half` is half of its interval."""
    error = half / speedup / 2.2
    base = 12.3e6
    verdict = Verdict.FASTER if speedup - half > 1 else Verdict.SLOWER
    made = CaseMetrics(
        key=of,
        outcome=Outcome.OK,
        result_id="8d2k1f",
        speedup=speedup,
        interval=(speedup - half, speedup + half),
        log_error=error,
        log_freedom=9.0,
        verdict=verdict if abs(speedup - 1) > half else Verdict.SAME,
        base_ns=base,
        new_ns=base / speedup,
        compile_cold_ns=12_100_000_000,
        compile_warm_ns=2_300_000_000,
        base_tensor_bytes=210 * MIB,
        new_tensor_bytes=200 * MIB,
        base_peak_bytes=220 * MIB,
        new_peak_bytes=275 * MIB,
        base_overhead_bytes=10 * MIB,
        new_overhead_bytes=43 * MIB,
        base_faults=16_236.0,
        new_faults=10_356.0,
        graphs=1,
        graph_breaks=0,
        recompiles=0,
        late_recompiles=0,
        flops=12_345_678,
        flops_covered=0.93,
        agreement="fp64",
        error_ratio=1.02,
        outputs_checked=24,
        worst_check=Level.OK,
        replicates=4,
        elapsed_s=31.5,
        command=command(of),
    )
    return replace(made, **changes)


def bad(of: CaseKey, outcome: Outcome, reason: str, arm: str = "inductor") -> CaseMetrics:
    if outcome in (Outcome.NOT_RUN, Outcome.NOT_SUPPORTED):
        return CaseMetrics(of, outcome, reason)
    return CaseMetrics(
        of, outcome, reason, arm, "x1y2z3", command=command(of), worst_check=Level.NOTE
    )


def target(of: CaseKey) -> str:
    scale = f"@{of.scale}" if of.scale else ""
    return f"{PREFIX.get(of.suite, of.suite)}:{of.model}{scale}"


def command(of: CaseKey) -> tuple[str, ...]:
    words = ("torchstone", "bench", target(of), "--vs", of.variant, "--mode", of.mode)
    return (*words, "--threads", "1", "--replicates", "4", "--budget", "20s")


def view(
    cases: Sequence[CaseMetrics], started: Sequence[CaseMetrics] | None = None, **run: Any
) -> RunView:
    """A run of these cases; `started` are those with figures (default: all)."""
    made = Run(
        id="1jz3k4m",
        created="2026-11-15T20:30:00+00:00",
        command=("torchstone", "run"),
        plan=tuple(PlannedCase(case.key, target(case.key)) for case in cases),
        label="nightly",
        machine_id="m-0123",
        machine="Intel(R) Xeon(R) Platinum 8370C CPU @ 2.80GHz",
        torch="2.13.0+cpu",
        git=GitState("0123456789abcdef", "main", True),
        tier="quick",
        method=method(),
        notes=("one thread, because this machine has 2 cores (--threads changes it)",),
        version="0.1.0",
    )
    return RunView(replace(made, **run), tuple(cases if started is None else started))


def summaries(of: RunView) -> list[SuiteSummary]:
    return stats.summarise(of.complete)


def small() -> RunView:
    """Three cases that passed, one of each verdict but the last."""
    return view(
        [
            ok(key("AlbertForMaskedLM"), 1.32, 0.03),
            ok(key("GoogleFnet"), 1.004, 0.012),
            ok(
                key("ghostnet_100", suite="timm"),
                0.9,
                0.02,
                checks=("allocator", "noise"),
                worst_check=Level.WARN,
                graph_breaks=2,
            ),
        ]
    )


def every_outcome() -> RunView:
    """One case for each outcome, and one that was never started."""
    cases = [ok(key("AlbertForMaskedLM"))]
    reasons = {
        Outcome.WRONG_ANSWER: "contract: output.logits: expected float32[8,128], got bfloat16",
        Outcome.NONDETERMINISTIC: "two runs of the same input differ by 3.1e-3",
        Outcome.ERROR: "building: ValueError: bad\nvalue",
        Outcome.CRASH: CRASH,
        Outcome.OOM: "warm-up: killed at 7.9 GiB",
        Outcome.TIMEOUT: "a step: no step finished within 60 s",
        Outcome.NOT_SUPPORTED: "cudagraphs needs a CUDA device.",
        Outcome.NOT_RUN: "the total budget was spent",
    }
    for number, (outcome, reason) in enumerate(reasons.items()):
        arm = "eager" if outcome is Outcome.ERROR else "inductor"
        cases.append(bad(key(f"model_{number}"), outcome, reason, arm))
    never = CaseMetrics(key("never"), Outcome.NOT_RUN, "not started")
    return view([*cases, never], cases)


def nightly(count: int = 60) -> RunView:
    """Many models, two modes, three variants; most pass."""
    rng = random.Random(7)
    cases: list[CaseMetrics] = []
    models = [("huggingface", m) for m in HF] + [("timm", m) for m in TIMM]
    models += [("torchbench", m) for m in ("dcgan", "nanogpt", "lennard_jones")]
    for suite, model in models:
        for mode in ("inference", "training"):
            for variant in ("inductor", "inductor+dynamic", "inductor+cudagraphs"):
                of = key(model, suite=suite, mode=mode, variant=variant)
                cases.append(_drawn(of, rng))
    return view(cases[:count], cases[: count - 5], tier="full", notes=())


def _drawn(of: CaseKey, rng: random.Random) -> CaseMetrics:
    if of.variant.endswith("cudagraphs"):
        return bad(of, Outcome.NOT_SUPPORTED, "cudagraphs needs a CUDA device.")
    lot = rng.random()
    if lot < 0.06:
        return bad(of, Outcome.CRASH, CRASH)
    if lot < 0.1:
        return bad(of, Outcome.TIMEOUT, "a step: no step finished within 60 s")
    speedup = math.exp(rng.gauss(0.15, 0.15))
    half = speedup * rng.choice((0.004, 0.01, 0.03, 0.08))
    base = math.exp(rng.uniform(math.log(2e6), math.log(4e8)))
    rules = ("allocator",) if lot < 0.4 else ()
    return ok(
        of,
        speedup,
        half,
        base_ns=base,
        new_ns=base / speedup,
        compile_cold_ns=int(rng.uniform(2e9, 60e9)),
        new_tensor_bytes=int(rng.uniform(150, 260) * MIB),
        graph_breaks=rng.choice((0, 0, 0, 1, 12)),
        checks=rules,
        worst_check=Level.WARN if rules else Level.OK,
    )


def mixed() -> RunView:
    """Groups that differ in every setting."""
    return view(
        [
            ok(key("AlbertForMaskedLM")),
            ok(key("AlbertForMaskedLM", precision="amp", mode="training"), 1.5, 0.2),
            ok(key("dcgan", suite="my_suite", scale="", threads=2, device="cuda"), 2.0, 0.01),
            ok(
                key("dcgan", suite="my_suite", scale="", variant="inductor+max-autotune"), 31.0, 1.0
            ),
        ]
    )


def hostile() -> RunView:
    """Names, reasons, labels and notes that would like to be something else."""
    cases = [
        ok(key(name, suite=HOSTILE[i % len(HOSTILE)]), checks=(HOSTILE[1],), worst_check=Level.FAIL)
        for i, name in enumerate((*HOSTILE, *WIDE_NAMES))
    ]
    cases += [bad(key(f"{name}-x"), Outcome.CRASH, name * 3, name) for name in HOSTILE]
    cases += [bad(key(f"{name}-y"), Outcome.NOT_SUPPORTED, name) for name in HOSTILE]
    cases += [bad(key(f"{name}-z"), Outcome.NOT_RUN, name) for name in HOSTILE]
    return view(
        cases,
        label=HOSTILE[1],
        notes=HOSTILE,
        machine=HOSTILE[2],
        tier=HOSTILE[0],
        torch=HOSTILE[3],
    )


def nothing() -> RunView:
    """Planned and never started."""
    made = small()
    return RunView(made.run, ())


def imported() -> RunView:
    """Another tool's figures, under its own names and in its own definition."""
    columns = ("dev", "name", "batch_size", "speedup", "abs_latency", "strange=column")
    rows = {"BertForMaskedLM": ("1.7493123", "84.5"), "GoogleFnet": ("0.0", "nan")}
    cases = []
    for model, cells in rows.items():
        row = ("cpu", model, "8", *cells, "=1")
        figures = ForeignMetrics(
            "dynamo-csv", "pytorch-dynamo", "performance", "inductor.csv", 2, columns, row
        )
        outcome = Outcome.OK if model == "BertForMaskedLM" else Outcome.ERROR
        made = CaseMetrics(key(model), outcome, foreign=(figures,), definition=FOREIGN_DEFINITION)
        cases.append(made)
    return view(cases, origin="dynamo-csv", method=None, notes=(), machine="", git=None, tier="")


ALL = {
    "small": small,
    "every_outcome": every_outcome,
    "nightly": nightly,
    "mixed": mixed,
    "hostile": hostile,
    "nothing": nothing,
    "imported": imported,
}
