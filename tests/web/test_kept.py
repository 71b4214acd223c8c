"""What pages keep from one look to the next is what they would read anew."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.web import stored
from tests.web.conftest import client_of, reading
from torchstone.records import Selection
from torchstone.store import open_store
from torchstone.web import app
from torchstone.web.app import DRILL_DOWN, LISTS, Desk
from torchstone.web.registry import PAGES, PageDef
from torchstone.web.sources import Memory, Source

SELECTIONS = (
    Selection(),
    Selection(suite="timm"),
    Selection(suite="timm", variant="inductor", threads=1),
    Selection(model="resnet18"),
    Selection(mode="no such mode"),
)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_the_cases_of_a_kept_run_are_those_that_the_store_gives(
    database: Path, selection: Selection
) -> None:
    with reading(database) as store:
        new, base = Source(store).heads(limit=2)
        asked = Source(store)
        kept = Source(store, Memory())
        kept.comparison(base, new)  # which keeps both runs
        assert kept.cases(new, selection) == asked.cases(new, selection)
        assert kept.groups(new, selection) == asked.groups(new, selection)


def test_a_kept_run_is_not_asked_for_again(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with reading(database) as store:
        source = Source(store, Memory())
        new, base = source.heads(limit=2)
        source.comparison(base, new)
        monkeypatch.setattr(store, "planned_cases", None)
        monkeypatch.setattr(store, "run_groups", None)
        assert len(source.cases(new)) == new.planned
        assert source.groups(new)


def test_kept_choices_know_of_a_run_that_came_since(database: Path, tmp_path: Path) -> None:
    path = tmp_path / "grown.db"
    shutil.copy(database, path)
    memory = Memory()
    with reading(path) as store:
        before = Source(store, memory).choices()
        assert Source(store, memory).choices() is before
        with open_store(str(path)) as writer:
            run = stored.make_run(90, stored.keys(["timm"]), id="later", torch="99.0")
            stored.add_run(writer, run, 0)
        after = Source(store, memory).choices()
        assert "99.0" in after.torches
        assert "99.0" not in before.torches
        assert after == store.choices()


def test_a_kept_result_is_gone_when_its_samples_are(database: Path, tmp_path: Path) -> None:
    path = tmp_path / "thinned.db"
    shutil.copy(database, path)
    with client_of(path) as client:
        with open_store(str(path)) as store:
            ident = next(one.result_id for one in store.cases("last") if one.result_id)
        address = f"/result/{ident}"
        assert "Raw samples" in client.get(address).text
        assert "raw samples of this result were removed" not in client.get(address).text
        with open_store(str(path)) as store:
            assert store.thin(time.time() + 1e9, ("thin",), "1").results
        assert "raw samples of this result were removed" in client.get(address).text


def test_the_server_makes_a_page_of_each_kind_for_itself(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def noted(one: PageDef) -> PageDef:
        def view(source: Source, *asked: object) -> object:
            made.append(one.name)
            return one.view(source, *asked)  # type: ignore[arg-type]

        return PageDef(one.name, view, one.summary)  # type: ignore[arg-type]

    monkeypatch.setattr(app, "PAGES", {name: noted(one) for name, one in PAGES.items()})
    with reading(database) as store:
        Desk(store).warm()
    assert made == [*DRILL_DOWN, *LISTS, "result", "run"]


def test_of_an_empty_database_there_is_nothing_to_make(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    with open_store(str(path)):
        pass
    with reading(path) as store:
        Desk(store).warm()
