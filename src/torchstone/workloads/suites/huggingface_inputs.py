"""Inputs of the HuggingFace suite: random tokens and labels from a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchstone.workloads.suites.huggingface_entry import (
    BOTH_SIDES,
    CLASSES,
    SPAN,
    SPEECH,
    HfModel,
)

FIRST_WORD = 10
"""Tokens below may mean padding or an end (XLNet's padding is 5, the highest that is low), and what
a model does with those depends on where they fall."""
FRAMES_A_POSITION = 2
"""Whisper's second convolution has stride 2."""


def make_inputs(
    model: HfModel, config: Any, batch: int, length: int
) -> Callable[[int], dict[str, Any]]:
    """A function from a seed to the arguments of one call, all with the batch in front."""

    def inputs(seed: int) -> dict[str, Any]:
        import torch

        chance = torch.Generator().manual_seed(seed)

        def whole(low: int, high: int, *shape: int) -> Any:
            return torch.randint(low, high, (batch, *shape), generator=chance, dtype=torch.int64)

        def words() -> Any:
            return whole(FIRST_WORD, config.vocab_size, length)

        if model.task == SPEECH:
            frames = FRAMES_A_POSITION * config.max_source_positions
            sound = torch.randn((batch, config.num_mel_bins, frames), generator=chance)
            return {"input_features": sound, "decoder_input_ids": words(), "labels": words()}
        given = {"input_ids": words()}
        if model.task == CLASSES:
            return {**given, "labels": whole(0, config.num_labels)}
        if model.task == SPAN:
            return {
                **given,
                "start_positions": whole(0, length),
                "end_positions": whole(0, length),
            }
        if model.task == BOTH_SIDES:
            given["decoder_input_ids"] = words()
        return {**given, "labels": words()}

    return inputs
