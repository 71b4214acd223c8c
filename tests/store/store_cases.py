"""Results as a real measurement would leave them, made from a seed; also run as a writing process.

`python store_cases.py DB NAME COUNT SAMPLES` saves COUNT results one after the other (0: until
it is killed) and prints each id once the save has returned, so that a test knows what must be
there. An id ends in its seed.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace

from torchstone.records import (
    ArmSpec,
    Check,
    Comparison,
    CompileCost,
    Contract,
    Environment,
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
    Turn,
    Verdict,
    WarmUp,
)


def make_result(
    result_id: str = "a1b2c3",
    *,
    arms: tuple[str, ...] = ("eager", "inductor"),
    replicates: int = 2,
    turns: int = 4,
    samples: int = 6,
    seed: int = 1,
    created: str = "2026-11-15T20:00:00+00:00",
    verdict: Verdict = Verdict.FASTER,
) -> Result:
    """A case of `turns` turns per arm, spread over `replicates` processes."""
    rng = random.Random(seed)
    environment = _environment(rng)
    measured = tuple(
        _measurement(rng, name, 5e6 / (1 + 0.3 * i), replicates, turns, samples, environment)
        for i, name in enumerate(arms)
    )
    comparisons = tuple(
        Comparison(arms[0], new, verdict, "floor", 0.769, (0.76, 0.78)) for new in arms[1:]
    )
    return Result(
        id=result_id,
        created=created,
        command=("torchstone", "bench", "model.py:make", "--vs", "inductor"),
        arms=measured,
        comparisons=comparisons,
        checks=(Check("R01", Level.OK, "The machine was quiet.", {"load": 0.1}),),
        method=Method(30.0, 0.01, 0.02, seed, 60.0, 600.0, replicates=replicates, looks=(3, 6)),
    )


def failed_result(result_id: str) -> Result:
    """A case whose second arm died before its first sample."""
    whole = make_result(result_id)
    dead = Measurement(
        ArmSpec("inductor", "model.py:make", "inductor"),
        Outcome.CRASH,
        OutcomeDetail("killed", "first call", signal="SIGSEGV", stderr=("Segmentation fault",)),
    )
    return Result(
        result_id,
        whole.created,
        whole.command,
        (whole.arms[0], dead),
        (),
        (Check("R20", Level.FAIL, "An arm died."),),
        whole.method,
    )


def _time(rng: random.Random, mean: float) -> int:
    """Like a shared machine: a floor, one-sided jitter of about 1 %, now and then an outlier."""
    outlier = rng.random() * 0.3 if rng.random() < 0.03 else 0.0
    return int(mean * (1 + rng.gammavariate(1.5, 0.006) + outlier))


def _environment(rng: random.Random) -> Environment:
    versions = {
        f"package-{i}": f"{rng.randrange(9)}.{rng.randrange(40)}.{rng.randrange(12)}"
        for i in range(60)
    }
    return Environment(
        machine_id="5f0e" * 4,
        cpu={"model": "A processor with 2 cores", "flags": "avx2 fma sse4_2"},
        caches={"L1d": 32768, "L2": 524288, "L3": 33554432},
        memory_bytes=8 << 30,
        os={"system": "Linux", "release": "6.1.0"},
        python={"version": "3.11.7", "gil": "on"},
        torch={"version": "2.13.0", "build": "USE_MKL=ON, USE_OPENMP=ON"},
        threads={"intra": 1, "inter": 1},
        packages=versions,
    )


def _measurement(
    rng: random.Random,
    name: str,
    step_ns: float,
    replicates: int,
    turns: int,
    samples: int,
    environment: Environment,
) -> Measurement:
    return Measurement(
        ArmSpec(name, "model.py:make", name),
        Outcome.OK,
        turns=tuple(_turn(rng, i * replicates // turns, i, step_ns, samples) for i in range(turns)),
        replicates=tuple(
            Replicate(
                i,
                _time(rng, 2e9),
                WarmUp(_time(rng, 5e7), tuple(_time(rng, step_ns) for _ in range(20)), True),
                str(rng.randrange(2**32)),
            )
            for i in range(replicates)
        ),
        contract=Contract(
            (Leaf("x", "torch", "float32", (64, 1000)),), (Leaf("y", "torch", "float32", (64, 10)),)
        ),
        environment=environment,
        compile=CompileCost(_time(rng, 2e10), _time(rng, 3e9)),
        memory=Memory("VmHWM", 64 << 20, 16 << 20),
        fault_cost_ns=float("inf"),
    )


def _turn(rng: random.Random, replicate: int, index: int, step_ns: float, samples: int) -> Turn:
    wall = tuple(_time(rng, step_ns) for _ in range(samples))
    cpu = tuple(int(ns - abs(rng.gauss(3000, 2000))) for ns in wall)
    probe = tuple(_time(rng, 1e5) for _ in range(1 + samples // 4))
    noise = Noise(
        sum(wall) + _time(rng, 4e5),
        sum(cpu) + _time(rng, 3e5),
        rng.randrange(200_000),
        rng.randrange(3),
        0,
        rng.randrange(50_000),
        None,
        rng.randrange(9_000),
        _time(rng, 2e6),
    )
    first = _time(rng, step_ns * 1.1)
    return Turn(replicate, index, wall, cpu, probe, 4, first, rng.randrange(3), 0, noise)


def _main() -> None:
    from torchstone.store import Store, open_store  # Store: loads what opening needs

    assert Store
    path, name, count, samples = *sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4])
    cases = [make_result(f"{name}-{i}", samples=samples, seed=i) for i in range(count or 8)]
    print("ready", flush=True)
    sys.stdin.readline()  # the test says when, so that processes start together
    with open_store(path) as store:
        for lap in range(1 if count else sys.maxsize):
            for case in cases:
                case = replace(case, id=f"{lap}-{case.id}") if lap else case
                store.save(case)
                print(case.id, flush=True)


if __name__ == "__main__":
    _main()
