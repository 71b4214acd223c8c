"""Raw samples for a made-up history: results of realistic size, made from a few templates.

Making and packing samples takes some 50 ms a result, and a month of nights has 32,400 of them. So a
few dozen results are made in full, and the others are copies under their own ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

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
    PlannedCase,
    Replicate,
    Result,
    Run,
    Turn,
    Verdict,
    WarmUp,
)
from torchstone.store.case_rows import BulkResult
from torchstone.store.codec import EncodedResult, compress, decompress, split

TEMPLATES = 12
VARIANTS_OF_A_RESULT = 3
"""As `torchstone run` measures them: so many beside one baseline."""
REPLICATES, TURNS, SAMPLES = 4, 40, 12
_ID, _CREATED, _LABEL = "@id@", "@created@", "@label@"


@dataclass(frozen=True)
class Template:
    """A result, its document as text, and its samples."""

    result: Result
    text: str
    samples: tuple[bytes, ...]


class RawNights:
    """The results of nights."""

    def __init__(self, seed: int, templates: int = TEMPLATES) -> None:
        self._seed = seed
        self._templates = templates
        self._of_arms: dict[tuple[str, ...], list[Template]] = {}

    def results(self, run: Run, rng: np.random.Generator) -> Iterator[BulkResult]:
        """A result for every few variants of a model."""
        for places in _groups(run.plan):
            names = tuple(run.plan[at].key.variant for at in places)
            pool = self._pool(names)
            template = pool[int(rng.integers(len(pool)))]
            yield _copy(template, run, places)

    def result_of(self, run: Run, place: int) -> Result:
        """A result of one case alone, as a run stores it."""
        template = self._pool((run.plan[place].key.variant,))[0]
        return _copy(template, run, (place,)).result

    def _pool(self, names: tuple[str, ...]) -> list[Template]:
        if names not in self._of_arms:
            made = [_make(names, self._seed * 1000 + i) for i in range(self._templates)]
            self._of_arms[names] = made
        return self._of_arms[names]


def _groups(plan: tuple[PlannedCase, ...]) -> Iterator[tuple[int, ...]]:
    """Neighbours in the plan that share a baseline, a few at a time."""
    waiting: list[int] = []
    for at, case in enumerate(plan):
        first = plan[waiting[0]].key if waiting else case.key
        if (
            replace(case.key, variant=first.variant) != first
            or len(waiting) == VARIANTS_OF_A_RESULT
        ):
            yield tuple(waiting)
            waiting = []
        waiting.append(at)
    if waiting:
        yield tuple(waiting)


def _copy(template: Template, run: Run, places: tuple[int, ...]) -> BulkResult:
    own = {
        _ID: f"{run.id}.{places[0]}",
        _CREATED: run.created,
        _LABEL: run.plan[places[0]].key.name,
    }
    text = template.text
    for mark, value in own.items():
        text = text.replace(json.dumps(mark), json.dumps(value), 1)
    encoded = EncodedResult(compress(text.encode("ascii")), template.samples)
    result = replace(
        template.result, id=own[_ID], created=own[_CREATED], label=own[_LABEL], origin=run.origin
    )
    return BulkResult(result, encoded, places)


def _make(names: tuple[str, ...], seed: int) -> Template:
    rng = np.random.default_rng([seed, 3])
    arms = ("eager", *names)
    step_ns = float(np.exp(rng.normal(np.log(5e6), 0.5)))
    maker = _Maker(rng)
    result = Result(
        id=_ID,
        created=_CREATED,
        command=("torchstone", "run"),
        arms=tuple(maker.arm(name, step_ns / (1 + 0.2 * i)) for i, name in enumerate(arms)),
        comparisons=tuple(
            Comparison("eager", name, Verdict.FASTER, "floor", 0.83, (0.82, 0.84)) for name in names
        ),
        checks=(Check("noise", Level.OK, "synthetic: nothing was measured"),),
        method=Method(20.0, 0.01, 0.02, seed, 60.0, 600.0, replicates=REPLICATES),
        kind="case",
        origin="synthetic history (benchmarks/dashboard_history.py)",
        label=_LABEL,
    )
    encoded = split(result)
    return Template(result, decompress(encoded.document).decode("ascii"), encoded.samples)


class _Maker:
    """Arms as a shared machine would leave them: a floor, one-sided jitter, some outliers."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def _times(self, mean: float, number: int) -> tuple[int, ...]:
        jitter = self._rng.gamma(1.5, 0.006, number)
        outliers = (self._rng.random(number) < 0.03) * self._rng.random(number) * 0.3
        return tuple((mean * (1 + jitter + outliers)).astype(np.int64).tolist())

    def _time(self, mean: float) -> int:
        return self._times(mean, 1)[0]

    def arm(self, name: str, step_ns: float) -> Measurement:
        """One arm with all its turns."""
        return Measurement(
            ArmSpec(name, "synthetic:model@small", name),
            Outcome.OK,
            turns=tuple(self._turn(i, step_ns) for i in range(TURNS)),
            replicates=tuple(self._replicate(i, step_ns) for i in range(REPLICATES)),
            contract=Contract(
                (Leaf("x", "torch", "float32", (64, 1000)),),
                (Leaf("y", "torch", "float32", (64, 10)),),
            ),
            environment=self._environment,
            compile=CompileCost(self._time(2e10), self._time(3e9)),
            memory=Memory("VmHWM", self._time(6e8), self._time(2e8)),
        )

    def _replicate(self, index: int, step_ns: float) -> Replicate:
        warm_up = WarmUp(self._time(5e7), self._times(step_ns, 20), True)
        return Replicate(index, self._time(2e9), warm_up, "shared")

    def _turn(self, index: int, step_ns: float) -> Turn:
        wall = self._times(step_ns, SAMPLES)
        cpu = tuple(int(ns - abs(self._rng.normal(3000, 2000))) for ns in wall)
        noise = Noise(
            sum(wall) + self._time(4e5),
            sum(cpu) + self._time(3e5),
            int(self._rng.integers(200_000)),
            int(self._rng.integers(3)),
            0,
            int(self._rng.integers(50_000)),
            None,
            int(self._rng.integers(9_000)),
            self._time(2e6),
        )
        probe = self._times(1e5, 1 + SAMPLES // 4)
        place = index * REPLICATES // TURNS
        return Turn(place, index, wall, cpu, probe, 4, self._time(step_ns * 1.1), 1, 0, noise)

    @cached_property
    def _environment(self) -> Environment:
        numbers = self._rng.integers(0, 40, (60, 3)).tolist()
        return Environment(
            machine_id="5e17" * 4,
            cpu={"model": "synthetic machine, 8 cores that do not exist"},
            caches={"L1d": 32768, "L2": 524288, "L3": 33554432},
            memory_bytes=32 << 30,
            os={"system": "synthetic"},
            python={"version": "3.11.7", "gil": "on"},
            torch={"version": "synthetic", "build": "USE_MKL=ON, USE_OPENMP=ON"},
            threads={"intra": 1, "inter": 1},
            packages={f"package-{i}": ".".join(map(str, n)) for i, n in enumerate(numbers)},
        )
