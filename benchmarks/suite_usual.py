"""The usual way of suite runners, for comparison: one process for accuracy, one for performance.

    suite_usual.py accuracy|performance TARGET VARIANT MODE

Accuracy: float64 reference, eager twice, compiled once. Performance: five warm-up iterations, then
30 interleaved repeats of eager and compiled in one process, speed-up = ratio of the medians. One
JSON object on stdout.
"""

from __future__ import annotations

import copy
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from torchstone.records import ArmSpec
from torchstone.variants import prepare, reference_step
from torchstone.workloads import draw, load_workload

REPEATS = 30
WARM_UPS = 5
TOLERANCE = 1e-3
"""The runner's for most models in inference."""


def main() -> None:
    what, target, variant, mode = sys.argv[1:5]
    torch.set_num_threads(1)
    arm = ArmSpec("usual", target, mode=mode)
    workload = load_workload(arm, lambda _: None)

    def made(of: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
        """A step of its own copy under a variant, and what to compare of it."""
        own = copy.deepcopy(workload)
        spec = ArmSpec("usual", target, variant="eager" if of == "fp64" else of, mode=mode)
        example = draw(own, 0)
        prepared = (
            reference_step(own, example, spec) if of == "fp64" else prepare(own, example, spec)
        )
        inputs = prepared.cast(draw(own, 1))
        return lambda: prepared.step(*inputs.args, **inputs.kwargs), prepared.evidence

    found = accuracy(made, variant) if what == "accuracy" else performance(made, variant)
    sys.stdout.write(json.dumps(found) + "\n")


def accuracy(made: Any, variant: str) -> dict[str, Any]:
    """Whether the compiled arm is as near to float64 as eager is, within the tolerance."""
    answers = {}
    for name in ("fp64", "eager", "again", variant):
        step, evidence = made("eager" if name == "again" else name)
        torch.manual_seed(1337)
        answers[name] = leaves(evidence(step()))
    same = all(torch.equal(a, b) for a, b in zip(answers["eager"], answers["again"], strict=True))
    close = all(
        rmse(new, exact) <= 2 * rmse(old, exact) + TOLERANCE / 10
        for new, old, exact in zip(answers[variant], answers["eager"], answers["fp64"], strict=True)
    )
    return {"outcome": "ok" if same and close else "fail_accuracy"}


def performance(made: Any, variant: str) -> dict[str, Any]:
    """The ratio of medians of 30 interleaved repeats."""
    base, _ = made("eager")
    new, _ = made(variant)
    for step in (base, new):
        for _ in range(WARM_UPS):
            step()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(REPEATS):
        for step, kept in zip((base, new), times, strict=True):
            started = time.perf_counter()
            step()
            kept.append(time.perf_counter() - started)
    return {"outcome": "ok", "speedup": statistics.median(times[0]) / statistics.median(times[1])}


def leaves(nest: Any) -> list[torch.Tensor]:
    if isinstance(nest, torch.Tensor):
        return [nest.detach()] if nest.is_floating_point() else []
    if isinstance(nest, dict):
        return [leaf for value in nest.values() for leaf in leaves(value)]
    if isinstance(nest, (list, tuple)):
        return [leaf for value in nest for leaf in leaves(value)]
    return []


def rmse(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.double() - other.double()).square().mean().sqrt())


if __name__ == "__main__":
    main()
