"""Is another answer as good? The loss after some steps, and the user's own metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchstone.measure.arm import Phase, build
from torchstone.records import ArmSpec, NotSupported, UsageError
from torchstone.workloads import Inputs
from torchstone.workloads.load import load_function, seed_everything


def final_losses(arm: ArmSpec, phase: Phase, seeds: Sequence[int], steps: int) -> list[float]:
    """For each seed the mean loss of the last quarter of so many training steps, all from the same
    weights, each with inputs of its own."""
    built = build(arm, phase)
    prepared = built.prepared
    if prepared is None or prepared.keep_start is None:
        raise NotSupported("there is no loss outside training")
    restore, found = prepared.keep_start(), []
    for seed in seeds:
        restore()
        seed_everything(seed)
        losses = []
        for step in range(steps):
            losses.append(float(built.call(built.inputs(seed * steps + step))))
            phase("step")
        last = losses[-max(1, steps // 4) :]
        found.append(sum(last) / len(last))
    return found


def metric(arm: ArmSpec, phase: Phase, name: str) -> float:
    """What the user's function says of the arm's model: `FN(model)`, larger is better."""
    built = build(arm, phase)
    prepared = built.prepared
    assert prepared is not None
    judge = load_function(name)

    def model(*args: Any, **kwargs: Any) -> Any:
        inputs = prepared.cast(Inputs(args, kwargs))
        return prepared.step(*inputs.args, **inputs.kwargs)

    phase("first call")  # whoever evaluates a data set takes long, and may compile
    seed_everything(arm.seed)
    value = judge(model)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise UsageError(
            f"{name} returned {type(value).__name__}, not a number.", "Let it return a float."
        ) from None
