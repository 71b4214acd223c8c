"""Were the outputs checked, how, and inside the timed turns?"""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.records import (
    NO_REFERENCE,
    NOTHING_COMPARABLE,
    Agreement,
    Check,
    Level,
    Measurement,
    Outcome,
)
from torchstone.validate.base import FunctionRule, each_arm
from torchstone.validate.facts import is_step
from torchstone.validate.words import count, name_of, percent

NAME = "output-check"
ODD = "NaN or infinite"
"""In the reasons of an agreement that few or no finite numbers stand behind."""
IN_RANGE = "Choose weights, inputs or a precision that keep it within range"
BLUNT = 0.1
"""An answer whose allowed error is over a tenth of its size is hardly checked: most mistakes are
smaller. Our own figure; honest training steps of the suites stay under a thirtieth."""


def _look(arm: Measurement) -> Iterator[Check]:
    if not is_step(arm) or arm.outcome is not Outcome.OK:
        return
    agreement = arm.agreement
    # Without a single output that was compared, nothing is known of the values.
    if agreement is None or agreement.method == "none" or not agreement.checked:
        yield _unchecked(arm, agreement)
    elif agreement.mismatch:
        yield _check(
            arm,
            Level.FAIL,
            f"{name_of(arm)} does not compute what the reference computes "
            f"({agreement.mismatch.rstrip('.')}). Correct it before its speed is looked at.",
        )
    else:
        yield from _checked(arm, agreement)


def _checked(arm: Measurement, agreement: Agreement) -> Iterator[Check]:
    clean = True
    reason = agreement.reason.rstrip(".")
    why = f" ({reason})" if reason else ""
    if agreement.method == "eager":
        clean = False
        remedy = IN_RANGE if ODD in reason else "Make the model run in float64"
        yield _check(
            arm,
            Level.NOTE,
            f"{name_of(arm)} was checked against the baseline's own output, because there is no "
            f"float64 reference{why}. {remedy} to have the stronger check.",
        )
    elif ODD in reason:
        clean = False
        yield _check(
            arm,
            Level.WARN,
            f"{name_of(arm)} was hardly checked{why}: what is not a number can only be like the "
            f"reference's. {IN_RANGE} to have a check.",
        )
    allowed = agreement.multiplier * agreement.rmse_baseline
    if allowed > BLUNT:
        clean = False
        yield _check(
            arm,
            Level.WARN,
            f"The check of {name_of(arm)} is blunt: one rounding moves the baseline's own answer "
            f"so far that an error of {percent(allowed)} would pass. Let the target return what "
            "does not jump (a value before a threshold, a sort or a ReLU).",
        )
    if arm.turns and not agreement.timed:
        clean = False
        yield _check(
            arm,
            Level.NOTE,
            f"{count(agreement.checked, 'output')} of {name_of(arm)} agreed with the reference, "
            "but none came from inside a timed turn. Give a longer --budget, so that a timed call "
            "is checked too.",
        )
    if clean:
        text = (
            f"{count(agreement.checked, 'output')} of {name_of(arm)} checked, "
            f"{agreement.timed} from inside timed turns."
        )
        yield _check(arm, Level.OK, text)


def _unchecked(arm: Measurement, agreement: Agreement | None) -> Check:
    reason = agreement.reason.rstrip(".") if agreement else "checking was off"
    why = f" ({reason})" if reason else ""
    return _check(
        arm,
        Level.WARN,
        f"The outputs of {name_of(arm)} were not compared with anything{why}: it may be fast and "
        f"wrong. {_remedy(reason)}",
    )


def _remedy(reason: str) -> str:
    """What to do, by why nothing was compared."""
    if ODD in reason:
        return f"{IN_RANGE}."
    if reason.startswith(NO_REFERENCE):
        return (
            "Make the baseline run as plain eager code in a process of its own, and bear being "
            "copied there; until then only the form of the answers is compared."
        )
    if reason.startswith(NOTHING_COMPARABLE):
        return "Let the target return tensors, arrays or numbers."
    return "Measure it with the check of outputs on, before its speed is believed."


def _check(arm: Measurement, level: Level, message: str) -> Check:
    agreement = arm.agreement
    checked, timed = (agreement.checked, agreement.timed) if agreement else (0, 0)
    figures = {"checked": float(checked), "timed": float(timed)}
    return Check(NAME, level, message, figures, (arm.arm.name,))


OUTPUT_CHECK = FunctionRule(NAME, "R12: check outputs of timed calls", each_arm(_look))
