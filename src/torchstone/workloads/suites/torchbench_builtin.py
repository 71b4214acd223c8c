"""TorchBench's models without a checkout: those that installed libraries or this project can make.

Names, architectures, batch sizes and sequence lengths are TorchBench's; the weights are random.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torchstone.records import SCALES, NotSupported, UsageError
from torchstone.workloads.suites.base import (
    BuildSetting,
    ModelInfo,
    Suite,
    check_scale,
    find_model,
    list_model,
)
from torchstone.workloads.suites.huggingface import (
    HF_MODELS,
    HUGGINGFACE,
    SMALL_BERT,
    HfModel,
    build_entry,
    make_inputs,
)
from torchstone.workloads.suites.timm_models import TIMM
from torchstone.workloads.suites.torchbench_checkout import (
    VARIABLE,
    build_model,
    import_model,
    list_models,
    need_checkout,
)
from torchstone.workloads.suites.torchvision_models import TORCHVISION
from torchstone.workloads.suites.vision import make_images, missing_library
from torchstone.workloads.workload import Workload

QUICK: Mapping[str, tuple[str, ...]] = {
    "dcgan": ("training",),
    "lennard_jones": ("inference",),
    "nanogpt": ("inference",),
    "speech_lstm": ("inference",),
}
"""Models of the quick tier, and the modes that they run in there. Measured on two cores with memory
kept: compiled dcgan loses in training, lennard_jones gains a quarter, nanogpt 3 %, and of
speech_lstm nothing is compiled, so that it takes as long as before."""


@dataclass(frozen=True)
class Sizes:
    """Full scale: a batch for inference and one for training."""

    inference: int
    training: int

    def of(self, mode: str) -> int:
        return self.inference if mode == "inference" else self.training


@dataclass(frozen=True)
class Own:
    """A model written here; `torchbench_own` has its sizes."""

    name: str
    family: str
    tier: str = "standard"

    def missing(self) -> str:
        return missing_library("torch")

    def import_library(self) -> None:
        if reason := self.missing():
            raise NotSupported(reason)
        importlib.import_module("torchstone.workloads.suites.torchbench_own")

    def build(self, setting: BuildSetting) -> Workload:
        from torchstone.workloads.suites.torchbench_own import build_own

        return build_own(self.name, setting)


@dataclass(frozen=True)
class Vision:
    """An image model that another suite builds; `known_as` there."""

    name: str
    suite: Suite
    batch: Sizes
    known_as: str = ""
    side: int = 224
    """Of TorchBench's images, in both modes."""
    tier: str = "standard"
    family: str = "vision"

    def missing(self) -> str:
        return _missing_there(self.suite, self.known_as or self.name)

    def import_library(self) -> None:
        self.suite.import_library(self.name)

    def build(self, setting: BuildSetting) -> Workload:
        """Theirs, at full scale with TorchBench's batch."""
        known_as = self.known_as or self.name
        workload = self.suite.build(known_as, setting)
        made = f"made by {self.suite.prefix}:{known_as}@{setting.scale}"
        if setting.scale == "small":
            return replace(workload, notes=(made, *workload.notes))
        batch = self.batch.of(setting.mode)
        kept = [note for note in workload.notes if not note.startswith("full scale")]
        notes = (made, f"full scale: {batch} images of {self.side} x {self.side}", *kept)
        return replace(workload, inputs=make_images(batch, self.side), notes=notes)


@dataclass(frozen=True)
class Text:
    """A language model of transformers: a model of the HuggingFace suite with changes."""

    name: str
    like: str
    batch: Sizes
    length: Sizes
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the entry `like` that are different here."""
    cpu_part: int = 1
    """TorchBench divides the length by this for inference on a CPU."""
    tier: str = "standard"
    family: str = "text"

    @property
    def entry(self) -> HfModel:
        """In the form of the HuggingFace suite."""
        like = find_model("huggingface", HF_MODELS, self.like)
        return replace(like, name=self.name, class_name=like.model_class, **self.changes)

    def missing(self) -> str:
        return _missing_there(HUGGINGFACE, self.like)

    def import_library(self) -> None:
        HUGGINGFACE.import_library()

    def sizes(self, setting: BuildSetting) -> tuple[int, int]:
        """Batch and sequence length."""
        if setting.scale == "small":
            return self.entry.sizes("small")
        length = self.length.of(setting.mode)
        if setting.mode == "inference" and setting.device.startswith("cpu"):
            length //= self.cpu_part
        return self.batch.of(setting.mode), length

    def build(self, setting: BuildSetting) -> Workload:
        """The model with random weights, and tokens with labels."""
        self.import_library()
        entry = self.entry
        config, model, dropouts = build_entry(entry, setting.scale)
        batch, length = self.sizes(setting)
        notes = (
            f"made by transformers: {entry.model_class}",
            f"{setting.scale} scale: {batch} sequences of {length} tokens",
            *dropouts,
        )
        return Workload(model, make_inputs(entry, config, batch, length), notes=notes)


def _missing_there(suite: Suite, name: str) -> str:
    return next((model.missing for model in suite.models() if model.name == name), "")


_ALBERT_BASE = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
"""The published albert-base-v2; the class's own defaults are those of the largest."""
_ALBERT = {"full": _ALBERT_BASE, "small": SMALL_BERT}

MODELS: tuple[Own | Vision | Text, ...] = (
    Vision("alexnet", TORCHVISION, Sizes(128, 128)),
    Own("dcgan", "vision"),
    Vision("densenet121", TORCHVISION, Sizes(64, 256), tier="full"),
    Own("dlrm", "recommendation"),
    Text("hf_Albert", "AlbertForMaskedLM", Sizes(1, 8), Sizes(512, 512), _ALBERT),
    Text("hf_Bert", "BertForMaskedLM", Sizes(1, 4), Sizes(512, 512)),
    Text("hf_DistilBert", "DistilBertForMaskedLM", Sizes(1, 8), Sizes(512, 512)),
    Text("hf_GPT2", "DistillGPT2", Sizes(1, 4), Sizes(1024, 512), {"full": {}}, cpu_part=4),
    Text(
        "hf_T5",
        "T5ForConditionalGeneration",
        Sizes(1, 8),
        Sizes(2048, 1024),
        {"small_length": 64},
        cpu_part=4,
    ),
    Own("lennard_jones", "physics"),
    Vision("mnasnet1_0", TORCHVISION, Sizes(32, 32)),
    Vision("mobilenet_v2", TORCHVISION, Sizes(16, 96)),
    Vision("mobilenet_v3_large", TORCHVISION, Sizes(32, 32)),
    Own("nanogpt", "text"),
    Vision("resnet18", TORCHVISION, Sizes(16, 16)),
    Vision("resnet50", TORCHVISION, Sizes(32, 32)),
    Vision("shufflenet_v2_x1_0", TORCHVISION, Sizes(64, 128)),
    Own("speech_lstm", "audio"),
    Vision("squeezenet1_1", TORCHVISION, Sizes(16, 32)),
    Vision("timm_efficientnet", TIMM, Sizes(64, 32), "efficientnet_b0", tier="full"),
    Vision("timm_nfnet", TIMM, Sizes(128, 128), "dm_nfnet_f0", side=192, tier="full"),
    Vision("timm_regnet", TIMM, Sizes(32, 32), "regnety_120", tier="full"),
    Vision("timm_resnest", TIMM, Sizes(32, 32), "resnest14d", tier="full"),
    Vision("timm_vision_transformer", TIMM, Sizes(32, 32), "vit_small_patch16_224"),
    Vision("timm_vovnet", TIMM, Sizes(32, 32), "vovnet39a", tier="full"),
    Vision("vgg16", TORCHVISION, Sizes(4, 64), tier="full"),
)
_STANDARD = frozenset(model.name for model in MODELS if model.tier == "standard")


# TorchBench, twice: the user's own checkout of pytorch/benchmark, and models in its manner.
#
# They are two suites with two prefixes, so that a target says which of the two it is, whatever the
# environment, and two sources never share a name. Where the checkout is says `--torchbench PATH` or
# the variable `TORCHSTONE_TORCHBENCH`.


@dataclass(frozen=True)
class TorchBenchSuite:
    """The models that need no checkout. Satisfies `Suite`."""

    name: str = "torchbench"
    prefix: str = "torchbench"
    scales: tuple[str, ...] = SCALES

    def models(self) -> Sequence[ModelInfo]:
        """Those that the installed libraries and this project can make; nothing is imported."""
        return tuple(
            list_model(model.name, model.family, QUICK, _STANDARD, model.missing())
            for model in MODELS
        )

    def import_library(self, model: str) -> None:
        """Import torch, which is all that these models have in common, and what this one needs."""
        _import_torch()
        _find(model).import_library()

    def build(self, model: str, setting: BuildSetting) -> Workload:
        check_scale(self, setting.scale)
        return _find(model).build(setting)


@dataclass(frozen=True)
class CheckoutSuite:
    """The checkout's models and nothing else; a `UsageError` without one. Satisfies `Suite`."""

    name: str = "torchbench-checkout"
    prefix: str = "torchbench-checkout"
    scales: tuple[str, ...] = SCALES

    def models(self) -> Sequence[ModelInfo]:
        """Every model of the checkout; nothing is imported."""
        return list_models(need_checkout())

    def import_library(self, model: str) -> None:
        """Import torch, and the model's package."""
        _import_torch()
        import_model(need_checkout(), model)

    def build(self, model: str, setting: BuildSetting) -> Workload:
        """The model as the checkout makes it."""
        check_scale(self, setting.scale)
        return build_model(need_checkout(), model, setting)


TORCHBENCH = TorchBenchSuite()
TORCHBENCH_CHECKOUT = CheckoutSuite()


def _import_torch() -> None:
    try:
        importlib.import_module("torch")
    except ImportError as error:
        raise NotSupported(f"torch cannot be imported: {error}") from error


def _find(name: str) -> Own | Vision | Text:
    for model in MODELS:
        if model.name == name:
            return model
    raise UsageError(
        f"torchbench has no model {name!r}.",
        f"A checkout's model is {TORCHBENCH_CHECKOUT.prefix}:{name}.",
    )


__all__ = ["TORCHBENCH", "TORCHBENCH_CHECKOUT", "VARIABLE", "CheckoutSuite", "TorchBenchSuite"]
