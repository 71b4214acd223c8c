"""Are all figures of one definition?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from torchstone.records import Check, Comparison, Level, Measurement, Remeasurement, Result
from torchstone.records.format import count, percent
from torchstone.stats import DEFINITION, replicates_with_samples
from torchstone.validate.base import FunctionRule, arm_named, name_of, threads

DEFINITION_NAME = "definition"


def _judge_definition(result: Result) -> Iterator[Check]:
    if not result.arms:
        return
    clean = True
    if result.method.definition != DEFINITION:
        clean = False
        text = (
            f"The figures are of definition {result.method.definition}, and this version of "
            f"Torchstone computes definition {DEFINITION}; the two are never mixed. Check it again "
            "with torchstone validate, which computes them again from the samples."
        )
        said = {"definition": float(result.method.definition), "current": float(DEFINITION)}
        yield Check(DEFINITION_NAME, Level.FAIL, text, said)
    base = result.arms[0]
    for arm in result.arms[1:]:
        difference = _difference(base, arm)
        if difference:
            clean = False
            text = (
                f"{name_of(arm)} {difference}, so the two times are not of one kind. Measure both "
                "in the same way."
            )
            yield Check(DEFINITION_NAME, Level.FAIL, text, arms=(arm.arm.name,))
    if clean:
        text = f"All figures are of definition {DEFINITION}."
        yield Check(DEFINITION_NAME, Level.OK, text, {"definition": float(DEFINITION)})


def _difference(base: Measurement, arm: Measurement) -> str:
    one, other = base.arm.statement, arm.arm.statement
    if one is not None and other is not None and one.clock != other.clock:
        return f"is timed by the {other.clock} clock and {name_of(base)} by the {one.clock} clock"
    if arm.schema != base.schema:
        return f"is a record of schema {arm.schema} and {name_of(base)} of schema {base.schema}"
    return ""


DEFINITION_RULE = FunctionRule(
    DEFINITION_NAME, "the method: figures of two definitions never mix", _judge_definition
)


# Is a difference larger than what identical arms differ by?


IDENTICAL_NAME = "identical"
TIMES_FLOOR = 2.0
"""an effect is believed from twice what nine of ten identical pairs differ by."""


def _judge_identical(result: Result) -> Iterator[Check]:
    claimed = [c for c in result.comparisons if _claims(c)]
    same = [c for c in claimed if _are_identical(c, result)]
    for comparison in same:
        yield _phantom(comparison)
    seen = max((_effect(c) for c in same), default=0.0)
    for comparison in claimed:
        if comparison not in same:
            yield _look_identical(comparison, max(comparison.aa_floor, seen))


def _look_identical(comparison: Comparison, floor: float) -> Check:
    effect = _effect(comparison)
    figures, who = {"effect": effect, "aa_floor": floor}, (comparison.new,)
    if effect >= TIMES_FLOOR * floor:
        text = f"{name_of(comparison.new)} differs by more than identical arms do."
        return Check(IDENTICAL_NAME, Level.OK, text, figures, who)
    text = (
        f"{name_of(comparison.new)} is called {comparison.verdict.value} by {percent(effect)}, "
        f"less than twice what identical arms differ by here ({percent(floor)}). Confirm it in "
        "another session, or with a longer --budget on a quieter machine."
    )
    return Check(IDENTICAL_NAME, Level.WARN, text, figures, who)


def _phantom(comparison: Comparison) -> Check:
    effect = _effect(comparison)
    text = (
        f"{name_of(comparison.new)} and {name_of(comparison.base)} are identical and yet called "
        f"{comparison.verdict.value} by {percent(effect)}: so much is this machine's doing. Run "
        "torchstone doctor, and measure again when it is quieter."
    )
    figures = {"effect": effect, "aa_floor": comparison.aa_floor}
    return Check(IDENTICAL_NAME, Level.FAIL, text, figures, (comparison.new,))


def _claims(comparison: Comparison) -> bool:
    return comparison.verdict.different and bool(comparison.time_ratio)


def _effect(comparison: Comparison) -> float:
    """On the log scale, so that swapping the arms changes nothing."""
    return math.expm1(abs(math.log(comparison.time_ratio or 1.0)))


def _are_identical(comparison: Comparison, result: Result) -> bool:
    base, new = arm_named(comparison.base, result), arm_named(comparison.new, result)
    if base is None or new is None or replace(new.arm, name=base.arm.name) != base.arm:
        return False
    # What a target does may depend on what is installed and set around it.
    return base.environment == new.environment


IDENTICAL = FunctionRule(
    IDENTICAL_NAME, "twice the A/A floor, and identical arms are the same", _judge_identical
)


# Does the interval rest on enough processes?


REPLICATES_NAME = "replicates"
FEWEST = 3
"""Ours: with two processes Student's t is 12.7 wide and one odd process decides; from three on
(4.3) an interval begins to mean something."""


def _judge_replicates(result: Result) -> Iterator[Check]:
    counts = {arm.arm.name: len(replicates_with_samples(arm)) for arm in result.arms if arm.turns}
    if result.method.stopped_by == "interrupt":
        yield Check(
            REPLICATES_NAME,
            Level.NOTE,
            f"The measurement was interrupted after {count(max(counts.values(), default=0), *_P)}. "
            "What is shown rests on what was measured till then; run it again for the rest.",
            {"processes": float(max(counts.values(), default=0))},
        )
    if not counts:
        return
    least = min(counts.values())
    figures = {"processes": float(least), "needed": float(FEWEST)}
    if least >= FEWEST:
        yield Check(
            REPLICATES_NAME, Level.OK, f"Each arm ran in {least} or more processes.", figures
        )
        return
    short = tuple(name for name, found in counts.items() if found < FEWEST)
    # Some of the arms: each by itself, because what is said of the baseline is every case's.
    for who in [short] if len(short) == len(counts) else [(name,) for name in short]:
        fewest = min(counts[name] for name in who)
        yield Check(
            REPLICATES_NAME,
            Level.WARN,
            f"The interval rests on {count(fewest, *_P)} only, too few to know how much processes "
            "differ. Give a longer --budget, or more --replicates.",
            {**figures, "processes": float(fewest)},
            who,
        )


_P = ("process", "processes")

REPLICATES = FunctionRule(
    REPLICATES_NAME, "the method: replicates are fresh processes", _judge_replicates
)


# Did the arms run side by side, turn by turn?


SAME_TIME_NAME = "same-time"


def _judge_same_time(result: Result) -> Iterator[Check]:
    measured = [arm for arm in result.arms if arm.replicates]
    if len(measured) < 2:
        return
    processes = [process for arm in measured for process in arm.replicates]
    alone = sum(process.alone for process in processes)
    figures = {"alone": float(alone), "processes": float(len(processes))}
    if not alone:
        yield Check(SAME_TIME_NAME, Level.OK, "The arms took turns side by side.", figures)
        return
    who = tuple(arm.arm.name for arm in measured if any(p.alone for p in arm.replicates))
    yield Check(
        SAME_TIME_NAME,
        Level.NOTE,
        f"{alone} of {len(processes)} processes ran alone, because the arms do not fit in memory "
        "together; what changed on the machine between them does not cancel. Free memory or make "
        "the batch smaller to have them take turns.",
        figures,
        who,
    )


SAME_TIME = FunctionRule(SAME_TIME_NAME, "interleave the arms", _judge_same_time)


# Is the speed-up too good to be taken on trust?


TOO_GOOD_NAME = "too-good"
OPTIMISED = 2.0
"""over a baseline that is optimised already, from twice on."""
ANYTHING = 10.0
"""over anything, from ten times on; held until it is confirmed."""
AGREE_WITHIN = 0.10
"""MLPerf's compliance tests allow 5-10 % for other inputs; both intervals are widened by it."""
PLAIN = ("eager", "aot_eager", "export")
"""Variants that run ops one by one. Any other baseline is a compiler's work."""


def suspicious(comparison: Comparison, result: Result) -> bool:
    """Whether the speed-up needs measuring again. Statements have no inputs to be changed."""
    base, speedup = arm_named(comparison.base, result), comparison.speedup
    if base is None or base.arm.statement is not None or speedup is None:
        return False
    return speedup >= ANYTHING or (speedup >= OPTIMISED and _optimised(comparison, result))


def _optimised(comparison: Comparison, result: Result) -> bool:
    """A compiled baseline on as much hardware: more threads or another device may well do it."""
    base, new = arm_named(comparison.base, result), arm_named(comparison.new, result)
    if base is None or new is None or base.arm.variant.split("+")[0] in PLAIN:
        return False
    return base.arm.device == new.arm.device and threads(base) == threads(new)


def remeasurement(comparison: Comparison, result: Result) -> Remeasurement | None:
    """The newest second look at a comparison."""
    found = [
        s for s in result.remeasurements if (s.base, s.new) == (comparison.base, comparison.new)
    ]
    return found[-1] if found else None


def _judge_too_good(result: Result) -> Iterator[Check]:
    for comparison in result.comparisons:
        if comparison.speedup is not None:
            yield _look_too_good(comparison, comparison.speedup, result)


def _look_too_good(comparison: Comparison, speedup: float, result: Result) -> Check:
    who = (comparison.new,)
    figures = {"speedup": speedup}
    if not suspicious(comparison, result):
        if speedup >= ANYTHING:
            text = (
                f"{name_of(comparison.new)} reads {speedup:,.0f} times as fast as "
                f"{name_of(comparison.base)}. A statement's result is not checked; look whether "
                "both do what you mean."
            )
            return Check(TOO_GOOD_NAME, Level.NOTE, text, figures, who)
        text = f"{name_of(comparison.new)} is not suspiciously fast."
        return Check(TOO_GOOD_NAME, Level.OK, text, figures, who)
    look = remeasurement(comparison, result)
    if look is not None:
        figures["second_seed"] = float(look.seed)
    if look is not None and look.speedup is not None:
        figures["second_speedup"] = look.speedup
    level, text = _words(comparison, speedup, look)
    return Check(TOO_GOOD_NAME, level, text, figures, who)


def _words(comparison: Comparison, speedup: float, look: Remeasurement | None) -> tuple[Level, str]:
    new, base = name_of(comparison.new), name_of(comparison.base)
    said = f"{new} reads {speedup:,.1f} times as fast as {base}"
    held = Level.FAIL if speedup >= ANYTHING else Level.WARN
    why = "too good to be taken on trust" if held is Level.WARN else "held until it is confirmed"
    if look is None:
        return held, (
            f"{said}: {why}. Measure it again with another --seed, and look for work that the arm "
            "leaves out."
        )
    reason = f" ({look.reason.rstrip('.')})" if look.reason else ""
    if look.outcome != "ok":
        return Level.FAIL, (
            f"{said}, but measured once more with other inputs it ended as {look.outcome}{reason}. "
            "Look for work that the arm leaves out, or for inputs that it was made for."
        )
    if look.speedup is None or look.interval is None:
        return held, (
            f"{said}: {why}, and measuring again could not tell{reason}. Give a longer --budget."
        )
    if not agree(comparison, look):
        return Level.FAIL, (
            f"{said}, but {look.speedup:,.1f} times when measured once more in other processes "
            "with other inputs. Look for inputs or moments on which the speed depends."
        )
    return Level.OK, (
        f"{said}, and {look.speedup:,.1f} times when measured once more in other processes with "
        "other inputs."
    )


def agree(comparison: Comparison, look: Remeasurement) -> bool:
    """Whether the two intervals of the time ratio overlap once widened."""
    first, second = comparison.interval or _point(comparison.time_ratio), look.interval
    if second is None:
        return False
    slack = (1 + AGREE_WITHIN) ** 2
    return first[0] <= second[1] * slack and second[0] <= first[1] * slack


def _point(ratio: float | None) -> tuple[float, float]:
    return (ratio, ratio) if ratio is not None else (math.nan, math.nan)


TOO_GOOD = FunctionRule(
    TOO_GOOD_NAME, "verify large speed-ups again, hold the largest", _judge_too_good
)
