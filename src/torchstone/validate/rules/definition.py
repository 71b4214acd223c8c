"""Are all figures of one definition?"""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.records import Check, Level, Measurement, Result
from torchstone.stats import DEFINITION
from torchstone.validate.base import FunctionRule
from torchstone.validate.words import name_of

NAME = "definition"


def _judge(result: Result) -> Iterator[Check]:
    if not result.arms:
        return
    clean = True
    if result.method.definition != DEFINITION:
        clean = False
        text = (
            f"The figures are of definition {result.method.definition}, and this version of "
            f"Torchstone computes definition {DEFINITION}; the two are never mixed. Judge it again "
            "with torchstone validate, which computes them anew from the samples."
        )
        said = {"definition": float(result.method.definition), "current": float(DEFINITION)}
        yield Check(NAME, Level.FAIL, text, said)
    base = result.arms[0]
    for arm in result.arms[1:]:
        difference = _difference(base, arm)
        if difference:
            clean = False
            text = (
                f"{name_of(arm)} {difference}, so the two times are not of one kind. Measure both "
                "in the same way."
            )
            yield Check(NAME, Level.FAIL, text, arms=(arm.arm.name,))
    if clean:
        text = f"All figures are of definition {DEFINITION}."
        yield Check(NAME, Level.OK, text, {"definition": float(DEFINITION)})


def _difference(base: Measurement, arm: Measurement) -> str:
    one, other = base.arm.statement, arm.arm.statement
    if one is not None and other is not None and one.clock != other.clock:
        return f"is timed by the {other.clock} clock and {name_of(base)} by the {one.clock} clock"
    if arm.schema != base.schema:
        return f"is a record of schema {arm.schema} and {name_of(base)} of schema {base.schema}"
    return ""


DEFINITION_RULE = FunctionRule(NAME, "the method: figures of two definitions never mix", _judge)
