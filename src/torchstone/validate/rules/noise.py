"""Did other work disturb the turns? Judged from the system's own counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from torchstone.records import Check, Level, Measurement, Noise, Result
from torchstone.validate.base import FunctionRule
from torchstone.validate.facts import cores, half_width, threads
from torchstone.validate.words import count, duration, name_of, percent

NAME = "noise"
WAIT_SHARE = 0.02
"""R15: threads ready to run but without a core, of the turn's wall time."""
OCCUPANCY = 0.95
"""R15: CPU time over wall time of a single thread."""
STEAL_SHARE = 0.01
"""R15: time taken by the hypervisor, of the time of all cores."""
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


def _judge(result: Result) -> Iterator[Check]:
    for arm in result.arms:
        turns = [turn.noise for turn in arm.turns if turn.noise.wall_ns > 0]
        if any(_known(noise) for noise in turns) or (turns and _single(arm)):
            yield from _look(arm, turns, result)


def _look(arm: Measurement, turns: list[Noise], result: Result) -> Iterator[Check]:
    seen = [_see(noise, arm) for noise in turns]
    dirty = sum(bool(s.causes) for s in seen)
    idle = sum(s.idle for s in seen)
    causes = Counter(cause for s in seen for cause in s.causes)
    figures = _figures(turns, dirty, causes)
    if dirty:
        level, text = _dirty(arm, turns, dirty, causes, result)
        yield Check(NAME, level, text, figures, (arm.arm.name,))
    if idle > DIRTY_SHARE * len(turns):
        text = (
            f"{name_of(arm)} used the CPU for {percent(_ratio(turns))} of its time although a core "
            "was free: it sleeps, or waits for a lock, a disk or a device. The time is real; "
            "profile it to see what it waits for."
        )
        yield Check(NAME, Level.NOTE, text, {**figures, "idle_turns": float(idle)}, (arm.arm.name,))
    elif not dirty:
        text = f"Nothing disturbed the {count(len(turns), 'turn')} of {name_of(arm)}."
        yield Check(NAME, Level.OK, text, figures, (arm.arm.name,))


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
        f"{'was' if dirty == 1 else 'were'} disturbed{', among others' * (len(causes) > 1)} by "
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


NOISE = FunctionRule(NAME, "R15: host noise gate", _judge)
