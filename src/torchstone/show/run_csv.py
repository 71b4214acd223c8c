"""The cases of a run as CSV, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
import json
import shlex
from typing import Any

from torchstone.records import RunView
from torchstone.show.run_fields import case_rows
from torchstone.show.text import sanitise

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What a spreadsheet takes for the beginning of a formula; the wide forms count in some locales."""
BETWEEN = "; "


def run_csv(view: RunView) -> str:
    """One row for every planned case, by RFC 4180; empty cells where a figure is not known.

    Write it with `newline=""`: its lines end as the RFC has it.
    """
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    for number, row in enumerate(case_rows(view)):
        if number == 0:
            writer.writerow(["run", *row])
        writer.writerow([neutral(view.run.id), *(_cell(name, cell) for name, cell in row.items())])
    return stream.getvalue()


def _cell(name: str, value: Any) -> Any:
    """Numbers as they are, texts made harmless."""
    if name == "foreign":
        value = json.dumps(value) if value else ""
    if isinstance(value, list):
        value = shlex.join(value) if name == "command" else BETWEEN.join(value)
    return neutral(value) if isinstance(value, str) else value


def neutral(text: str) -> str:
    """A text that no spreadsheet takes for a formula and no terminal for a command."""
    shown = sanitise(text)
    return f"'{shown}" if text.lstrip(" ").startswith(FORMULA) else shown
