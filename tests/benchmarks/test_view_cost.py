"""The profiles that viewers are compared on, and the whole command."""

from __future__ import annotations

import importlib.util
import json
import pstats
import shutil
from pathlib import Path
from typing import Any

import pytest
from view_cost import (
    NOT_INSTALLED,
    SNAKEVIZ_SHOWN,
    Browser,
    View,
    aims,
    report,
    write_counted,
    write_trace,
)
from view_fluid import ACTIONS, IDLE, Fluid, gathered

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
    shown = report([View("p", "a", (2.0, 1.0), (0.5,), 10**6), View("p", "b", note=NOT_INSTALLED)])
    assert "1.50 s" in shown
    row = next(line for line in shown.splitlines() if line.startswith("p        b"))
    assert row.split("  ")[-1].strip() == NOT_INSTALLED


def test_the_picture_begins_with_the_file() -> None:
    made_before = View("p", "ours", (0.25, 0.5, 1.5), (0.1,) * 3, 10**6, (3.0, 4.0, 2.0))
    read_by_its_server = View("p", "theirs", (5.0, 6.0, 7.0), (0.1,) * 3, 10**6)
    assert made_before.whole_s == (3.25, 4.5, 3.5)
    assert read_by_its_server.whole_s == read_by_its_server.painted_s
    ours, theirs = report([made_before, read_by_its_server]).splitlines()[2:4]
    assert ours.split()[2:4] == ["3.50", "s"]
    assert theirs.split()[2:4] == ["6.00", "s"]


def test_aims_are_judged_by_the_median() -> None:
    rounds = [dict.fromkeys(ACTIONS, 0.04) for _ in range(3)]
    fluid = gathered("p", rounds)
    seen = View("p", "ours", (0.5, 1.2, 1.4), (0.1,) * 3, 10**6, (3.0,) * 3)
    first, second = aims([seen], fluid).splitlines()
    assert first.endswith("1.20 s, missed")
    assert "40 ms, met; at rest 40 ms" in second
    slow = [*fluid, Fluid("p", "a dance", (0.05, 0.3, 0.2))]
    assert "a dance 200 ms, missed" in aims([seen], slow).splitlines()[1]
    at_rest = [Fluid("p", IDLE, (9.0,)), *fluid[1:]]
    assert "40 ms, met; at rest 9000 ms" in aims([seen], at_rest).splitlines()[1]


needs_chromium = pytest.mark.skipif(
    not (shutil.which("chromium") and importlib.util.find_spec("playwright")),
    reason="needs Chromium and playwright",
)


@pytest.mark.slow
@needs_chromium
def test_a_page_that_draws_late_is_painted_late(driver: Any, tmp_path: Path) -> None:
    """As SnakeViz does it: boxes as elements, some time after the page is there."""
    page = tmp_path / "late.html"
    page.write_text(
        "<svg><g></g></svg><script>setTimeout(() => {"
        "document.querySelector('g').innerHTML = '<rect/>'.repeat(20)}, 400)</script>"
    )
    browser = Browser(driver, shutil.which("chromium") or "")
    painted, used = browser.load(page.as_uri(), SNAKEVIZ_SHOWN)
    browser.close()
    assert painted >= 0.4
    assert used >= 0


@pytest.mark.slow
@needs_chromium
def test_the_whole_command(tmp_path: Path) -> None:
    out = tmp_path / "view.json"
    done = run(
        "view_cost.py", "--nodes", "500", "--megabytes", "0.5", "--rounds", "1", "--out", str(out)
    )
    assert done.returncode == 0, done.stderr
    assert "aim: the icicle of 500 nodes" in done.stdout
    data = json.loads(out.read_text())
    assert [one["action"] for one in data["fluid"]] == list(ACTIONS)
    assert all(one["longest_s"][0] > 0 for one in data["fluid"])
    assert [len(view["made_s"]) for view in data["views"]] == [1, 0, 0, 1, 0]
    assert [view["viewer"].split(",")[0] for view in data["views"]] == [
        "torchstone", "torchstone", "snakeviz", "torchstone", "torchstone",
    ]  # fmt: skip
