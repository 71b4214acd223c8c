"""Whether a prediction held, from the comparison that put it to the test."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

from torchstone.records import ArmSpec, Outcome, Prediction, Remedy, Result, Verification
from torchstone.workloads.target import from_home


def verdict(prediction: Prediction, result: Result) -> Verification:
    """The measured interval against the range: it held where all of the interval is inside, and did
    not where all of it is outside. One that reaches over an edge decides nothing, and neither does
    a ratio without an interval.

    Of typical steps, because a ledger is of those: what comes now and then (pages that are mapped
    again, the collector) is not in the quickest.
    """
    low, high = prediction.time_ratio
    failed = [arm for arm in result.arms if arm.outcome is not Outcome.OK]
    if failed:
        arm = failed[-1]
        said = f"{arm.arm.name}: {arm.outcome.value}, {arm.detail.message}"
        return Verification(
            prediction.name, (low, high), sentence=f"Not tested: {said}.", result_id=result.id
        )
    comparison = result.comparisons[0] if result.comparisons else None
    if comparison is None or comparison.time_ratio is None:
        return Verification(
            prediction.name, (low, high), sentence="Not tested: no comparison came out."
        )
    typical = comparison.typical
    measured = typical.time_ratio if typical else comparison.time_ratio
    interval = _finite(typical.interval) if typical else comparison.interval
    held = _held(interval, low, high)
    words = {
        True: "The prediction held",
        None: "It cannot be told whether the prediction held",
        False: "The prediction did not hold",
    }
    spread = f" ({interval[0]:.2f}–{interval[1]:.2f})" if interval else ""
    return Verification(
        finding=prediction.name,
        predicted=(low, high),
        measured=measured,
        interval=interval,
        held=held,
        sentence=(
            f"{words[held]}: predicted {low:.2f}–{high:.2f} of the time, measured "
            f"{measured:.2f}{spread}{' by typical steps' if typical else ''}."
        ),
        result_id=result.id,
    )


def _finite(interval: tuple[float, float]) -> tuple[float, float] | None:
    """None for that of a single process, which has no ends."""
    return interval if math.isfinite(interval[1]) else None


def _held(interval: tuple[float, float] | None, low: float, high: float) -> bool | None:
    if interval is None:
        return None
    if low <= interval[0] and interval[1] <= high:
        return True
    return None if interval[0] <= high and interval[1] >= low else False


def untested(prediction: Prediction) -> Verification:
    """One that cannot be applied by itself."""
    why = prediction.why_not or "no remedy can be applied by itself"
    return Verification(prediction.name, prediction.time_ratio, sentence=f"Not tested: {why}.")


# A remedy applied: another arm, or the same workload with a small change around it.
#
# What a setting cannot say is written as a small target of its own, which loads the original one in
# the worker and changes it there.


NAME = "remedied"
_HEAD = '''"""The workload of {target}, changed by `torchstone explain --verify`."""

import dataclasses

from torchstone.records import ArmSpec
from torchstone.workloads import Workload
from torchstone.workloads.load import load_workload


def original(seed):
    arm = ArmSpec(name="original", target={target!r}, mode={mode!r}, precision={precision!r},
                  device={device!r}, seed=seed)
    return load_workload(arm, lambda phase: None)


'''
_AROUND = {
    "gc_freeze": """def make(seed):
    import gc

    workload = original(seed)
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 100, 100)
    return workload
""",
    "no_grad": """def make(seed):
    import torch

    workload = original(seed)
    inner = workload.call

    def call(*args, **kwargs):
        with torch.no_grad():
            return inner(*args, **kwargs)

    return dataclasses.replace(workload, call=call)
""",
    "channels_last": """def make(seed):
    import torch
    from torchstone.workloads.load import map_nest

    workload = original(seed)
    module, given = workload.call, workload.inputs
    module.to(memory_format=torch.channels_last)

    def convert(leaf):
        if isinstance(leaf, torch.Tensor) and leaf.dim() == 4:
            return leaf.to(memory_format=torch.channels_last)
        return leaf

    def inputs(seed):
        return map_nest(given(seed), convert)

    plain = inputs if callable(given) else map_nest(given, convert)
    return dataclasses.replace(workload, inputs=plain)
""",
    "fused_optimizer": """def make(seed):
    import inspect

    import torch
    from torchstone.records import NotSupported

    workload = original(seed)

    def optimizer(parameters):
        parameters = list(parameters)
        if workload.optimizer is None:
            return torch.optim.SGD(parameters, lr=1e-3, fused=True)
        made = workload.optimizer(parameters)
        known = inspect.signature(type(made)).parameters
        if "fused" not in known:
            raise NotSupported(f"{type(made).__name__} has no fused implementation")
        if made.defaults.get("fused"):
            raise NotSupported(f"{type(made).__name__} is fused already")
        options = {**made.defaults, "fused": True}
        options.pop("foreach", None)
        return type(made)(parameters, **{k: v for k, v in options.items() if k in known})

    return dataclasses.replace(workload, optimizer=optimizer)
""",
}


def apply_remedy(remedy: Remedy, arm: ArmSpec, folder: Path, name: str) -> ArmSpec:
    """The arm after the remedy; a target that has to be written goes into `folder`."""
    changed = replace(arm, name=name)
    if remedy.variant:
        changed = replace(changed, variant=remedy.variant)
    if remedy.threads:
        changed = replace(changed, threads=remedy.threads)
    if remedy.allocator:
        changed = replace(changed, allocator=remedy.allocator)
    if remedy.around:
        path = folder / f"{NAME}_{remedy.around}.py"
        path.write_text(target_source(remedy.around, arm), encoding="utf-8")
        changed = replace(changed, target=f"{path}:make")
    return changed


def target_source(around: str, arm: ArmSpec) -> str:
    """The small target that changes the arm's own."""
    place, colon, name = from_home(arm.target).rpartition(":")
    target = f"{os.path.abspath(place)}:{name}" if colon and place.endswith(".py") else arm.target
    if arm.target.endswith(".py"):
        target = os.path.abspath(from_home(arm.target))
    head = _HEAD.format(target=target, mode=arm.mode, precision=arm.precision, device=arm.device)
    return head + _AROUND[around]


def known_changes() -> tuple[str, ...]:
    """Names that `Remedy.around` may have."""
    return tuple(_AROUND)
