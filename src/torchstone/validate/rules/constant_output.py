"""Does the output depend on the input at all?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from torchstone.records import Check, Level, Measurement
from torchstone.validate.base import CONSTANT_OUTPUT_NOTE, FunctionRule, each_arm
from torchstone.validate.facts import is_step
from torchstone.validate.words import name_of

NAME = "constant-output"


def _look(arm: Measurement) -> Iterator[Check]:
    who = (arm.arm.name,)
    if any(CONSTANT_OUTPUT_NOTE in note for note in arm.notes):
        yield Check(
            NAME,
            Level.FAIL if _should_vary(arm) else Level.WARN,
            f"{name_of(arm)} gives the same output for different inputs, so checking it proves "
            "nothing: a variant that skips the work would pass. Give inputs that matter to the "
            "output, or return more of what is computed.",
            arms=who,
        )
    elif is_step(arm) and arm.agreement is not None and arm.agreement.checked:
        text = f"{name_of(arm)} gives different outputs for different inputs."
        yield Check(NAME, Level.OK, text, arms=who)


def _should_vary(arm: Measurement) -> bool:
    """Inputs show in a tensor of real numbers; a shape, a count or a verdict may stay the same."""
    outputs = arm.contract.outputs if arm.contract else ()
    return any(
        leaf.dtype.startswith(("float", "bfloat", "complex")) and math.prod(leaf.shape) > 1
        for leaf in outputs
    )


CONSTANT_OUTPUT = FunctionRule(NAME, "R12: a check must be able to fail", each_arm(_look))
