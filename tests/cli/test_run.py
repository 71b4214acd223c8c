"""`torchstone run` for real: stored case by case, resumed after a kill, split into shards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.targets.support import HERE as TARGETS
from tests.targets.support import ROOT, eventually, torchstone
from torchstone.cli.app import cli
from torchstone.lab.run import RunEnd
from torchstone.records import Run, RunView, UsageError
from torchstone.store import open_store

MAIN = "from torchstone.cli import main; main()"
CHECKOUT = ROOT / "tests" / "fixtures" / "torchbench"
MODELS = ("one", "two", "three", "four", "five")
FAST = ("--variants", "eager", "--budget-per-case", "0.3s", "--replicates", "2")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A suite of targets that need no torch; `eager` against itself is a true A/A."""
    models = "\n".join(
        f'[[model]]\nname = "{name}"\ntarget = "{TARGETS}/honest.py:make"\n' for name in MODELS
    )
    (tmp_path / "toys.toml").write_text(f'name = "toys"\n{models}')
    return tmp_path


def view_of(here: Path, wanted: str = "last", db: str = "kept.db") -> RunView:
    with open_store(str(here / db), create=False, read_only=True) as store:
        return store.run_view(wanted)


def run(here: Path, *words: str, db: str = "kept.db") -> subprocess.CompletedProcess[str]:
    return torchstone("run", *words, "--db", db, cwd=here)


def test_a_run_is_stored_and_shown_in_every_form(here: Path) -> None:
    done = run(here, "toys.toml", *FAST, "--label", "first", "--only", "one", "--only", "two")
    assert done.returncode == 0, done.stderr
    assert "2/2" in done.stdout
    view = view_of(here, "first")
    assert [case.outcome.value for case in view.complete] == ["ok", "ok"]
    # Of two equal arms one in twenty pairs is called different, which is seen and withheld.
    believed = [case for case in view.cases if "identical" not in case.checks]
    assert believed
    for case in believed:
        assert case.speedup is not None
        assert case.interval is not None
        assert case.interval[0] < case.speedup < case.interval[1]
        # Of few samples a floor far above the fastest is withheld.
        if case.base_ns is not None and case.new_ns is not None:
            assert case.base_ns / case.new_ns == pytest.approx(case.speedup)
        assert case.replicates == 2
        assert case.result_id
    show = ("show", "first", "--db", "kept.db")
    shown = torchstone(*show, cwd=here)
    assert shown.stdout == done.stdout
    data = json.loads(torchstone(*show, "--json", "-", cwd=here).stdout)
    assert [case["outcome"] for case in data["cases"]] == ["ok", "ok"]
    table = torchstone(*show, "--csv", cwd=here).stdout.splitlines()
    assert len(table) == 3
    assert "| `one`" in torchstone(*show, "--markdown", cwd=here).stdout
    listed = torchstone("list", "runs", "--db", "kept.db", cwd=here).stdout
    assert "first" in listed


@pytest.mark.slow
def test_the_printed_command_measures_the_case_again(here: Path) -> None:
    run(here, "toys.toml", *FAST, "--only", "one")
    (case,) = view_of(here).cases
    command, *words = case.command
    assert command == "torchstone"
    again = torchstone(*words, "--no-save", "--json", "-", cwd=here)
    assert again.returncode == 0, again.stderr
    (comparison,) = json.loads(again.stdout)["comparisons"]
    low, high = sorted(1 / end for end in comparison["interval"])
    assert case.interval is not None
    assert low <= case.interval[1]
    assert case.interval[0] <= high


def stored_cases(here: Path) -> int:
    """Not asked too often: the run needs the processor."""
    time.sleep(0.2)
    if not (here / "kept.db").exists():
        return 0
    try:
        return len(view_of(here).cases)
    except Exception:  # not there yet
        return 0


@pytest.fixture
def started(here: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            MAIN,
            "run",
            "toys.toml",
            *FAST,
            "--replicates",
            "1",
            "--db",
            "kept.db",
        ],
        cwd=here,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    yield process
    if process.poll() is None:
        process.kill()
    process.wait()


def results_of(view: RunView) -> list[str]:
    return [case.result_id for case in view.cases]


@pytest.mark.slow
def test_kill_9_then_resume_has_every_case_once(
    here: Path, started: subprocess.Popen[bytes]
) -> None:
    assert eventually(lambda: stored_cases(here) >= 2, 240)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    before = view_of(here)
    assert 2 <= len(before.cases) < len(MODELS)
    assert len(before.complete) == len(MODELS)
    time.sleep(0.5)  # workers die with their parent
    done = run(here, "--resume", "last")
    assert done.returncode == 0, done.stderr
    after = view_of(here)
    assert [case.key.model for case in after.cases] == list(MODELS)
    assert results_of(after)[: len(before.cases)] == results_of(before)
    assert len(set(results_of(after))) == len(MODELS)
    again = run(here, "--resume", "last")
    assert again.returncode == 0
    assert results_of(view_of(here)) == results_of(after)


def test_ctrl_c_keeps_what_was_measured(here: Path, started: subprocess.Popen[bytes]) -> None:
    assert eventually(lambda: stored_cases(here) >= 1, 240)
    started.send_signal(signal.SIGINT)
    assert started.wait(240) == 130
    view = view_of(here)
    assert 1 <= len(view.cases) < len(MODELS)
    assert all(case.outcome.value == "ok" for case in view.cases)


@pytest.mark.slow
def test_shards_join_into_one_run(here: Path) -> None:
    for part in ("1/2", "2/2"):
        done = run(here, "toys.toml", *FAST, "--label", "whole", "--shard", part)
        assert done.returncode == 0, done.stderr
    view = view_of(here, "whole")
    assert [case.key.model for case in view.cases] == list(MODELS)
    with open_store(str(here / "kept.db"), read_only=True) as store:
        assert len(store.list_runs(10)) == 1


@pytest.mark.slow
def test_shards_from_two_databases_join_as_well(here: Path) -> None:
    for index in (1, 2):
        words = ("toys.toml", *FAST, "--label", "whole", "--shard", f"{index}/2")
        assert run(here, *words, db=f"{index}.db").returncode == 0
    done = torchstone("import", "db", "1.db", "2.db", "--db", "kept.db", cwd=here)
    assert done.returncode == 0, done.stderr
    view = view_of(here, "whole")
    assert [case.key.model for case in view.cases] == list(MODELS)
    assert torchstone("import", "db", "1.db", "--db", "kept.db", cwd=here).returncode == 0
    assert results_of(view_of(here, "whole")) == results_of(view)


def test_what_the_total_budget_leaves_is_not_run_and_counted(here: Path) -> None:
    done = run(here, "toys.toml", *FAST, "--total-budget", "1ms")
    assert done.returncode == 1
    view = view_of(here)
    done_cases = len(view.cases)  # the first may have been started within the millisecond
    assert done_cases <= 1
    left = [case.outcome.value for case in view.complete[done_cases:]]
    assert left == ["not_run"] * (len(MODELS) - done_cases)
    assert f"{done_cases}/{len(MODELS)}" in done.stdout
    assert "--resume" in done.stdout
    # What is printed works as it stands, on the database that was named.
    assert f"torchstone run --resume {view.run.id} --db kept.db" in done.stdout
    assert f"torchstone show {view.run.id} --db kept.db" in done.stdout


def test_the_database_is_printed_only_where_it_is_not_found_without(here: Path) -> None:
    words = ("run", "toys.toml", *FAST, "--total-budget", "1ms", "--db", "kept.db")
    done = torchstone(*words, cwd=here, TORCHSTONE_DB="kept.db")
    assert "torchstone run --resume" in done.stdout
    assert "--db" not in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent.toml"], "no file absent.toml"),
        (["tim"], "no suite 'tim'"),
        (["toys.toml", "--only", "onne"], "Did you mean one"),
        (["toys.toml", "--shard", "1/2"], "--label"),
        (["toys.toml", "--shard", "3/2", "--label", "x"], "not a shard"),
        (["--resume", "nothing"], "no database"),
        (["toys.toml", "--resume", "last"], "cannot be changed by --resume"),
        (["--resume", "last", "--tier", "full"], "--tier cannot be changed"),
        (["--resume", "last", "--budget-per-case", "5s"], "--budget-per-case cannot be changed"),
        (["--resume", "last", "-k", "foo"], "-k cannot be changed"),
        (["--resume", "last", "--build-timeout", "5s"], "--build-timeout cannot be changed"),
        (["toys.toml", "--variants", "inductor,,eager"], "empty part"),
        (["toys.toml", "--torchbench", "."], "not a checkout"),
        (["--torchbench", str(CHECKOUT)], "torchstone run torchbench --torchbench"),
        (["toys.toml", "--torchbench", str(CHECKOUT)], "no suite that it is for"),
        (["torchbench-checkout"], "No checkout of pytorch/benchmark is named"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(
    here: Path, words: list[str], message: str
) -> None:
    done = run(here, *words)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (here / "kept.db").exists()


@pytest.mark.slow
def test_a_model_without_its_mode_is_listed_apart(here: Path) -> None:
    text = (here / "toys.toml").read_text()
    (here / "toys.toml").write_text(
        text.replace('name = "one"\n', 'name = "one"\nmodes = ["training"]\n')
    )
    done = run(here, "toys.toml", *FAST, "--only", "one", "--only", "two")
    assert done.returncode == 0, done.stderr
    outcomes: dict[str, Any] = {c.key.model: c.outcome.value for c in view_of(here).cases}
    assert outcomes == {"one": "not_supported", "two": "ok"}
    assert "1/1" in done.stdout


def test_what_could_not_run_stays_so_when_all_is_derived_and_judged_anew(here: Path) -> None:
    words = ("--variants", "inductor+cudagraphs,eager", "--replicates", "1", "--only", "one")
    done = run(here, "toys.toml", *FAST, *words)
    assert done.returncode == 0, done.stderr

    def found() -> list[tuple[str, str, bool]]:
        cases = view_of(here).cases
        return [(c.key.variant, c.outcome.value, bool(c.result_id)) for c in cases]

    wanted = [("inductor+cudagraphs", "not_supported", False), ("eager", "ok", True)]
    assert found() == wanted
    for words in (("db", "rebuild", "--all"), ("validate", "last")):
        again = torchstone(*words, "--db", "kept.db", cwd=here)
        assert again.returncode == 0, again.stderr
        assert found() == wanted


@pytest.mark.slow
def test_a_checkout_is_run_by_its_path_under_a_name_of_its_own(here: Path) -> None:
    only = ("--only", "good", "--only", "needs_package", "--only", "no_training")
    words = ("--modes", "training", "--torchbench", str(CHECKOUT))
    done = run(here, "torchbench", *FAST, *only, *words)
    assert done.returncode == 0, done.stderr
    cases = {case.key.model: case for case in view_of(here).cases}
    assert {case.key.suite for case in cases.values()} == {"torchbench-checkout"}
    assert {model: case.outcome.value for model, case in cases.items()} == {
        "good": "ok",
        "needs_package": "not_supported",
        "no_training": "not_supported",
    }
    assert "no_such_package_at_all" in cases["needs_package"].reason
    assert "its labels were never published" in cases["no_training"].reason
    for model, case in cases.items():
        place, name, bench, target = case.command[1:5]
        assert place == f"TORCHSTONE_TORCHBENCH={CHECKOUT}"
        assert (name, bench, target) == (
            "torchstone", "bench", f"torchbench-checkout:{model}@small",
        )  # fmt: skip


def test_a_checkout_is_named_while_its_run_lasts_and_no_longer(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHSTONE_TORCHBENCH", raising=False)
    monkeypatch.setenv("TORCHSTONE_DB", str(here / "kept.db"))
    seen = []

    def measure_nothing(stored: Run, *_: Any) -> RunEnd:
        seen.append(os.environ.get("TORCHSTONE_TORCHBENCH"))
        return RunEnd(RunView(stored, ()), "done")

    monkeypatch.setattr("torchstone.lab.run.carry_out", measure_nothing)
    named = ("--torchbench", str(CHECKOUT))
    for words in (("torchbench", "--only", "good", *named), ("--resume", "last", *named)):
        cli.main(["run", *words], standalone_mode=False)
        assert "TORCHSTONE_TORCHBENCH" not in os.environ
    assert seen == [str(CHECKOUT)] * 2
    with pytest.raises(UsageError, match="not a checkout"):
        cli.main(["run", "torchbench", "--torchbench", str(here)], standalone_mode=False)
    assert "TORCHSTONE_TORCHBENCH" not in os.environ


def test_suites_are_listed_with_the_commonest_reason_why_not(here: Path) -> None:
    listed = torchstone("list", "suites", cwd=here, TORCHSTONE_TORCHBENCH=str(CHECKOUT))
    assert listed.returncode == 0, listed.stderr
    words = " ".join(listed.stdout.split())
    assert "12 of 14" in words
    assert "needs the package no_such_package_at_all: run python install.py" in words
    assert "(1 of 2; the others: `torchstone list models torchbench-checkout`)" in words
    without = torchstone("list", "suites", cwd=here)
    assert "torchbench-checkout: No checkout of pytorch/benchmark is named." in without.stdout
