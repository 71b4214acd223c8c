"""Were the outputs checked, how, and inside the timed turns?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

from torchstone.records import (
    NO_REFERENCE,
    NOTHING_COMPARABLE,
    Agreement,
    Check,
    Level,
    Measurement,
    Outcome,
    Turn,
)
from torchstone.records.format import count, percent
from torchstone.validate.base import (
    CONSTANT_OUTPUT_NOTE,
    FunctionRule,
    busy_limit,
    duration,
    each_arm,
    is_step,
    name_of,
)

OUTPUT_CHECK_NAME = "output-check"
ODD = "NaN or infinite"
"""In the reasons of an agreement that few or no finite numbers stand behind."""
IN_RANGE = "Choose weights, inputs or a precision that keep it within range"
BLUNT = 0.1
"""An answer whose allowed error is over a tenth of its size is hardly checked: most mistakes are
smaller. Our own figure; honest training steps of the suites stay under a thirtieth."""


def _look_output_check(arm: Measurement) -> Iterator[Check]:
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
            f"The output check of {name_of(arm)} is insensitive: one rounding moves the baseline's "
            f"own answer so far that an error of {percent(allowed)} would pass. Let the target "
            "return what does not jump (a value before a threshold, a sort or a ReLU).",
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
    return Check(OUTPUT_CHECK_NAME, level, message, figures, (arm.arm.name,))


OUTPUT_CHECK = FunctionRule(
    OUTPUT_CHECK_NAME, "check outputs of timed calls", each_arm(_look_output_check)
)


# Are the outputs plain tensors, whose work is done when the call returns?


PLAIN_OUTPUT_NAME = "plain-output"
STAND_INS = "torch._subclasses."
"""Torch's own classes that stand for a tensor without computing it."""
EMPTY = ("meta", "lazy")
"""Devices on which nothing is computed, or not yet."""


def _look_plain_output(arm: Measurement) -> Iterator[Check]:
    if arm.contract is None:
        return
    tensors = [leaf for leaf in arm.contract.outputs if leaf.kind == "torch"]
    odd = [leaf for leaf in tensors if not _is_plain(leaf.type_name)]
    empty = [leaf for leaf in tensors if leaf.device.split(":")[0] in EMPTY]
    who = (arm.arm.name,)
    if odd:
        yield Check(
            PLAIN_OUTPUT_NAME,
            Level.FAIL,
            f"{odd[0].path} of {name_of(arm)} is a {odd[0].type_name}, a tensor class of its own, "
            "which may put off its work until it is read. Return a plain tensor.",
            arms=who,
        )
    elif empty:
        yield Check(
            PLAIN_OUTPUT_NAME,
            Level.FAIL,
            f"{empty[0].path} of {name_of(arm)} is on the device {empty[0].device}, where nothing "
            "is computed when the call returns. Return a tensor with values.",
            arms=who,
        )
    elif tensors:
        yield Check(PLAIN_OUTPUT_NAME, Level.OK, f"{name_of(arm)} returns plain tensors.", arms=who)


def _is_plain(type_name: str) -> bool:
    return type_name.startswith("torch.") and not type_name.startswith(STAND_INS)


PLAIN_OUTPUT = FunctionRule(
    PLAIN_OUTPUT_NAME, "outputs are plain tensors", each_arm(_look_plain_output)
)


# Does the output depend on the input at all?


CONSTANT_OUTPUT_NAME = "constant-output"


def _look_constant_output(arm: Measurement) -> Iterator[Check]:
    who = (arm.arm.name,)
    if any(CONSTANT_OUTPUT_NOTE in note for note in arm.notes):
        yield Check(
            CONSTANT_OUTPUT_NAME,
            Level.FAIL if _should_vary(arm) else Level.WARN,
            f"{name_of(arm)} gives the same output for different inputs, so checking it proves "
            "nothing: a variant that skips the work would pass. Give inputs that matter to the "
            "output, or return more of what is computed.",
            arms=who,
        )
    elif is_step(arm) and arm.agreement is not None and arm.agreement.checked:
        text = f"{name_of(arm)} gives different outputs for different inputs."
        yield Check(CONSTANT_OUTPUT_NAME, Level.OK, text, arms=who)


def _should_vary(arm: Measurement) -> bool:
    """Inputs show in a tensor of real numbers; a shape, a count or a verdict may stay the same."""
    outputs = arm.contract.outputs if arm.contract else ()
    return any(
        leaf.dtype.startswith(("float", "bfloat", "complex")) and math.prod(leaf.shape) > 1
        for leaf in outputs
    )


CONSTANT_OUTPUT = FunctionRule(
    CONSTANT_OUTPUT_NAME, "a check must be able to fail", each_arm(_look_constant_output)
)


# Does a call with a new input take as long as one with an input seen before?


FRESH_INPUTS_NAME = "fresh-inputs"
WARN_RATIO = 1.25
"""R11 takes MLPerf's 10 %; ours is wider, because the figure is the floor of only a few calls."""
WARN_NS = 5_000
"""Ours: smaller differences are clock and cache effects of a few microseconds."""
FAIL_RATIO = 2.0
FAIL_NS = 20_000
"""Ours: looking up a remembered answer takes microseconds, so a real step stands far above it."""
AGAIN_RATIO = 20.0
"""Ours: a call repeated at once finds the processor's caches warm, which can make it several times
faster (memory is about ten times slower than the nearest cache), but not twenty."""


def _look_fresh_inputs(arm: Measurement) -> Iterator[Check]:
    facts = arm.integrity
    if facts is None or facts.same_input_ns <= 0 or facts.fresh_input_ns <= 0:
        return
    same, fresh = facts.same_input_ns, facts.fresh_input_ns
    if facts.again_ns > 0 and fresh > AGAIN_RATIO * facts.again_ns:
        same = min(same, facts.again_ns)  # a memory of the last input only
    ratio, more = fresh / same, fresh - same
    figures = {"same_input_s": same / 1e9, "fresh_input_s": fresh / 1e9, "ratio": ratio}
    who = (arm.arm.name,)
    found = (
        f"{name_of(arm)} takes {duration(fresh / 1e9)} for a new input and {duration(same / 1e9)} "
        f"for one it has seen ({ratio:.2f} times as long)"
    )
    if ratio > FAIL_RATIO and more > FAIL_NS:
        text = (
            f"{found}: it remembers its last input. Take the cache out, or clear it in every call."
        )
        yield Check(FRESH_INPUTS_NAME, Level.FAIL, text, figures, who)
    elif ratio > WARN_RATIO and more > WARN_NS:
        text = (
            f"{found}. Look for a cache in the model; where each input touches other memory, as "
            "in a large embedding table, it may be the processor's caches."
        )
        yield Check(FRESH_INPUTS_NAME, Level.WARN, text, figures, who)
    else:
        text = f"{name_of(arm)} takes as long for a new input as for one it has seen."
        yield Check(FRESH_INPUTS_NAME, Level.OK, text, figures, who)


FRESH_INPUTS = FunctionRule(
    FRESH_INPUTS_NAME, "fresh inputs for every timed call", each_arm(_look_fresh_inputs)
)


# Did the arm work on after it had said that it was done?


LATE_WORK_NAME = "late-work"
SPIN_NS = 10_000_000
"""Per thread: idle OpenMP threads spin on for some milliseconds after a call (libgomp)."""
WALL_SHARE = 0.20
"""Ours: late work that matters is a good part of the turn's own work."""
MOST_TURNS = 0.50
"""Ours: a single turn may meet a collector or a thread that is just ending."""
LONG_SPIN_NS = (180_000_000, 230_000_000)
"""Other OpenMP run times spin for 200 ms by default (KMP_BLOCKTIME) and then stop."""

_REMEDY = "Wait for threads and queues inside the timed call, so that their work is counted."


def _look_late_work(arm: Measurement) -> Iterator[Check]:
    turns = [turn for turn in arm.turns if _known(turn)]
    if not turns:
        return
    late = [turn for turn in turns if _is_late(turn, busy_limit(arm))]
    restless = [turn for turn in turns if _never_quiet(turn)]
    usual = median(turn.noise.late_cpu_ns or 0 for turn in turns) / 1e9
    figures = {
        "late_turns": float(len(late)),
        "never_quiet_turns": float(len(restless)),
        "turns": float(len(turns)),
        "median_late_s": usual,
        "new_threads": float(arm.integrity.new_threads if arm.integrity else 0),
    }
    level, text = _words(arm, late, restless, len(turns), duration(usual))
    yield Check(LATE_WORK_NAME, level, text, figures, (arm.arm.name,))


def _words(
    arm: Measurement, late: list[Turn], restless: list[Turn], turns: int, usual: str
) -> tuple[Level, str]:
    name = name_of(arm)
    if len(restless) >= MOST_TURNS * turns:
        found = (
            f"{name} never came to rest after {len(restless)} of {turns} turns (typically "
            f"{usual} of CPU time after it had reported the end)."
        )
        return Level.FAIL, f"{found} {_REMEDY}"
    if len(late) < MOST_TURNS * turns:
        return Level.OK, f"{name} is quiet when it says that it is done."
    if _spins_long(late, busy_limit(arm)):
        return Level.WARN, (
            f"{name} uses {usual} of CPU time after a turn and stops after about 200 ms, as some "
            "OpenMP run times do when they spin. Run again with --env KMP_BLOCKTIME=0 to tell "
            "that from work done late."
        )
    found = (
        f"{name} goes on working after {len(late)} of {turns} turns: typically {usual} of CPU "
        "time after it had reported the end."
    )
    return Level.FAIL, f"{found} {_REMEDY}"


def _known(turn: Turn) -> bool:
    """Never quiet and yet no CPU time is what a system leaves that does not say."""
    noise = turn.noise
    return noise.late_cpu_ns is not None and (
        noise.late_cpu_ns > 0 or noise.quiet_after_ns is not None
    )


def _is_late(turn: Turn, threads: int) -> bool:
    late = turn.noise.late_cpu_ns or 0
    return late > max(SPIN_NS * threads, WALL_SHARE * turn.noise.wall_ns)


def _never_quiet(turn: Turn) -> bool:
    """Never at rest, with more than a spin's worth of work.

    On a crowded machine honest threads may be spinning still, because they hardly got the CPU.
    """
    return turn.noise.quiet_after_ns is None and (turn.noise.late_cpu_ns or 0) > SPIN_NS


def _spins_long(late: list[Turn], threads: int) -> bool:
    """All of them stop at the spin limit; one thread alone has nobody to spin for."""
    low, high = LONG_SPIN_NS
    return threads > 1 and all(low <= (t.noise.quiet_after_ns or 0) <= high for t in late)


LATE_WORK = FunctionRule(LATE_WORK_NAME, "no thread does the work later", each_arm(_look_late_work))


# Did the compiler run inside timed turns?


RECOMPILES_NAME = "recompiles"


def _look_recompiles(arm: Measurement) -> Iterator[Check]:
    if arm.graphs is None or not arm.turns:
        return
    late = arm.graphs.late_recompiles
    figures, who = {"late_recompiles": float(late)}, (arm.arm.name,)
    if not late:
        yield Check(
            RECOMPILES_NAME, Level.OK, f"{name_of(arm)} compiled nothing late.", figures, who
        )
        return
    again = f"{name_of(arm)} was compiled again {count(late, 'time')} inside timed turns"
    if arm.arm.shapes > 1:
        message = (
            f"{again}, where every process meets {arm.arm.shapes} new input shapes. The first "
            "pass through them is a turn's first sample, which is kept apart."
        )
    else:
        message = (
            f"{again}. Keep shapes and Python values fixed from call to call, or try the variant "
            "with +dynamic."
        )
    yield Check(RECOMPILES_NAME, Level.WARN, message, figures, who)


RECOMPILES = FunctionRule(
    RECOMPILES_NAME, "the method: nothing recompiles once steady", each_arm(_look_recompiles)
)
