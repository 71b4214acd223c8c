"""What `torchstone run` runs when nothing is asked for, of the suites as they are."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.targets.support import ROOT
from torchstone.cli.run import REPLICATES, run
from torchstone.lab.run_plan import RunRequest, make_plan
from torchstone.workloads.suites.torchbench_builtin import VARIABLE


@pytest.fixture(params=["", str(ROOT / "tests" / "fixtures" / "torchbench")], ids=["", "checkout"])
def checkout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick tier is the same whether a checkout of pytorch/benchmark is named or not."""
    monkeypatch.setenv(VARIABLE, request.param)


@pytest.mark.usefixtures("checkout")
def test_six_models_of_all_suites_and_one_of_them_trained() -> None:
    plan = make_plan(RunRequest(), 2)
    assert plan.tier == "quick"
    keys = [case.key for case in plan.cases]
    assert len({(key.suite, key.model) for key in keys}) == len(keys) == 6
    assert Counter(key.suite for key in keys) == {"huggingface": 1, "timm": 1, "torchbench": 4}
    assert Counter(key.mode for key in keys) == {"inference": 5, "training": 1}
    how = {(key.scale, key.precision, key.variant, key.device, key.threads) for key in keys}
    assert how == {("small", "fp32", "inductor", "cpu", 1)}
    assert not any(case.not_supported for case in plan.cases)
    assert any("one thread, because 2 cores" in note for note in plan.notes)


def test_each_case_has_four_processes_per_arm() -> None:
    (option,) = [one for one in run.params if one.name == "replicates"]
    assert "default: 4" in (option.help or "")
    assert REPLICATES == 4
