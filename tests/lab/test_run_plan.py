"""What `run` will do, before anything is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.targets.support import HONEST, ROOT
from torchstone.conductor import Settings
from torchstone.lab import run_plan
from torchstone.lab.run_plan import (
    MOST_TOGETHER,
    TORCHBENCH_VARIABLE,
    RunRequest,
    arm_of,
    command_of_case,
    groups,
    make_plan,
    parse_shard,
    shapes_of,
    shard_of,
)
from torchstone.records import CaseKey, PlannedCase, UsageError
from torchstone.workloads.suites import BuildSetting, ModelInfo
from torchstone.workloads.workload import Workload

MANY = 64


@dataclass(frozen=True)
class Toys:
    name: str = "toys"
    prefix: str = "toy"
    scales: tuple[str, ...] = ("small", "full")

    def models(self) -> Sequence[ModelInfo]:
        return (
            ModelInfo("ball", tier="quick", quick_modes=("training",)),
            ModelInfo("car", tier="standard"),
            ModelInfo("carousel", modes=("inference",)),
            ModelInfo("drone", missing="needs the package rotor"),
        )

    def import_library(self, model: str) -> None:
        return

    def build(self, model: str, setting: BuildSetting) -> Workload:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_plan, "find_suite", lambda name: Toys())


def names(request: RunRequest) -> list[str]:
    return [case.key.name for case in make_plan(request, MANY).cases]


def test_the_matrix_in_order() -> None:
    request = RunRequest(
        ("toys",),
        variants=("inductor", "aot_eager"),
        modes=("inference", "training"),
        only=("ball",),
        precisions=("fp32", "amp"),
    )
    assert names(request) == [
        f"toys/ball@small {mode} {precision} {variant}"
        for precision in ("fp32", "amp")
        for mode in ("inference", "training")
        for variant in ("inductor", "aot_eager")
    ]


@pytest.mark.parametrize(
    ("asked", "models"),
    [
        ({"tier": "quick"}, ["ball"]),
        ({}, ["ball", "car"]),
        ({"tier": "full"}, ["ball", "car", "carousel", "drone"]),
        ({"pattern": "CAR"}, ["car", "carousel"]),
        ({"only": ("car*",)}, ["car", "carousel"]),
        ({"only": ("car",)}, ["car"]),
        ({"only": ("ball", "drone")}, ["ball", "drone"]),
        ({"tier": "standard", "only": ("car*",)}, ["car"]),
        ({"tier": "full", "exclude": ("car*", "ball")}, ["drone"]),
    ],
)
def test_which_models(asked: dict[str, Any], models: list[str]) -> None:
    plan = make_plan(RunRequest(("toys",), **asked), MANY)
    assert [case.key.model for case in plan.cases] == models


def test_a_suite_that_is_named_twice_is_run_once() -> None:
    assert names(RunRequest(("toys", "toy", "toys"))) == names(RunRequest(("toys",)))


def test_two_suites_of_one_name_are_refused(tmp_path: Path) -> None:
    for file, model in (("a.toml", "one"), ("b.toml", "two")):
        entry = f'[[model]]\nname = "{model}"\ntarget = "{HONEST}"\n'
        (tmp_path / file).write_text(f'name = "mine"\n{entry}')
    a, b = str(tmp_path / "a.toml"), str(tmp_path / "b.toml")
    assert len(make_plan(RunRequest((a, a)), MANY).cases) == 1
    with pytest.raises(UsageError, match="Two suites are called mine"):
        make_plan(RunRequest((a, b)), MANY)


def test_a_checkout_may_be_named_for_a_file_that_lists_its_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TORCHBENCH_VARIABLE, str(ROOT / "tests" / "fixtures" / "torchbench"))
    path = tmp_path / "mine.toml"
    path.write_text('[[model]]\nname = "one"\ntarget = "torchbench-checkout:good"\n')
    (case,) = make_plan(RunRequest((str(path),), torchbench="bench"), MANY).cases
    assert case.target == "torchbench-checkout:good"


def test_the_quick_tier_runs_each_model_in_its_mode() -> None:
    assert names(RunRequest(("toys",), tier="quick")) == ["toys/ball@small training fp32 inductor"]


def test_a_model_that_only_trains_is_trained() -> None:
    assert run_plan._modes(ModelInfo("press", modes=("training",)), "full") == ("training",)


def test_what_cannot_run_is_planned_with_its_reason() -> None:
    request = RunRequest(
        ("toys",), tier="full", modes=("training",), variants=("inductor", "inductor+cudagraphs")
    )
    why = {(c.key.model, c.key.variant): c.not_supported for c in make_plan(request, MANY).cases}
    assert why["ball", "inductor"] == ""
    assert "CUDA" in why["ball", "inductor+cudagraphs"]
    assert why["carousel", "inductor"] == "carousel has no training mode"
    assert why["drone", "inductor"] == "needs the package rotor"


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_one_thread_on_few_cores_and_it_says_so(cores: int) -> None:
    plan = make_plan(RunRequest(("toys",)), cores)
    few = cores <= 2
    assert {case.key.threads for case in plan.cases} == {1 if few else 0}
    assert any("one thread" in note for note in plan.notes) == few
    asked = make_plan(RunRequest(("toys",), threads=2), cores)
    assert {case.key.threads for case in asked.cases} == {2}


@pytest.mark.parametrize(
    ("asked", "message", "remedy"),
    [
        ({"only": ("balls",)}, "called 'balls'", "Did you mean ball"),
        ({"exclude": ("kart",)}, "called 'kart'", "car"),
        ({"pattern": "zzz"}, "No model matches", "shorter"),
        ({"pattern": "["}, "not a regular expression", "backslash"),
        ({"modes": ("test",)}, "no mode 'test'", "inference, training"),
        ({"precisions": ("fp8",)}, "no precision 'fp8'", "bf16"),
        ({"variants": ("induktor",)}, "no variant 'induktor'", "inductor"),
        ({"variants": ("inductor+dynamik",)}, "no modifier 'dynamik'", "+dynamic"),
        ({"variants": ()}, "no variant", "--variants"),
        ({"scale": "huge"}, "no scale 'huge'", "small, full"),
        ({"threads": 0}, "at least 1, not 0", "1 or more"),
        ({"settings": Settings(budget_s=-1)}, "budget", ""),
        ({"tier": "quick", "only": ("car",)}, "car is of the tier standard", "--tier standard"),
        ({"tier": "standard", "only": ("ball", "drone")}, "drone is of the tier full", "--tier"),
        ({"tier": "standard", "only": ("*ousel",)}, "carousel is of the tier full", "--tier"),
        ({"only": ("car",), "exclude": ("car*",)}, "No model is left", "--exclude"),
        ({"torchbench": "bench"}, "no suite that it is for", "torchbench --torchbench bench"),
    ],
)
def test_slips_are_told(asked: dict[str, Any], message: str, remedy: str) -> None:
    with pytest.raises(UsageError) as error:
        make_plan(RunRequest(("toys",), **asked), MANY)
    assert message in error.value.message
    assert remedy in error.value.remedy


def case(model: str, variant: str, mode: str = "inference") -> PlannedCase:
    return PlannedCase(CaseKey("toys", model, "small", mode, "fp32", variant), f"toy:{model}@small")


def test_variants_of_one_model_share_a_baseline_but_not_across_shapes() -> None:
    plan = [
        case("ball", "inductor"),
        case("ball", "aot_eager"),
        case("ball", "inductor+dynamic"),
        case("ball", "inductor", "training"),
        case("car", "inductor"),
    ]
    positions = [[position for position, _ in group.cases] for group in groups(plan)]
    assert positions == [[0, 1], [2], [3], [4]]


def test_dynamic_cases_vary_shapes_on_both_sides() -> None:
    dynamic = case("ball", "inductor+dynamic")
    assert shapes_of(dynamic.key) >= 4
    assert arm_of(dynamic).shapes == arm_of(dynamic, "eager").shapes == shapes_of(dynamic.key)
    assert arm_of(case("ball", "inductor")).shapes == 1


variants = st.sampled_from(
    ("inductor", "aot_eager", "export", "aoti", "inductor+dynamic", "x", "y")
)
plans = st.lists(
    st.builds(case, st.sampled_from(("ball", "car", "bike")), variants), max_size=40, unique=True
)


@given(plans, st.integers(1, 7))
def test_shards_cover_the_plan_once(plan: list[PlannedCase], count: int) -> None:
    all_groups = groups(plan)
    assert all(1 <= len(group.cases) <= MOST_TOGETHER for group in all_groups)
    seen = [
        position
        for index in range(1, count + 1)
        for group in shard_of(all_groups, (index, count))
        for position, _ in group.cases
    ]
    assert sorted(seen) == list(range(len(plan)))


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/3", "1/3/5", ""])
def test_a_shard_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="is not a shard"):
        parse_shard(text)


def test_the_command_of_a_case_has_what_is_not_default() -> None:
    key = CaseKey("toys", "ball", "small", "training", "amp", "inductor+dynamic", threads=1)
    key = replace(key, allocator="keep")
    settings = Settings(budget_s=10, replicates=4, count_flops=True)
    words = " ".join(command_of_case(PlannedCase(key, "toy:ball@small"), settings))
    assert words == (
        "torchstone bench toy:ball@small --vs inductor+dynamic --mode training --precision amp "
        "--threads 1 --allocator keep --budget 10s --replicates 4"
    )


def test_memory_is_kept_unless_another_allocator_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def planned(**asked: str) -> tuple[set[str], set[str], str]:
        made = make_plan(RunRequest(suites=("toys",), **asked), 8)  # type: ignore[arg-type]
        keys = {case.key.allocator for case in made.cases}
        return keys, {arm_of(case).allocator for case in made.cases}, " ".join(made.notes)

    assert planned()[:2] == ({"keep"}, {"keep"})
    assert planned(allocator="default")[:2] == ({"default"}, {"default"})
    with pytest.raises(UsageError, match="There is no allocator 'mine'"):
        planned(allocator="mine")
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    assert planned()[0] == {"default"}
    assert "not glibc" in planned()[2]
    assert "not glibc" not in planned(allocator="default")[2]
