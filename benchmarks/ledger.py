"""Is the ledger true? Workloads of known composition, and planted inefficiencies put to the test.

    python benchmarks/ledger.py                        # everything, some 30 minutes
    python benchmarks/ledger.py --only mix tiny-ops    # some workloads
    python benchmarks/ledger.py --verify-only          # only the planted inefficiencies
    python benchmarks/ledger.py --out ledger.jsonl     # keep it; run again to go on where it ended

Aims: every planted share within 5 points, the unexplained rest under 5 %, the sum of all lines but
the rest within 5 % of the unprofiled wall time of one of four processes; at least 8 of 10
predictions land inside their range, and how wide these are is said beside them. A part's truth is
what its own clock says, in the very steps that the ledger divides, as long as nobody looks. The
unprofiled wall time is that of other processes, before and after, and how far they are from each
other is said. Neither side holds the wait for a core. Of a layout conversion level 4 must name the
part of it that is in kernels.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
SRC = HERE.parent / "src"
sys.path[:0] = [str(SRC), str(HERE)]

from aa_journal import Journal, Row, read_rows  # noqa: E402
from ledger_clock import VARIABLE, Took, lines_of, noted  # noqa: E402
from ledger_faults import PLANTED, Planted  # noqa: E402
from ledger_report import report  # noqa: E402
from ledger_targets import COMPILED, WORKLOADS, Known  # noqa: E402
from ledger_truth import arm_of, parts_of  # noqa: E402

from torchstone.conductor import Settings  # noqa: E402
from torchstone.conductor.launch import arm_environment  # noqa: E402
from torchstone.explain.findings.base import with_findings  # noqa: E402
from torchstone.explain.ledger import make_ledger, run_passes_of  # noqa: E402
from torchstone.explain.passes.report import Plan  # noqa: E402
from torchstone.lab.explain import put_to_test  # noqa: E402
from torchstone.records import ArmSpec, Ledger, RecordError, TorchstoneError, UsageError  # noqa: E402
from torchstone.records.ledger import BACK_END, REST  # noqa: E402

PROCESSES = 2
"""That run the step with nobody looking, before the ledger's process and after it."""
JUDGED = ("explain", "measure", "variants", "workloads")
"""Rooms whose code makes the figures: a file of older code is not gone on with."""


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    workloads = [n for n in WORKLOADS if not args.only or n in args.only]
    faults = [n for n in PLANTED if not args.only or n in args.only]
    with ExitStack() as stack:
        journal = stack.enter_context(open_journal(args.out, args.budget)) if args.out else None
        rows = list(journal.rows) if journal else []
        for name in () if args.verify_only else workloads:
            once(rows, journal, "ledger", name, lambda n: composition(n, args.budget))
        for name in () if args.ledgers_only else faults:
            once(rows, journal, "verify", name, lambda n: planted(PLANTED[n], args.budget))
    report(rows)
    return 0


@contextmanager
def open_journal(path: Path, budget: float) -> Iterator[Journal]:
    """Goes on only with what the same code made under the same budget."""
    try:
        list(read_rows([path] if path.exists() else []))
    except ValueError:
        raise SystemExit(f"{path} is no journal of this benchmark. Give another --out.") from None
    with Journal(path) as journal:
        journal.must_match("ledger", settings(budget))
        yield journal


def settings(budget: float) -> Row:
    """What results of one file have in common."""
    files = [*HERE.glob("ledger*.py")]
    for room in JUDGED:
        files += (SRC / "torchstone" / room).rglob("*.py")
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return {
        "budget": budget,
        "code": digest.hexdigest()[:12],
        "torch": version("torch"),
        "python": platform.python_version(),
    }


def once(
    rows: list[Row], journal: Journal | None, kind: str, name: str, run: Callable[[str], Row]
) -> None:
    """What is done is not done again; what failed is, the next time."""
    if any((row["kind"], row.get("name")) == (kind, name) for row in rows):
        return
    print(f"{kind} {name} ...", file=sys.stderr, flush=True)
    try:
        row = {"kind": kind, "name": name, **run(name)}
    except TorchstoneError as error:
        rows.append({"kind": kind, "name": name, "error": f"{error.message} {error.remedy}"})
        return
    except RecordError as error:  # what a child has sent
        rows.append({"kind": kind, "name": name, "error": str(error)})
        return
    except subprocess.CalledProcessError as error:
        last = (error.stderr or "").strip().splitlines()[-1:]
        rows.append({"kind": kind, "name": name, "error": f"no truth: {' '.join(last)}"})
        return
    if journal is not None:
        journal.append(row)
    rows.append(row)


def composition(name: str, budget: float) -> Row:
    """The ledger's shares beside what the parts' own clocks say; before and after it, processes
    with nobody looking."""
    known = WORKLOADS[name]
    if known.threads > len(os.sched_getaffinity(0)):
        return {"skipped": f"needs {known.threads} cores"}
    unprofiled = [_truth(name) for _ in range(PROCESSES)]
    with tempfile.NamedTemporaryFile() as file:
        os.environ[VARIABLE] = file.name
        try:
            ledger = look(arm_of(name), budget)
        finally:
            del os.environ[VARIABLE]
        clocks = noted(file.name)
    unprofiled += [_truth(name) for _ in range(PROCESSES)]
    walls = [one["wall"] / 1e9 for one in unprofiled]
    return {**beside(known, ledger, _planted(name, ledger, clocks, unprofiled)), "walls": walls}


def _planted(
    name: str, ledger: Ledger, clocks: Sequence[Sequence[Took]], unprofiled: Sequence[Row]
) -> dict[str, float]:
    """The truth by line, in nanoseconds."""
    known = WORKLOADS[name]
    if known.alone:
        each = [parts_of(one["alone"], one["wall"], known.more) for one in unprofiled]
        return {lines: statistics.median(one[lines] for one in each) for lines in each[0]}
    timed = [lines for lines in unprofiled[0]["lines"] if lines != COMPILED]
    if len(clocks) != len(timed):
        raise UsageError(f"{len(timed)} parts have a clock, and {len(clocks)} were noted.")
    found: dict[str, float] = {}
    for lines, rows in zip(timed, clocks, strict=True):
        for line, ns in lines_of(lines, rows).items():
            found[line] = found.get(line, 0.0) + ns
    whole = 1e9 * ledger.wall_s * (1 - ledger.share("contention"))
    return parts_of(found, whole, known.more, known.within)


def beside(known: Known, ledger: Ledger, parts: Mapping[str, float]) -> Row:
    """Truth and ledger, both without the wait for a core."""
    total = sum(parts.values())
    quiet = 1 - ledger.share("contention")
    shares = []
    for lines, ns in parts.items():
        found = sum(ledger.share(line) for line in lines.split("+")) / quiet
        shares.append([lines, ns / total, found])
        if lines == known.copies:
            pages, named = ledger.share("allocator") / quiet, ledger.share("layout") / quiet
            shares.append(["layout, on level 4", max(0.0, ns / total - pages), named])
    dividing = [line for line in ledger.lines if line.level <= BACK_END and line.level != REST]
    return {
        "shares": shares,
        "rest": ledger.share("rest"),
        "contention": ledger.share("contention"),
        "explained": sum(line.seconds for line in dividing if line.name != "contention"),
        "parts": total / 1e9,
        "lines": {line.name: line.share for line in dividing},
        "tracing": ledger.tracing,
        "checks": list(ledger.checks),
    }


def look(arm: ArmSpec, budget: float) -> Ledger:
    passes = run_passes_of(arm, Plan(budget_s=budget, count_flops=False))
    return with_findings(make_ledger(arm, passes))


def _truth(name: str) -> Row:
    env = {**os.environ, **arm_environment(arm_of(name))}  # as the ledger's process has it
    done = subprocess.run(
        [sys.executable, str(HERE / "ledger_truth.py"), name],
        capture_output=True,
        text=True,
        env=env,
        timeout=600,
        check=True,
    )
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return found


def planted(one: Planted, budget: float) -> Row:
    """Whether the finding is made, and whether what it predicts comes true."""
    if one.cores > len(os.sched_getaffinity(0)):
        return {"skipped": f"needs {one.cores} cores"}
    target = str(HERE.parent / one.target)
    arm = ArmSpec("as it is", target, mode=one.mode, threads=one.threads)
    ledger = look(arm, budget)
    found = next((f for f in ledger.findings if f.name == one.finding), None)
    names = [f.name for f in ledger.findings]
    if found is None:
        return {"wanted": one.finding, "findings": names, "held": None, "found": False}
    test = put_to_test(arm, found, Settings(budget_s=2 * budget))
    return {
        "wanted": one.finding,
        "findings": names,
        "found": True,
        "predicted": list(found.time_ratio),
        "measured": test.measured,
        "interval": test.interval and list(test.interval),
        "held": test.held,
        "sentence": test.sentence,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=_names())
    parser.add_argument("--budget", type=float, default=6.0, help="seconds of steps for each")
    parser.add_argument(
        "--out", "--json", type=Path, metavar="FILE", help="keep what is done, and go on from it"
    )
    parser.add_argument("--verify-only", action="store_true")
    parser.add_argument("--ledgers-only", action="store_true")
    return parser


def _names() -> Sequence[str]:
    return sorted({*WORKLOADS, *PLANTED})


if __name__ == "__main__":
    sys.exit(main())
