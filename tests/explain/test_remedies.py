"""Remedies applied for real, and what is said of a prediction afterwards."""

from __future__ import annotations

import gc
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.explain.ledger_synthetic import ARM, ledger
from tests.show import synthetic_result
from tests.targets.support import ROOT
from torchstone.explain.findings.python import COLLECTOR
from torchstone.explain.verdicts import (
    apply_remedy,
    known_changes,
    target_source,
    untested,
    verdict,
)
from torchstone.records import (
    Comparison,
    Estimate,
    Outcome,
    OutcomeDetail,
    Prediction,
    Remedy,
    Verdict,
)


def prediction(low: float = 0.5, high: float = 0.8) -> Prediction:
    found = COLLECTOR.look(ledger({"interpreter": 0.6, "collector": 0.4}))
    assert found is not None
    return replace(found, time_ratio=(low, high))


def test_settings_change_the_arm(tmp_path: Path) -> None:
    changed = apply_remedy(
        Remedy(variant="inductor", threads=2, allocator="keep"), ARM, tmp_path, "x"
    )
    assert (changed.variant, changed.threads, changed.allocator) == ("inductor", 2, "keep")
    assert changed.target == ARM.target
    assert list(tmp_path.iterdir()) == []


CHECK = """
import gc, json, sys, torch
from torchstone.records import ArmSpec
from torchstone.workloads.load import load_workload
for target, check in json.loads(sys.argv[1]):
    made = load_workload(ArmSpec("x", target), lambda phase: None)
    exec(check)
"""
CHECKS = {
    "gc_freeze": ("make", "assert gc.get_freeze_count() > 0; assert gc.get_threshold()[0] > 700"),
    "no_grad": (
        "grad",
        "assert made.call(torch.ones(2, requires_grad=True)).requires_grad is False",
    ),
    "channels_last": (
        "conv",
        "assert made.inputs[0].is_contiguous(memory_format=torch.channels_last)\n"
        "assert made.call.weight.is_contiguous(memory_format=torch.channels_last)",
    ),
    "fused_optimizer": (
        "adam",
        "opt = made.optimizer(made.call.parameters())\n"
        "assert opt.defaults['fused'] is True and opt.defaults['lr'] == 0.25\n"
        "assert type(opt).__name__ == 'AdamW'",
    ),
}
TARGETS = """
import torch
from torchstone.workloads import Workload

def make():
    return (lambda x: x + 1), (torch.ones(1),)

def grad():
    return (lambda x: x * 2), (torch.ones(1),)

def conv():
    return torch.nn.Conv2d(4, 4, 3), (torch.randn(1, 4, 8, 8),)

def adam():
    return Workload(torch.nn.Linear(2, 2), (torch.ones(1, 2),),
                    optimizer=lambda p: torch.optim.AdamW(p, lr=0.25, foreach=False))

def rmsprop():
    return Workload(torch.nn.Linear(2, 2), (torch.ones(1, 2),), optimizer=torch.optim.RMSprop)

def fused():
    return Workload(torch.nn.Linear(2, 2), (torch.ones(1, 2),),
                    optimizer=lambda p: torch.optim.SGD(p, lr=0.1, fused=True))
"""
REFUSED = """
from torchstone.records import NotSupported
try:
    made.optimizer(made.call.parameters())
except NotSupported as error:
    assert {said!r} in str(error), error
else:
    raise AssertionError("the same optimizer as before is no remedy")
"""


def test_changes_around_the_workload_do_what_they_say(tmp_path: Path) -> None:
    """All in one process, because each would import torch."""
    pytest.importorskip("torch")
    path = tmp_path / "own.py"
    path.write_text(TARGETS, encoding="utf-8")
    jobs = []
    for around in known_changes():
        name, check = CHECKS[around]
        arm = replace(ARM, target=f"{path}:{name}")
        jobs.append((apply_remedy(Remedy(around=around), arm, tmp_path, "x").target, check))
    for name, said in (("rmsprop", "RMSprop has no fused"), ("fused", "SGD is fused already")):
        folder = tmp_path / name
        folder.mkdir()
        arm = replace(ARM, target=f"{path}:{name}")
        changed = apply_remedy(Remedy(around="fused_optimizer"), arm, folder, "x")
        jobs.append((changed.target, REFUSED.format(said=said)))
    done = subprocess.run(
        [sys.executable, "-c", CHECK, json.dumps(jobs)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


def test_a_relative_target_is_found_from_elsewhere() -> None:
    source = target_source("gc_freeze", replace(ARM, target="examples/two_layer.py:make"))
    assert str(Path("examples/two_layer.py").resolve()) in source
    assert gc.isenabled()


def test_a_suites_model_keeps_its_name() -> None:
    assert "'hf:Bert'" in target_source("no_grad", replace(ARM, target="hf:Bert"))


@pytest.mark.parametrize(
    ("measured", "interval", "held"),
    [
        (0.6, (0.55, 0.65), True),
        (0.6, (0.45, 0.75), None),  # the point is inside, but who knows
        (0.78, (0.74, 0.82), None),
        (0.6, None, None),
        (0.9, (0.85, 0.95), False),
        (0.85, (0.75, 0.95), None),
        (0.3, (0.25, 0.35), False),
    ],
)
def test_whether_it_held(
    measured: float, interval: tuple[float, float] | None, held: bool | None
) -> None:
    comparison = Comparison("a", "b", Verdict.FASTER, "floor", measured, interval)
    found = verdict(prediction(), replace(synthetic_result.single(), comparisons=(comparison,)))
    assert found.held is held
    assert f"{measured:.2f}" in found.sentence


def test_typical_steps_are_held_against_it_because_the_ledger_is_of_those() -> None:
    """Pages that are mapped in every third step are in none of the quickest."""
    typical = Estimate("typical", 0.6, (0.55, 0.65), 0.95, 4)
    comparison = Comparison("a", "b", Verdict.SAME, "floor", 1.0, (0.99, 1.01), typical=typical)
    result = replace(synthetic_result.single(), comparisons=(comparison,))
    assert verdict(prediction(), result).held is True
    one = replace(comparison, typical=replace(typical, interval=(0.0, math.inf), replicates=1))
    assert verdict(prediction(), replace(result, comparisons=(one,))).held is None


def test_an_arm_that_fails_tests_nothing() -> None:
    result = synthetic_result.single()
    bad = replace(result.arms[0], outcome=Outcome.WRONG_ANSWER, detail=OutcomeDetail("off by one"))
    found = verdict(prediction(), replace(result, arms=(result.arms[0], bad)))
    assert found.held is None
    assert "off by one" in found.sentence
    assert "Not tested" in untested(prediction()).sentence
