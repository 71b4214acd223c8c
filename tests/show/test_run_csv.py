"""The CSV of a run: every case and figure, and nothing that a spreadsheet would run."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shlex
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.records import CaseMetrics, Outcome, RunView
from torchstone.show.run_data import FORMULA, neutral, run_csv
from torchstone.show.table import sanitise

from . import synthetic_run as made

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "csv.md"
COLUMNS = [
    "run", "suite", "model", "scale", "mode", "precision", "variant", "device", "threads",
    "allocator", "target",
    "outcome", "reason", "failed_arm", "result_id", "speedup", "speedup_low", "speedup_high",
    "level", "log_error", "log_freedom", "verdict", "run_verdict", "margin",
    "deciding_budget_s", "base_s", "new_s",
    "compile_cold_s", "compile_warm_s", "base_tensor_bytes", "new_tensor_bytes", "memory_ratio",
    "base_peak_bytes", "new_peak_bytes", "process_memory_ratio", "base_overhead_bytes",
    "new_overhead_bytes", "compiler_bytes", "base_faults_per_call",
    "new_faults_per_call", "graphs", "graph_breaks", "break_reasons",
    "recompiles", "late_recompiles", "flops", "flops_covered", "agreement", "error_ratio",
    "outputs_checked", "worst_check", "checks", "replicates", "elapsed_s", "command", "foreign",
    "definition",
]  # fmt: skip
PLANTED = (
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\tx",
    "\r=1",
    "  =1",
    "＝1",
    'a,b\n"c"',
)


def read(view: RunView) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(run_csv(view), newline="")))


@pytest.mark.parametrize("name", made.ALL)
def test_one_row_a_planned_case_and_the_same_columns(name: str) -> None:
    view = made.ALL[name]()
    rows = list(csv.reader(io.StringIO(run_csv(view), newline="")))
    assert rows[0] == COLUMNS
    assert {len(row) for row in rows} == {len(COLUMNS)}
    assert len(rows) == 1 + len(view.run.plan)
    outcomes = [row[COLUMNS.index("outcome")] for row in rows[1:]]
    assert outcomes == [case.outcome.value for case in view.complete]


def test_columns_are_documented_in_order() -> None:
    table = PAGE.read_text(encoding="utf-8").split("## The form")[0]
    rows = [line.split(": ")[0] for line in table.splitlines() if line.startswith("- `")]
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row)] == COLUMNS


def test_every_figure_of_a_case_is_there_in_its_unit() -> None:
    case = made.small().cases[2]
    row = read(made.small())[2]
    assert float(row["speedup"]) == case.speedup
    assert (float(row["speedup_low"]), float(row["speedup_high"])) == case.interval
    assert float(row["base_s"]) == pytest.approx(0.0123, rel=1e-12)
    assert float(row["compile_cold_s"]) == 12.1
    assert int(row["base_peak_bytes"]) == case.base_peak_bytes
    assert float(row["memory_ratio"]) == 1.05
    assert float(row["process_memory_ratio"]) == 0.8
    assert int(row["compiler_bytes"]) == 33 * 2**20
    assert int(row["graph_breaks"]) == 2
    assert row["checks"] == "allocator; noise"
    assert row["verdict"] == row["run_verdict"] == "slower"
    assert shlex.split(row["command"]) == list(case.command)


def test_no_figure_is_forgotten() -> None:
    """Each field of the record changes something in its row."""
    base = made.ok(made.key(), break_reasons=("a",), checks=("b",), deciding_budget_s=45.0)
    before = run_csv(made.view([base]))
    for field in fields(CaseMetrics):
        value = getattr(base, field.name)
        if field.name in ("key", "outcome", "verdict", "worst_check"):
            continue
        other = {
            str: "other",
            int: 7,
            float: 0.77,
            tuple: {"interval": (0.7, 0.8), "foreign": made.imported().cases[0].foreign}.get(
                field.name, ("other",)
            ),
        }[type(value)]
        changed = replace(base, **{field.name: other})
        assert run_csv(made.view([changed])) != before, field.name


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_formula_is_neutralised_wherever_it_stands(planted: str) -> None:
    bad = made.bad(made.key(planted, suite=planted), Outcome.CRASH, planted, planted)
    good = made.ok(
        made.key(f"{planted}2", variant=planted),
        checks=(planted,),
        break_reasons=(planted,),
        command=(planted,),
        result_id=planted,
        agreement=planted,
    )
    text = run_csv(made.view([bad, good], id=planted))
    for row in list(csv.reader(io.StringIO(text, newline="")))[1:]:
        for name, cell in zip(COLUMNS, row, strict=True):
            if not cell or _is_number(cell):
                continue
            assert not cell.lstrip().startswith(FORMULA), name
            assert "\x1b" not in cell
            assert "\n" not in cell
    assert ("'" in text) or not planted.lstrip(" ").startswith(FORMULA)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def test_numbers_are_never_quoted_nor_prefixed() -> None:
    odd = made.ok(made.key(), compile_warm_ns=-2_000_000, error_ratio=math.nan, speedup=math.inf)
    text = run_csv(made.view([odd]))
    assert ",-0.002," in text
    assert '"-0.002' not in text
    assert "nan" not in text
    assert ",inf," not in text
    row = read(made.view([odd]))[0]
    assert row["error_ratio"] == row["speedup"] == ""


def test_what_never_ran_has_empty_figures() -> None:
    row = read(made.nothing())[0]
    assert row["outcome"] == "not_run"
    assert row["reason"] == "not started"
    filled = {name for name, cell in row.items() if cell}
    assert filled == {
        "run", "suite", "model", "scale", "mode", "precision", "variant", "device", "threads",
        "allocator", "target", "outcome", "reason", "level", "definition",
    }  # fmt: skip


def test_what_was_not_measured_has_no_zeros() -> None:
    rows = {row["outcome"]: row for row in read(made.every_outcome())}
    measured = ("outputs_checked", "worst_check", "replicates", "elapsed_s")
    assert {rows["not_supported"][name] for name in measured} == {""}
    assert rows["crash"]["worst_check"] == "note"


def test_lines_end_by_the_book() -> None:
    text = run_csv(made.every_outcome())
    assert text.count("\r\n") == text.count("\n") == 11
    assert text.count("\r") == 11


@given(st.text(max_size=20))
def test_no_text_becomes_a_formula(text: str) -> None:
    shown = neutral(text)
    assert not shown.startswith(FORMULA)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", shown)
    assert shown in (sanitise(text), f"'{sanitise(text)}")


def test_another_tools_figures_stay_its_own() -> None:
    first, second = read(made.imported())
    assert first["speedup"] == first["base_s"] == second["speedup"] == ""
    (row,) = json.loads(first["foreign"])
    assert row["cells"]["speedup"] == "1.7493123"
    assert (row["definition"], row["table"], row["line"]) == ("pytorch-dynamo", "performance", 2)
    assert first["definition"] == "-1"
