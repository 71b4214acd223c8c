"""Is the clock that the arm was timed with still a clock?

An arm's samples come from clocks inside its own process, which its code can change. The kernel
notes when the timed part of each turn began and ended, and what CPU time the process has used; code
in the process reaches neither. Samples, probes and the little that lies between them must fill that
time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from torchstone.records import Check, Measurement, Result, Turn, TwoClocks
from torchstone.records.format import count, format_seconds, percent
from torchstone.validate.base import arm_rule, cores, fail, is_step, name_of, ok, threads, warn

MEDIAN_WITHIN = 0.02
"""Of the turns of honest arms on a machine with three busy processes per core, the samples and
probes filled 99.2 to 99.9 % (median of an arm)."""
TOTAL_WITHIN = 0.05
"""Of all turns together, among which are the disturbed ones."""
BETWEEN_SAMPLES_NS = 5_000
"""Two readings of the CPU clock and the loop around a sample take 1 to 2 µs."""
BETWEEN_MARKS_NS = 200_000
"""Sending the marks, and reading the process's counters."""
MOST_WAITING = 0.10
"""A process that waits for a core between two samples adds to no sample. The kernel tells how long
it waited; so much of a turn at most may be missing for that."""
TURN_WITHIN = 0.5
"""A single turn that is off by more than this, and by `TURN_NS`, is worth a word."""
TURN_NS = 50_000_000
AHEAD_NS = 1_000_000
"""More than this, and 2 %, of what the kernel saw cannot have passed: a jump that fell between two
samples is one all the same."""
CPU_LESS, CPU_MORE = 0.75, 1.05
"""CPU time is held from command to reply: making inputs and writing the answer are in it too."""
CPU_PER_TURN_NS = 10_000_000
CPU_OF_STATEMENT = 0.25
"""A statement has no inputs to be made: of short turns this share at most, or turns of 20 ms would
hide a clock at 0.4 of its rate. The answer of such a turn took 1.1 ms."""
IMPOSSIBLE = 1.10
"""A sample with this many times the CPU time that its threads can use in its wall time."""
IMPOSSIBLE_NS = 20_000
IMPOSSIBLE_SHARE = 0.005
"""The floor rests on the fastest per cent of the samples: half of these."""
FEWEST_IMPOSSIBLE = 3
FASTEST_SHARE, FEWEST_FASTEST, OF_FASTEST = 0.01, 10, 0.5
"""The kernel adds the CPU time of a process's other threads at its ticks, 4 ms at a time at 250 Hz:
of an honest arm's samples of 0.6 ms on two threads, 16 % had seven samples' worth, none of them
among the fastest. With several threads only these are looked at, half of which must be so."""
BY_CHANCE = 3.0
"""Standard deviations."""
LONGER, FEWEST_LONGER = 1.05, 2
"""A sample lies between its two marks, so that it cannot take longer than the time between them."""
SHORTER, FEWEST_SHORTER, SHORTER_SHARE = 1.5, 3, 0.25
"""But a process may wait for a core between a mark and the sample: not in every fourth turn."""
SAMPLE_NS = 60_000
"""Sending two marks, on a busy machine."""

_REMEDY = "Remove what changes the clock; without a clock there is no time."


@dataclass(frozen=True)
class _Reading:
    """One turn: what the arm's clock makes of the time that the kernel says has passed."""

    claimed_ns: int
    least_ns: float
    """Claimed, with what may lie beside samples and probes."""
    kernel_ns: int


@arm_rule("second-clock", "clocks are not believed: each turn is timed by the kernel as well")
def second_clock(arm: Measurement, result: Result) -> Iterator[Check]:
    """Samples that do not add up to the time that the kernel says has passed."""
    turns = [(turn, turn.clocks) for turn in arm.turns if turn.clocks is not None]
    if not turns:
        return
    found = [*_wall(arm, turns), *_cpu(arm, [clocks for _, clocks in turns]), *_impossible(arm)]
    found += _single(arm, turns)
    yield from found[:1]  # one cause, one sentence
    if not found:
        readings = [_reading(arm, turn, clocks) for turn, clocks in turns]
        share = sum(one.claimed_ns for one in readings) / max(1, _kernel_ns(readings))
        yield ok(
            f"The kernel's clock agrees with the one that {name_of(arm)} was timed with.",
            turns=len(turns),
            share=share,
        )


def _kernel_ns(readings: list[_Reading]) -> int:
    return sum(one.kernel_ns for one in readings)


def _reading(arm: Measurement, turn: Turn, clocks: TwoClocks) -> _Reading:
    """Samples and probes where they fill the time between the marks. A statement's setup is not
    timed, and samples of CPU time are no wall time: then the worker's own reading of the whole."""
    if not _fills_the_time(arm):
        claimed = clocks.marked_worker_ns
        return _with(claimed, BETWEEN_MARKS_NS, turn, clocks)
    if turn.first_ns == 0 and len(turn.wall_ns) == 1:
        # One call after two readings of the probe, of which the second is kept.
        claimed = turn.wall_ns[0] + 2 * sum(turn.probe_ns[:1])
    else:
        claimed = turn.first_ns + sum(turn.wall_ns) + sum(turn.probe_ns)
    beside = BETWEEN_MARKS_NS + BETWEEN_SAMPLES_NS * (1 + len(turn.wall_ns))
    return _with(claimed, beside, turn, clocks)


def _fills_the_time(arm: Measurement) -> bool:
    """Whether samples and probes are all that goes on in a turn."""
    statement = arm.arm.statement
    return statement is None or (statement.setup.strip() == "pass" and statement.clock != "cpu")


def _with(claimed: int, beside: int, turn: Turn, clocks: TwoClocks) -> _Reading:
    kernel = clocks.marked_kernel_ns
    waited = min(turn.noise.wait_ns or 0, MOST_WAITING * kernel)
    return _Reading(claimed, claimed + beside + waited, kernel)


def _wall(arm: Measurement, turns: list[tuple[Turn, TwoClocks]]) -> Iterator[Check]:
    readings = [_reading(arm, turn, clocks) for turn, clocks in turns]
    readings = [one for one in readings if one.kernel_ns > 0]
    if not readings:
        return
    high = median((one.claimed_ns - BETWEEN_MARKS_NS) / one.kernel_ns for one in readings)
    low = median(one.least_ns / one.kernel_ns for one in readings)
    kernel = _kernel_ns(readings)
    total = sum(one.claimed_ns for one in readings) / kernel
    total_high = total - BETWEEN_MARKS_NS * len(readings) / kernel
    total_low = sum(one.least_ns for one in readings) / kernel
    off = [one for one in readings if _far_off(one)]
    figures = {"turns": len(readings), "share": total, "turns_off": len(off)}
    if ahead := [clocks for _, clocks in turns if _is_ahead(clocks)]:
        most = max(one.marked_worker_ns / max(1, one.marked_kernel_ns) for one in ahead)
        how = f"fast, or jumps ahead, in {count(len(ahead), 'turn')}"
        yield fail(_disagreement(arm, max(total, most), how), **figures, turns_ahead=len(ahead))
    elif high > 1 + MEDIAN_WITHIN or total_high > 1 + TOTAL_WITHIN:
        yield fail(_disagreement(arm, total, "fast, or jumps ahead"), **figures)
    elif low < 1 - MEDIAN_WITHIN or total_low < 1 - TOTAL_WITHIN:
        yield fail(_disagreement(arm, total, "slow, stops or jumps back"), **figures)
    elif off:
        worst = max(off, key=lambda one: abs(one.claimed_ns - one.kernel_ns))
        yield warn(
            f"In {len(off)} of {count(len(readings), 'turn')} of {name_of(arm)} the clock it was "
            f"timed with and the kernel's disagree, by up to "
            f"{format_seconds(abs(worst.claimed_ns - worst.kernel_ns) / 1e9, 3)}. Measure it again "
            "on a quiet machine; if it stays, look for code that changes the clock.",
            **figures,
        )


def _is_ahead(clocks: TwoClocks) -> bool:
    """The worker reads its clock after the first mark and before the last."""
    return clocks.marked_worker_ns > (1 + MEDIAN_WITHIN) * clocks.marked_kernel_ns + AHEAD_NS


def _far_off(one: _Reading) -> bool:
    beyond = max(one.claimed_ns - one.kernel_ns, one.kernel_ns - one.least_ns)
    return beyond > max(TURN_NS, TURN_WITHIN * one.kernel_ns)


def _disagreement(arm: Measurement, share: float, how: str) -> str:
    return (
        f"By the clock inside its process the turns of {name_of(arm)} took {percent(share)} of the "
        f"time that the kernel's clock shows: the clock there runs {how}, by the code of "
        f"{name_of(arm)} or of an arm in the same process. {_REMEDY}"
    )


def _cpu(arm: Measurement, turns: list[TwoClocks]) -> Iterator[Check]:
    """The clock of CPU time, which decides where a statement is timed by it."""
    known = [(t.cpu_worker_ns, t.cpu_conductor_ns) for t in turns if t.cpu_conductor_ns is not None]
    seen = sum(conductor for _, conductor in known)
    claimed = sum(worker for worker, _ in known)
    if not seen:
        return
    most = CPU_OF_STATEMENT if arm.arm.statement else math.inf
    beside = sum(min(CPU_PER_TURN_NS, most * conductor) for _, conductor in known)
    if CPU_LESS * seen - beside <= claimed <= CPU_MORE * seen + beside:
        return
    yield fail(
        f"By the clock inside its process {name_of(arm)} used {percent(claimed / seen)} of the CPU "
        "time that the kernel counted: the code of the arm, or of one in the same process, "
        f"changes the clock of CPU time. {_REMEDY}",
        cpu_share=claimed / seen,
    )


def _single(arm: Measurement, turns: list[tuple[Turn, TwoClocks]]) -> Iterator[Check]:
    """Samples that the kernel timed one by one. A clock that takes time from some samples and gives
    it to others adds up over a turn; here it does not."""
    if not _fills_the_time(arm):
        return
    pairs = [
        (turn.wall_ns[clocks.sample], clocks.sample_kernel_ns)
        for turn, clocks in turns
        if clocks.sample is not None
        and clocks.sample_kernel_ns is not None
        and clocks.sample < len(turn.wall_ns)
    ]
    more = sum(claimed > LONGER * kernel + SAMPLE_NS for claimed, kernel in pairs)
    less = sum(kernel > SHORTER * max(0, claimed) + SAMPLE_NS for claimed, kernel in pairs)
    if more < FEWEST_LONGER and less < max(FEWEST_SHORTER, SHORTER_SHARE * len(pairs)):
        return
    yield fail(
        f"Of {count(len(pairs), 'sample')} of {name_of(arm)} that the kernel timed one by one, "
        f"{more} took less time than the clock in its process shows, and {less} more: that clock "
        f"takes time from some samples and gives it to others. {_REMEDY}",
        samples=len(pairs),
        longer=more,
        shorter=less,
    )


def _impossible(arm: Measurement) -> Iterator[Check]:
    """Single samples with more CPU time than fits into their wall time. The sums do not show a
    clock that is changed in one sample of a hundred, and the floor rests on that one."""
    limit = threads(arm) or cores(arm)
    if limit is None or not is_step(arm) or arm.integrity is None or arm.integrity.new_threads:
        return
    pairs = [pair for turn in arm.turns for pair in zip(turn.wall_ns, turn.cpu_ns, strict=False)]
    which, share = "", IMPOSSIBLE_SHARE
    if limit > 1 and pairs:
        fastest = max(FEWEST_FASTEST, round(FASTEST_SHARE * len(pairs)))
        share = max(OF_FASTEST, _by_chance(_too_much(pairs, limit) / len(pairs), fastest))
        pairs, which = sorted(pairs)[:fastest], "the fastest "
    found = _too_much(pairs, limit)
    if found < max(FEWEST_IMPOSSIBLE, share * len(pairs)):
        return
    yield fail(
        f"{found} of {which}{count(len(pairs), 'sample')} of {name_of(arm)} have more CPU time "
        f"than {count(limit, 'thread')} can use in their wall time: the clock is changed while "
        f"they are timed. {_REMEDY}",
        impossible=found,
        samples=len(pairs),
    )


def _too_much(pairs: Sequence[tuple[int, int]], limit: int) -> int:
    """How many samples, of wall and CPU time, have more CPU time than fits."""
    return sum(cpu > IMPOSSIBLE * limit * max(0, wall) + IMPOSSIBLE_NS for wall, cpu in pairs)


def _by_chance(share: float, count: int) -> float:
    """The most of so many samples that ticks of the kernel reach, where they reach this share of
    all: of an honest step of 2.7 ms on two threads two thirds."""
    return share + BY_CHANCE * math.sqrt(share * (1 - share) / count)
