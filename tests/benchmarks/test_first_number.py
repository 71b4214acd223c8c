"""The wait for a first figure: what is read from each tool, and the aims."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from first_number import (
    OURS,
    PAIRS,
    SCRIPT,
    TORCH,
    Waited,
    aims,
    as_json,
    commands,
    lines_of,
    stored,
    wait_for,
)

from tests.benchmarks.support import environment, run

SHORT = "10 µs function"
GPT = "small GPT, inductor"


def test_lines_carry_the_time_at_which_they_came() -> None:
    code = "import time; print('a', flush=True); time.sleep(0.5); print('b')"
    found = list(lines_of([sys.executable, "-c", code], environment()))
    assert [line for _, line in found] == ["a", "b", ""]
    times = [at for at, _ in found]
    assert times == sorted(times)
    assert times[1] - times[0] > 0.3
    with pytest.raises(RuntimeError, match="ended with 3"):
        list(lines_of([sys.executable, "-c", "raise SystemExit(3)"], environment()))


def test_every_target_can_be_asked_of_every_tool(tmp_path: Path) -> None:
    for target in PAIRS:
        made = commands(target, tmp_path)
        assert {OURS, SCRIPT, TORCH} <= set(made)
        assert ("--vs" in made[OURS]) == (target == GPT)
        assert "--fast" in made[OURS]


def test_a_script_gives_its_first_figure_before_its_ratio(tmp_path: Path) -> None:
    found = wait_for(SHORT, SCRIPT, commands(SHORT, tmp_path)[SCRIPT], tmp_path)
    assert found.first_s is not None
    assert found.ratio_s is not None
    assert 0 < found.first_s <= found.ratio_s <= found.final_s
    assert found.ratio is not None
    assert 1.1 < found.ratio < 2.0


def test_aims_hold_the_wait_against_the_script_and_want_the_right_verdict() -> None:
    script = Waited(SHORT, SCRIPT, 1.0, 2.0, 2.0, 1.4)
    good = Waited(SHORT, OURS, 3.9, 5.0, 14.0, 1.4, "slower")
    assert [aim.met for aim in aims([script, good])] == [True, True]
    late = Waited(SHORT, OURS, 4.1, 5.0, 16.0, 1.4, "slower")
    assert [aim.met for aim in aims([script, late])] == [False, False]
    wrong = Waited(SHORT, OURS, 1.0, 5.0, 10.0, 1.4, "cannot tell")
    assert [aim.met for aim in aims([script, good, wrong])] == [True, False]
    compiled = Waited(GPT, OURS, 1.0, 5.0, 39.0, 0.5, "faster")
    assert [aim.met for aim in aims([compiled])] == [True]


def test_a_later_call_adds_to_what_an_earlier_one_wrote(tmp_path: Path) -> None:
    path, one = tmp_path / "runs.json", Waited(SHORT, OURS, 3.9, 5.0, 14.0, 1.3, "slower")
    assert stored(None) == stored(path) == []
    path.write_text(as_json([one, one]), encoding="utf-8")
    assert stored(path) == [one, one]


@pytest.mark.slow
def test_it_runs_as_it_stands() -> None:
    done = run("first_number.py", "--quick", "--json", "--tool", OURS, "--tool", SCRIPT)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert {one["tool"] for one in record["runs"]} == {OURS, SCRIPT}
    assert all(one["first_s"] < one["final_s"] for one in record["runs"])
    assert len(record["aims"]) == 2
