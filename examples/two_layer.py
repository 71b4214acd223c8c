"""The two-layer ReLU network: N=64, D_in=1000, H=100, D_out=10.

Eager against compiled, and a training step:

    torchstone bench examples/two_layer.py:make --vs inductor
    torchstone bench examples/two_layer.py:make --mode training
"""

import torch
from torch import nn

from torchstone import Workload

N, D_IN, H, D_OUT = 64, 1000, 100, 10


def make() -> Workload:
    """The network, one batch, and a squared-error loss for training."""
    model = nn.Sequential(nn.Linear(D_IN, H), nn.ReLU(), nn.Linear(H, D_OUT))
    x, y = torch.randn(N, D_IN), torch.randn(N, D_OUT)
    return Workload(
        model,
        (x,),
        loss=lambda output: (output - y.to(output.dtype)).square().sum(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-6),
    )
