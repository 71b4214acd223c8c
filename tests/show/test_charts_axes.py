"""Round values and round dates."""

from __future__ import annotations

import math
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.show.charts.frame import (
    Point,
    Words,
    axis_marks,
    date_marks,
    format_date,
    format_estimate,
    format_value,
    time_axis,
    value_axis,
)
from torchstone.show.svg import Axis, round_ratios, round_values


def utc(*parts: int) -> float:
    return datetime(*parts, tzinfo=timezone.utc).timestamp()  # type: ignore[misc,arg-type]


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12), st.integers(1, 12))
def test_round_values_are_few_even_and_within(low: float, wide: float, most: int) -> None:
    high = low + wide
    if high <= low:
        return
    found = round_values(low, high, most)
    assert len(found) <= most
    slack = 1e-6 * (high - low) + 2 * math.ulp(max(abs(low), abs(high)))
    assert all(low - slack <= value <= high + slack for value in found)
    if most >= 4 and wide > 1e-9 * abs(low):
        assert len(found) >= 1


def test_round_values() -> None:
    assert round_values(0.98, 1.53, 6) == pytest.approx([1.0, 1.1, 1.2, 1.3, 1.4, 1.5])
    assert round_values(0, 1, 5) == pytest.approx([0, 0.5, 1])
    assert round_values(3, 3, 5) == []


def test_short_logarithmic_axes_get_even_marks_and_long_ones_powers() -> None:
    assert round_ratios(Axis(0.6, 1.75, log=True), 6) == pytest.approx(
        [0.6, 0.8, 1.0, 1.2, 1.4, 1.6]
    )
    assert round_ratios(Axis(0.4, 9, log=True), 6) == pytest.approx([0.5, 1, 2, 5])
    assert len(round_ratios(Axis(1e-9, 1e9, log=True), 6)) <= 6


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (utc(2026, 11, 3, 9, 30), utc(2026, 11, 3, 12), ["Nov 3, 10:00", "11:00", "12:00"]),
        (utc(2026, 11, 3, 20), utc(2026, 11, 4, 5), ["21:00", "Nov 4", "03:00"]),
        (
            utc(2026, 11, 3, 9, 30) + 3,  # of a training that is watched
            utc(2026, 11, 3, 9, 30) + 16,
            ["Nov 3, 09:30:05", "09:30:10", "09:30:15"],
        ),
        (utc(2026, 11, 1), utc(2026, 11, 4), ["Nov 1", "Nov 2", "Nov 3", "Nov 4"]),
        (utc(2026, 11, 3), utc(2026, 11, 29), ["Nov 9", "Nov 16", "Nov 23"]),  # Mondays
        (utc(2026, 11, 3), utc(2027, 2, 4), ["Dec", "2027", "Feb"]),
        (utc(2024, 5, 1), utc(2028, 2, 1), ["2025", "2026", "2027", "2028"]),
    ],
)
def test_dates_are_round(low: float, high: float, texts: list[str]) -> None:
    assert [text for _, text in date_marks(low, high, 4)] == texts


@given(st.floats(1e8, 4e9), st.floats(60, 4e9), st.integers(1, 14))
def test_dates_are_few_in_order_and_within(low: float, wide: float, most: int) -> None:
    found = date_marks(low, low + wide, most)
    assert len(found) <= most + 1
    moments = [moment for moment, _ in found]
    assert moments == sorted(moments)
    assert all(low <= moment <= low + wide for moment in moments)


def test_a_number_that_is_no_date_is_told_as_it_is() -> None:
    assert format_date(12.5) == "12.5"
    assert format_date(utc(2026, 11, 16, 5, 54)) == "2026-11-16 05:54 UTC"


def test_a_single_moment_stands_in_the_middle_of_its_day() -> None:
    assert time_axis([]) == Axis(0.0, 1.0)
    assert time_axis([30.0, 10.0, 20.0]) == Axis(10.0, 30.0)
    alone = time_axis([5.0])
    assert (alone.low + alone.high) / 2 == 5.0


@pytest.mark.parametrize(
    ("values", "unit", "log"),
    [
        ([1.0, 19.0], "ratio", False),
        ([1.0, 21.0], "ratio", True),
        ([0.0, 21.0], "s", False),
        ([0.01, 0.9], "share", False),
        ([-1.0, 500.0], "", False),
    ],
)
def test_the_span_asks_for_the_scale(values: list[float], unit: str, log: bool) -> None:
    axis = value_axis(values, [], unit)
    assert axis.log is log
    assert axis.low <= min(values)
    assert axis.high >= max(values)


def test_quiet_values_are_not_blown_up_and_amounts_begin_at_nothing() -> None:
    quiet = value_axis([1.5, 1.5001], [], "ratio")
    assert quiet.high - quiet.low > 0.05
    assert value_axis([2.0, 10.0], [], "s").low == 0.0
    assert value_axis([9.0, 10.0], [], "s").low > 8.0
    assert value_axis([0.95, 0.99], [], "share").high <= 1.0
    assert value_axis([1.0, 1.0], [], "share").high <= 1.0  # no share is more than all
    assert value_axis([0.0, 0.0], [], "breaks").low == 0.0  # and no count less than none


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (1.5213, "ratio", "1.52×"),
        (0.01234, "s", "12.3 ms"),
        (1.3e9, "bytes", "1.21 GiB"),
        (12.0, "models", "12 models"),
    ],
)
def test_values_in_words(value: float, unit: str, words: str) -> None:
    assert format_value(value, unit) == words


def test_intervals_in_words() -> None:
    assert format_estimate(1.5213, (1.49, 1.55)) == "1.52× (1.49–1.55)"
    assert format_estimate(0.0123, (0.012, 0.0126), "s") == "12.3 ms (12.0 ms – 12.6 ms)"
    assert format_estimate(1.5, None) == "1.50×"
    words = Words(Axis(0.010, 0.015), "s")
    assert words(0.01234, (0.0121, 0.0129)) == "12.34 ms (12.10–12.90)"
    assert words(0.01234, None) == "12.34 ms"


def test_an_interval_has_two_ends_in_order() -> None:
    assert Point(0, 1.5, 1.4, 1.6).interval == (1.4, 1.6)
    assert Point(0, 1.5, math.nan, 2.0).interval is None
    assert Point(0, 1.5, 1.4, None).interval is None
    assert Point(0, 1.5, 1.6, 1.4).interval is None


def test_marks_say_their_unit() -> None:
    assert axis_marks(Axis(0.0, 3 * 2**30), "bytes", 4) == [
        (0.0, "0 GiB"),
        (2.0**30, "1 GiB"),
        (2 * 2.0**30, "2 GiB"),
        (3 * 2.0**30, "3 GiB"),
    ]
    assert [text for _, text in axis_marks(Axis(0, 40_000), "FLOP/s", 3)] == [
        "0 kFLOP/s",
        "20 kFLOP/s",
        "40 kFLOP/s",
    ]
