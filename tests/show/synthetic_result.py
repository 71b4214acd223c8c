"""Results made up for the tests of `show`: no clock, a fixed seed, every corner a report has."""

from __future__ import annotations

import random

from torchstone.records import (
    Agreement,
    ArmSpec,
    Check,
    Comparison,
    CompileCost,
    Contract,
    Environment,
    Estimate,
    Graphs,
    Leaf,
    Level,
    Measurement,
    Memory,
    Method,
    Noise,
    Outcome,
    OutcomeDetail,
    Replicate,
    Result,
    Statement,
    Turn,
    Verdict,
    WarmUp,
)

MIB = 1024 * 1024
HOSTILE = (
    "<script>alert(1)</script>",
    "red\x1b[31m\x1b]0;owned\x07name",
    "two\nlines|and `ticks` @someone\u202egnp",
    "long" * 75,
)


def environment() -> Environment:
    return Environment(
        machine_id="m-0123",
        cpu={"model": "Intel(R) Xeon(R) Platinum 8370C CPU @ 2.80GHz", "logical_cores": "2"},
        caches={"L3": 48 * MIB},
        memory_bytes=8 * 1024 * MIB,
        os={"system": "Linux", "release": "6.8.0"},
        python={"version": "3.11.7", "implementation": "CPython"},
        torch={"version": "2.13.0+cpu"},
        threads={"torch": 2},
    )


def turns(
    step_s: float, *, seed: int, processes: int = 3, per_process: int = 8, samples: int = 12
) -> tuple[Turn, ...]:
    """One-sided noise above a floor, as on a shared machine."""
    rng = random.Random(seed)
    made = []
    for process in range(processes):
        base = step_s * (1 + rng.gauss(0, 0.001))
        for index in range(per_process):
            wall = tuple(int(base * 1e9 * (1 + rng.expovariate(14))) for _ in range(samples))
            made.append(
                Turn(
                    replicate=process,
                    index=index,
                    wall_ns=wall,
                    cpu_ns=wall,
                    probe_ns=tuple(int(9e4 * (1 + rng.expovariate(30))) for _ in range(4)),
                    probe_every=4,
                    first_ns=int(base * 1.3e9),
                    minor_faults=30 * samples,
                    major_faults=0,
                    noise=Noise(
                        wall_ns=sum(wall),
                        cpu_ns=int(sum(wall) * 1.9),
                        wait_ns=20_000,
                        involuntary_switches=2,
                        steal_ns=None,
                        quiet_after_ns=3_000_000,
                    ),
                )
            )
    return tuple(made)


def arm(
    name: str = "eager", step_s: float = 1.234e-3, *, seed: int = 1, variant: str = "eager"
) -> Measurement:
    leaf = Leaf("x", "torch", "float32", (64, 1000))
    return Measurement(
        arm=ArmSpec(name=name, target="examples/two_layer.py:make", variant=variant),
        outcome=Outcome.OK,
        turns=turns(step_s, seed=seed),
        replicates=tuple(
            Replicate(i, 900_000_000, WarmUp(5_000_000, (2_000_000,), True)) for i in range(3)
        ),
        contract=Contract(inputs=(leaf,), outputs=(leaf,), parameters=101_000),
        agreement=Agreement("fp64", rmse=1e-7, rmse_baseline=1e-7, checked=24, timed=20),
        environment=environment(),
        memory=_memory(12, 10, 1),
        graphs=Graphs(),
    )


def _memory(process: int, tensors: int, overhead: int) -> Memory:
    return Memory(
        "VmHWM",
        peak_bytes=process * MIB,
        step_peak_bytes=2 * MIB,
        tensor_peak_bytes=tensors * MIB,
        tensor_held_bytes=3 * MIB,
        overhead_bytes=overhead * MIB,
    )


def compiled(name: str = "inductor", step_s: float = 0.812e-3) -> Measurement:
    made = arm(name, step_s, seed=2, variant="inductor")
    return _with(
        made,
        compile=CompileCost(12_100_000_000, 2_300_000_000, 7_000_000_000, 12_200_000_000, 812_000),
        memory=_memory(31, 5, 25),
        graphs=Graphs(graphs=1),
    )


def failed(
    name: str, outcome: Outcome, detail: OutcomeDetail, *, with_samples: bool = False
) -> Measurement:
    made = arm(name, 0.4e-3, seed=5, variant=name)
    if with_samples:
        return _with(made, outcome=outcome, detail=detail)
    return _with(
        made, outcome=outcome, detail=detail, turns=(), replicates=(), memory=None, agreement=None
    )


def _with(measurement: Measurement, **changes: object) -> Measurement:
    from dataclasses import replace

    return replace(measurement, **changes)  # type: ignore[arg-type]


def comparison(
    base: str, new: str, ratio: float, half: float, verdict: Verdict, reason: str = ""
) -> Comparison:
    ends = (ratio - half, ratio + half)
    return Comparison(
        base=base,
        new=new,
        verdict=verdict,
        decided_by="floor",
        time_ratio=ratio,
        interval=ends,
        floor=Estimate("floor", ratio, ends, 0.95, 3),
        typical=Estimate("typical", ratio * 1.01, (ends[0] * 0.97, ends[1] * 1.03), 0.95, 3),
        smallest_detectable=half,
        reason=reason,
    )


def method(**changes: object) -> Method:
    from dataclasses import replace

    made = Method(
        budget_s=30.0,
        within=0.01,
        margin=0.02,
        seed=0,
        step_timeout_s=60.0,
        build_timeout_s=600.0,
        replicates=3,
        looks=(3,),
        stopped_by="precision",
        elapsed_s=14.2,
        estimator="floor",
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def ok_checks(count: int = 7) -> tuple[Check, ...]:
    return tuple(Check(f"R{i:02d}", Level.OK, "fine") for i in range(count))


def result(
    arms: tuple[Measurement, ...],
    comparisons: tuple[Comparison, ...] = (),
    checks: tuple[Check, ...] = ok_checks(),
    **changes: object,
) -> Result:
    from dataclasses import replace

    made = Result(
        id="r7k2m9",
        created="2026-11-15T20:30:00Z",
        command=("torchstone", "bench", "examples/two_layer.py:make"),
        arms=arms,
        comparisons=comparisons,
        checks=checks,
        method=method(),
        version="0.1.0",
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def single() -> Result:
    return result((arm(),))


def two_faster() -> Result:
    return result(
        (arm(), compiled()),
        (comparison("eager", "inductor", 0.658, 0.006, Verdict.FASTER),),
        (
            *ok_checks(),
            Check(
                "page-faults",
                Level.WARN,
                "inductor takes 30 minor faults a call, eager 300; about 4 % of the difference is "
                "the allocator. Repeat with --allocator keep.",
                {"share": 0.04},
                ("inductor",),
            ),
            Check("noise", Level.NOTE, "31 % of the probes ran on a slow core."),
        ),
    )


def four_with_failures() -> Result:
    crash = OutcomeDetail(
        message="the worker died",
        phase="first call",
        signal="SIGSEGV",
        exit_code=-11,
        stderr=(
            "Fatal Python error: Segmentation fault",
            "  File \x1b[1m'model.py'\x1b[0m, line 9",
        ),
        remedy="Run `torchstone repro` under a debugger, or leave this variant out.",
    )
    timeout = OutcomeDetail(
        message="no step finished within 60 s",
        phase="step",
        signal="SIGKILL",
        exit_code=-9,
        remedy="Give it longer with --timeout.",
    )
    wrong = OutcomeDetail(
        message="output.logits: expected float32[8,128], got bfloat16[8,128]", phase="contract"
    )
    return result(
        (
            arm(),
            failed("inductor", Outcome.CRASH, crash),
            failed("jit-trace", Outcome.TIMEOUT, timeout),
            failed("half", Outcome.WRONG_ANSWER, wrong, with_samples=True),
        ),
        (),
        (
            *ok_checks(),
            Check("contract", Level.FAIL, "half does not keep the contract.", {}, ("half",)),
        ),
    )


def cannot_tell() -> Result:
    return result(
        (arm(), arm("channels_last", 1.22e-3, seed=7)),
        (
            comparison(
                "eager",
                "channels_last",
                0.99,
                0.031,
                Verdict.CANNOT_TELL,
                "The interval is wider than the margin.",
            ),
        ),
    )


def statement() -> Result:
    made = arm("'-'.join(map(str, range(100)))", 50 * 8.2e-6, seed=9)
    made = _with(
        made,
        arm=ArmSpec(name=made.arm.name, statement=Statement(made.arm.name)),
        loops=50,
        contract=None,
        agreement=None,
        memory=None,
        graphs=None,
    )
    return result((made,), (), (*ok_checks(3),), kind="timeit")


def no_samples() -> Result:
    detail = OutcomeDetail(message="interrupted before the first turn", phase="warm-up")
    return result(
        (failed("eager", Outcome.NOT_RUN, detail),), (), (), method=method(stopped_by="interrupt")
    )


def hostile() -> Result:
    arms = tuple(arm(name, 1e-3 * (i + 1), seed=i) for i, name in enumerate(HOSTILE))
    comparisons = tuple(
        comparison(HOSTILE[0], name, float(i + 2), 0.01, Verdict.SLOWER)
        for i, name in enumerate(HOSTILE[1:])
    )
    checks = (Check("na\x1b[2Jme", Level.WARN, f"look: {HOSTILE[1]} {HOSTILE[3]}", {}, HOSTILE),)
    return result(arms, comparisons, checks, label=HOSTILE[1])


ALL = {
    "single": single,
    "two_faster": two_faster,
    "four_with_failures": four_with_failures,
    "cannot_tell": cannot_tell,
    "statement": statement,
    "no_samples": no_samples,
    "hostile": hostile,
}
