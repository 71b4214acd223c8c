"""Torch end to end: variants, precisions, training, contracts. Torch starts slowly."""

from __future__ import annotations

import pytest

from tests.targets.support import run_arms, target
from torchstone.records import DROPOUT_NOTE, ArmSpec, Measurement, Outcome

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


def test_running_statistics_are_part_of_the_answer() -> None:
    norm = target("nets", "make_norm")
    found = by_name(
        ArmSpec("eager", norm, mode="training"),
        ArmSpec("aot", norm, mode="training", variant="aot_eager"),
        ArmSpec("forgetful", target("nets", "make_forgetful_norm"), mode="training"),
    )
    assert [found[name].outcome for name in ("eager", "aot")] == [Outcome.OK] * 2
    assert found["forgetful"].outcome is Outcome.WRONG_ANSWER
    assert found["forgetful"].detail.message.startswith("output.state.1.running_")


def test_dropout_with_a_fixed_seed_is_a_fixed_answer() -> None:
    (arm,) = by_name(ArmSpec("net", target("nets", "make_dropout"), mode="training")).values()
    assert arm.outcome is Outcome.OK, arm.detail


def test_dropout_under_a_compiler_is_explained() -> None:
    net = target("nets", "make_dropout")
    arms = [ArmSpec(name, net, name, "training") for name in ("eager", "inductor")]
    eager, compiled = run_arms(*arms, replicates=1).arms
    assert eager.outcome is Outcome.OK, eager.detail
    assert eager.contract is not None
    assert DROPOUT_NOTE in eager.contract.notes
    assert compiled.outcome is Outcome.WRONG_ANSWER
    assert "set every p to 0" in compiled.detail.remedy


def test_weights_that_no_seed_governs_are_found() -> None:
    (arm,) = by_name(ArmSpec("net", target("nets", "make_unseeded"))).values()
    assert arm.outcome is Outcome.NONDETERMINISTIC
    assert "not seeded" in arm.detail.message


def test_a_trace_is_compiled_apart_from_its_steady_cost() -> None:
    plain = target("nets", "make_plain")
    found = by_name(ArmSpec("eager", plain), ArmSpec("traced", plain, variant="jit-trace"))
    traced, eager = found["traced"], found["eager"]
    assert traced.outcome is Outcome.OK, traced.detail
    assert traced.agreement is not None
    assert traced.agreement.timed
    assert traced.compile is not None
    assert eager.compile is not None
    # Tracing alone runs the module more than once; the steady step is one call.
    assert traced.compile.cold_ns > 10 * traced.compile.steady_ns
    assert traced.compile.cold_ns > eager.compile.cold_ns
    assert traced.compile.warm_ns is not None


def test_training_in_mixed_precision_is_checked_by_its_true_gradients() -> None:
    """The loud net's gradients overflow the first loss scales, in every process again."""
    loud = target("nets", "make_loud")
    found = by_name(
        ArmSpec("fp16", loud, mode="training", precision="amp-fp16", threads=1),
        ArmSpec("aot", loud, mode="training", precision="amp-fp16", variant="aot_eager", threads=1),
        ArmSpec("bf16", loud, mode="training", precision="amp-bf16", threads=1),
    )
    said = {}
    for name, arm in found.items():
        assert arm.outcome is Outcome.OK, arm.detail
        assert arm.agreement is not None
        assert (arm.agreement.method, arm.agreement.timed) == ("fp64", 1)
        assert 0 < arm.agreement.rmse < (0.1 if name == "bf16" else 0.01)
        assert arm.contract is not None
        said[name] = arm.contract.autocast
    assert said == {
        "fp16": "amp-fp16 (float16, GradScaler)",
        "aot": "amp-fp16 (float16, GradScaler)",
        "bf16": "amp-bf16 (bfloat16)",
    }


def test_a_cold_compilation_finds_nothing_of_the_last_one() -> None:
    """Warm means: the second process of the same case. Another case starts from nothing."""
    for _ in range(2):
        compiled = by_name(ArmSpec("eager", NET), ArmSpec("new", NET, variant="inductor"))["new"]
        assert compiled.outcome is Outcome.OK, compiled.detail
        assert compiled.compile is not None
        assert compiled.compile.warm_ns is not None
        assert compiled.compile.cold_ns > 1.5 * compiled.compile.warm_ns
