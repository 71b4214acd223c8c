"""Two small networks whose batch can be divided among ranks.

    torchstone scaling examples/ranks.py:two_layer --parallel ddp,fsdp,fsdp-sum,tp,pp
    torchstone scaling examples/ranks.py:transformer --parallel ddp,pp

The loss is a mean over the batch and needs nothing but the output, so that each rank can compute
its part. Labels would be a second input, and the module would return the loss.
"""

import torch
from torch import nn

from torchstone import Workload

BATCH, WIDE, NARROW = 64, 512, 16
TOKENS, WORDS, WIDTH, HEADS = 32, 256, 64, 4


def two_layer() -> Workload:
    """Two linear layers with a ReLU between them."""
    model = nn.Sequential(nn.Linear(WIDE, WIDE), nn.ReLU(), nn.Linear(WIDE, NARROW))
    return Workload(model, (torch.randn(BATCH, WIDE),))


class Block(nn.Module):
    """Attention, then two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.norm = nn.LayerNorm(WIDTH)
        self.grow = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x + self.attend(x, x, x, need_weights=False)[0])
        grown: torch.Tensor = self.grow(x)
        return x + grown


def transformer() -> Workload:
    """An embedding, two blocks and a head."""
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), Block(), Block(), nn.Linear(WIDTH, WORDS))
    return Workload(model, (torch.randint(WORDS, (BATCH // 4, TOKENS)),))
