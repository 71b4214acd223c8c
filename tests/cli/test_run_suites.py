"""Ten models of each suite, inference and training, as `torchstone run` measures them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.support import torchstone
from torchstone.store import open_store

pytestmark = pytest.mark.slow

# suite: five models for both compilers, five more for the one that makes no code
MODELS = {
    "huggingface": (
        ("DistilBertForMaskedLM", "BertForMaskedLM", "AlbertForMaskedLM", "OPTForCausalLM",
         "GPT2ForSequenceClassification"),
        ("ElectraForCausalLM", "T5Small", "Llama-3.2-1B", "GoogleFnet", "BartForCausalLM"),
    ),
    "timm": (
        ("vit_base_patch16_224", "beit_base_patch16_224", "resnet18", "mixer_s16_224",
         "mobilenetv3_small_100"),
        ("convnextv2_nano.fcmae_ft_in22k_in1k", "ghostnet_100", "swin_tiny_patch4_window7_224",
         "repvgg_a2", "mobilevit_s"),
    ),
    "torchbench": (
        ("nanogpt", "dcgan", "mobilenet_v2", "lennard_jones", "alexnet"),
        ("dlrm", "resnet18", "hf_Bert", "squeezenet1_1", "timm_vision_transformer"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("suite", MODELS)
def test_five_models_run_and_train_right_under_both_compilers(suite: str, tmp_path: Path) -> None:
    run(tmp_path, suite, MODELS[suite][0], "aot_eager,inductor")


@pytest.mark.parametrize("suite", MODELS)
def test_five_more_models_run_and_train_right(suite: str, tmp_path: Path) -> None:
    run(tmp_path, suite, MODELS[suite][1], "aot_eager")


def run(folder: Path, suite: str, models: tuple[str, ...], variants: str) -> None:
    db = folder / f"{variants}.db"
    only = [word for model in models for word in ("--only", model)]
    done = torchstone(
        "run", suite, *only, "--tier", "full", "--variants", variants,
        "--modes", "inference,training", "--replicates", "1", "--budget-per-case", "1s",
        "--threads", "1", "--db", str(db), cwd=folder, timeout=7200,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    with open_store(str(db), read_only=True) as store:
        view = store.run_view("last")
    cells = {(c.key.model, c.key.mode, c.key.variant): c for c in view.complete}
    wanted = [
        (m, o, v) for m in models for o in ("inference", "training") for v in variants.split(",")
    ]
    assert sorted(cells) == sorted(wanted)
    failed = {
        key: (c.outcome.value, c.reason) for key, c in cells.items() if c.outcome.value != "ok"
    }
    assert not failed
    assert done.returncode == 0, done.stderr
