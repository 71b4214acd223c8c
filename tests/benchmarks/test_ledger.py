"""Is the ledger true: a truth of the very step, aims that can be missed, and what is kept."""

from __future__ import annotations

import cProfile
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import ledger
import ledger_clock
import ledger_report
import ledger_targets
import pytest
import torch
from aa_journal import Journal
from ledger_clock import Took, clocked, lines_of, noted
from ledger_truth import loops_of, parts_of, truth

from tests.benchmarks.support import run
from tests.explain.ledger_synthetic import ledger as made_up
from torchstone.explain.ledger import TITLES
from torchstone.records import ArmSpec, UsageError

WALL = 0.01
TRUTH = {"interpreter": 5e6, "kernels": 5e6}
WALLS = [WALL, WALL, WALL, WALL]


def row(shares: dict[str, float], walls: list[float] = WALLS) -> dict[str, Any]:
    """A ledger of these shares beside a truth of half Python, half kernels."""
    known = ledger_targets.Known(list)
    return {**ledger.beside(known, made_up(shares, WALL), TRUTH), "walls": walls}


def reported(capsys: pytest.CaptureFixture[str], *rows: dict[str, Any]) -> str:
    ledger_report.report([{"kind": "ledger", "name": "x", **one} for one in rows])
    return capsys.readouterr().out


def test_shares_that_are_right_miss_no_aim(capsys: pytest.CaptureFixture[str]) -> None:
    found = reported(capsys, row({"interpreter": 0.5, "kernels": 0.5}))
    assert "<--" not in found
    assert "0 figures outside" in found


def test_a_share_that_is_off_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    found = reported(capsys, row({"interpreter": 0.56, "kernels": 0.44}))
    assert found.count("<--") == 2
    assert "2 figures outside" in found


def test_all_lines_are_held_against_the_step_without_the_rest() -> None:
    """A rest makes the lines and the wall time one by construction; it explains nothing."""
    one = row({"interpreter": 0.4, "kernels": 0.4})
    assert one["explained"] == pytest.approx(0.8 * WALL)


def test_a_rest_is_outside_two_aims(capsys: pytest.CaptureFixture[str]) -> None:
    found = reported(capsys, row({"interpreter": 0.47, "kernels": 0.47}))
    assert found.count("<--") == 2
    assert "-6.0 %) <--" in found


def test_the_lines_must_be_near_one_of_the_unprofiled_processes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    right = {"interpreter": 0.5, "kernels": 0.5}
    slow, fast = [1.2 * WALL] * 4, [0.9 * WALL] * 4
    assert reported(capsys, row(right, slow)).count("<--") == 1
    assert reported(capsys, row(right, fast)).count("<--") == 1
    assert "<--" not in reported(capsys, row(right, [0.9 * WALL, WALL, WALL, 1.2 * WALL]))
    assert reported(capsys, row(right, [0.9 * WALL, 1.1 * WALL])).count("<--") == 1


def test_the_wait_for_a_core_is_on_neither_side(capsys: pytest.CaptureFixture[str]) -> None:
    one = row({"interpreter": 0.25, "kernels": 0.25, "contention": 0.5})
    assert [share[1:] for share in one["shares"]] == [[0.5, 0.5], [0.5, 0.5]]
    assert one["explained"] == pytest.approx(0.5 * WALL)


CALLS = [Took(4, 8, 1), Took(4, 6, 1), Took(40, 10, 1)] * 8


def test_a_part_is_its_undisturbed_time_on_the_core_and_all_that_it_slept() -> None:
    assert lines_of("sleep", CALLS) == {"sleep": pytest.approx(4 + 8, abs=0.1)}
    assert lines_of("interpreter+gil", CALLS) == {
        "interpreter": pytest.approx(4),
        "gil": pytest.approx(8, abs=0.1),
    }
    apart = lines_of("interpreter+collector", [replace(one, off=0) for one in CALLS])
    assert apart == {"interpreter": pytest.approx(3), "collector": pytest.approx(1)}


def test_what_no_part_has_by_itself_is_a_difference() -> None:
    parts = {"interpreter": 2.0, "kernels": 6.0}
    assert parts_of(parts, 10.0, more="breaks")["breaks"] == 2.0
    assert parts_of(parts, 7.0, more="breaks")["breaks"] == 0.0
    assert parts_of(parts, 8.0, within="interpreter") == {"interpreter": 4.0, "kernels": 4.0}


def test_a_clock_notes_what_nobody_looks_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "clock"
    path.touch()
    monkeypatch.setenv(ledger_clock.VARIABLE, str(path))
    burn = clocked(0, lambda: sum(range(20_000)))
    rest = clocked(1, lambda: time.sleep(0.002))
    for _ in range(5):
        burn()
        rest()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        burn()
    with cProfile.Profile():
        burn()
    sys.setprofile(lambda *_: None)
    try:
        burn()
    finally:
        sys.setprofile(None)
    burned, rested = noted(str(path))
    assert (len(burned), len(rested)) == (5, 5)
    assert all(one.on > one.off for one in burned)
    assert all(one.off > 1_500_000 for one in rested)


def test_without_a_file_there_is_no_clock(tmp_path: Path) -> None:
    def part() -> None:
        pass

    assert clocked(0, part) is part
    path = tmp_path / "clock"
    path.touch()
    assert noted(str(path)) == []


@pytest.mark.parametrize("name", ledger_targets.WORKLOADS)
def test_every_workload_can_be_judged(name: str) -> None:
    known = ledger_targets.WORKLOADS[name]
    if name != "gil":  # its other thread would run on beside the tests that follow
        parts = [lines for lines, _ in ledger_targets.made(name)]
        for lines in (*parts, known.more):
            assert set(filter(None, lines.split("+"))) <= set(TITLES)
        assert not known.copies or known.copies in parts
    assert callable(getattr(ledger_targets, f"make_{name.replace('-', '_')}"))
    assert (known.variant == "inductor") == name.startswith("compiled-")


def test_pythons_own_time_is_never_judged_together_with_the_compilers() -> None:
    for name, known in ledger_targets.WORKLOADS.items():
        if known.variant != "eager":
            for lines in (known.more, *(lines for lines, _ in ledger_targets.made(name))):
                assert not ("interpreter" in lines and ("breaks" in lines or "guards" in lines))


def test_what_the_issue_plants_is_run_compiled_too() -> None:
    planted = ("mix", "collecting", "locked", "loading", "tiny-ops", "huge-op", "layout", "files")
    assert {f"compiled-{name}" for name in planted} <= set(ledger_targets.WORKLOADS)


STEP = """
from types import SimpleNamespace

WORKLOADS = {"x": SimpleNamespace(alone=True)}

def burn():
    return sum(range(200_000))

def step():
    for _ in range(8):
        burn()

def made(name):
    return (("interpreter", burn),)

def make():
    return step, ()
"""


def test_the_truth_is_of_the_very_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step does more than its part: a sum of parts would not know."""
    target = tmp_path / "ledger_targets.py"
    target.write_text(STEP, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "ledger_targets", ledger_targets)
    monkeypatch.setattr("ledger_truth.arm_of", lambda name: ArmSpec("x", f"{target}:make"))
    found = truth("x", rounds=16, seconds=0)
    assert found["wall"] > 4 * found["alone"]["interpreter"]
    assert found["lines"] == ["interpreter"]


def test_short_steps_are_timed_in_blocks() -> None:
    """As the ledger does it: one at a time they find colder caches, and are another step."""
    assert loops_of(lambda: time.sleep(0.002)) == 1
    assert loops_of(lambda: None) > 100


PARTS = [Took(2_000_000, 0)] * 12, [Took(0, 3_000_000)] * 12


def test_what_is_compiled_is_what_the_clocks_leave_of_the_step() -> None:
    lines = [{"lines": ["interpreter", "sleep", ledger_targets.COMPILED]}]
    divided = made_up({"interpreter": 0.2, "contention": 0.1}, WALL)
    found = ledger._planted("compiled-mix", divided, PARTS, lines)
    more = ledger_targets.WORKLOADS["compiled-mix"].more
    assert found["interpreter"] == pytest.approx(2e6)
    assert found["sleep"] == pytest.approx(3e6)
    assert found[more] == pytest.approx(0.9 * WALL * 1e9 - 5e6)


def test_a_part_whose_clock_did_not_tick_is_no_truth() -> None:
    lines = [{"lines": ["interpreter", "sleep", ledger_targets.COMPILED]}]
    with pytest.raises(UsageError, match="2 parts have a clock, and 1 were noted"):
        ledger._planted("compiled-mix", made_up({}, WALL), PARTS[:1], lines)


def test_results_of_another_budget_or_of_other_code_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.jsonl"
    with ledger.open_journal(path, 3.0):
        pass
    with ledger.open_journal(path, 3.0):
        pass
    with pytest.raises(SystemExit, match="another --out"), ledger.open_journal(path, 6.0):
        pass
    same = ledger.settings(3.0)
    monkeypatch.setattr(ledger, "JUDGED", ("explain",))
    assert ledger.settings(3.0)["code"] != same["code"]


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text('{\n "ledger": {}\n}\n', encoding="utf-8")
    with pytest.raises(SystemExit, match="no journal"), ledger.open_journal(path, 3.0):
        pass


def test_what_failed_is_tried_again_and_what_is_done_is_not(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    calls: list[str] = []

    def fail(name: str) -> dict[str, Any]:
        calls.append(name)
        raise UsageError("No luck.", "Try again.")

    def work(name: str) -> dict[str, Any]:
        calls.append(name)
        return {"rest": 0.0}

    for doing in (fail, work, work):
        with Journal(path) as journal:
            rows = list(journal.rows)
            ledger.once(rows, journal, "ledger", "mix", doing)
            assert len(rows) == 1
            assert ("error" in rows[0]) == (doing is fail)
    assert calls == ["mix", "mix"]
    assert [json.loads(line)["name"] for line in path.read_text().splitlines()] == ["mix"]


@pytest.mark.slow
def test_the_whole_command_goes_on_where_it_ended(tmp_path: Path) -> None:
    out = tmp_path / "ledger.jsonl"
    words = ["--only", "mix", "--ledgers-only", "--budget", "0.8", "--out", str(out)]
    done = run("ledger.py", *words)
    assert done.returncode == 0, done.stderr
    assert "sleep" in done.stdout
    kept = out.read_text()
    again = run("ledger.py", *words)
    assert again.stdout == done.stdout
    assert out.read_text() == kept
