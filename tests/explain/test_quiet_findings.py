"""Findings do not advise what is done already, what does not exist, or cores that are not there."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import pytest

from tests.explain.ledger_synthetic import ARM, ledger, op, passes
from tests.show import synthetic_result
from torchstone.explain.findings.code import layout_conversions
from torchstone.explain.findings.hardware import idle_cores, thread_pool
from torchstone.explain.findings.python import WITH_FUSED, optimizer
from torchstone.explain.ledger import make_ledger
from torchstone.explain.passes.report import Function
from torchstone.records import Contract, Leaf, Ledger, OpCost, Remedy

# An optimizer that is fused, or cannot be


def slow_optimizer(*ops: OpCost, **facts: str) -> Ledger:
    return ledger({"kernels": 0.8, "optimizer": 0.2}, ops=ops, facts=facts)


@pytest.mark.parametrize("name", WITH_FUSED)
def test_a_fused_optimizer_is_not_told_to_be_fused(name: str) -> None:
    assert optimizer.look(slow_optimizer(op(f"aten::_fused_{name}_", 1e-3))) is None


def test_other_ops_that_are_called_fused_are_no_optimizers() -> None:
    attention = op("aten::_fused_sdp_choice", 1e-4), op("aten::_fused_rms_norm", 1e-4)
    assert optimizer.look(slow_optimizer(*attention)) is not None


def test_an_optimizer_without_a_fused_one_is_left_to_its_author() -> None:
    found = optimizer.look(slow_optimizer(optimizer_file="rmsprop"))
    assert found is not None
    assert not found.remedy.applicable
    assert "torch.optim.rmsprop" in found.why_not
    assert "fused=True" not in found.advice
    known = optimizer.look(slow_optimizer(optimizer_file="adam"))
    assert known is not None
    assert known.remedy == Remedy(technique="fused_optimizer")
    unknown = optimizer.look(slow_optimizer())
    assert unknown is not None
    assert unknown.advice.endswith("if it has one")


def test_the_optimizers_with_a_fused_one_are_those_of_this_torch() -> None:
    optim = pytest.importorskip("torch").optim
    kinds = [kind for kind in vars(optim).values() if inspect.isclass(kind)]
    takes = {
        kind.__module__.rpartition(".")[2]
        for kind in kinds
        if "fused" in inspect.signature(kind).parameters
    }
    assert takes == set(WITH_FUSED)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/x/site-packages/torch/optim/rmsprop.py", "rmsprop"),
        ("/x/site-packages/torch/optim/_muon.py", "_muon"),
        (r"C:\x\torch\optim\adam.py", "adam"),
        ("/x/site-packages/torch/optim/optimizer.py", None),
        ("/x/site-packages/torch/optim/lr_scheduler.py", None),
        ("/home/me/optim/mine.py", None),
    ],
)
def test_the_optimizer_is_known_by_its_functions(file: str, name: str | None) -> None:
    seen = Function("step", file, 1, 1.0, 1e5)
    made = make_ledger(ARM, passes(functions=(Function("f", "/m.py", 1, 1.0, 1e6), seen)))
    assert made.facts.get("optimizer_file") == name


# Copies that are casts, or layouts that are right


def contract(layout: str = "contiguous", dtype: str = "float32", **changes: Any) -> Contract:
    image = Leaf("input[0]", "torch", dtype, (4, 64, 48, 48), memory_format=layout)
    return Contract((image,), (), parameter_dtypes={"float32": 10}, **changes)


def with_copies(given: Contract, *copies: OpCost) -> Ledger:
    """The facts of a step with this contract, and a convolution beside these copies."""
    facts = make_ledger(ARM, passes(contract=given)).facts
    return ledger(ops=(*copies, op("aten::mkldnn_convolution", 5e-3)), facts=facts)


CASTS = (op("aten::copy_", 2e-3, calls=5), op("aten::_to_copy", 1e-4, calls=5))


@pytest.mark.parametrize(
    "given",
    [
        contract(autocast="bfloat16"),
        contract(dtype="uint8"),
        contract("channels_last", autocast="bfloat16"),
    ],
)
def test_casts_are_no_layout_conversions(given: Contract) -> None:
    assert layout_conversions.look(with_copies(given, *CASTS)) is None


def test_what_is_no_cast_among_casts_is_told_without_them() -> None:
    more = (replace(CASTS[0], calls=10, kernel_s=4e-3), CASTS[1], op("aten::clone", 0.0, calls=5))
    found = layout_conversions.look(with_copies(contract(autocast="bfloat16"), *more))
    assert found is not None
    assert found.at_stake_s == pytest.approx(2e-3)
    assert "aten::copy_ ×5" in found.evidence
    assert "_to_copy" not in found.evidence


def test_where_there_is_one_type_only_nothing_can_be_cast() -> None:
    """`x.to(memory_format=torch.channels_last)` is called as a cast is."""
    found = layout_conversions.look(with_copies(contract(), *CASTS))
    assert found is not None
    assert found.remedy == Remedy(technique="channels_last")


def test_images_that_are_channels_last_are_not_told_to_be() -> None:
    """Copies that are there all the same (a model in the other layout) are left to their author."""
    copies = op("aten::copy_", 2e-3, calls=5), op("aten::clone", 0.0, calls=5)
    found = layout_conversions.look(with_copies(contract("channels_last"), *copies))
    assert found is not None
    assert not found.remedy.applicable
    assert "channels_last" not in found.advice


# Cores that are hyper-threads


def on(threads: int, logical: int, physical: str, **shares: float) -> Ledger:
    machine = replace(
        synthetic_result.environment(),
        cpu={"affinity": str(logical), **({"physical_cores": physical} if physical else {})},
    )
    facts = {"threads": str(threads), "cores": str(logical)}
    return ledger(shares or {"kernels": 0.9}, facts=facts, environment=machine)


def test_as_many_threads_as_physical_cores_leave_none_idle() -> None:
    assert idle_cores.look(on(4, 8, "4")) is None
    found = idle_cores.look(on(2, 8, "4"))
    assert found is not None
    assert "on 2 of 4 cores" in found.evidence
    assert found.remedy == Remedy(threads=4)


def test_a_quota_below_the_physical_cores_counts() -> None:
    found = idle_cores.look(on(1, 2, "4"))
    assert found is not None
    assert found.remedy == Remedy(threads=2)


@pytest.mark.parametrize("said", ["", "0"])
def test_where_the_machine_does_not_say_all_cores_count(said: str) -> None:
    found = idle_cores.look(on(4, 8, said))
    assert found is not None
    assert found.remedy == Remedy(threads=8)


def test_too_many_threads_are_made_as_many_as_physical_cores() -> None:
    found = thread_pool.look(on(16, 8, "4", kernels=0.4, pool=0.6))
    assert found is not None
    assert found.remedy == Remedy(threads=4)


def test_the_report_tells_both_kinds_of_cores() -> None:
    machine = replace(synthetic_result.environment(), cpu={"affinity": "4", "physical_cores": "2"})
    words = " ".join(make_ledger(ARM, passes(environment=machine)).hardware)
    assert "of 4 logical cores (on 2 physical ones) were busy" in words
    assert "of 4 cores were busy" in " ".join(make_ledger(ARM, passes()).hardware)
