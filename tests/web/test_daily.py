"""What somebody who opens the dashboard every morning does, in a real browser: at a desk and on a
phone, light and dark, by keys alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.web import stored
from tests.web.conftest import serving
from tests.web.test_browser import PAGES, PHONE, STOPS, expect, rows
from torchstone.store import open_store

EVERY = (*PAGES, "/regressions", "/tunings", "/scalings", "/imported", "/monitors", "/docs")
DESK = {"width": 1280, "height": 800}
SHOWN = """(selector) => [...document.querySelectorAll(selector)].map((one) => {
  const box = one.getBoundingClientRect();
  const seen = box.bottom <= innerHeight && box.right <= innerWidth;
  return [one.innerText, getComputedStyle(one).color, seen];
})"""
WIDER = """[...document.querySelectorAll(".block > .scroll")].filter(
  (one) => one.offsetParent && one.scrollWidth > one.clientWidth + 1
).map((one) => one.parentElement.id)"""
SMALL = """[...document.querySelectorAll("a[href], button, select, summary")].filter((one) => {
  if (!one.offsetParent || one.closest("svg, .skip, .unseen, .single")) return false;
  const target = one.closest(".cards td, .cards th, label") ?? one;
  return target.getBoundingClientRect().height < 39.5;
}).map((one) => one.outerHTML.slice(0, 90))"""
SCHEMES = pytest.mark.parametrize("scheme", ["light", "dark"])


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a database with one run."""
    path = tmp_path_factory.mktemp("first") / "first.db"
    with open_store(str(path)) as store:
        stored.add_night(store, 0, stored.keys(("timm",)))
    with serving(path) as made:
        yield made


@SCHEMES
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_five_seconds_tell_what_is_bad_and_where(
    new_page: Any, address: str, scheme: str, size: dict[str, int]
) -> None:
    page = new_page(address, viewport=size, color_scheme=scheme)
    page.goto(address)
    plain = page.evaluate("getComputedStyle(document.body).color")
    since = page.evaluate(SHOWN, "#headline-changes li")
    told = {" ".join(text.split()): (colour, seen) for text, colour, seen in since}
    slower = next(text for text in told if "slower" in text and "same" not in text)
    assert slower.startswith("▼")
    assert "huggingface@small" in slower  # in which suite
    assert told[slower][0] != plain
    for words in ("newly failing", "slower", "need more memory"):
        assert any(words in text and seen for text, (_, seen) in told.items()), (words, told)
    assert any("0 need more memory" in text and text.startswith("✓") for text in told)


def test_what_one_came_for_fits_the_screen(new_page: Any, address: str) -> None:
    page = new_page(address, viewport=DESK)
    inside = """[...document.querySelectorAll(".block > .scroll")].map(
      (one) => one.scrollHeight - one.clientHeight)"""
    for path in EVERY:
        page.goto(address + path)
        assert page.evaluate(WIDER) == [], path
        assert max(page.evaluate(inside), default=0) <= 1, f"{path}: only the page scrolls"
        assert max(page.evaluate(STOPS), default=0) <= 60, path


def test_on_a_phone_nothing_lies_aside_and_fingers_find_it(new_page: Any, address: str) -> None:
    page = new_page(address, viewport=PHONE)
    newest = """[...document.querySelectorAll(".chart-frame")].map((frame) => {
      const right = (one) => one.getBoundingClientRect().right;
      return Math.abs(right(frame.firstElementChild) - right(frame));
    })"""
    for path in EVERY:
        page.goto(address + path)
        assert page.evaluate(WIDER) == [], path
        assert page.evaluate(SMALL) == [], path
        assert max(page.evaluate(newest), default=0) <= 2, path


def test_on_a_phone_figures_have_their_names(new_page: Any, address: str) -> None:
    page = new_page(address, viewport=PHONE)
    page.goto(address)
    card = page.locator("#table-huggingface-small tbody tr").first
    labels = card.evaluate("(row) => [...row.cells].map((cell) => cell.dataset.label)")
    assert {"Passed", "Speed-up (95 %)", "Change"} <= set(labels)
    for place in (1, 3, 5):  # the three that matter
        expect(card.locator("> *").nth(place)).to_be_visible()


def test_every_suite_has_its_trends_with_dates_and_which_way_is_good(
    new_page: Any, address: str
) -> None:
    page = new_page(address)
    page.goto(f"{address}/?range=30")
    for suite in ("huggingface-small", "timm-small"):
        names = ("speedup", "pass_rate", "compile_time", "memory_ratio", "time", "memory")
        for name in names:
            figure = page.locator(f"#chart-{suite}-{name}")
            expect(figure.locator("figcaption")).to_contain_text("is better")
        axis = page.locator(f"#chart-{suite}-speedup .chart-frame-lines").text_content()
        assert "Nov" in axis or "Oct" in axis, axis


def test_one_point_is_a_figure_and_not_a_chart(new_page: Any, first_run: str) -> None:
    page = new_page(first_run)
    page.goto(first_run)
    assert page.locator("svg.chart-line").count() == 0
    rate = page.locator("#chart-timm-small-pass_rate .single dd").first.inner_text()
    assert rate.endswith(" %")
    expect(page.locator("#headline-levels")).to_be_visible()


def test_a_zoom_keeps_the_place_and_can_be_left(new_page: Any, address: str) -> None:
    page = new_page(address, viewport=DESK)
    page.goto(f"{address}/?range=30")
    chart = page.locator("#chart-timm-small-speedup svg")
    chart.scroll_into_view_if_needed()
    before = page.evaluate("scrollY")
    assert before > 300
    page.evaluate("window.same = true")
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.5 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 0.5 * box["height"], steps=4)
    page.mouse.up()
    page.wait_for_url("**from=**")
    expect(page.locator(".chart-reset").first).to_be_visible()
    assert page.evaluate("[window.same, scrollY]") == [True, before]
    page.keyboard.press("Escape")
    page.wait_for_url(f"{address}/?range=30")
    assert page.evaluate("window.same")


def test_headings_are_one_stop_and_sorting_keeps_the_place(new_page: Any, address: str) -> None:
    page = new_page(address, viewport=DESK)
    page.goto(f"{address}/suite?suite=huggingface")
    head = page.locator("#table-models thead button")
    stops = head.evaluate_all("(all) => all.filter((one) => one.tabIndex === 0).length")
    assert stops == 1
    head.first.focus()
    before = page.evaluate("scrollY")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    key = page.evaluate("document.activeElement.dataset.key")
    assert key not in (None, "model")
    page.keyboard.press("Enter")
    expect(page.locator("#table-models th[aria-sort]")).to_have_count(1)
    assert page.evaluate("[document.activeElement.dataset.key, scrollY]") == [key, before]
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.closest('tbody') !== null")


def test_runs_are_searched(new_page: Any, address: str) -> None:
    page = new_page(address)
    page.goto(f"{address}/runs")
    every = page.locator("#table-runs tbody tr").count()
    page.locator("input[name=filter]").fill("night03x")
    page.keyboard.press("Enter")
    page.wait_for_url("**filter=night03x**")
    expect(page.locator("#table-runs tbody tr:visible")).to_have_count(1)
    assert every > 1
    assert len(rows(page, "runs")) == 1


def test_a_profile_knows_its_theme_its_result_and_the_way_back(new_page: Any, address: str) -> None:
    page = new_page(address, color_scheme="light")
    page.goto(address)
    page.locator("#theme").click()
    page.goto(f"{address}/profiles/prof1/view")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(paper) == "rgb(20, 23, 28)"
    for name in ("Overview", "Failures", "Profiles"):
        expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
    page.goto(address)
    for wanted in ("light", None):  # by name, and as the system has it
        page.locator("#theme").click()
        assert page.evaluate("document.documentElement.dataset.theme ?? null") == wanted


@SCHEMES
def test_good_and_bad_look_the_same_in_charts_and_tables(
    new_page: Any, address: str, scheme: str
) -> None:
    page = new_page(address, color_scheme=scheme)
    page.goto(f"{address}/compare")
    table = page.locator("td.m-worse").first.evaluate("(one) => getComputedStyle(one).color")
    drawn = page.locator("#chart-changes .f-bad").first
    assert drawn.evaluate("(one) => getComputedStyle(one).fill") == table
