"""What profiling costs: wall time with a profiler against without, ours beside the usual tools.

    python benchmarks/profiling_cost.py --out build/profiling.jsonl      # some 40 minutes
    python benchmarks/profiling_cost.py --out build/profiling.jsonl --max-minutes 10   # in parts
    python benchmarks/profiling_cost.py --quick                          # shows that it works
    python benchmarks/profiling_cost.py --only 'torchstone sample' py-spy --work python

Every profiler gets a fresh process a round, in random order. There, blocks of the same steps are
run with and without it, in turns, beside pairs of blocks that are both without: the A/A control.
torch has one thread. Aims: sampling cannot be told from the control; no way of ours costs more than
the tool that it stands in for.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE)]

from aa_journal import Journal, Row, number  # noqa: E402
from aa_report import table  # noqa: E402
from profiling_tools import ENTRIES, Entry  # noqa: E402

from torchstone.stats import geometric_mean  # noqa: E402

WORKS = ("two-layer", "python")
FULL = {"rounds": 8, "pairs": 8, "block_s": 0.2}
QUICK = {"rounds": 1, "pairs": 4, "block_s": 0.05}
TIMEOUT_S = 600
LEVEL = 0.95
COARSE = 0.1
"""An interval wider than this either way decides nothing."""
SAMPLING = "torchstone sample"
"""The way whose cost nobody should notice; by py-spy it is py-spy's cost."""

Ratio = tuple[float, float, float]
"""A ratio and its interval."""


@dataclass(frozen=True)
class Line:
    """One profiler on one workload."""

    work: str
    tool: str
    stands_for: tuple[str, ...] = ()
    processes: int = 0
    """That were measured; those that failed are not among them."""
    ratio: Ratio | None = None
    cpu: float | None = None
    """The same of CPU time; what another process needs is not in it."""
    control: Ratio | None = None
    beyond: Ratio | None = None
    """The ratio divided by the control of the same process: separable where 1 is outside."""
    start_s: float | None = None
    finish_s: float | None = None
    written_bytes: int | None = None
    memory_bytes: int | None = None
    failed: int = 0
    reason: str = ""
    """Why there are no figures, or why the first of those that failed did."""

    @property
    def separable(self) -> bool:
        return self.beyond is not None and not self.beyond[1] <= 1 <= self.beyond[2]


@dataclass(frozen=True)
class Aim:
    """What is asked, what was seen."""

    what: str
    work: str
    seen: str
    verdict: str


def run_process(work: str, tool: str, settings: Row) -> Row:
    """One process; a death is a result."""
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "KINETO_LOG_LEVEL": "99",
    }
    words = [sys.executable, str(HERE / "profiling_work.py"), work, tool, json.dumps(settings)]
    try:
        done = subprocess.run(
            words, check=False, capture_output=True, text=True, env=env, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return {"reason": f"took longer than {TIMEOUT_S} s"}
    try:
        row: Row = json.loads(done.stdout.strip().splitlines()[-1])
        return row
    except (IndexError, ValueError):
        said = done.stderr.strip().splitlines()
        return {"reason": f"ended with code {done.returncode}: {said[-1] if said else 'no word'}"}


def collect(journal: Journal, settings: Row, works: Sequence[str], tools: Sequence[str]) -> None:
    """All rounds that are wanted and not there yet, until the time is up."""
    end = time.monotonic() + 60 * settings["max_minutes"]
    for turn in range(settings["rounds"]):
        places = [(work, tool) for work in works for tool in tools]
        random.Random(turn).shuffle(places)
        for work, tool in places:
            rows = _rows(journal.rows, work, tool)
            if any(row["round"] == turn or row.get("for_good") for row in rows):
                continue
            if time.monotonic() > end:
                print("The time is up; the same command goes on.", file=sys.stderr)
                return
            print(f"round {turn + 1}: {work}, {tool} ...", file=sys.stderr, flush=True)
            asked = {name: settings[name] for name in ("pairs", "block_s")}
            seen = run_process(work, tool, asked)
            journal.append(
                {"kind": "seen", "work": work, "tool": tool, "round": turn, "reason": "", **seen}
            )


def _rows(rows: Sequence[Row], work: str, tool: str) -> list[Row]:
    return [r for r in rows if r["kind"] == "seen" and (r["work"], r["tool"]) == (work, tool)]


def logs(row: Row, column: str) -> list[float]:
    """log(with ÷ without) of the pairs of a process."""
    return [math.log(new / base) for base, new in row[column] if base > 0 and new > 0]


def estimate(by_process: Sequence[Sequence[float]]) -> Ratio:
    """Middle values of processes, as a ratio with its interval over processes. Of one process
    there is only the spread of its pairs."""
    values = [median(one) for one in by_process] if len(by_process) > 1 else by_process[0]
    found = geometric_mean([math.exp(value) for value in values], LEVEL)
    return (found.value, found.lo, found.hi)


def line_of(rows: Sequence[Row], work: str, entry: Entry) -> Line:
    """What all processes of a profiler say together."""
    mine = _rows(rows, work, entry.name)
    good = [row for row in mine if not row["reason"]]
    failed = [row["reason"] for row in mine if row["reason"]]
    if not good:
        reason = failed[0] if failed else "not run yet"
        return Line(work, entry.name, entry.stands_for, failed=len(failed), reason=reason)
    pairs = [logs(row, "pairs") for row in good]
    controls = [logs(row, "controls") for row in good]
    beyond = [
        [one - other for one, other in zip(mine, calm, strict=True)]
        for mine, calm in zip(pairs, controls, strict=True)
    ]
    if len(good) > 1:  # of middle values, not the middle of differences: less noise
        beyond = [[median(a) - median(b)] for a, b in zip(pairs, controls, strict=True)]
    memory = [row["memory_bytes"] for row in good if row["memory_bytes"] is not None]
    return Line(
        work,
        entry.name,
        entry.stands_for,
        len(good),
        estimate(pairs),
        math.exp(fmean(median(logs(row, "cpu_pairs")) for row in good)),
        estimate(controls),
        estimate(beyond),
        median(median(row["start_s"]) for row in good),
        median(row["finish_s"] for row in good),
        round(median(row["written_bytes"] for row in good)),
        round(median(memory)) if memory else None,
        len(failed),
        failed[0] if failed else "",
    )


def against(rows: Sequence[Row], work: str, ours: str, theirs: str) -> Ratio | None:
    """Our ratio divided by theirs, by rounds in which both were run."""
    by_round = [
        {row["round"]: logs(row, "pairs") for row in _rows(rows, work, name) if not row["reason"]}
        for name in (ours, theirs)
    ]
    shared = sorted(set(by_round[0]) & set(by_round[1]))
    if not shared:
        return None
    if len(shared) == 1:
        mine, other = (one[shared[0]] for one in by_round)
        return estimate([[a - b for a, b in zip(mine, other, strict=False)]])
    differences = [[median(by_round[0][n]) - median(by_round[1][n])] for n in shared]
    return estimate(differences)


def aims(lines: Sequence[Line], rows: Sequence[Row]) -> list[Aim]:
    """Each aim on each workload."""
    found = []
    for line in lines:
        if line.tool == SAMPLING and line.beyond is not None:
            what = "sampling not separable from A/A"
            found.append(Aim(what, line.work, *_judge(line.beyond)))
    for line in lines:
        for theirs in line.stands_for:
            ratio = against(rows, line.work, line.tool, theirs)
            if ratio is not None:
                found.append(
                    Aim(f"{line.tool} not more expensive than {theirs}", line.work, *_judge(ratio))
                )
    return found


def _judge(ratio: Ratio) -> tuple[str, str]:
    """Above 1: costs more. Below: costs less. Around 1: as good as it is narrow."""
    if ratio[1] > 1:
        return _ratio(ratio), "not met"
    if ratio[2] < 1:
        return _ratio(ratio), "met: cheaper"
    wide = _half(ratio)
    if wide > COARSE:
        return _ratio(ratio), "undecided: more rounds, or a calmer machine"
    return _ratio(ratio), f"met: no difference of ±{wide:.1%}"


def _half(ratio: Ratio) -> float:
    """How far the interval reaches either way, as a share."""
    return math.sqrt(ratio[2] / ratio[1]) - 1 if ratio[1] > 0 else math.inf


def text_of(lines: Sequence[Line], evaluated: Sequence[Aim], markdown: bool) -> str:
    """Both tables."""
    head = ("work", "profiler", "stands in for", "processes (failed)", "wall ×", "A/A ×")
    head += ("separable", "CPU ×", "start", "end and write", "file", "memory")
    body = [_cells(line) for line in lines]
    parts = [table(head, body, markdown)]
    told = [
        f"{line.work}, {line.tool}: {line.failed} failed, the first because: {line.reason}"
        for line in lines
        if line.failed and line.ratio is not None
    ]
    if told:
        parts.append("\n".join(told))
    if evaluated:
        rows = [(aim.what, aim.work, aim.seen, aim.verdict) for aim in evaluated]
        parts.append(table(("aim", "work", "seen", "verdict"), rows, markdown))
    parts.append(
        f"Ratios with {LEVEL:.0%} intervals over processes, or over pairs where there was one "
        "process. Separable: the ratio\nover the control of the same process; ± is what could "
        "have been seen. Another process's memory is not in it."
    )
    return "\n\n".join(parts)


def _cells(line: Line) -> tuple[str, ...]:
    processes = f"{line.processes} ({line.failed})"
    names = (line.work, line.tool, ", ".join(line.stands_for), processes)
    if line.ratio is None or line.control is None or line.beyond is None:
        return (*names, line.reason, *[""] * 7)
    half = _half(line.beyond)
    word = "yes" if line.separable else "no"
    return (
        *names,
        _ratio(line.ratio),
        _ratio(line.control),
        word if math.isinf(half) else f"{word} (±{half:.1%})",
        f"{line.cpu:.2f}",
        _time(line.start_s),
        _time(line.finish_s),
        _size(line.written_bytes),
        _size(line.memory_bytes),
    )


def _ratio(ratio: Ratio) -> str:
    value, low, high = ratio
    return f"{value:.3f} [{low:.3f}–{high:.3f}]" if high < math.inf else f"{value:.3f}"


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1e3 * seconds:.0f} ms"


def _size(size: int | None) -> str:
    return "–" if size is None else f"{size / 1e6:.2f} MB"


def _data(line: Line) -> dict[str, Any]:
    data = asdict(line)
    for name in ("ratio", "control", "beyond"):
        data[name] = data[name] and [number(value) for value in data[name]]
    return {**data, "separable": line.separable}


def main() -> int:
    args = _parser().parse_args()
    settings = dict(QUICK if args.quick else FULL)
    settings["rounds"] = args.rounds or settings["rounds"]
    tools = [one.name for one in ENTRIES if not args.only or one.name in args.only]
    with ExitStack() as stack:
        path = args.out or Path(stack.enter_context(tempfile.TemporaryDirectory())) / "rows.jsonl"
        journal = stack.enter_context(Journal(path))
        journal.must_match("blocks", {name: settings[name] for name in ("pairs", "block_s")})
        collect(journal, {**settings, "max_minutes": args.max_minutes}, args.work, tools)
        lines = [
            line_of(journal.rows, work, entry)
            for work in args.work
            for entry in ENTRIES
            if entry.name in tools
        ]
        evaluated = aims(lines, journal.rows)
    if args.json:
        data = {"lines": [_data(one) for one in lines], "aims": [asdict(aim) for aim in evaluated]}
        print(json.dumps(data, indent=1, allow_nan=False))
    else:
        print(text_of(lines, evaluated, args.markdown))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = [one.name for one in ENTRIES]
    parser.add_argument("--only", nargs="+", metavar="TOOL", choices=names)
    parser.add_argument("--work", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--rounds", type=int, help="processes for each profiler and workload")
    parser.add_argument("--quick", action="store_true", help="one short round: shows that it works")
    parser.add_argument("--max-minutes", type=float, default=math.inf)
    parser.add_argument("--out", type=Path, help="keep what is done, and go on from it")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--markdown", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
