"""asv's results trees: one file a commit and environment, a list of values a benchmark.

A results file is JSON, and most of it is what we do not keep (quantiles, counts). So the results
are walked by hand: a value list is decoded, parameters and version are compared with those of the
file before, and the rest of a row is skipped to the next quotation mark. Whatever does not look as
asv writes it is decoded as JSON instead.

JSON files of pyperf, pytest-benchmark and Google Benchmark: one file is one run.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import statistics
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard, cast

from torchstone.interop.files import MAX_NAME, printable
from torchstone.interop.histories import (
    LAST_SECOND,
    LOWER,
    MOST_VALUE,
    Benchmarks,
    bounded_text,
    is_usable,
    read_bytes,
    too_many,
)
from torchstone.interop.rows import member
from torchstone.records import ImportedHistory, ImportedRun, SeriesKey, UsageError
from torchstone.store.limits import seconds_of

TOOL = "asv"
METRIC = "result"
MAX_FILES = 100_000
"""Commits times environments; the largest public trees have about 6,000."""
MAX_ALL_BYTES = 8 * 2**30
MAX_COMBINATIONS = 100_000
"""Of one benchmark's parameters."""
_RESULTS = '"results": {'
_COLUMNS = ["result", "params", "version"]
_DECODER = json.JSONDecoder()
_NAN = math.nan


class _Row(NamedTuple):
    """One benchmark in one file: its values in the order of its parameters' combinations."""

    name: str
    values: list[float | None]
    setting: _Setting


class _Setting(NamedTuple):
    """What rows of one benchmark share from file to file."""

    number: int
    """Of this reader's settings: quicker to look up than the texts."""
    text: str
    parameters: tuple[str, ...]
    """One text for each combination."""
    version: str


class _Reader:
    """Reads results files one after the other; keeps what the next has in common with them."""

    def __init__(self) -> None:
        self._settings: dict[str, _Setting] = {}
        self._every: dict[tuple[str, str], _Setting] = {}
        self.odd = 0
        """Rows whose values and parameters do not belong together."""

    def read(self, name: str, text: str) -> tuple[dict[str, Any], list[_Row]]:
        """The head of a file, and its rows."""
        start = text.find(_RESULTS)
        if start >= 0:
            try:
                head = json.loads(text[: start + len(_RESULTS)] + "}}")
                if isinstance(head, dict) and head.get("result_columns", [])[:3] == _COLUMNS:
                    return head, self._walk(text, start + len(_RESULTS))
            except (ValueError, TypeError, RecursionError):
                pass  # not as asv writes it: all of it is decoded
        return self._decoded(name, text)

    def _walk(self, text: str, place: int) -> list[_Row]:
        """The rows; `ValueError` where one is not as asv writes it."""
        found: list[tuple[str, _Setting]] = []
        lists: list[str] = []
        while not text.startswith("}", place):
            colon = text.find('": [', place)  # a name that holds this is not one of asv's
            if colon < 0 or not text.startswith('"', place):
                raise ValueError("no row")
            name, start = text[place + 1 : colon], colon + 4
            end = start + 4 if text.startswith("null", start) else text.find("]", start) + 1
            values = text[start:end]
            setting, place = self._setting(name, text, end + 2)
            found.append((name, setting))
            lists.append(values)
            quote = text.find('"', place)
            if quote < 0 or text.endswith("}, ", place, quote):
                break
            if not text.endswith("], ", place, quote):
                raise ValueError("a row with more than numbers")
            place = quote
        rows = []
        decoded = json.loads(f"[{','.join(lists)}]")  # once, which is quicker than one by one
        for (name, setting), several in zip(found, decoded, strict=True):
            # None: it failed as a whole.
            own = [None] * len(setting.parameters) if several is None else several
            if len(own) == len(setting.parameters):
                rows.append(_Row(name, own, setting))
            else:
                self.odd += 1
        return rows

    def _setting(self, name: str, text: str, place: int) -> tuple[_Setting, int]:
        known = self._settings.get(name)
        if known is not None and text.startswith(known.text, place):
            return known, place + len(known.text)
        parameters, end = _DECODER.raw_decode(text, place)
        version = ""
        if text.startswith(', "', end):
            version, end = _DECODER.raw_decode(text, end + 2)
        made = self._made(name, text[place:end], parameters, version)
        self._settings[name] = made
        return made, end

    def _made(self, name: str, text: str, parameters: Any, version: Any) -> _Setting:
        """The setting of those words; the same as before where they were met before."""
        known = self._every.get((name, text))
        if known is None:
            several = combinations(parameters)
            known = _Setting(len(self._every), text, several, bounded_text(version))
            self._every[name, text] = known
        return known

    def _decoded(self, name: str, text: str) -> tuple[dict[str, Any], list[_Row]]:
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"{name} is not a results file of asv: {error}.",
                "Give the folder that asv calls `results_dir`.",
            ) from None
        results = data.get("results") if isinstance(data, dict) else None
        if not isinstance(results, dict):
            raise UsageError(
                f"{name} is not a results file of asv: it has no results.",
                "Give the folder that asv calls `results_dir`.",
            )
        columns = data.get("result_columns") or []
        return data, [
            row for key, one in results.items() if (row := self._row(key, one, columns)) is not None
        ]

    def _row(self, name: str, one: Any, columns: Sequence[Any]) -> _Row | None:
        """Of any version of the format: a list by columns, an object, or a value alone."""
        if isinstance(one, list) and columns:
            one = dict(zip(columns, one, strict=False))
        if not isinstance(one, dict):
            one = {"result": [one]}
        values, parameters = one.get("result"), one.get("params") or []
        values = values if isinstance(values, list) else [values]
        if not isinstance(parameters, list):
            self.odd += 1
            return None
        version = one.get("version") or ""
        known = self._made(name, json.dumps([parameters, version]), parameters, version)
        sound = all(v is None or isinstance(v, (int, float)) for v in values)
        if values == [None]:
            values = [None] * len(known.parameters)
        if not sound or len(values) != len(known.parameters):
            self.odd += 1
            return None
        return _Row(bounded_text(name), values, known)


def combinations(parameters: Any) -> tuple[str, ...]:
    """The text of each combination of parameters, in asv's order; one empty text without any."""
    if not isinstance(parameters, list) or not all(isinstance(one, list) for one in parameters):
        raise ValueError("parameters are no lists")
    if math.prod(len(one) for one in parameters) > MAX_COMBINATIONS:
        raise too_many("combinations of parameters", MAX_COMBINATIONS)
    return tuple(
        bounded_text(", ".join(map(str, several))) for several in itertools.product(*parameters)
    )


class _Pile(NamedTuple):
    """The rows of one benchmark of one version in one environment."""

    machine: str
    environment: str
    name: str
    setting: _Setting
    numbers: list[int]
    """Of their runs."""
    several: list[list[float | None]]


def read_asv(paths: Sequence[Path]) -> ImportedHistory:
    """The history of a results folder, of a folder that holds one, or of several of a project."""
    runs: list[ImportedRun] = []
    piles: dict[tuple[str, str, int], _Pile] = {}
    reader, benchmarks = _Reader(), Benchmarks()
    left, bad = MAX_ALL_BYTES, []
    folders = [_results_folder(path) for path in paths]
    for folder in folders:
        benchmarks.read(folder / "benchmarks.json")
        for path in _asv_files(folder):
            data = read_bytes(path)
            left -= len(data)
            if left < 0:
                raise too_many("bytes of results", MAX_ALL_BYTES)
            try:
                head, rows = reader.read(printable(path.name), data.decode("utf-8"))
                run = _asv_run(path, head, data)
            except (UnicodeDecodeError, UsageError):
                bad.append(printable(path.name))
                continue
            number = len(runs)
            runs.append(run)
            for name, values, setting in rows:
                here = (run.machine, run.environment, setting.number)
                pile = piles.get(here)
                if pile is None:
                    pile = piles[here] = _Pile(run.machine, run.environment, name, setting, [], [])
                pile.numbers.append(number)
                pile.several.append(values)
    if not runs:
        raise UsageError(
            "There is no results file of asv here.", "Give the folder that asv calls `results_dir`."
        )
    project = printable(_asv_project(folders[0]))
    series: dict[SeriesKey, tuple[array[int], array[float]]] = {}
    for pile in piles.values():
        _unpack(project, pile, benchmarks, series)
    return ImportedHistory(TOOL, project, tuple(runs), series, _asv_notes(reader, bad))


def _asv_notes(reader: _Reader, bad: Sequence[str]) -> tuple[str, ...]:
    notes = [
        "The values are asv's own results; a failed benchmark has no value, a skipped one no entry."
    ]
    if reader.odd:
        notes.append(f"{reader.odd} results were left out: values and parameters do not fit.")
    if bad:
        notes.append(f"{len(bad)} files are no results of asv and were left out: {bad[0]}, …")
    return tuple(notes)


def _unpack(
    project: str,
    pile: _Pile,
    benchmarks: Benchmarks,
    series: dict[SeriesKey, tuple[array[int], array[float]]],
) -> None:
    """One series for each combination of parameters, without the values that were skipped."""
    unit, better = benchmarks.unit(pile.name)
    every, columns = array("i", pile.numbers), zip(*pile.several, strict=True)
    for parameters, column in zip(pile.setting.parameters, columns, strict=True):
        runs, whole = every, list(column)
        if not _all_usable(column):
            runs, whole = _without_skipped(pile.numbers, column)
        if not whole:
            continue
        key = SeriesKey(
            TOOL,
            project,
            pile.name,
            parameters,
            METRIC,
            unit,
            better,
            pile.machine,
            pile.environment,
            pile.setting.version,
        )
        known = series.get(key)
        if known is None:
            series[key] = (runs[:], array("d", whole))
        else:  # two parameters that look the same, or the same file in two folders
            known[0].extend(runs)
            known[1].extend(whole)


def _all_usable(column: Sequence[float | None]) -> TypeGuard[Sequence[float]]:
    """Whether each is a number that was measured: the usual case, so without a loop of ours."""
    if None in column:
        return False
    known = cast("Sequence[float]", column)
    if not -MOST_VALUE <= min(known) <= max(known) <= MOST_VALUE:
        return False
    whole = sum(known)
    return whole == whole


def _without_skipped(
    numbers: Sequence[int], column: Sequence[float | None]
) -> tuple[array[int], list[float]]:
    """NaN is asv's word for a skipped one, null that for a failed one."""
    runs = [n for n, value in zip(numbers, column, strict=True) if value == value]
    kept = [v for v in column if v == v]
    return array("i", runs), [_NAN if v is None or not is_usable(v) else v for v in kept]


def _asv_run(path: Path, head: dict[str, Any], data: bytes) -> ImportedRun:
    date, machine = head.get("date"), head.get("params")
    known = machine.get("machine") if isinstance(machine, dict) else None
    known_date = date if isinstance(date, (int, float)) else 0
    seconds = known_date / 1000.0 if 0 <= known_date <= 1000 * LAST_SECOND else 0.0
    environment = head.get("env_name") or path.stem.partition("-")[2]
    digest = hashlib.blake2b(data, digest_size=16, person=b"asv")
    digest.update(path.parent.name.encode("utf-8", "backslashreplace"))
    digest.update(path.name.encode("utf-8", "backslashreplace"))
    return ImportedRun(
        machine=bounded_text(known or path.parent.name),
        environment=bounded_text(environment),
        commit=bounded_text(head.get("commit_hash") or "")[:64],
        at=seconds,
        source=printable(f"{path.parent.name}/{path.name}")[:MAX_NAME],
        digest=digest.digest(),
    )


def _results_folder(path: Path) -> Path:
    """The folder itself, or the one in it; asv's own configuration may name another."""
    if not path.is_dir():
        raise UsageError(f"{printable(str(path))} is not a folder.", "Give asv's results folder.")
    return path / "results" if (path / "results").is_dir() else path


def _asv_project(folder: Path) -> str:
    folder = folder.resolve()
    return folder.parent.name if folder.name == "results" else folder.name


def _asv_files(folder: Path) -> list[Path]:
    """Results files of all machines, in order; a file beside them is none."""
    found: list[Path] = []
    try:
        machines = [one for one in os.scandir(folder) if one.is_dir()]
        for machine in sorted(machines, key=lambda one: one.name):
            names = sorted(one.name for one in os.scandir(machine.path) if one.is_file())
            found += [
                Path(machine.path, name)
                for name in names
                if name.endswith(".json") and name != "machine.json"
            ]
    except OSError as error:
        raise UsageError(f"{printable(str(folder))} cannot be read: {error.strerror}.") from None
    if len(found) > MAX_FILES:
        raise too_many("files", MAX_FILES)
    return found


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
