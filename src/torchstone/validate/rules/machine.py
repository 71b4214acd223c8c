"""Did the machine let the arms be measured, and did they run under the same conditions?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean, median

import numpy as np

from torchstone.machine.hardware import missing_instructions
from torchstone.records import (
    Check,
    Comparison,
    Environment,
    Level,
    Measurement,
    Noise,
    Result,
    WarmUp,
)
from torchstone.records.format import count, format_count, format_seconds, format_si, percent
from torchstone.stats import (
    PAIRS_ESTIMATOR,
    ProcessData,
    estimator_of,
    process_data,
    replicates_with_samples,
)
from torchstone.stats.estimators import MIN_GATED, PROBE_TOLERANCE
from torchstone.validate.base import (
    arm_rule,
    check,
    cores,
    cpu_per_wall,
    crowd,
    estimator,
    fail,
    faults_per_call,
    half_width,
    is_comparable,
    name_of,
    note,
    ok,
    rule,
    seconds_per_call,
    wait_share,
    warn,
)
from torchstone.validate.base import threads as thread_count
from torchstone.validate.rules.peaks import plausible_clock

# Did the processor keep its clock, and can the clock be what it is said to be? Figures for
# reporting only: peaks are never scaled by a clock, and no configuration is chosen by it.


DRIFT = 0.03
"""A clock that moves by more between before and after is reason to repeat."""
_REFERENCE_CLOCKS = {
    "over_calibration": "of the calibration",
    "over_default": "that is the default",
}


@rule("clock", "clock before and after, scaled for reporting only")
def clock(result: Result) -> Iterator[Check]:
    """A clock that moved during the measurement, or that no processor runs at."""
    references = _reference_clocks(result)
    places = ("before the measurement", "after the measurement")
    given = dict(zip(places, result.clocks_hz, strict=False))
    given |= {_REFERENCE_CLOCKS[name]: hertz for name, hertz in references.items()}
    odd = {what: hertz for what, hertz in given.items() if not plausible_clock(hertz)}
    for what, hertz in odd.items():
        yield warn(
            f"The clock {what} is given as {format_si(hertz, 'Hz')}, which no processor runs at: "
            "kHz or MHz were probably taken for Hz. It is not used; correct its unit.",
            hertz=hertz,
        )
    clocks = [hertz for hertz in result.clocks_hz if plausible_clock(hertz)]
    if not clocks:
        return
    known = {name: hertz for name, hertz in references.items() if plausible_clock(hertz)}
    ratios = {name: fmean(clocks) / hertz for name, hertz in known.items()}  # above 1: a boost
    drift = max(clocks) / min(clocks) - 1
    figures = {"before_hz": clocks[0], "after_hz": clocks[-1], **ratios, "drift": drift}
    if drift > DRIFT:
        yield warn(
            f"The clock moved by {percent(drift)} during the measurement (from "
            f"{format_si(clocks[0], 'Hz')} to {format_si(clocks[-1], 'Hz')}). Repeat it when the "
            "processor has settled; interleaved arms share the drift, single times do not.",
            **figures,
        )
    elif not odd:
        yield ok(f"The clock stayed at {format_si(clocks[-1], 'Hz')}.", **figures)


def _reference_clocks(result: Result) -> dict[str, float]:
    calibration = result.calibration
    if calibration is None:
        return {}
    measured = calibration.clock.value if calibration.clock else None
    values = (measured, calibration.nominal_clock_hz)
    pairs = zip(_REFERENCE_CLOCKS, values, strict=True)
    return {name: hertz for name, hertz in pairs if hertz is not None}


# Did other work disturb the turns? Evaluated from the system's own counters.


WAIT_SHARE = 0.02
"""Threads ready to run but without a core, of the turn's wall time."""
OCCUPANCY = 0.95
"""CPU time over wall time of a single thread."""
STEAL_SHARE = 0.01
"""Time taken by the hypervisor, of the time of all cores."""
PRESSURE_SHARE = 0.20
"""Ours: a machine known to be under load read 55-86 %."""
DIRTY_SHARE = 0.20
"""Ours: from one turn in five on, the typical time is no longer the arm's own."""

_STOP_OTHERS = "stop other work on this machine, or give a longer --budget."
_CAUSES = {
    "wait": ("waiting for a core", _STOP_OTHERS),
    "occupancy": ("losing the core", _STOP_OTHERS),
    "steal": (
        "the hypervisor taking the core",
        "use a machine that is not shared, or give a longer --budget.",
    ),
    "pressure": ("other tasks waiting for the CPU", _STOP_OTHERS),
    "throttled": (
        "the control group's CPU limit",
        "raise the control group's CPU limit, or set --threads within it.",
    ),
}


@arm_rule("noise", "host noise gate")
def noise(arm: Measurement, result: Result) -> Iterator[Check]:
    """Turns during which other work had the machine, or the arm itself slept."""
    turns = [turn.noise for turn in arm.turns if turn.noise.wall_ns > 0]
    if not turns or not (_single(arm) or any(_has_counters(turn) for turn in turns)):
        return
    seen = [_disturbances(turn, arm) for turn in turns]
    dirty = sum(bool(causes) for causes in seen)
    idle = sum(_is_idle(turn, arm) and not causes for turn, causes in zip(turns, seen, strict=True))
    causes = Counter(cause for found in seen for cause in found)
    used = cpu_per_wall(arm) or 0.0
    figures = {
        "turns": len(turns),
        "dirty_turns": dirty,
        "dirty_share": dirty / len(turns),
        "cpu_per_wall": used,
        "wait_share": wait_share(arm),
        **{f"{cause}_turns": causes[cause] for cause in sorted(causes)},
    }
    if dirty:
        level = (
            Level.WARN if causes["throttled"] or dirty > DIRTY_SHARE * len(turns) else Level.NOTE
        )
        width = half_width(arm, result)
        if width is not None and width <= result.method.margin:
            figures["half_width"] = width
        text = _disturbed(arm, turns, dirty, causes, figures.get("half_width"))
        yield check(level, text, **figures)
    if idle > DIRTY_SHARE * len(turns):
        yield note(
            f"{name_of(arm)} used the CPU for {percent(used)} of its time although a core was "
            "free: it sleeps, or waits for a lock, a disk or a device. The time is real; profile "
            "it to see what it waits for.",
            **figures,
            idle_turns=idle,
        )
    elif not dirty:
        yield ok(f"Nothing disturbed the {count(len(turns), 'turn')} of {name_of(arm)}.", **figures)


@arm_rule("threads", "ours: threads beyond the cores wait for each other")
def threads(arm: Measurement, _: Result) -> Iterator[Check]:
    """More threads than cores."""
    found = crowd(arm)
    if found is None:
        return
    own, usable = found
    yield warn(
        f"{name_of(arm)} ran {own} threads on {count(usable, 'core')}, so its threads waited for "
        f"each other, and the time is that of the crowd. Use --threads {usable} or fewer.",
        threads=own,
        cores=usable,
    )


def _disturbances(turn: Noise, arm: Measurement) -> list[str]:
    wall = turn.wall_ns
    flags = {
        "wait": (turn.wait_ns or 0) > WAIT_SHARE * wall,
        # Where the waiting is known and there is none, the thread gave the core up by itself.
        "occupancy": turn.wait_ns is None and _is_idle(turn, arm),
        "steal": (turn.steal_ns or 0) > STEAL_SHARE * wall * (cores(arm) or 1),
        "pressure": (turn.pressure_ns or 0) > PRESSURE_SHARE * wall,
        "throttled": (turn.throttled_ns or 0) > 0,
    }
    return [cause for cause, found in flags.items() if found]


def _is_idle(turn: Noise, arm: Measurement) -> bool:
    return _single(arm) and turn.cpu_ns < OCCUPANCY * turn.wall_ns


def _disturbed(
    arm: Measurement, turns: list[Noise], dirty: int, causes: Counter[str], width: float | None
) -> str:
    """`width`: of the interval, where that is within the margin."""
    throttled = causes["throttled"]
    cause, remedy = _CAUSES["throttled" if throttled else causes.most_common(1)[0][0]]
    found = (
        f"{dirty} of {count(len(turns), 'turn')} of {name_of(arm)} ({percent(dirty / len(turns))}) "
        f"{'was' if dirty == 1 else 'were'} disturbed{', mostly' * (len(causes) > 1)} by {cause}"
    )
    if throttled:
        total = sum(turn.throttled_ns or 0 for turn in turns) / 1e9
        found += f" ({format_seconds(total, 3)} in {count(throttled, 'turn')})"
    own = crowd(arm)
    if own is not None and not throttled:
        on = f"its own {own[0]} threads share {count(own[1], 'core')}"
        remedy = f"use --threads {own[1]} or fewer: {on}."
    if width is not None:
        return (
            f"{found}; the interval is within ±{percent(width)} all the same, so the figure "
            f"stands. To have it quieter: {remedy}"
        )
    return f"{found}. {remedy[0].upper()}{remedy[1:]}"


def _has_counters(turn: Noise) -> bool:
    counters = (turn.wait_ns, turn.steal_ns, turn.pressure_ns, turn.throttled_ns)
    return any(counter is not None for counter in counters)


def _single(arm: Measurement) -> bool:
    """One thread on the CPU, so that its CPU time should fill the wall time."""
    return arm.arm.device == "cpu" and thread_count(arm) == 1


# Did the core itself run at full speed? The probe sees what the system's counters miss.


SLOW_SHARE = 0.50
"""Ours: beyond half, the typical time is the slow core's, not the arm's."""
FEW_SHARE = 0.50
"""Ours: one process in many without quiet samples is chance; half of them is the machine."""


@arm_rule("probe", "the probe of trials on a shared machine")
def probe(arm: Measurement, _: Result) -> Iterator[Check]:
    """Samples beside a probe that ran slower than at its best."""
    processes = [_clean_samples(process_data(arm, r)) for r in replicates_with_samples(arm)]
    probed = sum(known for known, _ in processes)
    if not probed:
        return
    share = 1 - sum(clean for _, clean in processes) / probed
    few = sum(clean < MIN_GATED for _, clean in processes)
    figures = {
        "slow_share": share,
        "samples": probed,
        "fewest_clean": min(clean for _, clean in processes),
        "processes_with_few": few,
    }
    pairs = estimator_of(arm) == PAIRS_ESTIMATOR
    if few >= FEW_SHARE * len(processes) and not pairs:
        yield warn(
            f"{few} of {count(len(processes), 'process', 'processes')} of {name_of(arm)} have "
            f"fewer than {MIN_GATED} samples taken while the core ran at full speed "
            f"({percent(share)} of all samples were beside a slow probe). Run it on a quieter "
            "machine or with a longer --budget; a floor may not have been met.",
            **figures,
        )
    elif share > SLOW_SHARE:
        stands = (
            "Ratios are of calls that were slow together." if pairs else "Floors stand on the rest."
        )
        yield note(
            f"The CPU was slowed by other work during {percent(share)} of the samples of "
            f"{name_of(arm)} (the timing probe ran more than {percent(PROBE_TOLERANCE)} above its "
            f"minimum). {stands} Take the typical time with caution, or measure on a quieter "
            "machine.",
            **figures,
        )
    else:
        yield ok(
            f"The core ran at full speed for {percent(1 - share)} of the samples of "
            f"{name_of(arm)}.",
            **figures,
        )


def _clean_samples(process: ProcessData) -> tuple[int, int]:
    """Samples with a probe on both sides, and those of them between two at full speed."""
    known = np.isfinite(process.probe_before) & np.isfinite(process.probe_after)
    if not known.any():
        return 0, 0
    slowest = np.maximum(process.probe_before[known], process.probe_after[known])
    fastest = min(process.probe_before[known].min(), process.probe_after[known].min())
    return int(known.sum()), int((slowest <= fastest * (1 + PROBE_TOLERANCE)).sum())


# Did every process settle before it was timed?


MOST_REASONS = 2
FIRST_CALL = 5.0
"""Ours: a sample of five times the process's median, and its slowest, stands where a first call
(building, compiling, filling caches) would. Noise puts the slowest sample anywhere."""
FEWEST_SAMPLES = 8
"""Ours: in fewer samples the first is the slowest by chance too often."""
FEWEST_PROCESSES = 2
"""Ours: in one process it may be chance; a first call that is timed stands in every one."""


@arm_rule("steady", "the method: warm up until steady, else say so")
def steady(arm: Measurement, _: Result) -> Iterator[Check]:
    """Processes that had not settled, or whose first call was timed."""
    processes = arm.replicates
    if not processes:
        return
    unsettled = [p.warm_up for p in processes if not (p.warm_up.steady and p.warm_up.wall_ns)]
    first = _first_calls(arm)
    compiling = sum("compiling" in found.reason for found in unsettled)
    figures = {
        "unsteady": len(unsettled),
        "processes": len(processes),
        "first_calls": first,
        "still_compiling": compiling,
    }
    if unsettled:
        yield warn(
            f"{name_of(arm)} had not settled when timing began in {len(unsettled)} of "
            f"{count(len(processes), 'process', 'processes')}{_reasons(unsettled)}. Run it on a "
            "quieter machine, or look for work that changes from call to call: shapes that "
            "recompile, growing state.",
            **figures,
        )
    if first >= max(FEWEST_PROCESSES, len(processes)):
        yield warn(
            f"In all {first} processes of {name_of(arm)} the first sample is the slowest and over "
            f"{FIRST_CALL:.0f} times the median: a first call is timed with the rest. Warm it up "
            "until nothing is built or compiled any more.",
            **figures,
        )
    elif not unsettled:
        yield ok(f"{name_of(arm)} was steady.", **figures)


def _reasons(unsettled: list[WarmUp]) -> str:
    said = (w.reason or ("" if w.wall_ns else "it made no call to warm up") for w in unsettled)
    reasons = list(dict.fromkeys(filter(None, said)))[:MOST_REASONS]
    return f" ({'; '.join(reasons)})" if reasons else ""


def _first_calls(arm: Measurement) -> int:
    """Processes in whose samples the first stands out as a first call does."""
    found = 0
    for index in {turn.replicate for turn in arm.turns}:
        turns = sorted((t for t in arm.turns if t.replicate == index), key=lambda t: t.index)
        samples = [wall for turn in turns for wall in turn.wall_ns]
        if len(samples) >= FEWEST_SAMPLES:
            found += samples[0] == max(samples) and samples[0] > FIRST_CALL * median(samples)
    return found


# Do the arms differ only in what they were meant to differ in?


_ASKED_BY = {
    "torch": ("python", "env"),
    "torch's build": ("python", "env"),
    "Python": ("python", "env"),
    "threads": ("threads", "env"),
    "allocator": ("allocator", "env"),
}
"""Conditions in which arms may differ, and the settings of an arm that ask for it: an interpreter
brings its own libraries, and a variable such as PYTHONPATH or OMP_NUM_THREADS may change any."""


@rule("alike", "the method: one difference at a time, on one machine")
def alike(result: Result) -> Iterator[Check]:
    """Arms on two machines, or that differ from the baseline in more than was asked for."""
    for arm in result.arms[1:]:
        base = result.arms[0]
        if base.environment is not None and arm.environment is not None:
            yield from _compare_conditions(base, base.environment, arm, arm.environment)


def _compare_conditions(
    base: Measurement, before: Environment, arm: Measurement, after: Environment
) -> Iterator[Check]:
    who = (base.arm.name, arm.arm.name)
    machines = {before.machine_id, after.machine_id}
    moved = len(machines) > 1 and all(machines)
    if moved:
        yield fail(
            f"{name_of(arm)} ran on another machine ({after.machine_id}) than {name_of(base)} "
            f"({before.machine_id}), so the two are not compared. Measure both on one machine.",
            (arm.arm.name,),
        )
    conditions = zip(_conditions(base, before), _conditions(arm, after), _ASKED_BY, strict=True)
    differences = [
        f"{what} {new} against {old}"
        for old, new, what in conditions
        if old and new and old != new and not _asked_for(what, base, arm)
    ]
    if differences:
        yield warn(
            f"{name_of(arm)} differs from {name_of(base)} in more than was asked for: "
            f"{'; '.join(differences)}. Use the same for both arms, or name it in --arm if it is "
            "what you compare.",
            who,
            differences=len(differences),
        )
    elif not moved:
        yield ok(
            f"{name_of(arm)} and {name_of(base)} ran under the same conditions.",
            who,
            differences=0,
        )


def _asked_for(what: str, base: Measurement, arm: Measurement) -> bool:
    return any(getattr(base.arm, name) != getattr(arm.arm, name) for name in _ASKED_BY[what])


def _conditions(arm: Measurement, environment: Environment) -> tuple[str, ...]:
    """In the order of `_ASKED_BY`; empty where unknown."""
    loaded = environment.os.get("malloc", "")
    allocator = environment.allocator
    if loaded not in ("", "system", allocator):
        allocator += f" ({loaded} is loaded)"
    return (
        environment.torch.get("version", ""),
        environment.torch.get("git", ""),
        environment.python.get("version", ""),
        str(thread_count(arm) or ""),
        allocator,
    )


# What does the memory allocator add to the times?
#
# An allocator that gives memory back takes it again page by page on the next call. Two arms that
# free memory at different moments then differ in page faults, which looks like a speed-up: 1.25 was
# measured where nothing had been compiled at all. Counted faults say that this happens; what it
# costs is only known from an arm that does the same work with another allocator.


SHARE_OF_STEP = 0.02
"""The default margin: what is smaller than that counts as the same anyway."""
_ALLOCATORS = {"default": "the system's own allocator", "keep": "memory kept"}


@rule("allocator", "the dashboard's runner, measured: glibc giving memory back")
def allocator(result: Result) -> Iterator[Check]:
    """What another allocator costs, or page faults that make the allocator matter."""
    for arm in result.arms[1:]:
        base = result.arms[0]
        yield from (_measured_cost if _same_work(base, arm) else _page_faults)(base, arm, result)


def _same_work(base: Measurement, arm: Measurement) -> bool:
    """Whether the two differ in their allocator and in nothing else."""
    same = replace(base.arm, name=arm.arm.name, allocator=arm.arm.allocator) == arm.arm
    return same and base.arm.allocator != arm.arm.allocator


def _measured_cost(base: Measurement, arm: Measurement, result: Result) -> Iterator[Check]:
    """What the one allocator costs, from the comparison with the other."""
    found = next((c for c in result.comparisons if c.new == arm.arm.name), None)
    if found is None or not found.time_ratio or found.interval is None:
        return
    figures = {"time_ratio": found.time_ratio, "low": found.interval[0], "high": found.interval[1]}
    faults = {"base": faults_per_call(base), "new": faults_per_call(arm)}
    figures |= {f"{k}_faults_per_call": v for k, v in faults.items() if v is not None}
    yield note(_cost(base, arm, found), (base.arm.name, arm.arm.name), **figures)


def _cost(base: Measurement, arm: Measurement, found: Comparison) -> str:
    """Always of another allocator against memory kept, where one of the two keeps it."""
    ratio, (low, high) = found.time_ratio or 0.0, found.interval or (0.0, 0.0)
    of, against = arm, base
    if arm.arm.allocator == "keep" and low > 0:
        of, against = base, arm
        ratio, low, high = 1 / ratio, 1 / high, 1 / low
    unproven = " So the data cannot tell whether it costs anything." if low <= 1 <= high else ""
    titles = [_ALLOCATORS.get(one.arm.allocator, one.arm.allocator) for one in (of, against)]
    return (
        f"{titles[0].capitalize()} takes {ratio:.2f}× the time of {titles[1]} here "
        f"({low:.2f} to {high:.2f}), measured: {name_of(of)} against {name_of(against)}.{unproven}"
    )


def _page_faults(base: Measurement, arm: Measurement, result: Result) -> Iterator[Check]:
    """Page faults, where they are so many or so different that the allocator may matter."""
    # One machine, one cost: the lowest reading of all arms is the least disturbed.
    costs = [m.fault_cost_ns for m in result.arms if m.fault_cost_ns and m.fault_cost_ns > 0]
    if not (costs and is_comparable(base) and is_comparable(arm)):
        return
    before, after = faults_per_call(base), faults_per_call(arm)
    base_time = seconds_per_call(base, estimator(result))
    if before is None or after is None or not base_time:
        return
    text = (
        f"{name_of(arm)} takes {format_count(after)} minor page faults per call and "
        f"{name_of(base)} {format_count(before)}"
    )
    # The share only decides whether to warn. Faults cost what the moment makes of them (readings
    # of one run differed by five times), so no figure is made from it.
    large = abs(after - before) * min(costs) / 1e9 / base_time > SHARE_OF_STEP
    yield check(
        Level.WARN if large else Level.OK,
        f"{text}. {_allocator_remedy(base, arm, result)}"
        if large
        else f"{text}: too few to matter.",
        (base.arm.name, arm.arm.name),
        base_faults_per_call=before,
        new_faults_per_call=after,
    )


def _allocator_remedy(base: Measurement, arm: Measurement, result: Result) -> str:
    if base.arm.allocator == arm.arm.allocator == "keep":
        return "Look for memory that is mapped again in each call: the allocator keeps its own."
    if any(_same_work(base, other) or _same_work(arm, other) for other in result.arms):
        return "The arm with the other allocator shows what that costs."
    return (
        "So the difference in time may be the allocator's in part: --allocator keep compares "
        'without it, and --arm "name=keep allocator=keep" measures what it costs '
        f"{name_of(result.arms[0])}."
    )


# Was the arm watched while it was timed, and did it leave the clocks alone?


MODE = "dispatch mode"
"""How a mode that sees every op is named in the record, followed by its class."""
COUNTERS = ("FlopCounterMode", "Profil", "Logging", "Debug", "Count")
"""Parts of the names of modes that watch. A mode that computes is a part of the arm."""


@arm_rule("profiler", "never count or profile and time together")
def profiler(arm: Measurement, _: Result) -> Iterator[Check]:
    """A profiler, a tracer or a dispatch mode that was active in timed turns."""
    if arm.integrity is None:
        return
    found = arm.integrity.profilers
    figures = {"profilers": len(found)}
    if not found:
        yield ok(f"No profiler watched {name_of(arm)}.", **figures)
    elif any(not name.startswith(MODE) or _counts(name) for name in found):
        yield fail(
            f"{name_of(arm)} was timed while being watched ({', '.join(found)}), which costs time "
            "by itself and more in some arms than in others. Remove it; profile and count in "
            "separate runs.",
            **figures,
        )
    else:
        yield warn(
            f"Every op of {name_of(arm)} passes through Python ({', '.join(found)}). Its time is "
            "in the figure; remove the mode unless it is what you measure.",
            **figures,
        )


def _counts(name: str) -> bool:
    return any(part in name for part in COUNTERS)


@arm_rule("timer", "timer functions unpatched")
def timer(arm: Measurement, _: Result) -> Iterator[Check]:
    """Timer functions that the arm replaced."""
    if arm.integrity is None:
        return
    patched = arm.integrity.patched_timers
    if patched:
        yield fail(
            f"{name_of(arm)} replaces {', '.join(patched)} while it is timed. Remove the patch; "
            "code that changes the clock cannot be timed.",
            patched=len(patched),
        )
    else:
        yield ok(f"{name_of(arm)} left the timers alone.", patched=0)


SURPRISING = 1.2
"""Time against the baseline's in a wider type: a narrow type is chosen to be quicker."""


@arm_rule("precision", "a new user's bf16 model, 7 times as slow without a word")
def precision(arm: Measurement, result: Result) -> Iterator[Check]:
    """Why an arm in a narrow type is slow: the CPU does not compute in it."""
    base, found = result.arms[0], _against_base(arm, result)
    flags = arm.environment.cpu.get("flags", "") if arm.environment else ""
    missing = missing_instructions(arm.arm.precision, flags)
    if not missing or not arm.arm.device.startswith("cpu") or found is None:
        return
    if base.arm.precision != arm.arm.precision and found > SURPRISING:
        yield note(
            f"{name_of(arm)} takes {found:.1f}× the time because this CPU has no instructions for "
            f"{missing}: torch converts to float32 and back, or computes in plain loops. Use "
            f"{base.arm.precision} here.",
            time_ratio=found,
        )


def _against_base(arm: Measurement, result: Result) -> float | None:
    """Its time ratio; None without a comparison."""
    found = next((c for c in result.comparisons if c.new == arm.arm.name), None)
    return found.time_ratio if found is not None else None
