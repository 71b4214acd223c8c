"""The maker of SVG and the logarithmic axes."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.records.format import format_si, format_tick
from torchstone.show.svg import Axis, Plot, Svg, axis_around


@given(st.text())
def test_any_text_makes_a_sound_file(text: str) -> None:
    svg = Svg(100, 50, text, text)
    svg.text((1, 2), text, turn=3)
    root = ET.fromstring(svg.render())
    assert [element.tag.rpartition("}")[2] for element in root][-1] == "text"


def test_only_known_colours() -> None:
    with pytest.raises(ValueError, match="colour"):
        Svg(10, 10, "t").line((0, 0), (1, 1), 'ink" onload="x')


def test_an_axis_and_its_marks() -> None:
    axis = Axis(1, 10_000, log=True)
    assert Plot(0, 8, 4, 0, axis, axis).x(100) == pytest.approx(4)
    assert axis.powers() == [1, 10, 100, 1000, 10_000]
    assert Axis(3, 30, log=True).powers() == [5, 10, 20]
    around = axis_around([2, 8, 0], 2)
    assert (around.low, around.high) == (1, 16)
    assert axis_around([], 2).low > 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (93.34e9, "93.3 GFLOP/s"),
        (999.99e6, "1.00 GFLOP/s"),
        (0.5, "0.50 FLOP/s"),
        (1e-4, "1.0e-04 FLOP/s"),
    ],
)
def test_rates_for_people(value: float, text: str) -> None:
    assert format_si(value, "FLOP/s") == text


@pytest.mark.parametrize(("value", "text"), [(1e10, "10 G"), (0.1, "0.1"), (1e15, "1 P")])
def test_marks_for_people(value: float, text: str) -> None:
    assert format_tick(value) == text
