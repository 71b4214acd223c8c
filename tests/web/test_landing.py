"""The landing page where there is nothing to compare with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web import stored
from tests.web.conftest import client_of, reading
from torchstone.records import PassRate
from torchstone.show.cells import pass_cell
from torchstone.show.page import Chart, Table, charts_of, tables_of
from torchstone.store import heartbeat, open_store
from torchstone.web.query import parse
from torchstone.web.registry import PAGES
from torchstone.web.sources import DataAccess

AGAINST = {"newly_failing", "change", "threshold"}
CASES = stored.keys(["timm"])


def shown(table: Table) -> set[str]:
    return {column.key for column in table.columns if column.shown}


def landing(path: Path, **asked: str) -> Table:
    with reading(path) as store:
        page = PAGES["landing"].view(DataAccess(store), parse(asked.items()), "")
        return tables_of(page)["timm-small"]


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("one") / "one.db"
    with open_store(str(path)) as store:
        stored.add_night(store, 0, CASES)
    return path


def test_cases_that_were_not_run_are_told_apart_from_failures() -> None:
    whole = pass_cell(PassRate(8, 10, 10, {"ok": 8, "crash": 2}))
    assert (whole.text, whole.detail) == ("8/10", "80 %")
    under_way = pass_cell(PassRate(1, 10, 10, {"ok": 1, "not_run": 9}))
    assert (under_way.text, under_way.detail) == ("1/10", "9 not run")


def test_a_first_run_has_no_columns_about_a_base(single: Path) -> None:
    table = landing(single)
    assert shown(table) == {
        *("variant", "pass_rate", "speedup", "verdicts", "compile_cold", "memory_ratio"),
    }
    assert {column.key for column in table.columns} >= AGAINST  # the CSV is always the same
    with client_of(single) as client:
        text = client.get("/").text
        assert "Noise limit" not in text
        assert "Newly failing" not in text
        assert "change" in client.get("/api/v1/landing/tables/timm-small").json()["rows"][0]


def test_with_a_base_they_are_there(database: Path) -> None:
    assert shown(landing(database)) >= AGAINST


def test_a_run_against_itself_is_no_comparison(database: Path) -> None:
    assert not AGAINST & shown(landing(database, base="night05x", new="night05x"))


def test_nor_are_runs_that_must_not_be_compared(tmp_path: Path) -> None:
    path = tmp_path / "two.db"
    with open_store(str(path)) as store:
        stored.add_night(store, 0, CASES)
        stored.add_run(store, stored.make_run(1, CASES, machine_id="m-4567"), 1)
    two = {"base": "night00x", "new": "night01x"}
    assert not AGAINST & shown(landing(path, **two))
    assert shown(landing(path, **two, across="machines")) >= AGAINST


def test_a_run_under_way_is_no_point_of_a_trend_until_it_ends(tmp_path: Path) -> None:
    """What it has not come to yet would look like a fall of the pass rate."""
    path = tmp_path / "live.db"
    with open_store(str(path)) as store:
        stored.add_night(store, 0, CASES)
        run = stored.add_night(store, 1, CASES, until=2)

    def labels() -> list[str]:
        with reading(path) as store:
            page = PAGES["landing"].view(DataAccess(store), parse([]), "")
            chart = charts_of(page)["timm-small-pass_rate"]
            assert isinstance(chart, Chart)
            return [point.label for point in chart.series[0].points]

    with heartbeat.start_heartbeat(path, run.id):
        assert labels() == ["00c0ffee"]
    assert labels() == ["00c0ffee", "01c0ffee"]  # interrupted: that does count


def test_a_pass_rate_below_all_is_marked_as_failing(database: Path) -> None:
    with reading(database) as store:
        page = PAGES["landing"].view(DataAccess(store), parse([("mode", "training")]), "")
    cells = [row[1] for row in tables_of(page)["huggingface-small"].rows]
    assert {(cell.text, cell.mark) for cell in cells} == {("3/4", "fail"), ("4/4", "pass")}
