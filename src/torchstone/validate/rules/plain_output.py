"""Are the outputs plain tensors, whose work is done when the call returns?"""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.records import Check, Level, Measurement
from torchstone.validate.base import FunctionRule, each_arm
from torchstone.validate.words import name_of

NAME = "plain-output"


def _look(arm: Measurement) -> Iterator[Check]:
    if arm.contract is None:
        return
    tensors = [leaf for leaf in arm.contract.outputs if leaf.kind == "torch"]
    odd = [leaf for leaf in tensors if not leaf.type_name.startswith("torch.")]
    who = (arm.arm.name,)
    if odd:
        yield Check(
            NAME,
            Level.FAIL,
            f"{odd[0].path} of {name_of(arm)} is a {odd[0].type_name}, a tensor class of its own, "
            "which may put off its work until it is read. Return a plain tensor.",
            arms=who,
        )
    elif tensors:
        yield Check(NAME, Level.OK, f"{name_of(arm)} returns plain tensors.", arms=who)


PLAIN_OUTPUT = FunctionRule(NAME, "R13: outputs are plain tensors", each_arm(_look))
