"""The passes in a process of their own, for real: what fails, and what comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchstone.conductor import Settings
from torchstone.explain.ledger import make_ledger, run_passes_of
from torchstone.explain.lines import _works
from torchstone.explain.passes.report import Passes, Plan
from torchstone.records import ArmSpec, TorchstoneError, UsageError, from_data, to_data

PLAIN = """
import time

def burn():
    total = 0
    for number in range(40_000):
        total += number & 7
    return total

def step():
    burn()
    time.sleep(0.004)

def boom():
    raise ValueError("no luck today")

def leave():
    import os
    os._exit(3)

def hungry():
    raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

class Mute(Exception):
    def __str__(self):
        raise ValueError("not even this")

def mute():
    raise Mute

def segfault():
    import ctypes
    ctypes.string_at(0)
"""
TORCH = """
import time, torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(256, 256) / 16)

    def forward(self, x):
        for _ in range(4):
            x = x @ self.weight
        time.sleep(0.004)
        return x

def make():
    return Net(), (torch.randn(256, 256),)
"""
QUICK = Plan(budget_s=0.8, rounds=4, count_flops=False)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("targets") / "own.py"
    path.write_text(PLAIN, encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_target_without_torch(file: Path) -> None:
    arm = ArmSpec("x", f"{file}:step()")
    seen = run_passes_of(arm, QUICK)
    assert from_data(Passes, to_data(seen)) == seen
    found = make_ledger(arm, seen)
    assert found.share("sleep") * found.wall_s > 3e-3  # 4 ms were asked for; a busy core adds
    assert found.share("interpreter") > 0.02
    assert found.level(3) == ()
    interpreter = found.line("interpreter")
    assert interpreter is not None
    assert interpreter.parts[0].name == "burn"
    total = sum(line.share for level in (0, 1, 2, 3, -1) for line in found.level(level))
    assert total == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("boom()", "no luck today"),
        ("leave()", "exited with code 3"),
        ("missing()", "no 'missing'"),
        ("hungry()", ": oom in "),
        ("mute()", "Mute"),
        ("segfault()", "crash in "),
    ],
)
def test_what_fails_says_why(file: Path, name: str, said: str) -> None:
    with pytest.raises(TorchstoneError) as error:
        run_passes_of(ArmSpec("x", f"{file}:{name}"), QUICK, Settings())
    assert said in error.value.message
    assert isinstance(error.value, UsageError) == (name == "missing()")  # who is to blame


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_network(tmp_path: Path, mode: str) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "net.py"
    path.write_text(TORCH, encoding="utf-8")
    arm = ArmSpec("x", f"{path}:make", mode=mode, threads=1)
    seen = run_passes_of(arm, Plan(budget_s=2.0, count_flops=True))
    found = make_ledger(arm, seen)
    assert found.share("sleep") * found.wall_s == pytest.approx(4e-3, rel=0.25)
    kernels = found.line("kernels")
    assert kernels is not None
    assert kernels.parts[0].name == "aten::mm"
    assert abs(found.share("rest")) < 0.15
    assert seen.flops is not None
    assert seen.costs.event > 0
    assert (found.share("autograd") > 0) == (mode == "training")
    assert seen.libraries, "MKL or oneDNN should have spoken"


@pytest.mark.slow
def test_a_compiled_network(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "net.py"
    path.write_text(TORCH.replace("time.sleep(0.004)", "print('here')"), encoding="utf-8")
    arm = ArmSpec("x", f"{path}:make", variant="inductor", threads=1)
    found = make_ledger(arm, run_passes_of(arm, Plan(budget_s=2.0, count_flops=False)))
    assert found.graphs >= 1
    assert found.share("guards") > 0
    assert [(place.file, place.line) for place in found.breaks] == [(str(path), 12)]
    assert "print" in found.breaks[0].reason


CONVOLUTIONS = """
import torch

def make():
    layers = (torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU())
    return torch.nn.Sequential(*layers), (torch.randn(8, 3, 64, 64),)
"""


@pytest.mark.slow
def test_the_work_of_convolutions_is_known_by_the_names_of_their_kernels(tmp_path: Path) -> None:
    """Counting and tracing see different ops do the same work; by this torch's names."""
    pytest.importorskip("torch")
    path = tmp_path / "convolutions.py"
    path.write_text(CONVOLUTIONS, encoding="utf-8")
    arm = ArmSpec("x", f"{path}:make", threads=1)
    seen = run_passes_of(arm, Plan(budget_s=0.8, rounds=4))
    assert seen.flops is not None
    known = _works(seen.flops.heaviest)
    ops = make_ledger(arm, seen).ops
    kernels = sum(op.kernel_s for op in ops)
    assert sum(op.kernel_s for op in ops if op.name in known) > 0.8 * kernels
    assert any("conv" in op.name and op.name in known for op in ops[:3])


def test_it_ends_when_the_whole_time_is_over(file: Path) -> None:
    with pytest.raises(TorchstoneError, match="not explained: that takes more than"):
        run_passes_of(ArmSpec("x", f"{file}:step()"), Plan(budget_s=60.0), Settings(total_s=0.3))
