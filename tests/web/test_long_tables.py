"""Tables of more rows than a page shows: what is left is counted, and files hold all of it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web import long_history as long
from tests.web.conftest import TestClient, client_of, reading
from torchstone.show.page import Link
from torchstone.web.site import Site
from torchstone.web.sources import DataAccess
from torchstone.web.tables import PAGE_ROWS
from torchstone.web.views import runs

EVERY = long.PASSING + long.FAILING + 2


@pytest.fixture(scope="module")
def client(long_database: Path) -> Iterator[TestClient]:
    with client_of(long_database) as made:
        yield made


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.mark.parametrize(
    ("table", "asked", "many", "key"),
    [
        ("compare/tables/cases", "", EVERY, "model"),
        ("compare/tables/cases", "page=3", EVERY, "model"),
        ("suite/tables/models", "suite=timm", long.PASSING + 2, "model"),
        ("failures/tables/failures", "", long.FAILING, "model"),
        (f"runs/{long.NEW}/tables/failures", "", long.FAILING, "model"),
        ("profiles/tables/profiles", "", long.PROFILES, "profile"),
    ],
)
def test_a_csv_holds_every_row_once(
    client: TestClient, table: str, asked: str, many: int, key: str
) -> None:
    answer = client.get(f"/api/v1/{table}?{asked}&format=csv")
    named = [row[key] for row in rows_of(answer.text)]
    assert len(named) == len(set(named)) == many


@pytest.mark.parametrize(
    ("table", "many", "key"),
    [
        ("compare/tables/cases", EVERY, "model"),
        (f"runs/{long.NEW}/tables/failures", long.FAILING, "model"),
        ("profiles/tables/profiles", long.PROFILES, "profile"),
    ],
)
def test_json_comes_in_parts_that_name_the_next(
    client: TestClient, table: str, many: int, key: str
) -> None:
    address, named, totals = f"/api/v1/{table}", [], []
    while address:
        part = client.get(address).json()
        assert len(part["rows"]) <= PAGE_ROWS
        named += [row[key] for row in part["rows"]]
        totals.append(part["total"])
        address = part["next"]
    assert len(named) == len(set(named)) == many
    assert {total for total in totals if total is not None} == {many}
    assert part["total"] == many


@pytest.mark.parametrize(
    ("table", "key", "wanted"),
    [
        ("profiles/tables/profiles", "profile", [f"prof{n:03d}" for n in range(long.PROFILES)]),
        (
            f"runs/{long.NEW}/tables/failures",
            "model",
            [f"breaking{n:03d}" for n in range(long.FAILING)],
        ),
    ],
)
def test_order_and_text_are_asked_for_over_all_rows(
    client: TestClient, table: str, key: str, wanted: list[str]
) -> None:
    for sort in (key, f"-{key}"):
        address, named = f"/api/v1/{table}?sort={sort}", []
        while address:
            part = client.get(address).json()
            named += [row[key] for row in part["rows"]]
            assert part["total"] == len(wanted)
            address = part["next"]
        assert named == (wanted if sort == key else wanted[::-1])
    few = [name for name in wanted if name[:-1].endswith("19")]
    asked = f"/api/v1/{table}?filter={few[0][:-1].upper()}&sort={key}"
    assert [row[key] for row in client.get(asked).json()["rows"]] == few
    assert [row[key] for row in rows_of(client.get(f"{asked}&format=csv").text)] == few
    none = client.get(f"/{table.split('/tables')[0]}?filter=nowhere").text
    assert "here holds this text." in none


def test_the_rows_that_are_left_are_counted_from_where_the_page_is(client: TestClient) -> None:
    assert f"More: {EVERY - PAGE_ROWS} further rows" in client.get("/compare").text
    assert f"More: {EVERY - 2 * PAGE_ROWS} further rows" in client.get("/compare?page=2").text
    last = client.get(f"/compare?page={-(-EVERY // PAGE_ROWS)}").text
    assert "further row" not in last
    assert 'data-whole="no"' in last  # a click on a heading would sort this part alone
    left = long.FAILING - PAGE_ROWS
    assert f"More: {left} further rows" in client.get(f"/runs/{long.NEW}").text


def test_runs_are_not_counted_where_there_are_more(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = client.get("/api/v1/runs/tables/runs").json()
    assert (whole["total"], whole["next"]) == (2, "")
    monkeypatch.setattr(runs, "PAGE_RUNS", 1)
    monkeypatch.setattr(runs, "AT_ONCE", 1)
    text = client.get("/runs?page=1").text
    assert ">More</a>" in text
    assert "further row" not in text
    part = client.get("/api/v1/runs/tables/runs?page=1").json()
    assert (part["total"], [row["run"] for row in part["rows"]]) == (None, [long.NEW])
    assert [row["run"] for row in client.get(part["next"]).json()["rows"]] == [long.OLD]
    listed = rows_of(client.get("/api/v1/runs/tables/runs?format=csv&page=1").text)
    assert [row["run"] for row in listed] == [long.NEW, long.OLD]


def test_the_static_site_has_all_rows_in_its_files_and_says_where_they_are(
    long_database: Path,
) -> None:
    with reading(long_database) as store:
        site = Site(DataAccess(store), most=0)
        made: dict[str, Any] = dict(site._page(Link("compare")))
    assert len(rows_of(made["data/compare.cases.csv"].decode())) == EVERY
    page = json.loads(made["data/compare.page.json"])
    assert (len(page["tables"]["cases"]["rows"]), page["tables"]["cases"]["next"]) == (EVERY, "")
    assert f"The CSV has {EVERY - PAGE_ROWS} further rows." in made["compare.html"].decode()
