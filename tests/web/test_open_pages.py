"""Pages that are open while something is stored: none of them ever mixes two states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web import stored
from tests.web.conftest import serving
from tests.web.test_browser import expect
from torchstone.store import open_store

CASES = stored.keys(["timm"])
ABOUT = "#about .lead"
CASE = "/case?suite=timm&model=resnet18&variant=inductor"
LATER_MS = 7000
"""More than the longest pause between two looks of a page."""
Store = Callable[[int], None]


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[tuple[str, Store]]:
    """A server's address, and how another night is stored behind its back."""
    path = tmp_path / "growing.db"

    def add(night: int) -> None:
        with open_store(str(path)) as store:
            stored.add_night(store, night, CASES)

    add(0)
    add(1)
    with serving(path) as address:
        yield address, add


def opened(new_page: Any, address: str, place: str) -> Any:
    page = new_page(address)
    page.clock.install()
    page.goto(address + place)
    page.evaluate("window.same = true")
    return page


def runs_told(page: Any) -> set[str]:
    """The runs that the page speaks of as the new one, wherever it does."""
    chosen = page.locator("select[name=new] option:checked").inner_text()
    parts = [chosen, page.locator("#about").inner_text().split(";")[0].split("against")[0]]
    parts += page.locator("#facts-runs dd:nth-child(2), #facts-case dd").all_inner_texts()
    return {
        f"nightly-{night}" for night in range(9) for part in parts if f"nightly-{night}" in part
    }


@pytest.mark.parametrize("place", ["/suite?suite=timm", "/failures", CASE])
def test_where_not_all_is_live_the_newer_page_is_offered(
    new_page: Any, growing: tuple[str, Store], place: str
) -> None:
    address, add = growing
    page = opened(new_page, address, place)
    assert runs_told(page) == {"nightly-1"}
    before = page.locator("#content").inner_text()
    add(2)
    page.clock.fast_forward(LATER_MS)
    expect(page.locator("#newer")).to_be_visible()
    assert runs_told(page) == {"nightly-1"}
    assert page.locator("#content").inner_text() == before
    assert page.evaluate("window.same") is True
    page.get_by_role("link", name="Show it").click()
    page.wait_for_function("window.same === undefined")
    assert runs_told(page) == {"nightly-2"}
    expect(page.locator("#newer")).to_be_hidden()


def test_a_page_about_two_given_runs_only_gets_further_ones_to_choose_from(
    new_page: Any, growing: tuple[str, Store]
) -> None:
    address, add = growing
    page = opened(new_page, address, "/compare?base=night00x&new=night01x")
    options = page.locator("select[name=new] option")
    assert options.count() == 2
    add(2)
    page.clock.fast_forward(LATER_MS)
    expect(options).to_have_count(3)
    expect(page.locator("#newer")).to_be_hidden()
    assert page.locator("select[name=new]").input_value() == "night01x"


def test_a_table_that_was_sorted_and_filtered_here_is_not_taken_for_another(
    new_page: Any, growing: tuple[str, Store]
) -> None:
    address, add = growing
    page = opened(new_page, address, "/compare?base=night00x&new=night01x")
    page.get_by_role("button", name="Model").click()
    page.locator("input[name=filter]").fill("ghost")
    page.locator("h1").click()
    add(2)
    page.clock.fast_forward(LATER_MS)
    page.wait_for_timeout(500)
    expect(page.locator("#newer")).to_be_hidden()
    assert page.locator("input[name=filter]").input_value() == "ghost"


def test_the_overview_changes_as_a_whole_and_its_charts_answer(
    new_page: Any, growing: tuple[str, Store]
) -> None:
    address, add = growing
    page = opened(new_page, address, "/")
    trends = page.locator("#content .note", has_text="runs.")
    expect(trends).to_contain_text("2 runs")
    page.locator("select[name=mode]").focus()
    add(2)
    page.clock.fast_forward(LATER_MS)
    expect(page.locator("#newer")).to_be_visible()  # a reader is at the droplists
    assert runs_told(page) == {"nightly-1"}
    expect(trends).to_contain_text("2 runs")
    page.locator("select[name=mode]").blur()
    page.clock.fast_forward(LATER_MS)
    expect(trends).to_contain_text("3 runs")
    expect(page.locator("#newer")).to_be_hidden()
    assert runs_told(page) == {"nightly-2"}
    assert page.locator("#chart-timm-small-speedup svg.chart-live").count() == 1
    assert page.get_by_role("button", name="Show").evaluate("one => one.className") == "unseen"
    assert page.evaluate("window.same") is True


def test_the_first_run_of_all_appears(new_page: Any, tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    with open_store(str(path)):
        pass
    with serving(path) as address:
        page = opened(new_page, address, "/")
        expect(page.locator("#content")).to_contain_text("No run is stored yet")
        with open_store(str(path)) as store:
            stored.add_night(store, 0, CASES)
        page.clock.fast_forward(LATER_MS)
        expect(page.locator(ABOUT)).to_contain_text("nightly-0")
        assert page.locator("select[name=mode]").count() == 1
        assert page.locator("#table-timm-small tbody tr").count() == 4


def test_a_table_is_copied_without_its_signs(new_page: Any, address: str) -> None:
    page = new_page(address)
    page.goto(f"{address}/suite?suite=huggingface&variant=inductor")
    table = "#table-models tbody"
    assert page.locator(f"{table} .m-worse .sign").count() > 0
    page.evaluate(f"getSelection().selectAllChildren(document.querySelector('{table}'))")
    copied = page.evaluate("getSelection().toString()")
    assert stored.SLOWED in copied
    assert [sign for sign in ("▲", "▼", "✓", "worse", "passing") if sign in copied] == []
