"""Rows of the runner's tables, whichever file they came from or go to."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from torchstone.interop.files import is_text, number
from torchstone.interop.names import Naming, naming_of, read_stem, safe_stem
from torchstone.records import CaseMetrics, ForeignMetrics, UsageError

DEFINITION = "pytorch-dynamo"
"""The PyTorch dashboard's runner (`benchmarks/dynamo`): its columns mean what it means by them."""
CSV_FORMAT, HUD_FORMAT = "dynamo-csv", "hud-v3"


@dataclass(frozen=True)
class Row:
    """A row ready to be written: the file it belongs to, what that file's name says, its cells."""

    stem: str
    named: Naming
    columns: tuple[str, ...]
    cells: tuple[str, ...]

    @property
    def by_column(self) -> Mapping[str, str]:
        """The cells that there are, by column."""
        return dict(zip(self.columns, self.cells, strict=False))


def foreign_rows(case: CaseMetrics) -> list[Row]:
    """The rows of a case that was read from the runner's files, as they were."""
    known = sorted((one for one in case.foreign if one.definition == DEFINITION), key=_kind)
    rows = []
    for (kind, table), group in groupby(known, key=_kind):
        if kind == HUD_FORMAT:
            rows.append(_row_of_records(case, table, list(group)))
        else:
            rows += [_row_of_line(case, one) for one in group]
    return rows


def _kind(one: ForeignMetrics) -> tuple[str, str]:
    return one.format, one.table


def _row_of_line(case: CaseMetrics, one: ForeignMetrics) -> Row:
    stem = stem_of(one.source)
    named = read_stem(stem)
    return Row(safe_stem(stem), _completed(named, case, one.table), one.columns, one.cells)


def _row_of_records(case: CaseMetrics, table: str, group: Sequence[ForeignMetrics]) -> Row:
    """JSON records as the row that the runner wrote beside them."""
    context = context_of(group[0])
    extra = member(context, "benchmark", "extra_info")
    named = _completed(read_stem(stem_of(text_of(extra.get("output")))), case, table)
    cells = {
        "dev": text_of(extra.get("device")) or case.key.device,
        "name": text_of(member(context, "model").get("name")),
        "batch_size": text_of(extra.get("batch_size")),
    }
    for one in group:
        cells.update({c: plain(text) for c, text in zip(one.columns, one.cells, strict=False)})
    cells.update({k: text_of(v) for k, v in extra.items() if k.startswith("torchstone_")})
    return Row(named.stem, named, tuple(cells), tuple(cells.values()))


def _completed(named: Naming, case: CaseMetrics, table: str) -> Naming:
    """What the file's name says, or what the case's key says where the name is of no pattern."""
    return named if named.whole else naming_of(case.key, table)


def context_of(one: ForeignMetrics) -> dict[str, Any]:
    """What a JSON record says beside its metric."""
    try:
        context = json.loads(one.context)
    except (ValueError, RecursionError):
        context = None
    if not isinstance(context, dict):
        raise UsageError(f"What was stored of {one.source}, line {one.line}, is damaged.")
    return context


def stem_of(path: str) -> str:
    """The last part of a path, without its ending."""
    name = path.replace("\\", "/").rpartition("/")[2]
    for ending in (".csv", ".json", ".jsonl"):
        name = name.removesuffix(ending)
    return name


def member(record: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The object at a path into a JSON record; an empty one where there is none."""
    value: Any = record
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def text_of(value: object) -> str:
    """A JSON value as the text of a cell."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if is_text(text) else json.dumps(text)


def metric_text(metric: Mapping[str, Any]) -> str:
    """A metric as a cell, so that `metric_of` gives back the same.

    A single number is written as it is, a status as its word; all else as the JSON object.
    """
    rest = {name: value for name, value in metric.items() if name != "name"}
    match rest:
        case {"benchmark_values": [int() | float() as value]} if len(rest) == 1:
            if not isinstance(value, bool):
                return json.dumps(value)
        case {"extra_info": {"benchmark_values": [str() as word]} as extra} if (
            len(rest) == len(extra) == 1 and is_text(word) and _decoded(word) is None
        ):
            return word
    return json.dumps(rest)


def metric_of(name: str, text: str) -> dict[str, Any]:
    """The metric that `metric_text` wrote."""
    value = _decoded(text)
    if isinstance(value, dict):
        return {"name": name, **value}
    if value is None:
        return {"name": name, "extra_info": {"benchmark_values": [text]}}
    return {"name": name, "benchmark_values": [value]}


def plain(text: str) -> str:
    """A metric's cell as the dashboard reads it: the mean where there are several values."""
    value = _decoded(text)
    if not isinstance(value, dict):
        return text
    said = member(value, "extra_info").get("benchmark_values", [])
    values = value.get("benchmark_values", said)
    values = values if isinstance(values, list) else [values]
    numbers = [number(text_of(one)) for one in values]
    known = [one for one in numbers if one is not None]
    if len(values) > 1 and len(known) == len(values):
        return repr(statistics.fmean(known))
    return text_of(values[0]) if len(values) == 1 else ""


def _decoded(text: str) -> Any:
    """The JSON value of a text: a number or an object. None: it is a word."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if value is not None else {}
