"""`hud-v3`: the records of the PyTorch benchmark database, one JSON object for each metric."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from torchstone.interop import files
from torchstone.interop.assemble import (
    Entry,
    Origin,
    assemble,
    export_remarks,
    export_rows,
    some_names,
)
from torchstone.interop.base import Imported, Medians
from torchstone.interop.files import TextFile, bad, check_name, json_values, number
from torchstone.interop.rows import (
    ACCURACY,
    DEFINITION,
    FIRST_COLUMNS,
    HUD_FORMAT,
    OWN_COLUMNS,
    PERFORMANCE,
    SPEED_COLUMNS,
    Naming,
    Row,
    context_of,
    key_of,
    member,
    metric_of,
    metric_text,
    read_own_key,
    read_stem,
    safe_stem,
    stem_of,
    text_of,
)
from torchstone.records import (
    FOREIGN_DEFINITION,
    CaseKey,
    CaseMetrics,
    ForeignMetrics,
    GitState,
    RunView,
    UsageError,
)

BENCHMARK = "TorchInductor"
"""The benchmark's name in the records that the runner writes and that the dashboard reads."""

_EARLIEST_S, _LATEST_S = 1e9, 1e11
"""A time stamp outside of these is one in milliseconds, or none."""


@dataclass
class _Group:
    """Metrics of one case and table, and of one attempt at them, that say the same beside them."""

    source: str
    line: int
    own: Mapping[str, str]
    cells: dict[str, str] = field(default_factory=dict)


class _Reading:
    """Everything that the files say."""

    def __init__(self, texts: Iterable[TextFile]) -> None:
        self.other_benchmarks: Counter[str] = Counter()
        self.contexts: dict[str, Mapping[str, Any]] = {}
        self._attempts: dict[tuple[CaseKey, str], list[dict[str, _Group]]] = {}
        """By case and table. A metric that is said again starts a new attempt."""
        values = ((file.name, *value) for file in texts for value in json_values(file))
        for count, (source, line, record) in enumerate(values, 1):
            if count > files.MAX_ROWS:
                raise bad(source, line, f"there are more than {files.MAX_ROWS} records")
            self._read(source, line, record if isinstance(record, dict) else {})

    def _read(self, source: str, line: int, record: Mapping[str, Any]) -> None:
        benchmark, model, name = (
            member(record, part).get("name") for part in ("benchmark", "model", "metric")
        )
        if not (isinstance(benchmark, str) and isinstance(model, str) and isinstance(name, str)):
            raise bad(source, line, "this is no record with a benchmark, a model and a metric")
        if benchmark != BENCHMARK:
            self.other_benchmarks[benchmark] += 1
            return
        check_name(name, "metric's name", source, line)
        key, table, own = _place(source, line, record, name)
        context = _context(source, line, record)
        self.contexts.setdefault(context, record)
        attempts = self._attempts.setdefault((key, table), [{}])
        if any(name in group.cells for group in attempts[-1].values()):
            attempts.append({})
        group = attempts[-1].setdefault(context, _Group(source, line, own))
        group.cells[name] = metric_text(record["metric"])

    def entries(self) -> Iterator[Entry]:
        """The metrics as rows of the runner's tables."""
        for (key, table), attempts in self._attempts.items():
            for attempt, groups in enumerate(attempts, 1):
                for context, group in groups.items():
                    figures = ForeignMetrics(
                        HUD_FORMAT,
                        DEFINITION,
                        table,
                        group.source,
                        group.line,
                        tuple(group.cells),
                        tuple(group.cells.values()),
                        context,
                    )
                    yield Entry(key, figures, attempt, group.own)

    def origin(self) -> Origin:
        """Commit, torch and time, where the records say them; refuses records of two commits."""
        records = self.contexts.values()
        commits = {text_of(one.get("head_sha")) for one in records} - {""}
        if len(commits) > 1:
            raise UsageError(
                f"The records come from {len(commits)} commits, and a run is of one.",
                "Import the records of each commit by themselves.",
            )
        branches = {text_of(one.get("head_branch")) for one in records} - {""}
        versions = {text_of(member(one, "dependencies", "torch").get("version")) for one in records}
        branch, version = (
            found.pop()[: files.MAX_NAME] if len(found) == 1 else ""
            for found in (branches, versions)
        )
        return Origin(
            created=_latest(text_of(one.get("timestamp")) for one in records),
            torch=version,
            git=GitState(commits.pop()[: files.MAX_NAME], branch) if commits else None,
        )


def _place(
    source: str, line: int, record: Mapping[str, Any], metric: str
) -> tuple[CaseKey, str, dict[str, str]]:
    """The case, the table and what is said in words of ours."""
    extra = member(record, "benchmark", "extra_info")
    named = _naming(record, extra)
    for text in (named.suite, named.compiler, named.dtype, named.mode, named.device):
        if text:
            check_name(text, "name of its configuration", source, line)
    model = check_name(record["model"]["name"], "model name", source, line)
    device = text_of(extra.get("device"))
    if device:
        check_name(device, "device", source, line)
    own = {name: text_of(extra[name]) for name in OWN_COLUMNS if name in extra}
    table = ACCURACY if ACCURACY in (metric, named.table) else PERFORMANCE
    return read_own_key(own) or key_of(named, model, device), table, own


def _naming(record: Mapping[str, Any], extra: Mapping[str, Any]) -> Naming:
    """What the runner's file was called, or else what the record itself says."""
    named = read_stem(stem_of(text_of(extra.get("output"))))
    if named.whole:
        return named
    benchmark, model = member(record, "benchmark"), member(record, "model")
    origins = model.get("origins")
    first = origins[0] if isinstance(origins, list) and origins else None
    return Naming(
        compiler=text_of(model.get("backend")) or named.compiler,
        suite=text_of(first) or named.suite,
        dtype=text_of(benchmark.get("dtype")),
        mode=text_of(benchmark.get("mode")) or named.mode,
        device=text_of(extra.get("device")),
        table=named.table,
    )


def _context(source: str, line: int, record: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in record.items() if name != "metric"}
    context = json.dumps(rest, separators=(",", ":"))
    size = len(context) + len(json.dumps(record["metric"]))
    if size > files.MAX_CELL:
        raise bad(source, line, f"the record is longer than {files.MAX_CELL} characters")
    return context


def _latest(stamps: Iterable[str]) -> str:
    """The last of Unix times in seconds or milliseconds, as ISO 8601; empty if there is none."""
    seconds = []
    for stamp in stamps:
        value = number(stamp)
        if value is not None and _LATEST_S <= value < 1e3 * _LATEST_S:
            value /= 1e3
        if value is not None and _EARLIEST_S <= value < _LATEST_S:
            seconds.append(value)
    if not seconds:
        return ""
    return datetime.fromtimestamp(max(seconds), timezone.utc).isoformat(timespec="seconds")


_WHOLE = re.compile(r"-?[0-9]{1,18}")


class HudV3:
    """The database's records, as lines or as one array."""

    name = HUD_FORMAT

    def read(self, paths: Sequence[Path], /) -> Imported:
        """The run that the records hold; performance and accuracy of a case are joined."""
        texts = tuple(files.read_files(paths, (".json", ".jsonl")))
        reading = _Reading(texts)
        notes = []
        if reading.other_benchmarks:
            names = [repr(name) for name in reading.other_benchmarks]
            notes.append(
                f"{reading.other_benchmarks.total()} records of other benchmarks were left "
                f"out, because their figures have other definitions: {some_names(names)}."
            )
        return assemble(self.name, texts, list(reading.entries()), notes, reading.origin())

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
    case: CaseMetrics, torch: str, medians: Medians | None
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
