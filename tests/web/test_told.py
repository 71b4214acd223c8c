"""That a figure says what it is, by what it was evaluated, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.show import synthetic_result
from tests.web import long_history as long
from tests.web import stored
from tests.web.conftest import reading
from tests.web.test_views import cells, column, view
from torchstone.records import Agreement, DoctorReport, Verdict
from torchstone.show.page import Chart, Facts, Group, charts_of, tables_of, walk
from torchstone.store import open_store
from torchstone.web import context
from torchstone.web.documents import page_data
from torchstone.web.sources import DataAccess
from torchstone.web.views import parts

ALBERT = {"suite": "huggingface", "model": "AlbertForMaskedLM", "variant": "inductor"}
NAMES = {
    *("run", "commit", "suite", "suites", "settings", "moved", "checks", "reason", "outcome"),
    *("state", "label", "torch", "origin", "machine"),
}
"""Columns of words; all other shown ones hold figures."""
NOTHING = {("newly_failing", "0"), ("last_good", "never seen to pass")}
"""There is nothing behind these."""


@pytest.fixture(scope="module")
def source(database: Path) -> Iterator[DataAccess]:
    with reading(database) as store:
        yield DataAccess(store)


@pytest.fixture(scope="module")
def grown(long_database: Path) -> Iterator[DataAccess]:
    with reading(long_database) as store:
        yield DataAccess(store)


@pytest.mark.parametrize(("new", "base"), [("night01x", "night00x"), ("night03x", "night02x")])
def test_an_old_run_is_compared_with_the_one_before_it(
    source: DataAccess, monkeypatch: pytest.MonkeyPatch, new: str, base: str
) -> None:
    """One that is no longer listed, and the last one that is."""
    monkeypatch.setattr(context, "LISTED", 3)
    page = view(source, "landing", new=new)
    assert page.controls is not None
    assert {one.name: one.value for one in page.controls.choices}["base"] == base
    assert view(source, "landing", new="night00x").lead.endswith("no base to compare with.")


def test_a_case_that_a_run_does_not_have_keeps_its_scale(source: DataAccess) -> None:
    asked = {**ALBERT, "scale": "small", "mode": "training", "precision": "fp32"}
    with_case = view(source, "case", **asked).lead
    assert "@small" in with_case
    page = view(source, "case", **{**asked, "model": "resnet18"})  # of another suite
    assert page.lead == with_case.replace("AlbertForMaskedLM", "resnet18")


def test_only_common_cases_are_those_that_both_runs_have(grown: DataAccess) -> None:
    """What newly fails is what one looks for; it must not vanish."""
    names = {one.model for one in (*long.STEADY, *long.BREAKING)}
    for name, asked, wanted in (
        ("compare", {}, names),
        ("suite", {"suite": "timm"}, {one.model for one in long.STEADY}),
    ):
        table = "cases" if name == "compare" else "models"
        for common, extra in (("", {long.GONE.model, long.CAME.model}), ("1", set())):
            page = view(grown, name, **asked, common=common)
            whole = tables_of(page)[table].whole
            assert whole is not None
            assert {row[0].value for row in whole()} == wanted | extra


def test_a_ratio_of_memory_and_the_peak_that_moved_are_told_apart(grown: DataAccess) -> None:
    page = view(grown, "landing")
    row = cells(tables_of(page)["timm-small"], "variant", "inductor")
    assert (row["memory_ratio"].mark, row["memory_ratio"].detail) == ("worse", "peak +15 %")
    assert row["memory_ratio"].value < 1.0
    assert row["memory_change"].value == pytest.approx(long.GREW, rel=1e-3)
    assert (row["memory_verdict"].value, row["compile_verdict"].value) == ("worse", "")


def test_what_a_cost_was_judged_by_is_told(grown: DataAccess) -> None:
    (note,) = [one.note for one in view(grown, "landing").sections if isinstance(one, Group)][:1]
    assert "▲ or ▼ marks a mean beyond compile" in note
    compared = tables_of(view(grown, "compare"))["groups"]
    assert compared.note == note
    row = cells(compared, "suite", "timm@small")
    assert (row["memory"].mark, row["memory_verdict"].value) == ("worse", "worse")


@pytest.mark.parametrize(
    ("name", "ident", "asked", "table"),
    [
        ("landing", "", {}, "huggingface-small"),
        ("suite", "", {"suite": "huggingface"}, "models"),
        ("case", "", ALBERT, "history"),
        ("case", "", {"suite": "timm", "model": "ghostnet_100"}, "history"),
        ("compare", "", {}, "cases"),
        ("compare", "", {}, "groups"),
        ("runs", "", {}, "runs"),
        ("run", "night05x", {}, "groups"),
        ("failures", "", {}, "failures"),
    ],
)
def test_every_figure_is_a_link(
    source: DataAccess, name: str, ident: str, asked: dict[str, str], table: str
) -> None:
    found = tables_of(view(source, name, ident, **asked))[table]
    figures = [one.key for one in found.columns if one.shown and one.key not in NAMES]
    assert len(figures) > 2
    loose = [
        (key, cell.text)
        for key in figures
        for cell in column(found, key)
        if cell.text and cell.to is None and (key, cell.text) not in NOTHING
    ]
    assert loose == []


def test_the_base_figure_leads_to_the_base_run(source: DataAccess) -> None:
    for name, table in (("suite", "models"), ("compare", "cases"), ("compare", "groups")):
        found = tables_of(view(source, name, suite="huggingface"))[table]
        (place, *_) = [cell.to for cell in column(found, "base_speedup")]
        assert place is not None
        assert dict(place.params)["new"] == "night04x"


def test_bars_are_explained_where_they_are(source: DataAccess) -> None:
    for name, asked in (("landing", {}), ("suite", {"suite": "timm"}), ("case", ALBERT)):
        page = view(source, name, **asked)
        charts = [one for one in charts_of(page).values() if isinstance(one, Chart)]
        barred = {c.name for c in charts for s in c.series for p in s.points if p.low is not None}
        told = {c.name for c in charts if parts.BARS in c.note}
        assert barred == told
        assert {one.rpartition("-")[2] for one in told} == {"speedup"}
        assert not [one for one in walk(page.sections) if "bars" in getattr(one, "note", "")]


def test_a_contract_is_shown_whole(tmp_path: Path) -> None:
    result = synthetic_result.two_faster()
    (first, *rest) = result.arms
    assert first.contract is not None
    contract = replace(
        first.contract,
        parameter_dtypes={"float32": 100_000, "bfloat16": 1_000},
        determinism={"deterministic_algorithms": True, "cudnn.benchmark": False},
        notes=("dropout set to 0",),
    )
    agreed = Agreement("fp64", "", 1e-3, 3.0, 2.5e-7, 1.2e-7, 0.999999, 24, 20)
    arm = replace(first, contract=contract, agreement=agreed)
    path = tmp_path / "one.db"
    with open_store(str(path)) as store:
        store.save(replace(result, id="contracted", arms=(arm, *rest)))
    with reading(path) as store:
        page = view(DataAccess(store), "result", "contracted")
    (facts,) = [
        dict(one.items)
        for one in walk(page.sections)
        if isinstance(one, Facts) and one.name == f"contract-{arm.arm.name}"
    ]
    assert facts["Of dtype"].text == "100,000 float32, 1,000 bfloat16"
    assert facts["Determinism"].text == "deterministic_algorithms on, cudnn.benchmark off"
    assert facts["Notes"].text == "dropout set to 0"
    for word in ("fp64", "tolerance 0.001", "3 times", "error 2.5e-07", "the baseline's 1.2e-07"):
        assert word in facts["Answer"].text


def test_the_api_has_intervals_verdicts_notes_and_words(source: DataAccess) -> None:
    page = page_data(view(source, "compare"))
    row = page["tables"]["groups"]["rows"][0]
    assert row["change_low"] < row["change"] < row["change_high"]
    assert row["base_speedup_low"] < row["base_speedup"] < row["base_speedup_high"]
    assert row["new_speedup_low"] < row["new_speedup"] < row["new_speedup_high"]
    assert row["verdict"] in {one.value for one in Verdict}
    assert " over " in page["words"]["runs"]["Baselines moved by"]
    case = next(one for one in page["tables"]["cases"]["rows"] if one["kind"] == "paired")
    assert case["base_speedup_low"] < case["base_speedup"] < case["base_speedup_high"]
    assert case["new_speedup_low"] < case["new_speedup"] < case["new_speedup_high"]
    (group, *_) = page_data(view(source, "run", "night05x"))["tables"]["groups"]["rows"]
    assert group["speedup_low"] < group["speedup"] < group["speedup_high"]
    landing = page_data(view(source, "landing"))
    assert "±2 %" in next(one["text"] for one in landing["notes"] if one["title"] == "Suites")
    assert landing["charts"]["timm-small-speedup"]["note"].startswith(parts.BARS)
    arms = page_data(view(source, "result", "r05000"))["tables"]["arms"]["rows"]
    assert arms[1]["speedup_low"] < arms[1]["speedup"] < arms[1]["speedup_high"]


def test_reports_that_are_not_drawn_are_told(tmp_path: Path) -> None:
    path = tmp_path / "doctor.db"
    with open_store(str(path)) as store:
        for number in range(201):
            hour, minute = divmod(number, 60)
            created = f"2026-11-01T{hour:02d}:{minute:02d}:00+00:00"
            store.save_doctor(DoctorReport(f"doc{number}", stored.MACHINE, created, ()))
    with reading(path) as store:
        page = view(DataAccess(store), "machine", stored.MACHINE)
    (noise,) = [one for one in page.sections if isinstance(one, Group)]
    assert noise.note == "Only the newest 200 reports are drawn."
    points = charts_of(page)["smallest_detectable"].series[0].points  # type: ignore[union-attr]
    assert len(points) == 200
