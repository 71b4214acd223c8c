"""Torch end to end: variants, precisions, training, contracts. Torch starts slowly."""

from __future__ import annotations

import pytest

from tests.targets.support import run_arms, target
from torchstone.records import ArmSpec, Measurement, Outcome

pytestmark = pytest.mark.slow
NET = target("nets")


def by_name(*arms: ArmSpec) -> dict[str, Measurement]:
    return {arm.arm.name: arm for arm in run_arms(*arms, replicates=1).arms}


def test_variants_of_inference() -> None:
    found = by_name(
        ArmSpec("eager", NET),
        ArmSpec("aot", NET, variant="aot_eager"),
        ArmSpec("export", NET, variant="export"),
        ArmSpec("bf16", NET, precision="bf16"),
        ArmSpec("graphs", NET, variant="cudagraphs"),
        ArmSpec("half", target("nets", "make_half")),
        ArmSpec("unseeded", target("nets", "make_unseeded")),
    )
    for name in ("eager", "aot", "export", "bf16"):
        assert found[name].outcome is Outcome.OK, found[name].detail
        assert found[name].turns
    agreement = found["aot"].agreement
    assert agreement is not None
    assert agreement.method == "fp64"
    assert found["graphs"].outcome is Outcome.NOT_SUPPORTED
    assert "CUDA" in found["graphs"].detail.message
    assert found["half"].detail.message == (
        "output.logits: expected float32[4,8], got bfloat16[4,8]"
    )
    assert found["unseeded"].outcome is Outcome.WRONG_ANSWER


def test_training() -> None:
    found = by_name(
        ArmSpec("eager", NET, mode="training"),
        ArmSpec("aot", NET, mode="training", variant="aot_eager"),
    )
    assert [arm.outcome for arm in found.values()] == [Outcome.OK] * 2
    contract = found["aot"].contract
    assert contract is not None
    assert contract.training
    assert any(leaf.path == "output.grad.first.weight" for leaf in contract.outputs)


def test_dropout_with_a_fixed_seed_is_a_fixed_answer() -> None:
    (arm,) = by_name(ArmSpec("net", target("nets", "make_dropout"), mode="training")).values()
    assert arm.outcome is Outcome.OK, arm.detail


def test_weights_that_no_seed_governs_are_found() -> None:
    (arm,) = by_name(ArmSpec("net", target("nets", "make_unseeded"))).values()
    assert arm.outcome is Outcome.NONDETERMINISTIC
    assert "not seeded" in arm.detail.message
