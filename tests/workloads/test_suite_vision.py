"""The timm and torchvision suites: their lists, their sizes, what they set to 0, their steps."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from torchstone.records import MODES, ArmSpec, NotSupported, UsageError
from torchstone.workloads import Workload, draw
from torchstone.workloads.load import seed_everything
from torchstone.workloads.suites import BuildSetting, Suite, find_suite, load_suite
from torchstone.workloads.suites import timm_models as timm_suite
from torchstone.workloads.suites import torchvision_models as torchvision_suite
from torchstone.workloads.suites.base import TIERS
from torchstone.workloads.suites.timm_models import DASHBOARD, TIMM, TIMM_MODELS
from torchstone.workloads.suites.torchvision_models import (
    TORCHVISION,
    TORCHVISION_MODELS,
    TorchvisionModel,
)
from torchstone.workloads.suites.vision import import_vision, missing_library

ROOT = Path(__file__).resolve().parents[2]
SUITES: tuple[Suite, ...] = (TIMM, TORCHVISION)
SMALL = BuildSetting(scale="small")
needs_timm = pytest.mark.skipif(find_spec("timm") is None, reason="timm is not installed")
needs_torchvision = pytest.mark.skipif(
    find_spec("torchvision") is None, reason="torchvision is not installed"
)
MADE = tuple(model for model in TORCHVISION_MODELS if model.kind)


def named(model: Any) -> str:
    return str(model.name)


def weights(workload: Workload) -> list[float]:
    return [float(parameter.detach().sum()) for parameter in workload.call.parameters()]


def training_facts(workload: Workload, seed: int) -> list[float]:
    """Loss and gradients of a training step from the start, with the generators at `seed`."""
    from torchstone.variants import prepare

    arm = ArmSpec("arm", "x:y", mode="training")
    inputs = draw(workload, 0)
    prepared = prepare(workload, inputs, arm)
    assert prepared.keep_start is not None
    restore = prepared.keep_start()
    seed_everything(seed)
    evidence = prepared.evidence(prepared.step(*inputs.args))
    restore()
    grads = [float(grad.double().norm()) for grad in evidence["grad"].values()]
    return [float(evidence["loss"].detach()), *grads]


# ---- lists


def test_listing_imports_no_library() -> None:
    tell = (
        "import json, sys\n"
        "from torchstone.workloads.suites import find_suite\n"
        "n = [len(find_suite(s).models()) for s in ('timm', 'torchvision')]\n"
        "heavy = {'torch', 'timm', 'torchvision', 'numpy'} & set(sys.modules)\n"
        "print(json.dumps([n, sorted(heavy)]))"
    )
    done = subprocess.run([sys.executable, "-c", tell], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[len(TIMM_MODELS), len(TORCHVISION_MODELS)], []]


@pytest.mark.parametrize("suite", SUITES, ids=named)
def test_suites_are_registered(suite: Suite) -> None:
    assert find_suite(suite.name) is suite
    assert load_suite(suite.prefix) is suite


@pytest.mark.parametrize("suite", SUITES, ids=named)
def test_a_list_is_in_order(suite: Suite) -> None:
    models = suite.models()
    names = [model.name for model in models]
    assert len(set(names)) == len(names)
    assert {model.tier for model in models} <= set(TIERS)
    assert sum(model.tier in ("quick", "standard") for model in models) >= 12
    for model in models:
        assert bool(model.quick_modes) == (model.tier == "quick")
        assert set(model.quick_modes) <= set(MODES)


@pytest.mark.parametrize("module", [timm_suite, torchvision_suite], ids=lambda m: m.__name__)
def test_tiers_name_models_that_exist(module: Any) -> None:
    names = {model.name for suite in SUITES for model in suite.models()}
    assert set(module.QUICK) | module.STANDARD <= names


def test_the_dashboards_list_is_whole() -> None:
    batches = {model.name: model.batch for model in DASHBOARD}
    assert len(batches) == 18
    assert {n for n, batch in batches.items() if batch == 512} == {
        "ghostnet_100",
        "mobilenetv3_large_100",
    }
    assert sum(batch == 64 for batch in batches.values()) == 4
    assert set(batches.values()) == {64, 128, 512}


def test_the_small_scale_keeps_at_least_two_layers() -> None:
    for timm_model in TIMM_MODELS:
        assert timm_model.small.get("depth", 2) >= 2
        assert sum(timm_model.small.get("depths", (2,))) >= 2
        assert timm_model.small.get("img_size", timm_model.image) == timm_model.image
    for model in TORCHVISION_MODELS:
        assert model.blocks != 1
        assert model.image <= model.own_image


@needs_torchvision
def test_the_list_of_torchvision_is_whole() -> None:
    models = import_vision("torchvision").models
    assert sorted(m.name for m in TORCHVISION_MODELS) == models.list_models(module=models)


@needs_timm
def test_every_timm_model_is_accepted_and_nothing_else() -> None:
    timm = import_vision("timm", "torchvision")
    assert [name for name in timm.list_models() if not TIMM.accepts(name)] == []
    assert TIMM.accepts("resnet18.a1_in1k")
    assert not TIMM.accepts("resnet18_of_mine")
    with pytest.raises(UsageError, match="resnet18_of_mine"):
        TIMM.build("resnet18_of_mine", SMALL)


# ---- what is missing


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_library("json") == ""
    monkeypatch.setitem(sys.modules, "timm", None)
    assert {model.missing for model in TIMM.models()} == {
        'timm is not installed: pip install "torchstone[suites]"'
    }
    with pytest.raises(NotSupported, match="timm is not installed"):
        TIMM.import_library()
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert all("torchvision is not installed" in model.missing for model in TORCHVISION.models())
    with pytest.raises(NotSupported, match="torchvision is not installed"):
        TORCHVISION.build("resnet18", SMALL)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert all("torchstone[torch]" in model.missing for model in TORCHVISION.models())


@needs_torchvision
def test_a_library_that_breaks_at_import_is_not_supported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "broken_vision"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('operator x::y does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(NotSupported, match="broken_vision cannot be imported: RuntimeError: oper"):
        import_vision("broken_vision")


@pytest.mark.parametrize("suite", SUITES, ids=named)
def test_unknown_names_and_scales_are_the_users_mistake(suite: Suite) -> None:
    with pytest.raises(UsageError, match="scale 'tiny'"):
        suite.build("resnet18", BuildSetting(scale="tiny"))
    with pytest.raises(UsageError, match="resnet_18"):
        suite.build("resnet_18", SMALL)


# ---- the page


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_the_page_has_every_model_with_its_sizes(suite: Suite) -> None:
    page = (ROOT / "docs" / "reference" / "suites.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {suite.name}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if re.match(r"\| \d", line)]
    rows = [line.strip("|").split("|") for line in lines]
    expected: dict[tuple[str, str], list[str]] = {}
    for m in TIMM_MODELS if suite is TIMM else TORCHVISION_MODELS:
        full, changed = (
            (m.own_image, torchvision_suite.changes_of(m))
            if isinstance(m, TorchvisionModel)
            else (m.batch, m.small)
        )
        small = f"{m.image}, {words(changed)}".removesuffix(", ")
        expected.setdefault((str(full), small), []).append(f"`{m.name}`")
    found = {(row[0].strip(), row[1].strip()): row[2].strip().split(", ") for row in rows}
    assert found == expected


def words(changes: Mapping[str, Any]) -> str:
    plain = {name.replace("_", " "): value for name, value in changes.items()}
    values = {n: ", ".join(map(str, v)) if isinstance(v, tuple) else v for n, v in plain.items()}
    text = "; ".join(f"{name} {value}" for name, value in values.items() if name != "img size")
    return text.replace("blocks a stage at most", "at most")


# ---- models

LIGHT = [
    pytest.param(TIMM, "mobilenetv3_small_100", marks=needs_timm),
    pytest.param(TORCHVISION, "squeezenet1_1", marks=needs_torchvision),
]


@pytest.mark.parametrize(("suite", "name"), LIGHT)
def test_equal_seeds_equal_models_and_images(suite: Suite, name: str) -> None:
    import torch

    first, same, other = (suite.build(name, replace(SMALL, seed=seed)) for seed in (1, 1, 2))
    assert weights(first) == weights(same)
    assert weights(first) != weights(other)
    images, again, others = (draw(first, seed).args[0] for seed in (3, 3, 4))
    assert torch.equal(images, again)
    assert not torch.equal(images, others)
    assert images.shape == (2, 3, 128, 128)
    assert abs(float(images.mean())) < 1e-3
    assert abs(float(images.std()) - 1) < 1e-3


@needs_torchvision
def test_weights_do_not_depend_on_the_number_of_threads() -> None:
    import torch

    from torchstone.measure.evidence import weights_fingerprint

    threads = torch.get_num_threads()
    try:
        prints = []
        for number in (1, 2):
            torch.set_num_threads(number)
            prints.append(weights_fingerprint(TORCHVISION.build("mobilenet_v2", SMALL).call))
    finally:
        torch.set_num_threads(threads)
    assert prints[0] == prints[1]


@pytest.mark.parametrize(("suite", "name"), LIGHT)
def test_the_contract_tells_what_was_changed(suite: Suite, name: str) -> None:
    from torchstone.measure.evidence import describe_contract
    from torchstone.variants import prepare
    from torchstone.workloads.suites.vision import repair_torchvision

    workload = suite.build(name, SMALL)
    arm = ArmSpec("arm", f"{suite.prefix}:{name}@small")
    inputs = draw(workload, 0)
    prepared = prepare(workload, inputs, arm)
    notes = describe_contract(arm, prepared, inputs, prepared.step(*inputs.args)).notes
    assert notes[0] == "small scale: 2 images of 128 x 128"
    assert notes[1].startswith("dropout set to 0 before construction: drop")
    repaired = repair_torchvision()
    assert not repaired or repaired in notes
    norms = [part for part in workload.call.modules() if "BatchNorm" in type(part).__name__]
    assert any(f"of {len(norms)} batch norm" in note for note in notes) == bool(norms)


@pytest.mark.parametrize(("suite", "name"), LIGHT)
def test_the_loss_follows_the_batch(suite: Suite, name: str) -> None:
    import torch

    loss = suite.build(name, replace(SMALL, seed=5)).loss
    other = suite.build(name, replace(SMALL, seed=6)).loss
    assert loss is not None
    assert other is not None
    for batch in (1, 2, 7):
        scores = torch.randn(batch, 1000, generator=torch.Generator().manual_seed(batch))
        assert math.isfinite(float(loss(scores)))
        assert float(loss(scores)) == float(loss(scores))
        assert float(loss(scores)) != float(other(scores))
        assert loss(scores.double()).dtype == torch.float64
        assert loss(scores.bfloat16()).dtype == torch.float32


@needs_timm
def test_dropout_that_a_timm_constructor_keeps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    zeroed = TIMM.build("ghostnet_100", SMALL)
    assert zeroed.call.drop_rate == 0
    assert "dropout set to 0 before construction: drop_rate" in zeroed.notes
    monkeypatch.setattr(timm_suite, "DROPS", ())
    kept = TIMM.build("ghostnet_100", SMALL)
    assert kept.call.drop_rate == 0
    assert "dropout set to 0 after construction: drop_rate" in kept.notes


@needs_torchvision
@pytest.mark.slow
def test_dropout_that_a_torchvision_builder_keeps_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    careless = tuple(replace(m, zero=()) for m in TORCHVISION_MODELS if m.name == "squeezenet1_1")
    monkeypatch.setattr(torchvision_suite, "TORCHVISION_MODELS", careless)
    made = TORCHVISION.build("squeezenet1_1", SMALL)
    assert "dropout set to 0 after construction: classifier.0.p" in made.notes
    drops = [part for part in made.call.modules() if isinstance(part, torch.nn.Dropout)]
    assert [part.p for part in drops] == [0.0]
    assert training_facts(made, 1) == training_facts(made, 2)
    drops[0].p = 0.5
    assert training_facts(made, 1) != training_facts(made, 2), "the check must see a dropout"


@needs_torchvision
def test_classifiers_half_way_up_count_in_training() -> None:
    import torch

    made = TORCHVISION.build("googlenet", SMALL)
    assert made.loss is not None
    output = made.call.train()(draw(made, 0).args[0])
    assert len(output) == 3
    whole, top = made.loss(output), made.loss(output[0])
    parts = sum(made.loss(part) for part in output[1:])
    assert torch.allclose(whole, top + 0.4 * parts)


@needs_timm
def test_models_of_timm_that_are_not_listed_build() -> None:
    plain = TIMM.build("resnet10t", SMALL)
    assert draw(plain, 0).args[0].shape == (2, 3, 128, 128)
    patches = TIMM.build("vit_tiny_patch16_224", SMALL)
    images = draw(patches, 0).args[0]
    assert images.shape == (2, 3, 112, 112)
    assert patches.call.eval()(images).shape == (2, 1000)


@needs_timm
def test_the_full_scale_is_the_dashboards() -> None:
    notes = {mode: TIMM.build("nfnet_l0", BuildSetting("full", mode)).notes[0] for mode in MODES}
    assert notes["training"] == "full scale: 128 images of 224 x 224"
    assert notes["inference"] == "full scale: 128 images of 288 x 288"


@needs_torchvision
@pytest.mark.parametrize("model", [m for m in MADE if m.kind != "regnet"], ids=named)
def test_a_class_made_here_is_the_one_its_builder_makes(model: TorchvisionModel) -> None:
    import torch

    models = import_vision("torchvision").models
    with torch.device("meta"):
        ours = torchvision_suite._make(models, model, small=False)
        theirs = getattr(models, model.name)(weights=None)
        small = torchvision_suite._make(models, model, small=True)
    assert shapes(ours) == shapes(theirs)
    kinds = {type(part).__name__ for part in theirs.modules()}
    assert {type(part).__name__ for part in small.modules()} == kinds
    assert (parameters(small) < parameters(ours)) == bool(model.blocks)


@needs_torchvision
@pytest.mark.parametrize("model", [m for m in MADE if m.kind == "regnet"], ids=named)
def test_a_regnet_made_here_is_the_one_its_builder_makes(
    model: TorchvisionModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = import_vision("torchvision").models
    monkeypatch.setattr(models.regnet, "RegNet", lambda stages, **_: vars(stages))
    ours = torchvision_suite._make(models, model, small=False)
    assert ours == getattr(models, model.name)(weights=None)
    small = torchvision_suite._make(models, model, small=True)
    assert max(small["depths"]) == model.blocks < max(ours["depths"])


def shapes(module: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in module.state_dict().items()}


def parameters(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


EVERY = [
    pytest.param(suite, model.name, marks=mark, id=f"{suite.prefix}:{model.name}")
    for suite, mark in ((TIMM, needs_timm), (TORCHVISION, needs_torchvision))
    for model in suite.models()
]


@pytest.mark.slow
@pytest.mark.parametrize(("suite", "name"), EVERY)
def test_every_model_builds_and_steps(suite: Suite, name: str) -> None:
    import torch

    workload = suite.build(name, SMALL)
    images = draw(workload, 0).args[0]
    with torch.no_grad():
        scores = workload.call.eval()(images)
    assert scores.shape[0] == 2
    assert 1e-3 < float(scores.abs().mean()) < 1e3, "neither vanished nor grown"
    assert float((scores[0] - scores[1]).abs().max()) > 1e-5, "the input shows"
    first = training_facts(workload, 1)
    assert len(first) == 1 + len(list(workload.call.parameters()))
    assert all(0 < value < math.inf for value in first), "every parameter counts"
    assert training_facts(workload, 2) == first, "something is drawn at random"
