"""How often `torchstone check` is right, beside `asv continuous` and `pytest-benchmark compare`.

A scratch repository whose head is 0, 2, 5 or 10 % slower than its base, or differs in a document
alone. Each tool answers whether the head is slower, on a quiet machine and beside a busy core, in
about the same wall time: ours decides by itself, the others get as many rounds as fit. `replay`
gives the answers of our rule to thousands of trials whose processes are drawn from recorded ones
(`aa.py live`): a target's first measurement, and the second one of what looks slower.

    python benchmarks/check_rates.py run --trials 20 --out build/check.jsonl
    python benchmarks/check_rates.py run --trials 20 --load --out build/check.jsonl
    python benchmarks/check_rates.py report build/check.jsonl
    python benchmarks/check_rates.py replay benchmarks/results/aa-live.jsonl

asv and pytest-benchmark are looked for in the environment that PEERS names (a folder with `bin/`);
without one, ours runs alone.
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
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SLOWDOWNS = (0.0, 0.02, 0.05, 0.10)
DOCUMENT = "document"
MARGIN = 0.03
PROCESSES = (4, 8)
"""Of a replayed trial: the fewest that `check` decides by, and what its budget usually allows."""
POOL = 120
"""Recorded processes of a condition that are looked at."""
LIBRARY = """\
SIZE = 20000
EXTRA = 0.0


def work(size=None):
    total = 0
    for i in range(int((size or SIZE) * (1 + EXTRA))):
        total += i * i % 7
    return total
"""
BENCH = """\
import lib


def step():
    lib.work()
"""
PYTEST_BENCH = """\
import bench


def test_step(benchmark):
    benchmark(bench.step)
"""
ASV_BENCH = """\
class Step:
    def setup(self):
        from lib import work

        self.work = work

    def time_step(self):
        self.work()
"""


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@localhost", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def commit_all(folder: Path, message: str) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "-q", "-m", message)


def scratch_repository(folder: Path) -> None:
    """A library, a step that uses it, and the same step as the other tools want it."""
    (folder / "src").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "src" / "lib.py").write_text(LIBRARY)
    (folder / "bench.py").write_text(BENCH)
    (folder / "test_bench.py").write_text(PYTEST_BENCH)
    (folder / "README.md").write_text("A library.\n")
    (folder / "setup.py").write_text(
        "from setuptools import setup\n"
        "setup(name='lib', version='1', package_dir={'': 'src'}, py_modules=['lib'])\n"
    )
    (folder / "asv_bench").mkdir()
    (folder / "asv_bench" / "__init__.py").write_text("")
    (folder / "asv_bench" / "step.py").write_text(ASV_BENCH)
    (folder / "asv.conf.json").write_text(
        json.dumps(
            {
                "version": 1,
                "project": "lib",
                "repo": ".",
                "branches": ["main"],
                "benchmark_dir": "asv_bench",
                "environment_type": "virtualenv",
            }
        )
    )
    commit_all(folder, "base")


def changed_repository(folder: Path, change: float | str) -> None:
    """One more commit, on a branch."""
    scratch_repository(folder)
    git(folder, "checkout", "-q", "-b", "change")
    if change == DOCUMENT:
        (folder / "README.md").write_text("A library, explained.\n")
    else:
        source = folder / "src" / "lib.py"
        source.write_text(source.read_text().replace("EXTRA = 0.0", f"EXTRA = {change}  # changed"))
    commit_all(folder, "change")


def ours(folder: Path, wall_s: float, peers: str) -> str:
    """What `torchstone check` says, at its default budget."""
    command = [sys.executable, "-m", "torchstone", "check", "bench.py:step()", "--no-save"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    answers = {0: "not slower", 1: "slower", 3: "cannot tell"}
    return answers.get(done.returncode, f"error {done.returncode}: {done.stderr[-300:]}")


def asv_continuous(folder: Path, wall_s: float, peers: str) -> str:
    """`asv continuous`, its factor of 1.1 lowered to the margin, with rounds that fill the time
    (one takes some 5 s for both revisions, after they are installed)."""
    rounds = max(2, int(wall_s / 5))
    command = [f"{peers}/bin/asv", "continuous", "--factor", str(1 + MARGIN), "main", "change"]
    command += ["--attribute", f"rounds={rounds}", "--interleave-rounds"]
    env = {**os.environ, "PATH": f"{peers}/bin{os.pathsep}{os.environ['PATH']}"}
    machine = [f"{peers}/bin/asv", "machine", "--yes"]
    subprocess.run(machine, cwd=folder, env=env, capture_output=True, check=False)
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if "PERFORMANCE DECREASED" in done.stdout:
        return "slower"
    if "NOT SIGNIFICANTLY CHANGED" in done.stdout or "PERFORMANCE INCREASED" in done.stdout:
        return "not slower"
    return f"error {done.returncode}: {(done.stdout + done.stderr)[-300:]}"


def pytest_benchmark(folder: Path, wall_s: float, peers: str) -> str:
    """Base, then head with `--benchmark-compare-fail`, half of the time each."""
    common = [f"{peers}/bin/python", "-m", "pytest", "-q", "test_bench.py"]
    common += [f"--benchmark-max-time={wall_s / 2:.1f}"]
    env = {**os.environ, "PYTHONPATH": "src"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*common, *words], cwd=folder, env=env, capture_output=True, text=True, check=False
        )

    git(folder, "checkout", "-q", "main")
    first = run("--benchmark-save=base")
    git(folder, "checkout", "-q", "change")
    done = run("--benchmark-compare=0001", f"--benchmark-compare-fail=median:{MARGIN:.0%}")
    if "Performance has regressed" in done.stdout + done.stderr:
        return "slower"
    said = (first.stdout + done.stdout + done.stderr)[-300:]
    return "not slower" if first.returncode == done.returncode == 0 else f"error: {said}"


METHODS = {"torchstone": ours, "asv": asv_continuous, "pytest-benchmark": pytest_benchmark}


@contextmanager
def busy(wanted: bool) -> Iterator[None]:
    """Another process that computes all the time."""
    code = "while True: sum(range(100000))"
    process = subprocess.Popen([sys.executable, "-c", code]) if wanted else None
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


def run(
    trials: int, load: bool, changes: list[float | str], peers: str
) -> Iterator[dict[str, Any]]:
    for trial in range(trials):
        for change in changes:
            wall = 60.0
            for method, tool in METHODS.items():
                if method != "torchstone" and not peers:
                    continue
                with tempfile.TemporaryDirectory(prefix="check-rates-") as place, busy(load):
                    folder = Path(place) / "repository"
                    changed_repository(folder, change)
                    began = time.monotonic()
                    answer = tool(folder, wall, peers)
                    spent = time.monotonic() - began
                if method == "torchstone":
                    wall = spent  # the others are given what ours took
                yield {
                    "method": method,
                    "change": change,
                    "load": load,
                    "trial": trial,
                    "answer": answer,
                    "wall_s": round(spent, 1),
                }


def wilson(hits: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """The interval of a share."""
    if not n:
        return 0.0, 1.0
    share = hits / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def replay(paths: list[str], trials: int) -> Iterator[dict[str, Any]]:
    """Answers of the rule of `check` to processes that were recorded."""
    from aa_journal import read_rows
    from aa_pools import fit as fit_of
    from aa_pools import load_pools, log_ratio

    from torchstone import stats
    from torchstone.records import Outcome
    from torchstone.stats.estimators import FLOOR_ESTIMATOR
    from torchstone.stats.ratio import fastest_probe
    from torchstone.track import check

    for condition, pool in sorted(load_pools(read_rows(map(Path, paths))).items(), key=str):
        if condition.effect / 100 not in SLOWDOWNS or len(pool) < 4 * max(PROCESSES):
            continue
        pool = pool[:POOL]
        values = [log_ratio(pair, FLOOR_ESTIMATOR) for pair in pool]
        fastest = [(fastest_probe(pair.base), fastest_probe(pair.new)) for pair in pool]

        def seen(hand: list[int]) -> check.Seen:
            found = fit_of(values, fastest, hand, True)  # noqa: B023
            error = stats.Error(found.std_error, float(found.df))
            change = stats.Change(-found.centre, error)
            return check.Seen("step()", Outcome.OK, Outcome.OK, change, floor=0.005)

        chance = random.Random(str(condition))
        for trial, processes in ((t, n) for n in PROCESSES for t in range(trials)):
            cards = chance.sample(range(len(pool)), 2 * processes)
            first, second = seen(cards[:processes]), seen(cards[processes:])
            again = second if check.unsettled([first], MARGIN) else None
            ((row,), _, _) = check.evaluate([first], [again], (), MARGIN)
            yield {
                "method": f"rule, {processes} processes, {condition.step}",
                "change": condition.effect / 100,
                "load": condition.load,
                "trial": trial,
                "answer": "not slower" if row.status.value == "faster" else row.status.value,
                "wall_s": 0.0,
            }


def report(rows: list[dict[str, Any]]) -> None:
    groups: dict[tuple[str, bool, str], list[dict[str, Any]]] = {}
    for row in rows:
        change = row["change"]
        name = f"{change:+.0%}" if isinstance(change, float) else str(change)
        groups.setdefault((name, row["load"], row["method"]), []).append(row)
    print("| head | machine | tool | n | slower | not slower | cannot tell | error | wall |")
    print("|:--|:--|:--|--:|--:|--:|--:|--:|--:|")
    for (name, load, method), several in sorted(groups.items()):
        n = len(several)
        counts = [
            sum(row["answer"].startswith(word) for row in several)
            for word in ("slower", "not slower", "cannot tell", "error")
        ]
        low, high = wilson(counts[0], n)
        wall = statistics.median(row["wall_s"] for row in several)
        machine = "one core busy" if load else "quiet"
        print(
            f"| {name} | {machine} | {method} | {n} | {counts[0]} ({low:.0%} to {high:.0%}) "
            f"| {counts[1]} | {counts[2]} | {counts[3]} | {wall:.0f} s |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "report", "replay"))
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--load", action="store_true", help="keep one core busy meanwhile")
    parser.add_argument("--only", default="", help="some of 0,0.02,0.05,0.1,document")
    parser.add_argument("--peers", default=os.environ.get("PEERS", ""))
    parser.add_argument("--out", default=os.devnull)
    asked = parser.parse_args()
    if asked.what == "report":
        texts = [Path(path).read_text() for path in asked.paths]
        report([json.loads(line) for text in texts for line in text.splitlines()])
        return
    if asked.what == "replay":
        report(list(replay(asked.paths, asked.trials)))
        return
    changes: list[float | str] = [*SLOWDOWNS, DOCUMENT]
    if asked.only:
        changes = [one if one == DOCUMENT else float(one) for one in asked.only.split(",")]
    with open(asked.out, "a", encoding="utf-8") as file:
        for row in run(asked.trials, asked.load, changes, asked.peers):
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
