"""What a suite costs, and how far its answers move: ours against the usual way.

    suite_cost.py [--rounds 3] [--models hf:DistilBertForMaskedLM@small,...] [--variants inductor]

The same models × variants, several rounds of each way in turn, resumable. The usual way is two
processes per case (accuracy, then performance: 30 interleaved repeats, medians). `eager` is always
among the variants: an A/A whose true speed-up is 1. Printed for both: wall time per case, cases
that ended well, the spread of the speed-up from round to round, and how far the A/A is from 1.
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
from pathlib import Path
from typing import Any

from aa_journal import Journal, Row, read_rows
from aa_report import table

HERE = Path(__file__).resolve().parent
MODELS = (
    "hf:DistilBertForMaskedLM@small",
    "timm:mobilenetv3_large_100@small",
    "torchbench:nanogpt@small",
)
WAYS = ("ours", "usual")


def measure(way: str, target: str, variant: str, mode: str, budget: str) -> Row:
    """One case by one way: its speed-up, or why there is none, and the wall time of it all."""
    started = time.monotonic()
    found = ours(target, variant, mode, budget) if way == "ours" else usual(target, variant, mode)
    return {**found, "wall_s": time.monotonic() - started}


def ours(target: str, variant: str, mode: str, budget: str) -> Row:
    """As a case of `torchstone run`, through its own command."""
    words = ["bench", target, "--vs", variant, "--mode", mode, "--threads", "1", "--no-save"]
    words += ["--budget", budget, "--replicates", "4", "--json", "-"]
    done = subprocess.run(
        [sys.executable, "-m", "torchstone", *words],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    document = json.loads(done.stdout)
    comparison = document["comparisons"][0]
    outcome = next((a["outcome"] for a in document["arms"] if a["outcome"] != "ok"), "ok")
    ratio, ends = comparison["time_ratio"], comparison["interval"]
    if not ratio or not ends:
        return {"outcome": outcome}
    return {
        "outcome": outcome,
        "speedup": 1 / ratio,
        "interval": [1 / ends[1], 1 / ends[0]],
        "verdict": comparison["verdict"],
    }


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
        good = [row for row in cell if row["outcome"] == "ok" and row.get("speedup")]
        body.append(
            (
                target,
                variant,
                way,
                f"{len(good)}/{len(cell)}",
                f"{statistics.fmean(r['wall_s'] for r in cell):.0f} s",
                " ".join(f"{r['speedup']:.3f}" for r in good),
                spread(good),
            )
        )
    head = ("case", "variant", "way", "ended well", "wall time", "speed-ups", "spread")
    return table(head, body, markdown=False) + "\n\n" + totals(rows)


def totals(rows: list[Row]) -> str:
    lines = []
    for way in WAYS:
        mine = [row for row in rows if row["way"] == way]
        if not mine:
            continue
        wall = statistics.fmean(row["wall_s"] for row in mine)
        identical = [r for r in mine if r["variant"] == "eager" and r.get("speedup")]
        off = [abs(math.log(r["speedup"])) for r in identical]
        text = f"{way}: {wall:.0f} s a case"
        if off:
            text += f"; identical arms off by {statistics.median(off):.2%} (median)"
            text += f", {max(off):.2%} (worst)"
        said = [r for r in identical if r.get("verdict")]
        if said:
            wrong = sum(r["verdict"] in ("faster", "slower") for r in said)
            text += f"; called different {wrong} of {len(said)}"
        lines.append(text)
    return "\n".join(lines)


def spread(rows: list[Row]) -> str:
    """Standard deviation of the log speed-up between rounds."""
    if len(rows) < 2:
        return "–"
    return f"{statistics.stdev(math.log(row['speedup']) for row in rows):.2%}"


def main() -> None:
    """Rounds in turn; what is in the file is not measured again."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS))
    parser.add_argument("--variants", type=lambda text: text.split(","), default=["inductor"])
    parser.add_argument("--mode", default="inference")
    parser.add_argument("--budget", default="10s")
    parser.add_argument("--max-minutes", type=float, default=math.inf)
    parser.add_argument("--out", type=Path, default=Path("build/suite-cost.jsonl"))
    args = parser.parse_args()
    started = time.monotonic()
    with Journal(args.out) as journal:
        journal.must_match("suite-cost", {"mode": args.mode, "budget": args.budget})
        done = {key_of(row) for row in journal.rows if row["kind"] == "case"}
        for index in range(args.rounds):
            for target in args.models:
                for variant in dict.fromkeys(("eager", *args.variants)):
                    for way in WAYS if index % 2 else reversed(WAYS):
                        key = {"way": way, "target": target, "variant": variant, "round": index}
                        if (
                            key_of(key) in done
                            or time.monotonic() - started > 60 * args.max_minutes
                        ):
                            continue
                        found = measure(way, target, variant, args.mode, args.budget)
                        journal.append({"kind": "case", **key, **found})
                        print(key, found, file=sys.stderr, flush=True)
    print(report([row for row in read_rows([args.out]) if row["kind"] == "case"]))


def key_of(row: dict[str, Any]) -> tuple[str, str, str, int]:
    return row["way"], row["target"], row["variant"], row["round"]


if __name__ == "__main__":
    main()
