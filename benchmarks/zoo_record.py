"""The record that faults are planted into: really measured, then made quiet.

    zoo_record.py [--out results/zoo-record.json]     measures it again

`two_layers` of zoo_targets.py, eager against inductor on one thread: contract, evidence, counted
operations, peaks and surroundings are as they were found. The samples are not: on a shared machine
they carry faults of their own, so each arm gets quiet ones around a time that is asked for.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from torchstone import stats
from torchstone.records import (
    Calibration,
    Environment,
    Flops,
    Measurement,
    Noise,
    OpWork,
    Replicate,
    Result,
    Turn,
    WarmUp,
    from_data,
    to_data,
)

HERE = Path(__file__).resolve().parent
RECORD = HERE / "results" / "zoo-record.json"
TARGET = "zoo_targets.py:two_layers"
PROCESSES, TURNS, SAMPLES = 4, 6, 12
PROBE_NS = 100_000
AA_FLOOR = 0.005
FAULT_NS = 250.0
"""A minor page fault on a quiet machine; while others ran, it read thirty times that."""
EAGER_S, INDUCTOR_S = 1.4e-3, 1.1e-3
"""52 and 66 % of the peak: what such a model reaches when nothing disturbs it."""


@cache
def stored() -> Result:
    """The record as it is kept."""
    return from_data(Result, json.loads(RECORD.read_text(encoding="utf-8")))


def ceilings(**changes: Any) -> Calibration:
    """Its peaks."""
    found = stored().calibration
    assert found is not None
    return replace(found, **changes)


def surroundings(**changes: Any) -> Environment:
    """Where it was measured."""
    found = stored().arms[0].environment
    assert found is not None
    return replace(found, **changes)


def counted(**changes: Any) -> Flops:
    """What its step does."""
    found = stored().arms[0].flops
    assert found is not None
    return replace(found, **changes)


def larger(times: float) -> Flops:
    """The count of a step so many times as large."""
    one = counted()
    return replace(
        one,
        total=round(one.total * times),
        by_op={op: round(n * times) for op, n in one.by_op.items()},
        bytes=round(one.bytes * times),
        least_bytes=round(one.least_bytes * times),
        largest_bytes=round(one.largest_bytes * times),
        heaviest=tuple(_larger(op, times) for op in one.heaviest),
    )


def _larger(op: OpWork, times: float) -> OpWork:
    flops = None if op.flops is None else round(op.flops * times)
    return replace(
        op, flops=flops, bytes=round(op.bytes * times), time_ns=round(op.time_ns * times)
    )


def eager(seconds: float = EAGER_S, name: str = "eager", **changes: Any) -> Measurement:
    """The plain arm, with quiet samples of that time."""
    return _arm(stored().arms[0], seconds, name, changes)


def inductor(seconds: float = INDUCTOR_S, name: str = "inductor", **changes: Any) -> Measurement:
    """The compiled arm."""
    return _arm(stored().arms[1], seconds, name, changes)


def _arm(base: Measurement, seconds: float, name: str, changes: dict[str, Any]) -> Measurement:
    """Keyword arguments that are fields of the arm's spec change that, all others the record."""
    spec = {key: changes.pop(key) for key in [*changes] if hasattr(base.arm, key)}
    made = replace(
        base,
        arm=replace(base.arm, **{"name": name, **spec}),
        turns=quiet_turns(seconds, name),
        replicates=tuple(
            Replicate(i, 10**9, WarmUp(10**7, (round(seconds * 1e9),) * 20, True))
            for i in range(PROCESSES)
        ),
        loops=1,
        fault_cost_ns=FAULT_NS,
    )
    return replace(made, **changes)


def quiet_turns(seconds: float, seed: str) -> tuple[Turn, ...]:
    """Samples of a machine with nothing else to do: a floor and a thin tail above it."""
    chance = random.Random(seed)
    return tuple(
        _turn(process, index, seconds, chance)
        for process in range(PROCESSES)
        for index in range(TURNS)
    )


def _turn(process: int, index: int, seconds: float, chance: random.Random) -> Turn:
    wall = tuple(round(seconds * 1e9 * (1 + chance.expovariate(300))) for _ in range(SAMPLES))
    probes = (round(PROBE_NS * (1 + chance.random() / 200)) for _ in range(SAMPLES + 1))
    total = sum(wall)
    return Turn(
        replicate=process,
        index=index,
        wall_ns=wall,
        cpu_ns=wall,
        probe_ns=tuple(probes),
        probe_every=1,
        first_ns=round(1.2 * wall[0]),
        minor_faults=0,
        major_faults=0,
        noise=Noise(total, total, total // 1000, 1, 0, total // 200, 0, 10**6, 3 * 10**6),
        checked=index == TURNS - 1,
    )


def with_noise(arm: Measurement, change: Callable[[Noise], dict[str, Any]]) -> Measurement:
    """The arm with other counters in all of its turns."""
    turns = (replace(t, noise=replace(t.noise, **change(t.noise))) for t in arm.turns)
    return replace(arm, turns=tuple(turns))


def with_turns(arm: Measurement, change: Callable[[Turn], dict[str, Any]]) -> Measurement:
    """The arm with its turns changed."""
    return replace(arm, turns=tuple(replace(turn, **change(turn)) for turn in arm.turns))


def result(*arms: Measurement, **changes: Any) -> Result:
    """A result of these arms, compared as ever; not evaluated yet."""
    made = stored()
    arms = arms or (eager(), inductor())
    method = replace(made.method, definition=stats.DEFINITION)  # compared now, by today's
    comparisons = stats.compare_all(arms, method.margin, method.alpha, AA_FLOOR)
    made = replace(
        made,
        arms=arms,
        method=method,
        comparisons=comparisons,
        checks=(),
        clocks_hz=(3.24e9, 3.23e9),
    )
    return replace(made, **changes)


def cleaned(found: Result, calibration: Calibration) -> Result:
    """Without samples, and without what tells one machine's software from another's."""
    return replace(
        found,
        arms=tuple(_cleaned(arm) for arm in found.arms),
        comparisons=(),
        checks=(),
        command=(),
        calibration=replace(calibration, machine_id="zoo"),
    )


def _cleaned(arm: Measurement) -> Measurement:
    place = arm.environment
    assert place is not None
    kept = Environment(
        machine_id="zoo",
        cpu={k: place.cpu[k] for k in ("model", "logical_cores", "flags") if k in place.cpu},
        caches=place.caches,
        memory_bytes=place.memory_bytes,
        os={k: place.os[k] for k in ("system", "malloc") if k in place.os},
        python={"version": place.python.get("version", "")},
        torch={k: place.torch[k] for k in ("version", "git") if k in place.torch},
        threads=place.threads,
        allocator=place.allocator,
    )
    spec = replace(arm.arm, target=TARGET)
    return replace(arm, arm=spec, environment=kept, turns=(), replicates=(), notes=())


def main() -> None:
    """Measure and keep."""
    from torchstone.conductor import Settings
    from torchstone.conductor.calibration import run_calibration
    from torchstone.lab.bench import measure
    from torchstone.records import ArmSpec

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=RECORD)
    out: Path = parser.parse_args().out
    calibration = run_calibration(threads=[1], dtypes=["fp32", "bf16"], seconds=6.0)
    target = str(HERE / TARGET)
    arms = [ArmSpec(v, target, variant=v, threads=1) for v in ("eager", "inductor")]
    settings = Settings(budget_s=8.0, count_flops=True)
    found = measure(arms, settings, None, None, (), "bench")
    data = to_data(cleaned(found, calibration))
    out.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
