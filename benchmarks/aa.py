"""How often is a verdict right? Identical arms and known slow-downs, for us and for others.

    aa.py live      whole trials of every tool, in random order, resumable
    aa.py record    pools of replicates under other conditions, resumable
    aa.py pools     every estimator and layout, by resampling recorded replicates
    aa.py report    the table, with the aims beside it

Without a command: `live`, then `report`.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from aa_common import (
    check_cores,
    floats_of,
    ints_of,
    known,
    load_options,
    mixed,
    run_trials,
    say,
    to_the_end,
    wall_of_ours,
    within_minutes,
    words_of,
)
from aa_journal import Journal, Row, read_rows
from aa_load import Size, busy_core, calibrate, fits
from aa_ours import judged_again, run_ours
from aa_peers import run_pyperf, run_torch
from aa_pools import NAMES, Design, Rules, as_data, evaluate, load_pools, pools_table
from aa_record import Session, Sessions, open_session
from aa_report import TOOLS, report
from aa_targets import EFFECTS

LIVE_STEP, LIVE_THREADS = "5ms", 1


@dataclass(frozen=True)
class Trial:
    """One comparison by one tool."""

    tool: str
    effect: int
    load: bool
    trial: int


def live(args: argparse.Namespace) -> None:
    """Trials until all are done or the time is over; a restart goes on where it stopped."""
    check_cores(args.load_outside)
    with Journal(args.out) as journal:
        names = ("budget", "replicates", "work")
        journal.must_match("live", {name: getattr(args, name) for name in names})
        size = pinned_size(journal, LIVE_STEP, LIVE_THREADS, args.work)
        say(f"{size.units} units of {1e6 * size.unit_s:.2f} us a step; one thread; {args.out}")
        plan = schedule(args.tools, args.effects, args.load, args.trials, args.peer_trials)
        done = {
            trial_of(row)
            for row in journal.rows
            if row["kind"] == "trial" and not (args.retry_failed and row.get("error"))
        }
        waiting = [trial for trial in plan if trial not in done]
        run_trials(
            waiting,
            args,
            journal,
            lambda trial: attempt(trial, size, args, journal.rows),
            lambda trial: about(trial, size),
        )


def attempt(trial: Trial, size: Size, args: argparse.Namespace, rows: Sequence[Row]) -> Row | None:
    """The trial's figures; None when interrupted."""
    same = [row for row in rows if row["kind"] == "trial" and row["load"] == trial.load]
    if trial.tool == "ours":
        return run_ours(size, trial.effect, trial.trial, args.budget, args.replicates)
    wall = wall_of_ours(same, args.budget)
    if trial.tool == "torch":
        return run_torch(size, trial.effect, wall)
    return run_pyperf(size, trial.effect, wall, [r for r in same if r["tool"] == "pyperf"])


def schedule(
    tools: Sequence[str], effects: Sequence[int], load: bool, trials: int, peer_trials: int
) -> list[Trial]:
    """All trials, tools and effects in step (`mixed`).

    The very first is ours, so that the others know how long they may take.
    """
    counts = {
        (tool, effect): trials if tool == "ours" else peer_trials
        for tool in tools
        for effect in effects
    }
    order = [Trial(tool, effect, load, i) for (tool, effect), i in mixed(counts)]
    first = next((i for i, trial in enumerate(order) if trial.tool == "ours"), 0)
    return order[first : first + 1] + order[:first] + order[first + 1 :]


def record(args: argparse.Namespace) -> None:
    """Replicates of every condition in turn, until each has its number."""
    with Journal(args.out) as journal, ExitStack() as stack:
        settings = {"seconds": args.seconds, "turn_ms": args.turn_ms, "work": args.work}
        journal.must_match("record", settings)
        sizes = [
            pinned_size(journal, step, threads, args.work)
            for step in args.steps
            for threads in args.threads
        ]
        for size in sizes:
            if not fits(size):
                say(f"left out: {size.step} with {size.threads} threads; a step would be too long")
        kept = [size for size in sizes if fits(size)]
        done = {condition_of(row) for row in journal.rows if row["kind"] == "replicate"}
        waiting = []
        for index in range(args.replicates):
            random.Random(index).shuffle(kept)
            waiting += [(size, index) for size in kept]
        waiting = [
            (size, index)
            for size, index in waiting
            if any((*key_of(size, e, args.load), index) not in done for e in args.effects)
        ]

        def make(stack: ExitStack, size: Size) -> Session:
            # A seed of its own for every start, or a resumed run would repeat its turns' order.
            seed = random.SystemRandom().randrange(2**31)
            return open_session(stack, size, args.effects, seed, args.seconds, args.turn_ms)

        sessions = Sessions(stack, make)
        for count, (size, index) in within_minutes(waiting, args.max_minutes):
            session = sessions.get(size)
            with busy_core(args.load):
                found = session.replicate(index)
            for effect, row in found.items():
                if (*key_of(size, effect, args.load), index) not in done:
                    trial = Trial("ours", effect, args.load, index)
                    journal.append({**about(trial, size), "kind": "replicate", **row})
            say(f"{count}/{len(waiting)} {size.step} x{size.threads} #{index}")


def pools(args: argparse.Namespace) -> None:
    """Evaluate every estimator under every layout."""
    loaded = load_pools(read_rows(args.files))
    designs = [
        Design(replicates, turns, turn_ms)
        for replicates in args.replicates
        for turns in args.turns
        for turn_ms in args.turn_ms
    ]
    rules = [Rules(args.alpha, margin, args.aa_floor) for margin in args.margins]
    cells = []
    for condition in sorted(loaded, key=str):
        pool = loaded[condition]
        turns = sorted(len(pair.turns) for pair in pool)
        say(f"{condition}: {len(pool)} replicates of {turns[0]} to {turns[-1]} turns")
        found = evaluate(condition, pool, designs, args.estimators, rules, args.resamples)
        cells += list(found)
    if args.json:
        print(json.dumps([as_data(cell) for cell in cells], indent=1))
    else:
        print(pools_table(cells, args.markdown))


def show_report(args: argparse.Namespace) -> None:
    rows = list(read_rows(args.files))
    if args.evaluate_again:
        rows = [judged_again(row) for row in rows]
    print(report(rows, args.markdown))


def live_and_report(args: argparse.Namespace) -> None:
    """What `make bench` runs."""
    live(args)
    print(report(list(read_rows([args.out]))))


def pinned_size(journal: Journal, step: str, threads: int, work: str) -> Size:
    """The size of a step, measured once for the whole file."""
    name = f"size {step} x{threads}"
    return Size(**journal.pinned(name, lambda: calibrate(step, threads, work)))


def about(trial: Trial, size: Size) -> Row:
    """What every row says."""
    return {
        "kind": "trial",
        **asdict(trial),
        "step": size.step,
        "threads": size.threads,
        "true_ratio": (100 + trial.effect) / 100,
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def trial_of(row: Row) -> Trial:
    return Trial(row["tool"], row["effect"], row["load"], row["trial"])


def key_of(size: Size, effect: int, load: bool) -> tuple[str, int, int, bool]:
    return size.step, size.threads, effect, load


def condition_of(row: Row) -> tuple[str, int, int, bool, int]:
    return row["step"], row["threads"], row["effect"], row["load"], row["trial"]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    main = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    live_options(main)
    main.set_defaults(run=live_and_report)
    commands = main.add_subparsers(metavar="COMMAND")
    one = commands.add_parser("live", help="whole trials of every tool")
    live_options(one)
    one.set_defaults(run=live)
    record_options(commands.add_parser("record", help="pools under other conditions"))
    pools_options(commands.add_parser("pools", help="estimators and layouts by resampling"))
    one = commands.add_parser("report", help="the table of live trials")
    one.add_argument("files", nargs="+", type=Path, metavar="FILE")
    one.add_argument("--markdown", action="store_true")
    text = "give our trials the verdicts of today's statistics, from their recorded samples"
    one.add_argument("--evaluate-again", action="store_true", help=text)
    one.set_defaults(run=show_report)
    return main


def live_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("--trials", type=int, default=40, help="of ours, per effect")
    one.add_argument("--peer-trials", type=int, default=20, help="of each other tool, per effect")
    one.add_argument("--effects", type=effects_of, default=(0, 2, 5), help="0,2,5 (per cent)")
    one.add_argument("--budget", type=float, default=30.0, help="seconds, ours")
    one.add_argument("--replicates", type=int, help="processes an arm, ours; else as planned")
    one.add_argument("--tools", type=tools_of, default=TOOLS, help="ours,torch,pyperf")
    one.add_argument("--retry-failed", action="store_true", help="try failed trials again")
    one.add_argument("--out", type=Path, default=Path("build/aa.jsonl"))
    load_options(one)
    work_option(one)


def record_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("--steps", type=words_of, default=("0.2ms", "5ms", "100ms"))
    one.add_argument("--threads", type=ints_of, default=(1, 2))
    one.add_argument("--effects", type=effects_of, default=EFFECTS)
    one.add_argument("--replicates", type=int, default=24, help="per condition")
    one.add_argument("--seconds", type=float, default=4.0, help="turns of one replicate take")
    one.add_argument("--turn-ms", type=float, default=60.0, help="the shortest turn")
    one.add_argument("--out", type=Path, default=Path("build/aa-pools.jsonl"))
    one.add_argument("--load", action="store_true", help="keep one core busy (not pinned)")
    one.add_argument("--max-minutes", type=float, help="start nothing after this long")
    work_option(one)
    one.set_defaults(run=record)


def work_option(one: argparse.ArgumentParser) -> None:
    one.add_argument("--work", choices=("torch", "python"), default="torch")


def pools_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("files", nargs="+", type=Path, metavar="FILE")
    one.add_argument("--estimators", type=estimators_of, default=NAMES)
    one.add_argument("--replicates", type=ints_of, default=(4, 6, 8, 12))
    one.add_argument("--turns", type=counts_of, default=(8, 16, None), help="8,16,all")
    one.add_argument("--turn-ms", type=lengths_of, default=(None,), help="20,40,whole")
    one.add_argument("--margins", type=floats_of, default=(0.02,))
    one.add_argument("--alpha", type=float, default=0.05)
    one.add_argument("--aa-floor", type=float, default=0.005)
    one.add_argument("--resamples", type=int, default=500)
    one.add_argument("--markdown", action="store_true")
    one.add_argument("--json", action="store_true")
    one.set_defaults(run=pools)


def counts_of(text: str) -> tuple[int | None, ...]:
    return tuple(None if word == "all" else int(word) for word in words_of(text))


def lengths_of(text: str) -> tuple[float | None, ...]:
    return tuple(None if word == "whole" else float(word) for word in words_of(text))


def effects_of(text: str) -> tuple[int, ...]:
    return known(ints_of(text), EFFECTS)


def tools_of(text: str) -> tuple[str, ...]:
    return known(words_of(text), TOOLS)


def estimators_of(text: str) -> tuple[str, ...]:
    return known(words_of(text), NAMES)


def main() -> None:
    args = parser().parse_args()
    to_the_end(args.run, args)


if __name__ == "__main__":
    main()
