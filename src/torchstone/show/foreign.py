"""Figures of another tool in an imported run: under its names, as it wrote them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torchstone.records import CaseMetrics

SHOWN = ("speedup", "abs_latency", "compilation_latency", "compression_ratio", "accuracy")
"""The columns of the PyTorch dashboard's runner that have a place in a table; the rest is in the
JSON and in an export."""


def foreign_cell(case: CaseMetrics, column: str) -> str:
    """The last text that stands under a column; a number to four digits.

    Other tables than that of performance measure under other settings, so they give no times.
    """
    tables = ("accuracy", "performance") if column == "accuracy" else ("performance",)
    rows = [one for one in case.foreign if one.table in tables]
    found = [text for one in rows if (text := one.cell(column))]
    if not found:
        return ""
    try:
        value = float(found[-1])
    except ValueError:
        return found[-1]
    return f"{value:.4g}" if math.isfinite(value) else found[-1]


def foreign_columns(cases: Sequence[CaseMetrics]) -> list[str]:
    """Which of the columns have something to say about these cases."""
    return [name for name in SHOWN if any(foreign_cell(case, name) for case in cases)]


def foreign_note(cases: Sequence[CaseMetrics]) -> str:
    """Whose figures they are; empty where there are none."""
    tools = dict.fromkeys(one.definition for case in cases for one in case.foreign)
    columns = foreign_columns(cases)
    if not columns:
        return ""
    return (
        f"{', '.join(columns)}: as {', '.join(tools)} wrote and defines them, without interval or "
        "verdict"
    )


def foreign_data(case: CaseMetrics) -> list[dict[str, Any]]:
    """Every row as plain data: where it was read, and its cells by column."""
    return [
        {
            "format": one.format,
            "definition": one.definition,
            "table": one.table,
            "source": one.source,
            "line": one.line,
            "cells": dict(zip(one.columns, one.cells, strict=False)),
        }
        for one in case.foreign
    ]
