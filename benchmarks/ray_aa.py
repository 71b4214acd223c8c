"""Identical arms inside a Ray worker beside the same outside one, on a quiet machine.

    python benchmarks/ray_aa.py --rounds 10

Printed: how far ratios of identical arms lie from 1 and how wide their intervals are, for both
engines, and the ratio of the two. Ray's own processes share the cores, which is what this shows.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MODULE = "def make():\n    data = list(range(20_000))\n    return lambda: sum(data)\n"
SUITE = 'name = "aa"\n[[model]]\nname = "sum"\ntarget = "work.py:make"\n'
HOW = ("--variants", "eager", "--replicates", "4")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--budget", default="3s")
    asked = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {"local": [], "ray": []}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "work.py").write_text(MODULE)
        (Path(folder) / "aa.toml").write_text(SUITE)
        for _ in range(asked.rounds):  # in turn, so that both meet the same hour
            for engine, rows in found.items():
                rows.append(one(folder, engine, asked.budget))
    middles = {}
    for engine, rows in found.items():
        errors, widths = ([abs(row[i]) for row in rows] for i in (0, 1))
        middles[engine] = statistics.median(errors), statistics.median(widths)
        outside = sum(error > width for error, width in rows)
        print(
            f"{engine:6} error {middles[engine][0]:.4f}  half-width {middles[engine][1]:.4f}  "
            f"1 outside the interval: {outside} of {len(rows)}"
        )
    print(f"half-width, ray / local: {middles['ray'][1] / middles['local'][1]:.2f}")


def one(folder: str, engine: str, budget: str) -> tuple[float, float]:
    """Distance of log(ratio) from 0, and half the width of its interval."""
    from torchstone.store import open_store

    words = ["run", "aa.toml", *HOW, "--budget-per-case", budget, "--engine", engine]
    command = [sys.executable, "-m", "torchstone", *words, "--db", "aa.db"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    with open_store(f"{folder}/aa.db", read_only=True) as store:
        (case,) = store.run_view("last").cases
    assert case.speedup is not None
    assert case.interval is not None
    low, high = map(math.log, case.interval)
    return abs(math.log(case.speedup)), (high - low) / 2


if __name__ == "__main__":
    main()
