"""Did the processor keep its clock, and can the clock be what it is said to be?

Shares at the clock of the day are figures for reporting only: peaks are never scaled, and no
configuration is chosen by them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from torchstone.records import (
    ArmSpec,
    Check,
    Comparison,
    Environment,
    Level,
    Measurement,
    Noise,
    Result,
    WarmUp,
)
from torchstone.records.format import count, percent
from torchstone.stats import (
    PAIRS_ESTIMATOR,
    ProcessData,
    estimator_of,
    process_data,
    replicates_with_samples,
)
from torchstone.stats.estimators import MIN_GATED, PROBE_TOLERANCE
from torchstone.validate.base import (
    FunctionRule,
    cores,
    duration,
    each_arm,
    estimator,
    faults_per_call,
    half_width,
    is_comparable,
    name_of,
    number,
    rate,
    seconds_per_call,
    threads,
)
from torchstone.validate.rules.peaks import plausible_clock

CLOCK_NAME = "clock"
DRIFT = 0.03
"""a clock that moves by more between before and after is reason to repeat."""


def _judge_clock(result: Result) -> Iterator[Check]:
    odd = list(_implausible(result))
    yield from odd
    clocks = [hertz for hertz in result.clocks_hz if plausible_clock(hertz)]
    if not clocks:
        return
    figures = {"before_hz": clocks[0], "after_hz": clocks[-1], **_against(result, clocks)}
    drift = max(clocks) / min(clocks) - 1
    figures["drift"] = drift
    if drift > DRIFT:
        yield Check(
            CLOCK_NAME,
            Level.WARN,
            f"The clock moved by {percent(drift)} while this was measured (from "
            f"{rate(clocks[0], 'Hz')} to {rate(clocks[-1], 'Hz')}). Repeat it when the processor "
            "has settled; interleaved arms share the drift, single times do not.",
            figures,
        )
    elif not odd:
        text = f"The clock stayed at {rate(clocks[-1], 'Hz')}."
        yield Check(CLOCK_NAME, Level.OK, text, figures)


def _against(result: Result, clocks: list[float]) -> dict[str, float]:
    """The clock over that of the calibration and over the default one; above 1 is a boost."""
    calibration = result.calibration
    if calibration is None:
        return {}
    mean = sum(clocks) / len(clocks)
    figures = {}
    if calibration.clock is not None and plausible_clock(calibration.clock.value):
        figures["over_calibration"] = mean / calibration.clock.value
    nominal = calibration.nominal_clock_hz
    if nominal is not None and plausible_clock(nominal):
        figures["over_default"] = mean / nominal
    return figures


def _implausible(result: Result) -> Iterator[Check]:
    calibration = result.calibration
    said: dict[str, float] = {}
    for place, hertz in zip(("before", "after"), result.clocks_hz, strict=False):
        said[f"{place} the measurement"] = hertz
    if calibration is not None and calibration.clock is not None:
        said["of the calibration"] = calibration.clock.value
    if calibration is not None and calibration.nominal_clock_hz is not None:
        said["that is the default"] = calibration.nominal_clock_hz
    for what, hertz in said.items():
        if not plausible_clock(hertz):
            yield Check(
                CLOCK_NAME,
                Level.WARN,
                f"The clock {what} is given as {rate(hertz, 'Hz')}, which no processor runs at: "
                "kHz or MHz were probably taken for Hz. It is not used; correct its unit.",
                {"hertz": hertz},
            )


CLOCK = FunctionRule(CLOCK_NAME, "clock before and after, scaled for reporting only", _judge_clock)


# Did other work disturb the turns? Evaluated from the system's own counters.


NOISE_NAME = "noise"
WAIT_SHARE = 0.02
"""threads ready to run but without a core, of the turn's wall time."""
OCCUPANCY = 0.95
"""CPU time over wall time of a single thread."""
STEAL_SHARE = 0.01
"""time taken by the hypervisor, of the time of all cores."""
PRESSURE_SHARE = 0.20
"""Ours: R15 names no figure; a machine known to be under load read 55-86 %."""
DIRTY_SHARE = 0.20
"""Ours: from one turn in five on, the typical time is no longer the arm's own."""

_CAUSES = {
    "wait": "waiting for a core",
    "occupancy": "losing the core",
    "steal": "the hypervisor taking the core",
    "pressure": "other tasks waiting for the CPU",
    "throttled": "the control group's CPU limit",
}
_STOP_OTHERS = "Stop other work on this machine, or give a longer --budget."
_REMEDIES = {
    "wait": _STOP_OTHERS,
    "occupancy": _STOP_OTHERS,
    "steal": "Use a machine that is not shared, or give a longer --budget.",
    "pressure": _STOP_OTHERS,
    "throttled": "Raise the control group's CPU limit, or set --threads within it.",
}


@dataclass(frozen=True)
class _Seen:
    """What one turn's counters say: what disturbed it, and whether it idled of its own will."""

    causes: tuple[str, ...]
    idle: bool


def _judge_noise(result: Result) -> Iterator[Check]:
    for arm in result.arms:
        turns = [turn.noise for turn in arm.turns if turn.noise.wall_ns > 0]
        if any(_known(noise) for noise in turns) or (turns and _single(arm)):
            yield from _look_noise(arm, turns, result)


def _look_noise(arm: Measurement, turns: list[Noise], result: Result) -> Iterator[Check]:
    seen = [_see(noise, arm) for noise in turns]
    dirty = sum(bool(s.causes) for s in seen)
    idle = sum(s.idle for s in seen)
    causes = Counter(cause for s in seen for cause in s.causes)
    figures = _figures(turns, dirty, causes)
    if dirty:
        level, text = _dirty(arm, turns, dirty, causes, result)
        yield Check(NOISE_NAME, level, text, figures, (arm.arm.name,))
    if idle > DIRTY_SHARE * len(turns):
        text = (
            f"{name_of(arm)} used the CPU for {percent(_ratio(turns))} of its time although a core "
            "was free: it sleeps, or waits for a lock, a disk or a device. The time is real; "
            "profile it to see what it waits for."
        )
        yield Check(
            NOISE_NAME, Level.NOTE, text, {**figures, "idle_turns": float(idle)}, (arm.arm.name,)
        )
    elif not dirty:
        text = f"Nothing disturbed the {count(len(turns), 'turn')} of {name_of(arm)}."
        yield Check(NOISE_NAME, Level.OK, text, figures, (arm.arm.name,))


def _see(noise: Noise, arm: Measurement) -> _Seen:
    wall = noise.wall_ns
    waited = noise.wait_ns is not None and noise.wait_ns > WAIT_SHARE * wall
    low = _single(arm) and noise.cpu_ns < OCCUPANCY * wall
    flags = {
        "wait": waited,
        # Where the waiting is known and there is none, the thread gave the core up by itself.
        "occupancy": low and noise.wait_ns is None,
        "steal": (noise.steal_ns or 0) > STEAL_SHARE * wall * (cores(arm) or 1),
        "pressure": (noise.pressure_ns or 0) > PRESSURE_SHARE * wall,
        "throttled": (noise.throttled_ns or 0) > 0,
    }
    causes = tuple(cause for cause, found in flags.items() if found)
    return _Seen(causes, low and not causes)


def _dirty(
    arm: Measurement, turns: list[Noise], dirty: int, causes: Counter[str], result: Result
) -> tuple[Level, str]:
    share = dirty / len(turns)
    throttled = causes["throttled"]
    cause = "throttled" if throttled else causes.most_common(1)[0][0]
    level = Level.WARN if throttled or share > DIRTY_SHARE else Level.NOTE
    found = (
        f"{dirty} of {count(len(turns), 'turn')} of {name_of(arm)} ({percent(share)}) "
        f"{'was' if dirty == 1 else 'were'} disturbed{', mostly' * (len(causes) > 1)} by "
        f"{_CAUSES[cause]}"
    )
    if throttled:
        total = sum(noise.throttled_ns or 0 for noise in turns) / 1e9
        found += f" ({duration(total)} in {count(throttled, 'turn')})"
    width = half_width(arm, result)
    if width is not None and width <= result.method.margin:
        return level, (
            f"{found}; the interval is within ±{percent(width)} all the same, so the figure "
            f"stands. To have it quieter: {_lower(_REMEDIES[cause])}"
        )
    return level, f"{found}. {_REMEDIES[cause]}"


def _known(noise: Noise) -> bool:
    counters = (noise.wait_ns, noise.steal_ns, noise.pressure_ns, noise.throttled_ns)
    return any(counter is not None for counter in counters)


def _single(arm: Measurement) -> bool:
    """One thread on the CPU, so that its CPU time should fill the wall time."""
    return arm.arm.device == "cpu" and threads(arm) == 1


def _ratio(turns: list[Noise]) -> float:
    return sum(noise.cpu_ns for noise in turns) / sum(noise.wall_ns for noise in turns)


def _figures(turns: list[Noise], dirty: int, causes: Counter[str]) -> dict[str, float]:
    wall = sum(noise.wall_ns for noise in turns)
    figures = {
        "turns": float(len(turns)),
        "dirty_turns": float(dirty),
        "dirty_share": dirty / len(turns),
        "cpu_per_wall": _ratio(turns),
        "wait_share": sum(noise.wait_ns or 0 for noise in turns) / wall,
    }
    return {**figures, **{f"{cause}_turns": float(causes[cause]) for cause in sorted(causes)}}


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


NOISE = FunctionRule(NOISE_NAME, "host noise gate", _judge_noise)


# Did the core itself run at full speed? The probe sees what the system's counters miss.


PROBE_NAME = "probe"
SLOW_SHARE = 0.50
"""Ours: beyond half, the typical time is the slow core's, not the arm's."""
FEW_SHARE = 0.50
"""Ours: one process in many without quiet samples is chance; half of them is the machine."""


def _look_probe(arm: Measurement) -> Iterator[Check]:
    processes = [_count(process_data(arm, r)) for r in replicates_with_samples(arm)]
    probed = sum(known for known, _ in processes)
    if not probed:
        return
    share = 1 - sum(clean for _, clean in processes) / probed
    few = sum(clean < MIN_GATED for _, clean in processes)
    figures = {
        "slow_share": share,
        "samples": float(probed),
        "fewest_clean": float(min(clean for _, clean in processes)),
        "processes_with_few": float(few),
    }
    level, text = _words(arm, share, few, len(processes))
    yield Check(PROBE_NAME, level, text, figures, (arm.arm.name,))


def _count(process: ProcessData) -> tuple[int, int]:
    """Samples with a probe on both sides, and those of them between two at full speed."""
    known = np.isfinite(process.probe_before) & np.isfinite(process.probe_after)
    if not known.any():
        return 0, 0
    slowest = np.maximum(process.probe_before[known], process.probe_after[known])
    fastest = min(process.probe_before[known].min(), process.probe_after[known].min())
    return int(known.sum()), int((slowest <= fastest * (1 + PROBE_TOLERANCE)).sum())


def _words(arm: Measurement, share: float, few: int, processes: int) -> tuple[Level, str]:
    if few >= FEW_SHARE * processes and estimator_of(arm) != PAIRS_ESTIMATOR:
        return Level.WARN, (
            f"{few} of {count(processes, 'process', 'processes')} of {name_of(arm)} have fewer "
            f"than {MIN_GATED} samples taken while the core ran at full speed "
            f"({percent(share)} of all samples were beside a slow probe). Run it on a quieter "
            "machine or with a longer --budget; a floor may not have been met."
        )
    if share > SLOW_SHARE:
        return Level.NOTE, (
            f"The CPU was slowed by other work during {percent(share)} of the samples of "
            f"{name_of(arm)} (the timing probe ran more than {percent(PROBE_TOLERANCE)} above its "
            f"minimum). {_stands(arm)} Take the typical time with caution, or measure on a quieter "
            "machine."
        )
    text = f"The core ran at full speed for {percent(1 - share)} of the samples of {name_of(arm)}."
    return Level.OK, text


def _stands(arm: Measurement) -> str:
    """What a ratio rests on all the same."""
    if estimator_of(arm) == PAIRS_ESTIMATOR:
        return "Ratios are of calls that were slow together."
    return "Floors stand on the rest."


PROBE = FunctionRule(
    PROBE_NAME, "R15, and the probe of trials on a shared machine", each_arm(_look_probe)
)


# Did every process settle before it was timed?


STEADY_NAME = "steady"
MOST_REASONS = 2
FIRST_CALL = 5.0
"""Ours: a sample of five times the process's median, and its slowest, stands where a first call
(building, compiling, filling caches) would. Noise puts the slowest sample anywhere."""
FEWEST_SAMPLES = 8
"""Ours: in fewer samples the first is the slowest by chance too often."""
FEWEST_PROCESSES = 2
"""Ours: in one process it may be chance; a first call that is timed stands in every one."""


def _look_steady(arm: Measurement) -> Iterator[Check]:
    processes = arm.replicates
    if not processes:
        return
    restless = [p.warm_up for p in processes if not _settled(p.warm_up)]
    first = first_calls(arm)
    figures = {
        "unsteady": float(len(restless)),
        "processes": float(len(processes)),
        "first_calls": float(first),
    }
    who = (arm.arm.name,)
    if restless:
        yield Check(STEADY_NAME, Level.WARN, _restless(arm, restless), figures, who)
    if first >= max(FEWEST_PROCESSES, len(processes)):
        text = (
            f"In all {first} processes of {name_of(arm)} the first sample is the slowest and over "
            f"{FIRST_CALL:.0f} times the median: a first call is timed with the rest. Warm it up "
            "until nothing is built or compiled any more."
        )
        yield Check(STEADY_NAME, Level.WARN, text, figures, who)
    elif not restless:
        yield Check(STEADY_NAME, Level.OK, f"{name_of(arm)} was steady.", figures, who)


def _settled(warm_up: WarmUp) -> bool:
    return warm_up.steady and bool(warm_up.wall_ns)


def _restless(arm: Measurement, restless: list[WarmUp]) -> str:
    said = (w.reason or ("" if w.wall_ns else "it made no call to warm up") for w in restless)
    reasons = list(dict.fromkeys(filter(None, said)))[:MOST_REASONS]
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return (
        f"{name_of(arm)} had not settled when timing began in {len(restless)} of "
        f"{count(len(arm.replicates), 'process', 'processes')}{why}. Run it on a quieter machine, "
        "or look for work that changes from call to call: shapes that recompile, growing state."
    )


def first_calls(arm: Measurement) -> int:
    """Processes in whose samples the first stands out as a first call does."""
    found = 0
    for index in {turn.replicate for turn in arm.turns}:
        turns = sorted((t for t in arm.turns if t.replicate == index), key=lambda t: t.index)
        samples = [wall for turn in turns for wall in turn.wall_ns]
        if len(samples) < FEWEST_SAMPLES:
            continue
        found += samples[0] == max(samples) and samples[0] > FIRST_CALL * median(samples)
    return found


STEADY = FunctionRule(
    STEADY_NAME, "the method: warm up until steady, else say so", each_arm(_look_steady)
)


# Do the arms differ only in what they were meant to differ in?


ALIKE_NAME = "alike"


@dataclass(frozen=True)
class _Trait:
    """Something in which arms may differ, and the settings of an arm that ask for it."""

    what: str
    value: str
    asked_by: tuple[str, ...]


def _judge_alike(result: Result) -> Iterator[Check]:
    if not result.arms or result.arms[0].environment is None:
        return
    base = result.arms[0]
    for arm in result.arms[1:]:
        if arm.environment is not None:
            yield from _compare_alike(base, arm)


def _compare_alike(base: Measurement, arm: Measurement) -> Iterator[Check]:
    who = (base.arm.name, arm.arm.name)
    clean = True
    if _machine(base) and _machine(arm) and _machine(base) != _machine(arm):
        clean = False
        yield Check(
            ALIKE_NAME,
            Level.FAIL,
            f"{name_of(arm)} ran on another machine ({_machine(arm)}) than {name_of(base)} "
            f"({_machine(base)}), so nothing is said of the two. Measure both on one machine.",
            arms=(arm.arm.name,),
        )
    differences = list(_unasked(base, arm))
    if differences:
        clean = False
        yield Check(
            ALIKE_NAME,
            Level.WARN,
            f"{name_of(arm)} differs from {name_of(base)} in more than was asked for: "
            f"{'; '.join(differences)}. Set it alike for both arms, or name it in --arm if it is "
            "what you compare.",
            {"differences": float(len(differences))},
            who,
        )
    if clean:
        text = f"{name_of(arm)} and {name_of(base)} ran under like conditions."
        yield Check(ALIKE_NAME, Level.OK, text, {"differences": 0.0}, who)


def _machine(arm: Measurement) -> str:
    return arm.environment.machine_id if arm.environment else ""


def _unasked(base: Measurement, arm: Measurement) -> Iterator[str]:
    """Differences that no setting of the two arms asks for; unknown values are not evaluated."""
    for one, other in zip(_traits(base), _traits(arm), strict=True):
        known = one.value and other.value
        if known and one.value != other.value and not _asked(one, base.arm, arm.arm):
            yield f"{one.what} {other.value} against {one.value}"


def _asked(trait: _Trait, base: ArmSpec, arm: ArmSpec) -> bool:
    return any(getattr(base, field) != getattr(arm, field) for field in trait.asked_by)


def _traits(arm: Measurement) -> tuple[_Trait, ...]:
    environment = arm.environment or Environment("")
    found = threads(arm)
    # An interpreter brings its own libraries; a variable such as PYTHONPATH or OMP_NUM_THREADS
    # may change any of these.
    return (
        _Trait("torch", environment.torch.get("version", ""), ("python", "env")),
        _Trait("torch's build", environment.torch.get("git", ""), ("python", "env")),
        _Trait("Python", environment.python.get("version", ""), ("python", "env")),
        _Trait("threads", "" if found is None else str(found), ("threads", "env")),
        _Trait("allocator", _allocator(environment), ("allocator", "env")),
    )


def _allocator(environment: Environment) -> str:
    """The one asked for, and the library that is truly loaded where that is another."""
    loaded = environment.os.get("malloc", "")
    if loaded in ("", "system", environment.allocator):
        return environment.allocator
    return f"{environment.allocator} ({loaded} is loaded)"


ALIKE = FunctionRule(
    ALIKE_NAME, "the method: one difference at a time, on one machine", _judge_alike
)


# What does the memory allocator add to the times?
#
# An allocator that gives memory back takes it again page by page on the next call. Two arms that
# free memory at different moments then differ in page faults, which looks like a speed-up: 1.25 was
# measured where nothing had been compiled at all. Counted faults say that this happens; what it
# costs is only known from an arm that does the same work with another allocator.


ALLOCATOR_NAME = "allocator"
SHARE_OF_STEP = 0.02
"""The default margin: what is smaller than that counts as the same anyway."""
_WORDS = {"default": "the system's own allocator", "keep": "memory kept"}


@dataclass(frozen=True)
class _Faults:
    """Two arms' minor page faults per call, and what they could matter: a share of a step.

    The share is only for the question whether to speak of them. Faults cost what the moment makes
    of them (readings of one run differed by five times), so no figure is made from it.
    """

    base: float
    new: float
    share: float


def _judge_allocator(result: Result) -> Iterator[Check]:
    base = result.arms[0] if result.arms else None
    for arm in result.arms[1:]:
        assert base is not None
        if _same_work(base, arm):
            yield from _measured(base, arm, result)
        else:
            yield from _counted(base, arm, result)


def _same_work(base: Measurement, arm: Measurement) -> bool:
    """Whether the two differ in their allocator and in nothing else."""
    alike = replace(base.arm, name=arm.arm.name, allocator=arm.arm.allocator) == arm.arm
    return alike and base.arm.allocator != arm.arm.allocator


def _measured(base: Measurement, arm: Measurement, result: Result) -> Iterator[Check]:
    """What the one allocator costs, from the comparison with the other."""
    found = next((c for c in result.comparisons if c.new == arm.arm.name), None)
    if found is None or not found.time_ratio or found.interval is None:
        return
    figures = {"time_ratio": found.time_ratio}
    figures |= dict(zip(("low", "high"), found.interval, strict=True))
    for name, faults in (("base", faults_per_call(base)), ("new", faults_per_call(arm))):
        if faults is not None:
            figures[f"{name}_faults_per_call"] = faults
    text = _cost(base, arm, found)
    yield Check(ALLOCATOR_NAME, Level.NOTE, text, figures, (base.arm.name, arm.arm.name))


def _cost(base: Measurement, arm: Measurement, found: Comparison) -> str:
    """Always of another allocator against memory kept, where one of the two keeps it."""
    ratio, (low, high) = found.time_ratio or 0.0, found.interval or (0.0, 0.0)
    of, against = arm, base
    if arm.arm.allocator == "keep" and low > 0:
        of, against = base, arm
        ratio, low, high = 1 / ratio, 1 / high, 1 / low
    unproven = " So the data cannot tell whether it costs anything." if low <= 1 <= high else ""
    return (
        f"{_title(of).capitalize()} takes {ratio:.2f}× the time of {_title(against)} here "
        f"({low:.2f} to {high:.2f}), measured: {name_of(of)} against {name_of(against)}.{unproven}"
    )


def _title(arm: Measurement) -> str:
    return _WORDS.get(arm.arm.allocator, arm.arm.allocator)


def _counted(base: Measurement, arm: Measurement, result: Result) -> Iterator[Check]:
    """Page faults, where they are so many or so different that the allocator may matter."""
    faults = _compare_allocator(base, arm, result)
    if faults is None:
        return
    large = faults.share > SHARE_OF_STEP
    text = (
        f"{name_of(arm)} takes {number(faults.new)} minor page faults a call and {name_of(base)} "
        f"{number(faults.base)}"
    )
    text += f". {_remedy(base, arm, result)}" if large else ": too few to matter."
    figures = {"base_faults_per_call": faults.base, "new_faults_per_call": faults.new}
    level = Level.WARN if large else Level.OK
    yield Check(ALLOCATOR_NAME, level, text, figures, (base.arm.name, arm.arm.name))


def _compare_allocator(base: Measurement, arm: Measurement, result: Result) -> _Faults | None:
    """The two arms' faults; None where one has no samples or a fault's cost is unknown."""
    if not (is_comparable(base) and is_comparable(arm)):
        return None
    # One machine, one cost: the lowest reading of all arms is the least disturbed.
    costs = [m.fault_cost_ns for m in result.arms if m.fault_cost_ns and m.fault_cost_ns > 0]
    before, after = faults_per_call(base), faults_per_call(arm)
    base_time = seconds_per_call(base, estimator(result))
    if not costs or before is None or after is None or not base_time:
        return None
    return _Faults(before, after, abs(after - before) * min(costs) / 1e9 / base_time)


def _remedy(base: Measurement, arm: Measurement, result: Result) -> str:
    used = {base.arm.allocator, arm.arm.allocator}
    if used == {"keep"}:
        return "Look for memory that is mapped again in each call: the allocator keeps its own."
    if any(_same_work(base, other) or _same_work(arm, other) for other in result.arms):
        return "What that costs, the arm with the other allocator says."
    first = name_of(result.arms[0])
    return (
        "So the difference in time may be the allocator's in part: --allocator keep compares "
        f'without it, and --arm "name=keep allocator=keep" measures what it costs {first}.'
    )


ALLOCATOR = FunctionRule(
    ALLOCATOR_NAME, "the dashboard's runner, measured: glibc giving memory back", _judge_allocator
)


# Was the arm watched while it was timed?


PROFILER_NAME = "profiler"
MODE = "dispatch mode"
"""How a mode that sees every op is named in the record, followed by its class."""
COUNTERS = ("FlopCounterMode", "Profil", "Logging", "Debug", "Count")
"""Parts of the names of modes that watch. A mode that computes is a part of the arm."""


def _look_profiler(arm: Measurement) -> Iterator[Check]:
    if arm.integrity is None:
        return
    found = arm.integrity.profilers
    figures, who = {"profilers": float(len(found))}, (arm.arm.name,)
    if not found:
        yield Check(PROFILER_NAME, Level.OK, f"Nothing watched {name_of(arm)}.", figures, who)
        return
    named = ", ".join(found)
    if any(_watches(name) for name in found):
        text = (
            f"{name_of(arm)} was timed while being watched ({named}), which costs time by itself "
            "and more in some arms than in others. Take it out; profile and count in runs of "
            "their own."
        )
        yield Check(PROFILER_NAME, Level.FAIL, text, figures, who)
        return
    text = (
        f"Every op of {name_of(arm)} passes through Python ({named}). Its time is in the figure; "
        "take the mode out unless it is what you measure."
    )
    yield Check(PROFILER_NAME, Level.WARN, text, figures, who)


def _watches(name: str) -> bool:
    return not name.startswith(MODE) or any(part in name for part in COUNTERS)


PROFILER = FunctionRule(
    PROFILER_NAME, "never count or profile and time together", each_arm(_look_profiler)
)


# Did the arm leave the clocks alone?


TIMER_NAME = "timer"


def _look_timer(arm: Measurement) -> Iterator[Check]:
    if arm.integrity is None:
        return
    patched = arm.integrity.patched_timers
    figures, who = {"patched": float(len(patched))}, (arm.arm.name,)
    if not patched:
        yield Check(TIMER_NAME, Level.OK, f"{name_of(arm)} left the timers alone.", figures, who)
        return
    yield Check(
        TIMER_NAME,
        Level.FAIL,
        f"{name_of(arm)} replaces {', '.join(patched)} while it is timed. "
        "Take the patch out; code that changes the clock cannot be timed.",
        figures,
        who,
    )


TIMER = FunctionRule(TIMER_NAME, "timer functions unpatched", each_arm(_look_timer))
