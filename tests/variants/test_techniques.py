"""Techniques: applied to real workloads, written as modifiers, measured as arms."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.targets.support import ROOT, run_arms
from torchstone.records import ArmSpec, Outcome, UsageError
from torchstone.variants import resolve_variant, uses_torch
from torchstone.variants.techniques import TECHNIQUES

CHECK = """
import gc, json, sys, torch
from torchstone.records import ArmSpec
from torchstone.variants import with_techniques
from torchstone.workloads.load import load_workload
for target, variant, check in json.loads(sys.argv[1]):
    made = with_techniques(load_workload(ArmSpec("x", target), lambda phase: None), variant)
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


def test_techniques_do_what_they_say(tmp_path: Path) -> None:
    """All in one process, because each would import torch."""
    pytest.importorskip("torch")
    path = tmp_path / "own.py"
    path.write_text(TARGETS, encoding="utf-8")
    assert set(CHECKS) == set(TECHNIQUES)
    jobs = [(f"{path}:{name}", f"eager+{one}", check) for one, (name, check) in CHECKS.items()]
    for name, said in (("rmsprop", "RMSprop has no fused"), ("fused", "SGD is fused already")):
        jobs.append((f"{path}:{name}", "eager+fused_optimizer", REFUSED.format(said=said)))
    done = subprocess.run(
        [sys.executable, "-c", CHECK, json.dumps(jobs)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


def test_a_technique_is_a_modifier_of_any_variant() -> None:
    found = resolve_variant("inductor+channels_last+dynamic")
    assert found.name == "inductor+dynamic+channels_last"
    assert "memory_format" in found.changes
    assert resolve_variant("eager+gc_freeze").unsupported(ArmSpec("a", "x.py:make")) is None
    with pytest.raises(UsageError, match="no modifier 'channel_last'") as refused:
        resolve_variant("eager+channel_last")
    assert "+channels_last" in refused.value.remedy


def test_what_needs_no_torch() -> None:
    assert not uses_torch("eager")
    assert not uses_torch("eager+gc_freeze")
    assert uses_torch("eager+no_grad")
    assert uses_torch("inductor+gc_freeze")


def test_a_technique_measured_as_an_arm_keeps_the_answer() -> None:
    """And the stored command measures it again: no file of ours is left behind."""
    pytest.importorskip("torch")
    path = ROOT / "examples" / "two_layer.py"
    found = run_arms(
        ArmSpec("eager", f"{path}:make"),
        ArmSpec("frozen", f"{path}:make", variant="eager+gc_freeze"),
    )
    assert [arm.outcome for arm in found.arms] == [Outcome.OK, Outcome.OK]


def test_a_list_names_our_variants_and_techniques_as_ours() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torchstone", "list", "variants", "--json", "-"],
        capture_output=True,
        text=True,
        check=True,
    )
    source = {one["name"]: one["source"] for one in json.loads(done.stdout)["variants"]}
    names = ("eager", "inductor", *(f"+{name}" for name in TECHNIQUES))
    assert {source[name] for name in names} == {"torchstone"}
