"""How often is a verdict right on real models? Ours, the usual way, and `torch.utils.benchmark`.

aa_real.py live      whole trials of every tool, in random order, resumable
aa_real.py record    whole replicates of every condition to a file, resumable
aa_real.py pools     estimators compared by resampling recorded replicates
aa_real.py report    the table of live trials, with the aims beside it
"""

from __future__ import annotations

import argparse
import inspect
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from aa_common import (
    check_cores,
    ints_of,
    known,
    load_options,
    mixed,
    run_trials,
    say,
    to_the_end,
    wall_of_ours,
    words_of,
)
from aa_journal import Journal, Row, read_rows
from aa_models import CALLS, KNOWN, MODELS, environment
from aa_ours import run_bench
from aa_pairs import ESTIMATORS
from aa_pools import Rules
from aa_real_pools import Design, evaluate, load_pools, scores_table, summary_table
from aa_real_record import Batch, Setup, can_be_together, record_batch
from aa_report import EXPLAINED, HEAD, STAR, Aims, aims, cells, summarise, table
from aa_usual import WAYS, run_way

import torchstone
from torchstone.records import ALLOCATORS

TOOLS = ("ours", *WAYS)
AIMS = {10.0: Aims({10: 0.95, 5: 0.80}, 0.03), 30.0: Aims({5: 0.95, 3: 0.70}, 0.015)}
"""By budget in seconds."""
DESIGNS = "4x2.5,8x3.75,12x2.5"
TOGETHER = {"no": (False,), "yes": (True,), "both": (False, True)}


@dataclass(frozen=True)
class Trial:
    """One comparison by one tool."""

    tool: str
    model: str
    effect: int
    load: bool
    trial: int


def live(args: argparse.Namespace) -> None:
    """Trials until all are done or the time is over; a restart goes on where it stopped."""
    check_cores(args.load_outside)
    options = bench_options(args.allocator, args.together)
    with Journal(args.out) as journal:
        settings = {"budget": args.budget, "threads": args.threads, **options}
        journal.must_match("live", settings)
        plan = schedule(args)
        done = {
            trial_of(row)
            for row in journal.rows
            if row["kind"] == "trial" and not (args.retry_failed and row.get("error"))
        }
        run_trials(
            [trial for trial in plan if trial not in done],
            args,
            journal,
            lambda trial: attempt(trial, args, options, journal.rows),
            lambda trial: about("trial", trial, args.threads, options),
        )


def bench_options(allocator: str | None, together: bool) -> dict[str, Any]:
    """What `bench` is told, or would choose by itself; refused where it has no such option."""
    options: dict[str, Any] = {"allocator": allocator, "together": together or None}
    parameters = inspect.signature(torchstone.bench).parameters
    for name, value in options.items():
        if name in parameters:
            options[name] = parameters[name].default if value is None else value
        elif value is not None:
            raise SystemExit(f"This version of torchstone.bench has no option {name!r}.")
        else:
            options[name] = False
    return options


def attempt(
    trial: Trial, args: argparse.Namespace, options: dict[str, Any], rows: Sequence[Row]
) -> Row | None:
    """The trial's figures; None when interrupted."""
    seed = 1000 * trial.trial + trial.effect
    if trial.tool != "ours":
        same = [r for r in rows if r["kind"] == "trial" and r["load"] == trial.load]
        wall = wall_of_ours([r for r in same if r["model"] == trial.model], args.budget)
        return run_way(trial.tool, trial.model, trial.effect, args.threads, wall, seed)
    parameters = inspect.signature(torchstone.bench).parameters
    return run_bench(
        *MODELS[trial.model].arms(),
        threads=args.threads,
        env=environment(trial.model, trial.effect, args.threads),
        budget=args.budget,
        seed=seed,
        **{name: value for name, value in options.items() if name in parameters},
    )


def schedule(args: argparse.Namespace) -> list[Trial]:
    """All trials, in step; of each model one of ours first, which tells the others their time."""
    counts = {
        (tool, model, effect): args.trials if tool == "ours" else args.peer_trials
        for tool in args.tools
        for model in args.models
        for effect in args.effects
    }
    order = [Trial(*key[:3], args.load, i) for key, i in mixed(counts)]
    first = []
    for model in args.models:
        mine = [one for one in order if (one.tool, one.model) == ("ours", model)]
        first += mine[:1]
    return first + [one for one in order if one not in first]


def about(kind: str, trial: Trial, threads: int, options: dict[str, Any]) -> Row:
    """What every row says."""
    return {
        "kind": kind,
        **asdict(trial),
        "threads": threads,
        **options,
        "true_ratio": MODELS[trial.model].truth(trial.effect),
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def trial_of(row: Row) -> Trial:
    return Trial(row["tool"], row["model"], row["effect"], row["load"], row["trial"])


def record(args: argparse.Namespace) -> None:
    """Batches of every condition in turn, until each has its number of replicates."""
    check_cores(args.load_outside)
    with Journal(args.out) as journal:
        journal.must_match("record", {"batch": args.batch, "seconds": args.seconds})
        done = {
            batch_of(row) for row in journal.rows if row["kind"] == "replicates" and "raw" in row
        }
        waiting = [batch for batch in batches(args) if batch not in done]

        def make(batch: Batch) -> Row | None:
            # A seed of its own for every batch, or a resumed run would repeat its turns' order.
            seed = random.SystemRandom().randrange(2**31)
            return record_batch(batch, args.batch, args.seconds, seed)

        def what(batch: Batch) -> Row:
            trial = Trial("ours", batch.setup.model, batch.effect, args.load, batch.number)
            return about("replicates", trial, batch.setup.threads, asdict(batch.setup))

        run_trials(waiting, args, journal, make, what)


def batches(args: argparse.Namespace) -> list[Batch]:
    """Every condition's batches in a fixed random order, number by number."""
    wanted = TOGETHER[args.together]
    if True in wanted and not can_be_together():
        say("left out: both arms in one process, which this version cannot do")
        wanted = (False,)
    setups = [
        Setup(model, threads, args.load, together, allocator)
        for model in args.models
        for threads in args.threads
        for together in wanted
        for allocator in args.allocators
        if allocator != "default" or model in (args.default_models or args.models)
    ]
    counts = {
        (setup, effect): -(-args.replicates // args.batch)
        for setup in setups
        for effect in ((0,) if MODELS[setup.model].whole else args.effects)
    }
    return [Batch(setup, effect, number) for (setup, effect), number in mixed(counts)]


def batch_of(row: Row) -> Batch:
    setup = Setup(**{name: row[name] for name in Setup.__dataclass_fields__})
    return Batch(setup, row["effect"], row["trial"])


def pools(args: argparse.Namespace) -> None:
    """Evaluate every estimator in every setup."""
    rules = Rules(args.alpha, args.margin, args.aa_floor)
    scores = []
    loaded = load_pools(read_rows(args.files))
    for setup in sorted(loaded, key=str):
        pool = loaded[setup]
        if args.models and setup.model not in args.models:
            continue
        sizes = ", ".join(f"{len(pool[effect])} at {effect} %" for effect in sorted(pool))
        say(f"{setup}: replicates: {sizes}")
        found = evaluate(
            setup, pool, args.designs, args.estimators, rules, args.resamples, args.own
        )
        scores += [one for one in found if args.floor in ("both", "yes" if one.floored else "no")]
    if not args.summary:
        print(scores_table(scores, args.markdown) + "\n")
    print(summary_table(scores, args.markdown))


def show_report(args: argparse.Namespace) -> None:
    print(report(list(read_rows(args.files)), args.markdown))


def report(rows: Iterable[Row], markdown: bool = False) -> str:
    """The table by model, and the aims by model and over all."""
    rows = list(rows)
    trials = [row for row in rows if row["kind"] == "trial"]
    budget = next(
        (r["value"]["budget"] for r in rows if r["kind"] == "pin" and r["name"] == "live"), 0.0
    )
    asked = AIMS.get(budget, Aims({}))
    groups: dict[str, list[Row]] = {}
    for row in trials:
        groups.setdefault(f"{row['model']}, x{row['threads']}", []).append(row)
    groups["all"] = trials
    body, evaluated = [], []
    for name, of_name in groups.items():
        lines = summarise(of_name)
        body += [(name, *cells(line)) for line in lines]
        evaluated += [(name, *one) for one in aims(lines, asked)]
    text = [table(("model", *HEAD), body, markdown), "", f"Budget {budget:g} s. {EXPLAINED}", ""]
    head = ("model", "aim", "where", "seen", "verdict")
    return "\n".join([*text, table(head, evaluated, markdown), "", STAR])


def parser() -> argparse.ArgumentParser:
    """The command line."""
    main = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = main.add_subparsers(metavar="COMMAND", required=True)
    live_options(commands.add_parser("live", help="whole trials of every tool"))
    record_options(commands.add_parser("record", help="replicates of every condition"))
    pools_options(commands.add_parser("pools", help="estimators by resampling"))
    one = commands.add_parser("report", help="the table of live trials")
    one.add_argument("files", nargs="+", type=Path, metavar="FILE")
    one.add_argument("--markdown", action="store_true")
    one.set_defaults(run=show_report)
    return main


def live_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("--models", type=known_models, default=("bert", "mobilenet"))
    one.add_argument("--effects", type=effects_of, default=(0, 5), help="of 0,3,5,10 (per cent)")
    one.add_argument("--threads", type=int, default=1)
    one.add_argument("--trials", type=int, default=30, help="of ours, per model and effect")
    one.add_argument("--peer-trials", type=int, default=15, help="of each other way")
    one.add_argument("--budget", type=float, default=10.0, help="seconds, ours")
    one.add_argument("--tools", type=tools_of, default=TOOLS, help=",".join(TOOLS))
    one.add_argument("--allocator", choices=ALLOCATORS, help="ours; else what bench chooses")
    one.add_argument("--together", action="store_true", help="ours: both arms in one process")
    one.add_argument("--retry-failed", action="store_true", help="try failed trials again")
    one.add_argument("--out", type=Path, default=Path("build/aa-real.jsonl"))
    load_options(one)
    one.set_defaults(run=live)


def record_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("--models", type=all_models, default=KNOWN, help=",".join(MODELS))
    one.add_argument("--effects", type=effects_of, default=tuple(CALLS))
    one.add_argument("--threads", type=ints_of, default=(1, 2))
    one.add_argument("--together", choices=tuple(TOGETHER), default="both")
    one.add_argument("--allocators", type=allocators_of, default=("keep",), help="keep,default")
    text = "only these with --allocators default"
    one.add_argument("--default-models", type=all_models, default=(), help=text)
    one.add_argument("--replicates", type=int, default=12, help="of each condition, at least")
    one.add_argument("--batch", type=int, default=6, help="replicates of one case")
    one.add_argument("--seconds", type=float, default=3.75, help="turns of one replicate take")
    one.add_argument("--out", type=Path, default=Path("build/aa-real-pools.jsonl"))
    load_options(one)
    one.set_defaults(run=record)


def pools_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("files", nargs="+", type=Path, metavar="FILE")
    one.add_argument("--models", type=all_models, default=())
    one.add_argument("--estimators", type=estimators_of, default=tuple(ESTIMATORS))
    text = f"processes x seconds of pairs in each ({DESIGNS}: 10 s, and twice 30 s)"
    one.add_argument("--designs", type=designs_of, default=designs_of(DESIGNS), help=text)
    one.add_argument("--own", action="store_true", help="draw each effect from its own replicates")
    text = "the variance over turns as a floor under that over processes"
    one.add_argument("--floor", choices=("both", "yes", "no"), default="both", help=text)
    one.add_argument("--alpha", type=float, default=0.05)
    one.add_argument("--margin", type=float, default=0.02)
    one.add_argument("--aa-floor", type=float, default=0.005)
    one.add_argument("--resamples", type=int, default=300)
    one.add_argument("--summary", action="store_true", help="only the table over all setups")
    one.add_argument("--markdown", action="store_true")
    one.set_defaults(run=pools)


def known_models(text: str) -> tuple[str, ...]:
    return known(words_of(text), KNOWN)


def all_models(text: str) -> tuple[str, ...]:
    names = tuple(MODELS) if text == "all" else words_of(text)
    return known(names, tuple(MODELS))


def effects_of(text: str) -> tuple[int, ...]:
    return known(ints_of(text), tuple(CALLS))


def tools_of(text: str) -> tuple[str, ...]:
    return known(words_of(text), TOOLS)


def allocators_of(text: str) -> tuple[str, ...]:
    return known(words_of(text), ALLOCATORS)


def estimators_of(text: str) -> tuple[str, ...]:
    return known(words_of(text), tuple(ESTIMATORS))


def designs_of(text: str) -> tuple[Design, ...]:
    """`4x2.5,8x3.75`."""
    parts = [word.split("x") for word in words_of(text)]
    return tuple(Design(int(processes), float(seconds)) for processes, seconds in parts)


def main() -> None:
    args = parser().parse_args()
    to_the_end(args.run, args)


if __name__ == "__main__":
    main()
