"""From `bench` to `show`, `list`, `repro`: one JSON shape, and trust only in our own records."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.explain.ledger_synthetic import ledger
from tests.show import synthetic_profile
from tests.targets.support import HONEST, ROOT, target, torchstone
from tests.web import stored
from torchstone import __version__ as version
from torchstone.records import Ledger
from torchstone.store import open_store

QUICK = ("--budget", "0.2s", "--replicates", "2")
TOP = {
    "schema",
    "id",
    "created",
    "kind",
    "command",
    "version",
    "arms",
    "comparisons",
    "checks",
    "method",
}
ARM = {"name", "outcome", "outcome_detail", "time", "memory", "compile", "contract", "environment"}
COMPARISON = {
    "base",
    "new",
    "time_ratio",
    "speedup",
    "interval",
    "verdict",
    "floor",
    "typical",
    "decided_by",
    "smallest_detectable",
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with one result of two arms, and the JSON file that was written with it."""
    folder = tmp_path_factory.mktemp("kept")
    words = ("--db", str(folder / "kept.db"), "--json", str(folder / "bench.json"))
    done = torchstone("bench", HONEST, target("honest", "make_slow"), *QUICK, *words)
    assert done.returncode == 0, done.stderr
    assert "make_slow" in done.stdout
    assert done.stdout.count(f"--db {folder / 'kept.db'}") == 2  # to show it, and to repeat it
    return folder


def shape_of(document: Any) -> None:
    assert document["schema"] == 1
    assert set(document) >= TOP
    for arm in document["arms"]:
        assert set(arm) >= ARM
        assert set(arm["memory"]) >= {"tensor_peak_bytes", "peak_bytes", "step_peak_bytes"}
    for comparison in document["comparisons"]:
        assert set(comparison) >= COMPARISON
    for check in document["checks"]:
        assert set(check) >= {"rule", "level", "message", "figures"}


def test_show_gives_what_bench_wrote(kept: Path) -> None:
    written = json.loads((kept / "bench.json").read_text())
    shape_of(written)
    done = torchstone("show", "last", "--db", str(kept / "kept.db"), "--json", "-")
    assert done.returncode == 0
    assert json.loads(done.stdout) == written


def test_last_is_the_newest_of_all_kinds(kept: Path, tmp_path: Path) -> None:
    db = tmp_path / "more.db"
    shutil.copy(kept / "kept.db", db)
    profile = synthetic_profile.full()
    for number, thing in enumerate((ledger({"kernels": 0.5}), profile, ledger({"kernels": 0.4}))):
        newer = replace(thing, id=f"newer{number}", created=f"2099-01-0{number + 1}T00:00:00+00:00")
        with open_store(str(db)) as store:
            if isinstance(newer, Ledger):
                store.save_ledger(newer)
            else:
                store.save_profile(newer)
        done = torchstone("show", "last", "--db", str(db), "--json", "-")
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        (found,) = document.get("profiles", [document])
        assert found["id"] == f"newer{number}"


def test_a_result_is_found_by_the_start_of_its_name(kept: Path) -> None:
    name = json.loads((kept / "bench.json").read_text())["id"]
    done = torchstone("show", name[:9], "--db", str(kept / "kept.db"), "--markdown")
    assert done.returncode == 0, done.stderr
    assert "|" in done.stdout
    listed = torchstone("list", "--db", str(kept / "kept.db"), "--json")
    assert json.loads(listed.stdout)["results"][-1]["id"] == name


def test_the_slower_arm_is_not_called_faster(kept: Path) -> None:
    (comparison,) = json.loads((kept / "bench.json").read_text())["comparisons"]
    assert comparison["base"] == "make"
    assert comparison["new"] == "make_slow"
    assert comparison["time_ratio"] > 1
    assert comparison["verdict"] in ("slower", "cannot tell")


@pytest.mark.slow
def test_repro_measures_again_beside_the_old(kept: Path) -> None:
    done = torchstone("repro", "last", "--db", str(kept / "kept.db"), "--no-save", "--json", "-")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    shape_of(document)
    names = [arm["name"] for arm in document["arms"]]
    assert names == ["make (stored)", "make_slow (stored)", "make", "make_slow"]
    pairs = {(c["base"], c["new"]) for c in document["comparisons"]}
    assert ("make (stored)", "make") in pairs
    assert ("make_slow against make (stored)", "make_slow against make") in pairs
    (time,) = [c for c in document["comparisons"] if c["base"] == "make (stored)"]
    assert "drift" in time["reason"]
    assert document["method"]["replicates"] == 2  # as asked for then


def test_repro_writes_a_recipe_and_runs_nothing(kept: Path, tmp_path: Path) -> None:
    done = torchstone(
        "repro", "last", "--db", str(kept / "kept.db"), "--recipe", str(tmp_path / "r")
    )
    assert done.returncode == 0, done.stderr
    names = {path.name for path in (tmp_path / "r").iterdir()}
    assert names == {"requirements.lock", "Containerfile", "README.md"}
    assert "FROM python:3" in (tmp_path / "r" / "Containerfile").read_text()
    lock = (tmp_path / "r" / "requirements.lock").read_text()
    assert "numpy==" in lock
    assert f"\ntorchstone=={version}\n" in lock


def test_a_record_from_elsewhere_is_not_run_without_trust(kept: Path, tmp_path: Path) -> None:
    with open_store(str(kept / "kept.db")) as store:
        theirs = replace(store.load("last"), origin="theirs.json")
    db = str(tmp_path / "theirs.db")
    with open_store(db) as store:
        store.save(theirs)
    before = (tmp_path / "theirs.db").read_bytes()
    done = torchstone("repro", "last", "--db", db)
    assert done.returncode == 2
    assert "theirs.json" in done.stderr
    assert "--trust" in done.stderr
    assert (tmp_path / "theirs.db").read_bytes() == before


@pytest.mark.slow
def test_repro_of_a_statement_keeps_its_number(tmp_path: Path) -> None:
    db = str(tmp_path / "kept.db")
    stack = ("-n", "5", "-s", "stack = list(range(6))", "stack.pop()", "--budget", "0.2s")
    done = torchstone("timeit", *stack, "--save", "--db", db)
    assert done.returncode == 0, done.stderr
    again = torchstone("repro", "last", "--db", db, "--no-save", "--json", "-")
    assert again.returncode == 0, again.stdout[-600:] + again.stderr
    arms = json.loads(again.stdout)["arms"]
    assert [arm["outcome"] for arm in arms] == ["ok", "ok"]
    assert arms[1]["time"]["calls_per_sample"] == 5


@pytest.mark.slow
def test_a_crash_is_stored_and_told_by_the_exit_code(tmp_path: Path) -> None:
    db = str(tmp_path / "kept.db")
    done = torchstone("bench", HONEST, target("deaths", "segfault"), *QUICK, "--db", db)
    assert done.returncode == 1, done.stderr
    assert "SIGSEGV" in done.stdout
    with open_store(db) as store:
        honest, dead = store.load("last").arms
    assert honest.outcome.value == "ok"
    assert honest.turns
    assert (dead.outcome.value, dead.detail.signal) == ("crash", "SIGSEGV")


@pytest.mark.slow
def test_strange_words_of_an_error_can_be_stored_and_shown(tmp_path: Path) -> None:
    db = str(tmp_path / "kept.db")
    strange = target("deaths", "raises_with_strange_text")
    done = torchstone("bench", HONEST, strange, *QUICK, "--db", db)
    assert done.returncode == 1, done.stderr
    assert "\x1b" not in done.stdout
    shown = torchstone("show", "last", "--db", db, "--json", "-")
    assert "lone surrogate" in json.loads(shown.stdout)["arms"][1]["outcome_detail"]["message"]


LOADED = """
import sys
from torchstone.cli.app import run
code = run()
print(*sorted(name for name in sys.modules if not name.startswith("_")), file=sys.stderr)
sys.exit(code)
"""


def test_a_list_loads_what_it_shows_and_little_else(tmp_path: Path) -> None:
    db = str(tmp_path / "kept.db")
    with open_store(db):
        pass
    words = [sys.executable, "-c", LOADED, "list", "--db", db]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "torchstone.show.listing" in loaded
    assert not loaded & {"torch", "numpy", "torchstone.show.charts", "torchstone.machine"}
    assert not loaded & {f"torchstone.cli.{name}" for name in ("bench", "profile", "run")}


def test_a_list_where_there_are_only_runs_lists_them(tmp_path: Path) -> None:
    db = str(tmp_path / "runs.db")
    with open_store(db) as store:
        stored.add_night(store, 0, stored.keys())
    plain = torchstone("list", "--db", db)
    assert "night00" in plain.stdout
    assert "nothing stored yet" not in plain.stdout
    data = json.loads(torchstone("list", "--json", "--db", db).stdout)
    assert data["schema"] == 1
    assert "results" in data  # what was asked for, whatever is in it
