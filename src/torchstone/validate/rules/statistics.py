"""Do the figures rest on enough, alike and honest measurements?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from torchstone.records import Check, Comparison, Measurement, Remeasurement, Result
from torchstone.records.format import count, format_seconds, percent
from torchstone.stats import (
    DEFINITION,
    DISTURBED,
    FLOOR_ESTIMATOR,
    LEAST_UNDISTURBED,
    central_time,
    is_floor,
    process_times,
    replicates_with_samples,
)
from torchstone.validate.base import (
    arm_named,
    arm_rule,
    estimator,
    fail,
    name_of,
    note,
    ok,
    rule,
    threads,
    warn,
)

MOST_NAMED = 6
"""Times of single processes in a sentence."""


@rule("definition", "the method: figures of two definitions never mix")
def definition(result: Result) -> Iterator[Check]:
    """Figures of another definition than this version computes, or arms timed differently."""
    if not result.arms:
        return
    made_by = result.method.definition
    if made_by != DEFINITION:
        yield fail(
            f"The figures are of definition {made_by}, and this version of Torchstone computes "
            f"definition {DEFINITION}; the two are never mixed. Check it again with torchstone "
            "validate, which computes them again from the samples.",
            definition=made_by,
            current=DEFINITION,
        )
    base, *others = result.arms
    different = [(arm, how) for arm in others if (how := _difference(base, arm))]
    for arm, how in different:
        yield fail(
            f"{name_of(arm)} {how}, so the two times cannot be compared. Measure both in the same "
            "way.",
            (arm.arm.name,),
        )
    if made_by == DEFINITION and not different:
        yield ok(f"All figures are of definition {DEFINITION}.", definition=DEFINITION)


def _difference(base: Measurement, arm: Measurement) -> str:
    one, other = base.arm.statement, arm.arm.statement
    if one is not None and other is not None and one.clock != other.clock:
        return f"is timed by the {other.clock} clock and {name_of(base)} by the {one.clock} clock"
    if arm.schema != base.schema:
        return f"is a record of schema {arm.schema} and {name_of(base)} of schema {base.schema}"
    return ""


# Is the floor one that comes again?


@arm_rule("floor", "the method: a floor is the time of an undisturbed call")
def floor(arm: Measurement, result: Result) -> Iterator[Check]:
    """Processes whose fastest calls differ by more than processes of one program do."""
    each = sorted(process_times(arm, FLOOR_ESTIMATOR))
    if len(each) < 2:
        return
    used = sum(time <= DISTURBED * each[0] for time in each)
    units = "stretches" if result.method.session else "processes"
    figures = {"used": used, "processes": len(each), "lowest_s": each[0], "highest_s": each[-1]}
    if used >= LEAST_UNDISTURBED and central_time(arm, FLOOR_ESTIMATOR) is None:
        fastest = min(w for turn in arm.turns for w in turn.wall_ns) / arm.loops / 1e9
        level = warn if is_floor(estimator(result)) else note
        yield level(
            f"{name_of(arm)} has no floor: its processes have few samples, and the fastest "
            f"({format_seconds(fastest, 3)}) lies far below the others. Stop other work, or give a "
            "longer --budget.",
            **figures,
        )
    elif used == len(each):
        yield ok(f"All {units} were undisturbed at times.", **figures)
    elif used >= LEAST_UNDISTURBED:
        yield note(
            f"{name_of(arm)}: {len(each) - used} of {len(each)} {units} were disturbed all along "
            f"(their fastest calls take up to {format_seconds(each[-1], 3)}) and are not in its "
            "floor.",
            **figures,
        )
    else:
        level = warn if is_floor(estimator(result)) else note
        said = ", ".join(format_seconds(time, 3) for time in each[:MOST_NAMED])
        more = f" and {len(each) - MOST_NAMED} more" if len(each) > MOST_NAMED else ""
        yield level(
            f"{name_of(arm)} has no floor: no two {units} agree on the time of an undisturbed "
            f"call ({said}{more}). Stop other work, ask for fewer threads than there are free "
            "cores, or give a longer --budget.",
            **figures,
        )


@rule("session", "the method: replicates are fresh processes")
def session(result: Result) -> Iterator[Check]:
    """Objects measured in the process that they live in: what that leaves out."""
    if result.method.session:
        yield note(
            "Measured in this Python process, so its interval covers changes over time but not "
            "over processes, which differ by memory layout, allocator and what ran before, often "
            "by a few per cent. Not measured: compile time from empty caches, memory of the "
            "process, operations; a step that hangs is not stopped. To have all that, put it into "
            "a file and give path.py:make.",
        )


# Is a difference larger than what identical arms differ by?


TIMES_FLOOR = 2.0
"""An effect is believed from twice what nine of ten identical pairs differ by."""


@rule("identical", "twice the A/A floor, and identical arms are the same")
def identical(result: Result) -> Iterator[Check]:
    """Effects that are no larger than those of identical arms."""
    claimed = [c for c in result.comparisons if c.verdict.different and c.time_ratio]
    same = [c for c in claimed if _are_identical(c, result)]
    for comparison in same:
        effect = _effect(comparison)
        yield fail(
            f"{name_of(comparison.new)} and {name_of(comparison.base)} are identical and yet "
            f"called {comparison.verdict.value} by {percent(effect)}: the machine alone causes "
            "that much. Run torchstone doctor, and measure again when it is quieter.",
            (comparison.new,),
            effect=effect,
            aa_floor=comparison.aa_floor,
        )
    seen = max((_effect(c) for c in same), default=0.0)
    for comparison in claimed:
        if comparison not in same:
            yield _against_floor(comparison, max(comparison.aa_floor, seen))


def _against_floor(comparison: Comparison, floor: float) -> Check:
    effect, new = _effect(comparison), name_of(comparison.new)
    if effect >= TIMES_FLOOR * floor:
        text = f"{new} differs by more than identical arms do."
        return ok(text, (comparison.new,), effect=effect, aa_floor=floor)
    return warn(
        f"{new} is called {comparison.verdict.value} by {percent(effect)}, less than twice what "
        f"identical arms differ by here ({percent(floor)}). Confirm it in another session, or "
        "with a longer --budget on a quieter machine.",
        (comparison.new,),
        effect=effect,
        aa_floor=floor,
    )


def _effect(comparison: Comparison) -> float:
    """On the log scale, so that swapping the arms changes nothing."""
    return math.expm1(abs(math.log(comparison.time_ratio or 1.0)))


def _are_identical(comparison: Comparison, result: Result) -> bool:
    base, new = arm_named(comparison.base, result), arm_named(comparison.new, result)
    if base is None or new is None or replace(new.arm, name=base.arm.name) != base.arm:
        return False
    # What a target does may depend on what is installed and set around it.
    return base.environment == new.environment


# Does the interval rest on enough processes?


FEWEST = 3
"""Ours: with two processes Student's t is 12.7 wide and one odd process decides; from three on
(4.3) an interval begins to mean something."""
_PROCESSES = ("process", "processes")


@rule("replicates", "the method: replicates are fresh processes")
def replicates(result: Result) -> Iterator[Check]:
    """Too few processes, or a measurement that was interrupted."""
    counts = {arm.arm.name: len(replicates_with_samples(arm)) for arm in result.arms if arm.turns}
    if result.method.session and result.method.stopped_by != "interrupt":
        return  # the rule `session` speaks of its stretches
    if result.method.cut_short:
        most = max(counts.values(), default=0)
        out_of_time = result.method.stopped_by == "total"
        ended = "ended by --total" if out_of_time else "interrupted"
        remedy = "give more time" if out_of_time else "run it again"
        yield note(
            f"The measurement was {ended} after {count(most, *_PROCESSES)}. The figures rest "
            f"on what was measured until then; {remedy} for the rest.",
            processes=most,
        )
    if not counts:
        return
    least = min(counts.values())
    if least >= FEWEST:
        text = f"Each arm ran in {least} or more processes."
        yield ok(text, processes=least, needed=FEWEST)
        return
    short = tuple(name for name, found in counts.items() if found < FEWEST)
    # Some of the arms: each by itself, because what is said of the baseline is every case's.
    for who in [short] if len(short) == len(counts) else [(name,) for name in short]:
        fewest = min(counts[name] for name in who)
        yield warn(
            f"The interval rests on {count(fewest, *_PROCESSES)} only, too few to know how much "
            "processes differ. Give a longer --budget, or more --replicates.",
            who,
            processes=fewest,
            needed=FEWEST,
        )


@rule("same-time", "interleave the arms")
def same_time(result: Result) -> Iterator[Check]:
    """Arms that ran one after the other instead of turn by turn."""
    measured = [arm for arm in result.arms if arm.replicates]
    if len(measured) < 2:
        return
    processes = [process for arm in measured for process in arm.replicates]
    alone = sum(process.alone for process in processes)
    figures = {"alone": alone, "processes": len(processes)}
    if not alone:
        yield ok("The arms took turns side by side.", **figures)
        return
    yield note(
        f"{alone} of {len(processes)} processes ran alone, because the arms do not fit in memory "
        "together; what changed on the machine between them does not cancel. Free memory or make "
        "the batch smaller to have them take turns.",
        [arm.arm.name for arm in measured if any(p.alone for p in arm.replicates)],
        **figures,
    )


# Is the speed-up too good to be taken on trust?


OPTIMISED = 2.0
"""Over a baseline that is optimised already, from twice on."""
ANYTHING = 10.0
"""Over anything, from ten times on; held until it is confirmed."""
AGREE_WITHIN = 0.10
"""MLPerf's compliance tests allow 5-10 % for other inputs; both intervals are widened by it."""
PLAIN = ("eager", "aot_eager", "export")
"""Variants that run ops one by one. Any other baseline is a compiler's work."""
TOO_GOOD = "too-good"


def suspicious(comparison: Comparison, result: Result) -> bool:
    """Whether the speed-up needs measuring again. Statements have no inputs to be changed."""
    base, speedup = arm_named(comparison.base, result), comparison.speedup
    if base is None or base.arm.statement is not None or speedup is None:
        return False
    return speedup >= ANYTHING or (speedup >= OPTIMISED and _optimised(comparison, result))


def _optimised(comparison: Comparison, result: Result) -> bool:
    """A compiled baseline on as much hardware: more threads or another device may well do it."""
    base, new = arm_named(comparison.base, result), arm_named(comparison.new, result)
    if base is None or new is None or base.arm.backend in PLAIN:
        return False
    return base.arm.device == new.arm.device and threads(base) == threads(new)


def remeasurement(comparison: Comparison, result: Result) -> Remeasurement | None:
    """The newest remeasurement of a comparison."""
    pair = (comparison.base, comparison.new)
    found = [one for one in result.remeasurements if (one.base, one.new) == pair]
    return found[-1] if found else None


@rule(TOO_GOOD, "verify large speed-ups again, hold the largest")
def too_good(result: Result) -> Iterator[Check]:
    """Speed-ups that are believed only once they are measured again."""
    for comparison in result.comparisons:
        speedup, who = comparison.speedup, (comparison.new,)
        if speedup is None:
            continue
        if suspicious(comparison, result):
            yield _confirmed(comparison, speedup, remeasurement(comparison, result))
        elif speedup >= ANYTHING:
            yield note(
                f"{name_of(comparison.new)} reads {speedup:,.0f} times as fast as "
                f"{name_of(comparison.base)}. A statement's result is not checked; look whether "
                "both do what you mean.",
                who,
                speedup=speedup,
            )
        else:
            text = f"{name_of(comparison.new)} is not suspiciously fast."
            yield ok(text, who, speedup=speedup)


def _confirmed(comparison: Comparison, speedup: float, again: Remeasurement | None) -> Check:
    said = (
        f"{name_of(comparison.new)} reads {speedup:,.1f} times as fast as "
        f"{name_of(comparison.base)}"
    )
    held = fail if speedup >= ANYTHING else warn
    why = "held until it is confirmed" if held is fail else "too good to be taken on trust"
    who, figures = (comparison.new,), {"speedup": speedup}
    if again is None:
        return held(
            f"{said}: {why}. Measure it again with another --seed, and look for work that the arm "
            "leaves out.",
            who,
            **figures,
        )
    figures["second_seed"] = again.seed
    if again.speedup is not None:
        figures["second_speedup"] = again.speedup
    reason = f" ({again.reason.rstrip('.')})" if again.reason else ""
    if again.outcome != "ok":
        return fail(
            f"{said}, but measured once more with other inputs it ended as {again.outcome}"
            f"{reason}. Look for work that the arm leaves out, or for inputs that it was made for.",
            who,
            **figures,
        )
    if again.speedup is None or again.interval is None:
        text = f"{said}: {why}, and measuring again could not tell{reason}. Give a longer --budget."
        return held(text, who, **figures)
    once_more = "times when measured once more in other processes with other inputs"
    if agree(comparison, again):
        return ok(f"{said}, and {again.speedup:,.1f} {once_more}.", who, **figures)
    return fail(
        f"{said}, but {again.speedup:,.1f} {once_more}. Look for inputs or moments on which the "
        "speed depends.",
        who,
        **figures,
    )


def agree(comparison: Comparison, again: Remeasurement) -> bool:
    """Whether the two intervals of the time ratio overlap once widened."""
    if again.interval is None:
        return False
    ratio = math.nan if comparison.time_ratio is None else comparison.time_ratio
    first, second = comparison.interval or (ratio, ratio), again.interval
    slack = (1 + AGREE_WITHIN) ** 2
    return first[0] <= second[1] * slack and second[0] <= first[1] * slack
