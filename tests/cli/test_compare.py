"""`torchstone compare` as a person runs it: real databases, every way out, exit codes."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.targets.support import ROOT, torchstone
from tests.track.made import Plant, keys, view
from torchstone.cli.app import run
from torchstone.lab.compare_runs import GATES
from torchstone.records import Conditions, GitState, Outcome, RunView
from torchstone.store import open_store

SLOW = {"model03": Plant(arm=0.08)}
CRASH = {"model04": Plant(outcome=Outcome.CRASH)}


def commit(digit: str) -> GitState:
    return GitState(digit * 40, "main")


def runs() -> list[RunView]:
    """Oldest first: two good nights, a slow one, a crash; elsewhere and with another torch."""
    found = []
    for number, (run_id, label, plants, git, more) in enumerate(
        (
            ("1good", "night-1", {}, commit("a"), {}),
            ("2good", "night-2", {}, commit("b"), {}),
            ("3slow", "night-3", SLOW, commit("c"), {}),
            ("4dead", "night-4", CRASH, commit("c"), {}),
            ("5torch", "", {}, replace(commit("d"), branch="next"), {"torch": "2.14.0"}),
            ("6far", "far", {}, commit("e"), {"machine_id": "elsewhere"}),
        )
    ):
        changes = {"label": label, "git": git, "created": f"2026-11-1{number}T02:00:00+00:00"}
        made = view(number, plants=plants, run_id=run_id, changes={**changes, **more}, error=0.002)
        found.append(made)
    return found


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("compare") / "runs.db")
    with open_store(path) as store:
        for made in runs():
            store.begin_run(made.run)
            store.add_cases(made.run.id, None, list(enumerate(made.cases)))
    return path


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def compare(db: str, *words: str) -> Done:
    """The command in this process: parsing, errors and exit codes are those of the program."""
    return call("compare", *words, "--db", db)


def call(*words: str) -> Done:
    out, err = io.StringIO(newline=""), io.StringIO()
    before = sys.argv
    sys.argv = ["torchstone", *words]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = run()
    finally:
        sys.argv = before
    return Done(code, out.getvalue(), err.getvalue())


def test_a_slow_case_is_found_and_fails_the_gate_that_asks(db: str) -> None:
    done = compare(db, "night-2", "night-3", "--fail-on", "slower")
    assert (done.returncode, done.stderr) == (1, "")
    assert "base  2good night-2" in done.stdout
    assert "1 slower" in done.stdout
    assert "model03" in done.stdout
    assert "arm" in done.stdout
    assert "\x1b" not in done.stdout
    assert compare(db, "night-2", "night-3", "--fail-on", "fail").returncode == 0
    assert compare(db, "night-2", "night-3").returncode == 0
    assert compare(db, "night-1", "night-2", "--fail-on", "slower").returncode == 0


def test_the_strict_gate_wants_slower_excluded(db: str, tmp_path: Path) -> None:
    """`not slower` passes it, `not faster` and `cannot tell` do not; neither fails the other."""
    path = str(tmp_path / "open.db")
    shifts = {"open-1": 0.0, "up": 0.028, "down": -0.028}
    with open_store(path) as store:
        for name, shift in shifts.items():
            made = view(0, plan=keys(1), run_id=name, error=0.002)
            of_case = replace(
                made.cases[0], speedup=1.5 * math.exp(shift), log_error=0.009, log_freedom=5.0
            )
            store.begin_run(made.run)
            store.add_cases(name, None, [(0, of_case)])

    def codes(new: str) -> tuple[str, list[int]]:
        done = [compare(path, "open-1", new, "--fail-on", gate) for gate in GATES]
        (tally,) = [line for line in done[0].stdout.splitlines() if line.startswith("1 not ")]
        return tally, [one.returncode for one in done]

    assert codes("up") == ("1 not slower", [0, 0, 0])
    assert codes("down") == ("1 not faster", [0, 1, 0])
    assert compare(db, "night-2", "night-3", "--fail-on", "maybe-slower").returncode == 1
    unknown = compare(db, "night-2", "night-3", "--fail-on", "doubt")
    assert (unknown.returncode, "'maybe-slower'" in unknown.stderr) == (2, True)


def test_a_new_failure_fails_the_gate_that_asks(db: str) -> None:
    done = compare(db, "2good", "4dead", "--fail-on", "fail", "--fail-on", "slower", "--markdown")
    assert done.returncode == 1
    assert done.stdout.startswith("**")
    assert "**1 newly failing**" in done.stdout
    assert compare(db, "2good", "4dead", "--fail-on", "slower").returncode == 0
    # The other way round it newly passes.
    assert compare(db, "4dead", "2good", "--fail-on", "fail").returncode == 0


def test_words_of_every_kind(db: str) -> None:
    for base, new, said in (
        ("latest~5", "branch:main", "no latest~5"),
        ("commit:bbbb", "cccc", "newest of 2 of commit cccccccccc; older: 3slow"),
        ("1g", "label:night-2", "base  1good night-1"),
        ("torch:2.13", "torch:2.14", "another build of torch, as asked"),
        ("next", "next", "the same run"),
    ):
        done = compare(db, base, new, "--across", "machines")
        assert said in done.stdout + done.stderr, (base, new, done.stdout, done.stderr)


def test_latest_keeps_to_the_machine_of_new(db: str) -> None:
    done = compare(db, "latest~1", "4dead", "--json", "-")
    # 6far is newer and of another machine, 5torch is of another branch.
    assert json.loads(done.stdout)["base"]["id"] == "3slow"


@pytest.mark.parametrize(
    ("words", "said", "remedy"),
    [
        (("night-2", "far"), "two machines", "--across machines"),
        (("night-2", "nigth-3"), "no run, label", "list runs"),
        (("night-1", "night-2", "--suite", "none"), "no such case", "suite timm"),
        (("night-1", "night-2", "--variant", "x=y"), "no such case", "variant inductor"),
        (("night-1", "night-2", "--across", "planets"), "'planets'", "machines, torch"),
        (("cccccc", "main-"), "no run", "list runs"),
        (("night-1", "none.json"), "nor such a file", "file:"),
        (("night-1", "night-2", "--json", "-", "--csv", "-"), "cannot both", "file"),
        (("night-1", "night-2", "--json", "/no/such/folder/x"), "no folder", "Make it"),
    ],
)
def test_what_cannot_be_compared_is_a_sentence_and_a_remedy(
    db: str, words: tuple[str, ...], said: str, remedy: str
) -> None:
    done = compare(db, *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert remedy in done.stderr
    assert "Traceback" not in done.stderr


def test_another_torch_is_compared_with_a_mark_above_the_tables(db: str) -> None:
    done = compare(db, "night-2", "5torch")
    assert (done.returncode, done.stderr) == (0, "")
    above = done.stdout.partition("in both")[0]
    assert "! another build of torch: the runs are of two builds of torch: 2.13.0+cpu" in above


def test_json_csv_and_files_say_the_same(db: str, tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("c.json", "c.csv")]
    done = compare(db, "night-2", "night-3", "--json", files[0], "--csv", files[1])
    assert "1 slower" in done.stdout, "files do not replace the report"
    data = json.loads(Path(files[0]).read_text())
    rows = list(csv.DictReader(io.StringIO(Path(files[1]).read_text(encoding="utf-8"))))
    assert data["kind"] == "run comparison"
    assert len(data["cases"]) == len(rows) == 40
    for case, row in zip(data["cases"], rows, strict=True):
        assert (row["model"], row["verdict"]) == (case["model"], case["verdict"])
        assert float(row["ratio"]) == case["ratio"]
    assert json.loads(compare(db, "night-2", "night-3", "--json", "-").stdout) == data
    assert compare(db, "night-2", "night-3", "--csv", "-").stdout.startswith("base,new,suite")


def test_runs_from_files_need_no_database(db: str, tmp_path: Path) -> None:
    paths = []
    for name in ("2good", "3slow"):
        paths.append(str(tmp_path / f"{name}.json"))
        done = call("show", name, "--db", db, "--json", paths[-1])
        assert done.returncode == 0, done.stderr
    nowhere = str(tmp_path / "none.db")
    done = call("compare", *paths, "--db", nowhere, "--fail-on", "slower")
    assert done.returncode == 1, done.stderr
    assert not os.path.exists(nowhere)
    stored = compare(db, "2good", "3slow")
    assert done.stdout == stored.stdout
    mixed = compare(db, "night-2", f"file:{paths[1]}")
    assert mixed.stdout == stored.stdout


def test_files_are_compared_where_no_database_could_be_made(
    db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, taken = str(tmp_path / "run.json"), tmp_path / "no-folder"
    call("show", "2good", "--db", db, "--json", path)
    taken.touch()
    monkeypatch.delenv("TORCHSTONE_DB", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(taken))
    done = call("compare", path, path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "the same run" in done.stdout
    refused = call("compare", path, "latest")
    assert refused.returncode == 2
    assert "no database" in refused.stderr


def test_one_variant_against_another_of_the_same_run(tmp_path: Path) -> None:
    path = str(tmp_path / "v.db")
    plan = [*keys(10), *keys(10, variant="aot_eager")]
    made = view(1, plan)
    with open_store(path) as store:
        store.begin_run(made.run)
        store.add_cases(made.run.id, None, list(enumerate(made.cases)))
    done = compare(path, "latest", "latest", "--variant", "inductor=aot_eager", "--all")
    assert done.returncode == 0, done.stderr
    assert "variant inductor of base against aot_eager of new" in done.stdout
    assert "all 10 paired cases" in done.stdout


def test_the_floor_that_was_seen_on_this_machine_holds_back_small_changes(tmp_path: Path) -> None:
    path = str(tmp_path / "floor.db")
    pair = [view(1, error=0.002), view(2, plants=SLOW, run_id="run-new", error=0.002)]
    with open_store(path) as store:
        for made in pair:
            store.begin_run(made.run)
            store.add_cases(made.run.id, None, list(enumerate(made.cases)))
    assert compare(path, "run-base", "run-new", "--fail-on", "slower").returncode == 1
    with open_store(path) as store:
        for kind in ("1-10 ms", "10-100 ms", "over 100 ms"):
            store.remember_aa_floor("machine-one", Conditions(1, "default", kind), 0.1, {})
    done = compare(path, "run-base", "run-new", "--fail-on", "slower")
    assert done.returncode == 0
    assert "were seen to differ by on this machine" in " ".join(done.stdout.split())


def test_help_names_it_and_comparing_never_loads_torch(db: str) -> None:
    assert "compare" in torchstone("--help").stdout.split("Track and show")[1]
    code = (
        "import sys; sys.argv = ['torchstone', 'compare', '1good', '2good', '--db', sys.argv[1]]\n"
        "from torchstone.cli.app import run\n"
        "code = run()\n"
        "print('loaded', sorted({'torch', 'scipy', 'transformers'} & set(sys.modules)), code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, db], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.rstrip().endswith("loaded [] 0"), done.stderr
