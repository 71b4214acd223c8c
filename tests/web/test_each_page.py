"""Levels, counts and words on pages that are looked at less often than the first one."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.show.synthetic_run import key, ok
from tests.track.test_regressions import one_change
from tests.web import stored
from tests.web.conftest import client_of
from tests.web.test_browser import PHONE
from tests.web.test_scalings import FOUND
from torchstone import web
from torchstone.records import OURS, SeriesKey, Verdict
from torchstone.show import charts
from torchstone.show.page import Cell, Chart, Column, Point, Series, Table
from torchstone.store import open_store
from torchstone.web.query import ServerLinks
from torchstone.web.render import body, single
from torchstone.web.tables import PAGE_ROWS
from torchstone.web.views import machines, profiles, regressions

DESK = {"width": 1280, "height": 800}
LINES = """[...document.querySelectorAll(".block td.num small")].filter((one) => {
  if (!one.offsetParent) return false;
  const range = document.createRange();
  range.selectNodeContents(one);
  const tops = [...range.getClientRects()].map((box) => Math.round(box.top));
  return new Set(tops).size > 1;
}).map((one) => one.textContent)"""


def test_counts_that_never_change_are_told_beside_the_runs_that_failed() -> None:
    points = tuple(Point(float(day), 0.0) for day in range(3))
    failed = (Point(3.0, None, failed=True), Point(4.0, None, failed=True))
    chart = Chart("breaks", "Graph breaks", "count", (Series("breaks", points + failed),))
    assert single(chart) == [("breaks", "0 in each of 3 runs; 2 failed")]


def test_the_page_of_a_run_marks_levels_and_prints_verdicts(database: Path) -> None:
    with client_of(database) as client:
        page = client.get("/runs/night04x").text
        rows = client.get("/api/v1/runs/night04x").json()["tables"]["groups"]["rows"]
    groups = page.partition('id="table-groups"')[2].partition("</table>")[0]
    lost = [row for row in rows if row["passed"] < row["counted"]]
    assert lost
    assert len(re.findall(r'<td class="num m-fail"', groups)) == len(lost)
    assert all("faster" in row["verdicts"] or "slower" in row["verdicts"] for row in rows)


def test_two_runs_are_headed_by_what_changed(database: Path) -> None:
    with client_of(database) as client:
        page = client.get("/compare?base=night02x&new=night04x").text
        two = client.get("/compare?variant=inductor&base_variant=aot_eager").text
    head = page.partition('id="headline-changes"')[2].partition("</section>")[0]
    assert re.search(r'class="m-fail"><span class="sign" aria-hidden="true">✗', head)
    assert "newly failing" in head
    assert page.index('id="headline-changes"') < page.index("<table")
    assert "headline-changes" not in two, "its links would lead to other cases"
    failing = re.findall(r'<td class="num m-fail"[^>]*>.*?(\d+)/(\d+)', page)
    assert failing, "a pass rate below all is marked"
    assert all(int(passed) < int(counted) for passed, counted in failing)


def test_what_is_left_out_is_told(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    every = client.get("/machines/m-0123").text
    assert "The newest" not in every
    monkeypatch.setattr(machines, "NEWEST_RUNS", 2)
    assert "The newest 2 of 6 runs." in client.get("/machines/m-0123?range=30").text
    monkeypatch.setattr(profiles, "TOP", 3)
    page = client.get("/profiles/prof1?range=30").text
    assert "The first 3 only; the views have all of them." in page


def test_a_long_list_of_scalings_has_further_pages(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "t.db")) as store:
        for number in range(PAGE_ROWS + 3):
            store.save_scaling(replace(FOUND, id=f"1scaled{number:03d}"))
    with client_of(tmp_path / "t.db") as client:
        assert "3 further rows" in client.get("/scalings").text
        assert "1scaled000" in client.get("/scalings?page=2").text


def test_facts_of_a_profile_are_written_as_elsewhere(client: TestClient) -> None:
    page = client.get("/profiles/prof1").text
    assert "<dt>Wall time</dt>" in page
    assert "2026-11-15 09:00" in page
    assert "T09:00:00Z" not in page


def test_figures_and_intervals_stay_on_their_lines(new_page: Any, address: str) -> None:
    page = new_page(address, viewport=DESK)
    for path in ("/", "/suite?suite=huggingface", "/compare?base=night02x", "/runs/night04x"):
        page.goto(address + path)
        assert page.evaluate(LINES) == [], path
    page.set_viewport_size({"width": 1210, "height": 800})
    long = "document.querySelector('.block tbody td.txt').textContent = 'x'.repeat(90)"
    page.evaluate(f"{long}; dispatchEvent(new Event('resize'))")
    assert page.locator(".scroll.tight").count() == 1, "a table without room wraps again"


def test_on_a_phone_the_name_of_this_page_is_seen(new_page: Any, address: str) -> None:
    page = new_page(address, viewport=PHONE)
    for path in ("/", "/machines", "/monitors"):
        page.goto(address + path)
        page.wait_for_function("document.readyState === 'complete'")
        box = page.locator(".bar nav [aria-current]").bounding_box()
        assert box["x"] >= 0, path
        assert box["x"] + box["width"] <= PHONE["width"], path


def test_names_of_variants_end_a_line_at_their_plus(tmp_path: Path) -> None:
    table = Table("t", "", (Column("v", "Variant"),), ((Cell("", "inductor+dynamic"),),))
    assert "inductor+<wbr>dynamic" in body(table, ServerLinks())


def test_no_line_joins_two_suites(database: Path) -> None:
    with client_of(database) as client:
        charts = client.get("/api/v1/suite?suite=all").json()["charts"]
        one = client.get("/api/v1/suite?suite=timm").json()["charts"]
    assert "speedup" in one
    assert {"huggingface-small-speedup", "timm-small-speedup"} <= set(charts)
    for name, chart in charts.items():
        for line in chart["series"]:
            times = [point["time_s"] for point in line["points"]]
            assert len(times) == len(set(times)), f"{name}: two figures of one run on a line"


@pytest.mark.parametrize(
    ("metric", "moved", "worse", "words"),
    [
        ("speedup", "compiled", True, "compiled got slower"),
        ("speedup", "eager", True, "eager got faster"),
        ("speedup", "compiled", False, "compiled got faster"),
        ("base_ns", "eager", True, "eager got slower"),
        ("speedup", "both", True, "both sides"),
        ("compile_cold_ns", "", True, ""),
    ],
)
def test_a_change_says_its_cause_in_words(metric: str, moved: str, worse: bool, words: str) -> None:
    from torchstone.show.regressions import cause_words

    key = SeriesKey(OURS, "timm", "resnet18", metric=metric)
    made = one_change("c1", 100.0, key=key, moved=moved, worse=worse)
    assert cause_words(made) == words
    table = regressions._table("open", [made])
    (row,) = table.rows
    told = dict(zip((column.title for column in table.columns), row, strict=True))
    assert told["Cause"].text == words
    assert (told["Change"].text, told["Change"].detail) == ("+50 %", "+40 % to +60 %")
    facts = dict(regressions._facts(made).items)
    assert "Could be any of" not in facts, "it is one run"
    early = replace(made, earliest=made.last_good)
    assert dict(regressions._facts(early).items)["Could be any of"].text == "c99..c100"
    shown = [column.title for column in table.columns if column.shown]
    assert "Machine" not in shown, "it says nothing where no machine changed"


def test_names_of_many_lines_do_not_squash_a_chart() -> None:
    points = (charts.Point(1e9, 1.0), charts.Point(1e9 + 86_400, 1.1))
    heights = []
    for number in (2, 8):
        lines = [
            charts.Series(f"inference inductor+{place:09d}", points) for place in range(number)
        ]
        drawn = charts.line_chart(lines, title="", unit="ratio", size=charts.SMALL_SIZE)
        found = re.search(r"data-plot='([^']+)'", drawn)
        assert found
        _, top, _, floor = map(float, found[1].split())
        heights.append(floor - top)
    assert heights[1] > 0.7 * heights[0]


def test_the_page_of_a_case_has_its_verdict_and_marks_levels(tmp_path: Path) -> None:
    slow = key("dcgan", suite="timm")
    with open_store(str(tmp_path / "t.db")) as store:
        run = stored.make_run(0, [slow])
        store.begin_run(run)
        more = {"verdict": Verdict.SLOWER, "new_tensor_bytes": 420 * 2**20, "result_id": ""}
        store.add_cases(run.id, None, [(0, ok(slow, 0.7, 0.01, **more))])
    with client_of(tmp_path / "t.db") as client:
        page = client.get("/case?suite=timm&model=dcgan").text
    facts = page.partition('id="facts-case"')[2].partition("</section>")[0]
    for name in ("Outcome", "Speed-up", "Memory, × eager"):
        assert re.search(rf'<dt>{name}</dt><dd class="m-worse"', facts), name
    assert "slower" in facts


def test_the_api_can_be_read_on_a_phone(new_page: Any, address: str) -> None:
    page = new_page(address, viewport=PHONE)
    page.goto(f"{address}/docs")
    assert page.evaluate("document.documentElement.scrollHeight") < 12_000
    narrow = "[...document.querySelectorAll('dd')].filter((one) => one.offsetWidth < 160).length"
    assert page.evaluate(narrow) == 0


def test_a_chart_by_itself_is_not_blown_up(new_page: Any, address: str) -> None:
    page = new_page(address, viewport={"width": 1280, "height": 800})
    page.goto(f"{address}/suite?suite=timm")
    page.evaluate("document.querySelector('#content').append(document.querySelector('.figure'))")
    wide = "document.querySelector('#content > .figure svg').getBoundingClientRect().width"
    assert 640 <= page.evaluate(wide) <= 960


def test_regressions_are_no_wider_than_a_phone(new_page: Any, tmp_path: Path) -> None:
    made = one_change("a_benchmark_of_numpy.with_a_long_name", 100.0)
    table = regressions._table("open", [made])
    page = new_page("http://127.0.0.1", viewport=PHONE)
    style = (Path(web.__file__).parent / "assets" / "style.css").read_text()
    rows = body(table, ServerLinks())
    page.set_content(
        f'<style>{style}</style><body data-page="regressions"><div class="block"><div class='
        f'"scroll"><table class="cards"><thead></thead><tbody>{rows}</tbody></table></div></div>'
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
