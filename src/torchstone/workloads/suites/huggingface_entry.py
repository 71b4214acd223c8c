"""What the HuggingFace suite knows of one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LANGUAGE, CLASSES, SPAN, BOTH_SIDES, SPEECH = "language", "classes", "span", "both-sides", "speech"
"""What a model is given and what its loss is: a label for each token, a class for each sequence,
where an answer starts and ends, a second sequence for the decoder, or sound and a sequence."""

SMALL_BATCH = 4
"""Not 1, which compilers treat as a special case."""


@dataclass(frozen=True)
class HfModel:
    """One model. `small` and `full` are values of its configuration, `small` on top of `full`."""

    name: str
    module: str
    """The folder of transformers that holds it: `transformers.models.MODULE.modeling_MODULE`."""
    batch: int
    length: int
    small: Mapping[str, Any]
    full: Mapping[str, Any] = field(default_factory=dict)
    task: str = LANGUAGE
    small_length: int = 64
    class_name: str = ""
    skipped: bool = False
    """Whether the dashboard lists it and leaves it out."""
    note: str = ""
    """What differs from the model of that name elsewhere; for people."""

    @property
    def model_class(self) -> str:
        """The class of transformers; the name itself where it is one."""
        return self.class_name or self.name

    def sizes(self, scale: str) -> tuple[int, int]:
        """Batch and sequence length."""
        if scale == "small":
            return SMALL_BATCH, self.small_length
        return self.batch, self.length

    def settings(self, scale: str) -> dict[str, Any]:
        """Values of the configuration that differ from the class's defaults."""
        return {**self.full, **self.small} if scale == "small" else dict(self.full)
