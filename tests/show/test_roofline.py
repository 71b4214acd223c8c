"""The roofline as text, as SVG and as JSON."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.explain.synthetic import MIB, arm, calibration, flops, result
from tests.show.synthetic_result import HOSTILE
from torchstone.explain import Roofline, roofline
from torchstone.show.roofline import (
    GUTTER,
    ROWS,
    ceiling_label,
    roofline_dumps,
    roofline_report,
    roofline_svg,
)
from torchstone.show.table import cells

SVG = "{http://www.w3.org/2000/svg}"


def made(name: str = "eager") -> Roofline:
    return roofline(result(arm(flops(60_000_000, 20 * MIB, 4 * MIB), name=name)), calibration())


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_the_text_fits_and_is_plain(width: int, unicode: bool) -> None:
    text = roofline_report(made(), width=width, unicode=unicode)
    assert max(cells(line) for line in text.splitlines()) <= width
    assert "\x1b" not in text
    assert unicode or text.isascii()


def test_colour_only_when_asked() -> None:
    assert "\x1b[" in roofline_report(made(), color=True)


def plot(text: str, found: Roofline) -> list[str]:
    """The rows of the plot without the peaks' names."""
    rows = [line[GUTTER:] for line in text.splitlines() if line[GUTTER - 1 : GUTTER] == "│"]
    assert len(rows) == ROWS
    for ceiling in found.ceilings:
        for label in (ceiling_label(ceiling), ceiling.name):
            rows = [row.replace(label, " " * len(label)) for row in rows]
    return rows


def test_the_points_stand_where_they_belong() -> None:
    found = made()
    rows = plot(roofline_report(found), found)
    where = {
        mark: (row.index(mark), number)
        for number, row in enumerate(rows)
        for mark in "12"
        if mark in row
    }
    step, op = found.points[0], found.points[1]
    assert step.intensity is not None
    assert op.intensity is not None
    assert op.intensity > step.intensity
    assert where["2"][0] > where["1"][0]  # to the right: more operations for each byte
    assert where["2"][1] <= where["1"][1]  # and not below: at least as many a second


def test_the_text_tells_roofs_points_and_the_verdict() -> None:
    found = made()
    text = roofline_report(found, width=200)
    assert found.sentence in text
    for said in ("fp32 100 GFLOP/s", "DRAM 20.0 GB/s", "L3 80.0 GB/s", "aten.addmm", "FLOP/B"):
        assert said in text
    assert "~900 µs" in text  # of the counting pass, so about


def test_a_point_without_a_formula_is_told_and_not_drawn() -> None:
    text = roofline_report(made())
    assert "\n-  aten.add " in text
    assert not any(mark in row for row in plot(text, made()) for mark in "34")


@pytest.mark.parametrize("name", HOSTILE)
def test_names_from_outside_are_harmless(name: str) -> None:
    found = replace(made(name), target=name)
    text = roofline_report(found)
    assert "\x1b" not in text
    assert max(cells(line) for line in text.splitlines()) <= 100
    svg = roofline_svg(found)
    root = ET.fromstring(svg)
    assert "<script" not in svg
    assert "\x1b" not in svg
    assert {element.tag for element in root.iter()} <= {
        SVG + tag for tag in ("svg", "title", "desc", "style", "rect", "line", "path", "text")
    }


def test_the_picture_stands_alone() -> None:
    svg = roofline_svg(made())
    root = ET.fromstring(svg)
    assert svg.count("http") == 1  # the namespace
    assert "url(" not in svg
    assert "prefers-color-scheme: dark" in svg
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    points = [re.match(r"M([\d.]+) ([\d.]+)a", one.attrib["d"]) for one in root.iter(SVG + "path")]
    assert len(points) == 2
    for point in points:
        assert point is not None
        assert 0 < float(point[1]) < width
        assert 0 < float(point[2]) < height
    texts = [element.text or "" for element in root.iter(SVG + "text")]
    assert "DRAM 20.0 GB/s" in texts
    assert "1" in texts
    assert made().sentence in (root.findtext(SVG + "desc") or "")


def test_the_legend_rows_do_not_overlap() -> None:
    root = ET.fromstring(roofline_svg(made()))
    names = [
        float(element.attrib["y"])
        for element in root.iter(SVG + "text")
        if (element.text or "").startswith(("eager", "aten.")) and element.attrib["x"] != "76"
    ]
    assert len(names) == 4
    assert all(b - a >= 30 for a, b in pairwise(names))


def test_json_has_the_rates() -> None:
    found = made()
    data = json.loads(roofline_dumps(found))
    assert (data["schema"], data["kind"], data["bound"]) == (1, "roofline", found.bound)
    step = data["points"][0]
    assert step["flops_per_s"] == pytest.approx(found.step.rate)
    assert step["flops_per_byte"] == pytest.approx(found.step.intensity)
    assert data["points"][2]["flops_per_s"] is None
    assert data["utilisation"]["compute"] == pytest.approx(found.utilisation.compute)  # type: ignore[union-attr]


def test_one_memory_roof_and_no_peak_can_be_drawn() -> None:
    only = calibration(compute=(), bandwidth=calibration().bandwidth[-1:])
    found = roofline(result(arm(flops(1000, 20 * MIB, 4 * MIB))), only)
    assert "DRAM" in roofline_report(found)
    ET.fromstring(roofline_svg(found))
