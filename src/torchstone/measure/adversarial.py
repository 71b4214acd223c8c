"""Whether a technique may be adopted: answers to inputs with which it is known to fail, the loss
after some steps, and the user's own metric."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torchstone.measure.arm import Phase, build, set_threads
from torchstone.measure.evidence import change_tensors, permuted, true_evidence, write_evidence
from torchstone.records import ArmSpec, NotSupported, UsageError, in_a_line
from torchstone.variants import Prepared, prepare, reference_step
from torchstone.workloads import Inputs, Workload, draw, draw_at, load_workload
from torchstone.workloads.load import load_function, seed_everything

CHANGED_WEIGHTS = "changed weights"
WEIGHTS_FACTOR = 1.25
"""By which every weight is multiplied between two calls: an answer from the old ones is far off."""
LOUD = 10.0
"""Times the largest magnitude of an input: all values near it, of one sign, so that products of
8-bit integers add up to more than 16 bits hold."""
DOES_NOT_APPLY = "does not apply"
LONGEST = 2_000


def file_of(kind: str, case: str) -> str:
    """Where the answer of a kind (`arm`, `eager`, `fp64`) to these inputs is written."""
    return f"{kind}-{case.replace(' ', '-')}"


def answers(
    arm: ArmSpec, phase: Phase, cases: Sequence[str], folder: str, seed: int
) -> dict[str, str]:
    """Write the arm's answers; by case what went wrong instead, empty where nothing did."""
    built = build(arm, phase)
    assert built.workload is not None
    assert built.prepared is not None
    made = {"arm": (built.workload, built.prepared)}
    return _all(arm, phase, cases, folder, seed, made)


def baseline_answers(
    arm: ArmSpec, phase: Phase, cases: Sequence[str], folder: str, seed: int
) -> dict[str, str]:
    """The same of the baseline as plain code, and in float64."""
    plain = replace(arm, variant="eager")
    made = {}
    for name, prepared in (("eager", prepare), ("fp64", reference_step)):
        workload = load_workload(plain, phase)
        set_threads(plain)
        made[name] = workload, prepared(workload, draw(workload, arm.seed), plain)
    return _all(plain, phase, cases, folder, seed, made)


def _all(
    arm: ArmSpec,
    phase: Phase,
    cases: Sequence[str],
    folder: str,
    seed: int,
    made: Mapping[str, tuple[Workload, Prepared]],
) -> dict[str, str]:
    found = {}
    for kind, (workload, prepared) in made.items():
        restore = prepared.keep_start() if prepared.keep_start is not None else None
        for case in cases:
            phase(f"adversarial {case}")
            if restore is not None:
                restore()
            try:
                evidence = _evidence(case, workload, prepared, seed)
            except (NotSupported, UsageError) as error:
                found[case] = f"{DOES_NOT_APPLY}: {in_a_line(error)}"[:LONGEST]
                continue
            except Exception as error:  # an arm that fails here says so; the others go on
                if kind == "fp64":
                    continue  # then the baseline's own answer is what there is
                found[case] = f"{type(error).__name__}: {in_a_line(error)}"[:LONGEST]
                continue
            found.setdefault(case, "")
            write_evidence(os.path.join(folder, file_of(kind, case)), evidence)
    return found


def _evidence(case: str, workload: Workload, prepared: Prepared, seed: int) -> Any:
    def call(inputs: Inputs) -> Any:
        return prepared.step(*inputs.args, **inputs.kwargs)

    inputs = prepared.cast(_inputs(case, workload, seed))
    if case == CHANGED_WEIGHTS:
        if prepared.module is None or prepared.training:
            raise NotSupported("there are no weights that stay the same otherwise")
        call(inputs)  # whatever takes the weights for constants has taken them now
        _scale(prepared.module, WEIGHTS_FACTOR)
    seed_everything(seed)
    try:
        return true_evidence(prepared, call, inputs, seed, call(inputs))
    finally:
        if case == CHANGED_WEIGHTS:
            _scale(prepared.module, 1 / WEIGHTS_FACTOR)


def _scale(module: Any, factor: float) -> None:
    torch = sys.modules["torch"]
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point():
                parameter.mul_(factor)


def _inputs(case: str, workload: Workload, seed: int) -> Inputs:
    if case == "second shape":
        return draw_at(workload, seed, 1)
    inputs = draw(workload, seed)
    change = CHANGES.get(case)
    if change is None:
        return inputs
    made = change_tensors(inputs, lambda tensor, _: change(tensor))
    if made is None:
        raise NotSupported("no input can be changed so")
    return made


def _saturated(tensor: Any) -> Any:
    """All values near the largest magnitude and beyond, of one sign."""
    if not tensor.is_floating_point() or not tensor.numel():
        return tensor
    return (0.05 * tensor.abs() + 0.95 * tensor.abs().max()) * LOUD


CHANGES: Mapping[str, Callable[[Any], Any]] = {
    "permuted strides": permuted,
    "saturation": _saturated,
}


# Is another answer as good? The loss of some steps, and the user's own metric.


def loss_curves(arm: ArmSpec, phase: Phase, seeds: Sequence[int], steps: int) -> list[list[float]]:
    """For each seed the losses of so many training steps, all from the same weights, each with
    inputs of its own."""
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
            loss = built.call(built.inputs(seed * steps + step))
            losses.append(float(loss.detach()))
            phase("step")
        found.append(losses)
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
