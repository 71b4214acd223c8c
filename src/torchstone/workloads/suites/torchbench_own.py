"""Workloads of the models written here: their sizes, inputs and losses. Imported in the worker.

Full sizes and batches are TorchBench's where it has the model. Losses look at the output alone, so
that they serve batches of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from torchstone.workloads.suites.base import BuildSetting
from torchstone.workloads.suites.torchbench_models import (
    DcganSize,
    Discriminator,
    Dlrm,
    DlrmSize,
    Gpt,
    GptSize,
    PairPotential,
    PotentialSize,
    SpeechLstm,
    SpeechSize,
)
from torchstone.workloads.workload import Workload

NEAR, FAR = 0.9, 2.5
"""Distances of pairs in units of the particle's size: from repulsion to the usual cut-off."""


@dataclass(frozen=True)
class Recipe:
    """How one model is built and fed."""

    module: Callable[[Any], nn.Module]
    inputs: Callable[[Any, int, Generator], tuple[Tensor, ...]]
    loss: Callable[[Any], Tensor]
    full: Any
    small: Any
    batch: Mapping[str, int]
    """At full scale, by mode."""
    small_batch: int
    note: str = ""


def build_own(name: str, setting: BuildSetting) -> Workload:
    """The model of that name with random weights; fresh inputs from every seed."""
    recipe = RECIPES[name]
    small = setting.scale == "small"
    size = recipe.small if small else recipe.full
    batch = recipe.small_batch if small else recipe.batch[setting.mode]

    def inputs(seed: int) -> tuple[Tensor, ...]:
        return recipe.inputs(size, batch, torch.Generator().manual_seed(seed))

    notes = (
        f"project-written, in the manner of {name}",
        f"batch size {batch}",
        "the model has no dropout",
        *([recipe.note] if recipe.note else []),
    )
    return Workload(recipe.module(size), inputs, loss=recipe.loss, notes=notes)


def _images(size: DcganSize, batch: int, chance: Generator) -> tuple[Tensor, ...]:
    return (torch.randn(batch, size.channels, size.side, size.side, generator=chance),)


def _tokens(size: GptSize, batch: int, chance: Generator) -> tuple[Tensor, ...]:
    return (torch.randint(size.vocabulary, (batch, size.length), generator=chance),)


def _visits(size: DlrmSize, batch: int, chance: Generator) -> tuple[Tensor, ...]:
    dense = torch.rand(batch, size.bottom[0], generator=chance)
    shape = (batch, size.tables, size.lookups)
    return dense, torch.randint(size.rows, shape, generator=chance)


def _pairs(size: PotentialSize, batch: int, chance: Generator) -> tuple[Tensor, ...]:
    towards = functional.normalize(torch.randn(batch, 3, generator=chance), dim=1)
    return (towards * (NEAR + (FAR - NEAR) * torch.rand(batch, 1, generator=chance)),)


def _sound(size: SpeechSize, batch: int, chance: Generator) -> tuple[Tensor, ...]:
    return (torch.randn(batch, size.frames, size.bands, generator=chance),)


def towards_true(probabilities: Tensor) -> Tensor:
    """Binary cross-entropy as if every answer were yes."""
    wide = _at_least_float32(probabilities)
    return functional.binary_cross_entropy(wide, torch.ones_like(wide))


def towards_first(scores: Tensor) -> Tensor:
    """Cross-entropy as if the first class were right everywhere."""
    flat = _at_least_float32(scores).flatten(0, -2)
    return functional.cross_entropy(flat, flat.new_zeros(flat.shape[0], dtype=torch.int64))


def towards_rest(output: tuple[Tensor, Tensor]) -> Tensor:
    """Energies and forces that should vanish, weighed so that neither drowns the other."""
    energies, forces = (_at_least_float32(part) for part in output)
    return energies.square().mean() + 0.01 * forces.square().mean()


def _at_least_float32(part: Tensor) -> Tensor:
    return part.float() if part.element_size() < 4 else part


RECIPES: Mapping[str, Recipe] = {
    "dcgan": Recipe(
        Discriminator,
        _images,
        towards_true,
        full=DcganSize(),
        small=DcganSize(),
        batch={"inference": 256, "training": 32},
        small_batch=4,
        note="the discriminator, which is what TorchBench times of it",
    ),
    "dlrm": Recipe(
        Dlrm,
        _visits,
        towards_true,
        full=DlrmSize(),
        small=DlrmSize(rows=10_000, lookups=20, top=(512, 512, 1)),
        batch={"inference": 2048, "training": 2048},
        small_batch=512,
        note="every sample has the same number of lookups; full tables have a tenth of the rows",
    ),
    "lennard_jones": Recipe(
        PairPotential,
        _pairs,
        towards_rest,
        full=PotentialSize(),
        small=PotentialSize(width=256),
        batch={"inference": 1000, "training": 1000},
        small_batch=1000,
        note="small is wider than full, whose step is too short to compare compilers by",
    ),
    "nanogpt": Recipe(
        Gpt,
        _tokens,
        towards_first,
        full=GptSize(),
        small=GptSize(layers=2, heads=4, width=256, vocabulary=8192, positions=128),
        batch={"inference": 1, "training": 1},
        small_batch=4,
    ),
    "speech_lstm": Recipe(
        SpeechLstm,
        _sound,
        towards_first,
        full=SpeechSize(),
        small=SpeechSize(layers=2, width=256, frames=50),
        batch={"inference": 8, "training": 8},
        small_batch=4,
    ),
}
