"""The profiles that viewers are compared on, and the whole command."""

from __future__ import annotations

import importlib.util
import json
import pstats
import shutil
from pathlib import Path

import pytest
from view_cost import NOT_INSTALLED, View, report, write_counted, write_trace

from tests.benchmarks.support import run


def test_the_counted_program_is_one_tree(tmp_path: Path) -> None:
    file = tmp_path / "counted.prof"
    write_counted(file, 300)
    stats = pstats.Stats(str(file)).stats  # type: ignore[attr-defined]
    assert len(stats) == 300
    assert sorted(len(figures[4]) for figures in stats.values())[:2] == [0, 1]
    own = sum(figures[2] for figures in stats.values())
    assert max(figures[3] for figures in stats.values()) == pytest.approx(own)


def test_the_trace_has_the_size_that_was_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    events = write_trace(file, 0.5)
    assert file.stat().st_size == pytest.approx(0.5e6, rel=0.1)
    assert (
        sum(event["ph"] == "X" for event in json.loads(file.read_text())["traceEvents"]) == events
    )


def test_a_viewer_that_is_not_there_is_told() -> None:
    shown = report(
        [View("p", "a", (2.0, 1.0), (0.5,), 10**6, 3.0), View("p", "b", note=NOT_INSTALLED)]
    )
    assert "1.00 s" in shown
    assert "1.50 s" in shown
    assert shown.splitlines()[-1].split("  ")[-1].strip() == NOT_INSTALLED


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which("chromium") and importlib.util.find_spec("playwright")),
    reason="needs Chromium and playwright",
)
def test_the_whole_command(tmp_path: Path) -> None:
    out = tmp_path / "view.json"
    done = run(
        "view_cost.py", "--nodes", "500", "--megabytes", "0.5", "--rounds", "1", "--out", str(out)
    )
    assert done.returncode == 0, done.stderr
    assert "aim: the icicle of 500 nodes" in done.stdout
    data = json.loads(out.read_text())
    assert [view["viewer"].split(",")[0] for view in data] == [
        "torchstone", "torchstone", "snakeviz", "torchstone", "torchstone",
    ]  # fmt: skip
