"""JSON and CSV of a comparison: strict, complete, documented, harmless."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from torchstone.records import CaseChange, ChangeKind, RunComparison, RunHead
from torchstone.show.run_data import FORMULA, compare_csv, compare_document, compare_dumps

from . import synthetic_comparison as made
from .test_document import keys, reject

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
TOP = [
    "schema", "kind", "definition", "base", "new", "refused", "remedy", "marks", "margin",
    "false_discovery_rate", "threshold_source", "drift", "groups", "cases",
]  # fmt: skip
CASE = [
    "suite", "model", "scale", "mode", "precision", "variant", "device", "threads",
    "allocator", "kind",
    "base_speedup", "new_speedup", "ratio", "ratio_low", "ratio_high", "level", "threshold",
    "verdict", "alone", "deciding_budget_s", "moved", "baseline_time_ratio", "arm_time_ratio",
    "compile_cold_ratio", "compile_warm_ratio", "arm_peak_ratio", "costs_changed",
    "base_outcome", "new_outcome", "base_reason", "new_reason", "base_result_id", "new_result_id",
    "command",
]  # fmt: skip


def read(comparison: RunComparison, **options: Any) -> Any:
    return json.loads(compare_dumps(comparison, **options), parse_constant=reject)


@pytest.mark.parametrize("name", made.ALL)
def test_same_shape_from_every_comparison(name: str) -> None:
    comparison = made.ALL[name]()
    data = read(comparison)
    assert list(data) == TOP
    assert (data["schema"], data["kind"], data["definition"]) == (1, "run comparison", 2)
    assert all(list(case) == CASE for case in data["cases"])
    assert len(data["cases"]) == len(comparison.cases)
    assert data == read(comparison, indent=None) == compare_document(comparison)
    assert compare_dumps(comparison).isascii()


def test_every_key_is_documented() -> None:
    known = set(re.findall(r"`([a-z_]+)`", (REFERENCE / "json.md").read_text(encoding="utf-8")))
    emitted: set[str] = set()
    for build in made.ALL.values():
        data = read(build())
        for part in (data["base"], data["new"], *data["groups"]):
            part["outcomes"] = part["counts"] = {}
        for group in data["groups"]:
            for summary in (group["base"], group["new"]):
                if summary:
                    summary["outcomes"] = summary["verdicts"] = {}
        emitted |= set(keys(data))
    assert len(emitted) > 70
    assert emitted - known == set()


def test_the_comparisons_own_section_has_every_key_of_a_case() -> None:
    text = (REFERENCE / "json.md").read_text(encoding="utf-8")
    section = re.split(r"^## ", text, flags=re.M)
    (mine,) = [part for part in section if part.startswith("A comparison of runs")]
    assert [name for name in (*TOP, *CASE) if f"`{name}`" not in mine] == []


def test_a_refusal_has_the_same_shape() -> None:
    refused = RunComparison(RunHead("a", ""), RunHead("b", ""), refused="No.", remedy="Do.")
    data = read(refused)
    assert list(data) == TOP
    assert (data["refused"], data["remedy"], data["cases"]) == ("No.", "Do.", [])
    assert data["drift"] == {"value": None, "spread": None, "n": 0}


def test_figures_are_those_of_the_records() -> None:
    comparison = made.planted()
    data = read(comparison)
    for row, case in zip(data["cases"], comparison.cases, strict=True):
        assert row["kind"] == case.kind
        assert row["ratio"] == (case.speedup.value if case.speedup else None)
        assert row["arm_peak_ratio"] == case.memory
        assert row["costs_changed"] == list(case.costs_changed)
    for row, group in zip(data["groups"], comparison.groups, strict=True):
        assert row["counts"] == dict(group.counts)
        assert row["base"]["counted"] == 30
        assert row["speedup"]["interval"] == list(group.speedup.interval)  # type: ignore[arg-type,union-attr]
        assert row["compile_cold"]["changed"] is False
        assert row["compile_cold"]["threshold"] < row["compile_cold"]["case_threshold"]
    few = read(made.few())["groups"][0]["memory"]
    assert (few["changed"], few["threshold"], few["n"]) == (None, None, 3)


def test_no_field_of_a_case_is_forgotten() -> None:
    comparison = made.planted()
    case = next(one for one in comparison.cases if one.verdict and one.speedup)
    before = compare_csv(replace(comparison, cases=(case,)))
    for field in fields(CaseChange):
        value = getattr(case, field.name)
        other: Any = {str: "other", float: 0.77}.get(type(value))
        other = {
            "base": None,
            "new": None,
            "speedup": None,
            "verdict": None,
            "alone": None,
            "deciding_budget_s": 45.0,
            "kind": ChangeKind.FAILING,
            "costs_changed": ("memory", "x"),
            "key": replace(case.key, model="other"),
        }.get(field.name, other)
        changed = replace(comparison, cases=(replace(case, **{field.name: other}),))
        assert compare_csv(changed) != before, field.name


def rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("name", made.ALL)
def test_csv_has_one_row_a_case(name: str) -> None:
    comparison = made.ALL[name]()
    found = rows(compare_csv(comparison))
    assert found[0] == ["base", "new", *CASE]
    assert {len(row) for row in found} == {len(CASE) + 2}
    assert len(found) == 1 + len(comparison.cases)


@pytest.mark.parametrize(
    "planted", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\tx", "＝1"]
)
def test_a_planted_formula_is_neutralised_wherever_it_stands(planted: str) -> None:
    comparison = made.planted()
    case = comparison.cases[0]
    assert case.new is not None
    evil = replace(
        case,
        key=replace(case.key, model=planted, suite=planted, variant=planted),
        new=replace(case.new, reason=planted, result_id=planted, command=(planted,)),
        moved=planted,
        costs_changed=(planted,),
    )
    odd = replace(comparison, cases=(evil,), new=replace(comparison.new, id=planted))
    for name, cell in zip(*rows(compare_csv(odd)), strict=True):
        if not re.fullmatch(r"-?[\d.e+-]+", cell):
            assert not cell.lstrip().startswith(FORMULA), name
