"""The dashboard in a real browser. A request elsewhere, a console message or a dialog fails a test
(see `new_page`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.web import stored
from tests.web.conftest import reading, serving
from torchstone.store import heartbeat, open_store
from torchstone.web.site import Site
from torchstone.web.sources import DataAccess

PHONE = {"width": 390, "height": 800}
PAGES = (
    "/",
    "/suite?suite=huggingface",
    "/case?suite=huggingface&model=AlbertForMaskedLM&variant=inductor",
    "/compare",
    "/failures",
    "/runs",
    "/runs/night05x",
    "/machines",
    f"/machines/{stored.MACHINE}",
    "/profiles",
    "/profiles/prof1",
    "/result/r05000",
)


@pytest.fixture(scope="module")
def site(database: Path, hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Both databases as static sites."""
    made = {}
    for name, path, most in (("plain", database, 100), ("hostile", hostile, 30)):
        folder = tmp_path_factory.mktemp(name)
        for part in ("assets", "data"):
            (folder / part).mkdir()
        with reading(path) as store:
            for file, content in Site(DataAccess(store), most=most).files():
                (folder / file).write_bytes(content)
        made[name] = folder
    return made


def asked(page: Any) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def rows(page: Any, table: str, column: int = 1) -> list[str]:
    cells = page.locator(f"#table-{table} tbody tr > :nth-child({column})")
    return [text.strip() for text in cells.all_inner_texts()]


STOPS = """[...document.querySelectorAll("table tbody")].map((body) => {
  const stops = [...document.querySelectorAll("a[href], button, input, select, [tabindex='0']")];
  const before = stops.filter((one) => one.tabIndex >= 0 && one.offsetParent &&
    body.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_PRECEDING);
  return before.length;
})"""
HEIGHTS = "[...document.querySelectorAll('.headline li a')].map((one) => one.offsetHeight)"


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect as expected

    return expected(locator)


def test_from_the_landing_page_to_a_profile_by_clicking(new_page: Any, address: str) -> None:
    page = new_page(address)
    page.goto(address)
    page.locator("#table-huggingface-small tbody a", has_text="inductor").first.click()
    page.wait_for_url("**/suite?**")
    assert page.locator("h1").inner_text() == "huggingface@small"
    page.get_by_role("link", name="AlbertForMaskedLM", exact=True).click()
    page.wait_for_url("**/case?**")
    assert page.locator("#chart-speedup svg.chart-live").count() == 1
    page.get_by_role("link", name="prof1").click()
    page.wait_for_url("**/profiles/prof1")
    page.get_by_role("link", name="Open the views").click()
    page.wait_for_url("**/view")
    expect(page.get_by_role("tab", name="Call tree")).to_be_visible()
    expect(page.locator("#panel-tree canvas").first).to_be_visible()
    page.get_by_role("link", name="The profile in short").click()
    page.wait_for_url("**/profiles/prof1")


def test_a_droplist_changes_the_address_and_the_content_and_back_undoes_it(
    new_page: Any, address: str
) -> None:
    page = new_page(address)
    page.goto(address)
    failing = page.locator("#table-huggingface-small tbody tr").first
    assert failing.locator("td").nth(0).inner_text().split()[-3:] == ["4/4", "100", "%"]
    page.locator("select[name=mode]").select_option("training")
    page.wait_for_url("**mode=training")
    assert asked(page) == {"mode": "training"}  # defaults stay out of the address
    assert "3/4" in failing.locator("td").nth(0).inner_text()
    page.locator("select[name=base]").select_option("night02x")
    page.wait_for_url("**base=night02x")
    assert asked(page) == {"mode": "training", "base": "night02x"}
    assert "1" in failing.locator("td").nth(1).inner_text()  # newly failing since then
    page.go_back()
    page.wait_for_url("**mode=training")
    expect(page.locator("select[name=base]")).to_have_value("night04x")
    page.go_back()
    page.wait_for_url(f"{address}/")
    expect(page.locator("select[name=mode]")).to_have_value("all")


def test_tables_are_sorted_and_filtered_and_the_address_remembers(
    new_page: Any, address: str
) -> None:
    page = new_page(address)
    page.goto(f"{address}/suite?suite=timm&variant=inductor&mode=inference")
    button = page.get_by_role("button", name="Model")
    button.click()
    assert rows(page, "models") == ["ghostnet_100", "mobilenetv3_large_100", "resnet18"]
    button.click()
    assert rows(page, "models") == ["resnet18", "mobilenetv3_large_100", "ghostnet_100"]
    assert asked(page)["sort"] == "-model"
    page.reload()
    assert rows(page, "models")[0] == "resnet18"
    page.locator("input[name=filter]").fill("net1")
    expect(page.locator("#table-models tbody tr:visible")).to_have_count(1)
    assert asked(page)["filter"] == "net1"
    page.reload()
    assert rows(page, "models") == ["resnet18"]


def test_a_chart_tells_its_values_and_is_zoomed_through_the_address(
    new_page: Any, address: str
) -> None:
    page = new_page(address)
    page.goto(address)
    chart = page.locator("#chart-timm-small-speedup svg")
    chart.scroll_into_view_if_needed()
    # The event of that scroll comes with the next frame, and takes a tip away.
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    place = chart.bounding_box()
    middle = place["y"] + place["height"] / 2
    page.mouse.move(place["x"] + place["width"] * 0.35, middle)
    expect(page.locator(".chart-tip")).to_be_visible()
    page.mouse.down()
    page.mouse.move(place["x"] + place["width"] * 0.75, middle, steps=5)
    page.mouse.up()
    page.wait_for_url("**from=**")
    assert {"from", "to"} == set(asked(page))
    assert page.locator("select[name=range]").input_value() == ""
    page.locator("select[name=mode]").select_option("training")
    page.wait_for_url("**mode=training**")
    assert {"from", "to", "mode"} == set(asked(page))
    page.locator("select[name=range]").select_option("30")
    page.wait_for_url("**range=30**")
    assert {"range", "mode"} == set(asked(page))


def test_a_run_appears_moves_and_is_interrupted_without_a_reload(
    new_page: Any, tmp_path: Path
) -> None:
    path = tmp_path / "live.db"
    cases = stored.keys(["timm"])
    with open_store(str(path)) as store:
        stored.add_night(store, 0, cases)
    with serving(path) as address:
        page = new_page(address)
        page.clock.install()
        page.goto(address)
        page.evaluate("window.same = true")
        expect(page.locator("#running .progress")).to_have_count(0)
        run = stored.make_run(1, cases)
        figures = [
            (i, stored.replace(stored.metrics_of(k, 1), result_id="")) for i, k in enumerate(cases)
        ]
        with heartbeat.start_heartbeat(path, run.id) as alive, open_store(str(path)) as store:
            store.begin_run(run)
            store.add_cases(run.id, None, figures[:3])
            alive.now(cases[3].name, 3, len(cases))
            page.clock.fast_forward(7000)
            banner = page.locator("#running .progress.running")
            expect(banner).to_contain_text("3 of 12 cases done")
            store.add_cases(run.id, None, figures[3:5])
            alive.now(cases[5].name, 5, len(cases))
            page.clock.fast_forward(7000)
            expect(banner).to_contain_text("5 of 12 cases done")
            assert page.evaluate("window.same") is True
            banner.get_by_role("link").click()
            page.wait_for_url(f"**/runs/{run.id}")
            expect(page.locator(".progress")).to_contain_text(cases[5].model)
            page.evaluate("window.same = true")
        page.clock.fast_forward(7000)  # the program has ended: its sign of life is gone
        expect(page.locator(".progress.interrupted")).to_contain_text("interrupted")
        expect(page.locator(".notice-warn")).to_contain_text(f"torchstone run --resume {run.id}")
        with (
            heartbeat.start_heartbeat(path, run.id) as alive,
            open_store(str(path)) as store,
        ):  # resumed
            alive.now(cases[5].name, 0, 7)
            store.add_cases(run.id, None, figures[5:9])
            page.clock.fast_forward(7000)
            expect(page.locator(".progress.running")).to_contain_text("9 of 12 cases done")
            expect(page.locator(".notice-warn")).to_have_count(0)
        assert page.evaluate("window.same") is True


def test_by_keyboard_alone(new_page: Any, address: str) -> None:
    page = new_page(address)
    page.goto(f"{address}/suite?suite=timm&variant=inductor")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    reached: list[str] = []
    for _ in range(40):
        page.keyboard.press("Tab")
        name = page.evaluate("document.activeElement.name || document.activeElement.tagName")
        reached.append(name)
        if page.evaluate("document.activeElement.dataset.key") == "model":
            break
    assert {"suite", "mode", "base", "new", "filter"} <= set(reached)
    page.keyboard.press("Enter")
    assert rows(page, "models")[0] == "ghostnet_100"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.locator("select[name=mode]").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_url("**mode=inference**")
    page.keyboard.press("ArrowDown")  # the focus is where it was
    page.wait_for_url("**mode=training**")
    assert page.evaluate("document.activeElement.name") == "mode"


def test_a_table_is_one_stop_and_arrows_go_on_inside_it(new_page: Any, address: str) -> None:
    page = new_page(address)
    for path in ("/", "/compare", "/suite?suite=all", "/failures"):
        page.goto(address + path)
        stops = page.evaluate(STOPS)
        assert max(stops) <= 60, path
    page.goto(f"{address}/suite?suite=timm")
    page.locator("#table-models tbody tr").nth(0).locator("th a").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    place = page.evaluate(
        "(() => { const at = document.activeElement.closest('td'); "
        "return [at.parentElement.sectionRowIndex, at.querySelector('a') !== null]; })()"
    )
    assert place == [1, True]


def test_a_choice_keeps_the_place_and_escape_leaves_a_zoom(new_page: Any, address: str) -> None:
    page = new_page(address)
    page.goto(f"{address}/?from=2026-11-02&to=2026-11-04")
    page.evaluate("window.scrollTo(0, 600)")
    page.evaluate("window.stayed = true")
    before = page.evaluate("scrollY")
    assert before > 100
    page.keyboard.press("Escape")
    page.wait_for_url(f"{address}/")
    expect(page.locator("select[name=range]")).to_have_value("7")
    assert page.evaluate("[window.stayed, scrollY]") == [True, before]


@pytest.mark.parametrize("path", ["/", "/compare", "/suite?suite=huggingface", "/failures"])
def test_every_column_fits_a_usual_screen(new_page: Any, address: str, path: str) -> None:
    page = new_page(address, viewport={"width": 1280, "height": 800})
    page.goto(address + path)
    wide = page.evaluate(
        "[...document.querySelectorAll('.block > .scroll')].map(e => e.scrollWidth - e.clientWidth)"
    )
    assert wide
    assert max(wide) <= 0


def test_on_a_phone_the_figures_come_before_the_choices(new_page: Any, address: str) -> None:
    page = new_page(address, viewport={"width": 390, "height": 844})
    page.goto(address)
    expect(page.locator("#controls")).to_be_hidden()
    box = page.locator("#headline-changes li").first.bounding_box()
    assert box["y"] + box["height"] < 844
    assert min(page.evaluate(HEIGHTS)) >= 40
    page.locator("details.choices summary").click()
    expect(page.locator("#controls")).to_be_visible()


def test_it_can_be_read_and_asked_without_scripts(new_page: Any, address: str) -> None:
    page = new_page(address, java_script_enabled=False)
    page.goto(address)
    page.locator("select[name=mode]").select_option("training")
    page.get_by_role("button", name="Show").click()
    assert asked(page)["mode"] == "training"
    page.goto(f"{address}/suite?suite=timm&variant=inductor")
    page.get_by_role("button", name="Model").click()
    assert asked(page)["sort"] == "model"
    assert rows(page, "models")[0] == "ghostnet_100"
    assert page.locator("#chart-speedup svg path").count() > 0


def test_names_stay_text(new_page: Any, hostile: Path) -> None:
    with serving(hostile) as address:
        page = new_page(address)
        for place in ("/", "/runs", "/failures", "/compare", "/runs/evil1", "/profiles"):
            page.goto(address + place)
            assert page.locator("main img, main script").count() == 0
        page.goto(f"{address}/suite")
        page.locator("#table-models tbody a").first.click()
        page.wait_for_url("**/case?**")
        assert page.locator("h1").inner_text() != ""
        page.goto(f"{address}/profiles/evilprofile/view")
        expect(page.get_by_role("tab").first).to_be_visible()


@pytest.mark.slow
def test_no_page_is_wider_than_a_phone(new_page: Any, address: str) -> None:
    page = new_page(address, viewport=PHONE)
    for place in PAGES:
        page.goto(address + place)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], place


def test_the_switch_turns_the_colours_and_is_remembered(new_page: Any, address: str) -> None:
    page = new_page(address)
    page.goto(address)
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_role("button", name="Colours").click()
    assert page.evaluate(paper) != light
    page.goto(f"{address}/runs")
    assert page.evaluate(paper) != light
    page.get_by_role("button", name="Colours").click()
    assert page.evaluate(paper) == light


@pytest.mark.slow
def test_the_static_site_works_from_disk(new_page: Any, site: dict[str, Path]) -> None:
    page = new_page("file://")
    page.goto((site["plain"] / "index.html").as_uri())
    assert page.locator("#controls").count() == 0
    assert page.evaluate("getComputedStyle(document.querySelector('.bar')).display") == "flex"
    expect(page.locator("#chart-timm-small-speedup svg.chart-live")).to_have_count(1)
    page.locator("#table-timm-small tbody a", has_text="inductor").first.click()
    assert page.locator("h1").inner_text() == "timm@small"
    page.get_by_role("button", name="Model").click()
    assert rows(page, "models") == ["ghostnet_100", "mobilenetv3_large_100", "resnet18"]
    page.locator("input[name=filter]").fill("resnet")
    expect(page.locator("#table-models tbody tr:visible")).to_have_count(1)
    page.get_by_role("link", name="resnet18").click()
    assert page.locator("h1").inner_text() == "resnet18"
    page.get_by_role("link", name="Profiles").click()
    page.get_by_role("link", name="prof1").click()
    page.get_by_role("link", name="Open the views").click()
    expect(page.get_by_role("tab", name="Call tree")).to_be_visible()
    hostile = new_page("file://")
    hostile.goto((site["hostile"] / "index.html").as_uri())
    assert hostile.locator("main img, main script").count() == 0


@pytest.mark.slow
def test_every_file_that_the_site_names_is_written(site: dict[str, Path]) -> None:
    import html
    import re

    for folder in site.values():
        for file in folder.glob("*.html"):
            text = re.sub(r"<script type=.*?</script>", "", file.read_text("utf-8"), flags=re.S)
            for named in re.findall(r'(?:href|src)="([^"#]+)"', text):
                target = html.unescape(named).split("?")[0]
                assert target.startswith("data:") or (folder / target).is_file(), (file, named)
