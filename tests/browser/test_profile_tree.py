"""Icicle and sunburst: zoom, search, reset, threads, keys, figures, colours."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.browser.conftest import OpenPage
from tests.browser.support import click, colour, crumbs, hover, settle, text
from tests.show.synthetic_profile import (
    HOSTILE_NAME,
    HOSTILE_NAMES,
    counted,
    grown,
    hostile,
    sampled,
    training,
    tree,
)
from torchstone.records import CallTree
from torchstone.stats.drift import share_interval

# Rows of `training`: all, threads, <module>, train, forward and backward, op, kernel.
FORWARD = (0.2, 4)
BACKWARD = (0.55, 4)


def test_a_click_zooms_and_reset_goes_back(open_page: OpenPage) -> None:
    page = open_page([training()])
    assert crumbs(page) == ["eager"]
    before = colour(page, 0.95, 0)
    click(page, *FORWARD)
    assert crumbs(page) == ["eager", "MainThread · critical", "<module>", "train", "forward"]
    assert text(page, "#panel-tree .side h2") == "forward"
    assert colour(page, 0.95, 0) != before  # forward now fills the first row
    # The op beneath is the second row, as wide as its share of what is zoomed to.
    assert hover(page, 0.86, 1).startswith("aten::addmm")
    assert "aten::addmm" not in hover(page, 0.95, 1)
    page.click("#panel-tree .reset")
    settle(page)
    assert crumbs(page) == ["eager"]
    assert colour(page, 0.95, 0) == before
    click(page, *BACKWARD)
    page.keyboard.press("Escape")
    settle(page)
    assert crumbs(page) == ["eager"]


@pytest.mark.slow
def test_fifty_thousand_nodes_can_be_used(open_page: OpenPage) -> None:
    made = grown(50_000)
    assert made.tree is not None
    assert len(made.tree.parents) >= 50_000
    page = open_page([made])
    assert crumbs(page) == [made.label]
    click(page, 0.3, 4)
    zoomed = crumbs(page)
    assert len(zoomed) > 2
    assert hover(page, 0.5, 0).startswith(zoomed[-1])
    page.click("#panel-tree .reset")
    settle(page)
    page.fill("#panel-tree .search", zoomed[-1])
    settle(page)
    assert text(page, "#panel-tree .found")
    page.keyboard.press("Escape")
    settle(page)
    assert crumbs(page) == [made.label]


@pytest.mark.slow
def test_crumbs_and_the_zoomed_box_lead_back(open_page: OpenPage) -> None:
    page = open_page([training()])
    click(page, 0.1, 6)
    assert crumbs(page)[-1] == "gemm_kernel"
    click(page, 0.5, 0)
    assert crumbs(page)[-1] == "aten::addmm"
    page.locator("#panel-tree .crumbs button", has_text="train").click()
    assert crumbs(page)[-1] == "train"


@pytest.mark.slow
def test_pointing_tells_name_place_and_figures(open_page: OpenPage) -> None:
    page = open_page([training()])
    said = hover(page, *FORWARD).splitlines()
    assert said[0] == "forward"
    assert said[1].endswith("torch/nn/modules/linear.py:110")
    assert said[2:] == ["total 4.00 s · 40.0 %", "own 500 ms · 5.00 %", "calls 100"]
    # Beside train nothing was called: the time of <module> itself.
    page.mouse.move(5, 5)
    assert page.locator("#panel-tree .tooltip").is_hidden()


@pytest.mark.slow
def test_shares_of_samples_have_the_interval_that_stats_gives(open_page: OpenPage) -> None:
    page = open_page([sampled()])
    low, high = share_interval(400, 1000)
    total = hover(page, *FORWARD).splitlines()[2]
    assert total == f"total 400 · 40.0 % (95 %: {low * 100:.1f} % – {high * 100:.1f} %)"
    page.select_option("#panel-tree .field:has-text('Thread') select", label="loader")
    settle(page)
    low, high = share_interval(75, 200)
    assert f"(95 %: {low * 100:.1f} % – {high * 100:.1f} %)" in hover(page, 0.6, 2).splitlines()[2]


@pytest.mark.slow
def test_bytes_are_told_as_bytes(open_page: OpenPage) -> None:
    page = open_page([replace(training(), tree=tree("bytes", 2.0**20))])
    assert "total 4.00 MiB · 40.0 %" in hover(page, *FORWARD)


@pytest.mark.slow
def test_search_marks_what_it_finds(open_page: OpenPage) -> None:
    page = open_page([training()])
    plain, other = colour(page, *FORWARD), colour(page, *BACKWARD)
    page.keyboard.press("/")
    page.keyboard.type("forw")
    settle(page)
    assert text(page, "#panel-tree .found") == "1 found · 40.0 %"
    assert colour(page, *FORWARD) == (255, 169, 77)
    assert colour(page, *BACKWARD) != other
    page.keyboard.press("Escape")
    settle(page)
    assert page.input_value("#panel-tree .search") == ""
    assert (colour(page, *FORWARD), colour(page, *BACKWARD)) == (plain, other)


@pytest.mark.slow
def test_a_match_within_a_match_counts_once(open_page: OpenPage) -> None:
    page = open_page([training()])
    page.fill("#panel-tree .search", "/home/ada")
    assert text(page, "#panel-tree .found") == "4 found · 100.0 %"


@pytest.mark.slow
def test_a_thread_by_itself(open_page: OpenPage) -> None:
    page = open_page([training()])
    page.select_option("#panel-tree .field:has-text('Thread') select", label="loader")
    settle(page)
    assert crumbs(page) == ["loader"]
    assert "total 2.00 s · 100.0 %" in hover(page, 0.5, 1)
    assert hover(page, 0.1, 2).startswith("wait")


@pytest.mark.slow
def test_depth_and_cutoff_hide(open_page: OpenPage) -> None:
    page = open_page([training()])
    page.select_option("#panel-tree .field:has-text('Depth') select", "3")
    settle(page)
    assert hover(page, 0.2, 2).startswith("<module>")
    page.mouse.move(5, 5)
    assert colour(page, 0.2, 3) == (255, 255, 255)
    page.select_option("#panel-tree .field:has-text('Depth') select", "all")
    wide = grown(2000)
    page = open_page([wide])
    canvas = "document.querySelector('#panel-tree canvas').toDataURL()"
    page.select_option("#panel-tree .field:has-text('Cutoff') select", "0")
    settle(page)
    everything = page.evaluate(canvas)
    page.select_option("#panel-tree .field:has-text('Cutoff') select", "0.01")
    settle(page)
    assert page.evaluate(canvas) != everything


@pytest.mark.slow
def test_keys_walk(open_page: OpenPage) -> None:
    page = open_page([training()])
    page.focus("#panel-tree canvas")

    def press(*keys: str) -> str:
        for key in keys:
            page.keyboard.press(key)
        settle(page)
        return text(page, "#panel-tree .side h2")

    assert press("ArrowDown") == "eager"
    assert press("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown") == "forward"
    assert press("ArrowRight") == "backward"
    assert press("ArrowRight") == "backward"
    assert press("ArrowLeft") == "forward"
    assert press("ArrowUp") == "train"
    assert press("Enter") == "train"
    assert crumbs(page)[-1] == "train"
    assert text(page, "#panel-tree [aria-live]") == "train, 7.50 s · 75.0 %"
    stack = page.locator("#panel-tree .stack button").all_inner_texts()
    assert stack == ["eager", "MainThread · critical", "<module>", "train"]


@pytest.mark.slow
def test_the_sunburst_zooms_and_its_middle_goes_back(open_page: OpenPage) -> None:
    page = open_page([training()])
    page.click("#panel-tree .switch >> text=Sunburst")
    settle(page)
    box = page.locator("#panel-tree canvas").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    radius = min(box["width"], box["height"]) / 2 - 8
    page.mouse.click(x + radius - 20, y)  # a quarter turn: the kernel's 0–30 %
    settle(page)
    assert crumbs(page)[-1] == "gemm_kernel"
    page.mouse.click(x, y)
    settle(page)
    assert crumbs(page)[-1] == "aten::addmm"
    page.keyboard.press("Escape")
    settle(page)
    assert crumbs(page) == ["eager"]


def test_a_name_is_text_wherever_it_stands(open_page: OpenPage) -> None:
    page = open_page([hostile(), hostile()])
    assert hover(page, 0.3, 1).splitlines()[0] == HOSTILE_NAME
    click(page, 0.02, 3)
    assert text(page, "#panel-tree .side h2") == HOSTILE_NAMES[2]
    for tab in page.locator(".tabs button").all():
        tab.click()
        settle(page)
    assert page.title() == HOSTILE_NAMES[2]
    assert page.evaluate("document.querySelectorAll('img, b:not(.count), iframe').length") == 0
    assert page.evaluate("document.scripts.length") == 2


@pytest.mark.slow
def test_deep_recursion_can_be_drawn_and_walked(open_page: OpenPage) -> None:
    deep = 5000
    stack = CallTree("seconds", tuple(range(-1, deep - 1)), (1,) * deep, (1.0,) * deep, (0,) * deep)
    page = open_page([replace(training(), tree=stack)])
    assert "total 5000 s" in hover(page, 0.5, 1)
    page.click("#tab-functions")
    assert text(page, "#panel-functions .row").startswith("train")


@pytest.mark.slow
def test_dark_and_light(open_page: OpenPage) -> None:
    light, dark = open_page([training()]), open_page([training()], color_scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    assert light.evaluate(paper) == "rgb(255, 255, 255)"
    assert dark.evaluate(paper) == "rgb(20, 23, 28)"
    assert colour(light, 0.9, 6) == (255, 255, 255)
    assert colour(dark, 0.9, 6) == (20, 23, 28)
    light.emulate_media(color_scheme="dark")
    settle(light)
    assert colour(light, *FORWARD) == colour(dark, *FORWARD)


@pytest.mark.slow
def test_it_is_said_that_paths_are_guessed(open_page: OpenPage) -> None:
    assert "call paths estimated" in text(open_page([counted()]), "header")
    assert "estimated" not in text(open_page([training()]), "header")


@pytest.mark.slow
def test_without_scripts_there_is_a_table(open_page: OpenPage) -> None:
    page = open_page([training()], java_script_enabled=False)
    body = text(page, "body")
    assert "gemm_kernel" in body
    assert "3.00 s" in body
    assert "torch.profiler" in body
    assert "Reading the profile" not in body


@pytest.mark.slow
def test_compressed_data_are_the_same(open_page: OpenPage) -> None:
    made = grown(20_000)
    assert made.tree is not None
    page = open_page([made])
    assert page.evaluate("document.getElementById('profile-data').textContent.includes('gzip')")
    total = f"{sum(made.tree.own):.2f} s"
    assert total in hover(page, 0.5, 1)


@pytest.mark.slow
def test_focus_can_be_seen(open_page: OpenPage) -> None:
    page = open_page([training()])
    page.keyboard.press("Tab")
    style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert style == "solid"
