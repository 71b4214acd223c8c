"""Inputs with which techniques are known to fail, losses and metrics: asked of real arms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.support import run_arms
from torchstone.conductor import ExtraChecks
from torchstone.conductor.extra_checks import STEPS_RATIO, _steps_needed
from torchstone.records import ArmSpec, Measurement, Outcome

TARGETS = """
import torch
from torchstone import Workload

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)

class Views(Net):
    # Reads memory as it lies: right for contiguous inputs alone.
    def forward(self, x):
        return self.layer(torch.as_strided(x, x.shape, (x.shape[1], 1)))

class OneShape(Net):
    def forward(self, x):
        return self.layer(x) if len(x) == 8 else self.layer(x) * 2

class Saturates(Net):
    def forward(self, x):
        return self.layer(x.clamp(-4, 4))

class Frozen(Net):
    def __init__(self):
        super().__init__()
        self.kept = None

    def forward(self, x):
        if self.kept is None:
            self.kept = self.layer.weight.detach().clone()
        return torch.nn.functional.linear(x, self.kept, self.layer.bias)

def _made(kind):
    return Workload(kind(), (torch.randn(8, 4).clamp(-3, 3),))

def make(): return _made(Net)
def views(): return _made(Views)
def one_shape(): return _made(OneShape)
def saturates(): return _made(Saturates)
def frozen(): return _made(Frozen)

def size(model):
    return float(model(torch.full((1, 4), 9.0)).abs().sum())
"""


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("extra") / "nets.py"
    path.write_text(TARGETS, encoding="utf-8")
    return path


def checked(targets: Path, name: str, **checks: object) -> Measurement:
    arms = (ArmSpec("base", f"{targets}:make"), ArmSpec("new", f"{targets}:{name}"))
    wanted = ExtraChecks("new", **checks)  # type: ignore[arg-type]
    return run_arms(*arms, extra_checks=(wanted,), replicates=1, budget_s=0.05).arms[1]


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("views", "permuted strides"),
        pytest.param("one_shape", "second shape", marks=pytest.mark.slow),
        pytest.param("saturates", "saturation", marks=pytest.mark.slow),
    ],
)
def test_a_known_failure_is_found_where_timed_calls_do_not_show_it(
    targets: Path, name: str, inputs: str
) -> None:
    found = checked(targets, name, inputs=(inputs,))
    assert found.outcome is Outcome.WRONG_ANSWER
    assert found.detail.message.startswith(f"with {inputs}: ")
    assert found.agreement is not None
    assert found.agreement.mismatch == ""  # the usual inputs show nothing


@pytest.mark.slow
def test_an_honest_arm_passes_all_of_them(targets: Path) -> None:
    names = ("permuted strides", "second shape", "saturation", "changed weights")
    found = checked(targets, "make", inputs=names)
    assert found.outcome is Outcome.OK, found.detail
    assert found.agreement is not None
    assert found.agreement.adversarial == dict.fromkeys(names, "")
    assert found.agreement.identical


@pytest.mark.slow
def test_a_condition_is_told_and_refuses_nothing(targets: Path) -> None:
    found = checked(targets, "frozen", conditions=("changed weights",))
    assert found.outcome is Outcome.OK
    assert found.agreement is not None
    assert "error" in found.agreement.adversarial["changed weights"]
    refused = checked(targets, "frozen", inputs=("changed weights",))
    assert refused.outcome is Outcome.WRONG_ANSWER


@pytest.mark.slow
def test_the_metric_of_the_user_decides(targets: Path) -> None:
    """The saturating net answers with smaller numbers, and `size` likes large ones."""
    found = checked(targets, "saturates", metric=f"{targets}:size")
    assert found.outcome is Outcome.WRONG_ANSWER
    assert "its metric is" in found.detail.message
    honest = checked(targets, "make", metric=f"{targets}:size")
    assert honest.outcome is Outcome.OK
    assert honest.agreement is not None
    assert honest.agreement.quality["metric"] == honest.agreement.quality["baseline metric"]


@pytest.mark.slow
def test_a_loss_outside_the_range_of_the_baseline_is_refused(targets: Path) -> None:
    arms = [
        ArmSpec(name, f"{targets}:{target}", mode="training")
        for name, target in (("base", "make"), ("new", "saturates"))
    ]
    wanted = ExtraChecks("new", losses=True)
    case = run_arms(*arms, extra_checks=(wanted,), replicates=1, budget_s=0.05)
    found = case.arms[1]
    assert found.outcome is Outcome.OK, "it trains as well on inputs that do not saturate"
    assert found.agreement is not None
    assert found.agreement.quality["loss"] > 0


def test_what_is_hopeless_alone_is_not_timed(tmp_path: Path) -> None:
    path = tmp_path / "slow.py"
    path.write_text(
        "def work(n):\n    for _ in range(n): pass\n    return 1\n"
        "def quick(): return work(2000)\ndef slow(): return work(40000)\n"
    )
    case = run_arms(
        ArmSpec("quick", f"{path}:quick()"), ArmSpec("slow", f"{path}:slow()"), hopeless=3.0
    )
    assert case.arms[1].outcome is Outcome.NOT_RUN
    assert case.arms[1].detail.message.startswith("stopped early")
    assert case.arms[0].turns


def test_steps_to_the_loss_of_the_baseline_are_those_of_the_worst_seed() -> None:
    slow = [10.0 - step / 4 for step in range(40)]
    quick = [10.0 - step / 2 for step in range(40)]
    flat = [10.0] * 40
    found: dict[str, float] = {}
    assert _steps_needed([slow, slow], [quick, quick], found) == ""
    assert 0.5 < found[STEPS_RATIO] < 0.7  # twice as quick, after the first window of the mean
    assert _steps_needed([slow, slow], [quick, slow], found) == ""
    assert found[STEPS_RATIO] == 1.0
    assert "does not reach the baseline's loss" in _steps_needed([slow], [flat], found)
    assert _steps_needed([flat], [flat], found) == ""
    assert found[STEPS_RATIO] == 1.0, "where nothing is learned nothing is gained"
