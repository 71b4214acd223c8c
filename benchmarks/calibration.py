"""Is the calibration right? Its fp32 peak against a plain loop, memory against caches, the clock.

All in one run and interleaved: short turns of the calibration's fp32 peak and of a plain loop of
matrix products come in random order, with a whole calibration in their middle, so that a slow
minute of the machine falls on all of them. On a shared machine every figure only ever falls short,
so bests are compared with bests.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from aa_report import table

from torchstone.machine.calibrate import calibrate, make_request
from torchstone.machine.calibrate.request import SECONDS, cache_rival
from torchstone.machine.processes import usable_cores
from torchstone.records import DRAM, Calibration, to_data

WITHIN = 0.10
"""The aim: the calibrated peak lies this near to the plain loop's best."""
SIDES = (256, 384, 512)
WHOLE, ALONE, PLAIN = "whole calibration", "fp32 peak alone", "plain loop"


@dataclass(frozen=True)
class Reached:
    """What one way of measuring reached at one thread count, in FLOP/s."""

    by: str
    threads: int
    best: float
    turns: int
    usual: float
    """The median over turns of each turn's best."""
    spread: float
    """How far the median sample lies under the best, as a share; the median over turns."""
    samples: int


@dataclass(frozen=True)
class Aim:
    """What is asked, what was seen."""

    what: str
    seen: str
    met: bool


@dataclass(frozen=True)
class Turn:
    """One turn of one way."""

    best: float
    spread: float
    samples: int


def plain_turn(threads: int, seconds: float) -> Turn:
    """The loop that anybody would write: multiply, look at the clock, keep the best."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    rates: list[float] = []
    operands = [(n, torch.randn(n, n), torch.randn(n, n)) for n in SIDES]
    end = perf_counter() + seconds
    while perf_counter() < end:
        for n, a, b in operands:
            start = perf_counter()
            a @ b
            rates.append(2 * n**3 / (perf_counter() - start))
    torch.set_num_threads(before)
    return Turn(max(rates), 1 - median(rates) / max(rates), len(rates))


def our_turn(threads: int, seconds: float) -> Turn:
    """The calibration's own fp32 peak, as it is measured again beside a suspicious figure."""
    return turn_of(calibrate(make_request(only=[("fp32", threads)], seconds=seconds)), threads)


def turn_of(calibration: Calibration, threads: int) -> Turn:
    peak = calibration.peak("fp32", threads)
    if peak is None:
        raise RuntimeError(f"no fp32 peak at {threads} threads: {calibration.notes}")
    return Turn(peak.value, peak.spread, peak.samples)


def summed(by: str, threads: int, turns: Sequence[Turn]) -> Reached:
    return Reached(
        by,
        threads,
        max(turn.best for turn in turns),
        len(turns),
        median(turn.best for turn in turns),
        median(turn.spread for turn in turns),
        sum(turn.samples for turn in turns),
    )


def measure(
    counts: Sequence[int], rounds: int, turn_s: float, whole_s: float
) -> tuple[Calibration, list[Reached]]:
    """All turns in random order, the whole calibration in the middle."""
    chance = random.Random(1)
    turns: dict[tuple[str, int], list[Turn]] = {}
    whole: Calibration | None = None
    for number in range(rounds):
        if number == rounds // 2:
            whole = calibrate(make_request(threads=counts, seconds=whole_s))
        order = [(by, threads) for by in (ALONE, PLAIN) for threads in counts]
        chance.shuffle(order)
        for by, threads in order:
            take = our_turn if by == ALONE else plain_turn
            turns.setdefault((by, threads), []).append(take(threads, turn_s))
    assert whole is not None
    found = []
    for threads in counts:
        found.append(summed(WHOLE, threads, [turn_of(whole, threads)]))
        found += [summed(by, threads, turns[by, threads]) for by in (ALONE, PLAIN)]
    return whole, found


def aims(whole: Calibration, found: Sequence[Reached]) -> list[Aim]:
    """Evaluated: the peaks, the memory."""
    evaluated = []
    best = {(one.by, one.threads): one.best for one in found}
    for threads in sorted({one.threads for one in found}):
        ratio = best[WHOLE, threads] / best[PLAIN, threads]
        evaluated.append(
            Aim(
                f"fp32 peak within {WITHIN:.0%} of a plain loop, {_threads(threads)}",
                f"{ratio:.3f}",
                abs(ratio - 1) <= WITHIN,
            )
        )
    for peak in whole.bandwidth:
        if peak.level == DRAM:
            cached = cache_rival(peak, whole.bandwidth)
            most = cached.value if cached is not None else 0.0
            evaluated.append(
                Aim(
                    f"DRAM not above caches, {_kernel(peak.note)}, {_threads(peak.threads)}",
                    f"{peak.value / 1e9:.1f} against {most / 1e9:.1f} GB/s",
                    0 < peak.value <= most,
                )
            )
    dropped = [note for note in whole.notes if "dropped" in note]
    evaluated += [Aim("DRAM not above caches", note, False) for note in dropped]
    return evaluated


def _threads(count: int) -> str:
    return f"{count} thread{'' if count == 1 else 's'}"


def _kernel(note: str) -> str:
    return note.split(",")[0]


def text_of(
    whole: Calibration, found: Sequence[Reached], evaluated: Sequence[Aim], markdown: bool
) -> str:
    """Four tables."""
    peaks = [
        (
            one.by,
            str(one.threads),
            f"{one.best / 1e9:.1f}",
            f"{one.usual / 1e9:.1f}",
            str(one.turns),
            f"{one.spread:.0%}",
            str(one.samples),
        )
        for one in found
    ]
    head = ("fp32, GFLOP/s", "threads", "best", "usual turn", "turns", "spread", "samples")
    ceilings = [
        (
            peak.dtype or f"{peak.level} {_kernel(peak.note)}",
            str(peak.threads),
            f"{peak.value / 1e9:.1f}",
            f"{peak.spread:.0%}",
            str(peak.samples),
            _size(peak),
        )
        for peak in (*whole.compute, *whole.bandwidth)
    ]
    roof_head = ("roof", "threads", "GFLOP/s or GB/s", "spread", "samples", "each array")
    verdicts = [(aim.what, aim.seen, "met" if aim.met else "not met") for aim in evaluated]
    parts = [
        table(head, peaks, markdown),
        table(roof_head, ceilings, markdown),
        table(("what", "figure", "spread", "samples"), list(_small(whole)), markdown),
        table(("aim", "seen", "verdict"), verdicts, markdown),
        *(f"note: {note}" for note in whole.notes),
        f"the whole calibration took {whole.took_s:.1f} s",
    ]
    return "\n\n".join(parts)


def _size(peak: object) -> str:
    size = getattr(peak, "array_bytes", 0)
    return "" if not size else f"{size / 2**20:.3g} MiB"


def _small(whole: Calibration) -> Iterable[tuple[str, str, str, str]]:
    clock, nominal = whole.clock, whole.nominal_clock_hz
    if clock is not None:
        yield "clock", f"{clock.value / 1e9:.3f} GHz", f"{clock.spread:.1%}", str(clock.samples)
    if nominal is not None:
        yield "clock by the system", f"{nominal / 1e9:.3f} GHz", "", ""
    if clock is not None and nominal is not None:
        yield "ratio of the two", f"{clock.value / nominal:.3f}", "", ""
    for name, cost in whole.costs.items():
        yield name, f"{cost.value * 1e9:.1f} ns", f"{cost.spread:.0%}", str(cost.samples)


def main() -> None:
    """Measure, print; exit code 1 if an aim is not met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short turns: shows that it works")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    args = parser.parse_args()
    counts = tuple(dict.fromkeys((1, usable_cores())))
    settings = (2, 0.05, 0.5) if args.quick else (max(1, args.rounds), 0.7, SECONDS)
    whole, found = measure(counts, *settings)
    evaluated = aims(whole, found)
    data = json.dumps(
        {
            "reached": [asdict(one) for one in found],
            "aims": [asdict(aim) for aim in evaluated],
            "calibration": to_data(whole),
        },
        indent=1,
    )
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(data + "\n", encoding="utf-8")
    print(data if args.json else text_of(whole, found, evaluated, args.markdown))
    sys.exit(0 if all(aim.met for aim in evaluated) else 1)


if __name__ == "__main__":
    main()
