"""The HuggingFace suite: the whole list, equal from equal seeds, and nothing left to chance."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest

from tests.structure.places import ROOT, SRC
from torchstone.records import MODES, NotSupported, UsageError
from torchstone.workloads import Workload, check_target
from torchstone.workloads.load import seed_everything
from torchstone.workloads.suites import BuildSetting, find_suite, huggingface, vision
from torchstone.workloads.suites.base import TIERS
from torchstone.workloads.suites.huggingface import (
    FIRST_WORD,
    HF_MODELS,
    HUGGINGFACE,
    QUICK,
    SMALL_BATCH,
    STANDARD,
    HfModel,
    make_inputs,
)

# The PyTorch dashboard's list: name, batch before the divisors, sequence length; * means skipped.
LISTED = """
AlbertForMaskedLM 8 512 | AllenaiLongformerBase 8 1024 | BartForCausalLM 8 1024
BertForMaskedLM 32 512 | BlenderbotForCausalLM 32 128 | BlenderbotForConditionalGeneration* 16 128
DebertaV2ForMaskedLM* 8 512 | DistilBertForMaskedLM 256 128 | DistillGPT2 32 512
ElectraForCausalLM 64 512 | GPT2ForSequenceClassification 8 1024 | GPTJForCausalLM* 1 128
GPTJForQuestionAnswering* 1 128 | GPTNeoForCausalLM* 32 128
GPTNeoForSequenceClassification* 32 128 | GoogleFnet 32 512 | LayoutLMForMaskedLM 32 512
M2M100ForConditionalGeneration 64 128 | MBartForCausalLM 8 1024 | MT5ForConditionalGeneration 32 128
MegatronBertForCausalLM 16 512 | MobileBertForMaskedLM 256 128 | OPTForCausalLM 4 2048
PLBartForCausalLM 16 1024 | PegasusForCausalLM 128 128 | RobertaForCausalLM 32 512
T5ForConditionalGeneration 8 1024 | T5Small 8 1024 | TrOCRForCausalLM 64 256
XGLMForCausalLM 32 128 | XLNetLMHeadModel 16 512 | YituTechConvBert 32 512
Llama-3.2-1B 8 1000 | gemma-2-2b 8 1000 | gemma-3-4b-it* 8 1000 | whisper-tiny 8 128
Qwen3-0.6B 8 1000 | Mistral-7B-Instruct-v0.3* 8 1000
gpt-oss-20b* 8 1000
"""

# Millions of parameters, as published (gemma-3-4b-it without the vision tower).
PUBLISHED = {
    "AllenaiLongformerBase": 148.7,
    "BertForMaskedLM": 109.5,
    "DistillGPT2": 81.9,
    "Llama-3.2-1B": 1235.8,
    "Mistral-7B-Instruct-v0.3": 7248,
    "Qwen3-0.6B": 596,
    "T5Small": 60.5,
    "gemma-2-2b": 2614,
    "gemma-3-4b-it": 3880,
    "gpt-oss-20b": 20915,
    "whisper-tiny": 37.8,
}

LIST_MODELS = """
import json, sys
from torchstone.workloads.suites.huggingface import HUGGINGFACE
names = [model.name for model in HUGGINGFACE.models()]
print(json.dumps([names, sorted({name.split(".")[0] for name in sys.modules})]))
"""

BUILD_QUIETLY = """
import sys

def forbid(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "urllib.Request"):
        raise RuntimeError(f"the network was asked for: {event} {arguments}")

sys.addaudithook(forbid)
from torchstone.workloads.suites import BuildSetting
from torchstone.workloads.suites.huggingface import HUGGINGFACE
HUGGINGFACE.import_library()
for name in ("BertForMaskedLM", "RobertaForCausalLM", "GPT2ForSequenceClassification"):
    workload = HUGGINGFACE.build(name, BuildSetting("small"))
    workload.call.train()
    workload.call(**workload.inputs(0)).loss.backward()
"""

needs_library = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("transformers") is None, reason="no transformers"
)
OWN_POSITIONS = ("AllenaiLongformerBase", "whisper-tiny")
NAMES = [model.name for model in HF_MODELS]


@pytest.fixture(scope="module")
def library() -> Iterator[None]:
    """The library imported here, and the environment put back."""
    before = dict(os.environ)
    HUGGINGFACE.import_library()
    yield
    os.environ.clear()
    os.environ.update(before)


def entry(name: str) -> HfModel:
    return next(model for model in HF_MODELS if model.name == name)


def build(name: str, seed: int = 0, scale: str = "small") -> Workload:
    seed_everything(seed)
    return HUGGINGFACE.build(name, BuildSetting(scale, seed=seed))


def run_python(source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        timeout=300,
    )


def first_of(settings: dict[str, Any], *names: str) -> int:
    return int(next(settings[name] for name in names if name in settings))


# --- the list ---------------------------------------------------------------------------------


def test_the_whole_list_is_there_with_its_batches_and_lengths() -> None:
    listed = {}
    for item in re.split(r"[|\n]", LISTED.strip()):
        name, batch, length = item.split()
        listed[name.rstrip("*")] = (int(batch), int(length), name.endswith("*"))
    assert len(listed) == 39
    assert {m.name: (m.batch, m.length, m.skipped) for m in HF_MODELS} == listed


def test_listing_imports_no_library() -> None:
    done = run_python(LIST_MODELS)
    assert done.returncode == 0, done.stderr
    names, loaded = json.loads(done.stdout)
    assert names == NAMES
    assert {"torch", "transformers", "numpy", "torchvision"} & set(loaded) == set()


def test_the_suite_is_found_and_its_targets_are_checked() -> None:
    assert find_suite("huggingface") is find_suite("hf") is HUGGINGFACE
    assert check_target("hf:BertForMaskedLM@small").scale == "small"
    with pytest.raises(UsageError, match="no scale 'tiny'"):
        check_target("hf:BertForMaskedLM@tiny")
    with pytest.raises(UsageError) as error:
        check_target("hf:BertForMaskLM")
    assert "hf:BertForMaskedLM" in error.value.remedy


@pytest.mark.parametrize("model", HF_MODELS, ids=lambda model: model.name)
def test_a_table_entry_is_sane(model: HfModel) -> None:
    batch, length = model.sizes("small")
    assert batch >= 2, "compilers treat a batch of 1 as a special case"
    assert length <= model.length
    small = model.settings("small")
    own_width = {"ElectraForCausalLM": 256, "MobileBertForMaskedLM": 512, "T5Small": 512}
    width = own_width.get(model.name) or (
        384
        if model.name == "whisper-tiny"
        else first_of(small, "hidden_size", "d_model", "n_embd", "dim")
    )
    layers = first_of(
        small, "num_hidden_layers", "num_layers", "n_layer", "n_layers", "decoder_layers"
    )
    assert width >= 256
    assert layers >= 2
    assert small["vocab_size"] <= 8192
    assert all(small.get(f"{kind}_token_id", 0) < 8192 for kind in ("bos", "eos", "pad"))


def test_tiers_name_models_that_there_are() -> None:
    infos = {info.name: info for info in HUGGINGFACE.models()}
    assert set(infos) >= STANDARD | set(QUICK)
    assert 10 <= sum(info.tier != "full" for info in infos.values()) <= 15
    assert {info.tier for info in infos.values()} <= set(TIERS)
    assert not any(entry(name).skipped for name in STANDARD | set(QUICK))
    for name, modes in QUICK.items():
        assert modes
        assert set(modes) <= set(MODES)
        assert infos[name].quick_modes == modes


@needs_library
def test_every_class_is_in_the_installed_library() -> None:
    assert [info.missing for info in HUGGINGFACE.models() if info.missing] == []


def test_the_page_shows_the_sizes() -> None:
    page = (ROOT / "docs" / "reference" / "suites.md").read_text(encoding="utf-8")
    rows = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        for name, star in re.findall(r"(?<!\()`([^`]+)`(?: \(`\w+`\))?(\\\*)?", cells[-1]):
            if name in NAMES and len(cells) == 3:
                rows[name] = [*cells[:2], bool(star)]
    for model in HF_MODELS:
        sizes = ["×".join(map(str, model.sizes(scale))) for scale in ("full", "small")]
        assert rows[model.name] == [*sizes, model.skipped], model.name


# --- what is not there ------------------------------------------------------------------------


@pytest.mark.parametrize("absent", ["torch", "transformers"])
def test_a_library_that_is_not_installed_is_named_with_its_remedy(
    absent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        vision, "find_spec", lambda name: None if name == absent else find_spec(name)
    )
    reasons = {info.missing for info in HUGGINGFACE.models()}
    assert len(reasons) == 1
    assert re.fullmatch(rf'{absent} is not installed: pip install "torchstone\[\w+\]"', *reasons)
    with pytest.raises(NotSupported, match=f"{absent} is not installed"):
        HUGGINGFACE.import_library()


@needs_library
def test_a_library_that_does_not_work_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Any:
        raise RuntimeError("operator torchvision::nms does not exist\nand more")

    monkeypatch.setattr(huggingface, "ENVIRONMENT", {})
    monkeypatch.setattr(huggingface.importlib, "import_module", broken)
    with pytest.raises(
        NotSupported, match=r"RuntimeError: operator torchvision::nms does not exist$"
    ):
        HUGGINGFACE.import_library()


@needs_library
@pytest.mark.parametrize(
    "change", [{"module": "nosuch"}, {"class_name": "BertForNothing"}], ids=["module", "class"]
)
def test_a_class_that_this_version_lacks_is_not_supported(
    change: dict[str, str], library: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = replace(entry("BertForMaskedLM"), name="Odd", class_name="BertForMaskedLM")
    odd = replace(base, **change)
    monkeypatch.setattr(huggingface, "HF_MODELS", (odd,))
    with pytest.raises(NotSupported, match=rf"transformers [\d.]+ has no {odd.model_class}"):
        build("Odd")
    if "module" in change:
        (info,) = HUGGINGFACE.models()
        assert "has no BertForMaskedLM" in info.missing


def test_an_unknown_model_or_scale_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no model 'Nothing'"):
        build("Nothing")
    with pytest.raises(UsageError, match="no scale 'huge'"):
        build("BertForMaskedLM", scale="huge")


# --- dropout ----------------------------------------------------------------------------------


@needs_library
def test_a_planted_dropout_is_found_before_and_after_construction(
    library: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from transformers import DistilBertForMaskedLM

    class Planted(DistilBertForMaskedLM):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.planted = torch.nn.Dropout(0.5)

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output = super().forward(*args, **kwargs)
            output.loss = self.planted(output.loss)
            return output

    base = entry("DistilBertForMaskedLM")
    odd = replace(base, small={**base.small, "attention_dropout": 0.9})
    monkeypatch.setattr(huggingface, "HF_MODELS", (odd,))
    monkeypatch.setattr(huggingface, "_model_class", lambda entry: Planted)
    workload = build("DistilBertForMaskedLM")
    before, after = workload.notes[:2]
    assert before.startswith("dropout set to 0 before construction: attention_dropout, dropout")
    assert after == "dropout set to 0 after construction: planted.p"
    assert_nothing_random(workload)


def assert_nothing_random(workload: Workload) -> None:
    """In training mode, two calls and a call in evaluation mode give the same loss."""
    import torch

    inputs = workload.inputs(1)
    with torch.no_grad():
        losses = [workload.call.train()(**inputs).loss for _ in range(2)]
        evaluated = workload.call.eval()(**inputs).loss
    assert torch.equal(*losses)
    torch.testing.assert_close(evaluated, losses[0])


# --- models and inputs ------------------------------------------------------------------------


@needs_library
def test_equal_seeds_give_equal_weights_and_inputs(library: None) -> None:
    import torch

    name = "GPTNeoForSequenceClassification"
    one, two, other = build(name, 3), build(name, 3), build(name, 4)
    weights = [workload.call.state_dict() for workload in (one, two, other)]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    assert not all(torch.equal(weights[0][key], weights[2][key]) for key in weights[0])
    first, again, fresh = (one.inputs(seed) for seed in (7, 7, 8))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["input_ids"], fresh["input_ids"])
    assert not one.call.config.use_cache


@needs_library
def test_notes_say_what_a_reader_must_know(library: None) -> None:
    import torch

    small = build("XLNetLMHeadModel").notes
    assert any(note.startswith("keeps no memories") for note in small)
    assert not any("listed" in note for note in small)
    with torch.device("meta"):
        full = build("DistillGPT2", scale="full").notes
    assert "dropout set to 0 before construction: attn_pdrop, embd_pdrop, resid_pdrop" in full[0]
    assert huggingface.FULL_BATCH_NOTE in full


@needs_library
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_model_steps_at_small_scale(name: str, library: None) -> None:
    import torch

    workload, twin = build(name), build(name)
    for (key, one), (_, two) in zip(
        workload.call.state_dict().items(), twin.call.state_dict().items(), strict=True
    ):
        assert torch.equal(one, two), key
        assert bool(torch.isfinite(one).all()), key
    inputs = workload.inputs(1)
    for key, tensor in inputs.items():
        assert tensor.shape[0] == SMALL_BATCH, key
        assert tensor.dtype == (torch.float32 if key == "input_features" else torch.int64), key
        if key.endswith("_ids"):
            assert int(tensor.min()) >= FIRST_WORD
            assert int(tensor.max()) < workload.call.config.vocab_size
    assert not [m for m in workload.call.modules() if getattr(m, "p", 0) and "Drop" in str(type(m))]
    assert_nothing_random(workload)
    steps(workload)
    fewer = {key: tensor[:3] for key, tensor in inputs.items()}
    output = workload.call.eval()(**fewer)
    assert output.loss.ndim == 0
    assert not {"past_key_values", "mems"} & {k for k, v in output.items() if v is not None}


def steps(workload: Workload) -> None:
    """A few steps of training on one batch bring its loss down."""
    import torch

    inputs, model = workload.inputs(1), workload.call.train()
    with torch.enable_grad():
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(**inputs).loss
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert grads
    assert all(bool(torch.isfinite(grad).all()) for grad in grads)
    assert losses[-1] < losses[0]


@needs_library
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_model_can_be_made_at_full_scale(name: str, library: None) -> None:
    """On the meta device, where nothing takes memory; published sizes prove the configurations."""
    import torch

    with torch.device("meta"):
        model = build(name, scale="full").call
    millions = sum(p.numel() for p in model.parameters()) / 1e6
    small = sum(p.numel() for p in build(name).call.parameters()) / 1e6
    assert millions > 2 * small
    if name in PUBLISHED:
        assert millions == pytest.approx(PUBLISHED[name], rel=0.01)
    else:
        assert entry(name).model_class == name or name in ("GoogleFnet", "YituTechConvBert")


@needs_library
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in OWN_POSITIONS])
def test_a_sequence_of_full_length_fits_the_model(name: str, library: None) -> None:
    """With layers of small scale, which have as many positions as the model itself."""
    import torch

    model, workload = entry(name), build(name)
    inputs = make_inputs(model, workload.call.config, 2, model.length)(1)
    with torch.no_grad():
        loss = workload.call.eval()(**inputs).loss
    assert bool(torch.isfinite(loss))


@needs_library
@pytest.mark.slow
def test_building_and_stepping_is_quiet_and_asks_for_no_network() -> None:
    done = run_python(BUILD_QUIETLY)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
