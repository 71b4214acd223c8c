"""Models with random weights whose answer depends on what they compute.

Libraries build models that are ready to be trained, not to be checked: many start their last layer,
or the last scale of each residual branch, at 0 or nearly, so that the answer hides all that came
before; and batch normalisation in inference divides by 1 until training has told it better, so that
values shrink (to 1e-14 in some networks, on the way to numbers that a processor is slow at) or grow
from layer to layer. A wrong answer would then pass any check. Both are put right here, by values
that are the same on every machine.
"""

from __future__ import annotations

import math
from typing import Any

ASLEEP = 1e-3
"""A weight none of whose values is larger hides what it multiplies; libraries start such scales at
0, 1e-6, 1e-5 or 1e-4."""
AWAKE = 0.2
"""What such a scale is set to: enough to show, and low enough that fifty residual branches one
after another do not drown the first."""
SPREAD = 0.02
"""Of the values drawn for a matrix, as vision transformers draw theirs."""
MULTIPLIERS = ("weight", "gamma", "gain", "scale")
"""Names of what multiplies. What is added (biases, position embeddings) may well be 0."""
NAMES_SHOWN = 3


def wake_weights(model: Any) -> tuple[str, ...]:
    """Give weights that start at nothing a value; the names of those. Draws from torch's seed."""
    import torch

    woken = []
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not _multiplies(name) or not parameter.numel():
                continue
            if float(parameter.abs().max()) > ASLEEP:
                continue
            if parameter.numel() == max(parameter.shape, default=1):
                parameter.fill_(AWAKE)
            else:
                parameter.normal_(std=SPREAD)
            woken.append(name)
    return tuple(woken)


def settle_norms(model: Any, images: Any) -> int:
    """Let each batch normalisation expect what it is given; how many there are.

    One variance for a layer, rounded to a power of two: the measured one differs in its last digits
    with the machine and the number of threads, and the weights must not.
    """
    import torch

    kind = torch.nn.modules.batchnorm._BatchNorm
    norms = [m for m in model.modules() if isinstance(m, kind) and m.running_var is not None]
    if not norms:
        return 0
    hooks = [norm.register_forward_pre_hook(_expect) for norm in norms]
    training = model.training
    try:
        with torch.no_grad():
            model.eval()(images)
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()
    return len(norms)


def alive_notes(woken: tuple[str, ...], settled: int) -> tuple[str, ...]:
    """What was changed, for the contract."""
    notes = []
    if woken:
        rest = len(woken) - NAMES_SHOWN
        names = ", ".join(woken[:NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
        notes.append(
            f"weights that start at 0 or nearly were set to {AWAKE:g}, or drawn where they are "
            f"matrices, so that the answer shows what they multiply: {names}"
        )
    if settled:
        notes.append(
            f"the running variances of {settled} batch normalisations were set to the power of two "
            "nearest to what random images give, so that values neither vanish nor grow in "
            "inference"
        )
    return tuple(notes)


def _multiplies(name: str) -> bool:
    return any(word in name.rpartition(".")[2] for word in MULTIPLIERS)


def _expect(norm: Any, inputs: tuple[Any, ...]) -> None:
    power = float(inputs[0].double().square().mean())
    if power > 0 and math.isfinite(power):
        norm.running_var.fill_(2.0 ** round(math.log2(power)))
