"""The JSON of a run: strict, complete, and every key documented."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchstone.records import GitState, Mean, RunView
from torchstone.show.cells import foreign_cell
from torchstone.show.run_data import run_document, run_dumps

from . import synthetic_run as made
from .test_document import keys, reject
from .test_run_csv import COLUMNS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
RUN = [
    "id", "created", "label", "command", "tier", "notes", "planned", "done", "outcomes",
    "machine_id", "machine", "torch", "packages", "git", "method", "version", "origin",
]  # fmt: skip
SUMMARY = [
    "suite", "scale", "mode", "precision", "variant", "device", "threads", "allocator",
    "passed", "counted",
    "planned", "not_supported", "pass_rate", "outcomes", "speedup", "compile_cold_s",
    "compile_warm_s", "memory_ratio", "process_memory_ratio", "compiler_bytes", "verdicts",
    "no_verdict",
    "false_discovery_rate", "figures_definition", "definition",
]  # fmt: skip


def read(view: RunView, **options: Any) -> Any:
    return json.loads(run_dumps(view, made.summaries(view), **options), parse_constant=reject)


@pytest.mark.parametrize("name", made.ALL)
def test_same_shape_from_every_run(name: str) -> None:
    view = made.ALL[name]()
    data = read(view)
    assert list(data) == ["schema", "run", "summaries", "cases"]
    assert data["schema"] == 1
    assert list(data["run"]) == RUN
    assert all(list(summary) == SUMMARY for summary in data["summaries"])
    assert all(list(case) == COLUMNS[1:] for case in data["cases"])
    assert data == read(view, indent=None) == run_document(view, made.summaries(view))
    assert run_dumps(view, made.summaries(view)).isascii()


@pytest.mark.parametrize("name", made.ALL)
def test_every_planned_case_is_accounted_for(name: str) -> None:
    view = made.ALL[name]()
    data = read(view)
    planned = len(view.run.plan)
    assert len(data["cases"]) == planned == data["run"]["planned"]
    assert sum(data["run"]["outcomes"].values()) == planned
    assert sum(summary["planned"] for summary in data["summaries"]) == planned
    for summary in data["summaries"]:
        assert summary["counted"] + summary["not_supported"] == summary["planned"]
        assert sum(summary["outcomes"].values()) == summary["planned"]


def test_figures_have_their_units_and_denominators() -> None:
    data = read(made.small())
    first, second = data["summaries"]
    assert first["speedup"]["value"] == pytest.approx(math.sqrt(1.32 * 1.004))
    assert (first["speedup"]["n"], first["speedup"]["of"]) == (2, 2)
    assert first["compile_cold_s"]["value"] == 12.1
    assert second["pass_rate"] == 1.0
    assert data["cases"][2]["checks"] == ["allocator", "noise"]
    assert data["cases"][2]["command"][:2] == ["torchstone", "bench"]
    assert data["cases"][0]["base_s"] == pytest.approx(0.0123)
    assert data["run"]["git"] == {"commit": "0123456789abcdef", "branch": "main", "dirty": True}


def test_what_is_not_finite_is_null() -> None:
    case = made.ok(made.key(), speedup=math.nan, interval=(0.5, math.inf), error_ratio=math.inf)
    view = made.view([case])
    data = read(view)
    assert data["cases"][0]["speedup"] is None
    assert data["cases"][0]["speedup_low"] == 0.5
    assert data["cases"][0]["speedup_high"] is None
    odd = Mean(math.inf, 1, 1, (math.nan, 2.0))
    summary = made.summaries(view)[0]
    data = run_document(view, [replace(summary, speedup=odd)])
    assert data["summaries"][0]["speedup"]["value"] is None
    assert data["summaries"][0]["speedup"]["interval"] is None


def test_every_key_is_documented() -> None:
    text = "".join((REFERENCE / page).read_text(encoding="utf-8") for page in ("json.md", "csv.md"))
    known = set(re.findall(r"`([a-z_]+)`", text))
    views = [build() for build in made.ALL.values()]
    views.append(made.view([made.ok(made.key())], git=GitState("abc")))
    emitted = {key for view in views for key in keys(_without_counts(read(view)))}
    assert len(emitted) > 80
    assert emitted - known == set()


def _without_counts(data: Any) -> Any:
    """Outcomes, verdicts and other tools' columns are names that this page need not list."""
    for part in (data["run"], *data["summaries"]):
        part["outcomes"] = part["verdicts"] = {}
    for case in data["cases"]:
        for row in case["foreign"]:
            row["cells"] = {}
    return data


def test_lone_surrogates_do_not_make_bad_json() -> None:
    view = made.view([made.ok(made.key("a\udc80b"))], label="\udcff")
    assert read(view)["cases"][0]["model"] == "a\\udc80b"


def test_a_time_of_the_accuracy_table_is_not_shown_as_performance() -> None:
    case = made.imported().cases[0]
    (row,) = case.foreign
    other = replace(
        row, table="accuracy", cells=tuple(c.replace("84.5", "99.9") for c in row.cells)
    )
    both = replace(case, foreign=(row, other))
    assert foreign_cell(both, "abs_latency") == "84.5"
    assert foreign_cell(replace(case, foreign=(other,)), "abs_latency") == ""
