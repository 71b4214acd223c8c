"""A run read back from the JSON that `torchstone run --json` and `torchstone show --json` write.

The file may come from anywhere: it is read within bounds, and nothing in it is trusted. The records
of `torchstone export --format hud-v3` are understood too; they keep that format's definitions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any

from torchstone.interop import find_format
from torchstone.interop.files import MAX_FILE_BYTES, MAX_ROWS, is_text, printable
from torchstone.records import (
    CaseKey,
    CaseMetrics,
    Method,
    Outcome,
    RunHead,
    UsageError,
)
from torchstone.records.metrics import METRICS, Metric
from torchstone.store.limits import seconds_of
from torchstone.track.terms import Side, side_of

DOCUMENT_SCHEMA = 1
MAX_TEXT = 4_000
LARGEST = 1e18
"""Nanoseconds or bytes: thirty years, an exabyte. What is larger is no measurement."""
_REMEDY = "Give a file that `torchstone run --json` or `torchstone show RUN --json` wrote."
_KEY = ("suite", "model", "scale", "mode", "precision", "variant", "device")
_READ = {field.name for field in fields(CaseMetrics)} - {"foreign"}
"""Metrics that are computed from others are computed again."""
_FOREIGN = ("benchmark", "model", "metric")
"""What every record of hud-v3 has."""


def read_document(path: str) -> Side:
    """The run in a file; `UsageError` that names what is wrong with it."""
    name = printable(Path(path).name)
    data = _parsed(path, name)
    if isinstance(data, dict) and "run" in data and "cases" in data:
        return _Reader(name).side(data)
    first = data[0] if isinstance(data, list) and data else data
    if isinstance(first, dict) and all(part in first for part in _FOREIGN):
        return side_of(find_format("hud-v3").read([Path(path)]).view)
    raise UsageError(f"{name} is not the JSON of a run.", _REMEDY)


def _parsed(path: str, name: str) -> Any:
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}.") from None
    if len(text) > MAX_FILE_BYTES:
        raise UsageError(f"{name} is larger than {MAX_FILE_BYTES // 2**20} MiB.", _REMEDY)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        lines = text.split(b"\n", 1)
        try:  # one record a line
            return [json.loads(lines[0])]
        except (ValueError, RecursionError):
            raise UsageError(f"{name} is not JSON.", _REMEDY) from None


class _Reader:
    """Reads one document; remembers its name for what it has to complain of."""

    def __init__(self, name: str) -> None:
        self.name = name

    def bad(self, what: str) -> UsageError:
        """The error for something wrong in the file."""
        return UsageError(f"{self.name}: {what}.", _REMEDY)

    def side(self, data: Mapping[str, Any]) -> Side:
        """The run with its cases."""
        if data.get("schema") != DOCUMENT_SCHEMA:
            raise self.bad(f"its schema is {data.get('schema')!r:.20}, not {DOCUMENT_SCHEMA}")
        run, rows = data["run"], data["cases"]
        if not isinstance(run, dict) or not isinstance(rows, list):
            raise self.bad("`run` or `cases` is not what it should be")
        if len(rows) > MAX_ROWS:
            raise self.bad(f"it has more than {MAX_ROWS:,} cases")
        cases = tuple(self.case(row, number) for number, row in enumerate(rows))
        keys = {case.key for case in cases}
        if len(keys) < len(cases):
            raise self.bad("it has a case twice")
        version = self.text(run, "version")
        return Side(self.head(run, cases), cases, self.method(run.get("method")), version)

    def head(self, run: Mapping[str, Any], cases: Sequence[CaseMetrics]) -> RunHead:
        """What the document says of the run; the counts are made from its cases."""
        found = run.get("git")
        git: dict[str, Any] = found if isinstance(found, dict) else {}
        outcomes: dict[str, int] = {}
        for case in cases:
            if case.outcome is not Outcome.NOT_RUN:
                outcomes[case.outcome.value] = outcomes.get(case.outcome.value, 0) + 1
        created = self.text(run, "created")
        return RunHead(
            id=self.text(run, "id"),
            created=created,
            created_s=seconds_of(created),
            label=self.text(run, "label"),
            commit=self.text(git, "commit"),
            branch=self.text(git, "branch"),
            dirty=git.get("dirty") is True,
            machine_id=self.text(run, "machine_id"),
            machine=self.text(run, "machine"),
            torch=self.text(run, "torch"),
            origin=self.text(run, "origin") or "here",
            tier=self.text(run, "tier"),
            suites=tuple(dict.fromkeys(case.key.suite for case in cases)),
            planned=len(cases),
            outcomes=outcomes,
            state="complete" if sum(outcomes.values()) == len(cases) else "interrupted",
        )

    def method(self, data: Any) -> Method | None:
        """What decides whether two runs were measured in one way, and their budget; no more."""
        if not isinstance(data, dict):
            return None
        definition = data.get("definition")
        if not isinstance(definition, int):
            raise self.bad("`method.definition` is not a number")
        return Method(
            budget_s=self.number(data, "budget_s") or 0.0,
            within=0.0,
            margin=0.0,
            seed=0,
            step_timeout_s=0.0,
            build_timeout_s=0.0,
            independent=data.get("independent") is True,
            estimator=self.text(data, "estimator"),
            definition=definition,
        )

    def case(self, row: Any, number: int) -> CaseMetrics:
        """One case, with what a comparison needs of it."""
        if not isinstance(row, dict):
            raise self.bad(f"case {number} is not an object")
        key = CaseKey(
            threads=self.whole(row, "threads") or 0,
            allocator=self.text(row, "allocator") or CaseKey.allocator,
            **{name: self.text(row, name) for name in _KEY},
        )
        low, high = self.number(row, "speedup_low"), self.number(row, "speedup_high")
        found = {one.key: self.metric(row, one) for one in METRICS if one.key in _READ}
        known = {name: value for name, value in found.items() if value is not None}
        if not 0.0 < known.get("level", 0.5) < 1.0:
            del known["level"]
        interval = None if low is None or high is None else (low, high)
        return CaseMetrics(key=key, interval=interval, definition=self.definition(row), **known)

    def metric(self, row: Mapping[str, Any], metric: Metric) -> Any:
        """A metric as the record has it; None where the file has none."""
        name = metric.public_name
        if issubclass(metric.kind, Enum):
            needed = metric.key == "outcome"
            return self.one_of(metric.kind, row, name) if needed or row.get(name) else None
        if metric.kind is str:
            return self.text(row, name)
        if metric.kind is tuple:
            return self.texts(row, name)
        value = self.number(
            row, name, zero=metric.key == "log_error" or (metric.kind is int and not metric.unit)
        )
        if value is None or value * metric.scale > LARGEST:
            return None
        return round(value * metric.scale) if metric.kind is int else value * metric.scale

    def definition(self, row: Mapping[str, Any]) -> int:
        """The version of the figures' definition; without it they could not be compared."""
        value = row.get("definition")
        if not isinstance(value, int) or abs(value) > LARGEST:
            raise self.bad("a case does not say by what `definition` its figures are")
        return value

    def text(self, data: Mapping[str, Any], name: str) -> str:
        """A text, or empty where there is none."""
        value = data.get(name)
        if value is None:
            return ""
        if not isinstance(value, str) or len(value) > MAX_TEXT or not is_text(value):
            raise self.bad(f"`{name}` is not a text, or is too long")
        return value

    def texts(self, data: Mapping[str, Any], name: str) -> tuple[str, ...]:
        """A list of texts."""
        value = data.get(name)
        if not isinstance(value, list) or len(value) > MAX_TEXT:
            return ()
        return tuple(self.text({name: one}, name) for one in value)

    def number(self, data: Mapping[str, Any], name: str, *, zero: bool = False) -> float | None:
        """A positive number within reason, or None where there is none."""
        value = data.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.bad(f"`{name}` is not a number")
        usable = abs(value) <= LARGEST and math.isfinite(value)
        return float(value) if usable and (value > 0 or (zero and value == 0)) else None

    def whole(self, data: Mapping[str, Any], name: str) -> int | None:
        """A whole number within reason."""
        value = self.number(data, name)
        return None if value is None else round(value)

    def one_of(self, kind: Any, data: Mapping[str, Any], name: str) -> Any:
        """A word from a closed list."""
        try:
            return kind(data.get(name))
        except ValueError:
            raise self.bad(f"`{name}` is {data.get(name)!r:.40}") from None
