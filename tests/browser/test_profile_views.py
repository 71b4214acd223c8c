"""The other views: functions, timeline, lines and bytecode, memory, comparison, about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.browser.conftest import OpenPage
from tests.browser.support import box, click, colour, hover, rows, settle, text
from tests.show.synthetic_profile import (
    counted,
    full,
    grown,
    memory,
    sampled,
    spans,
    timed,
    training,
    tree,
)
from torchstone.profile.trees import functions
from torchstone.records import (
    Calls,
    CallTree,
    Counter,
    Frame,
    FunctionCalls,
    LineTable,
    Profile,
    Sampling,
    Spans,
)

pytestmark = pytest.mark.slow

SELECT_AFTER = "#panel-diff .field:has-text('After') select"


def opened(open_page: OpenPage, tab: str, *profiles: Profile, **settings: Any) -> Any:
    page = open_page(list(profiles), **settings)
    page.click(f"#tab-{tab}")
    settle(page)
    return page


def choose(page: Any, name: str) -> None:
    """Click the row of a function."""
    page.locator("#panel-functions .row > div:first-child").get_by_text(name, exact=True).click()
    settle(page)


def test_the_table_has_the_exact_figures(open_page: OpenPage) -> None:
    page = opened(open_page, "functions", counted())
    assert rows(page) == ["forward", "backward", "<module>", "train"]
    heads = page.locator("#panel-functions .thead button").all_inner_texts()
    cells = page.locator("#panel-functions .row").first.locator("> div").all_inner_texts()
    shown = dict(zip(heads, cells, strict=True))
    assert shown["calls"] == "140"
    assert shown["primitive"] == "100"
    assert shown["own"] == "4.00 s"
    assert shown["own / call"] == "28.6 ms"
    assert shown["total / call"] == "40.0 ms"


@pytest.mark.parametrize(
    ("column", "first", "again"),
    [
        ("name", "<module>", "train"),
        ("calls", "forward", "<module>"),
        ("total", "<module>", "backward"),
        ("own-call", "<module>", "forward"),
    ],
)
def test_every_column_sorts_both_ways(
    open_page: OpenPage, column: str, first: str, again: str
) -> None:
    page = opened(open_page, "functions", counted())
    head = f"#panel-functions [data-key='{column}']"
    page.click(f"{head} button")
    settle(page)
    assert rows(page)[0] == first
    page.click(f"{head} button")
    settle(page)
    assert rows(page)[0] == again
    assert page.get_attribute(head, "aria-sort") in ("ascending", "descending")
    assert page.locator("#panel-functions [aria-sort='none']").count() == 9


def test_callers_and_callees(open_page: OpenPage) -> None:
    page = opened(open_page, "functions", counted())
    choose(page, "train")
    related = page.locator("#panel-functions .related")
    assert related.nth(0).inner_text().splitlines() == ["<module>", "1 call · 7.50 s"]
    assert related.nth(1).inner_text().splitlines()[::2] == ["forward", "backward"]
    related.nth(1).locator("button").first.click()
    assert text(page, "#panel-functions .side h2") == "forward"
    assert "100 calls · 4.00 s" in related.nth(0).inner_text()
    page.click("text=Show in the call tree")
    assert text(page, "#panel-tree .side h2") == "forward"


def test_callers_from_the_tree_and_the_search(open_page: OpenPage) -> None:
    page = opened(open_page, "functions", training())
    page.keyboard.press("/")
    page.keyboard.type("LOADER.py")
    settle(page)
    assert rows(page) == ["decode", "load_batch"]
    assert text(page, "#panel-functions .found") == "2 of 9"
    page.keyboard.press("Escape")
    settle(page)
    assert len(rows(page)) == 9
    choose(page, "forward")
    related = page.locator("#panel-functions .related")
    assert related.nth(0).inner_text().splitlines() == ["train", "100 calls · 4.00 s"]
    assert related.nth(1).inner_text().splitlines() == ["aten::addmm", "100 calls · 3.50 s"]


def chain(label: str, frames: tuple[Frame, ...], *called: int) -> Profile:
    """Frames that call each other in this order, each for a second."""
    depth = len(called)
    above, own = tuple(range(-1, depth - 1)), (1.0,) * depth
    path = CallTree("seconds", above, called, own, (0,) * depth, (1,) * depth)
    return replace(training(label), frames=frames, threads=(), tree=path)


def test_a_recursion_is_its_own_caller_once(open_page: OpenPage) -> None:
    profile = chain("deep", (Frame("rec", "a.py", 1), Frame("leaf", "a.py", 9)), 0, 0, 0, 0, 1)
    page = opened(open_page, "functions", profile)
    assert profile.tree is not None
    of = {entry.of.frame: entry for entry in functions(profile.tree)}
    assert [(calls.frame, calls.total_s) for calls in of[0].callers] == [(0, 4.0)]
    choose(page, "rec")
    related = page.locator("#panel-functions .related")
    assert related.nth(0).inner_text().splitlines() == ["rec", "3 calls · 4.00 s"]
    assert related.nth(1).inner_text().splitlines() == [
        "rec", "3 calls · 4.00 s", "leaf", "1 call · 1.00 s",
    ]  # fmt: skip


def test_functions_of_one_name_count_once_where_they_call_each_other(open_page: OpenPage) -> None:
    frames = tuple(Frame("forward", "model.py", line) for line in (10, 20, 30))
    page = opened(open_page, "diff", chain("old", frames, 0, 1, 2), chain("new", frames, 0))
    page.click("#panel-diff .switch >> text=Functions")
    settle(page)
    assert rows(page, "diff") == ["forward"]
    assert rows(page, "diff", 1) == ["100.0 %"]
    assert rows(page, "diff", 6) == ["0.00 points"]
    page.click("#panel-diff .switch >> text=Absolute")
    settle(page)
    assert rows(page, "diff", 6) == ["−2.00 s"]


def test_only_rows_on_screen_exist(open_page: OpenPage) -> None:
    page = opened(open_page, "functions", grown(20_000))
    assert text(page, "#panel-functions .found") == "1,600 functions"
    assert page.locator("#panel-functions .row").count() < 60
    page.click("#panel-functions .row >> nth=3")
    page.focus("#panel-functions .table")
    page.keyboard.press("End")
    settle(page)
    assert page.locator("#panel-functions .row").count() < 60
    last = page.locator("#panel-functions .row[aria-selected='true']")
    assert last.get_attribute("aria-rowindex") == "1601"


def test_sampled_functions_tell_their_interval(open_page: OpenPage) -> None:
    page = opened(open_page, "functions", sampled())
    choose(page, "backward")
    assert "own share, 95 %: 27.2 % – 32.9 %" in text(page, "#panel-functions .side")


@pytest.mark.parametrize("unit", ["samples", "weight"])
def test_weights_of_which_nobody_knows_the_looks_have_no_interval(
    open_page: OpenPage, unit: str
) -> None:
    unknown = replace(sampled(), tree=replace(tree(unit, 100.0), calls=()), sampling=None)
    page = opened(open_page, "functions", unknown)
    choose(page, "backward")
    assert "95 %" not in text(page, "#panel-functions .side")
    page.click("#tab-tree")
    settle(page)
    assert "95 %" not in hover(page, 0.1, 2)


ROW, HEAD, AXIS = 18, 22, 30


def at_time(page: Any, share: float, depth: int) -> tuple[float, float]:
    found = box(page, "time")
    return found["x"] + share * found["width"], found["y"] + AXIS + HEAD + (depth + 0.5) * ROW


def test_a_span_tells_when_and_how_long(open_page: OpenPage) -> None:
    second = 1_000_000_000
    made = Spans(
        (1, 2, 3, 6),
        (0, 0, 0, 1),
        (0, second, second, 0),
        (10 * second, 4 * second, second, second),
    )
    page = opened(open_page, "time", replace(training(), spans=made, tree=None))
    page.mouse.click(*at_time(page, 0.3, 1))
    side = text(page, "#panel-time .side")
    assert "forward" in side
    assert "4.00 s · 40.0 %" in side  # all of it
    assert "3.00 s · 30.0 %" in side  # without the op
    assert page.locator("#panel-time .stack button").all_inner_texts() == ["train", "forward"]
    page.mouse.dblclick(*at_time(page, 0.3, 1))
    settle(page)
    page.mouse.move(*at_time(page, 0.03, 2))
    settle(page)
    assert text(page, "#panel-time .tooltip").startswith("aten::addmm")
    page.keyboard.press("Escape")
    settle(page)
    page.mouse.move(*at_time(page, 0.7, 1))
    settle(page)
    assert page.locator("#panel-time .tooltip").is_hidden()


def test_times_beyond_32_bits_survive(open_page: OpenPage) -> None:
    hour = 3_600_000_000_000
    made = Spans((1, 2), (0, 0), (0, 2 * hour), (3 * hour, hour))
    page = opened(open_page, "time", replace(training(), spans=made, tree=None))
    page.mouse.click(*at_time(page, 0.9, 1))
    assert "7200 s" in text(page, "#panel-time .side")


def test_wheel_and_drag_move_through_time(open_page: OpenPage) -> None:
    page = opened(open_page, "time", timed(4000))
    seen = "document.querySelector('#panel-time canvas').toDataURL()"
    whole = page.evaluate(seen)
    page.mouse.move(*at_time(page, 0.5, 0))
    for _ in range(10):
        page.mouse.wheel(0, -300)
    settle(page)
    near = page.evaluate(seen)
    assert near != whole
    page.mouse.move(*at_time(page, 0.5, 12))
    page.mouse.down()
    page.mouse.move(*at_time(page, 0.3, 12), steps=4)
    page.mouse.up()
    settle(page)
    moved = page.evaluate(seen)
    assert moved not in (near, whole)
    page.click("#panel-time .reset")
    page.mouse.move(5, 5)
    settle(page)
    assert page.evaluate(seen) == whole


def test_threads_and_search_over_time(open_page: OpenPage) -> None:
    page = opened(open_page, "time", timed(4000))
    page.fill("#panel-time .search", "decode")
    settle(page)
    wanted = sum(1 for frame in spans(4000).frames if frame == 7)
    assert text(page, "#panel-time .found") == f"{wanted:,} spans"
    page.fill("#panel-time .search", "")
    page.select_option("#panel-time .field:has-text('Thread') select", label="loader")
    settle(page)
    page.mouse.click(*at_time(page, 0.5, 0))
    assert text(page, "#panel-time .side h2") == "load_batch"


def test_spans_give_a_tree(open_page: OpenPage) -> None:
    page = open_page([timed(400)])
    assert hover(page, 0.7, 2).startswith("train")
    page.click("#tab-time")
    page.focus("#panel-time canvas")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert text(page, "#panel-time .side h2") == "forward"
    page.keyboard.press("ArrowRight")
    assert text(page, "#panel-time .side h2") == "backward"


def test_lines_stand_beside_their_bytecode(open_page: OpenPage) -> None:
    page = opened(open_page, "lines", full())
    table = page.locator("#panel-lines .table").first
    row = table.locator(".row").nth(6).locator("> div").all_inner_texts()
    assert row == [
        "7", "100", "4.00 s", "40.0 ms", "50.0 %", "420 MiB", "+120 MiB",
        "        loss = torch.nn.functional.cross_entropy(model(x), y)",
    ]  # fmt: skip
    table.locator(".row").nth(6).click()
    settle(page)
    marked = page.locator("#panel-lines .panel .row.marked > div:nth-child(3)").all_inner_texts()
    assert marked == ["LOAD_GLOBAL", "CALL"]
    assert "LOAD_GLOBAL_MODULE" in text(page, "#panel-lines .panel")
    page.click("#panel-lines .panel .row:has-text('zero_grad')")
    settle(page)
    assert table.locator(".row.marked > div").first.inner_text() == "6"
    page.click("#panel-lines [data-key='time'] button")
    settle(page)
    assert table.locator(".row").first.locator("> div").first.inner_text() == "7"


def test_lines_begin_where_most_was_taken(open_page: OpenPage) -> None:
    source = tuple(f"line_{number}()" for number in range(1, 401))
    table = LineTable("/home/ada/long.py", (3, 250), (1, 9), (0.1, 5.0), text=source)
    page = opened(open_page, "lines", replace(sampled(), lines=(table,)))
    body = page.locator("#panel-lines .table").first
    row = body.locator(".row", has_text="line_250()").bounding_box()
    frame = body.bounding_box()
    assert row is not None
    assert frame["y"] < row["y"] < frame["y"] + frame["height"]
    assert body.locator(".row", has_text="line_3()").count() == 0


def test_built_in_functions_are_known_by_the_end_of_their_name(open_page: OpenPage) -> None:
    names = (
        "<built-in method torch._C._nn.linear>",
        "<method 'add_' of 'torch._C.TensorBase' objects>",
    )
    frames = tuple(Frame(name, kind="native") for name in names)
    functions = tuple(FunctionCalls(Calls(i, 2, 2, 2.0 - i, 2.0 - i)) for i in range(len(frames)))
    page = opened(
        open_page, "functions", replace(counted(), frames=frames, functions=functions, tree=None)
    )
    assert rows(page) == ["_nn.linear", "TensorBase.add_"]
    cells = page.locator("#panel-functions .row").first.locator("> div")
    assert cells.first.get_attribute("title") == names[0]
    assert cells.last.inner_text() == "built-in"
    choose(page, "_nn.linear")
    assert text(page, "#panel-functions .side h2") == names[0]


def test_memory_over_time_and_at_its_peak(open_page: OpenPage) -> None:
    page = opened(open_page, "memory", full())
    assert "peak 504 MiB · memray" in text(page, "#panel-memory .toolbar")
    found = box(page, "memory")
    page.mouse.move(found["x"] + found["width"] / 2, found["y"] + found["height"] / 2)
    settle(page)
    assert "heap" in text(page, "#panel-memory .chart .tooltip")
    assert rows(page, "memory") == ["float32[1024, 1024]", "float32[1024]", "int64[64, 512]"]
    assert "linear.py" in text(page, "#panel-memory .side")
    page.click("text=Call paths at the peak")
    settle(page)
    assert "600 MiB" in text(page, "#panel-memory .side")


def test_memory_alone_is_a_profile(open_page: OpenPage) -> None:
    alone = replace(training(), tree=None, memory=replace(memory(), at_peak=None))
    page = open_page([alone])
    assert page.locator(".tabs button").all_inner_texts() == ["Memory", "About"]


def test_what_grew_is_red_and_what_shrank_is_blue(open_page: OpenPage) -> None:
    page = opened(open_page, "diff", training("old"), training("new", forward=3.0))
    panel = "diff"

    def tone(share: float, row: int) -> str:
        red, _, blue = colour(page, share, row, panel)
        return "red" if red > blue + 8 else "blue" if blue > red + 8 else "grey"

    # Rows: both, <module> and load_batch, train and wait, forward and backward.
    assert hover(page, 0.1, 3, panel).startswith("forward")
    assert tone(0.1, 3) == "red"
    assert hover(page, 0.65, 3, panel).startswith("backward")
    assert tone(0.65, 3) == "blue"
    said = hover(page, 0.1, 3, panel)
    assert "40.0 % → 66.7 %" in said
    assert "+26.7 points" in said
    page.click("#panel-diff .switch >> text=Absolute")
    settle(page)
    assert "4.00 s → 12.0 s" in hover(page, 0.1, 3, panel)
    assert tone(0.1, 3) == "red"
    assert tone(0.65, 3) == "grey"  # by itself it took as long as before
    click(page, 0.1, 3, panel)
    assert text(page, "#panel-diff .side h2") == "forward"


def scaled(label: str, scale: float, steps: int) -> Profile:
    """The same step so many times, as a pass that fills its time has it."""
    return replace(training(label), tree=tree(scale=scale), steps=steps)


def test_absolute_is_by_the_step_where_both_count_theirs(open_page: OpenPage) -> None:
    old, new = scaled("old", 1.0, 10), scaled("new", 2.0, 20)
    page = opened(open_page, "diff", old, new, replace(new, id="p-none", label="none", steps=0))
    page.click("#panel-diff .switch >> text=Absolute")
    settle(page)
    assert "1.00 s → 1.00 s a step" in text(page, "#panel-diff .toolbar")
    said = hover(page, 0.1, 3, "diff")
    assert said.startswith("forward")
    assert "400 ms → 400 ms" in said
    red, _, blue = colour(page, 0.1, 3, "diff")
    assert abs(red - blue) <= 8
    page.click("#panel-diff .switch >> text=Functions")
    settle(page)
    assert set(rows(page, "diff", 3)) == {"0 s"}
    page.select_option(SELECT_AFTER, "2")
    settle(page)
    assert "10.0 s → 20.0 s · in all: only one" in text(page, "#panel-diff .toolbar")


def test_the_table_of_changes(open_page: OpenPage) -> None:
    page = opened(open_page, "diff", training("old"), training("new", forward=3.0))
    page.click("#panel-diff .switch >> text=Absolute")
    page.click("#panel-diff .switch >> text=Functions")
    settle(page)
    assert rows(page, "diff")[0] == "gemm_kernel"
    first = page.locator("#panel-diff .row").first.locator("> div").all_inner_texts()
    assert first[1:6] == ["3.00 s", "9.00 s", "+6.00 s", "6.00 s", "3.00×"]
    assert page.locator("#panel-diff .row").first.locator(".grew").count() == 2
    page.select_option(SELECT_AFTER, "0")
    settle(page)
    assert set(rows(page, "diff", 3)) == {"0 s"}


def test_other_units_are_compared_by_share(open_page: OpenPage) -> None:
    page = opened(open_page, "diff", training(), sampled())
    page.click("#panel-diff .switch >> text=Absolute")
    settle(page)
    assert "units differ" in text(page, "#panel-diff .toolbar")
    assert page.get_attribute("#panel-diff button[data-value='share']", "aria-pressed") == "true"


def test_another_profile_can_be_chosen(open_page: OpenPage) -> None:
    page = open_page([training("one"), counted()])
    page.select_option("header select", label="counted")
    settle(page)
    assert "cProfile" in text(page, "header")
    assert hover(page, 0.2, 1).startswith("<module>")


def test_about_tells_cost_problems_and_what_cannot_be_measured(open_page: OpenPage) -> None:
    queue = Counter("queue", 5.0, note="the last of 2 values")
    sampling = Sampling(9, 0.0, "unknown")
    shown = replace(full(), sampling=sampling, counters=(*full().counters, queue))
    page = opened(open_page, "about", shown)
    said = text(page, "#panel-about")
    assert "9, unknown clock, 0 lost" in said
    assert "5 (the last of 2 values)" in said
    assert "1.23× (1.19–1.27)" in said
    assert "1.00× (0.98–1.02)" in said
    assert "3 of 4,000 events have a time stamp of zero" in said
    assert "no hardware counters on this machine" in said
    assert "cost 1.23×" in text(page, "header")


def test_tabs_by_key(open_page: OpenPage) -> None:
    page = open_page([full()])
    page.focus("#tab-tree")
    page.keyboard.press("ArrowRight")
    assert page.locator("#panel-time").is_visible()
    assert page.locator("#panel-tree").is_hidden()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#panel-about").is_visible()
