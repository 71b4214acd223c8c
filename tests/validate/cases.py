"""Made-up results for the rules: a clean pair of arms, and ways to plant one fault in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.show.synthetic_result import method
from tests.stats import synthetic
from torchstone import stats
from torchstone.records import (
    Agreement,
    Check,
    Environment,
    Graphs,
    Integrity,
    Level,
    Measurement,
    Noise,
    Result,
    Turn,
)
from torchstone.validate import Rule, known_rules

FAULT_NS = 250.0


def environment(**changes: Any) -> Environment:
    made = Environment(
        machine_id="m-1",
        cpu={"logical_cores": "2"},
        os={"malloc": "system"},
        python={"version": "3.11.7"},
        torch={"version": "2.13.0"},
        threads={"torch": 2},
    )
    return replace(made, **changes)


def arm(name: str = "eager", step: float = 5e-3, seed: int = 1, **changes: Any) -> Measurement:
    """An arm with nothing wrong: quiet turns, full evidence."""
    made = synthetic.measurement(name, step=step, seed=seed, replicates=4, turns=6)
    made = replace(
        made,
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
    """A rule through its door."""
    found: Rule = next(point for point in known_rules() if point.name == name).load()
    return found


def checks(name: str, made: Result) -> list[Check]:
    """All that a rule says."""
    return list(rule(name).judge(made))


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
