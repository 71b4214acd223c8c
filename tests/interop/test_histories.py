"""Histories of other tools: read as they wrote them, stored once, shown under their own names."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from torchstone.interop.benchmark_tools import (
    read_asv,
    read_google_benchmark,
    read_pyperf,
    read_pytest_benchmark,
)
from torchstone.lab.regressions import SeriesRequest, import_history, regressions
from torchstone.records import UsageError
from torchstone.store import open_store
from torchstone.track.series import imported_lines
from torchstone.web.query import parse
from torchstone.web.registry import PAGES
from torchstone.web.sources import DataAccess

COLUMNS = ["result", "params", "version", "started_at", "duration", "stats_ci_99_a", "samples"]
DAY_MS = 86_400_000


def write_asv(root: Path, commits: int = 40, step: int = 25, **more: Any) -> Path:
    """A results tree: a benchmark with two parameters, and one without that fails at first."""
    folder = root / "project" / "results"
    (folder / "box").mkdir(parents=True)
    (folder / "box" / "machine.json").write_text('{"machine": "box", "version": 1}')
    units = {"suite.time_sort": {"unit": "seconds"}, "suite.peakmem_all": {"unit": "bytes"}}
    (folder / "benchmarks.json").write_text(json.dumps(units))
    for number in range(commits):
        wobble = 1 + 0.01 * math.sin(number * 7.1)
        slow = 1.5 if number >= step else 1.0
        memory = None if number < 2 else [1e6 * wobble]
        results = {
            "suite.time_sort": [
                [1e-3 * wobble * slow, math.nan if number == 5 else 2e-3 * wobble],
                [["'a[0]'", "'b, c'"]],
                "v1",
                1600000000000 + number,
                0.5,
                [1.0, 2.0],
            ],
            "suite.peakmem_all": [memory, [], "v2", None, None],
        }
        head = {
            "commit_hash": f"{number:040x}",
            "env_name": "py3.11",
            "date": 1_600_000_000_000 + number * DAY_MS,
            "params": {"machine": "box"},
            "result_columns": COLUMNS,
            "results": results,
            "durations": {"<build>": 1.0},
            "version": 2,
        }
        text = json.dumps(head | more)
        (folder / "box" / f"{number:08x}-py3.11.json").write_text(text)
    return root / "project"


def by_title(db: str) -> dict[str, Any]:
    with open_store(db, read_only=True) as store:
        return {line.key.title: line for line in imported_lines(store).lines}


def test_asv_values_are_those_of_the_files(tmp_path: Path) -> None:
    history = read_asv([write_asv(tmp_path)])
    assert len(history.runs) == 40
    assert history.project == "project"
    series = {key.title: (key, *value) for key, value in history.series.items()}
    key, runs, values = series["suite.time_sort('a[0]')"]
    assert (key.unit, key.machine, key.environment, key.version) == (
        "seconds",
        "box",
        "py3.11",
        "v1",
    )
    assert list(runs) == list(range(40))
    expected = [1e-3 * (1 + 0.01 * math.sin(n * 7.1)) * (1.5 if n >= 25 else 1) for n in range(40)]
    assert list(values) == pytest.approx(expected, rel=1e-15)
    _, skipped_runs, _ = series["suite.time_sort('b, c')"]
    assert 5 not in skipped_runs
    assert len(skipped_runs) == 39
    key, _, memory = series["suite.peakmem_all"]
    assert key.unit == "bytes"
    assert math.isnan(memory[0])
    assert memory[2] > 0


def test_walking_a_file_gives_what_decoding_it_gives(tmp_path: Path) -> None:
    """Files that are indented are not as asv writes them, and are decoded instead."""
    tree = write_asv(tmp_path)
    walked = read_asv([tree])
    for path in (tree / "results" / "box").glob("0*.json"):
        path.write_text(json.dumps(json.loads(path.read_text()), indent=1))
    decoded = read_asv([tree])
    assert repr(walked.series) == repr(decoded.series)


def test_an_import_is_stored_once_and_grows(tmp_path: Path) -> None:
    db, tree = str(tmp_path / "a.db"), write_asv(tmp_path, 30)
    _, first = import_history("asv", [str(tree)], "", db)
    assert (first.runs, first.known, first.values) == (30, 0, 89)
    _, again = import_history("asv", [str(tree)], "", db)
    assert (again.runs, again.known, again.values) == (0, 30, 0)
    newer = tree / "results" / "box" / "newer-py3.11.json"
    data = json.loads((tree / "results" / "box" / "00000003-py3.11.json").read_text())
    data |= {"date": 1_700_000_000_000, "commit_hash": "f" * 40}
    newer.write_text(json.dumps(data))
    _, more = import_history("asv", [str(tree)], "", db)
    assert (more.runs, more.known) == (1, 30)
    assert by_title(db)["suite.time_sort('a[0]')"].values.size == 31


def test_a_step_of_an_imported_history_is_found_and_drawn(tmp_path: Path) -> None:
    db = str(tmp_path / "a.db")
    import_history("asv", [str(write_asv(tmp_path))], "numbers", db)
    report = regressions(SeriesRequest(tool="asv"), db, 0.03)
    (one,) = report.changes
    assert one.key.title == "suite.time_sort('a[0]')"
    assert one.key.suite == "numbers"
    assert one.first_bad.commit == f"{25:040x}"
    assert one.interval[0] <= 1.5 <= one.interval[1]
    with open_store(db, read_only=True) as store:
        source = DataAccess(store)
        page = PAGES["regressions"].view(source, parse(()), "")
        assert "1 regression (1 open)" in page.lead
        drawn = PAGES["change"].view(source, parse(()), one.id)
        assert drawn.sections[1].events[0].time_s == one.first_bad.at  # type: ignore[union-attr]
        listed = PAGES["imported"].view(source, parse((("filter", "SORT"),)), "")
        assert listed.lead.startswith("2 series")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"results": 5}', '{"results": {"a": [[1, 2], [["x"]], "v"]}}', "\x00\xff"],
)
def test_damaged_files_of_asv_are_left_out_and_counted(tmp_path: Path, text: str) -> None:
    tree = write_asv(tmp_path, 12)
    (tree / "results" / "box" / "bad.json").write_text(text, encoding="latin-1")
    history = read_asv([tree])
    assert len(history.series) == 3
    assert len(history.runs) in (12, 13)


def test_no_asv_at_all_is_told(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match=r"no results file|not a folder"):
            read_asv([path])


PYPERF = {
    "benchmarks": [
        {"runs": [{"metadata": {"date": "2026-01-02 03:04:05.6"}, "values": [1.0, 3.0]}]},
        {"metadata": {"name": "other"}, "runs": [{"warmups": [[1, 2.0]], "values": [0.5]}]},
    ],
    "metadata": {"name": "first", "hostname": "box", "python_version": "3.11", "commit_id": "abc"},
    "version": "1.0",
}
PYTEST = {
    "machine_info": {"node": "box", "python_version": "3.11", "python_implementation": "CPython"},
    "commit_info": {"id": "abc", "time": "2026-01-02T03:04:05+00:00", "branch": "main"},
    "benchmarks": [
        {"name": "t", "fullname": "x.py::t", "stats": {"min": 1.0, "mean": 2.0, "median": 1.5}}
    ],
    "datetime": "2026-01-03T00:00:00",
}
GOOGLE = {
    "context": {"date": "2026-01-02T03:04:05+00:00", "host_name": "box", "commit": "abc"},
    "benchmarks": [
        {"name": "BM/8", "run_name": "BM/8", "run_type": "iteration", "real_time": 10.0}
        | {"cpu_time": 8.0, "time_unit": "us", "bytes_per_second": 5e9, "iterations": 7},
        {"name": "BM/8", "run_name": "BM/8", "run_type": "iteration", "real_time": 20.0}
        | {"cpu_time": 8.0, "time_unit": "us", "bytes_per_second": 5e9, "iterations": 7},
        {"name": "bad", "run_type": "iteration", "error_occurred": True},
    ],
}


@pytest.mark.parametrize(
    ("read", "document", "expected"),
    [
        (read_pyperf, PYPERF, {("first", "mean"): 2.0, ("other", "mean"): 0.5}),
        (
            read_pytest_benchmark,
            PYTEST,
            {("x.py::t", "min"): 1.0, ("x.py::t", "median"): 1.5, ("x.py::t", "mean"): 2.0},
        ),
        (
            read_google_benchmark,
            GOOGLE,
            {
                ("BM/8", "real_time"): 15e-6,
                ("BM/8", "cpu_time"): 8e-6,
                ("BM/8", "bytes_per_second"): 5e9,
            },
        ),
    ],
)
def test_files_of_one_run(tmp_path: Path, read: Any, document: Any, expected: Any) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps(document))
    history = read([path])
    found = {(key.name, key.metric): list(v[1]) for key, v in history.series.items()}
    assert found == {key: pytest.approx([value]) for key, value in expected.items()}
    (run,) = history.runs
    assert (run.machine, run.commit) == ("box", "abc")
    assert run.at == pytest.approx(1767323045, abs=1)


@pytest.mark.parametrize("read", [read_pyperf, read_pytest_benchmark, read_google_benchmark])
@pytest.mark.parametrize("text", ["", "[]", "{}", '{"benchmarks": [1]}', '{"benchmarks": [{}]}'])
def test_wrong_files_are_told(tmp_path: Path, read: Any, text: str) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(text)
    with pytest.raises(UsageError):
        read([path])
