"""Are the outputs plain tensors, whose work is done when the call returns?"""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.records import Check, Level, Measurement
from torchstone.validate.base import FunctionRule, each_arm
from torchstone.validate.words import name_of

NAME = "plain-output"
STAND_INS = "torch._subclasses."
"""Torch's own classes that stand for a tensor without computing it."""
EMPTY = ("meta", "lazy")
"""Devices on which nothing is computed, or not yet."""


def _look(arm: Measurement) -> Iterator[Check]:
    if arm.contract is None:
        return
    tensors = [leaf for leaf in arm.contract.outputs if leaf.kind == "torch"]
    odd = [leaf for leaf in tensors if not _is_plain(leaf.type_name)]
    empty = [leaf for leaf in tensors if leaf.device.split(":")[0] in EMPTY]
    who = (arm.arm.name,)
    if odd:
        yield Check(
            NAME,
            Level.FAIL,
            f"{odd[0].path} of {name_of(arm)} is a {odd[0].type_name}, a tensor class of its own, "
            "which may put off its work until it is read. Return a plain tensor.",
            arms=who,
        )
    elif empty:
        yield Check(
            NAME,
            Level.FAIL,
            f"{empty[0].path} of {name_of(arm)} is on the device {empty[0].device}, where nothing "
            "is computed when the call returns. Return a tensor with values.",
            arms=who,
        )
    elif tensors:
        yield Check(NAME, Level.OK, f"{name_of(arm)} returns plain tensors.", arms=who)


def _is_plain(type_name: str) -> bool:
    return type_name.startswith("torch.") and not type_name.startswith(STAND_INS)


PLAIN_OUTPUT = FunctionRule(NAME, "R13: outputs are plain tensors", each_arm(_look))
