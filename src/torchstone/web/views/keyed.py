"""A case's key on a page: the droplists that choose by it, its parts as columns and as cells."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.records import CaseFigures, CaseKey, Outcome, SuiteSummary
from torchstone.show.run_words import Labels
from torchstone.web.cells import suite_title, text_cell
from torchstone.web.context import LABELS
from torchstone.web.page import Cell, Column, Place

SETTINGS = ("scale", "mode", "precision", "variant", "device", "threads", "allocator")
"""Parts of a key that cases of one model differ in; each is a droplist."""
RUNS_OF = ("machine", "branch")
"""What chooses among runs; likewise."""
NAMED = (Column("model", "Model"), Column("suite", "Suite"), Column("settings", "Settings"))
"""How people are told which case a row is about."""
SPEEDUP_ENDS = (
    Column("speedup_low", "Speed-up, low end", True, "×", shown=False),
    Column("speedup_high", "Speed-up, high end", True, "×", shown=False),
)
BASE_ENDS = (
    Column("base_speedup_low", "Base's speed-up, low end", True, "×", shown=False),
    Column("base_speedup_high", "Base's speed-up, high end", True, "×", shown=False),
)
CHANGE_ENDS = (
    Column("change_low", "Change, low end", True, "×", shown=False),
    Column("change_high", "Change, high end", True, "×", shown=False),
    Column("verdict", "Verdict", shown=False),
)
COST_MARKS = (
    Column("compile_verdict", "Compile, cold: better or worse", shown=False),
    Column("memory_verdict", "Memory: better or worse", shown=False),
)
"""Empty where the change lies within its threshold."""


def columns(names: Sequence[str]) -> tuple[Column, ...]:
    """Parts of the key for programs: they are in the JSON and the CSV alone."""
    return tuple(Column(name, LABELS[name], name == "threads", shown=False) for name in names)


def cells(key: CaseKey | SuiteSummary, names: Sequence[str]) -> tuple[Cell, ...]:
    """What stands in these columns."""
    return tuple(Cell(getattr(key, name)) for name in names)


def named(key: CaseKey, labels: Labels, to: Place) -> tuple[Cell, ...]:
    """What stands in the columns `NAMED`; the model leads to its page."""
    return (
        text_cell(key.model, to),
        text_cell(suite_title(key.suite, key.scale)),
        text_cell(labels.settings(key)),
    )


def ends_of(case: CaseFigures | None) -> tuple[Cell, Cell]:
    """Both ends of a case's speed-up, where it has one to show."""
    return ends(case.interval if case and case.outcome is Outcome.OK else None)


def ends(interval: tuple[float, float] | None) -> tuple[Cell, Cell]:
    """Both ends of an interval, each in its own column."""
    low, high = interval or (None, None)
    return Cell(low), Cell(high)
