"""What the long benchmarks share: an order fair at every moment, and trials until the end."""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import TypeVar

from aa_journal import Journal, Row
from aa_load import OthersCpu, busy_core

T = TypeVar("T")

INTERRUPTED = 130
LEAST_CORES = 2
MOST_FAILURES = 3
"""In a row: something is wrong that more trials will not mend."""
MOST_OTHERS = 0.15
"""Cores that other processes may use during a trial; beyond it the trial is set aside, whatever
it found, and made again. An idle system uses 0.01 to 0.03."""
ORDER_SEED = 20


def mixed(counts: Mapping[T, int]) -> list[tuple[T, int]]:
    """Every key as often as it says, with its number, in a random order that keeps them in step.

    Slow drift of the machine then falls on all alike, and a run cut short is still balanced.
    Seeded: the same order after a restart.
    """
    chance = random.Random(ORDER_SEED)
    placed = [
        ((i + chance.random()) / count, key, i)
        for key, count in counts.items()
        for i in range(count)
    ]
    placed.sort(key=lambda one: one[0])
    return [(key, i) for _, key, i in placed]


def run_trials(
    waiting: Sequence[T],
    args: argparse.Namespace,
    journal: Journal,
    attempt: Callable[[T], Row | None],
    about: Callable[[T], Row],
) -> None:
    """Each trial to the journal, disturbed ones apart, until all are done or the time is over."""
    failures = 0
    for count, trial in within_minutes(waiting, args.max_minutes):
        others = OthersCpu()
        with busy_core(args.load and not args.load_outside):
            found = attempted(attempt, trial)
        cores = others.cores()
        if found is None:
            raise KeyboardInterrupt
        row = {**about(trial), "others_cpu": cores, **found}
        if is_disturbed(cores, args):
            journal.append({**row, "kind": "disturbed"})
            say(f"{count}/{len(waiting)} {trial}: set aside, others used {cores:.2f} cores")
            continue
        journal.append(row)
        failures = failures + 1 if "error" in found else 0
        say(f"{count}/{len(waiting)} {trial}: {found.get('verdict') or found.get('error', 'done')}")
        if failures == MOST_FAILURES:
            raise SystemExit(f"{failures} trials in a row failed; see {args.out}.")


def attempted(attempt: Callable[[T], Row | None], trial: T) -> Row | None:
    """What it found, or its error: a tool that fails is a result too, and ends no night."""
    try:
        return attempt(trial)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def wall_of_ours(rows: Iterable[Row], budget: float) -> float:
    """What the other tools get: the mean wall time of our trials so far, all of it."""
    walls = [row["wall_s"] for row in rows if row["tool"] == "ours" and not row.get("error")]
    return fmean(walls) if walls else budget


def is_disturbed(cores: float | None, args: argparse.Namespace) -> bool:
    """Whether other programs used more, or with `--load-outside` less, than they should."""
    if cores is None:
        return False
    least, most = 0.0, args.most_others
    if args.load_outside:
        least, most = 1.0 - most, 1.0 + most
    return not least <= cores <= most


def check_cores(load_outside: bool) -> None:
    """A quiet trial has a core for the step and one for the rest, or it is not quiet."""
    allowed = len(os.sched_getaffinity(0))
    if allowed < LEAST_CORES and not load_outside:
        raise SystemExit(f"Only {allowed} core may be used here (taskset -pc $$): no quiet trial.")


def within_minutes(waiting: Sequence[T], minutes: float | None) -> Iterator[tuple[int, T]]:
    """Number and item, until the time is over; no item starts after that."""
    started = time.monotonic()
    for count, item in enumerate(waiting, start=1):
        if minutes is not None and time.monotonic() - started > 60 * minutes:
            say(f"{minutes:g} minutes are over; {len(waiting) - count + 1} left for the next run.")
            return
        yield count, item


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def words_of(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def ints_of(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in words_of(text))


def floats_of(text: str) -> tuple[float, ...]:
    return tuple(float(word) for word in words_of(text))


def known(given: tuple[T, ...], possible: Sequence[T]) -> tuple[T, ...]:
    """The given values, or a message that names the possible ones."""
    for value in given:
        if value not in possible:
            raise argparse.ArgumentTypeError(f"{value} is none of {', '.join(map(str, possible))}")
    return given


def load_options(one: argparse.ArgumentParser) -> None:
    """What every long command takes: load, disturbance, time."""
    one.add_argument("--load", action="store_true", help="keep one core busy (not pinned)")
    text = "cores that other programs may use during a trial; inf: any"
    one.add_argument("--most-others", type=float, default=MOST_OTHERS, help=text)
    text = "with --load: other programs keep one core busy already; a trial in which they used"
    text += " more or less than one core, beyond --most-others, is set aside"
    one.add_argument("--load-outside", action="store_true", help=text)
    one.add_argument("--max-minutes", type=float, help="start nothing after this long")


def to_the_end(run: Callable[[argparse.Namespace], None], args: argparse.Namespace) -> None:
    """Ctrl-C keeps every finished trial."""
    try:
        run(args)
    except KeyboardInterrupt:
        say("Interrupted. Run the same command again to go on.")
        sys.exit(INTERRUPTED)
