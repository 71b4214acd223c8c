"""Runs out of a store: what is kept there is used, and gives the same as working it out again."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.track.made import Plant, keys, view
from torchstone.lab import compare_runs as lab
from torchstone.records import Outcome, RunHead, RunView, Selection
from torchstone.stats import Rules, summarise
from torchstone.store import Store, open_store
from torchstone.track import Side, Terms, compare, stored_side

PLANTS = {"model03": Plant(arm=0.08), "model04": Plant(outcome=Outcome.CRASH)}


TRAINING = keys(10, mode="training")
DONE, PLANNED = 45, 50


def new() -> RunView:
    return view(1, [*keys(40), *TRAINING], plants=PLANTS, run_id="new", error=0.002)


def put(path: Path, made: RunView, until: int | None = None) -> None:
    with open_store(str(path)) as store:
        store.begin_run(made.run)
        store.add_cases(made.run.id, None, list(enumerate(made.cases))[:until])


@pytest.fixture(params=["sqlite", "postgresql"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    path = tmp_path / "runs.db"
    if request.param == "postgresql":
        path = request.getfixturevalue("postgres").database()
    put(path, view(0, [*keys(44), *TRAINING], run_id="old", error=0.002))  # four more models
    put(path, new(), until=DONE)
    return path


@pytest.fixture
def sides(db: Path) -> tuple[Side, Side]:
    with open_store(str(db)) as store:
        return stored_side(store, "old"), stored_side(store, "new")


def test_the_stored_figures_of_suites_are_those_of_the_cases(sides: tuple[Side, Side]) -> None:
    for side in sides:
        assert side.groups == tuple(summarise(side.cases))
        assert side.method is not None


@pytest.mark.parametrize(
    "terms",
    [
        Terms(),
        Terms(across=frozenset({"machines"})),
        Terms(selection=Selection(mode="inference")),
        Terms(only_common=True),
        Terms(variants=("inductor", "inductor")),
        Terms(across=frozenset({"threads"})),
        Terms(rules=Rules(q=0.2)),
    ],
    ids=str,
)
def test_a_comparison_is_the_same_with_and_without_them(
    sides: tuple[Side, Side], terms: Terms
) -> None:
    plain = [replace(side, groups=()) for side in sides]
    found = compare(*sides, terms)
    assert found.groups
    assert found == compare(*plain, terms)


def test_figures_by_another_definition_are_not_used(sides: tuple[Side, Side]) -> None:
    other = [
        replace(
            side, groups=tuple(replace(one, definition=0, no_verdict=77) for one in side.groups)
        )
        for side in sides
    ]
    assert compare(*other) == compare(*sides)


def test_a_comparison_sees_one_state(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of a run comes in after its head was read."""
    heads = lab.stored_heads

    def read(store: Store) -> list[RunHead]:
        found = heads(store)
        with open_store(str(db)) as writer:
            writer.add_cases("new", None, list(enumerate(new().cases))[DONE:])
        return found

    monkeypatch.setattr(lab, "stored_heads", read)
    found = lab.compare_runs("old", "new", str(db))
    assert (found.new.done, found.new.planned) == (DONE, PLANNED)
    assert sum(one.new is not None and one.new.outcome is Outcome.NOT_RUN for one in found.cases)
    monkeypatch.undo()
    assert lab.compare_runs("old", "new", str(db)).new.done == PLANNED


def test_comparing_stored_runs_needs_neither_numpy_nor_another_database(db: Path) -> None:
    code = (
        "import sys; from torchstone.lab.compare_runs import compare_runs; "
        "found = compare_runs('old', 'new', sys.argv[1]); assert found.groups; "
        "print([name for name in ('numpy', 'torch', 'sqlalchemy.dialects.postgresql') "
        "if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(db)], capture_output=True, text=True, check=True
    )
    driver = [] if isinstance(db, Path) else ["sqlalchemy.dialects.postgresql"]
    assert done.stdout.strip() == str(driver)
