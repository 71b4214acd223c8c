"""The long benchmarks: order, targets, and taking up again after a kill."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aa import parser, schedule
from aa_common import wall_of_ours
from aa_journal import read_rows
from aa_load import SPIN, Size, busy_core, fits, seconds
from aa_peers import pyperf_processes
from aa_targets import python_step, units_of

from tests.benchmarks.support import alive, children, command, environment, run, trial

QUICK = ("--work", "python")
ANY_LOAD = ("--most-others", "inf")
RECORD = ("record", *QUICK, "--steps", "2ms", "--threads", "1", "--effects", "0")
RECORD += ("--replicates", "3", "--seconds", "0.05", "--turn-ms", "5")


def trials(path: Path, kind: str) -> list[dict[str, Any]]:
    return [row for row in read_rows([path]) if row["kind"] == kind]


@pytest.mark.slow
def test_a_killed_run_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    out = tmp_path / "pools.jsonl"
    words = command("aa.py", *RECORD, "--load", "--out", str(out))
    process = subprocess.Popen(words, env=environment(), stderr=subprocess.DEVNULL)
    while process.poll() is None and not (out.exists() and trials(out, "replicate")):
        time.sleep(0.02)
    started = children(process.pid)
    process.kill()
    process.wait()
    first = trials(out, "replicate")
    assert 1 <= len(first) < 3
    with open(out, "a", encoding="utf-8") as file:
        file.write('{"kind":"replicate","step":"2m')
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = trials(out, "replicate")
    assert rows[: len(first)] == first
    assert sorted(row["trial"] for row in rows) == [0, 1, 2]
    assert len(trials(out, "pin")) == 2
    assert not [pid for pid in started if alive(pid)]


@pytest.mark.slow
def test_finished_trials_are_skipped(tmp_path: Path) -> None:
    out = tmp_path / "aa.jsonl"
    size = {"step": "5ms", "threads": 1, "work": "python", "units": 200, "size": 4}
    size |= {"unit_s": 1e-6, "start_s": 0.1}
    settings = {"budget": 0.2, "replicates": 1, "work": "python"}
    planted: list[dict[str, Any]] = [
        {"kind": "pin", "name": "live", "value": settings},
        {"kind": "pin", "name": "size 5ms x1", "value": size},
        trial("ours", 0, 0, "same"),
        trial("ours", 0, 1, "same"),
        trial("ours", 5, 1, "slower"),
        trial("ours", 5, 0, "slower", load=True),
    ]
    out.write_text("".join(json.dumps(row) + "\n" for row in planted))
    flags = ("--tools", "ours", "--trials", "2", "--effects", "0,5", "--budget", "0.2")
    flags += ("--replicates", "1", "--out", str(out))
    done = run("aa.py", "live", *QUICK, *ANY_LOAD, *flags)
    assert done.returncode == 0, done.stderr
    rows = list(read_rows([out]))
    assert rows[: len(planted)] == planted
    (new,) = rows[len(planted) :]
    assert (new["tool"], new["effect"], new["trial"], new["load"]) == ("ours", 5, 0, False)
    assert "error" not in new, new
    assert len(new["raw"]) == 2
    again = run("aa.py", "live", *QUICK, *ANY_LOAD, *flags)
    assert (again.returncode, len(list(read_rows([out])))) == (0, len(rows))


def test_other_settings_need_another_file(tmp_path: Path) -> None:
    out = tmp_path / "aa.jsonl"
    pin = {
        "kind": "pin",
        "name": "live",
        "value": {"budget": 30.0, "replicates": None, "work": "python"},
    }
    out.write_text(json.dumps(pin) + "\n")
    done = run("aa.py", "live", *QUICK, *ANY_LOAD, "--budget", "5", "--out", str(out))
    assert done.returncode == 1
    assert "another --out" in done.stderr


def test_an_interrupt_ends_cleanly(tmp_path: Path) -> None:
    out = tmp_path / "aa.jsonl"
    words = command("aa.py", "live", *QUICK, "--tools", "ours", "--out", str(out))
    process = subprocess.Popen(
        words, env=environment(), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while process.poll() is None and not (out.exists() and len(list(read_rows([out]))) == 2):
        time.sleep(0.02)
    time.sleep(0.5)  # both settings are pinned: the first trial is under way
    started = children(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 130, err
    assert "go on" in err
    assert "Traceback" not in err
    assert trials(out, "trial") == []
    assert not [pid for pid in started if alive(pid)]


def test_the_order_is_fixed_mixed_and_balanced() -> None:
    tools, effects = ("ours", "torch", "pyperf"), (0, 2, 5)
    order = schedule(tools, effects, False, 40, 20)
    assert order == schedule(tools, effects, False, 40, 20)
    assert len(set(order)) == len(order) == 3 * (40 + 20 + 20)
    assert order[0].tool == "ours"
    half = Counter((one.tool, one.effect) for one in order[: len(order) // 2])
    for tool in tools:
        for effect in effects:
            assert abs(half[tool, effect] - (20 if tool == "ours" else 10)) <= 2
    runs = sum(a.tool != b.tool for a, b in itertools.pairwise(order))
    assert runs > len(order) // 3


def test_others_get_the_wall_time_of_ours() -> None:
    rows = [trial("ours", 0, 0, "same", wall_s=30.0), trial("ours", 5, 0, "same", wall_s=50.0)]
    rows += [trial("torch", 0, 0, "same", wall_s=7.0), {**rows[0], "error": "x", "wall_s": 1.0}]
    assert wall_of_ours(rows, 25.0) == 40.0
    assert wall_of_ours([], 25.0) == 25.0


def test_pyperf_fills_its_time() -> None:
    size = Size("5ms", 1, "torch", 1000, 16, 5e-6, 1.3)
    assert pyperf_processes(size, 20.0, []) == 9
    assert pyperf_processes(size, 20.0, [{"process_s": 1.0}, {"error": "x"}]) == 19
    assert pyperf_processes(size, 0.1, []) == 2


def test_work_is_exact() -> None:
    assert [units_of(percent, 300) for percent in (0, 1, 2, 5, 10)] == [300, 303, 306, 315, 330]
    with pytest.raises(ValueError, match="whole number"):
        units_of(1, 250)
    assert python_step(3)(0.25) == python_step(300)(0.25) != python_step(3)(0.5)
    assert [seconds(text) for text in ("0.2ms", "1s", "50us")] == pytest.approx([2e-4, 1.0, 5e-5])
    assert fits(Size("5ms", 1, "torch", 100, 16, 5e-5, 1.0))
    assert not fits(Size("0.2ms", 2, "torch", 100, 96, 5e-5, 1.0))


@pytest.mark.parametrize("flags", [("--effects", "3"), ("--tools", "stopwatch")])
def test_a_wrong_name_is_refused(
    flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        parser().parse_args(["live", *flags])
    assert refused.value.code == 2
    assert "is none of" in capsys.readouterr().err


def test_the_busy_process_ends_without_its_parent() -> None:
    """Even when the parent was gone before it could look."""
    code = "import os; print(os.getpid())"
    gone = subprocess.check_output([sys.executable, "-S", "-c", code], text=True)
    subprocess.run([sys.executable, "-S", "-c", SPIN, gone.strip()], timeout=240, check=True)


def test_the_busy_process_is_there_while_it_is_wanted() -> None:
    before = children(os.getpid())
    with busy_core(True):
        (spinner,) = children(os.getpid()) - before
        assert alive(spinner)
    assert not alive(spinner)
    with busy_core(False):
        assert children(os.getpid()) == before


@pytest.mark.slow
def test_the_other_tools_answer(tmp_path: Path) -> None:
    out = tmp_path / "aa.jsonl"
    flags = ("--trials", "1", "--peer-trials", "1", "--effects", "5", "--budget", "1")
    done = run(
        "aa.py", "live", *QUICK, *ANY_LOAD, *flags, "--tools", "torch,pyperf", "--out", str(out)
    )
    assert done.returncode == 0, done.stderr
    for row in trials(out, "trial"):
        assert "error" not in row, row
        assert row["verdict"] in ("slower", "faster", "no difference")
        assert 0.1 < row["ratio"] < 10
    assert {row["tool"] for row in trials(out, "trial")} == {"torch", "pyperf"}


@pytest.mark.slow
def test_torch_arms_give_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from aa_targets import EFFECTS, make

    monkeypatch.setenv("AA_WORK", "torch")
    monkeypatch.setenv("AA_UNITS", "100")
    monkeypatch.setenv("AA_SIZE", "4")
    answers = []
    for effect in EFFECTS:
        step, inputs = make(effect)
        answers.append(step(*inputs(3)))
        assert not torch.equal(answers[-1], step(*inputs(4)))
    assert all(torch.equal(answer, answers[0]) for answer in answers)


@pytest.mark.slow
def test_a_disturbed_trial_is_set_aside_and_made_again(tmp_path: Path) -> None:
    out = tmp_path / "aa.jsonl"
    flags = ("--tools", "ours", "--trials", "1", "--effects", "0", "--budget", "0.2")
    flags += ("--replicates", "1", "--out", str(out))
    # Nothing can use less than no core at all, so every trial counts as disturbed.
    done = run("aa.py", "live", *QUICK, *flags, "--most-others", "-1")
    assert done.returncode == 0, done.stderr
    assert "set aside" in done.stderr
    assert [row["kind"] for row in read_rows([out]) if row["kind"] != "pin"] == ["disturbed"]
    assert run("aa.py", "live", *QUICK, *ANY_LOAD, *flags).returncode == 0
    kinds = [row["kind"] for row in read_rows([out]) if row["kind"] != "pin"]
    assert kinds == ["disturbed", "trial"]
