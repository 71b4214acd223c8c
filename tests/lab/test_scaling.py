"""`torchstone scaling`: real groups of two gloo ranks under torchrun."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from torchstone.lab.scaling import (
    ScalingRequest,
    communication,
    communication_of_all,
    findings,
    scale,
)
from torchstone.records import ArmSpec, Measurement, Outcome, UsageError
from torchstone.records.scaling import RankArm, Scaling

TARGETS = "tests/targets/ranks.py"
EXAMPLE = "examples/ranks.py"


def run(target: str, *parallel: str, timeout_s: float = 60.0) -> tuple[Scaling, dict[str, RankArm]]:
    found = scale(
        ScalingRequest(target, (2,), parallel, budget_s=0.1, replicates=1, timeout_s=timeout_s)
    )
    return found, {arm.name: arm for arm in found.arms}


def check_right(arm: RankArm) -> None:
    assert arm.measurement.outcome is Outcome.OK, arm.measurement.detail
    assert arm.gradients is not None
    assert arm.gradients.right
    assert len(arm.rank_s) == arm.ranks
    assert arm.threads == (1,) * arm.ranks


def test_ddp_has_the_gradients_of_one_rank() -> None:
    from torchstone.cli.scaling import scaling

    words = [f"{EXAMPLE}:two_layer", "--budget", "0.1s", "--replicates", "1", "--json", "-"]
    done = CliRunner().invoke(scaling, words, standalone_mode=False)
    assert done.return_value == 0, done.output
    document = json.loads(done.stdout)
    assert [arm["name"] for arm in document["arms"]] == ["plain", "ddp×1", "ddp×2"]
    assert [arm["measurement"]["outcome"] for arm in document["arms"]] == ["ok"] * 3
    two = document["arms"][2]
    assert two["gradients"]["error"] <= two["gradients"]["allowed"]
    assert [one["against"] for one in two["efficiency"]] == ["plain", "ddp×1"]
    weights = 4 * (512 * 512 + 512 + 512 * 16 + 16)
    assert two["communication"]["bytes"] == weights
    assert any("not a speed claim" in text for text in document["findings"])


def test_a_killed_rank_is_named_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # torchrun's own folders would stay in it
    found, arms = run(f"{TARGETS}:killed", "ddp")
    assert not list(tmp_path.glob("torchelastic_*"))
    check_right(arms["ddp×1"])
    dead = arms["ddp×2"]
    assert (dead.measurement.outcome, dead.failed_rank) == (Outcome.CRASH, 1)
    assert "rank 1 was killed by SIGKILL" in dead.measurement.detail.message
    assert any("ddp×2: rank 1 was killed" in text for text in found.findings)


def call(rank: int, start: int, end: int) -> dict[str, object]:
    return {"name": "gloo:all_reduce", "start_ns": start, "end_ns": end, "bytes": 100}


def test_waiting_for_the_last_rank_is_not_transfer() -> None:
    early = {"calls": [call(0, 0, 900)], "computing": [[0, 300]], "steps": [1000]}
    late = {"calls": [call(1, 600, 900)], "computing": [[0, 600]], "steps": [1000]}
    found = communication([early, late])
    assert found is not None
    assert found.skew_s == pytest.approx(300e-9)
    assert found.transfer_s == pytest.approx(300e-9)
    assert found.busy_s == pytest.approx(600e-9)
    assert found.exposed_s == pytest.approx(450e-9)
    assert found.straggler == 1
    again, other = communication_of_all([[early, late]] * 2), [[early, late], [late, early]]
    assert again == found
    by_chance = communication_of_all(other)  # on a busy machine, now one rank and now another
    assert by_chance is not None
    assert (by_chance.straggler, by_chance.busy_s) == (None, found.busy_s)


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (2.0, False)])
def test_a_sum_taken_for_a_mean_is_found(factor: float, right: bool) -> None:
    import torch

    from torchstone.lab.scaling import gradient_check
    from torchstone.measure.ranks import compare

    double = {"weight": torch.randn(8, dtype=torch.double), "bias": torch.ones(2).double()}
    single = {name: one.float() for name, one in double.items()}
    found = {name: factor * one for name, one in single.items()}
    check = gradient_check([compare(double, single, found)])
    assert check is not None
    assert check.right is right
    assert check.scale == pytest.approx(factor)
    spec = ArmSpec("fsdp×2", "x", mode="training")
    arm = RankArm("fsdp", 2, Measurement(spec, Outcome.OK), gradients=check)
    said = findings(Scaling("", "", "x", "strong", 1, 2, (arm,)))
    assert any("Work-around: model.set_force_sum_reduction" in text for text in said) is not right


def test_mistakes_are_refused() -> None:
    for how in ({"parallel": ("dpp",)}, {"ranks": (0,)}, {"replicates": 0}, {"timeout_s": 1.0}):
        with pytest.raises(UsageError):
            scale(ScalingRequest(f"{EXAMPLE}:two_layer", **how))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["closed_over", "summed"])
def test_a_loss_that_parts_cannot_compute_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=rf"The loss of .*ranks.py:{name}"):
        run(f"{TARGETS}:{name}", "ddp")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["two_layer", "transformer"])
def test_tensor_and_pipeline_parallel_have_the_gradients_of_one_rank(model: str) -> None:
    _, arms = run(f"{EXAMPLE}:{model}", "ddp", "tp", "pp")
    for arm in arms.values():
        check_right(arm)


@pytest.mark.slow
def test_fsdp_told_to_sum_is_right_and_as_it_comes_is_reported() -> None:
    found, arms = run(f"{EXAMPLE}:two_layer", "fsdp", "fsdp-sum")
    check_right(arms["fsdp-sum×2"])
    as_it_comes = arms["fsdp×2"]
    assert as_it_comes.gradients is not None
    assert any("pytorch#162338" in text for text in found.findings)
    if not as_it_comes.gradients.right:
        assert as_it_comes.measurement.outcome is Outcome.WRONG_ANSWER
        assert as_it_comes.gradients.scale == pytest.approx(2.0, rel=0.01)


@pytest.mark.slow
def test_a_hung_rank_is_named_with_its_line() -> None:
    _, arms = run(f"{TARGETS}:hung", "ddp", timeout_s=30.0)
    hung = arms["ddp×2"]
    assert (hung.measurement.outcome, hung.failed_rank) == (Outcome.TIMEOUT, 1)
    assert "ranks.py" in hung.measurement.detail.message
    assert "in hang" in hung.measurement.detail.message


@pytest.mark.slow
def test_a_slow_rank_is_named_as_straggler() -> None:
    _, arms = run(f"{TARGETS}:slow", "ddp")
    moved = arms["ddp×2"].communication
    assert moved is not None
    assert moved.straggler == 1
