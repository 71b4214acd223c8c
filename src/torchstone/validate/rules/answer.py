"""Did the arm do its work, in its time, and was its output checked?

Can the counted operations and the measured bandwidths be right?

The counting pass tests its formulas on ops of known size and gives no count where one is wrong.
From a record a count cannot be made again; what can be seen is that test's verdict, parts that do
not add up to their sum, and two counts of one workload.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from torchstone.records import (
    NO_REFERENCE,
    NOTHING_COMPARABLE,
    Agreement,
    ArmSpec,
    Check,
    Flops,
    Level,
    Measurement,
    Outcome,
    Result,
    Turn,
)
from torchstone.records.format import count, format_count, format_seconds, format_si, percent
from torchstone.stats import COVERAGE_NEEDED
from torchstone.validate.base import (
    CONSTANT_OUTPUT_NOTE,
    arm_rule,
    busy_limit,
    check,
    fail,
    is_step,
    name_of,
    note,
    ok,
    rule,
    warn,
)
from torchstone.validate.rules.peaks import bandwidth_refusals, caches_of

# Were the outputs checked, how, and inside the timed turns?


ODD = "NaN or infinite"
"""In the reasons of an agreement that few or no finite numbers stand behind."""
IN_RANGE = "Choose weights, inputs or a precision that keep it within range"
BLUNT = 0.1
"""An answer whose allowed error is over a tenth of its size is hardly checked: most mistakes are
smaller. Our own figure; honest training steps of the suites stay under a thirtieth."""


@arm_rule("output-check", "check outputs of timed calls")
def output_check(arm: Measurement, _: Result) -> Iterator[Check]:
    """Outputs that were not compared, compared weakly, or are wrong."""
    if not is_step(arm) or arm.outcome is not Outcome.OK:
        return
    agreement = arm.agreement or Agreement("none", "checking was off")
    figures = {"checked": agreement.checked, "timed": agreement.timed}
    reason = agreement.reason.rstrip(".")
    why = f" ({reason})" if reason else ""
    # Without a single output that was compared, nothing is known of the values.
    if agreement.method == "none" or not agreement.checked:
        yield warn(
            f"The outputs of {name_of(arm)} were not compared with anything{why}: it may be fast "
            f"and wrong. {_unchecked_remedy(reason)}",
            **figures,
        )
        return
    if agreement.mismatch:
        yield fail(
            f"{name_of(arm)} does not compute what the reference computes "
            f"({agreement.mismatch.rstrip('.')}). Correct it before looking at its speed.",
            **figures,
        )
        return
    weak = list(_weaknesses(arm, agreement, why, figures))
    yield from weak
    if not weak:
        yield ok(
            f"{count(agreement.checked, 'output')} of {name_of(arm)} checked, {agreement.timed} "
            "from inside timed turns.",
            **figures,
        )


def _weaknesses(
    arm: Measurement, agreement: Agreement, why: str, figures: dict[str, int]
) -> Iterator[Check]:
    """What makes the check of outputs that agree say less than it could."""
    if agreement.method == "eager":
        remedy = IN_RANGE if ODD in why else "Make the model run in float64"
        yield note(
            f"{name_of(arm)} was checked against the baseline's own output, because there is no "
            f"float64 reference{why}. {remedy} to have the stronger check.",
            **figures,
        )
    elif ODD in why:
        yield warn(
            f"{name_of(arm)} was hardly checked{why}: of such values only the places can be "
            f"compared. {IN_RANGE} to have a check.",
            **figures,
        )
    allowed = agreement.multiplier * agreement.rmse_baseline
    if allowed > BLUNT:
        yield warn(
            f"The output check of {name_of(arm)} is insensitive: rounding moves the baseline's own "
            f"answer so far that an error of {percent(allowed)} would pass. Return a value that "
            "does not jump (one before a threshold, a sort or a ReLU).",
            **figures,
        )
    if arm.turns and not agreement.timed:
        yield note(
            f"{count(agreement.checked, 'output')} of {name_of(arm)} agreed with the reference, "
            "but none came from inside a timed turn. Give a longer --budget, so that a timed call "
            "is checked too.",
            **figures,
        )


def _unchecked_remedy(reason: str) -> str:
    """What to do, by why nothing was compared."""
    if ODD in reason:
        return f"{IN_RANGE}."
    if reason.startswith(NO_REFERENCE):
        return (
            "Make sure that the baseline runs as plain eager code in a process of its own and can "
            "be copied there; until then only the structure of the outputs is compared."
        )
    if reason.startswith(NOTHING_COMPARABLE):
        return "Let the target return tensors, arrays or numbers."
    return "Measure it with output checking on before believing its speed."


# Are the outputs plain tensors, whose work is done when the call returns?


STAND_INS = "torch._subclasses."
"""Torch's own classes that stand for a tensor without computing it."""
EMPTY = ("meta", "lazy")
"""Devices on which nothing is computed, or not yet."""


@arm_rule("plain-output", "outputs are plain tensors")
def plain_output(arm: Measurement, _: Result) -> Iterator[Check]:
    """Outputs that may not have been computed when the call returned."""
    outputs = arm.contract.outputs if arm.contract else ()
    tensors = [leaf for leaf in outputs if leaf.kind == "torch"]
    odd = [leaf for leaf in tensors if not _is_plain(leaf.type_name)]
    empty = [leaf for leaf in tensors if leaf.device.split(":")[0] in EMPTY]
    if odd:
        yield fail(
            f"{odd[0].path} of {name_of(arm)} is a {odd[0].type_name}, a tensor class of its own, "
            "which may put off its work until it is read. Return a plain tensor."
        )
    elif empty:
        yield fail(
            f"{empty[0].path} of {name_of(arm)} is on the device {empty[0].device}, where nothing "
            "is computed when the call returns. Return a tensor with values."
        )
    elif tensors:
        yield ok(f"{name_of(arm)} returns plain tensors.")


def _is_plain(type_name: str) -> bool:
    return type_name.startswith("torch.") and not type_name.startswith(STAND_INS)


@arm_rule("constant-output", "a check must be able to fail")
def constant_output(arm: Measurement, _: Result) -> Iterator[Check]:
    """Outputs that do not depend on the input."""
    if any(CONSTANT_OUTPUT_NOTE in text for text in arm.notes):
        yield (fail if _should_vary(arm) else warn)(
            f"{name_of(arm)} gives the same output for different inputs, so checking it proves "
            "nothing: a variant that skips the work would pass. Give inputs that matter to the "
            "output, or return more of what is computed."
        )
    elif is_step(arm) and arm.agreement is not None and arm.agreement.checked:
        yield ok(f"{name_of(arm)} gives different outputs for different inputs.")


def _should_vary(arm: Measurement) -> bool:
    """Inputs show in a tensor of real numbers; a shape, a count or a verdict may stay the same."""
    outputs = arm.contract.outputs if arm.contract else ()
    return any(
        leaf.dtype.startswith(("float", "bfloat", "complex")) and math.prod(leaf.shape) > 1
        for leaf in outputs
    )


# Does a call with a new input take as long as one with an input seen before?


WARN_RATIO = 1.25
"""Wider than MLPerf's 10 %, because the figure is the floor of only a few calls."""
WARN_NS = 5_000
"""Ours: smaller differences are clock and cache effects of a few microseconds."""
FAIL_RATIO = 2.0
FAIL_NS = 20_000
"""Ours: looking up a remembered answer takes microseconds, so a real step stands far above it."""
AGAIN_RATIO = 20.0
"""Ours: a call repeated at once finds the processor's caches warm, which can make it several times
faster (memory is about ten times slower than the nearest cache), but not twenty."""


@arm_rule("fresh-inputs", "fresh inputs for every timed call")
def fresh_inputs(arm: Measurement, _: Result) -> Iterator[Check]:
    """Arms that are faster with an input they have seen."""
    facts = arm.integrity
    if facts is None or facts.same_input_ns <= 0 or facts.fresh_input_ns <= 0:
        return
    same, fresh = facts.same_input_ns, facts.fresh_input_ns
    if facts.again_ns > 0 and fresh > AGAIN_RATIO * facts.again_ns:
        same = min(same, facts.again_ns)  # a memory of the last input only
    ratio, more = fresh / same, fresh - same
    figures = {"same_input_s": same / 1e9, "fresh_input_s": fresh / 1e9, "ratio": ratio}
    found = (
        f"{name_of(arm)} takes {format_seconds(fresh / 1e9, 3)} for a new input and "
        f"{format_seconds(same / 1e9, 3)} for one it has seen ({ratio:.2f} times as long)"
    )
    if ratio > FAIL_RATIO and more > FAIL_NS:
        yield fail(
            f"{found}: it remembers its last input. Remove the cache, or clear it in every call.",
            **figures,
        )
    elif ratio > WARN_RATIO and more > WARN_NS:
        yield warn(
            f"{found}. Look for a cache in the model; where each input touches other memory, as in "
            "a large embedding table, it may be the processor's caches.",
            **figures,
        )
    else:
        yield ok(f"{name_of(arm)} takes as long for a new input as for one it has seen.", **figures)


# Did the arm work on after it had reported the end?


SPIN_NS = 10_000_000
"""Per thread: idle OpenMP threads spin on for some milliseconds after a call (libgomp)."""
WALL_SHARE = 0.20
"""Ours: late work that matters is a good part of the turn's own work."""
MOST_TURNS = 0.50
"""Ours: a single turn may meet a collector or a thread that is just ending."""
LONG_SPIN_NS = (180_000_000, 230_000_000)
"""Other OpenMP run times spin for 200 ms by default (KMP_BLOCKTIME) and then stop."""

SPIN_OFF = (
    ("OPENBLAS_THREAD_TIMEOUT", "4"),
    ("OMP_WAIT_POLICY", "passive"),
    ("GOMP_SPINCOUNT", "0"),
    ("KMP_BLOCKTIME", "0"),
)
"""Thread pools sleep as soon as they are idle: OpenBLAS (numpy's spins for 2^28 ticks, about 0.1 s,
after each call), libgomp, the OpenMP of LLVM and Intel. Work left to a thread is not affected."""

_REMEDY = "Wait for threads and queues inside the timed call, so that their work is counted."


@arm_rule("late-work", "no thread does the work later")
def late_work(arm: Measurement, _: Result) -> Iterator[Check]:
    """Threads that go on working after the arm has reported the end of a turn."""
    turns = [turn for turn in arm.turns if _says_late_work(turn)]
    if not turns:
        return
    name, most, limit = name_of(arm), MOST_TURNS * len(turns), busy_limit(arm)
    late = [turn for turn in turns if _is_late(turn, limit)]
    never_quiet = sum(_never_quiet(turn) for turn in turns)
    asleep = arm.integrity.late_without_spin_ns if arm.integrity else None
    median_s = median(turn.noise.late_cpu_ns or 0 for turn in turns) / 1e9
    usual = format_seconds(median_s, 3)
    figures = {
        "late_turns": len(late),
        "never_quiet_turns": never_quiet,
        "turns": len(turns),
        "median_late_s": median_s,
        "new_threads": arm.integrity.new_threads if arm.integrity else 0,
    }
    if asleep is not None:
        figures["median_late_without_spin_s"] = asleep / 1e9
    if max(len(late), never_quiet) < most:
        yield ok(f"{name} is idle once it has reported the end of a turn.", **figures)
    elif asleep is not None and asleep <= SPIN_NS * limit:
        yield ok(
            f"Idle threads of {name} spin for {usual} after a turn. With spinning switched off "
            "nothing goes on, so no work is done late.",
            **figures,
        )
    elif never_quiet >= most:
        yield fail(
            f"{name} never came to rest after {never_quiet} of {len(turns)} turns (typically "
            f"{usual} of CPU time after it had reported the end). {_REMEDY}",
            **figures,
        )
    elif asleep is None and _spins_long(late, limit):
        yield warn(
            f"{name} uses {usual} of CPU time after a turn and stops after about 200 ms, as some "
            "OpenMP run times do when they spin. Run again with --env KMP_BLOCKTIME=0 to tell "
            "that from work done late.",
            **figures,
        )
    else:
        yield fail(
            f"{name} goes on working after {len(late)} of {len(turns)} turns: typically {usual} "
            f"of CPU time after it had reported the end. {_REMEDY}",
            **figures,
        )


def _says_late_work(turn: Turn) -> bool:
    """Never quiet and yet no CPU time is what a system leaves that does not say."""
    late, quiet = turn.noise.late_cpu_ns, turn.noise.quiet_after_ns
    return late is not None and (late > 0 or quiet is not None)


def _is_late(turn: Turn, threads: int) -> bool:
    late = turn.noise.late_cpu_ns or 0
    return late > max(SPIN_NS * threads, WALL_SHARE * turn.noise.wall_ns)


def _never_quiet(turn: Turn) -> bool:
    """Never at rest, with more than a spin's worth of work. On a crowded machine honest threads may
    be spinning still, because they hardly got the CPU."""
    return turn.noise.quiet_after_ns is None and (turn.noise.late_cpu_ns or 0) > SPIN_NS


def _spins_long(late: list[Turn], threads: int) -> bool:
    """All of them stop at the spin limit; one thread alone has nobody to spin for."""
    low, high = LONG_SPIN_NS
    return threads > 1 and all(low <= (t.noise.quiet_after_ns or 0) <= high for t in late)


@arm_rule("recompiles", "the method: nothing recompiles once steady")
def recompiles(arm: Measurement, _: Result) -> Iterator[Check]:
    """Compilations inside timed turns."""
    if arm.graphs is None or not arm.turns:
        return
    late = arm.graphs.late_recompiles
    again = f"{name_of(arm)} was compiled again {count(late, 'time')} inside timed turns"
    if not late:
        yield ok(f"{name_of(arm)} compiled nothing late.", late_recompiles=late)
    elif arm.arm.shapes > 1:
        yield warn(
            f"{again}, where every process meets {arm.arm.shapes} new input shapes. The first "
            "pass through them is a turn's first sample, which is kept apart.",
            late_recompiles=late,
        )
    else:
        yield warn(
            f"{again}. Keep shapes and Python values fixed from call to call, or try the variant "
            "with +dynamic.",
            late_recompiles=late,
        )


UNCOUNTED = "FLOPs not counted: "
"""How a measurement's note begins that says why there is no count."""
WRONG_FORMULA = "The formula for"
"""How the reason begins where a formula gave a wrong count for an op of known size."""
NAMED = 12
"""The counting pass names the ops with most operations, up to this many."""
TWICE_WITHIN = 0.01
"""Counts are exact, so a factor of two is exactly two."""

_WORK_REMEDY = (
    "Correct the formula or take it out, and count again; no share of a peak rests on it."
)


@rule("flops", "FLOPs, not MACs, each once")
def flops(result: Result) -> Iterator[Check]:
    """Operations that were not counted, or counts that do not add up; a multiply-add is two."""
    counted = [(arm, arm.flops) for arm in result.arms if arm.flops is not None]
    problems = [*_uncounted(result), *_inconsistent(counted), *_contradictory(counted)]
    yield from problems
    if counted and not problems:
        yield ok("The counted operations add up.", counts=len(counted))


def _uncounted(result: Result) -> Iterator[Check]:
    for arm in result.arms:
        for reason in (n.removeprefix(UNCOUNTED) for n in arm.notes if n.startswith(UNCOUNTED)):
            wrong = reason.startswith(WRONG_FORMULA)
            remedy = _WORK_REMEDY if wrong else "Without a count no utilisation is claimed."
            yield check(
                Level.WARN if wrong else Level.NOTE,
                f"The operations of {name_of(arm)} were not counted: {reason.rstrip('.')}. "
                f"{remedy}",
                (arm.arm.name,),
            )


def _inconsistent(counted: list[tuple[Measurement, Flops]]) -> Iterator[Check]:
    told: list[Flops] = []
    for arm, found in counted:
        if found in told:
            continue  # arms of one workload share one count
        told.append(found)
        for what, figures in _contradictions(found):
            yield warn(
                f"Of the operations counted for {name_of(arm)}, {what}. {_WORK_REMEDY}",
                (arm.arm.name,),
                **figures,
            )


def _contradictions(found: Flops) -> Iterator[tuple[str, dict[str, float]]]:
    parts = sum(found.by_op.values())
    whole = len(found.by_op) < NAMED
    if parts and (found.total < parts or (whole and found.total > parts)):
        yield (
            f"the total ({format_count(found.total)}) is not the sum of its parts "
            f"({format_count(parts)}){_meaning(found.total / parts)}",
            {"total": found.total, "parts": parts},
        )
    for work in found.heaviest:
        said = found.by_op.get(work.op)
        if work.flops and said is not None and said != work.flops:
            yield (
                f"{work.op} is counted as {format_count(said)} and as {format_count(work.flops)}"
                f"{_meaning(said / work.flops)}",
                {"by_op": said, "heaviest": work.flops},
            )


def _contradictory(counted: list[tuple[Measurement, Flops]]) -> Iterator[Check]:
    """Two counts of one workload must be one number."""
    first: dict[ArmSpec, tuple[Measurement, Flops]] = {}
    for arm, found in counted:
        base, before = first.setdefault(_workload(arm.arm), (arm, found))
        if before.total == found.total:
            continue
        ratio = found.total / before.total if before.total else 0.0
        yield warn(
            f"{name_of(arm)} and {name_of(base)} are the same workload, but two counts of it "
            f"differ by {percent(ratio - 1)}{_meaning(ratio)}. {_WORK_REMEDY}",
            (base.arm.name, arm.arm.name),
            ratio=ratio,
        )


def _meaning(ratio: float) -> str:
    if abs(ratio / 2 - 1) <= TWICE_WITHIN:
        return ": something counts twice"
    if abs(ratio / 0.5 - 1) <= TWICE_WITHIN:
        return ": multiply-adds were counted as one"
    return ""


def _workload(spec: ArmSpec) -> ArmSpec:
    """What is counted: the plain workload, whatever the variant and its settings."""
    return replace(
        ArmSpec("", spec.target),
        mode=spec.mode,
        precision=spec.precision,
        statement=spec.statement,
        shapes=spec.shapes,
    )


@arm_rule("coverage", "no utilisation under 80 % coverage")
def coverage(arm: Measurement, _: Result) -> Iterator[Check]:
    """Steps of which too little is counted to speak of utilisation."""
    found = arm.flops
    if found is None:
        return
    figures = {
        "time_covered": found.time_covered,
        "time_understood": found.time_understood,
        "ops": found.ops,
        "ops_covered": found.ops_covered,
    }
    known = max(found.time_covered, found.time_understood)
    if known >= COVERAGE_NEEDED:
        text = f"The work of {percent(known)} of the op time of {name_of(arm)} is known"
        if found.time_covered < known:
            text += f", {percent(found.time_covered)} by formulas and the rest by its bytes"
        yield ok(f"{text}.", **figures)
        return
    named = f" ({', '.join(found.uncovered)} have none)" if found.uncovered else ""
    yield note(
        f"Formulas cover {percent(found.time_covered)} of the op time of {name_of(arm)}{named}, "
        f"and the work of {percent(known)} is known in all, so no share of the compute peak is "
        "claimed. Register formulas for them to have one.",
        **figures,
    )


@rule("working-set", "arrays of four times the last-level cache (STREAM)")
def working_set(result: Result) -> Iterator[Check]:
    """Bandwidths that are another level's than they say, such as a cache's called DRAM's."""
    calibration = result.calibration
    if calibration is None or not calibration.bandwidth:
        return
    known, refused = len(calibration.bandwidth), bandwidth_refusals(calibration, caches_of(result))
    figures = {"bandwidths": known, "refused": len(refused)}
    if not refused:
        yield ok(f"{count(known, 'bandwidth')} measured with fitting arrays.", **figures)
        return
    peak, reason = refused[0]
    more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    yield warn(
        f"The bandwidth of {peak.level or 'an unnamed level'} ({format_si(peak.value, 'B/s')})"
        f"{more} {reason}. It is not used; calibrate again (torchstone doctor --calibrate) with "
        "arrays that fit the label.",
        **figures,
        array_bytes=peak.array_bytes,
        bytes_per_s=peak.value,
    )
