"""Workloads of the models written here: their sizes, inputs and losses. Imported in the worker.

Full sizes and batches are TorchBench's where it has the model. Losses look at the output alone, so
that they serve batches of any size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from torchstone.workloads.suites.base import BuildSetting
from torchstone.workloads.workload import Workload

# Models written here, in the manner of TorchBench's: no library but torch, no weights to fetch.
#
# Each takes tensors with the batch in front and has no dropout. Imported in the worker alone.


@dataclass(frozen=True)
class DcganSize:
    """`width` is the channels of the first layer; four halvings make an image 4 × 4."""

    width: int = 64
    channels: int = 3
    side: int = 64


class Discriminator(nn.Module):
    """DCGAN's discriminator: strided convolutions from an image to one probability."""

    def __init__(self, size: DcganSize) -> None:
        super().__init__()
        widths = [size.width * factor for factor in (1, 2, 4, 8)]
        layers: list[nn.Module] = [
            nn.Conv2d(size.channels, widths[0], 4, stride=2, padding=1, bias=False),
            nn.LeakyReLU(0.2),
        ]
        for narrow, wide in pairwise(widths):
            layers += [
                nn.Conv2d(narrow, wide, 4, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(wide),
                nn.LeakyReLU(0.2),
            ]
        self.features = nn.Sequential(*layers)
        self.score = nn.Conv2d(widths[-1], 1, 4, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """The probability that each image is real."""
        return torch.sigmoid(self.score(self.features(images)).flatten())


@dataclass(frozen=True)
class GptSize:
    """A decoder of language; the defaults are the smallest published GPT-2."""

    layers: int = 12
    heads: int = 12
    width: int = 768
    vocabulary: int = 50_304
    positions: int = 1024
    length: int = 64
    """Tokens of one sequence, as TorchBench gives to its own."""


class GptBlock(nn.Module):
    """Causal attention and a perceptron, each with a norm before and a way around it."""

    def __init__(self, size: GptSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.before_attention = nn.LayerNorm(size.width)
        self.attention = nn.Linear(size.width, 3 * size.width)
        self.mix = nn.Linear(size.width, size.width)
        self.before_perceptron = nn.LayerNorm(size.width)
        self.widen = nn.Linear(size.width, 4 * size.width)
        self.narrow = nn.Linear(4 * size.width, size.width)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape again: batch, position, width."""
        batch, length, width = x.shape
        parts = self.attention(self.before_attention(x)).view(
            batch, length, 3, self.heads, width // self.heads
        )
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.mix(seen.transpose(1, 2).reshape(batch, length, width))
        thought: Tensor = self.narrow(functional.gelu(self.widen(self.before_perceptron(x))))
        return x + thought


class Gpt(nn.Module):
    """Tokens to a score for each next token; the first and last layers share their weights."""

    def __init__(self, size: GptSize) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.places = nn.Embedding(size.positions, size.width)
        self.blocks = nn.Sequential(*(GptBlock(size) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.width)
        for weight in (self.tokens.weight, self.places.weight):
            nn.init.normal_(weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores: batch, position, vocabulary."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.blocks(self.tokens(tokens) + self.places(places))
        return functional.linear(self.norm(x), self.tokens.weight)


@dataclass(frozen=True)
class DlrmSize:
    """Dense features go through `bottom`, whose last width is that of the embeddings."""

    tables: int = 8
    rows: int = 100_000
    lookups: int = 100
    bottom: tuple[int, ...] = (512, 512, 64)
    top: tuple[int, ...] = (1024, 1024, 1024, 1)


def _perceptron(widths: tuple[int, ...]) -> nn.Sequential:
    """Linear layers with ReLU between and none at the end."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Dlrm(nn.Module):
    """Recommendation: bags of embeddings, their pairwise products, and two perceptrons."""

    pairs: Tensor

    def __init__(self, size: DlrmSize) -> None:
        super().__init__()
        width, features = size.bottom[-1], size.tables + 1
        self.bottom = _perceptron(size.bottom)
        self.bags = nn.ModuleList(
            nn.EmbeddingBag(size.rows, width, mode="sum") for _ in range(size.tables)
        )
        for bag in self.bags.parameters():
            nn.init.uniform_(bag, -1 / math.sqrt(size.rows), 1 / math.sqrt(size.rows))
        self.register_buffer("pairs", torch.tril_indices(features, features, -1), persistent=False)
        crossed = features * (features - 1) // 2
        self.top = _perceptron((width + crossed, *size.top))

    def forward(self, dense: Tensor, lookups: Tensor) -> Tensor:
        """The probability of a click, from features (batch, n) and indices (batch, table, k)."""
        seen = functional.relu(self.bottom(dense))
        bags = [bag(lookups[:, table]) for table, bag in enumerate(self.bags)]
        every = torch.stack([seen, *bags], dim=1)
        products = torch.bmm(every, every.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return torch.sigmoid(self.top(torch.cat([seen, products], dim=1))).squeeze(1)


@dataclass(frozen=True)
class PotentialSize:
    """A network from one distance to one energy."""

    layers: int = 4
    width: int = 16


class PairPotential(nn.Module):
    """A learned Lennard-Jones potential: the energy of a pair, and the force as its derivative."""

    def __init__(self, size: PotentialSize) -> None:
        super().__init__()
        widths = (1, *[size.width] * size.layers)
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.Tanh()]
        self.network = nn.Sequential(*layers, nn.Linear(size.width, 1))

    def energy(self, distance: Tensor) -> Tensor:
        """Of one pair, from a tensor without dimensions to another."""
        energy: Tensor = self.network(distance.reshape(1)).squeeze(0)
        return energy

    def forward(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Energies and forces of a batch of pairs, from the vectors between them."""
        distances = vectors.square().sum(dim=1).sqrt()
        slopes, energies = torch.func.vmap(torch.func.grad_and_value(self.energy))(distances)
        return energies, -(slopes / distances).unsqueeze(1) * vectors


@dataclass(frozen=True)
class SpeechSize:
    """Frames of sound in, a score for each symbol out."""

    bands: int = 80
    layers: int = 4
    width: int = 512
    symbols: int = 32
    frames: int = 200


class SpeechLstm(nn.Module):
    """A bidirectional LSTM over frames, and a linear layer on top."""

    def __init__(self, size: SpeechSize) -> None:
        super().__init__()
        self.lstm = nn.LSTM(
            size.bands, size.width, size.layers, batch_first=True, bidirectional=True
        )
        self.score = nn.Linear(2 * size.width, size.symbols)

    def forward(self, frames: Tensor) -> Tensor:
        """Scores: batch, frame, symbol."""
        heard, _ = self.lstm(frames)
        scores: Tensor = self.score(heard)
        return scores


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
