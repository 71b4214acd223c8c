"""Models written here, in the manner of TorchBench's: no library but torch, no weights to fetch.

Each takes tensors with the batch in front and has no dropout. Imported in the worker alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


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
