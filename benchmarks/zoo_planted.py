"""Bad measurements: one fault each, planted into the stored record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from zoo_bad_roofs import planted_in_roofs
from zoo_entry import Entry
from zoo_record import (
    EAGER_S,
    eager,
    inductor,
    result,
    surroundings,
    with_noise,
    with_turns,
)

from torchstone.records import (
    Agreement,
    Graphs,
    Integrity,
    Measurement,
    Remeasurement,
    Result,
    Statement,
    Turn,
    TwoClocks,
    Verdict,
)


def planted() -> tuple[Entry, ...]:
    """All of them."""
    return (*planted_in_roofs(), *_machine(), *_arms(), *_clock_and_settings(), *_claims())


def _noisy(**shares: float) -> Result:
    """The compiled arm with counters, as shares of the wall time, in all turns."""
    made = with_noise(
        inductor(), lambda noise: {k: round(v * noise.wall_ns) for k, v in shares.items()}
    )
    return result(eager(), made)


def _first_samples(arm: Measurement, times: float) -> Measurement:
    return with_turns(
        arm,
        lambda t: {"wall_ns": (round(times * t.wall_ns[0]), *t.wall_ns[1:])} if not t.index else {},
    )


def _machine() -> tuple[Entry, ...]:
    def slow_core() -> Result:
        arm = with_turns(
            inductor(), lambda t: {"probe_ns": tuple(p * (1 + i) for i, p in enumerate(t.probe_ns))}
        )
        return result(eager(), arm)

    def warmed(**changes: Any) -> Result:
        arm = inductor()
        warm = replace(arm.replicates[0].warm_up, **changes)
        return result(
            eager(),
            replace(arm, replicates=tuple(replace(r, warm_up=warm) for r in arm.replicates)),
        )

    few = replace(inductor(), turns=tuple(t for t in inductor().turns if t.replicate < 2))
    return (
        Entry("waiting for a core", lambda: _noisy(wait_ns=0.3), "inductor", ("noise:warn",)),
        Entry(
            "the hypervisor took the core",
            lambda: _noisy(steal_ns=0.2),
            "inductor",
            ("noise:warn",),
        ),
        Entry(
            "other tasks under pressure",
            lambda: _noisy(pressure_ns=0.7),
            "inductor",
            ("noise:warn",),
        ),
        Entry(
            "a throttled control group",
            lambda: _noisy(throttled_ns=0.1),
            "inductor",
            ("noise:warn",),
        ),
        Entry("a core that ran slow", slow_core, "inductor", ("probe:warn",)),
        Entry(
            "not settled when timing began",
            lambda: warmed(steady=False, reason="still compiling"),
            "inductor",
            ("steady:warn",),
        ),
        Entry("no warm-up at all", lambda: warmed(wall_ns=()), "inductor", ("steady:warn",)),
        Entry(
            "the first call timed with the rest",
            lambda: result(eager(), _first_samples(inductor(), 4000)),
            "inductor",
            ("steady:warn",),
        ),
        Entry("two processes only", lambda: result(eager(), few), wanted=("replicates:warn",)),
    )


def _arms() -> tuple[Entry, ...]:
    def bad(**changes: Any) -> Result:
        return result(eager(), inductor(**changes))

    def output(**changes: str) -> Result:
        contract = inductor().contract
        assert contract is not None
        leaf = replace(contract.outputs[0], **changes)
        return bad(contract=replace(contract, outputs=(leaf,)))

    def watched(name: str) -> Result:
        return bad(integrity=Integrity(profilers=(name,)))

    late = {"late_cpu_ns": 80_000_000, "quiet_after_ns": 90_000_000}
    faults = with_turns(eager(), lambda t: {"minor_faults": 800 * len(t.wall_ns)})
    fail = "profiler:fail"
    return (
        Entry(
            "an answer remembered",
            lambda: bad(integrity=Integrity(same_input_ns=30_000, fresh_input_ns=1_100_000)),
            "inductor",
            ("fresh-inputs:fail",),
        ),
        Entry(
            "work after the clock had stopped",
            lambda: result(eager(), with_noise(inductor(), lambda n: late)),
            "inductor",
            ("late-work:fail",),
        ),
        Entry(
            "a replaced timer",
            lambda: bad(integrity=Integrity(patched_timers=("time.perf_counter_ns",))),
            "inductor",
            ("timer:fail",),
        ),
        Entry(
            "an output without values",
            lambda: output(device="meta"),
            "inductor",
            ("plain-output:fail",),
        ),
        Entry(
            "a lazy tensor",
            lambda: output(type_name="mine.Lazy"),
            "inductor",
            ("plain-output:fail",),
        ),
        Entry(
            "outputs that nobody checked",
            lambda: bad(agreement=Agreement("none", "no tensors")),
            "inductor",
            ("output-check:warn",),
        ),
        Entry(
            "a check that anything passes",
            lambda: bad(agreement=Agreement("fp64", "", 1e-4, 3.0, 0.1, 0.4, 1.0, 4, 3)),
            "inductor",
            ("output-check:warn",),
        ),
        Entry(
            "an output that ignores its input",
            lambda: bad(notes=("the output does not depend on the input",)),
            "inductor",
            ("constant-output:fail",),
        ),
        Entry("a profiler left on", lambda: watched("torch.profiler"), "inductor", (fail,)),
        Entry(
            "operations counted while timed",
            lambda: watched("dispatch mode FlopCounterMode"),
            "inductor",
            (fail,),
        ),
        Entry(
            "compiled again while timed",
            lambda: bad(graphs=Graphs(graphs=3, recompiles=2, late_recompiles=2)),
            "inductor",
            ("recompiles:warn",),
        ),
        Entry(
            "memory given back and taken again",
            lambda: result(replace(faults, fault_cost_ns=250.0), inductor()),
            "inductor",
            ("allocator:warn",),
        ),
        Entry(
            "wall time against CPU time",
            lambda: result(
                eager(flops=None, agreement=None, target="", statement=Statement("f()")),
                inductor(
                    flops=None,
                    agreement=None,
                    target="",
                    variant="eager",
                    statement=Statement("g()", clock="cpu"),
                ),
            ),
            "inductor",
            ("definition:fail",),
        ),
    )


def _clock_and_settings() -> tuple[Entry, ...]:
    """A clock that does not tell the time, and settings that the arm changed."""

    def slow(turn: Turn) -> dict[str, Any]:
        claimed = turn.first_ns + sum(turn.wall_ns) + sum(turn.probe_ns)
        return {"clocks": TwoClocks(claimed, 10 * claimed, claimed, claimed)}

    def growing(turn: Turn) -> dict[str, Any]:
        return {"resident_bytes": (1 << 30) + turn.index * (100 << 20)}

    def seen(**changes: Any) -> Result:
        arm = inductor(integrity=Integrity(**changes))
        return result(eager(), replace(arm, arm=replace(arm.arm, threads=2)))

    def crowded() -> Result:
        here = surroundings(threads={"torch": 8}, cpu={**surroundings().cpu, "affinity": "2"})
        return result(eager(), inductor(threads=8, environment=here))

    def turned(change: Callable[[Turn], dict[str, Any]]) -> Result:
        return result(eager(), with_turns(inductor(), change))

    return (
        Entry("a clock at a tenth", lambda: turned(slow), "inductor", ("second-clock:fail",)),
        Entry("memory kept at each call", lambda: turned(growing), "inductor", ("leak:warn",)),
        Entry(
            "threads set by the model",
            lambda: seen(threads_seen=(2, 4)),
            "inductor",
            ("thread-change:warn",),
            also=("alike",),
        ),
        Entry(
            "8 threads on 2 cores",
            crowded,
            "inductor",
            ("threads:warn",),
            also=("alike",),
        ),
        Entry(
            "every kernel waited for",
            lambda: seen(debug_settings=("CUDA_LAUNCH_BLOCKING",)),
            "inductor",
            ("debug:warn",),
            also=("alike",),
        ),
    )


def _claims() -> tuple[Entry, ...]:
    base = surroundings()

    def elsewhere(**changes: Any) -> Result:
        return result(eager(), inductor(environment=replace(base, **changes)))

    def looked(speedup: float | None, outcome: str = "ok") -> Result:
        ends = None if speedup is None else (0.97 / speedup, 1.03 / speedup)
        second = Remeasurement(
            "eager", "inductor", 7919, 14.0, speedup, ends, outcome, "it differs"
        )
        return result(eager(flops=None), inductor(1e-4, flops=None), remeasurements=(second,))

    def twin(verdict: Verdict, ratio: float, name: str, aa_floor: float) -> Result:
        made = result(eager(), eager(EAGER_S, "twin") if name == "twin" else inductor())
        said = replace(
            made.comparisons[0],
            verdict=verdict,
            time_ratio=ratio,
            interval=(ratio, ratio),
            aa_floor=aa_floor,
        )
        return replace(made, comparisons=(said,))

    method = result().method
    return (
        Entry(
            "another machine",
            lambda: elsewhere(machine_id="m-2"),
            "inductor",
            ("alike:fail",),
            ("peak:warn",),
        ),
        Entry(
            "another build of torch",
            lambda: elsewhere(torch={"version": "2.12.0"}),
            "inductor",
            ("alike:warn",),
        ),
        Entry(
            "other thread counts",
            lambda: result(
                eager(threads=None),
                inductor(threads=None, environment=replace(base, threads={"torch": 2})),
            ),
            "inductor",
            ("alike:warn",),
        ),
        Entry(
            "another definition",
            lambda: result(method=replace(method, definition=7)),
            wanted=("definition:fail",),
        ),
        Entry(
            "14 times as fast, not confirmed",
            lambda: replace(looked(14.0), remeasurements=()),
            "inductor",
            ("too-good:fail",),
        ),
        Entry(
            "14 times as fast, then 4 times", lambda: looked(4.0), "inductor", ("too-good:fail",)
        ),
        Entry(
            "14 times as fast, then wrong",
            lambda: looked(None, "wrong_answer"),
            "inductor",
            ("too-good:fail",),
        ),
        Entry(
            "3 times as fast as a compiler",
            lambda: result(inductor(EAGER_S, flops=None), eager(EAGER_S / 3, "mine", flops=None)),
            "mine",
            ("too-good:warn",),
        ),
        Entry(
            "identical arms called different",
            lambda: twin(Verdict.FASTER, 0.93, "twin", 0.005),
            "twin",
            ("identical:fail",),
        ),
        Entry(
            "an effect no larger than the A/A floor",
            lambda: twin(Verdict.FASTER, 0.97, "inductor", 0.02),
            "inductor",
            ("identical:warn",),
        ),
    )
