"""A comparison of two runs as CSV, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
import shlex
from typing import Any

from torchstone.records import RunComparison
from torchstone.show.compare_fields import change_rows
from torchstone.show.run_csv import BETWEEN, neutral


def compare_csv(comparison: RunComparison) -> str:
    """One row for every case of either run, by RFC 4180; empty cells where nothing is known.

    Write it with `newline=""`: its lines end as the RFC has it.
    """
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    ids = [neutral(comparison.base.id), neutral(comparison.new.id)]
    for number, row in enumerate(change_rows(comparison)):
        if number == 0:
            writer.writerow(["base", "new", *row])
        writer.writerow([*ids, *(_cell(name, value) for name, value in row.items())])
    return stream.getvalue()


def _cell(name: str, value: Any) -> Any:
    """Numbers as they are, texts made harmless."""
    if isinstance(value, list):
        value = shlex.join(value) if name == "command" else BETWEEN.join(value)
    return neutral(value) if isinstance(value, str) else value
