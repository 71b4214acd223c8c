"""Which techniques are tried, and what their arms are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.explain.ledger_synthetic import ledger
from torchstone.records import ArmSpec, Decision, Experiment, Stage, UsageError
from torchstone.tuning import plan
from torchstone.variants import check_variant
from torchstone.variants.techniques import TECHNIQUES
from torchstone.variants.techniques.base import release

BASE = ArmSpec("baseline", "x.py:make", threads=64)


def test_techniques_add_up_to_one_arm() -> None:
    names = ("channels_last", "compile", "threads_one", "allocator_keep", "omp_passive")
    arm = plan.arm_of(BASE, names)
    assert arm.variant == "inductor+channels_last"
    assert (arm.threads, arm.allocator) == (1, "keep")
    assert dict(arm.env) == {"OMP_WAIT_POLICY": "passive"}
    assert arm.name == " + ".join(names)
    check_variant(arm.variant, tuple)


def test_one_of_a_group_gives_way_to_another() -> None:
    assert plan.with_technique(("compile", "gc_freeze"), "compile_freezing") == (
        "gc_freeze",
        "compile_freezing",
    )
    assert plan.with_technique(("channels_last",), "gc_freeze") == ("channels_last", "gc_freeze")


def chosen(wanted: plan.Wanted, base: ArmSpec = BASE, torch: str = "2.13.0") -> dict[str, str]:
    candidates, unable = plan.choose(base, wanted, torch, {})
    assert {*candidates, *(one.technique for one in unable)} == set(wanted.only or TECHNIQUES)
    assert all(one.reason for one in unable)
    return {
        **dict.fromkeys(candidates, "try"),
        **{one.technique: one.decision.value for one in unable},
    }


def test_everything_is_tried_or_has_a_reason() -> None:
    found = chosen(plan.Wanted())
    assert found["compile"] == found["channels_last"] == found["inference_mode"] == "try"
    assert found["fused_optimizer"] == Decision.NOT_APPLICABLE.value
    assert found["tf32"] == Decision.NOT_APPLICABLE.value
    assert found["autocast_bf16"] == Decision.NOT_ALLOWED.value
    assert chosen(plan.Wanted(allow="statistical"))["autocast_bf16"] == "try"
    assert chosen(plan.Wanted(allow="metric"))["int8_dynamic"] == Decision.NOT_ALLOWED.value
    judged = plan.Wanted(allow="metric", metric="m.py:score")
    assert chosen(judged)["int8_dynamic"] == "try"
    training = replace(BASE, mode="training")
    assert chosen(plan.Wanted(), training)["fused_optimizer"] == "try"
    assert chosen(plan.Wanted(), training)["checkpoint"] == Decision.NOT_APPLICABLE.value
    assert chosen(plan.Wanted("memory"), training)["checkpoint"] == "try"
    assert chosen(plan.Wanted(without=("compile",)))["compile"] == Decision.NOT_RUN.value
    assert chosen(plan.Wanted(only=("compile",))) == {"compile": "try"}


def test_a_setting_that_the_baseline_has_is_no_experiment() -> None:
    one = replace(BASE, threads=1, allocator="keep", env=(("OMP_WAIT_POLICY", "active"),))
    found = chosen(plan.Wanted(), one)
    for name in ("threads_one", "allocator_keep", "omp_passive", "omp_active"):
        assert found[name] == Decision.NOT_APPLICABLE.value, name


def test_versions_of_torch_are_compared_as_numbers() -> None:
    assert release("2.13.0+cpu") > release("2.4")
    assert release("2.4.0a0+git12") == (2, 4, 0)
    found = chosen(plan.Wanted(), replace(BASE, mode="training"), torch="2.3.1")
    assert found["fused_optimizer"] == Decision.NOT_APPLICABLE.value
    old = replace(TECHNIQUES["compile"], until="2.10")
    assert "removed" in old.why_not(BASE, "2.13.0")
    assert not old.why_not(BASE, "2.9.1")


def test_an_unknown_technique_is_refused_with_its_neighbour() -> None:
    with pytest.raises(UsageError, match="no technique 'channel_last'") as refused:
        plan.check_names(["channel_last"])
    assert "channels_last" in refused.value.remedy


def test_what_is_at_stake_comes_from_the_ledger() -> None:
    found = ledger({"interpreter": 0.6, "collector": 0.3, "kernels": 0.1})
    assert plan.share_of(TECHNIQUES["gc_freeze"], found) == pytest.approx(0.9)
    assert plan.share_of(TECHNIQUES["channels_last"], found) == pytest.approx(0.1)
    assert plan.share_of(TECHNIQUES["compile"], found) == pytest.approx(1.0)


def test_the_largest_share_comes_first_and_nothing_is_left_out() -> None:
    shares = dict.fromkeys(TECHNIQUES, 0.1) | {"jit_trace": 0.9, "compile": 0.0}
    candidates, _ = plan.choose(BASE, plan.Wanted(), "2.13.0", shares)
    assert candidates[0] == "jit_trace"
    assert candidates[-1] == "compile"


def test_one_of_each_group_comes_before_the_others_of_any() -> None:
    """So that a short budget is not spent on six ways to compile."""
    shares = dict.fromkeys(TECHNIQUES, 0.1)
    shares |= {name: 1.0 for name in TECHNIQUES if TECHNIQUES[name].group == "compiler"}
    candidates, _ = plan.choose(BASE, plan.Wanted(), "2.13.0", shares)
    groups = [TECHNIQUES[name].group or name for name in candidates]
    assert groups[: len(set(groups))] == list(dict.fromkeys(groups))
    assert candidates[0] == "compile"
    assert candidates.index("channels_last") < candidates.index("compile_dynamic")


def test_the_order_follows_what_is_at_stake_for_the_cost() -> None:
    names = ["compile", "channels_last", "threads_one", "gc_freeze"]
    shares = {"compile": 1.0, "channels_last": 0.5, "threads_one": 0.6, "gc_freeze": 0.1}
    found = plan.order(BASE, names, shares)
    assert found == ["channels_last", "threads_one", "compile", "gc_freeze"]


def test_costs_that_were_seen_take_the_place_of_expected_ones() -> None:
    def seen(name: str, seconds: float) -> Experiment:
        return Experiment(Stage.SCREEN, name, Decision.REJECTED, seconds=seconds)

    shares = {"compile_dynamic": 1.0, "gc_freeze": 0.5}
    known = (seen("channels_last", 10.0), seen("jit_trace", 5.0))
    assert plan.order(BASE, shares, shares) == ["gc_freeze", "compile_dynamic"]
    assert plan.order(BASE, shares, shares, known[:1]) == ["gc_freeze", "compile_dynamic"]
    found = plan.order(BASE, ["compile_dynamic", "gc_freeze"], shares, known)
    assert found == ["gc_freeze", "compile_dynamic"], "its group had its turn"
    others = {"threads_one": 0.5, "gc_freeze": 0.4}
    assert plan.order(BASE, others, others) == ["gc_freeze", "threads_one"]
    cheap = (seen("channels_last", 10.0), seen("omp_passive", 5.0))
    assert plan.order(BASE, others, others, cheap) == ["threads_one", "gc_freeze"]


def test_processes_that_start_alike_are_screened_together() -> None:
    names = ["compile", "threads_one", "channels_last", "gc_freeze", "jit_trace", "omp_passive"]
    found = plan.batches(BASE, names)
    assert sorted(name for some in found for name in some) == sorted(names)
    assert ("channels_last", "gc_freeze") in found
    assert ("compile",) in found
    assert ("threads_one",) in found
    assert ("omp_passive",) in found


def test_the_checks_of_an_arm_are_those_of_its_techniques() -> None:
    found = plan.checks_of("x", ("channels_last", "compile_freezing", "bf16"), "m.py:f")
    assert found.inputs == ("permuted strides", "second shape")
    assert found.conditions == ("changed weights",)
    assert found.losses
    assert found.metric == ""
    assert plan.checks_of("x", ("int8_dynamic",), "m.py:f").metric == "m.py:f"


def test_without_shares_a_compiler_comes_first_and_its_kin_last() -> None:
    found = plan.order(
        ArmSpec("base", "t.py:make"), ["gc_freeze", "compile_dynamic", "compile"], {}
    )
    assert found == ["compile", "gc_freeze", "compile_dynamic"]
