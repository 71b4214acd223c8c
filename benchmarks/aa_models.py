"""Real models with a known difference: a step is a number of calls of the same model.

The base arm makes `n` calls in a step, the slower one `n + k`, all with the same inputs; the step's
output is that of the last call, so every arm gives the same answer and passes the contract check,
and the true ratio is (n + k) / n. A call is small (a few milliseconds on one thread), so that the
steps of all effects last between 20 and 150 ms, as those of the suites do.

The training step sets its learning rate to 0: it computes everything that a step computes, its
weights stay as they are, and the last of many steps gives the same loss and gradient as the first.

Settings come from the environment, so that both arms of a case and every tool read the same:
`AA_MODEL` (a key of `MODELS`) and `AA_EFFECT` (a key of `CALLS`, in per cent); `AA_THREADS` is for
the other tools, which do not set the threads themselves.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CALLS: Mapping[int, tuple[int, int]] = {0: (20, 20), 3: (33, 34), 5: (20, 21), 10: (10, 11)}
"""Calls in a step of the base and of the slower arm, by effect in per cent: few calls where the
effect is large, so that each is a whole number of calls and steps stay short."""
WHOLE_CALLS = (1, 1)
SEED = 0
TEXT_LENGTH = 8
IMAGE = 64
SMALL_IMAGE = 32
BATCH = 2
"""The training step's: batch normalisation needs more than one value a channel."""
DCGAN_WIDTH = 8
DEIT_BLOCKS = 4
"""A third of the model: with all twelve 33 calls would last a quarter of a second."""

Made = tuple[Callable[..., Any], Callable[[int], Any]]


@dataclass(frozen=True)
class Model:
    """How one model is made, or where a suite has it whole."""

    build: Callable[[], Made] | None = None
    """The module that makes one call, and its inputs from a seed."""
    target: str = ""
    """A suite's model as it is; its arms are always identical."""
    mode: str = "inference"
    file: str = ""
    """Where its arms are, beside this file, with the libraries they need imported first."""

    @property
    def whole(self) -> bool:
        return bool(self.target)

    def calls(self, effect: int) -> tuple[int, int]:
        """Of base and slower arm."""
        return WHOLE_CALLS if self.whole else CALLS[effect]

    def truth(self, effect: int) -> float:
        """The true time ratio."""
        base, new = self.calls(effect)
        return new / base

    def arms(self) -> tuple[str, str]:
        """Targets of base and slower arm."""
        if self.whole:
            return self.target, self.target
        place = Path(__file__).resolve().with_name(self.file)
        return f"{place}:make_base", f"{place}:make_slower"


def make_base() -> Made:
    return _make(0)


def make_slower() -> Made:
    return _make(1)


def ready() -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Both arms' steps in one process for the other tools, in the state in which ours runs them."""
    import torch

    torch.set_num_threads(int(os.environ["AA_THREADS"]))
    torch.set_grad_enabled(False)
    return _bound(*make_base()), _bound(*make_slower())


def _bound(step: Any, inputs: Callable[[int], Any]) -> Callable[[], Any]:
    arguments = inputs(SEED)
    step.eval()
    return lambda: step(*arguments)


def _make(arm: int) -> Made:
    model = MODELS[os.environ["AA_MODEL"]]
    if model.build is None:
        raise ValueError(f"{model.target} is measured as it is")
    unit, inputs = model.build()
    return repeated(unit, model.calls(int(os.environ["AA_EFFECT"]))[arm]), inputs


def repeated(unit: Any, calls: int) -> Any:
    """A module that calls `unit` so many times and gives the last answer."""
    import torch

    class Repeated(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unit = unit

        def forward(self, *inputs: Any) -> Any:
            answer = None
            for _ in range(calls):
                answer = self.unit(*inputs)
            return answer

    return Repeated()


def _text(name: str) -> Made:
    """A model of the huggingface suite at small scale, given one short sentence."""
    import torch

    made, config = _suite_model("hf", name)

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = made

        def forward(self, words: torch.Tensor) -> Any:
            return self.model(input_ids=words).logits

    def inputs(seed: int) -> Any:
        chance = torch.Generator().manual_seed(seed)
        return (torch.randint(1, config.vocab_size, (1, TEXT_LENGTH), generator=chance),)

    return Logits(), inputs


def _suite_model(prefix: str, name: str) -> tuple[Any, Any]:
    import torch

    from torchstone.workloads.suites.base import BuildSetting, load_suite

    suite = load_suite(prefix)
    suite.import_library(name)
    torch.manual_seed(SEED)
    made: Any = suite.build(name, BuildSetting("small", seed=SEED)).call
    return made, made.config


def _bert() -> Made:
    return _text("BertForMaskedLM")


def _gpt2() -> Made:
    return _text("GPT2ForSequenceClassification")


def _timm(name: str, side: int, **settings: Any) -> Made:
    """A model of timm with random weights, given one small image."""
    import torch

    timm = _import_timm()
    torch.manual_seed(SEED)
    made = timm.create_model(name, pretrained=False, **settings)
    return made, lambda seed: _images(seed, 1, side)


def _import_timm() -> Any:
    from torchstone.workloads.suites.vision import import_vision

    return import_vision("timm", "torchvision")


def _images(seed: int, batch: int, side: int) -> Any:
    import torch

    chance = torch.Generator().manual_seed(seed)
    return (torch.randn(batch, 3, side, side, generator=chance),)


def _mobilenet() -> Made:
    return _timm("mobilenetv3_small_100", SMALL_IMAGE)


def _deit() -> Made:
    return _timm("deit_tiny_patch16_224", IMAGE, img_size=IMAGE, depth=DEIT_BLOCKS)


def _dcgan_training() -> Made:
    """A narrow DCGAN discriminator's whole training step: forward, loss, backward, Adam."""
    import torch

    from torchstone.workloads.suites.torchbench_own import DcganSize, Discriminator, towards_true

    torch.manual_seed(SEED)
    net = Discriminator(DcganSize(width=DCGAN_WIDTH))

    class TrainingStep(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net
            self.optimizer: Any = None

        def train(self, mode: bool = True) -> TrainingStep:
            """Always training: what is timed is a training step, whatever the harness says."""
            super().train(True)
            return self

        def forward(self, images: torch.Tensor) -> Any:
            # Made late, when the parameters have their final type.
            if self.optimizer is None:
                self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.0)
            with torch.enable_grad():
                self.optimizer.zero_grad(set_to_none=True)
                scores = self.net(images)
                loss: Any = towards_true(scores)
                loss.backward()
                self.optimizer.step()
            return loss.detach(), scores.detach()

    return TrainingStep(), lambda seed: _images(seed, BATCH, IMAGE)


MODELS: Mapping[str, Model] = {
    "bert": Model(_bert, file="aa_text.py"),
    "gpt2": Model(_gpt2, file="aa_text.py"),
    "mobilenet": Model(_mobilenet, file="aa_vision.py"),
    "deit": Model(_deit, file="aa_vision.py"),
    "dcgan-training": Model(_dcgan_training, file="aa_vision.py"),
    "whole-bert": Model(target="hf:BertForMaskedLM@small"),
    "whole-distilbert": Model(target="hf:DistilBertForMaskedLM@small"),
    "whole-mobilenet": Model(target="timm:mobilenetv3_large_100@small"),
    "whole-deit": Model(target="timm:deit_tiny_patch16_224@small"),
    "whole-dcgan": Model(target="torchbench:dcgan@small", mode="training"),
}
KNOWN = tuple(name for name, model in MODELS.items() if not model.whole)
"""Models whose arms can differ by a known effect."""


def environment(model: str, effect: int, threads: int) -> dict[str, str]:
    """What the targets read."""
    if MODELS[model].whole:
        return {}
    return {"AA_MODEL": model, "AA_EFFECT": str(effect), "AA_THREADS": str(threads)}


def log_truth(model: str, effect: int) -> float:
    return math.log(MODELS[model].truth(effect))
