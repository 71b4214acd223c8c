"""Charts in a page as strict as the dashboard's: hover, keys, switches, zoom, and names as text."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.browser.conftest import PATIENCE_MS
from tests.browser.support import settle
from tests.show.chart_cases import DAY, FIRST, HOSTILE, history
from torchstone.show.bundle import bundle
from torchstone.show.charts import Point, Series, line_chart

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'"
)
MODULE = "import { enliven } from './charts/charts.js';\nenliven(document);\n"
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Charts</title>
<link rel="icon" href="icon.png"><link rel="stylesheet" href="charts/charts.css">{script}</head>
<body>{charts}</body></html>"""
OpenCharts = Callable[..., Any]


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder under the policy, and says nothing."""

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    shutil.copytree(str(files("torchstone.show").joinpath("assets", "charts")), tmp_path / "charts")
    (tmp_path / "icon.png").write_bytes(b"")
    (tmp_path / "start.js").write_text(MODULE)
    (tmp_path / "bundled.js").write_text(bundle("charts", "charts", "enliven"))
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "index.html").write_text("<!doctype html><title>A run</title>")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def open_charts(browser: Any, site: str, tmp_path: Path) -> Iterator[OpenCharts]:
    """Serve charts as a page and open it. Complaints and requests to elsewhere fail the test."""
    seen: list[str] = []
    contexts: list[Any] = []
    (tmp_path / "favicon.ico").touch()  # browsers ask for it, when they come to it

    def opened(*charts: str, query: str = "", bundled: bool = False, **settings: Any) -> Any:
        script = '<script type="module" src="start.js"></script>'
        if bundled:
            script = '<script defer src="bundled.js"></script>'
        body = "".join(f'<div class="chart-frame">{chart}</div>' for chart in charts)
        (tmp_path / "page.html").write_text(PAGE.format(script=script, charts=body))
        context = browser.new_context(
            **{"viewport": {"width": 900, "height": 700}, "color_scheme": "light", **settings}
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda message: seen.append(f"said {message.type}: {message.text}"))
        page.on("pageerror", lambda error: seen.append(f"failed: {error}"))
        page.on("dialog", lambda dialog: seen.append(f"dialog: {dialog.message}"))
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith(site) else seen.append(f"asked for {request.url}")
            ),
        )
        page.goto(f"{site}/page.html{query}")
        if settings.get("java_script_enabled", True) and charts:
            page.wait_for_selector("svg.chart-live", state="attached")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert seen == []


def chart(**more: Any) -> str:
    """Two series of ten days; the second ran one run less and failed once."""
    one = Series("inductor", history(10, 1.4))
    points = tuple(
        Point(p.x, p.y, p.low, p.high, p.label, "/runs/", p.mark, p.note)
        for p in history(9, 1.1, failed=(4,), seed=2)
    )
    return line_chart([one, Series("aot_eager", points)], title="Speed-up", **more)


def spot(page: Any, series: int, index: int) -> tuple[float, float]:
    """Where a point lies in the window."""
    found = page.evaluate(
        """([series, index]) => {
          const group = document.querySelectorAll('.chart-series')[series];
          const [x, y] = JSON.parse(group.dataset.points)[index];
          const matrix = group.ownerSVGElement.getScreenCTM();
          const place = new DOMPoint(x, y).matrixTransform(matrix);
          return [place.x, place.y];
        }""",
        [series, index],
    )
    return found[0], found[1]


def tip(page: Any) -> list[str]:
    """The lines of the tooltip; none where it is hidden."""
    settle(page)
    box = page.locator(".chart-tip")
    if box.is_hidden():
        return []
    found: list[str] = box.locator("p").all_inner_texts()
    return [" ".join(text.split()) for text in found]


def query(page: Any) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def test_pointing_tells_the_values_of_the_moment(open_charts: OpenCharts) -> None:
    page = open_charts(chart())
    label = history(10)[3].label
    x, y = spot(page, 0, 3)
    page.mouse.move(x + 3, y + 5)
    said = tip(page)
    assert said[0] == f"{label} · 2026-10-06 04:00 UTC"
    assert said[1].startswith("inductor 1.")
    assert "×" in said[1]
    assert "(1." in said[1]
    assert said[2].startswith("aot_eager 1.")
    near = page.locator(".chart-tip .chart-near").inner_text()
    assert near.startswith("inductor")
    page.mouse.move(*spot(page, 1, 3))
    tip(page)
    assert page.locator(".chart-tip .chart-near").inner_text().startswith("aot_eager")
    page.mouse.move(*spot(page, 1, 4))
    said = tip(page)
    assert "aot_eager failed" in said
    assert said[-1] == "crash: killed"
    # The last run has only one of the series.
    page.mouse.move(*spot(page, 0, 9))
    assert len(tip(page)) == 2
    page.mouse.move(5, 5)
    assert tip(page) == []
    assert page.locator(".chart-cursor").count() == 0


@pytest.mark.slow
def test_keys_walk_along_a_series_and_between_series(open_charts: OpenCharts) -> None:
    page = open_charts(chart())
    labels = [point.label for point in history(10)]
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches('svg.chart-line')")

    def press(*keys: str) -> list[str]:
        for key in keys:
            page.keyboard.press(key)
        return tip(page)

    assert press("ArrowRight")[0].startswith(labels[0])
    assert press("ArrowRight", "ArrowRight")[0].startswith(labels[2])
    assert press("ArrowLeft")[0].startswith(labels[1])
    press("ArrowDown")
    assert page.locator(".chart-tip .chart-near").inner_text().startswith("aot_eager")
    assert page.locator("[aria-live]").inner_text().startswith("aot_eager, 1.")
    assert press("End")[0].startswith(labels[8])
    assert press("ArrowRight")[0].startswith(labels[8])
    assert press("ArrowUp")[0].startswith(labels[8])
    assert press("Escape") == []
    assert press("Home")[0].startswith(labels[0])
    # One stop for the chart and one for its switches, not one for each point.
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.name") == "inductor"
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.name") == "aot_eager"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement === document.body")


@pytest.mark.slow
def test_enter_and_a_click_lead_to_the_run(open_charts: OpenCharts) -> None:
    page = open_charts(chart())
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/")
    page.go_back()
    page.wait_for_selector("svg.chart-live")
    x, y = spot(page, 1, 6)
    page.mouse.click(x + 8, y + 8)  # beside it, but close
    page.wait_for_url("**/runs/")
    page.go_back()
    page.wait_for_selector("svg.chart-live")
    before = page.url
    x, y = spot(page, 1, 6)
    page.mouse.click(x, y - 60)  # far from any point
    settle(page)
    assert page.url == before


@pytest.mark.slow
def test_a_switch_hides_a_series_everywhere_and_the_address_knows(open_charts: OpenCharts) -> None:
    page = open_charts(chart(), chart())
    shown = page.locator(".chart-series:visible")
    assert shown.count() == 4
    key = page.locator(".chart-key[data-name=aot_eager]").first
    key.click()
    assert shown.count() == 2
    assert query(page) == {"hide": ["aot_eager"]}
    assert key.get_attribute("aria-checked") == "false"
    page.mouse.move(*spot(page, 0, 3))
    assert len(tip(page)) == 2  # the hidden series is not told
    page.reload()
    page.wait_for_selector("svg.chart-live")
    assert shown.count() == 2
    page.locator(".chart-key[data-name=aot_eager]").nth(1).press("Enter")
    assert shown.count() == 4
    assert query(page) == {}


@pytest.mark.slow
def test_a_brush_asks_for_the_page_again_with_the_stretch_of_time(
    open_charts: OpenCharts,
) -> None:
    page = open_charts(chart(), query="?suite=timm&hide=aot_eager")
    assert page.locator(".chart-reset").count() == 0
    start, y = spot(page, 0, 2)
    end, _ = spot(page, 0, 6)
    page.mouse.move(end, y + 70)
    page.mouse.down()
    page.mouse.move((start + end) / 2, y + 60, steps=3)
    assert page.locator(".chart-brush").count() == 1
    assert tip(page) == []
    page.mouse.move(start, y + 60, steps=3)
    with page.expect_navigation():
        page.mouse.up()
    asked = query(page)
    assert asked["suite"] == ["timm"]
    assert asked["hide"] == ["aot_eager"]
    # The third and the seventh day, to the second that a pixel is worth.
    assert asked["from"][0].startswith("2026-10-05T0")
    assert asked["to"][0].startswith("2026-10-09T0")
    page.wait_for_selector("svg.chart-live")
    with page.expect_navigation():
        page.click(".chart-reset")
    assert query(page) == {"suite": ["timm"], "hide": ["aot_eager"]}


@pytest.mark.slow
def test_escape_and_a_short_drag_zoom_nowhere(open_charts: OpenCharts) -> None:
    page = open_charts(chart())
    before = page.url
    x, y = spot(page, 0, 2)
    page.keyboard.press("Tab")
    page.mouse.move(x, y + 60)
    page.mouse.down()
    page.mouse.move(x + 90, y + 60, steps=3)
    page.keyboard.press("Escape")
    assert page.locator(".chart-brush").count() == 0
    page.mouse.up()
    page.mouse.move(x + 40, y + 60)
    page.mouse.down()
    page.mouse.move(x + 43, y + 60)
    page.mouse.up()
    settle(page)
    assert page.url == before
    still = open_charts(chart(zoom=False))
    x, y = spot(still, 0, 2)
    still.mouse.move(x, y + 60)
    still.mouse.down()
    still.mouse.move(x + 90, y + 60, steps=3)
    assert still.locator(".chart-brush").count() == 0


def test_names_are_text_wherever_they_stand(open_charts: OpenCharts) -> None:
    points = (
        Point(FIRST, 1.1, label=HOSTILE, href="javascript:alert(1)", note=HOSTILE),
        Point(FIRST + DAY, 1.2, label=HOSTILE, href="/runs/", note=HOSTILE),
    )
    named = [Series(HOSTILE, points), Series("'\"><script>alert(2)</script>", points)]
    marks = ((FIRST + DAY, HOSTILE),)
    page = open_charts(line_chart(named, title=HOSTILE, marks=marks, note=HOSTILE), bundled=True)
    shown = HOSTILE.replace("\u202e", "\\u202e")
    page.mouse.move(*spot(page, 0, 0))
    said = tip(page)
    assert said[0].startswith(shown)
    assert said[1].startswith(shown)
    assert said[-1] == shown
    page.mouse.click(*spot(page, 0, 0))
    settle(page)
    assert page.url.endswith("page.html")
    page.locator(".chart-key").first.click()
    assert query(page) == {"hide": [shown]}
    assert page.evaluate("document.querySelectorAll('img, iframe').length") == 0
    assert page.evaluate("document.scripts.length") == 1


def with_points(made: str, points: str) -> str:
    """The chart with other data for its first series."""
    start = made.index("data-points='") + len("data-points='")
    return made[:start] + points + made[made.index("'", start) :]


@pytest.mark.slow
@pytest.mark.parametrize("points", ["nonsense", '[[1,2],["a",null,3,{"x":1},[],7,8],null,5]'])
def test_data_that_lies_harms_nothing(open_charts: OpenCharts, points: str) -> None:
    page = open_charts(with_points(chart(), points))
    page.mouse.move(*spot(page, 1, 3))
    assert tip(page)[1].startswith("aot_eager")


@pytest.mark.slow
def test_an_address_in_the_data_only_leads_somewhere(open_charts: OpenCharts) -> None:
    row = '[[200,150,1791000000,"1×","","javascript:alert(1)",""]]'
    page = open_charts(with_points(chart(), row).replace("data-href='/runs/'", "data-href=''"))
    x, y = spot(page, 0, 0)
    page.mouse.move(x + 1, y)
    assert tip(page)[1].startswith("inductor")
    page.mouse.click(x + 1, y)
    page.focus("svg.chart-line")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    settle(page)
    assert page.url.endswith("page.html")


@pytest.mark.slow
def test_many_points_answer_too(open_charts: OpenCharts) -> None:
    page = open_charts(line_chart([Series("a", history(30_000, step=600))], title="t"))
    page.mouse.move(*spot(page, 0, 200))
    assert tip(page)[1].endswith(" points")
    page = open_charts(line_chart([Series("a", history(1500))], title="t"))
    page.mouse.move(*spot(page, 0, 700))
    assert tip(page)[0].startswith(history(1500)[700].label)


@pytest.mark.slow
def test_without_scripts_points_are_links_that_tell(open_charts: OpenCharts) -> None:
    page = open_charts(chart(), java_script_enabled=False)
    links = page.locator(".chart-series a")
    assert links.count() == 19
    title = links.nth(12).locator("title").first.text_content()
    assert title.startswith("aot_eager: 1.")
    assert "inductor" in page.locator(".chart-keys").text_content()


@pytest.mark.slow
def test_the_colours_follow_the_scheme_and_the_page(open_charts: OpenCharts) -> None:
    stroke = "getComputedStyle(document.querySelector('.chart-series .s-blue')).stroke"
    light = open_charts(chart())
    assert light.evaluate(stroke) == "rgb(29, 78, 216)"
    dark = open_charts(chart(), color_scheme="dark")
    assert dark.evaluate(stroke) == "rgb(122, 167, 255)"
    dark.evaluate("document.documentElement.dataset.theme = 'light'")
    assert dark.evaluate(stroke) == "rgb(29, 78, 216)"


@pytest.mark.slow
def test_on_a_narrow_screen_a_chart_scrolls_in_its_own_frame(open_charts: OpenCharts) -> None:
    page = open_charts(chart(), viewport={"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    box = page.locator("svg.chart").bounding_box()
    assert box["width"] >= 470  # letters stay readable
    page.locator(".chart-frame").evaluate("frame => { frame.scrollLeft = 200; }")
    page.mouse.move(*spot(page, 0, 8))
    assert tip(page)[0].startswith(history(10)[8].label)
    tooltip = page.locator(".chart-tip").bounding_box()
    assert tooltip["x"] >= 0
    assert tooltip["x"] + tooltip["width"] <= 390
