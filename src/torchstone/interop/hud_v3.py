"""`hud-v3`: the records of the PyTorch benchmark database, one JSON object for each metric."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torchstone.interop import files
from torchstone.interop.assemble import assemble, some_names
from torchstone.interop.base import Imported, Medians
from torchstone.interop.export import export_remarks, export_rows
from torchstone.interop.files import number
from torchstone.interop.hud_read import BENCHMARK, HudReading
from torchstone.interop.names import safe_stem
from torchstone.interop.own import FIRST_COLUMNS, OWN_COLUMNS, SPEED_COLUMNS
from torchstone.interop.rows import (
    DEFINITION,
    HUD_FORMAT,
    Row,
    context_of,
    metric_of,
    stem_of,
)
from torchstone.records import FOREIGN_DEFINITION, CaseFigures, RunView

_WHOLE = re.compile(r"-?[0-9]{1,18}")


class HudV3:
    """The database's records, as lines or as one array."""

    name = HUD_FORMAT

    def read(self, paths: Sequence[Path], /) -> Imported:
        """The run that the records hold; performance and accuracy of a case are joined."""
        texts = tuple(files.read_files(paths, (".json", ".jsonl")))
        reading = HudReading()
        reading.read(texts)
        notes = []
        if reading.other_benchmarks:
            names = [repr(name) for name in reading.other_benchmarks]
            notes.append(
                f"{sum(reading.other_benchmarks.values())} records of other benchmarks were left "
                f"out, because their figures have other definitions: {some_names(names)}."
            )
        return assemble(self.name, texts, reading.entries, notes, reading.origin())

    def write(self, view: RunView, medians: Medians | None = None) -> dict[str, bytes]:
        """One file of records for each table that the runner would write."""
        lines: dict[str, list[str]] = defaultdict(list)
        for case in view.complete:
            for stem, record in _records(case, view.run.torch, medians):
                lines[stem].append(json.dumps(record) + "\n")
        return {f"{stem}.json": "".join(every).encode() for stem, every in lines.items()}

    def remarks(self, view: RunView, medians: Medians | None = None) -> tuple[str, ...]:
        """What the records cannot say."""
        return export_remarks(view, medians)


def _records(
    case: CaseFigures, torch: str, medians: Medians | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The records of a case, each with the name of its file; imported ones as they were."""
    kept = [one for one in case.foreign if (one.format, one.definition) == (HUD_FORMAT, DEFINITION)]
    if case.definition == FOREIGN_DEFINITION and kept:
        for one in kept:
            context = context_of(one)
            for name, text in zip(one.columns, one.cells, strict=False):
                yield safe_stem(stem_of(one.source)), {**context, "metric": metric_of(name, text)}
        return
    for row in export_rows(case, medians):
        beside = _beside(row, torch)
        for name in _metrics(row):
            metric = _metric(name, row.by_column[name])
            yield row.stem, {**beside, "metric": metric}


def _metrics(row: Row) -> list[str]:
    """The columns that are metrics of this row; a failure has a speed of 0 and no other figure."""
    cells = row.by_column
    names = [name for name in cells if name not in (*FIRST_COLUMNS, *OWN_COLUMNS)]
    if number(cells.get("speedup")) == 0.0:
        names = [name for name in names if name in SPEED_COLUMNS]
    return [name for name in names if cells[name] != ""]


def _metric(name: str, text: str) -> dict[str, Any]:
    """A cell as the runner writes it: a number among the values, a word among the remarks."""
    value = int(text) if _WHOLE.fullmatch(text) else number(text)
    if value is None:
        return {"name": name, "extra_info": {"benchmark_values": [text]}}
    return {"name": name, "benchmark_values": [value]}


def _beside(row: Row, torch: str) -> dict[str, Any]:
    """What a record says beside its metric."""
    cells, named = row.by_column, row.named
    extra: dict[str, Any] = {"device": cells.get("dev", ""), "output": f"{row.stem}.csv"}
    if _WHOLE.fullmatch(cells.get("batch_size", "")):
        extra["batch_size"] = int(cells["batch_size"])
    extra.update({name: cells[name] for name in OWN_COLUMNS if name in cells})
    record: dict[str, Any] = {
        "benchmark": {
            "name": BENCHMARK,
            "mode": named.mode,
            "dtype": named.dtype,
            "extra_info": extra,
        },
        "model": {
            "name": cells.get("name", ""),
            "type": "OSS model",
            "backend": "inductor" if named.compiler.startswith("inductor") else named.compiler,
            "origins": [named.suite],
        },
    }
    if torch:
        record["dependencies"] = {"torch": {"version": torch}}
    return record


HUD_V3 = HudV3()
