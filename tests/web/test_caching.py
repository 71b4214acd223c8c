"""What pages keep from one look to the next is what they would read again."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.web import stored
from tests.web.conftest import client_of, reading
from torchstone.records import CaseMetrics, Outcome, PlannedCase, Result, RunHead, Selection
from torchstone.show.page import Chart, Link, Point, Series, Table
from torchstone.store import open_store
from torchstone.web import app
from torchstone.web.app import DRILL_DOWN, LISTS, AppState
from torchstone.web.query import ServerLinks
from torchstone.web.registry import PAGES, PageDef
from torchstone.web.render import draw
from torchstone.web.sources import DataAccess, PageCache

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
        new, base = DataAccess(store).heads(limit=2)
        asked = DataAccess(store)
        kept = DataAccess(store, PageCache())
        kept.comparison(base, new)  # which keeps both runs
        assert kept.cases(new, selection) == asked.cases(new, selection)
        assert kept.groups(new, selection) == asked.groups(new, selection)


def test_a_kept_run_is_not_asked_for_again(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with reading(database) as store:
        source = DataAccess(store, PageCache())
        new, base = source.heads(limit=2)
        source.comparison(base, new)
        monkeypatch.setattr(store, "planned_cases", None)
        monkeypatch.setattr(store, "run_groups", None)
        assert len(source.cases(new)) == new.planned
        assert source.groups(new)


def test_kept_choices_know_of_a_run_that_came_since(database: Path, tmp_path: Path) -> None:
    path = tmp_path / "grown.db"
    shutil.copy(database, path)
    memory = PageCache()
    with reading(path) as store:
        before = DataAccess(store, memory).choices()
        assert DataAccess(store, memory).choices() is before
        with open_store(str(path)) as writer:
            run = stored.make_run(90, stored.keys(["timm"]), id="later", torch="99.0")
            stored.add_run(writer, run, 0)
        after = DataAccess(store, memory).choices()
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
            assert store.prune(time.time() + 1e9, ("prune",), "1").results
        assert "raw samples of this result were removed" in client.get(address).text


def test_the_server_makes_a_page_of_each_kind_for_itself(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def noted(one: PageDef) -> PageDef:
        def view(source: DataAccess, *asked: object) -> object:
            made.append(one.name)
            return one.view(source, *asked)  # type: ignore[arg-type]

        return PageDef(one.name, view, one.summary)  # type: ignore[arg-type]

    monkeypatch.setattr(app, "PAGES", {name: noted(one) for name, one in PAGES.items()})
    with reading(database) as store:
        AppState(store).warm()
    assert made == [*DRILL_DOWN, *LISTS, "result", "run", "landing"]


def test_of_an_empty_database_there_is_nothing_to_make(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    with open_store(str(path)):
        pass
    with reading(path) as store:
        AppState(store).warm()


def test_a_kept_run_is_not_older_than_figures_whose_deriving_broke_off(
    database: Path, tmp_path: Path
) -> None:
    path = tmp_path / "derived.db"
    shutil.copy(database, path)
    memory = PageCache()
    wanted: set[str] = set()
    derived: set[str] = set()

    def derive(result: Result, planned: PlannedCase, arm: str) -> CaseMetrics:
        if derived & wanted:
            raise KeyboardInterrupt
        derived.add(result.id)
        return CaseMetrics(planned.key, Outcome.OK, speedup=77.0)

    with reading(path) as store:
        new, base = DataAccess(store).heads(limit=2)
        DataAccess(store, memory).comparison(base, new)  # which keeps both runs
        wanted.update(one.result_id for run in (base, new) for one in store.cases(run.id))
        wanted.discard("")
        with open_store(str(path)) as writer, pytest.raises(KeyboardInterrupt):
            writer.rebuild(derive, every=True)
        read = [DataAccess(store).cases(run) for run in (base, new)]
        assert any(one.speedup == 77.0 for cases in read for one in cases)
        assert [DataAccess(store, memory).cases(run) for run in (base, new)] == read


def test_the_file_of_a_comparison_is_kept_until_one_of_its_runs_changes(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "compared.db"
    shutil.copy(database, path)
    made: list[str] = []
    write = app.csv_text

    def counted(table: Table) -> str:
        made.append(write(table))
        return made[-1]

    monkeypatch.setattr(app, "csv_text", counted)
    address = "/api/v1/compare/tables/cases?format=csv"
    with client_of(path) as client:
        first = client.get(f"{address}&_=1").text
        assert client.get(f"{address}&_=2").text == first
        assert len(made) == 1
        few = client.get(f"{address}&suite=timm").text  # another choice is another file
        assert few != first
        assert len(made) == 2
        assert client.get(f"{address}&sort=-change").text != first
        assert len(made) == 3
        with open_store(str(path)) as writer:
            new = lambda _, p, a: CaseMetrics(p.key, Outcome.OK, speedup=77.0)  # noqa: E731
            writer.rebuild(new, every=True)
        changed = client.get(f"{address}&_=3").text
        assert changed != first
        with client_of(path) as fresh:
            assert fresh.get(address).text == changed


def test_a_kept_row_of_a_run_follows_its_cases(database: Path) -> None:
    with reading(database) as store:
        source = DataAccess(store, PageCache())
        head = source.heads(limit=1)[0]
        made: list[RunHead] = []

        def row(one: RunHead) -> int:
            made.append(one)
            return one.done

        assert [source.row(head, row) for _ in range(3)] == [head.done] * 3
        assert made == [head]
        grown = replace(head, outcomes={**head.outcomes, "oom": 1})
        assert source.row(grown, row) == grown.done
        assert source.row(replace(head, state="running"), row) == head.done
        assert len(made) == 3


def test_a_chart_is_drawn_again_when_anything_in_it_changes() -> None:
    links = ServerLinks()
    point = Point(1e9, 2.0, label="c0ffee", to=Link("run", "one"))
    line = Series("a", (point, point._replace(value=3.0)))
    chart = Chart("speedup", "Speed-up", "ratio", (line,))
    first = draw(chart, links)
    assert draw(replace(chart), links) is first
    for changed in (point._replace(value=2.5), point._replace(to=Link("run", "two"))):
        other = replace(chart, series=(Series("a", (changed, *line.points[1:])),))
        assert draw(other, links) != first
    assert draw(chart, links, alone=True) != first
