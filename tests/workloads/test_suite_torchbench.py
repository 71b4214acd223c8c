"""The TorchBench suite: a checkout through its API, and the models that need none."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import torchstone
from tests.targets.support import run_arms
from tests.workloads.building import ROOT, Request, build_all
from torchstone.records import ArmSpec, Outcome, UsageError
from torchstone.workloads import check_target
from torchstone.workloads.suites.torchbench_builtin import TORCHBENCH, TORCHBENCH_CHECKOUT, VARIABLE
from torchstone.workloads.suites.torchbench_checkout import Checkout, origin

CHECKOUT = ROOT / "tests" / "fixtures" / "torchbench"
OWN = ("dcgan", "dlrm", "lennard_jones", "nanogpt", "speech_lstm")
LIBRARIES = (
    "alexnet",
    "densenet121",
    "mnasnet1_0",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "resnet18",
    "resnet50",
    "shufflenet_v2_x1_0",
    "squeezenet1_1",
    "vgg16",
    "hf_Albert",
    "hf_Bert",
    "hf_DistilBert",
    "hf_GPT2",
    "hf_T5",
    "timm_efficientnet",
    "timm_nfnet",
    "timm_regnet",
    "timm_resnest",
    "timm_vision_transformer",
    "timm_vovnet",
)


@pytest.fixture
def checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(CHECKOUT))


def target(model: str, mode: str = "inference", precision: str = "fp32") -> Request:
    return f"torchbench-checkout:{model}", mode, precision


def own_target(model: str, mode: str = "inference") -> Request:
    """Without a checkout."""
    return f"torchbench:{model}", mode, "fp32"


def check_agreement(name: str, mode: str) -> None:
    """Eager and `aot_eager` both run, and compute the same."""
    arms = [
        ArmSpec(variant, name, variant=variant, mode=mode, threads=1)
        for variant in ("eager", "aot_eager")
    ]
    for arm in run_arms(*arms, replicates=1).arms:
        assert arm.outcome is Outcome.OK, arm.detail
        assert arm.turns


# What a checkout lists


@pytest.mark.usefixtures("checkout")
def test_a_checkout_lists_its_models_with_what_they_lack() -> None:
    found = {model.name: model for model in TORCHBENCH_CHECKOUT.models()}
    assert sorted(found) == sorted(
        path.parent.name for path in (CHECKOUT / "torchbenchmark/models").glob("*/__init__.py")
    )
    assert {name: model.missing for name, model in found.items() if model.missing} == {
        "needs_package": "needs the package no_such_package_at_all: run python install.py in "
        "torchbenchmark/models/needs_package of the checkout",
        "needs_package_below": "needs the package another_missing_package: "
        "install another_missing_package",
    }
    assert found["good"].family == "vision"
    assert "resnet18" not in found


def test_listing_a_checkout_runs_none_of_its_code() -> None:
    script = (
        "import json, sys; from torchstone.workloads.suites import torchbench_builtin as t;"
        "names = [m.name for m in t.TORCHBENCH_CHECKOUT.models()];"
        "print(json.dumps([names, [m for m in sys.modules if m.startswith('torch')]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(ROOT / "src"), VARIABLE: str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=True,
    )
    names, loaded = json.loads(done.stdout)
    assert "crashes_on_import" in names
    assert {module.split(".")[0] for module in loaded} == {"torchstone"}


def test_a_package_that_is_missing_throughout_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "benchmark"
    shutil.copytree(CHECKOUT, copy)
    base = copy / "torchbenchmark" / "util" / "model.py"
    base.write_text("import no_yaml_here\n" + base.read_text())
    broken = copy / "torchbenchmark" / "models" / "broken"
    broken.mkdir()
    (broken / "__init__.py").write_text("this is no Python\n")
    monkeypatch.setenv(VARIABLE, str(copy))
    missing = {model.name: model.missing for model in TORCHBENCH_CHECKOUT.models()}
    assert missing["good"] == "needs the package no_yaml_here: install no_yaml_here"
    assert missing["broken"] == ""


@pytest.mark.parametrize("place", ["no/such/folder", str(ROOT / "docs")])
def test_a_folder_that_is_no_checkout(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, place)
    with pytest.raises(UsageError, match="is not a checkout of pytorch/benchmark") as caught:
        TORCHBENCH_CHECKOUT.models()
    assert "--torchbench" in caught.value.remedy


@pytest.mark.usefixtures("checkout")
def test_a_model_that_the_checkout_has_not() -> None:
    with pytest.raises(UsageError, match="torchbench-checkout has no model 'goood'") as caught:
        check_target("torchbench-checkout:goood")
    assert "torchbench-checkout:good?" in caught.value.remedy
    with pytest.raises(UsageError, match="no model 'resnet18'"):
        check_target("torchbench-checkout:resnet18@small")


# What a checkout builds

REQUESTS = [
    target("good"),
    target("good", "training"),
    target("good@small"),
    target("no_training"),
    target("no_training", "training"),
    target("only_eval"),
    target("only_eval@small"),
    target("only_eval", "training"),
    target("only_eval@small", "training"),
    target("only_invoke"),
    target("only_invoke", "training"),
    target("only_invoke", precision="bf16"),
    target("wants_gradients"),
    target("wants_gradients@small", "training"),
    target("tries_package"),
    target("changes_path"),
    target("needs_package"),
    target("downloads"),
    target("needs_data"),
    target("needs_cuda"),
    target("crashes_on_import"),
    target("has_a_bug"),
]


@pytest.fixture(scope="module")
def built() -> dict[Request, dict[str, Any]]:
    return build_all(REQUESTS, **{VARIABLE: str(CHECKOUT)})


def test_a_good_model_in_inference(built: dict[Request, dict[str, Any]]) -> None:
    facts = built[target("good")]
    assert facts["outcome"] == "ok", facts
    assert facts["phases"] == ["import", "build"]
    assert facts["inputs"] == [[16, 32]]
    assert facts["output"] == [[[16, 10], True]]
    assert facts["equal_seeds_equal_inputs"]
    assert facts["other_seeds_other_inputs"]
    assert "from the checkout torchbench (no commit known)" in facts["notes"]
    assert "batch size 16" in facts["notes"]


def test_dropout_is_off_and_the_notes_say_when(built: dict[Request, dict[str, Any]]) -> None:
    for mode in ("inference", "training"):
        facts = built[target("good", mode)]
        assert facts["dropout"] == [0.0]
        assert "dropout set to 0 after construction: forget.p" in facts["notes"]


def test_the_checkout_cannot_take_the_seeds_away(built: dict[Request, dict[str, Any]]) -> None:
    assert built[target("good")]["seeded"] == 12345


def test_training_has_the_models_own_optimizer(built: dict[Request, dict[str, Any]]) -> None:
    facts = built[target("good", "training")]
    assert facts["outcome"] == "ok", facts
    assert facts["inputs"] == [[8, 32]]
    assert facts["optimizer"] == ["AdamW", 0.25]
    assert facts["gradients"] == 4
    notes = "\n".join(facts["notes"])
    assert "AdamW with the settings of the checkout's optimizer, its parameter groups as" in notes
    assert "the loss is the output's own, else its mean square" in notes


def test_small_scale_is_a_smaller_batch(built: dict[Request, dict[str, Any]]) -> None:
    assert built[target("good@small")]["inputs"] == [[4, 32]]
    fixed = built[target("only_eval@small")]
    assert fixed["inputs"] == [[64, 4]]
    assert "its batch size cannot be chosen, so small is no smaller than full" in fixed["notes"]


def test_a_model_in_half_precision_is_fp32_in_an_fp32_arm(
    built: dict[Request, dict[str, Any]],
) -> None:
    facts = built[target("only_eval")]
    assert facts["parameter_types"] == ["float32"]
    assert facts["input_types"] == ["float32"]
    assert "the checkout makes it in float16; made float32 here" in facts["notes"]


def test_invoke_serves_where_there_is_no_module(built: dict[Request, dict[str, Any]]) -> None:
    facts = built[target("only_invoke")]
    assert facts["output"] == [[[4, 8], True]]
    assert facts["parameters"] == 72
    assert any("inputs are never fresh" in note for note in facts["notes"])


def test_gradients_for_a_model_that_asks_for_them(built: dict[Request, dict[str, Any]]) -> None:
    assert built[target("wants_gradients")]["output"] == [[[4], True]]


@pytest.mark.parametrize("model", ["tries_package", "changes_path"])
def test_an_import_that_may_well_succeed_is_no_reason(
    built: dict[Request, dict[str, Any]], model: str
) -> None:
    assert built[target(model)]["outcome"] == "ok", built[target(model)]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (target("no_training", "training"), "no_training does not support train: its labels were"),
        (target("only_eval", "training"), "only_eval does not support train: Test train is not"),
        (target("only_eval@small", "training"), "only_eval does not support train: Test train is"),
        (target("wants_gradients@small", "training"), "not support train: Test train is not"),
        (target("only_invoke", "training"), "only_invoke does not support train: get_module: Th"),
        (target("only_invoke", precision="bf16"), "its inputs cannot be made bf16"),
        (target("needs_package"), "needs_package needs the package no_such_package_at_all: run py"),
        (target("downloads"), "downloads needs data that is not here: <urlopen error"),
        (target("needs_data"), "needs_data needs data that is not here: [Errno 2]"),
        (target("needs_cuda"), "needs_cuda needs CUDA: Torch not compiled"),
    ],
    ids=lambda value: value[0][20:] + value[1][:1] if isinstance(value, tuple) else "",
)
def test_what_cannot_run_says_why(
    built: dict[Request, dict[str, Any]], request_: Request, reason: str
) -> None:
    facts = built[request_]
    assert facts["outcome"] == "not_supported", facts
    assert reason in facts["reason"]


@pytest.mark.parametrize(
    ("model", "phase", "said"),
    [
        ("crashes_on_import", "import", "this model's code is broken"),
        ("has_a_bug", "build", "no_such_attribute"),
    ],
)
def test_a_fault_of_the_models_own_is_an_error(
    built: dict[Request, dict[str, Any]], model: str, phase: str, said: str
) -> None:
    facts = built[target(model)]
    assert facts["outcome"] == "error", facts
    assert facts["phases"][-1] == phase
    assert said in facts["reason"]


def commit_all(folder: Path) -> str:
    """A repository of that folder; the first letters of its commit."""
    git = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    return head.stdout[:12]


def test_the_commit_of_the_checkout_is_told(tmp_path: Path) -> None:
    copy = tmp_path / "benchmark"
    shutil.copytree(CHECKOUT, copy, ignore=shutil.ignore_patterns("__pycache__"))
    assert commit_all(tmp_path)  # of the folder around it, which says nothing of the checkout
    assert origin(Checkout(str(copy))) == "from the checkout benchmark (no commit known)"
    told = f"from the checkout benchmark at {commit_all(copy)}"
    assert origin(Checkout(str(copy))) == told
    (copy / "torchbenchmark" / "tasks.py").write_text("NLP = None\n")
    assert origin(Checkout(str(copy))) == f"{told}, with local changes"


@pytest.mark.slow
@pytest.mark.usefixtures("checkout")
def test_outcomes_end_to_end() -> None:
    def outcome(model: str, mode: str = "inference") -> tuple[Outcome, str]:
        result = torchstone.bench(
            f"torchbench-checkout:{model}", mode=mode, budget=0.2, replicates=2, threads=1
        )
        arm = result.arms[0]
        return arm.outcome, arm.detail.message

    refused = outcome("no_training", "training")
    assert refused[0] is Outcome.NOT_SUPPORTED
    assert "no_training does not support train: its labels were never published" in refused[1]
    assert outcome("needs_package")[0] is Outcome.NOT_SUPPORTED
    assert outcome("crashes_on_import")[0] is Outcome.ERROR
    assert outcome("good", "training")[0] is Outcome.OK


@pytest.mark.slow
@pytest.mark.usefixtures("checkout")
def test_a_checkouts_model_compiled_and_trained_agrees_with_eager() -> None:
    for model, mode in (("good", "training"), ("only_invoke", "inference")):
        check_agreement(f"torchbench-checkout:{model}", mode)


# Without a checkout


def test_the_models_that_need_no_checkout() -> None:
    found = {model.name: model for model in TORCHBENCH.models()}
    assert sorted(found) == sorted((*OWN, *LIBRARIES))
    assert list(found) == sorted(found, key=str.lower)
    assert TORCHBENCH.scales == ("small", "full")
    assert sum(model.tier != "full" for model in found.values()) >= 10


def test_a_library_that_is_not_installed_is_named() -> None:
    """An interpreter without site-packages lists all, and says what each model lacks."""
    script = (
        "import json; from torchstone.workloads.suites.torchbench_builtin import TORCHBENCH as t;"
        "print(json.dumps({m.name: m.missing for m in t.models()}))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    missing = json.loads(done.stdout)
    assert sorted(missing) == sorted((*OWN, *LIBRARIES))
    assert all("is not installed" in reason for reason in missing.values())


@pytest.fixture(scope="module")
def own() -> dict[Request, dict[str, Any]]:
    modes = ("inference", "training")
    return build_all([own_target(f"{model}@small", mode) for model in OWN for mode in modes])


@pytest.mark.slow
@pytest.mark.parametrize("model", OWN)
def test_models_written_here(own: dict[Request, dict[str, Any]], model: str) -> None:
    forward, training = (own[own_target(f"{model}@small", m)] for m in ("inference", "training"))
    assert forward["outcome"] == training["outcome"] == "ok", (forward, training)
    batch = forward["inputs"][0][0]
    assert batch > 1
    assert {shape[0] for shape in forward["inputs"]} == {batch}
    assert {shape[0] for shape, _ in forward["output"]} == {batch}
    assert all(finite for _, finite in (*forward["output"], *training["output"]))
    assert training["output"][0][0] == []
    assert training["gradients"] > 2
    assert forward["equal_seeds_equal_inputs"]
    assert forward["other_seeds_other_inputs"]
    assert f"project-written, in the manner of {model}" in forward["notes"]
    assert f"batch size {batch}" in forward["notes"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "mode"), [("lennard_jones", "training"), ("speech_lstm", "inference")]
)
def test_models_written_here_agree_when_compiled(model: str, mode: str) -> None:
    """A derivative inside the step, and a recurrence: what compilers find hardest."""
    check_agreement(f"torchbench:{model}@small", mode)


@pytest.mark.slow
def test_models_of_the_libraries() -> None:
    asked = [own_target(f"{model}@small") for model in LIBRARIES]
    asked += [
        own_target(f"{model}@small", "training") for model in ("resnet18", "hf_T5", "hf_GPT2")
    ]
    for request, facts in build_all(asked).items():
        assert facts["outcome"] == "ok", (request, facts)
        assert all(rate == 0 for rate in facts["dropout"]), request
        assert all(finite for _, finite in facts["output"]), request
        assert any("made by" in note for note in facts["notes"]), request
        assert any("dropout" in note for note in facts["notes"]), request


@pytest.mark.slow
def test_full_scale_has_torchbenchs_own_sizes() -> None:
    wanted = {
        own_target("squeezenet1_1"): [[16, 3, 224, 224]],
        own_target("hf_DistilBert"): [[1, 512]],
        own_target("hf_GPT2"): [[1, 256]],
        own_target("timm_vision_transformer"): [[32, 3, 224, 224]],
        own_target("nanogpt"): [[1, 64]],
    }
    for request, facts in build_all(list(wanted)).items():
        assert facts["outcome"] == "ok", (request, facts)
        assert facts["inputs"][0] == wanted[request][0], request
        told = [note for note in facts["notes"] if note.startswith("full scale")]
        assert len(told) == (0 if "nanogpt" in request[0] else 1)
        assert all(f": {wanted[request][0][0]} " in note for note in told)
