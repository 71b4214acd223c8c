"""Our side of `suite_cost`: the models of one variant as the cases of one `torchstone run`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from aa_journal import Row

from torchstone.records import Result
from torchstone.store import open_store

SUITE = "suite-cost"
IDENTICAL = "identical"
"""The rule that takes a figure away where identical arms are called different."""


def run_suite(
    targets: Sequence[str], variant: str, mode: str, budget: str, db: str | None = None
) -> dict[str, Row]:
    """Every target's figures by one `run`; a case's wall time is its share of the run's.

    All that a run does is in it: planning, importing, solo passes, references, evaluating, storing.
    Without `db` the database is empty, so nothing is known from runs before.
    """
    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder) / f"{SUITE}.toml"
        db = db or str(Path(folder) / "cost.db")
        suite.write_text(suite_file(targets), encoding="utf-8")
        words = ["run", str(suite), "--variants", variant, "--modes", mode, "--threads", "1"]
        words += ["--budget-per-case", budget, "--db", db, "--json", "-"]
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "torchstone", *words],
            capture_output=True, check=False, text=True,
        )  # fmt: skip
        wall = time.monotonic() - started
        if not done.stdout:
            raise SystemExit(f"torchstone run: exit code {done.returncode}: {done.stderr[-500:]}")
        cases = json.loads(done.stdout)["cases"]
        with open_store(db) as store:
            results = {c["target"]: store.load(c["result_id"]) for c in cases if c["result_id"]}
    share = wall / len(cases)
    return {
        case["target"]: {**figures(case, results.get(case["target"])), "wall_s": share}
        for case in cases
    }


def suite_file(targets: Sequence[str]) -> str:
    """The targets as a suite, each under its own name."""
    models = [f"[[model]]\nname = {json.dumps(t)}\ntarget = {json.dumps(t)}\n" for t in targets]
    return "\n".join([f"name = {json.dumps(SUITE)}\n", *models])


def figures(case: Row, result: Result | None) -> Row:
    """A case's speed-up, or which checks took it away; and where its time went, if it is told."""
    found: Row = {"outcome": case["outcome"], "phases": dict(phases_of(result))}
    if case["speedup"] is not None:
        found["speedup"] = case["speedup"]
        found["interval"] = [case["speedup_low"], case["speedup_high"]]
        return {**found, "verdict": case["verdict"]}
    checks = [] if result is None else result.checks
    told = [
        {"rule": c.rule, "level": c.level.value, "figures": dict(c.figures or {})} for c in checks
    ]
    return {**found, **withheld({"checks": told})}


def phases_of(result: Result | None) -> Mapping[str, float]:
    """Seconds by phase; empty where the result does not tell."""
    phases: Mapping[str, float] = getattr(result.method, "phases", {}) if result else {}
    return phases


def withheld(document: Row) -> Row:
    """Which checks took the figure away. Of identical arms that were called different, by how much:
    such a pair is no gap in the table, it is the worst that there is."""
    failed = [check for check in document["checks"] if check["level"] == "fail"]
    found: Row = {"withheld": [check["rule"] for check in failed]}
    effects = [c["figures"]["effect"] for c in failed if c["rule"] == IDENTICAL]
    return {**found, "effect": max(effects)} if effects else found
