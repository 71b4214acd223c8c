"""JSON files of pyperf, pytest-benchmark and Google Benchmark: one file is one run."""

from __future__ import annotations

import hashlib
import json
import statistics
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torchstone.interop.files import MAX_NAME, printable
from torchstone.interop.histories import LOWER, bounded_text, is_usable, read_bytes, too_many
from torchstone.interop.rows import member
from torchstone.records import ImportedHistory, ImportedRun, SeriesKey, UsageError
from torchstone.store.limits import seconds_of

MAX_FILES = 100_000
MAX_VALUES = 10_000_000
_GOOGLE_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_NOT_A_COUNTER = frozenset(
    (
        *("name", "run_name", "run_type", "family_index", "per_family_instance_index"),
        *("repetitions", "repetition_index", "threads", "iterations", "time_unit"),
        *("real_time", "cpu_time", "aggregate_name", "aggregate_unit", "label"),
        *("error_occurred", "error_message", "skipped", "skip_message"),
    )
)
PYTEST_STATISTICS = ("min", "median", "mean")
"""Each is a series: its own comparisons ask for any of them."""


class _One(NamedTuple):
    """One value of a file."""

    name: str
    parameters: str
    metric: str
    value: float
    unit: str = "seconds"


class _File(NamedTuple):
    """One file: where and when it was measured, and its values."""

    machine: str
    environment: str
    commit: str
    branch: str
    date: str
    values: Iterator[_One]


def read_pyperf(paths: Sequence[Path]) -> ImportedHistory:
    """The mean of each benchmark, as `pyperf show` has it."""
    return _read("pyperf", paths, _pyperf)


def read_pytest_benchmark(paths: Sequence[Path]) -> ImportedHistory:
    """Files that `--benchmark-json`, `--benchmark-save` or `--benchmark-autosave` wrote."""
    return _read("pytest-benchmark", paths, _pytest_benchmark)


def read_google_benchmark(paths: Sequence[Path]) -> ImportedHistory:
    """Files that `--benchmark_out_format=json` wrote."""
    return _read("google-benchmark", paths, _google_benchmark)


def _read(
    tool: str, paths: Sequence[Path], parse: Callable[[Mapping[str, Any]], _File]
) -> ImportedHistory:
    runs: list[ImportedRun] = []
    series: dict[SeriesKey, tuple[array[int], array[float]]] = {}
    project, total = _project(paths), 0
    for path in _files(paths):
        data = read_bytes(path)
        file = _parsed(tool, path, data, parse)
        runs.append(_run(path, data, tool, file))
        for one in file.values:
            total += 1
            if total > MAX_VALUES:
                raise too_many("values", MAX_VALUES)
            key = SeriesKey(
                tool,
                project,
                bounded_text(one.name),
                bounded_text(one.parameters),
                bounded_text(one.metric),
                bounded_text(one.unit),
                LOWER if one.unit == "seconds" or one.unit == "bytes" else "",
                bounded_text(file.machine),
                bounded_text(file.environment),
            )
            numbers, values = series.setdefault(key, (array("i"), array("d")))
            if not numbers or numbers[-1] != len(runs) - 1:
                numbers.append(len(runs) - 1)
                values.append(one.value)
    if not total:
        raise UsageError(f"The files hold no result of {tool}.", f"Give files that {tool} wrote.")
    return ImportedHistory(tool, project, tuple(runs), series, _notes(tool, runs))


def _notes(tool: str, runs: Sequence[ImportedRun]) -> tuple[str, ...]:
    without = sum(not run.commit for run in runs)
    notes = [f"The values are {tool}'s own, by its definitions."]
    if without:
        notes.append(f"{without} of {len(runs)} files name no commit; runs are told by their date.")
    undated = sum(run.at == 0.0 for run in runs)
    if undated:
        notes.append(f"{undated} files have no date and come before all others.")
    return tuple(notes)


def _parsed(
    tool: str, path: Path, data: bytes, parse: Callable[[Mapping[str, Any]], _File]
) -> _File:
    name = printable(path.name)
    remedy = f"Give files that {tool} wrote, or the folder that holds them."
    try:
        document = json.loads(data)
        if not isinstance(document, dict) or not isinstance(document.get("benchmarks"), list):
            raise UsageError(f"{name} is not a file of {tool}: it lists no benchmarks.", remedy)
        file = parse(document)
        return file._replace(values=iter([*file.values]))
    except (ValueError, RecursionError, TypeError, AttributeError, OverflowError) as error:
        raise UsageError(f"{name} is not a file of {tool}: {error}.", remedy) from None


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(one for one in path.rglob("*.json") if one.is_file())
        elif path.is_file():
            found.append(path)
        else:
            raise UsageError(f"There is no file {printable(str(path))}.")
    if not found:
        raise UsageError("There is no JSON file to import.", "Name the files, or their folder.")
    if len(found) > MAX_FILES:
        raise too_many("files", MAX_FILES)
    return found


def _project(paths: Sequence[Path]) -> str:
    first = paths[0].resolve()
    return bounded_text(first.name if first.is_dir() else first.parent.name)


def _run(path: Path, data: bytes, tool: str, file: _File) -> ImportedRun:
    digest = hashlib.blake2b(data, digest_size=16)
    digest.update(f"{tool}\0{printable(path.name)}".encode())
    return ImportedRun(
        machine=bounded_text(file.machine),
        environment=bounded_text(file.environment),
        commit=bounded_text(file.commit)[:64],
        at=seconds_of(file.date) or 0.0,
        source=printable(path.name)[:MAX_NAME],
        digest=digest.digest(),
        branch=bounded_text(file.branch),
    )


def _numbers(values: Any) -> list[float]:
    several = values if isinstance(values, list) else [values]
    known = [v for v in several if isinstance(v, (int, float)) and not isinstance(v, bool)]
    return [float(value) for value in known if is_usable(value)]


def _pyperf(document: Mapping[str, Any]) -> _File:
    common = member(document, "metadata")
    first = next((one for one in document["benchmarks"] if isinstance(one, dict)), {})
    runs = [run for run in first.get("runs", ()) if isinstance(run, dict)]
    about = {**common, **member(first, "metadata")}
    dated = [member(run, "metadata").get("date") for run in runs]
    date = about.get("date") or next((one for one in dated if one), "")

    def values() -> Iterator[_One]:
        for one in document["benchmarks"]:
            metadata = {**common, **member(one, "metadata")}
            measured = [v for run in one.get("runs", ()) for v in _numbers(run.get("values", []))]
            if measured:
                unit = {"second": "seconds", "byte": "bytes"}
                of = str(metadata.get("unit", "second"))
                name = str(metadata.get("name", "unnamed"))
                yield _One(name, "", "mean", statistics.fmean(measured), unit.get(of, of))

    return _File(
        str(about.get("hostname", "")),
        f"python {about.get('python_version', '')}".strip(),
        str(about.get("commit_id", "") or about.get("git_commit", "")),
        str(about.get("commit_branch", "")),
        str(date or ""),
        values(),
    )


def _pytest_benchmark(document: Mapping[str, Any]) -> _File:
    commit, machine = member(document, "commit_info"), member(document, "machine_info")

    def values() -> Iterator[_One]:
        for one in document["benchmarks"]:
            name = str(one.get("fullname") or one.get("name"))
            statistics_of = member(one, "stats")
            for statistic in PYTEST_STATISTICS:
                for value in _numbers(statistics_of.get(statistic)):
                    yield _One(name, "", statistic, value)

    return _File(
        str(machine.get("node", "")),
        f"{machine.get('python_implementation', '')} {machine.get('python_version', '')}".strip(),
        str(commit.get("id", "")) + ("+dirty" if commit.get("dirty") else ""),
        str(commit.get("branch", "") or ""),
        str(commit.get("time") or document.get("datetime", "")),
        values(),
    )


def _google_benchmark(document: Mapping[str, Any]) -> _File:
    context = member(document, "context")
    names = ("commit", "git_commit", "revision", "commit_hash")
    return _File(
        str(context.get("host_name", "")),
        str(context.get("library_build_type", "")),
        next((str(context[name]) for name in names if context.get(name)), ""),
        str(context.get("branch", "")),
        str(context.get("date", "")),
        _google_values(document["benchmarks"]),
    )


def _google_values(rows: Sequence[Mapping[str, Any]]) -> Iterator[_One]:
    """Of repeated benchmarks the median that the library made, else the mean of the repetitions."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row.get("error_occurred") or row.get("skipped"):
            continue
        name = str(row.get("run_name") or row.get("name"))
        by_name.setdefault(name, []).append(row)
    for name, several in by_name.items():
        made = [row for row in several if row.get("aggregate_name") == "median"]
        single = [row for row in several if row.get("run_type", "iteration") == "iteration"]
        used = made or single
        for metric in ("real_time", "cpu_time"):
            yield from _google_one(name, metric, used, several)
        for counter in {key for row in used for key in row} - _NOT_A_COUNTER:
            known = [v for row in used for v in _numbers(row.get(counter))]
            if known:
                yield _One(name, "", counter, statistics.fmean(known), "count")


def _google_one(
    name: str, metric: str, used: Sequence[Mapping[str, Any]], several: Sequence[Mapping[str, Any]]
) -> Iterator[_One]:
    unit = next((str(row["time_unit"]) for row in several if row.get("time_unit")), "ns")
    if unit not in _GOOGLE_UNITS:
        raise ValueError(f"{unit!r} is not a unit of time")
    known = [v for row in used for v in _numbers(row.get(metric))]
    if known:
        yield _One(name, "", metric, statistics.fmean(known) * _GOOGLE_UNITS[unit])
