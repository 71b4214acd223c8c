"""Changes of level: false alarms on six kinds of noise, steps found, and a real history of asv's.

`simulate` makes series without a change, with one step, and with a ramp, and gives the same ones to
our detector, to asv's step detection, to Apache Otava, and to the rule "3 of 5 tests agree within
one push" of Perfherder, written here from its description. `real` imports a results tree of asv,
draws one history and looks for changes in all of it, beside asv's own load of the same tree. The
peers live in an environment of their own: pip install asv apache-otava, and name its Python.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
from aa_report import table

from torchstone.records import ChangeReport
from torchstone.stats import share_interval
from torchstone.stats.changepoints import find_changes

LEVEL, SIGMA = 100.0, 5.0
"""Of the series: a step of one σ is 5 %, more than any tool's least effect."""
SIZES = (100, 300)
STEPS = (1, 2, 3)
RAMP, RAMP_SIGMAS = 10, 3
NEAR = 2
EDGE = 10
AIM_FALSE, AIM_BETTER = 0.02, 0.15
OURS, ASV, OTAVA, PERFHERDER = "torchstone", "asv", "otava", "perfherder 3 of 5"
PEERS = Path(__file__).with_name("changepoints_peers.py")

Floats = np.ndarray[tuple[int, int], np.dtype[np.float64]]
Lot = np.random.Generator


def normal(lot: Lot, trials: int, n: int) -> Floats:
    """Independent, normal."""
    return lot.normal(size=(trials, n))


def log_normal(lot: Lot, trials: int, n: int) -> Floats:
    """Skewed to the right, of unit variance."""
    return (np.exp(lot.normal(size=(trials, n))) - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e)


def correlated(lot: Lot, trials: int, n: int) -> Floats:
    """AR(1), ρ = 0.5, of unit variance."""
    made = lot.normal(size=(trials, n + 50))
    for place in range(1, n + 50):
        made[:, place] = 0.5 * made[:, place - 1] + made[:, place] * np.sqrt(0.75)
    return made[:, 50:]


def spiky(lot: Lot, trials: int, n: int) -> Floats:
    """One value in twenty is too high, by ten σ in the mean."""
    spikes = (lot.random((trials, n)) < 0.05) * lot.exponential(10, size=(trials, n))
    return lot.normal(size=(trials, n)) + spikes


def drifting(lot: Lot, trials: int, n: int) -> Floats:
    """A straight line through the whole series, of one to three σ from end to end."""
    slope = lot.uniform(1, 3, size=(trials, 1)) * lot.choice([-1, 1], size=(trials, 1))
    return lot.normal(size=(trials, n)) + slope * np.linspace(-0.5, 0.5, n)


def bimodal(lot: Lot, trials: int, n: int) -> Floats:
    """Two modes, drawn by lot each time; of unit variance."""
    modes = np.where(lot.random((trials, n)) < 0.5, 0.97, -0.97)
    return 0.25 * lot.normal(size=(trials, n)) + modes


NOISES: dict[str, Callable[[Lot, int, int], Floats]] = {
    "normal": normal,
    "log-normal": log_normal,
    "AR(1) 0.5": correlated,
    "spiky": spiky,
    "drifting": drifting,
    "bimodal": bimodal,
}


@dataclass(frozen=True)
class Rate:
    """How often a tool flagged, or found, one kind of series."""

    tool: str
    kind: str
    n: int
    hits: int
    trials: int

    @property
    def words(self) -> str:
        """With its 95 % interval."""
        low, high = share_interval(self.hits, self.trials)
        return f"{100 * self.hits / self.trials:.1f} ({100 * low:.1f}–{100 * high:.1f})"


def series_of(kind: str, n: int, trials: int, seed: int) -> tuple[Floats, list[tuple[int, int]]]:
    """Series, and of each the first and last place that count as found; none of noise alone."""
    lot = np.random.default_rng([seed, n, *kind.encode()])
    if kind in NOISES:
        return LEVEL + SIGMA * NOISES[kind](lot, trials, n), []
    values, at = normal(lot, trials, n), lot.integers(EDGE, n - EDGE, size=trials)
    place = np.arange(n)[None, :] - at[:, None]
    if kind == "ramp":
        values += RAMP_SIGMAS * np.clip(place / RAMP, 0, 1)
        return LEVEL + SIGMA * values, [(one - NEAR, one + RAMP + NEAR) for one in at.tolist()]
    values += int(kind.removeprefix("step ").removesuffix("σ")) * (place >= 0)
    return LEVEL + SIGMA * values, [(one - NEAR, one + NEAR) for one in at.tolist()]


def hits(found: Sequence[Sequence[int]], wanted: Sequence[tuple[int, int]]) -> int:
    """Series that were flagged; or, where there is a change, in which it was found."""
    if not wanted:
        return sum(bool(places) for places in found)
    pairs = zip(found, wanted, strict=True)
    return sum(any(low <= one <= high for one in places) for places, (low, high) in pairs)


def peers(python: str, many: Floats) -> dict[str, list[list[int]]]:
    """What each peer finds in the same series, in its own environment."""
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder, "series.json")
        given.write_text(json.dumps(many.tolist()))
        run = [python, str(PEERS), "detect", str(given)]
        done = subprocess.run(run, capture_output=True, text=True, check=True)
    found: dict[str, list[list[int]]] = json.loads(done.stdout)
    return found


def simulate(asked: argparse.Namespace) -> list[Rate]:
    """Every kind of series, through every tool; what `--out` has already is not done again."""
    out = Path(asked.out) if asked.out else None
    lines = out.read_text().splitlines() if out and out.exists() else []
    rates = [Rate(**json.loads(line)) for line in lines]
    done = {(one.kind, one.n, one.tool == OURS) for one in rates}
    kinds = [*NOISES, *(f"step {size}σ" for size in STEPS), "ramp"]
    few = asked.peer_trials if asked.peers else 0
    for n, kind in ((n, kind) for n in SIZES for kind in kinds):
        many, wanted = series_of(kind, n, asked.trials, asked.seed)
        new = []
        if (kind, n, True) not in done:
            new += [Rate(OURS, kind, n, hits(find_changes(list(many)), wanted), asked.trials)]
        if few and (kind, n, False) not in done:
            theirs = peers(asked.peers, many[:few])
            new += [Rate(t, kind, n, hits(found, wanted[:few]), few) for t, found in theirs.items()]
        rates += new
        if out and new:
            with out.open("a") as file:
                file.writelines(json.dumps(asdict(one)) + "\n" for one in new)
        print(f"{n} {kind} done", file=sys.stderr, flush=True)
    return rates


def show(rates: Sequence[Rate]) -> str:
    """A table for each length, and whether the aims are met."""
    tools = list(dict.fromkeys(one.tool for one in rates))
    parts = []
    for n in SIZES:
        known = {(one.tool, one.kind): one for one in rates if one.n == n}
        kinds = dict.fromkeys(one.kind for one in rates)
        rows = [
            [kind, *(known[tool, kind].words if (tool, kind) in known else "" for tool in tools)]
            for kind in kinds
        ]
        parts.append(f"n = {n}: per cent flagged (noise) or found within ±{NEAR} (steps, ramp)\n")
        parts.append(table(["series", *tools], rows, markdown=False) + "\n")
    worst = max((r for r in rates if r.tool == OURS and r.kind in NOISES), key=lambda r: r.hits)
    ok = worst.hits <= AIM_FALSE * worst.trials
    parts.append(
        f"aim, at most 2 % false: worst {worst.kind} n={worst.n} {worst.words}: {_met(ok)}"
    )
    share = {(r.tool, r.n): r.hits / r.trials for r in rates if r.kind == "step 2σ"}
    for n in SIZES:
        if (ASV, n) in share:
            more = share[OURS, n] - share[ASV, n]
            words = f"{100 * more:+.0f} points at n={n}"
            parts.append(f"aim, 15 points more than asv at 2σ: {words}: {_met(more >= AIM_BETTER)}")
    return "\n".join(parts)


def _met(ok: bool) -> str:
    return "met" if ok else "not met"


def real(asked: argparse.Namespace) -> None:
    """Import, first chart, changes; beside asv's own load. Each is told when it is known."""
    from torchstone.interop.benchmark_tools import read_asv
    from torchstone.lab.regressions import SeriesRequest, regressions
    from torchstone.store import open_store
    from torchstone.web.query import ServerLinks, parse
    from torchstone.web.registry import PAGES
    from torchstone.web.render import draw
    from torchstone.web.sources import DataAccess

    say = partial(print, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        db = str(Path(folder, "real.db"))
        start, cpu = perf_counter(), process_time()
        history = read_asv([Path(asked.tree)])
        with open_store(db) as store:
            store.add_history(history)
        took, cpu = perf_counter() - start, process_time() - cpu
        of = f"{len(history.series):,} series, {history.values:,} values"
        say(f"import: {took:.1f} s ({cpu:.1f} s of CPU); {of}")
        start = perf_counter()
        with open_store(db, read_only=True) as store:
            page = PAGES["series"].view(DataAccess(store), parse(()), "i1")
            draw(page.sections[0], ServerLinks("0"))  # type: ignore[arg-type]
        chart = perf_counter() - start
        say(f"first chart, from opening the database: {chart:.3f} s")
        if asked.peers:
            run = [asked.peers, str(PEERS), "load", str(asked.tree)]
            theirs = json.loads(subprocess.run(run, capture_output=True, check=True).stdout)
            say(
                f"asv's load: {theirs['seconds']:.1f} s ({theirs['cpu']:.1f} s of CPU), "
                f"{theirs['values']:,} values; import {theirs['seconds'] / took:.1f}× as fast "
                f"(by CPU {theirs['cpu'] / cpu:.1f}; aim 5), first chart "
                f"{theirs['seconds'] / chart:.0f}× (aim 100)"
            )
        if not asked.no_changes:
            start, cpu = perf_counter(), process_time()
            report = regressions(SeriesRequest(), db, 0.03)
            took, cpu = perf_counter() - start, process_time() - cpu
            flagged = len({one.key for one in report.changes})
            say(
                f"regressions over all: {took:.1f} s, {cpu:.1f} of CPU (aim 60); "
                f"{len(report.changes):,} changes in "
                f"{flagged:,} of {report.series:,} series; "
                f"false alarms {asdict(report.false_alarms)}"
            )
            for line in _sampled(asked, db, report):
                say(line)


def _sampled(asked: argparse.Namespace, db: str, report: ChangeReport) -> list[str]:
    """How many of some of the series each tool flags: all of them would take asv an hour."""
    from torchstone.store import open_store
    from torchstone.track.series import imported_lines

    if not asked.peers or not asked.peer_trials:
        return []
    with open_store(db, read_only=True) as store:
        lines = [one for one in imported_lines(store).lines if one.values.size >= 50]
    lot = np.random.default_rng(asked.seed)
    chosen = [lines[place] for place in lot.permutation(len(lines))[: asked.peer_trials]]
    some = [line.values for line in chosen]
    told = Counter(one.key for one in report.changes)
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder, "series.json")
        given.write_text(json.dumps([one.tolist() for one in some]))
        run = [asked.peers, str(PEERS), "detect", str(given)]
        theirs = json.loads(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
    calibrated = [range(told[line.key]) for line in chosen]
    found = {f"{OURS}, calibrated": calibrated, f"{OURS}, as simulated": find_changes(some)}
    found |= theirs
    return [
        f"of {len(some)} of these series, {tool} flags {sum(map(bool, several))}, "
        f"{sum(map(len, several))} changes in all"
        for tool, several in found.items()
    ]


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("simulate", "real"))
    parser.add_argument("tree", nargs="?", help="of `real`: a results folder of asv")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--peers", default="", help="Python of an environment with asv and otava")
    parser.add_argument("--peer-trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--no-changes", action="store_true", help="of `real`: import and chart only"
    )
    parser.add_argument(
        "--out", default="", help="of `simulate`: go on with the rates in this file"
    )
    asked = parser.parse_args()
    if asked.what == "real":
        if not asked.tree:
            parser.error("real needs the folder")
        real(asked)
        return
    print(show(simulate(asked)))


if __name__ == "__main__":
    main()
