"""The table counts what the rows say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aa_report import Share, aims, report, summarise
from scipy.stats import binomtest

from tests.benchmarks.support import run, trial


def planted() -> list[dict[str, Any]]:
    """20 of 40 covered; 2 of 40 false alarms, one each way; 37 of 40 found at 5 %."""
    rows: list[dict[str, Any]] = [{"kind": "pin", "name": "live", "value": {}}]
    for i in range(40):
        verdict = {0: "slower", 1: "faster"}.get(i, "same")
        rows.append(trial("ours", 0, i, verdict, 1.01, (0.99, 1.02) if i % 2 else (1.01, 1.03)))
    for i in range(40):
        verdict = "cannot tell" if i < 2 else "faster" if i == 2 else "slower"
        rows.append(trial("ours", 5, i, verdict, 1.05 * 1.02, (1.01, 1.11), wall_s=30 + i))
    rows += [trial("torch", 0, i, "slower" if i < 9 else "no difference") for i in range(20)]
    rows.append({**trial("torch", 0, 20, ""), "error": "it died"})
    return rows


def test_the_rates() -> None:
    same, torch, five = summarise(planted())
    assert (same.tool, same.effect, same.trials) == ("ours", 0, 40)
    assert same.different == Share(2, 40)
    assert same.covered == Share(20, 40)
    assert same.error == pytest.approx(0.01)
    assert (five.different, five.wrong_way, five.covered) == (Share(37, 40), 1, Share(40, 40))
    assert five.error == pytest.approx(0.02)
    assert five.half_width == pytest.approx(0.05)
    assert five.wall_s == pytest.approx(49.5)
    assert (torch.tool, torch.trials, torch.failed) == ("torch", 20, 1)
    assert (torch.different, torch.covered) == (Share(9, 20), None)


def test_the_interval_is_exact() -> None:
    truth = binomtest(9, 20).proportion_ci(0.95, "exact")
    assert Share(9, 20).interval == pytest.approx((truth.low, truth.high))
    assert str(Share(9, 20)) == "45% (9/20; 23%–68%)"


def test_the_aims() -> None:
    evaluated = {(aim, where): verdict for aim, where, _, verdict in aims(summarise(planted()))}
    assert evaluated == {
        ("false 'different' at most 5%", "0 %, quiet"): "met*",
        ("covered at least 90%", "0 %, quiet"): "not met",
        ("found at least 95%", "5 %, quiet"): "not met*",
        ("covered at least 90%", "5 %, quiet"): "met",
    }


def test_few_trials_are_not_judged() -> None:
    rows = [trial("ours", 0, i, "same", 1.0, (0.9, 1.1)) for i in range(19)]
    assert {verdict for *_, verdict in aims(summarise(rows))} == {"not enough trials"}


def test_detection_under_load_is_shown_but_no_aim() -> None:
    rows = [trial("ours", 2, i, "slower", 1.02, (1.01, 1.03), load=True) for i in range(20)]
    assert [aim for aim, *_ in aims(summarise(rows))] == ["covered at least 90%"]


def test_an_open_interval_covers_nothing_and_is_not_counted() -> None:
    row = {**trial("ours", 0, 0, "cannot tell"), "ratio": None, "interval": [0.0, None]}
    (line,) = summarise([row])
    assert (line.covered, line.error, line.different) == (None, None, Share(0, 1))


def test_the_command_reads_several_files(tmp_path: Path) -> None:
    rows = planted()
    for name, part in (("a", rows[:60]), ("b", rows[60:])):
        text = "".join(json.dumps(row) + "\n" for row in part)
        (tmp_path / name).write_text(text)
    done = run("aa.py", "report", str(tmp_path / "a"), str(tmp_path / "b"), "--markdown")
    assert done.stdout.rstrip("\n") == report(rows, markdown=True)
    head = done.stdout.splitlines()[0]
    assert all(line.count("|") == head.count("|") for line in done.stdout.splitlines()[:5])
