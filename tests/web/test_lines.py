"""Lines over time are of one machine, branch and scale, and say over how many cases they are."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.web import stored
from tests.web.conftest import client_of, reading
from torchstone.records import CaseMetrics, GitState
from torchstone.show.page import Chart, Notice, Page, charts_of, tables_of, walk
from torchstone.store import open_store
from torchstone.web.query import parse
from torchstone.web.registry import PAGES
from torchstone.web.sources import DataAccess
from torchstone.web.views.parts import HOLLOW

CASES = stored.keys(["timm"])
NIGHTS = 3
MODEL = {"suite": "timm", "model": "resnet18", "variant": "inductor"}
FACTORS = {"mA": 1.0, "mB": 2.5}
"""By machine, how much larger every figure is."""


def times(factor: float, figures: CaseMetrics) -> CaseMetrics:
    assert figures.speedup is not None
    assert figures.interval is not None
    assert figures.base_ns is not None
    low, high = figures.interval
    return replace(
        figures,
        speedup=figures.speedup * factor,
        interval=(low * factor, high * factor),
        base_ns=figures.base_ns * factor,
    )


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two machines each night, and a branch on the second of them."""
    path = tmp_path_factory.mktemp("machines") / "two.db"
    with open_store(str(path)) as store:
        for night in range(NIGHTS):
            for hour, (name, factor) in enumerate(FACTORS.items()):
                made = stored.START + timedelta(days=night, hours=hour)
                run = stored.make_run(
                    night,
                    CASES,
                    id=f"n{night}{name}",
                    machine_id=name,
                    machine=f"CPU {name}",
                    created=made.isoformat(),
                    torch=f"2.14.0.dev2026110{night}",
                )
                stored.add_run(store, run, night, lambda c, factor=factor: times(factor, c))
        early = (stored.START + timedelta(minutes=30)).isoformat()
        branch = {"git": GitState("feed" * 10, "feature", False), "machine_id": "mB"}
        run = stored.make_run(0, CASES, id="n0feature", created=early, **branch)
        stored.add_run(store, run, 0, lambda c: times(7.0, c))
    return path


@pytest.fixture(scope="module")
def scales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small and full models in each run; the full ones gain twice as much."""
    path = tmp_path_factory.mktemp("scales") / "scales.db"
    cases = [*CASES, *(replace(one, scale="full") for one in CASES)]
    with open_store(str(path)) as store:
        for night in range(NIGHTS):
            run = stored.make_run(night, cases)
            stored.add_run(
                store, run, night, lambda c: times(2.0 if c.key.scale == "full" else 1.0, c)
            )
    return path


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three nights, of which the second was killed after two cases."""
    path = tmp_path_factory.mktemp("stub") / "stub.db"
    with open_store(str(path)) as store:
        for night, until in enumerate((None, 2, None)):
            stored.add_run(store, stored.make_run(night, CASES), night, until=until)
    return path


def page_of(path: Path, name: str, **asked: str) -> Page:
    with reading(path) as store:
        return PAGES[name].view(DataAccess(store), parse(asked.items()), "")


def lines(page: Page, name: str) -> dict[str, list[float]]:
    chart = charts_of(page)[name]
    assert isinstance(chart, Chart)
    return {one.name: [p.value for p in one.points if p.value is not None] for one in chart.series}


def steady(values: list[float]) -> bool:
    """Nights differ by a few per cent, machines and scales by a factor of two and more."""
    return max(values) < 1.2 * min(values)


@pytest.mark.parametrize(
    ("name", "chart", "asked"),
    [
        ("landing", "timm-small-speedup", {"mode": "inference"}),
        ("suite", "speedup", {"suite": "timm", "mode": "inference"}),
        ("case", "time", MODEL),
    ],
)
def test_a_line_is_of_the_machine_and_branch_of_the_run_that_is_looked_at(
    machines: Path, name: str, chart: str, asked: dict[str, str]
) -> None:
    newest = page_of(machines, name, **asked)
    assert newest.controls is not None
    chosen = {one.name: one.value for one in newest.controls.choices}
    assert (chosen["machine"], chosen["branch"]) == ("mB", "main")
    found = lines(newest, chart)
    each = 1 if name == "landing" else 2  # the overview draws one variant of every suite
    assert len(found) == each, "no machine in a name where there is one"
    assert all(len(values) == NIGHTS and steady(values) for values in found.values())
    other = lines(page_of(machines, name, **asked, new="n2mA"), chart)
    key = next(iter(found))
    assert found[key][0] == pytest.approx(2.5 * other[key][0], rel=0.01)


@pytest.mark.parametrize(
    ("name", "chart", "asked"),
    [
        ("landing", "timm-small-speedup", {"mode": "inference"}),
        ("suite", "speedup", {"suite": "timm", "mode": "inference"}),
        ("case", "time", MODEL),
    ],
)
def test_where_all_are_chosen_each_machine_and_branch_has_its_own_line(
    machines: Path, name: str, chart: str, asked: dict[str, str]
) -> None:
    found = lines(page_of(machines, name, **asked, machine="all", branch="all"), chart)
    each = 1 if name == "landing" else 2
    assert len(found) == 3 * each, list(found)
    assert all(steady(values) for values in found.values())
    assert sum("mA" in one for one in found) == sum("feature" in one for one in found) == each
    alone = lines(page_of(machines, name, **asked, machine="all"), chart)
    assert len(alone) == 2 * each
    assert not any("main" in one for one in alone)


def test_small_and_full_models_are_told_apart(scales: Path) -> None:
    for name in ("landing", "suite"):
        page = page_of(scales, name, suite="timm")
        small, full = (lines(page, f"timm-{one}-speedup") for one in ("small", "full"))
        assert all((small, full))
        assert small != full
        for made in (small, full):
            assert all(len(values) == NIGHTS and steady(values) for values in made.values())
    table = tables_of(page_of(scales, "suite", suite="timm", variant="inductor", mode="inference"))[
        "models"
    ]
    named = [(row[0].text, row[0].detail) for row in table.rows]
    assert len(named) == len(set(named)) == 6
    assert {column.key for column in table.columns if column.shown} >= {"settings"}


def test_a_point_says_over_how_many_cases_it_is(broken_off: Path) -> None:
    page = page_of(broken_off, "landing")
    for name, stub in (("speedup", 1), ("pass_rate", 1), ("compile_time", 1)):
        chart = charts_of(page)[f"timm-small-{name}"]
        assert isinstance(chart, Chart)
        points = chart.series[0].points
        assert [(point.n, point.of) for point in points] == [(3, 3), (stub, 3), (3, 3)]
        assert points[1].note.startswith("over 1 of 3 cases · ")
        assert [point.partial for point in points] == [False, True, False]
    with client_of(broken_off) as client:
        chart = client.get("/api/v1/landing").json()["charts"]["timm-small-speedup"]
        kept = [(p["n"], p["of"], p["partial"]) for p in chart["series"][0]["points"]]
        assert kept == [(3, 3, False), (1, 3, True), (3, 3, False)]
        text = client.get("/").text
        assert "over 1 of 3 cases" in text
        assert HOLLOW in text
        assert (
            HOLLOW.split(",")[0] in client.get("/api/v1/landing/charts/timm-small-speedup.svg").text
        )


def notices(page: Page) -> list[str]:
    return [one.text for one in walk(page.sections) if isinstance(one, Notice)]


def test_a_run_that_got_to_its_end_is_the_base(broken_off: Path) -> None:
    page = page_of(broken_off, "landing")
    assert "nightly-2" in page.lead
    assert "base: 2026-11-01" in page.lead
    asked = page_of(broken_off, "landing", base="night01x")
    (table,) = tables_of(asked).values()
    row = dict(zip((one.key for one in table.columns), table.rows[0], strict=True))
    assert row["change"].detail.endswith("over 1 of 3")
    assert (row["compared"].value, row["counted"].value) == (1, 3)
    assert "newly passing" not in row["newly_failing"].detail
    assert notices(asked) == ["base: interrupted, 2 of 12 cases have ended"]


@pytest.fixture
def newest_broken(tmp_path: Path) -> Path:
    path = tmp_path / "newest.db"
    with open_store(str(path)) as store:
        for night, until in enumerate((None, None, 5, 2)):
            stored.add_run(store, stored.make_run(night, CASES), night, until=until)
    return path


@pytest.mark.parametrize(
    ("name", "asked"), [("landing", {}), ("suite", {}), ("compare", {}), ("case", MODEL)]
)
def test_newer_runs_that_broke_off_are_named_and_not_shown(
    newest_broken: Path, name: str, asked: dict[str, str]
) -> None:
    page = page_of(newest_broken, name, **asked)
    (said,) = [text for text in notices(page) if "was interrupted" in text]
    assert "nightly-3 was interrupted after 2 of 12 cases, and 1 run before it likewise" in said
    assert page.controls is not None
    chosen = {one.name: one.value for one in page.controls.choices}
    assert (chosen["new"], chosen["base"]) == ("night01x", "night00x")
    assert not [
        text
        for text in notices(page_of(newest_broken, "landing", new="night03x"))
        if "broke" in text
    ]


def test_without_any_that_got_to_its_end_the_newest_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "stubs.db"
    with open_store(str(path)) as store:
        for night in range(2):
            stored.add_run(store, stored.make_run(night, CASES), night, until=4)
    page = page_of(path, "landing")
    assert "New: 2026-11-02" in page.lead
    assert "base: 2026-11-01" in page.lead


def test_the_line_goes_past_a_run_that_broke_off(broken_off: Path) -> None:
    with client_of(broken_off) as client:
        svg = client.get(
            "/api/v1/landing/charts/timm-small-speedup.svg?variant=inductor&mode=inference"
        ).text
    joined = [path for path in re.findall(r' d="(M[^"]*)"', svg) if path.count("L") == 1]
    (line,) = [path for path in joined if "a" not in path and "h" not in path and "V" not in path]
    assert len(re.split("[ML]", line)) == 3, "from the first night to the third"
