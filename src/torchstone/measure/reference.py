"""The reference: the baseline as plain eager code, and again in float64, in a process of its own.

Its outputs go to files; neither they nor the float64 model ever enter an arm's memory. Float64 is
asked for apart: it may take more memory than there is, and what eager code gave must outlive that.

Whether a technique may be adopted: answers to inputs with which it is known to fail, the loss
after some steps, and the user's own metric.
"""

from __future__ import annotations

import copy
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torchstone.machine.processes import memory_available
from torchstone.measure.arm import Phase, build, draw_for, set_threads
from torchstone.measure.channel import FLOAT64_FAILED, CheckedCall, ReferenceReport
from torchstone.measure.evidence import (
    change_tensors,
    fingerprint,
    permuted,
    true_evidence,
    weights_fingerprint,
    write_evidence,
)
from torchstone.measure.loops import wall_clock
from torchstone.records import ArmSpec, NotSupported, UsageError, in_a_line
from torchstone.variants import Prepared, prepare, reference_step
from torchstone.workloads import Inputs, Workload, draw, draw_at, load_workload, walk
from torchstone.workloads.load import load_function, map_nest, seed_everything

# Conditioning: how far an answer moves when the numbers it is made from move by one rounding.
#
# A gradient behind a ReLU or a maximum can jump when an activation near the kink changes by the
# last bit, and two correct orders of the same sums differ by just that. What eager code itself
# moves by, no arm can be blamed for.

NUDGES = 5
"""Runs with nudged numbers, of which the furthest counts: jumps are rare and large, and five see
nine of ten that come every third time."""
NUDGE_SECONDS = 20.0
"""No nudged run starts later than this, all calls together; each has an equal part. They are not
counted by the time of the call before them: the first one in a process takes many times a step."""


CLOSER_NUDGES = 40
CLOSER_STEPS = 8
"""Where an arm would be called wrong by a little: more runs, and nudged by three bits. That is what
the order of a long sum changes, and finds a jump eight times as often; an answer without a kink
moves by some parts in a million all the same."""
CLOSER_SECONDS = 60.0


def nudge_weights(module: Any, seed: int, steps: int = 1) -> None:
    """Move each float32 and float64 weight so many neighbours on, up or down by chance.

    Narrower types stay: their products are summed in float32, so a last bit of theirs is far more
    than what an order of sums changes.
    """
    if module is None or not callable(getattr(module, "parameters", None)):
        return
    torch = sys.modules["torch"]
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(_nudged(torch, parameter, generator, steps))


def nudge_inputs(inputs: Inputs, seed: int, steps: int = 1) -> Inputs:
    """The inputs with every float32 and float64 tensor moved alike."""
    torch = sys.modules["torch"]
    generator = torch.Generator().manual_seed(seed + 1)

    def nudge(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        moved = _nudged(torch, leaf.detach(), generator, steps)
        return moved.requires_grad_() if leaf.requires_grad else moved

    return Inputs(map_nest(inputs.args, nudge), map_nest(dict(inputs.kwargs), nudge))


def _nudged(torch: Any, tensor: Any, generator: Any, steps: int) -> Any:
    if tensor.dtype not in (torch.float32, torch.float64) or tensor.layout != torch.strided:
        return tensor
    up = torch.randint(0, 2, tensor.shape, generator=generator).to(tensor.device)
    beyond = (2 * up - 1).to(tensor.dtype) * math.inf
    moved = tensor
    for _ in range(steps):
        moved = torch.nextafter(moved, beyond)
    # A zero stays: it is a mask or padding more often than a number, and its neighbour is no
    # rounding of anything.
    return torch.where(tensor == 0, tensor, moved)


def distances(first: Any, second: Any) -> dict[str, float]:
    """Root mean square difference of each floating-point leaf the two have in common."""
    torch = sys.modules["torch"]
    others = dict(walk(second, "output"))
    found = {}
    for path, value in walk(first, "output"):
        other = others.get(path)
        if not (isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor)):
            continue
        if not value.is_floating_point() or value.shape != other.shape or not value.numel():
            continue
        gap = (value.detach().double() - other.detach().double()).square().mean().sqrt().item()
        if math.isfinite(gap):
            found[path] = gap
    return found


def furthest(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """The larger of the two for every leaf."""
    return {path: max(one.get(path, 0.0), other.get(path, 0.0)) for path in {**one, **other}}


def write_distances(path: str, moved: Mapping[str, float]) -> None:
    """For checking in another process."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(moved, file)


FP64_SECONDS = 60.0
FP64_SLOWDOWN = 4.0
"""float64 is skipped where all its steps are expected to take longer than a minute; a float64 step
is taken to cost four float32 ones (twice the bytes, half the vector width)."""


LONGEST_REASON = 10_000
"""What an error says may be of any length. The conductor cuts it shorter when it has looked for
secrets: a part of one cannot be told."""


@dataclass(frozen=True)
class Reference:
    """What the float64 run needs of the one before it."""

    arm: ArmSpec
    pristine: Workload | None
    calls: Sequence[CheckedCall]
    folder: str
    step_ns: int


def make_references(
    arm: ArmSpec,
    phase: Phase,
    calls: Sequence[CheckedCall],
    folder: str,
    given: Workload | None = None,
) -> tuple[ReferenceReport, Reference]:
    """Write `eager-SEED`, `again-SEED` (the first call a second time) and `moved-SEED` (how far
    each leaf moves when the numbers move by a rounding) files."""
    plain, workload, pristine, prepared = _build(arm, phase, given)
    weights = weights_fingerprint(prepared.module)
    prints, notes, step_ns = [], list[str](), 0
    named = [*(("eager", call) for call in calls), ("again", calls[0])]
    if arm.shapes > 1:
        # Outputs of several shapes differ whatever they hold; constancy shows at one shape only.
        named += [("", CheckedCall(call.seed)) for call in calls[1:2]]
    for i, (name, call) in enumerate(named):
        if i and pristine is not None:
            # Each call starts from an untouched copy: state left by the last one must not help.
            workload = _copy(pristine) or workload
            prepared = _prepare(plain, workload)
        evidence, step_ns = _evidence(plain, workload, prepared, call)
        if name:
            write_evidence(os.path.join(folder, f"{name}-{call.seed}"), evidence)
        if name == "eager":
            limit_s = NUDGE_SECONDS / len(calls)
            seeds = range(NUDGES if step_ns / 1e9 <= limit_s else 0)
            moved = _moved(plain, pristine, call, evidence, seeds, notes, limit_s=limit_s)
            write_distances(os.path.join(folder, f"moved-{call.seed}"), moved)
        if call.shape == 0:
            prints.append(fingerprint(walk(evidence, "output")))
        phase("reference")
    constant = len(calls) > 1 and len(set(prints)) == 1 and _inputs_differ(workload, calls)
    report = ReferenceReport(weights, constant, step_ns, tuple(dict.fromkeys(notes)))
    return report, Reference(plain, pristine, calls, folder, step_ns)


def look_closer(arm: ArmSpec, phase: Phase, call: CheckedCall, path: str) -> None:
    """Write to `path` how far the leaves of one call move in many more nudged runs."""
    plain, workload, pristine, prepared = _build(arm, phase)
    evidence, _ = _evidence(plain, workload, prepared, call)
    seeds = range(NUDGES, NUDGES + CLOSER_NUDGES)
    moved = _moved(plain, pristine, call, evidence, seeds, [], CLOSER_STEPS, CLOSER_SECONDS)
    write_distances(path, moved)


def _build(
    arm: ArmSpec, phase: Phase, given: Workload | None = None
) -> tuple[ArmSpec, Workload, Workload | None, Prepared]:
    """The arm as plain eager code: its workload, an untouched copy of it, and its step."""
    plain = replace(arm, variant="eager")
    workload = given or load_workload(plain, phase)
    set_threads(plain)
    pristine = _copy(workload)
    phase("reference")
    return plain, workload, pristine, _prepare(plain, workload)


def _prepare(arm: ArmSpec, workload: Workload) -> Prepared:
    return prepare(workload, draw_for(arm, workload, arm.seed), arm)


def _moved(
    arm: ArmSpec,
    pristine: Workload | None,
    call: CheckedCall,
    evidence: Any,
    seeds: Sequence[int],
    notes: list[str],
    steps: int = 1,
    limit_s: float = math.inf,
) -> dict[str, float]:
    """How far each leaf moves at most when weights and inputs are nudged, in a run a seed.

    A model may refuse inputs that are off by a rounding, a label beyond 1 for example. Then its
    weights are nudged alone, and what fails even so is left out.
    """
    moved: dict[str, float] = {}
    if pristine is None or "torch" not in sys.modules:
        return moved
    end = wall_clock() + limit_s * 1e9
    tries = {
        "inputs cannot be nudged": partial(nudge_inputs, steps=steps),
        "weights cannot be nudged": None,
    }
    for seed in seeds:
        for failure, nudge in list(tries.items()):
            workload = _copy(pristine) if wall_clock() < end else None
            if workload is None:
                return moved
            try:
                prepared = _prepare(arm, workload)
                nudge_weights(prepared.module, seed, steps)
                change = partial(nudge, seed=seed) if nudge else None
                other, _ = _evidence(arm, workload, prepared, call, change)
            except Exception as error:  # the model's own; the reference is none the worse for it
                notes.append(f"{failure} by a rounding: {in_a_line(error)[:LONGEST_REASON]}")
                continue
            moved = furthest(moved, distances(evidence, other))
            break
    return moved


def _evidence(
    arm: ArmSpec,
    workload: Workload,
    prepared: Prepared,
    checked: CheckedCall,
    change: Callable[[Inputs], Inputs] | None = None,
) -> tuple[Any, int]:
    inputs = prepared.cast(draw_for(arm, workload, checked.seed, checked.shape))
    if change is not None:
        inputs = change(inputs)
    seed_everything(checked.seed)

    def call(inputs: Inputs) -> Any:
        return prepared.step(*inputs.args, **inputs.kwargs)

    started = wall_clock()
    output = call(inputs)
    step_ns = wall_clock() - started
    return true_evidence(prepared, call, inputs, checked.seed, output), step_ns


def _inputs_differ(workload: Workload, calls: Sequence[CheckedCall]) -> bool:
    drawn = (draw(workload, call.seed) for call in calls)
    return len({fingerprint(walk((d.args, d.kwargs), "input")) for d in drawn}) > 1


def make_float64(made: Reference, phase: Phase) -> str:
    """Write `fp64-SEED` files for the same calls; returns why float64 cannot serve, or nothing."""
    arm, pristine, calls = made.arm, made.pristine, made.calls
    if pristine is None:
        return "the module cannot be copied"
    seconds = made.step_ns / 1e9 * FP64_SLOWDOWN * len(calls)
    if seconds > FP64_SECONDS:
        return f"float64 would take about {seconds:.0f} s"
    needed = _weights_bytes(pristine) * 6
    if needed > memory_available():
        return f"float64 would need about {needed / 2**30:.1f} GiB"
    try:
        for call in calls:
            workload = _copy(pristine) or pristine
            prepared = reference_step(workload, draw_for(arm, workload, arm.seed), arm)
            evidence, _ = _evidence(arm, workload, prepared, call)
            write_evidence(os.path.join(made.folder, f"fp64-{call.seed}"), evidence)
            phase("reference")
    except Exception as error:  # any op may lack float64; the record says which
        return f"{FLOAT64_FAILED}: {in_a_line(error)}"[:LONGEST_REASON]
    return ""


def _copy(workload: Workload) -> Workload | None:
    try:
        return replace(workload, call=copy.deepcopy(workload.call))
    except Exception:  # user classes may refuse; the caller records it
        return None


def _weights_bytes(workload: Workload) -> int:
    parameters = getattr(workload.call, "parameters", None)
    return sum(p.numel() * p.element_size() for p in parameters()) if callable(parameters) else 0


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
                evidence = _case_evidence(case, workload, prepared, seed)
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


def _case_evidence(case: str, workload: Workload, prepared: Prepared, seed: int) -> Any:
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
