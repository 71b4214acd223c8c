"""Made-up results for the rules: a clean pair of arms, and ways to plant one fault in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.show.synthetic_result import method
from tests.stats import synthetic
from torchstone import stats
from torchstone.records import (
    DRAM,
    Agreement,
    Calibration,
    Check,
    Contract,
    Environment,
    Flops,
    Graphs,
    Integrity,
    Leaf,
    Level,
    Measurement,
    Noise,
    OpWork,
    Peak,
    Result,
    Turn,
)
from torchstone.validate import Rule, known_rules

FAULT_NS = 250.0
MIB = 1 << 20
GIGA = 1e9
PEAK = 100 * GIGA
"""FLOP/s of the made-up machine in fp32."""


CONTRACT = Contract(
    inputs=(Leaf("x", "torch", "float32", (64, 1000), type_name="torch.Tensor"),),
    outputs=(Leaf("output", "torch", "float32", (64, 1000), type_name="torch.Tensor"),),
    parameter_dtypes={"float32": 2_000_000},
)


def environment(**changes: Any) -> Environment:
    made = Environment(
        machine_id="m-1",
        cpu={"logical_cores": "2"},
        caches={"L1d": 32 << 10, "L2": 512 << 10, "L3": 32 * MIB},
        os={"malloc": "system"},
        python={"version": "3.11.7"},
        torch={"version": "2.13.0", "git": "a"},
        threads={"torch": 2},
    )
    return replace(made, **changes)


def arm(name: str = "eager", step: float = 5e-3, seed: int = 1, **changes: Any) -> Measurement:
    """An arm with nothing wrong: quiet turns, full evidence."""
    made = synthetic.measurement(name, step=step, seed=seed, replicates=4, turns=6)
    made = replace(
        made,
        arm=replace(made.arm, **_spec(name)),
        contract=CONTRACT,
        flops=flops(),
        agreement=Agreement("fp64", checked=5, timed=4),
        environment=environment(),
        graphs=Graphs(graphs=1),
        integrity=Integrity(same_input_ns=5_000_000, fresh_input_ns=5_010_000),
        fault_cost_ns=FAULT_NS,
    )
    made = with_noise(
        made,
        lambda turn: {
            "wait_ns": 100_000,
            "steal_ns": 0,
            "pressure_ns": 500_000,
            "throttled_ns": 0,
            "late_cpu_ns": 3_000_000,
            "quiet_after_ns": 4_000_000,
        },
    )
    return replace(made, **changes)


def _spec(name: str) -> dict[str, str]:
    """A variant of one target, its twin, or a target of its own."""
    if name in ("eager", "twin"):
        return {}
    return {"variant": name} if name == "inductor" else {"target": f"model.py:{name}"}


def flops(total: int = 200_000_000, **changes: Any) -> Flops:
    """A step of two matrix products and a ReLU: 40 to 50 % of the peak at 5 to 4 ms."""
    made = Flops(
        total=total,
        by_op={"aten.addmm": total},
        ops=3,
        ops_covered=2,
        time_covered=0.9,
        uncovered=("aten.relu",),
        bytes=12 * MIB,
        least_bytes=8 * MIB,
        heaviest=(
            OpWork("aten.addmm", 2, total, 8 * MIB, 4_300_000),
            OpWork("aten.relu", 1, None, 4 * MIB, 500_000),
        ),
        time_understood=1.0,
        largest_bytes=4 * MIB,
    )
    return replace(made, **changes)


def calibration(**changes: Any) -> Calibration:
    """The peaks of the made-up machine, as they would be measured on it."""
    made = Calibration(
        id="c1",
        machine_id="m-1",
        fingerprint="f",
        created="2026-11-15T20:00:00Z",
        compute=(
            Peak(PEAK / 2, 0.1, 50, dtype="fp32", threads=1),
            Peak(PEAK, 0.1, 50, dtype="fp32", threads=2),
            Peak(PEAK / 50, 0.1, 50, dtype="bf16", threads=2),
        ),
        bandwidth=(
            Peak(200 * GIGA, threads=2, level="L2", array_bytes=128 << 10),
            Peak(100 * GIGA, threads=2, level="L3", array_bytes=8 * MIB),
            Peak(20 * GIGA, threads=2, level=DRAM, array_bytes=128 * MIB),
        ),
        clock=Peak(3.2e9, samples=9),
        nominal_clock_hz=2.4e9,
        costs={"timer": Peak(5e-8), "python-call": Peak(5e-8), "dispatch": Peak(1e-6)},
        last_level_bytes=32 * MIB,
    )
    return replace(made, **changes)


def pair(new: Measurement | None = None, base: Measurement | None = None, **changes: Any) -> Result:
    """A baseline and one arm, compared; nothing wrong unless planted."""
    return result(base or arm(), new or arm("inductor", 4e-3, seed=2), **changes)


def result(*arms: Measurement, **changes: Any) -> Result:
    made = Result(
        id="r1",
        created="2026-11-15T20:30:00Z",
        command=("torchstone", "bench"),
        arms=arms,
        comparisons=stats.compare_all(arms, 0.02, 0.05, 0.0),
        checks=(),
        method=method(),
        calibration=calibration(),
        clocks_hz=(3.2e9, 3.21e9),
    )
    return replace(made, **changes)


def with_noise(made: Measurement, change: Callable[[Turn], dict[str, int | None]]) -> Measurement:
    """The arm with other counters in its turns."""
    turns = (replace(t, noise=replace(t.noise, **change(t))) for t in made.turns)
    return replace(made, turns=tuple(turns))


def share_of(made: Measurement, share: float, counters: dict[str, float]) -> Measurement:
    """Set counters, given as shares of wall time, in that share of the turns."""
    limit = round(share * len(made.turns))
    turns = [
        replace(t, noise=_scaled(t.noise, counters)) if i < limit else t
        for i, t in enumerate(made.turns)
    ]
    return replace(made, turns=tuple(turns))


def _scaled(noise: Noise, counters: dict[str, float]) -> Noise:
    values = {name: round(share * noise.wall_ns) for name, share in counters.items()}
    return replace(noise, **values)  # type: ignore[arg-type]


def rule(name: str) -> Rule:
    """A rule from the registry."""
    found: Rule = next(point for point in known_rules() if point.name == name).load()
    return found


def checks(name: str, made: Result) -> list[Check]:
    """All that a rule says."""
    return list(rule(name).evaluate(made))


def levels(name: str, made: Result) -> list[Level]:
    """The levels of all that a rule says."""
    return [check.level for check in checks(name, made)]


def one(name: str, made: Result, arm_name: str) -> Check:
    """The single check that a rule makes of an arm and that is not `ok`."""
    found = [
        c
        for c in checks(name, made)
        if c.level is not Level.OK and (arm_name in c.arms or not c.arms)
    ]
    assert len(found) == 1, found
    return found[0]
