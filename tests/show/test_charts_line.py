"""Values over time: what is drawn where, what is not, and what it costs."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.show.chart_cases import (
    DAY,
    FIRST,
    HOSTILE,
    NAMESPACE,
    groups,
    history,
    parsed,
    paths,
    rows,
    series,
    strokes,
    texts,
)
from torchstone.show.bundle import asset
from torchstone.show.charts import Point, Series, line_chart
from torchstone.show.charts.line import MOST_LINKED, MOST_POINTS, MOST_SERIES
from torchstone.show.svg import COLOURS, safe_href

ELEMENTS = {"svg", "g", "a", "path", "line", "rect", "text", "title", "desc"}


def line_of(root: ET.Element, colour: str = "s-blue") -> ET.Element:
    """The path that joins the points of the only series."""
    (group,) = groups(root, "chart-series")
    return paths(group, colour)[0]


def plot(root: ET.Element) -> list[float]:
    return [float(word) for word in root.get("data-plot", "").split()]


@settings(max_examples=60, deadline=None)
@given(st.text(), st.text())
def test_any_text_makes_a_sound_and_harmless_chart(text: str, other: str) -> None:
    points = (Point(FIRST, 1.2, 1.1, 1.3, text, other, note=text), Point(FIRST + DAY, 1.3))
    marks = ((FIRST, text),)
    for embedded in (True, False):
        made = line_chart(
            [Series(text, points), Series(other, points)],
            title=text,
            unit="ratio",
            marks=marks,
            note=other,
            embedded=embedded,
        )
        for element in parsed(made).iter():
            tag = element.tag.removeprefix(NAMESPACE)
            assert tag in (ELEMENTS if embedded else ELEMENTS | {"style"})
            assert not [name for name in element.attrib if name.startswith("on")]
            assert "style" not in element.attrib


def test_a_hostile_name_is_text() -> None:
    root = parsed(line_chart([series(HOSTILE, 3), series("b", 3)], title=HOSTILE))
    shown = HOSTILE.replace("\u202e", "\\u202e")
    assert shown in texts(root)
    assert groups(root, "chart-series")[0].get("data-name") == shown
    assert root.get("aria-label") == shown


def test_no_line_leads_across_a_gap() -> None:
    points = history(12, missing=(4,), failed=(8,))
    root = parsed(line_chart([Series("a", points)], title="t"))
    lines = strokes(line_of(root).get("d", ""))
    assert [len(line) for line in lines] == [4, 3, 3]
    (group,) = groups(root, "chart-series")
    given_x = [row[0] for row in rows(group) if row[3] != "failed"]
    assert [x for line in lines for x, _ in line] == given_x
    # The interval does not either.
    (spread,) = groups(root, "chart-spread")
    assert len(strokes(paths(spread, "s-blue")[0].get("d", "").replace("V", " 0 "))) == 10


def test_a_value_between_two_gaps_is_still_seen() -> None:
    for count in (5, 400):
        points = history(count, missing=(1, 3))
        root = parsed(line_chart([Series("a", points)], title="t"))
        (group,) = groups(root, "chart-series")
        lonely = next(row for row in rows(group) if row[2] == FIRST + 2 * DAY)
        signs = [path.get("d", "") for path in paths(group, "f-blue")]
        starts = [float(x) for sign in signs for x in re.findall(r"M([\d.]+)", sign)]
        strokes = [path.get("d", "") for path in paths(group, "s-blue")]
        dots = [float(x) for one in strokes for x in re.findall(r"M([\d.]+) [\d.]+h0", one)]
        assert any(1 < lonely[0] - start < 4 for start in starts) or lonely[0] in dots


def test_what_failed_stands_on_the_floor_below_all_values() -> None:
    root = parsed(line_chart([series("a", 10, failed=(3,))], title="t"))
    (group,) = groups(root, "chart-series")
    failed = [row for row in rows(group) if row[3] == "failed"]
    others = [row for row in rows(group) if row[3] != "failed"]
    assert [(row[2], row[6]) for row in failed] == [(FIRST + 3 * DAY, "crash: killed")]
    assert failed[0][1] > max(row[1] for row in others)
    _, _, _, floor = plot(root)
    assert floor - 12 < failed[0][1] < floor
    assert len(paths(group, "s-bad")) == 1


def test_a_partial_point_is_hollow_and_no_part_of_the_line() -> None:
    for count in (6, MOST_LINKED + 6):
        points = list(history(count))
        points[3] = points[3]._replace(mark="partial")
        root = parsed(line_chart([Series("a", tuple(points))], title="t"))
        (line,) = strokes(line_of(root).get("d", ""))
        assert len(line) == count - 1
        (group,) = groups(root, "chart-series")
        (hollow,) = [one for one in paths(group, "f-paper") if not one.get("opacity")]
        assert "s-blue" in hollow.get("class", "")
        assert len(rows(group)) == count


def test_values_lie_where_the_marks_say() -> None:
    points = tuple(Point(FIRST + i * DAY, value) for i, value in enumerate((1.0, 1.2, 1.4)))
    root = parsed(line_chart([Series("a", points)], title="t"))
    marks = {
        element.text: float(element.get("y", "0")) - 4
        for element in root.iter(f"{NAMESPACE}text")
        if (element.text or "").endswith("×")
    }
    (group,) = groups(root, "chart-series")
    for row, text in zip(rows(group), ("1.0×", "1.2×", "1.4×"), strict=True):
        assert row[1] == pytest.approx(marks[text], abs=0.2)
    xs = [row[0] for row in rows(group)]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)


def test_intervals_are_whiskers_for_few_and_a_band_for_many() -> None:
    few = parsed(line_chart([series("a", 10)], title="t"))
    (spread,) = groups(few, "chart-spread")
    (whiskers,) = paths(spread, "s-blue")
    ends = re.findall(r"M([\d.]+) ([\d.]+)V([\d.]+)", whiskers.get("d", ""))
    (group,) = groups(few, "chart-series")
    assert len(ends) == 10
    for (x, low, high), row in zip(ends, rows(group), strict=True):
        assert float(x) == row[0]
        assert float(high) < row[1] < float(low)
    many = parsed(line_chart([series("a", 300, missing=(150,))], title="t"))
    (spread,) = groups(many, "chart-spread")
    (band,) = paths(spread, "f-blue")
    assert band.get("d", "").count("Z") == 2


def test_one_wide_interval_does_not_squash_the_rest() -> None:
    points = list(history(20))
    points[7] = Point(points[7].x, 1.4, 0.01, 900.0)
    root = parsed(line_chart([Series("a", tuple(points))], title="t"))
    (group,) = groups(root, "chart-series")
    _, top, _, bottom = plot(root)
    heights = [row[1] for row in rows(group)]
    assert max(heights) - min(heights) > 0.2 * (bottom - top)
    assert all(top <= y <= bottom for y in heights)
    assert "1.400× (0.010–900.000)" in {row[3] for row in rows(group)}


def test_dates_stand_on_the_axis_and_labels_where_moments_are_no_dates() -> None:
    points = [point._replace(x=float(place)) for place, point in enumerate(history(6))]
    labels = texts(parsed(line_chart([Series("a", tuple(points))], title="t")))
    assert {point.label for point in points} <= set(labels)
    week = history(6)
    labels = texts(parsed(line_chart([Series("a", week)], title="t")))
    assert not {point.label for point in week} & set(labels)
    crowded = history(60)
    labels = texts(parsed(line_chart([Series("a", crowded)], title="t")))
    assert not {point.label for point in crowded} & set(labels)
    assert {"Oct 12", "Oct 26"} <= set(labels)
    assert "2027" in texts(parsed(line_chart([series("a", 700)], title="t")))


@pytest.mark.parametrize(
    ("values", "words"), [((3.0, 3.1), "1× is below ↓"), ((0.5, 0.52), "1× is above ↑")]
)
def test_ratios_far_from_one_say_where_one_is(values: tuple[float, ...], words: str) -> None:
    points = tuple(Point(FIRST + i * DAY, value) for i, value in enumerate(values))
    root = parsed(line_chart([Series("a", points)], title="t"))
    assert words in texts(root)
    assert not [line for line in root.iter(f"{NAMESPACE}line") if line.get("stroke-dasharray")]


def test_a_ratio_near_one_has_the_line_at_one() -> None:
    root = parsed(line_chart([series("a", 8, 1.02)], title="t"))
    dashed = [line for line in root.iter(f"{NAMESPACE}line") if line.get("stroke-dasharray")]
    assert len(dashed) == 1
    times = parsed(line_chart([series("a", 8, 1.02)], title="t", unit="s"))
    assert not [line for line in times.iter(f"{NAMESPACE}line") if line.get("stroke-dasharray")]


@pytest.mark.parametrize(
    ("unit", "low", "high", "expected"),
    [
        ("s", 0.9, 24.0, {"1 s", "10 s", "20 s"}),
        ("s", 10e-3, 12e-3, {"10.0 ms", "11.0 ms", "12.0 ms"}),
        ("bytes", 1.0 * 2**30, 1.2 * 2**30, {"1.00 GiB", "1.10 GiB", "1.20 GiB"}),
        ("bytes", 2.0**20, 2.0**30, {"16 MiB", "1 GiB"}),
        ("share", 0.9, 0.98, {"90 %", "94 %", "98 %"}),
        ("ratio", 0.5, 64.0, {"0.5×", "5×", "50×"}),
        ("", 0.0, 40.0, {"0", "20", "40"}),
    ],
)
def test_marks_are_round_in_their_unit(
    unit: str, low: float, high: float, expected: set[str]
) -> None:
    points = (Point(FIRST, low), Point(FIRST + DAY, high))
    found = set(texts(parsed(line_chart([Series("a", points)], title="t", unit=unit))))
    assert len(expected & found) >= 2, found


def test_very_many_points_are_thinned_and_say_so() -> None:
    points = list(history(20_000, step=600))
    points[7_000] = Point(points[7_000].x, 9.0)  # one in twenty thousand must stay visible
    root = parsed(line_chart([Series("a", tuple(points))], title="t"))
    text = " ".join(texts(root))
    assert "a: 20,000 points, drawn as lowest, mean and highest of each column" in text
    (group,) = groups(root, "chart-series")
    left, top, right, _ = plot(root)
    columns = rows(group)
    assert 400 < len(columns) <= right - left + 1
    highest = min(
        float(end) for end in re.findall(r"V([\d.]+)", paths(group, "s-blue")[0].get("d", ""))
    )
    assert highest < top + 0.1 * (plot(root)[3] - top)
    assert (
        sum(int(row[3].rpartition(", ")[2].split()[0].replace(",", "")) for row in columns)
        == 20_000
    )


def test_thinned_series_have_gaps_and_failures_too() -> None:
    count = 10_000
    missing = tuple(range(4000, 6000))
    root = parsed(line_chart([series("a", count, missing=missing, failed=(2000,))], title="t"))
    (group,) = groups(root, "chart-series")
    line = paths(group, "s-blue")[1].get("d", "")
    assert line.count("M") == 2
    assert [row[3] for row in rows(group) if "failed" in row[3]] == ["1 failed"]
    assert len(paths(group, "s-bad")) == 1


def test_the_thinned_mean_is_the_mean() -> None:
    low, high = 10.0, 30.0
    points = tuple(Point(FIRST + i, low if i % 4 else high) for i in range(40_000))
    (group,) = groups(
        parsed(line_chart([Series("a", points)], title="t", unit="s")), "chart-series"
    )
    said = [re.match(r"([\d.]+) s \(10.0–30.0\), (\d+) points?", row[3]) for row in rows(group)]
    counted = [(float(one[1]), int(one[2])) for one in said if one]
    assert sum(count for _, count in counted) == len(points)
    mean = sum(value * count for value, count in counted) / len(points)
    assert mean == pytest.approx(15.0, abs=0.02)


@pytest.mark.parametrize("count", [MOST_POINTS, MOST_POINTS + 1])
def test_the_limit_of_thinning(count: int) -> None:
    (group,) = groups(parsed(line_chart([series("a", count)], title="t")), "chart-series")
    assert ("chart-thinned" in group.get("class", "")) == (count > MOST_POINTS)


def test_a_chart_is_never_large() -> None:
    points = history(30_000)
    dense = line_chart([Series("a", points), Series("b", points)], title="t")
    assert len(dense) < 250_000
    many = line_chart([series(f"s{i}", 60, seed=i) for i in range(MOST_SERIES + 5)], title="t")
    assert len(groups(parsed(many), "chart-series")) == MOST_SERIES
    assert "and 5 more series" in texts(parsed(many))


def test_few_points_are_links_that_tell_their_figures() -> None:
    points = history(5, failed=(2,))
    root = parsed(line_chart([Series("a", points)], title="t"))
    links = list(root.iter(f"{NAMESPACE}a"))
    assert [link.get("href") for link in links] == [point.href for point in points]
    told = [link.find(f".//{NAMESPACE}title") for link in links]
    words = [title.text for title in told if title is not None and title.text]
    assert re.fullmatch(
        rf"a: 1\.\d+× \(1\.\d+–1\.\d+\) · {points[0].label} · 2026-10-03 04:00 UTC", words[0]
    )
    assert words[2].startswith("a: failed · ")
    assert words[2].endswith(" · crash: killed")
    crowd = parsed(line_chart([series("a", MOST_LINKED + 1)], title="t"))
    assert not list(crowd.iter(f"{NAMESPACE}a"))


def test_scripts_find_every_point_with_its_address() -> None:
    points = history(900, missing=(3,))
    root = parsed(line_chart([Series("a", points)], title="t"))
    (group,) = groups(root, "chart-series")
    prefix = group.get("data-href", "")
    assert prefix == "/runs/"
    expected = [(point.x, point.href, point.label) for i, point in enumerate(points) if i != 3]
    assert [(row[2], prefix + row[5], row[4]) for row in rows(group)] == expected
    assert root.get("data-zoom") == "url"
    assert parsed(line_chart([], title="t", zoom=False)).get("data-zoom") is None


@pytest.mark.parametrize(
    ("href", "safe", "absolute"),
    [
        ("/runs/1?a=b#c", True, False),
        ("runs/1", True, False),
        ("?x=a:b", True, False),
        ("#x", True, False),
        ("", True, False),
        ("https://example.org/x", True, True),
        ("HTTP://example.org", True, True),
        ("//example.org", False, False),
        ("javascript:alert(1)", False, False),
        (" javascript:alert(1)", False, False),
        ("java\nscript:alert(1)", False, False),
        ("data:text/html,x", False, False),
        ("https:evil", False, False),
        ("\\\\example.org", False, False),
        ("/a b", False, False),
    ],
)
def test_an_address_only_leads_somewhere(href: str, safe: bool, absolute: bool) -> None:
    assert safe_href(href) == (href if safe else "")
    assert safe_href(href, absolute=True) == (href if absolute else "")


def test_alone_it_brings_its_colours_and_only_links_that_work_anywhere() -> None:
    points = (Point(FIRST, 1.2, href="/runs/1"), Point(FIRST + DAY, 1.3, href="https://x.org/2"))
    alone = line_chart([Series("a", points)], title="t", embedded=False)
    root = parsed(alone)
    assert "prefers-color-scheme: dark" in alone
    assert [link.get("href") for link in root.iter(f"{NAMESPACE}a")] == ["https://x.org/2"]
    embedded = line_chart([Series("a", points)], title="t")
    assert "<style" not in embedded
    assert "var(" not in alone  # other viewers than browsers know no variables
    used = set(re.findall(r'class="([^"]*)"', alone))
    roles = {word[2:] for words in used for word in words.split() if re.match("[fs]-", word)}
    assert roles <= set(COLOURS)
    for role in roles:
        assert f".f-{role}{{fill:" in alone


def test_the_style_sheet_has_the_same_colours() -> None:
    sheet = asset("charts", "charts.css")
    found = re.findall(r"--chart-(\w+): light-dark\((#\w+), (#\w+)\);", sheet)
    assert found == [(role, light, dark) for role, (light, dark) in COLOURS.items()]
    assert sheet.count("--chart-paper:") == 1
    for role in COLOURS:
        assert f".chart .f-{role} {{ fill: var(--chart-{role}); }}" in sheet
        assert f".chart .s-{role} {{ stroke: var(--chart-{role}); }}" in sheet


def test_series_differ_in_more_than_colour() -> None:
    root = parsed(line_chart([series(f"s{i}", 4, seed=i) for i in range(8)], title="t"))
    keys = groups(root, "chart-key")
    assert [key.get("data-name") for key in keys] == [f"s{i}" for i in range(8)]
    lines = [key.findall(f"{NAMESPACE}path")[0] for key in keys]
    shapes = [key.findall(f"{NAMESPACE}path")[1].get("d", "") for key in keys]
    assert len({re.sub(r"[\d.]+", "", shape) + str(len(shape) // 30) for shape in shapes}) >= 5
    dashes = [line.get("stroke-dasharray") for line in lines]
    assert all(a != b for a, b in pairwise(dashes))
    assert not groups(parsed(line_chart([series("only", 4)], title="t")), "chart-key")


def test_changes_have_their_place() -> None:
    marks = (
        (FIRST + 3 * DAY, "−8 %"),
        (FIRST + 3.1 * DAY, "too close to be written"),
        (FIRST + 900 * DAY, "outside"),
    )
    root = parsed(line_chart([series("a", 8)], title="t", marks=marks))
    found = groups(root, "chart-mark")
    assert len(found) == 2
    assert "−8 %" in texts(root)
    assert "too close to be written" not in texts(root)
    assert "outside" not in texts(root)
    told = [title.text or "" for group in found for title in group.iter(f"{NAMESPACE}title")]
    assert told[1].startswith("too close to be written · 2026-10-06")
    (line,) = found[0].iter(f"{NAMESPACE}line")
    (group,) = groups(root, "chart-series")
    assert float(line.get("x1", "0")) == pytest.approx(rows(group)[3][0], abs=0.1)


@pytest.mark.parametrize(
    "points",
    [
        (),
        (Point(FIRST, math.nan),),
        (Point(FIRST, math.inf),),
        (Point(math.nan, 1.0),),
        (Point(FIRST, 1.0),),
        (Point(FIRST, 0.0), Point(FIRST + 1, 0.0)),
        (Point(FIRST, -5.0), Point(FIRST + 1, 1e300)),
        (Point(1.0, 1.0), Point(2.0, 1.0)),
        (Point(FIRST, 1.0, math.nan, math.inf),),
        (Point(FIRST, 1.0, mark="failed"),),
        (Point(FIRST, 1.0), Point(FIRST, 1.1)),
    ],
)
def test_odd_points_never_break_a_chart(points: tuple[Point, ...]) -> None:
    for unit in ("ratio", "s", "bytes", "share", "widgets"):
        made = line_chart([Series("a", points)], title="t", unit=unit)
        assert "nan" not in made.lower()
        assert "inf" not in made.lower()
        parsed(made)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(*(st.floats() for _ in range(4))), max_size=5),
    st.sampled_from(["ratio", "s", "bytes", "share", ""]),
)
def test_any_numbers_make_a_sound_chart(
    numbers: list[tuple[float, float, float, float]], unit: str
) -> None:
    points = tuple(Point(*four) for four in numbers)
    made = line_chart([Series("a", points)], title="t", unit=unit)
    for path in parsed(made).iter(f"{NAMESPACE}path"):
        assert not re.search("nan|inf", path.get("d", ""))


def test_a_chart_without_a_title_still_says_what_it_is() -> None:
    root = parsed(line_chart([series("a", 3), series("b", 3)], title=""))
    assert root.get("aria-label") == (
        "6 points, 2026-10-03 04:00 UTC to 2026-10-05 04:00 UTC. Series: a, b."
    )


def test_nothing_is_said_to_be_nothing() -> None:
    assert "no values here" in texts(parsed(line_chart([], title="t")))


def test_a_chart_needs_no_numpy() -> None:
    code = (
        "import sys\nfrom torchstone.show.charts import *\n"
        "line_chart([Series('a', (Point(1.8e9, 1.0),))], title='t')\n"
        "assert 'numpy' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
