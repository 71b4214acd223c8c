"""What a suite costs, and how far its answers move: ours against the usual way.

    suite_cost.py [--rounds 3] [--models hf:DistilBertForMaskedLM@small,...] [--variants inductor]

The same models × variants, several rounds of each way in turn, resumable. Ours is one `torchstone
run` of all models under one variant, as a suite is run; a case's wall time is its share of the
run's. The usual way is two processes per case (accuracy, then performance: 30 interleaved repeats,
medians). `eager` is always among the variants: an A/A whose true speed-up is 1. Printed for both:
wall time per case over the cases that ended well by both ways, where the two differ in that, the
spread of the speed-up from round to round, and how far the A/A is from 1, pairs whose figure was
withheld included. Then the ratio of costs and errors, and where our time goes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aa_common import say, to_the_end, within_minutes
from aa_journal import Journal, Row, read_rows
from aa_report import table
from suite_ours import run_suite

HERE = Path(__file__).resolve().parent
MODELS = (
    "hf:DistilBertForMaskedLM@small",
    "timm:mobilenetv3_large_100@small",
    "torchbench:nanogpt@small",
)
WAYS = ("ours", "usual")
AA = "eager"
"""The variant that is the baseline itself."""


def measure(way: str, targets: Sequence[str], variant: str, args: argparse.Namespace) -> list[Row]:
    """The cases of one variant by one way: speed-ups, or why there is none, and wall times."""
    if way == "ours":
        found = run_suite(targets, variant, args.mode, args.budget, args.db)
        return [{"target": target, **found[target]} for target in targets]
    rows = []
    for target in targets:
        started = time.monotonic()
        made = usual(target, variant, args.mode)
        rows.append({"target": target, **made, "wall_s": time.monotonic() - started})
    return rows


def usual(target: str, variant: str, mode: str) -> Row:
    """Two processes with a fresh compile cache between them, as nightly jobs have it."""
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
        found: Row = {"outcome": "ok"}
        for what in ("accuracy", "performance"):
            done = subprocess.run(
                [sys.executable, str(HERE / "suite_usual.py"), what, target, variant, mode],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, check=False,
            )  # fmt: skip
            if done.returncode:
                return {"outcome": f"{what}: exit code {done.returncode}"}
            reply = json.loads(done.stdout.splitlines()[-1])
            if reply["outcome"] != "ok":
                return {"outcome": reply["outcome"]}
            found.update(reply)
    return found


def report(rows: list[Row]) -> str:
    """One line per case and way, then the totals."""
    body = []
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["target"], row["variant"], row["way"]), []).append(row)
    for (target, variant, way), cell in sorted(groups.items()):
        body.append(
            (
                target,
                variant,
                way,
                f"{sum(map(ended_well, cell))}/{len(cell)}",
                f"{statistics.fmean(r['wall_s'] for r in cell):.0f} s",
                " ".join(filter(None, map(figure, cell))),
                spread(cell, identical=variant == AA),
            )
        )
    head = ("case", "variant", "way", "ended well", "wall time", "speed-ups", "spread")
    return table(head, body, markdown=False) + "\n\n" + totals(rows)


def ended_well(row: Row) -> bool:
    """With a figure that is believed."""
    return row["outcome"] == "ok" and bool(row.get("speedup"))


def deviation(row: Row) -> float | None:
    """How far a pair is from 1 on the log scale, its figure withheld or not."""
    if row["outcome"] != "ok":
        return None
    if row.get("speedup"):
        return abs(math.log(row["speedup"]))
    return math.log1p(row["effect"]) if "effect" in row else None


def figure(row: Row) -> str:
    """The speed-up, or by how much identical arms were called different."""
    if row.get("speedup"):
        return f"{row['speedup']:.3f}" if row["outcome"] == "ok" else ""
    off = deviation(row)
    return f"(withheld: {off:.2%} off)" if off is not None else ""


def totals(rows: list[Row]) -> str:
    """What a case costs where both ways end well, beside each way's own A/A."""
    cells: dict[tuple[str, str, int], dict[str, Row]] = {}
    for row in rows:
        cells.setdefault((row["target"], row["variant"], row["round"]), {})[row["way"]] = row
    both = {key: pair for key, pair in cells.items() if len(pair) == len(WAYS)}
    common = [pair for pair in both.values() if all(map(ended_well, pair.values()))]
    lines = [f"ended well by both ways: {len(common)} of {len(both)} cases"]
    for way in WAYS:
        mine = [row for row in rows if row["way"] == way]
        if mine:
            wall = [pair[way]["wall_s"] for pair in common]
            cost = f"{statistics.fmean(wall):.0f} s a case" if wall else "no case to compare"
            lines.append("; ".join([f"{way}: {cost}", *identical_words(mine), *gaps(mine)]))
    return "\n".join([*lines, *uncovered(both), *ratios(rows, common), *time_spent(rows)])


def ratios(rows: list[Row], common: list[dict[str, Row]]) -> list[str]:
    """Our cost and our error on identical arms, each as a multiple of the usual way's."""
    words = []
    if common:
        costs = [statistics.fmean(pair[way]["wall_s"] for pair in common) for way in WAYS]
        words.append(f"cost {costs[0] / costs[1]:.2f}x the usual way's")
    off = [[d for row in identical(rows, way) if (d := deviation(row)) is not None] for way in WAYS]
    if all(off):
        spreads = [math.sqrt(statistics.fmean(x * x for x in one)) for one in off]
        if spreads[1] > 0.0:
            words.append(f"root mean square error on identical arms {spreads[0] / spreads[1]:.2f}x")
    return [f"ours: {', '.join(words)}"] if words else []


def time_spent(rows: list[Row]) -> list[str]:
    """Where a case's wall time goes by our way, longest first, where the results tell."""
    told = [row for row in rows if row.get("phases")]
    if not told:
        return []
    wall = statistics.fmean(row["wall_s"] for row in told)
    names = {name for row in told for name in row["phases"]}
    mean = {n: statistics.fmean(row["phases"].get(n, 0.0) for row in told) for n in names}
    mean["the rest"] = wall - sum(mean.values())
    order = sorted(mean, key=lambda name: -mean[name])
    return [
        f"where a case's {wall:.1f} s go (ours, {len(told)} cases): "
        + ", ".join(f"{name} {mean[name]:.1f} s ({mean[name] / wall:.0%})" for name in order)
    ]


def identical(rows: list[Row], way: str) -> list[Row]:
    return [row for row in rows if row["way"] == way and row["variant"] == AA]


def identical_words(rows: list[Row]) -> list[str]:
    """How identical arms fared; a way without verdicts calls none of them different."""
    pairs = [row for row in rows if row["variant"] == AA]
    off = [found for row in pairs if (found := deviation(row)) is not None]
    if not off:
        return []
    text = f"{len(off)} identical pairs off by {statistics.median(off):.2%} (median)"
    words = [f"{text}, {max(off):.2%} (worst)"]
    evaluated = [row for row in pairs if row.get("verdict") or "effect" in row]
    wrong = sum("effect" in row or row["verdict"] in ("faster", "slower") for row in evaluated)
    return [*words, f"called different {wrong} of {len(evaluated)}" if evaluated else "no verdicts"]


def gaps(rows: list[Row]) -> list[str]:
    """Cases that ended and have no figure for another reason."""
    left = [r for r in rows if r["outcome"] == "ok" and deviation(r) is None]
    if not left:
        return []
    rules = sorted({rule for row in left for rule in row.get("withheld", [])})
    why = f" ({', '.join(rules)})" if rules else ""
    return [f"{len(left)} more without a figure{why}"]


def uncovered(both: dict[tuple[str, str, int], dict[str, Row]]) -> list[str]:
    """The cases that one way alone brought to a good end: its cost is not compared for them."""
    lines = []
    for way in WAYS:
        lost = [
            f"{target} {variant} (round {index + 1}: {reason(pair[way])})"
            for (target, variant, index), pair in sorted(both.items())
            if not ended_well(pair[way])
            and any(ended_well(row) for other, row in pair.items() if other != way)
        ]
        if lost:
            lines.append(f"coverage differs: {way} alone does not end well in {', '.join(lost)}")
    return lines


def reason(row: Row) -> str:
    rules = ", ".join(row.get("withheld", []))
    return str(row["outcome"]) if row["outcome"] != "ok" else f"withheld by {rules or 'a check'}"


def spread(rows: list[Row], identical: bool = False) -> str:
    """Standard deviation of the log speed-up between rounds; of identical arms, about 1."""
    if identical:
        off = [found for row in rows if (found := deviation(row)) is not None]
        return f"{math.sqrt(statistics.fmean(x * x for x in off)):.2%}" if len(off) > 1 else "–"
    good = [math.log(row["speedup"]) for row in rows if ended_well(row)]
    return f"{statistics.stdev(good):.2%}" if len(good) > 1 else "–"


def main() -> None:
    """TurnScheduler in turn; what is in the file is not measured again."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS))
    parser.add_argument("--variants", type=lambda text: text.split(","), default=["inductor"])
    parser.add_argument("--mode", default="inference")
    parser.add_argument("--budget", default="10s")
    text = "ours: one database for all runs, so that a run knows the ones before; else empty ones"
    parser.add_argument("--db", help=text)
    parser.add_argument("--max-minutes", type=float)
    parser.add_argument("--out", type=Path, default=Path("build/suite-cost.jsonl"))
    to_the_end(run, parser.parse_args())


def run(args: argparse.Namespace) -> None:
    """Every round's variants by both ways, in changing order."""
    variants = list(dict.fromkeys((AA, *args.variants)))
    with Journal(args.out) as journal:
        settings = {"mode": args.mode, "budget": args.budget, "one database": bool(args.db)}
        journal.must_match("suite-cost", settings)
        done = {key_of(row) for row in journal.rows if row["kind"] == "case"}
        waiting = []
        for index in range(args.rounds):
            for variant in variants:
                for way in WAYS if index % 2 else reversed(WAYS):
                    left = [t for t in args.models if (way, t, variant, index) not in done]
                    # One run of ours has all models; the usual way's are apart anyway.
                    parts = [left] if way == "ours" else [[target] for target in left]
                    waiting += [(way, part, variant, index) for part in parts if part]
        for count, (way, targets, variant, index) in within_minutes(waiting, args.max_minutes):
            for found in measure(way, targets, variant, args):
                key = {"way": way, "variant": variant, "round": index}
                journal.append({"kind": "case", **key, **found})
                say(f"{count}/{len(waiting)} {key} {found}")
    print(report([row for row in read_rows([args.out]) if row["kind"] == "case"]))


def key_of(row: dict[str, Any]) -> tuple[str, str, str, int]:
    return row["way"], row["target"], row["variant"], row["round"]


if __name__ == "__main__":
    main()
