"""How often `torchstone bisect` names the right commit, and whether it knows how sure it is.

`simulate`: searches over made-up probes, thousands of them: how often the named commit is the
culprit, beside the confidence that was stated, and beside `git bisect run` with a threshold at half
of the effect on the same noise. Pure computation; a minute for a hundred searches.

`live`: a scratch repository of 64 commits with one culprit, searched by `torchstone bisect` and by
`git bisect run` with a script that times the step and compares with a threshold. Real commands,
real wall time: half an hour a trial.

    python benchmarks/bisect_rates.py simulate --trials 1000 --out build/bisect.jsonl
    python benchmarks/bisect_rates.py live --trials 10 --out build/bisect.jsonl
    python benchmarks/bisect_rates.py report build/bisect.jsonl
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
from check_rates import commit_all, scratch_repository, wilson

from torchstone.track import check

COMMITS = 64
CONFIDENCE = 0.95
MOST_PROBES = 40
PROCESSES = 6


@dataclass(frozen=True)
class Setting:
    """What a simulated search meets. `noise` is of one process's log ratio, `jitter` of a commit's
    own level, `outliers` the share of processes that are slowed by 5 % on average."""

    name: str
    effect: float = 0.05
    culprits: int = 1
    noise: float = 0.012
    jitter: float = 0.003
    outliers: float = 0.0


SETTINGS = (
    Setting("5 %, quiet"),
    Setting("5 %, noisy", noise=0.03),
    Setting("5 %, outliers", noise=0.02, outliers=0.1),
    Setting("2 %", effect=0.02),
    Setting("2 %, noisy", effect=0.02, noise=0.02),
    Setting("5 %, levels vary twice as much as assumed", jitter=0.006),
    Setting("two of 5 %", culprits=2, noise=0.02),
    Setting("none", culprits=0),
)


class History:
    """Commits with their true levels, and probes of them."""

    def __init__(self, setting: Setting, chance: np.random.Generator) -> None:
        self.setting, self.chance = setting, chance
        places = chance.choice(np.arange(1, COMMITS + 1), setting.culprits, replace=False)
        self.culprits = {int(place) for place in places}
        self.levels = chance.normal(0.0, setting.jitter, COMMITS + 1)
        self.levels -= self.levels[0]
        for place in self.culprits:
            self.levels[place:] += math.log1p(setting.effect)

    def probe(self, commit: int) -> check.Probe:
        """A commit against GOOD in a few processes; the error is estimated from them."""
        setting = self.setting
        logs = self.levels[commit] + self.chance.normal(0.0, setting.noise, PROCESSES)
        slowed = self.chance.random(PROCESSES) < setting.outliers
        logs = logs + slowed * self.chance.exponential(0.05, PROCESSES)
        error = float(logs.std(ddof=1)) / math.sqrt(PROCESSES)
        return check.Probe(commit, float(logs.mean()), error, PROCESSES - 1.0)


def search(history: History) -> dict[str, Any]:
    """As `torchstone bisect` does it."""
    probes: list[check.Probe] = []
    told = ""
    while not told and len(probes) < MOST_PROBES:
        commit = check.next_probe(COMMITS, probes)
        assert commit is not None
        probes.append(history.probe(commit))
        found = check.posterior(COMMITS, probes)
        told = check.answer(found, CONFIDENCE)
    named = set(found.best({"one": 1, "two": 2}.get(told, 0)))
    stated = found.none if told == "none" else min((found.culprit[j] for j in named), default=0.0)
    # One of two culprits is a right answer to "which commit": that there is a second is said.
    right = named <= history.culprits if named else told == "none" and not history.culprits
    return {"answer": told, "right": right, "stated": stated, "probes": len(probes)}


def plain(history: History) -> dict[str, Any]:
    """`git bisect run`: one probe a commit, bad if its time is past half of the effect."""
    threshold = 0.5 * math.log1p(history.setting.effect)
    good, bad, probes = 0, COMMITS, 0
    while bad - good > 1:
        middle = (good + bad) // 2
        probes += 1
        if history.probe(middle).log_ratio > threshold:
            bad = middle
        else:
            good = middle
    return {"answer": "one", "right": bad in history.culprits, "stated": None, "probes": probes}


def simulate(trials: int, seed: int, only: str) -> Iterator[dict[str, Any]]:
    for setting in SETTINGS:
        if only and only != setting.name:
            continue
        for trial in range(trials):
            for method, run in (("torchstone", search), ("git bisect", plain)):
                chance = np.random.default_rng([seed, trial])
                row = run(History(setting, chance))
                yield {"kind": "simulated", "method": method, **asdict(setting), **row}


# Live.

TIMED = """\
import sys, time
sys.path[:0] = ["src", "."]
import bench
times, until = [], time.perf_counter() + {seconds}
while time.perf_counter() < until:
    started = time.perf_counter()
    bench.step()
    times.append(time.perf_counter() - started)
times.sort()
sys.exit(1 if times[len(times) // 2] > {threshold} else 0)
"""


def history_of(folder: Path, culprit: int, effect: float, commits: int) -> None:
    """A repository of small commits, one of which makes the step slower."""
    scratch_repository(folder)
    for number in range(1, commits + 1):
        (folder / "notes.md").write_text(f"note {number}\n")
        if number == culprit:
            source = folder / "src" / "lib.py"
            source.write_text(source.read_text().replace("EXTRA = 0.0", f"EXTRA = {effect}"))
        commit_all(folder, f"commit {number}")


def live(
    trials: int, seed: int, commits: int, effect: float, budget: float
) -> Iterator[dict[str, Any]]:
    for trial in range(trials):
        culprit = random.Random(f"{seed} {trial}").randrange(1, commits + 1)
        with tempfile.TemporaryDirectory(prefix="bisect-rates-") as place:
            folder = Path(place) / "repository"
            history_of(folder, culprit, effect, commits)
            given = budget  # of a probe of ours
            for method, run in (("torchstone", _ours), ("git bisect", _git_bisect)):
                began = time.monotonic()
                row = run(folder, commits, given)
                row["right"] = row.pop("named", None) == f"commit {culprit}"
                row["wall_s"] = round(time.monotonic() - began, 1)
                given = row["wall_s"]  # the other has as long as ours took
                yield {"kind": "live", "method": method, "effect": effect, "trial": trial, **row}


def _ours(folder: Path, commits: int, budget: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "torchstone", "bisect", f"HEAD~{commits}", "HEAD"]
    command += ["bench.py:step()", "--budget", f"{budget}s", "--no-save", "--json", "-"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if not done.stdout:
        return {"answer": "", "stated": None, "probes": 0, "said": done.stderr[-500:]}
    report = json.loads(done.stdout)
    named = report["culprits"][0] if report["answer"] in ("one", "two") else None
    return {
        "answer": report["answer"],
        "named": named and named["revision"]["subject"],
        "stated": named and named["posterior"],
        "probes": len(report["probes"]),
    }


def _git_bisect(folder: Path, commits: int, wall_s: float) -> dict[str, Any]:
    """A person's script: the threshold lies in the middle of one measurement of each end. Each
    measurement has its share of the time."""
    probes = commits.bit_length() + 2

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    def seconds() -> float:
        code = TIMED.format(seconds=wall_s / probes, threshold=1e9).replace(
            "sys.exit(1 if times[len(times) // 2] > 1000000000.0 else 0)",
            "print(times[len(times) // 2])",
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=folder, capture_output=True, check=False
        )
        return float(done.stdout)

    ends = []
    for revision in (f"HEAD~{commits}", "main"):
        git("checkout", "-q", revision)
        ends.append(seconds())
    script = folder.parent / "timed.py"
    script.write_text(TIMED.format(seconds=wall_s / probes, threshold=sum(ends) / 2))
    git("bisect", "start", "main", f"main~{commits}")
    git("bisect", "run", sys.executable, str(script))
    subject = git("log", "-1", "--format=%s", "refs/bisect/bad")
    git("bisect", "reset")
    git("checkout", "-q", "main")
    return {"answer": "one", "named": subject, "stated": None, "probes": probes}


def report(paths: list[str]) -> None:
    rows = [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        name = row.get("name") or f"{row['effect']:.0%} culprit"
        groups.setdefault((row["kind"], name, row["method"]), []).append(row)
    print("| searches | setting | method | n | answered | right | stated | probes | wall |")
    print("|:--|:--|:--|--:|--:|--:|--:|--:|--:|")
    for (kind, name, method), several in groups.items():
        answered = [row for row in several if row["answer"]]
        right = sum(row["right"] for row in answered)
        low, high = wilson(right, len(answered))
        stated = [row["stated"] for row in answered if row["stated"] is not None]
        walls = [row["wall_s"] for row in several if "wall_s" in row]
        print(
            f"| {kind} | {name} | {method} | {len(several)} | {len(answered)} "
            f"| {right / max(1, len(answered)):.1%} ({low:.0%} to {high:.0%}) "
            f"| {statistics.mean(stated):.1%} |"
            if stated
            else f"| {kind} | {name} | {method} | {len(several)} | {len(answered)} "
            f"| {right / max(1, len(answered)):.1%} ({low:.0%} to {high:.0%}) | |",
            f"{statistics.median(row['probes'] for row in several):g} |",
            f"{statistics.median(walls):.0f} s |" if walls else "|",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("simulate", "live", "report"))
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="one setting of `simulate`, by name")
    parser.add_argument("--commits", type=int, default=COMMITS)
    parser.add_argument("--effect", type=float, default=0.05)
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of a live probe")
    parser.add_argument("--out", default=os.devnull)
    asked = parser.parse_args()
    if asked.what == "report":
        report(asked.paths)
        return
    rows = (
        simulate(asked.trials, asked.seed, asked.only)
        if asked.what == "simulate"
        else live(asked.trials, asked.seed, asked.commits, asked.effect, asked.budget)
    )
    with open(asked.out, "a", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
            file.flush()
            if asked.what == "live":
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
