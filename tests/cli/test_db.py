"""`torchstone db` from the command line."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.postgres import Server
from tests.structure.places import ROOT
from tests.targets.support import torchstone
from torchstone.records import METRICS_DEFINITION
from torchstone.store import open_store

sys.path.insert(0, str(ROOT / "tests" / "store"))

from store_runs import fill, make_run


def make_stale(path: str, which: str) -> None:
    """As if an older program had derived these figures."""
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(f"UPDATE case_fact SET definition = 0 WHERE {which}")


def definitions(path: str) -> list[int]:
    with open_store(path, read_only=True) as store:
        return [case.definition for case in store.cases("run-1")]


@pytest.fixture
def old(tmp_path: Path) -> str:
    """A database with a run of years ago."""
    path = str(tmp_path / "old.db")
    with open_store(path) as store:
        fill(store, replace(make_run(), created="2020-01-01T00:00:00+00:00"), range(6))
    return path


def test_size_in_words_and_as_json(old: str) -> None:
    done = torchstone("db", "size", "--db", old)
    assert done.returncode == 0, done.stderr
    assert "1 run, 6 cases" in done.stdout
    assert "its figures" in done.stdout
    assert "with its result and all samples (5 results)" in done.stdout
    assert "case_fact" in done.stdout
    data = json.loads(torchstone("db", "size", "--db", old, "--json").stdout)
    assert (data["schema"], data["cases"], data["whole"]["results"]) == (1, 6, 5)
    assert data["whole"]["per_case"] > 0
    assert {table["name"] for table in data["tables"]} >= {"result", "measurement", "case_fact"}


def test_thin_says_what_goes_and_the_result_says_it_went(old: str) -> None:
    words = ("db", "prune", "--db", old, "--older-than", "90d")
    trial = torchstone(*words, "--dry-run")
    assert trial.stdout.startswith("would remove the samples of 5 results of 1 run: at least ")
    assert json.loads(torchstone(*words, "--dry-run", "--json").stdout)["trial"] is True
    done = torchstone(*words, "--json")
    data = json.loads(done.stdout)
    assert (data["schema"], data["results"], data["trial"], data["damaged"]) == (1, 5, False, [])
    assert torchstone(*words).stdout == "nothing to remove: no result that old has samples\n"
    shown = torchstone("show", "run-1.0", "--db", old)
    assert shown.returncode == 0, shown.stderr
    assert "samples were removed on" in shown.stdout
    assert "`torchstone db prune --older-than 90d`" in shown.stdout
    refused = torchstone("validate", "run-1.0", "--db", old)
    assert refused.returncode == 2
    assert "cannot be evaluated again" in refused.stderr
    run = torchstone("show", "run-1", "--db", old)
    assert run.returncode == 0, run.stderr


def test_thin_derives_older_figures_while_it_can(old: str) -> None:
    make_stale(old, "position < 5")
    done = torchstone("db", "prune", "--db", old, "--older-than", "90d")
    assert done.returncode == 0, done.stderr
    assert definitions(old)[:5] == [METRICS_DEFINITION] * 5
    with open_store(old, read_only=True) as store:
        assert store.load("run-1.0").pruned is not None


def test_rebuild_says_which_figures_it_cannot_derive(old: str) -> None:
    torchstone("db", "prune", "--db", old, "--older-than", "90d")
    make_stale(old, "position < 2")
    done = torchstone("db", "rebuild", "--db", old)
    assert done.returncode == 0, done.stderr
    assert "2 cases without samples: figures of an older definition stay" in done.stdout
    assert json.loads(torchstone("db", "rebuild", "--db", old, "--json").stdout)["older"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("prune",), "--older-than"),
        (("prune", "--older-than", "90"), "not an age"),
        (("prune", "--older-than", "0d"), "less than a day"),
        (("prune", "--older-than", "1d", "--keep-every", "-1"), "-1"),
        (("size", "--db", "none.db"), "no database"),
        (("rebuild", "--db", "none.db"), "no database"),
    ],
)
def test_bad_requests_are_explained(words: tuple[str, ...], said: str, old: str) -> None:
    done = torchstone("db", *words, *(() if "--db" in words else ("--db", old)))
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_rebuild(old: str) -> None:
    done = torchstone("db", "rebuild", "--db", old)
    assert done.stdout == "1 run summed up again, 0 cases derived\n"
    data = json.loads(torchstone("db", "rebuild", "--db", old, "--json").stdout)
    none = dict.fromkeys(("figures", "summaries", "older"), 0)
    assert data == {"schema": 1, "runs": 1, **none}


def test_commands_take_postgresql_and_never_show_its_password(
    old: str, postgres: Server, tmp_path: Path
) -> None:
    url = postgres.database().replace("postgres@", "postgres:sesame@")
    copied = torchstone("db", "copy", old, url)
    assert copied.returncode == 0, copied.stderr
    assert copied.stdout.endswith(": 1 run, 6 cases, 5 results, 0 profiles\n")
    listed = torchstone("list", "runs", "--db", url)
    assert listed.stdout == torchstone("list", "runs", "--db", old).stdout
    shown = torchstone("show", "run-1", "--db", url)
    assert "'postgresql+psycopg://postgres:***@" in shown.stdout
    sizes = torchstone("db", "size", "--db", url)
    assert "1 run, 6 cases" in sizes.stdout
    refused = torchstone("db", "copy", old, url)
    assert (refused.returncode, "is not empty" in refused.stderr) == (2, True)
    back = torchstone("db", "copy", "--json", url, str(tmp_path / "back.db"))
    assert json.loads(back.stdout)["tables"]["run_case"] == 6
    gone = torchstone("list", "--db", url.replace("host=", "host=/nowhere"))
    assert (gone.returncode, "cannot be reached" in gone.stderr) == (1, True)
    for done in (copied, listed, shown, sizes, refused, back, gone):
        assert "sesame" not in done.stdout + done.stderr
