"""Operations and bytes of a step of the plain workload: the counting pass of an arm."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from torchstone.measure.built import Built, Phase, build
from torchstone.measure.clock import wall_clock
from torchstone.measure.counting import tally_ops
from torchstone.measure.formula_door import known_formulas, load_formulas
from torchstone.measure.formula_test import self_test
from torchstone.measure.tally import Tally
from torchstone.records import ArmSpec, Flops, UsageError
from torchstone.workloads import walk

MOST_PASSES = 3
MORE_PASSES_NS = 500_000_000
"""Passes are repeated for so long: the times of ops are noisy, and the quickest pass is the least
disturbed. Counts are the same in each."""


def count_flops(arm: ArmSpec, phase: Phase) -> Flops | None:
    """Of one step of the plain workload, in the arm's mode and precision; None without torch ops.

    A step runs first that is not counted: by then first-touch costs are paid and the optimizer
    has its state. A `UsageError` where the formulas fail their test: no figure is better than a
    wrong one.
    """
    points = known_formulas()
    built = build(replace(arm, variant="eager"), phase)
    if built.is_statement or "torch" not in sys.modules:
        return None
    phase("counting")
    formulas = load_formulas(points)
    trouble = self_test(formulas)
    if trouble:
        raise UsageError(trouble, "Remove the plug-in that brings the formula.")
    inputs = built.inputs(arm.seed)
    built.call(inputs)
    tallies: list[tuple[Tally, Any]] = []
    started = wall_clock()
    for _ in range(MOST_PASSES):
        phase("counting")
        tally = Tally(formulas)
        output = tally_ops(lambda: built.call(inputs), tally, built.device.synchronize)
        tallies.append((tally, output))
        if wall_clock() - started > MORE_PASSES_NS:
            break
    tally, output = min(tallies, key=lambda pair: pair[0].total_ns)
    found = tally.flops(_left_behind(built, output))
    return found if found.ops else None


def _left_behind(built: Built, output: Any) -> list[Any]:
    """What the step returns, and in training the gradients that it made."""
    left = [leaf for _, leaf in walk(output, "")]
    module = built.prepared.module if built.prepared and built.prepared.training else None
    if module is not None:
        left += [p.grad for p in module.parameters() if p.grad is not None]
    return left
