"""A database that cannot be written costs nobody what was measured: it is shown, and it is said."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.targets.support import HONEST, ROOT, torchstone
from torchstone.lab import api
from torchstone.store import engine, open_store

IMPATIENT = (
    "import torchstone.store.engine as e; e.BUSY_TIMEOUT_S = 0.2\n"
    "from torchstone.cli import main; main()"
)
HELD = "is held by another program"


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Path]:
    """A database that another program is writing to, and does not let go."""
    path = tmp_path / "held.db"
    with open_store(str(path)) as store:
        assert store.count() == 0
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield path


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """The command line, which does not wait long for a database."""
    return subprocess.run(
        [sys.executable, "-c", IMPATIENT, *words],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    )


def test_a_result_that_cannot_be_kept_is_shown(held: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    quick = ("-n", "100", "-r", "3", "--budget", "0.1s")
    done = run("timeit", *quick, "--save", "--db", str(held), "--json", str(out), "pass")
    assert done.returncode == 1, done.stderr
    assert "100 loops, best of" in done.stdout
    assert "torchstone show" not in done.stdout  # there is nothing to be shown later
    assert "The result was not kept: " in done.stderr
    assert HELD in done.stderr
    assert json.loads(out.read_text())["arms"][0]["outcome"] == "ok"


def test_a_profile_that_cannot_be_kept_is_shown(held: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    words = ("--how", "count", "--steps", "3", "--no-cost", "--db", str(held), "--json", str(out))
    done = run("profile", *words, HONEST)
    assert done.returncode == 1, done.stderr
    assert "Kept as" not in done.stdout
    assert "squares" in done.stdout
    assert "The profile was not kept: " in done.stderr
    assert out.exists()


@pytest.mark.slow
def test_a_ledger_that_cannot_be_kept_is_shown(held: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    words = ("--budget", "1s", "--db", str(held), "--json", str(out))
    done = run("explain", str(ROOT / "examples" / "two_layer.py:make"), *words)
    assert done.returncode == 1, done.stderr
    assert done.stdout
    assert "Kept as" not in done.stdout
    assert "The ledger was not kept: " in done.stderr
    assert out.exists()


def test_the_python_api_returns_what_it_could_not_keep(
    held: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_S", 0.2)
    with pytest.warns(UserWarning, match="The result was not kept") as told:
        result = api.timeit("pass", number=100, repeat=3, budget=0.1, save=True, db=str(held))
    assert HELD in str(told[0].message)
    assert result.arms[0].turns


@pytest.mark.slow
def test_what_is_kept_is_kept_without_a_word(tmp_path: Path) -> None:
    db = str(tmp_path / "free.db")
    done = torchstone(
        "timeit", "-n", "100", "-r", "3", "--budget", "0.1s", "--save", "--db", db, "1"
    )
    assert done.returncode == 0, done.stderr
    assert "not kept" not in done.stderr
    with open_store(db) as store:
        assert store.count() == 1
