"""The cost of profiling: ratios with their control, aims that can fail, and the whole command."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from aa_journal import Journal
from profiling_cost import Line, against, aims, collect, estimate, line_of, text_of
from profiling_tools import ENTRIES, Entry

from tests.benchmarks.support import run

OURS, THEIRS, SAMPLE = "torchstone count", "cProfile", "torchstone sample"


def entry(name: str) -> Entry:
    return next(one for one in ENTRIES if one.name == name)


def row(tool: str, turn: int, ratio: float, control: float = 1.0, **more: Any) -> dict[str, Any]:
    """What a process would have seen: noise goes up and down alike."""
    wobble = [1.01, 0.99, 1.02, 0.98]
    return {
        "kind": "seen", "work": "python", "tool": tool, "round": turn, "reason": "",
        "pairs": [[1.0, ratio * by] for by in wobble],
        "controls": [[1.0, control / by] for by in wobble],
        "cpu_pairs": [[1.0, ratio]] * 4,
        "start_s": [0.001] * 4, "end_s": [0.001] * 4, "finish_s": 0.5,
        "written_bytes": 2_000_000, "memory_bytes": None, **more,
    }  # fmt: skip


def rows(tool: str, ratios: list[float]) -> list[dict[str, Any]]:
    return [row(tool, turn, ratio) for turn, ratio in enumerate(ratios)]


def test_a_ratio_is_that_of_processes_and_held_against_their_control() -> None:
    found = line_of(rows(OURS, [1.49, 1.5, 1.51]), "python", entry(OURS))
    assert found.processes == 3
    assert found.ratio is not None
    assert found.ratio[0] == pytest.approx(1.5, rel=0.01)
    assert found.ratio[1] < 1.5 < found.ratio[2]
    assert found.cpu == pytest.approx(1.5, rel=0.01)
    assert found.separable
    same = line_of(rows(SAMPLE, [1.01, 0.99, 1.0]), "python", entry(SAMPLE))
    assert not same.separable
    drifting = [row(SAMPLE, turn, 1.2, control=1.19 + turn / 100) for turn in range(3)]
    assert not line_of(drifting, "python", entry(SAMPLE)).separable


def test_one_process_has_the_spread_of_its_pairs() -> None:
    value, low, high = estimate([[0.1, 0.2, 0.3]])
    assert value == pytest.approx(math.exp(0.2))
    assert low < value < high < math.inf
    assert not line_of([row(OURS, 0, 1.001)], "python", entry(OURS)).separable


def test_what_is_dearer_misses_its_aim() -> None:
    def verdicts(
        ours: float, theirs: float, sampling: float, noise: tuple[float, ...] = (0.99, 1.0, 1.01)
    ) -> list[str]:
        found = [
            *rows(OURS, [ours * by for by in noise]),
            *rows(THEIRS, [theirs * by for by in noise]),
            *rows(SAMPLE, [sampling * by for by in noise]),
        ]
        lines = [line_of(found, "python", entry(name)) for name in (OURS, THEIRS, SAMPLE)]
        return [aim.verdict for aim in aims(lines, found)]

    assert verdicts(3.0, 2.0, 1.2) == ["not met", "not met"]
    assert verdicts(2.0, 3.0, 0.5) == ["met: cheaper", "met: cheaper"]
    # The noise is shared by rounds, so against the other tool there is none left.
    assert verdicts(2.0, 2.0, 1.0)[0].startswith("met: no difference of ±2.5")
    assert verdicts(2.0, 2.0, 1.0, noise=(0.7, 1.0, 1.4))[0].startswith("undecided")


def test_only_rounds_that_both_have_are_compared() -> None:
    found = [*rows(OURS, [2.0, 2.0]), row(THEIRS, 1, 2.0), row(THEIRS, 7, 9.0)]
    ratio = against(found, "python", OURS, THEIRS)
    assert ratio is not None
    assert ratio[0] == pytest.approx(1.0)
    assert against(found, "two-layer", OURS, THEIRS) is None


def test_a_tool_that_is_not_there_is_listed_with_the_reason() -> None:
    found = [{**row("py-spy", 0, 1.0), "reason": "may not attach here"}]
    line = line_of(found, "python", entry("py-spy"))
    assert line.ratio is None
    assert "may not attach here" in text_of([line], [], False)
    assert "not run yet" in text_of([Line("python", "x", reason="not run yet")], [], True)


def test_a_process_that_failed_is_counted_and_told() -> None:
    died = {**row(OURS, 1, 1.0), "reason": "ended with code -9: no word"}
    line = line_of([row(OURS, 0, 1.5), died, row(OURS, 2, 1.5)], "python", entry(OURS))
    assert (line.processes, line.failed) == (2, 1)
    assert line.ratio is not None
    shown = text_of([line], [], False)
    assert "processes (failed)" in shown
    assert "2 (1)" in shown
    assert f"python, {OURS}: 1 failed, the first because: ended with code -9: no word" in shown


@pytest.mark.parametrize(("for_good", "rounds"), [(False, [0, 1, 2]), (True, [0])])
def test_only_what_cannot_be_otherwise_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, for_good: bool, rounds: list[int]
) -> None:
    seen = {"reason": "did not work", "for_good": for_good}
    monkeypatch.setattr("profiling_cost.run_process", lambda *_: seen)
    settings = {"rounds": 3, "pairs": 4, "block_s": 0.05, "max_minutes": 9}
    with Journal(tmp_path / "cost.jsonl") as journal:
        for _ in range(2):  # and what was tried is not tried again
            collect(journal, settings, ["python"], [OURS])
            assert [row["round"] for row in journal.rows] == rounds


@pytest.mark.slow
def test_the_whole_command_goes_on_where_it_ended(tmp_path: Path) -> None:
    out = tmp_path / "cost.jsonl"
    words = ["--quick", "--work", "python", "--only", OURS, THEIRS, "--out", str(out), "--json"]
    done = run("profiling_cost.py", *words)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert [line["tool"] for line in data["lines"]] == [OURS, THEIRS]
    assert all(line["ratio"][0] > 1.2 for line in data["lines"])  # counting calls is expensive
    assert all(line["written_bytes"] > 100 for line in data["lines"])
    assert [aim["what"] for aim in data["aims"]] == [f"{OURS} not more expensive than {THEIRS}"]
    kept = out.read_text()
    again = run("profiling_cost.py", *words)
    assert json.loads(again.stdout) == data
    assert out.read_text() == kept
    with Journal(out) as journal:
        settings = {"rounds": 1, "pairs": 4, "block_s": 0.05, "max_minutes": 0}
        collect(journal, settings, ["two-layer"], [OURS])  # no time is left
        assert journal.rows == [json.loads(line) for line in kept.splitlines()]
