"""What pages say, asked of the views themselves: no HTML, no server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.show import synthetic_profile
from tests.web import stored
from tests.web.conftest import reading
from torchstone.records import Outcome, Profile
from torchstone.show.page import Cell, Page, Progress, Table, charts_of, tables_of, walk
from torchstone.store import Store, heartbeat, open_store
from torchstone.web.query import BadQuery, NotFound, parse
from torchstone.web.registry import PAGES
from torchstone.web.sources import DataAccess
from torchstone.web.views.runs import progress_of_run

LAST = f"night{stored.NIGHTS - 1:02d}x"


@pytest.fixture(scope="module")
def source(database: Path) -> Iterator[DataAccess]:
    with reading(database) as store:
        yield DataAccess(store)


def view(source: DataAccess, name: str, ident: str = "", **asked: str) -> Page:
    return PAGES[name].view(source, parse(asked.items()), ident)


def column(table: Table, key: str) -> list[Cell]:
    place = [one.key for one in table.columns].index(key)
    return [row[place] for row in table.rows]


def cells(table: Table, where: str, value: Any) -> dict[str, Cell]:
    """The first row with that value, by column."""
    place = [one.key for one in table.columns].index(where)
    row = next(row for row in table.rows if row[place].value == value)
    return dict(zip((one.key for one in table.columns), row, strict=True))


def test_the_landing_page_has_a_table_a_suite_with_every_denominator(source: DataAccess) -> None:
    page = view(source, "landing", mode="inference")
    tables = tables_of(page)
    assert list(tables) == ["huggingface-small", "timm-small"]
    row = cells(tables["huggingface-small"], "variant", "inductor")
    assert row["pass_rate"].text == "4/4"
    assert row["speedup"].detail.count("–") == 1
    assert (row["passed"].value, row["planned"].value) == (4, 4)
    assert row["run"].value == LAST
    assert page.controls is not None
    chosen = {one.name: one.value for one in page.controls.choices}
    assert (chosen["mode"], chosen["precision"], chosen["new"]) == ("inference", "all", LAST)


def test_a_slower_suite_is_marked_by_the_verdict_and_the_threshold_is_told(
    source: DataAccess,
) -> None:
    page = view(source, "landing", mode="inference")
    tables = tables_of(page)
    slower = cells(tables["huggingface-small"], "variant", "inductor")
    assert (slower["change"].mark, slower["verdict"].value) == ("worse", "slower")
    same = cells(tables["timm-small"], "variant", "inductor")
    assert same["change"].mark == "same"
    notes = [one.note for one in page.sections if getattr(one, "note", "")]
    assert any("±2 %" in note and "0.5 %" in note for note in notes)


def test_the_base_decides_what_is_marked(source: DataAccess) -> None:
    page = view(source, "landing", base="night00x", new="night01x")
    marks = {cell.mark for table in tables_of(page).values() for cell in column(table, "change")}
    assert "worse" not in marks


def test_trends_hold_a_point_a_run_with_its_commit(source: DataAccess) -> None:
    chart = charts_of(view(source, "landing"))["timm-small-speedup"]
    series = chart.series[0]  # type: ignore[union-attr]
    assert len(series.points) == stored.NIGHTS
    assert series.points[0].label == "00c0ffee"
    assert all(point.low < point.value < point.high for point in series.points)


@pytest.mark.parametrize(("asked", "runs"), [({"range": "1"}, 2), ({"granularity": "week"}, 2)])
def test_range_and_granularity_choose_the_runs(
    source: DataAccess, asked: dict[str, str], runs: int
) -> None:
    chart = charts_of(view(source, "landing", **asked))["timm-small-speedup"]
    assert len(chart.series[0].points) == runs  # type: ignore[union-attr]


@pytest.mark.parametrize(("asked", "drawn"), [("", "week"), ("run", "run"), ("day", "day")])
def test_of_long_ranges_one_run_a_week_is_drawn_unless_more_are_asked_for(
    source: DataAccess, asked: str, drawn: str
) -> None:
    wanted = {"granularity": asked} if asked else {}
    page = view(source, "landing", range="all", **wanted)
    assert page.controls is not None
    (choice,) = [one for one in page.controls.choices if one.name == "granularity"]
    assert choice.value == drawn


def test_a_zoom_in_the_url_is_the_range(source: DataAccess) -> None:
    asked = {"from": "2026-11-02T00:00:00Z", "to": "2026-11-04T23:00"}
    chart = charts_of(view(source, "landing", **asked))["timm-small-speedup"]
    labels = [point.label for point in chart.series[0].points]  # type: ignore[union-attr]
    assert labels == ["01c0ffee", "02c0ffee", "03c0ffee"]


def test_models_are_told_apart_and_the_side_that_moved_is_named(source: DataAccess) -> None:
    table = tables_of(
        view(source, "suite", suite="huggingface", variant="inductor", mode="inference")
    )["models"]
    assert sorted(cell.value for cell in column(table, "model")) == sorted(
        stored.SUITES["huggingface"]
    )
    row = cells(table, "model", stored.SLOWED)
    assert row["change"].mark == "worse"
    assert row["moved"].value == "arm"
    assert row["base_speedup"].value / row["speedup"].value == pytest.approx(1.33, rel=0.02)
    others = [c.mark for c in column(table, "change") if c is not row["change"]]
    assert "worse" not in others


def test_models_are_sorted_filtered_and_cut(source: DataAccess) -> None:
    asked = {"suite": "timm", "mode": "all", "sort": "-speedup"}
    speeds = [
        c.value for c in column(tables_of(view(source, "suite", **asked))["models"], "speedup")
    ]
    assert speeds == sorted(speeds, reverse=True)
    assert len(speeds) == 12
    filtered = tables_of(view(source, "suite", suite="timm", filter="GHOST"))["models"]
    assert {cell.value for cell in column(filtered, "model")} == {"ghostnet_100"}


def test_failing_cases_have_their_reason_and_the_switch_leaves_them_in(source: DataAccess) -> None:
    asked = {"suite": "huggingface", "mode": "training", "variant": "inductor"}
    table = tables_of(view(source, "suite", **asked))["models"]
    row = cells(table, "model", stored.BROKEN)
    assert row["outcome"].value == Outcome.CRASH.value
    assert "SIGSEGV" in row["reason"].text
    common = tables_of(view(source, "suite", **asked, common="1"))["models"]
    assert stored.BROKEN in [cell.value for cell in column(common, "model")]
    failing = tables_of(view(source, "suite", **asked, outcome="failing"))["models"]
    assert [cell.value for cell in column(failing, "model")] == [stored.BROKEN]


def test_a_failure_names_its_first_bad_and_last_good_commit(source: DataAccess) -> None:
    table = tables_of(view(source, "failures"))["failures"]
    row = cells(table, "model", stored.BROKEN)
    assert row["first_bad"].text == f"{stored.FIRST_BAD:02x}c0ffee"
    assert row["last_good"].text == f"{stored.FIRST_BAD - 1:02x}c0ffee"
    assert row["runs_failing"].value == stored.NIGHTS - stored.FIRST_BAD


def test_one_model_has_its_history_and_the_evidence_behind_it(source: DataAccess) -> None:
    asked = {"suite": "huggingface", "model": "AlbertForMaskedLM", "variant": "inductor"}
    page = view(source, "case", **asked)
    charts = charts_of(page)
    assert {"speedup", "time", "compile", "memory", "samples"} <= set(charts)
    tables = tables_of(page)
    assert len(tables["history"].rows) == stored.NIGHTS
    assert [cell.value for cell in column(tables["profiles"], "profile")] == ["prof1"]
    assert {cell.value for cell in column(tables["arms"], "arm")} == {"eager", "inductor"}
    texts = [one.text for one in walk(page.sections) if type(one).__name__ == "Code"]
    told = cells(tables["ledger-inductor"], "line", "kernels")
    assert (told["level"].value, told["share"].text) == ("PyTorch back end", "40 %")
    assert "aten::mm" in told["most"].text
    assert "Remedy:" in column(tables["findings-eager"], "remedy")[0].text
    assert any(text.startswith("torchstone explain ") for text in texts)
    assert any(text.startswith("torchstone bench hf:AlbertForMaskedLM@small") for text in texts)


def test_a_profile_is_read_once_by_whatever_name_it_is_asked_for(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    load = Store.load_profile

    def counted(store: Store, wanted: str) -> Profile:
        asked.append(wanted)
        return load(store, wanted)

    monkeypatch.setattr(Store, "load_profile", counted)
    with reading(database) as store:
        source = DataAccess(store)
        first = view(source, "profile", "prof1")
        assert tables_of(first)["functions"].rows
        assert view(source, "profile", "last") == first
        assert asked == ["prof1"]
        with pytest.raises(NotFound, match="no profile"):
            view(source, "profile", "nobody")


def test_a_failed_point_stands_in_the_history(source: DataAccess) -> None:
    asked = {"suite": "huggingface", "model": stored.BROKEN, "mode": "training"}
    page = view(source, "case", **asked, variant="inductor")
    points = charts_of(page)["speedup"].series[0].points  # type: ignore[union-attr]
    assert [point.failed for point in points] == [False] * 3 + [True] * 3
    assert [point.value is None for point in points] == [False] * 3 + [True] * 3


def test_what_newly_fails_comes_first_in_a_comparison(source: DataAccess) -> None:
    bad, good = f"night{stored.FIRST_BAD:02d}x", f"night{stored.FIRST_BAD - 1:02d}x"
    tables = tables_of(view(source, "compare", base=good, new=bad))
    first = cells(tables["cases"], "kind", "newly failing")
    assert tables["cases"].rows[0][0].value == stored.BROKEN == first["model"].value
    assert first["outcome"].value == "crash"


def test_another_machine_is_refused_until_it_may_differ(tmp_path: Path) -> None:
    path = tmp_path / "two.db"
    cases = stored.keys(["timm"])
    with open_store(str(path)) as store:
        stored.add_night(store, 0, cases)
        stored.add_run(store, stored.make_run(1, cases, machine_id="m-4567"), 1)
    with reading(path) as store:
        source = DataAccess(store)
        page = view(source, "compare", base="night00x")
        (notice,) = [one for one in page.sections if type(one).__name__ == "Notice"]
        assert "two machines" in notice.text  # type: ignore[union-attr]
        assert notice.to is not None  # type: ignore[union-attr]
        assert "cases" not in tables_of(page)
        asked = dict(notice.to.params)  # type: ignore[union-attr]
        assert asked["across"] == "machines"
        assert len(tables_of(view(source, "compare", **asked))["cases"].rows) == len(cases)


def test_two_variants_of_one_run_are_compared(source: DataAccess) -> None:
    asked = {"base": LAST, "new": LAST, "variant": "inductor+dynamic"}
    page = view(source, "compare", **asked, base_variant="inductor")
    kinds = {cell.value for cell in column(tables_of(page)["cases"], "kind")}
    assert kinds == {"paired", "newly passing"}


@pytest.mark.parametrize("name", ["05c0ffee", "nightly-5", "main", "night05"])
def test_a_run_is_known_by_commit_label_branch_and_the_beginning_of_its_id(
    source: DataAccess, name: str
) -> None:
    assert source.head(name).id == LAST


def test_a_machine_tells_its_roofs_its_noise_and_its_doctor(source: DataAccess) -> None:
    page = view(source, "machine", stored.MACHINE)
    tables = tables_of(page)
    assert {"doctor", "calibration-cpu", "runs", "floors"} <= set(tables)
    points = charts_of(page)["smallest_detectable"].series[0].points  # type: ignore[union-attr]
    assert [point.value for point in points] == pytest.approx([0.012, 0.014, 0.016, 0.018])


@pytest.mark.parametrize(
    "asked",
    [
        {"range": "5"},
        {"granularity": "hour"},
        {"sort": "'; drop"},
        {"sort": "nope"},
        {"page": "0"},
        {"page": "x"},
        {"from": "yesterday"},
        {"from": "2026-02-30"},
        {"threads": "many"},
        {"common": "yes"},
        {"page": "10001"},
        {"page": "0000000001"},
        {"filter": "x" * 601},
        {"suite": "a\0b"},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_said(source: DataAccess, asked: dict[str, str]) -> None:
    with pytest.raises(BadQuery):
        view(source, "suite", **asked)


@pytest.mark.parametrize(
    ("name", "ident", "asked"),
    [
        ("suite", "", {"suite": "nope"}),
        ("landing", "", {"variant": "nope"}),
        ("landing", "", {"new": "nope"}),
        ("compare", "", {"base": "nope"}),
        ("case", "", {}),
        ("case", "", {"model": "nope"}),
        ("run", "nope", {}),
        ("result", "nope", {}),
        ("profile", "nope", {}),
        ("machine", "nope", {}),
    ],
    ids=str,
)
def test_what_is_not_there_is_not_found(
    source: DataAccess, name: str, ident: str, asked: dict[str, str]
) -> None:
    with pytest.raises(NotFound):
        view(source, name, ident, **asked)


def test_amounts_of_functions_have_the_unit_of_the_profile(tmp_path: Path) -> None:
    path = tmp_path / "profiles.db"
    made = {
        "s": synthetic_profile.training(),
        "samples": synthetic_profile.sampled(),
        "bytes": replace(synthetic_profile.training(), tree=synthetic_profile.tree("bytes")),
    }
    with open_store(str(path)) as store:
        for unit, profile in made.items():
            store.save_profile(replace(profile, id=f"of-{unit}"))
    with reading(path) as store:
        for unit in made:
            table = tables_of(view(DataAccess(store), "profile", f"of-{unit}"))["functions"]
            assert {c.key: c.unit for c in table.columns if c.unit} == {"own": unit, "total": unit}
            assert {cell.value for cell in column(table, "unit")} == {unit}


def test_an_empty_database_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    with open_store(str(path)):
        pass
    with reading(path) as store:
        for name in ("landing", "suite", "compare", "failures", "runs", "machines", "profiles"):
            page = view(DataAccess(store), name)
            told = [getattr(one, "text", "") or getattr(one, "empty", "") for one in page.sections]
            assert any("yet" in text for text in told), name


def test_a_run_is_running_while_its_program_lives_and_interrupted_after(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    with open_store(str(path)) as store:
        run = stored.add_night(store, 0, stored.keys(["timm"]), until=5)
    with reading(path) as store:
        source = DataAccess(store)
        before = source.store.version()
        with heartbeat.start_heartbeat(path, run.id) as alive:
            alive.now("timm/resnet18", 5, 12)
            assert source.store.version() != before
            (shown,) = [p for p in view(source, "landing").sections if isinstance(p, Progress)]
            assert (shown.state, shown.done, shown.planned) == ("running", 5, 12)
            (own,) = [p for p in view(source, "run", run.id).sections if isinstance(p, Progress)]
            assert own.case == "timm/resnet18"
            with heartbeat.start_heartbeat(path, run.id, node="n2") as other:  # of a Ray cluster
                other.now("timm/vit")
                assert progress_of_run(source, run.id).case == "timm/resnet18, timm/vit on n2"
        page = view(source, "run", run.id)
        (own,) = [p for p in page.sections if isinstance(p, Progress)]
        assert own.state == "interrupted"
        texts = [getattr(one, "text", "") for one in page.sections]
        assert any(f"torchstone run --resume {run.id}" in text for text in texts)


def test_a_result_with_counted_work_stands_under_its_roofs(tmp_path: Path) -> None:
    from tests.explain import synthetic
    from tests.web.conftest import client_of

    counted = synthetic.arm(synthetic.flops(60_000_000, 20 * 2**20, 4 * 2**20))
    result = stored.replace(
        synthetic.result(counted), id="roofed", calibration=synthetic.calibration()
    )
    path = tmp_path / "roof.db"
    with open_store(str(path)) as store:
        store.save(result)
    with client_of(path) as client:
        text = client.get("/result/roofed").text
        assert 'id="chart-roofline"' in text
        assert 'class="chart"' in text
        assert "<style" not in text
        alone = client.get("/api/v1/result/roofed/charts/roofline.svg").text
        assert "<style>" in alone
        data = client.get("/api/v1/result/roofed").json()["charts"]["roofline"]["data"]
        assert data["ceilings"]
