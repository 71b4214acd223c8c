"""Numbers for people: right unit, few characters, never out of order."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.records.format import (
    format_bytes,
    format_change,
    format_interval,
    format_percent,
    format_ratio,
    format_seconds,
    ratio_decimals,
)

SCALES = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "us": 1e-6, "ns": 1e-9}
BYTES = {u: 1024.0**i for i, u in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB"))}
positive = st.floats(min_value=1e-15, max_value=1e12)


def read_seconds(text: str) -> float:
    number, unit = text.split(" ")
    return float(number) * SCALES[unit]


def read_bytes(text: str) -> float:
    number, unit = text.split(" ")
    return float(number) * BYTES[unit]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.23449e-3, "1.234 ms"),
        (812.3e-6, "812.3 µs"),
        (999.99e-6, "1.000 ms"),
        (1e-3, "1.000 ms"),
        (4.2e-9, "4.200 ns"),
        (0.25e-9, "0.2500 ns"),
        (59.5, "59.50 s"),
        (1234.0, "1234 s"),
        (0.0, "0 s"),
        (-2e-3, "-2.000 ms"),
        (None, "-"),
        (math.nan, "-"),
        (math.inf, "-"),
    ],
)
def test_seconds_read_as_a_person_writes_them(seconds: float | None, text: str) -> None:
    assert format_seconds(seconds) == text


def test_seconds_in_ascii_only() -> None:
    assert format_seconds(2e-6, ascii_only=True) == "2.000 us"


@given(positive)
def test_seconds_are_short_and_close(seconds: float) -> None:
    text = format_seconds(seconds)
    assert len(text) <= 11
    wanted = 5e-4 if 1e-12 <= seconds < 9.9e5 else 0.06
    assert read_seconds(text) == pytest.approx(seconds, rel=wanted * 1.001)


@given(positive, positive)
def test_seconds_keep_the_order(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert read_seconds(format_seconds(low)) <= read_seconds(format_seconds(high)) * (1 + 1e-12)


@given(st.floats())
def test_no_float_breaks_a_format(value: float) -> None:
    texts = (
        format_seconds(value),
        format_ratio(value),
        format_bytes(value),
        format_percent(value, signed=True),
    )
    assert all(0 < len(text) <= 13 for text in texts), texts


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(1.5197, "1.52×"), (0.0123, "0.0123×"), (1234.5, "1230×"), (12.34, "12.3×"), (None, "-")],
)
def test_ratio(ratio: float | None, text: str) -> None:
    assert format_ratio(ratio) == text


@given(positive, positive)
def test_ratios_are_short_and_keep_the_order(a: float, b: float) -> None:
    low, high = sorted((a, b))
    texts = format_ratio(low), format_ratio(high)
    assert all(len(text) <= 9 for text in texts)
    assert float(texts[0][:-1]) <= float(texts[1][:-1])


def test_a_narrow_interval_earns_a_third_decimal() -> None:
    narrow, wide = (1.001, 1.005), (0.95, 1.05)
    assert format_ratio(1.003, ratio_decimals(1.003, narrow)) == "1.003×"
    assert format_interval(narrow, ratio_decimals(1.003, narrow)) == "1.001–1.005"
    assert format_ratio(1.003, ratio_decimals(1.003, wide)) == "1.00×"
    assert format_interval((1.0, math.inf), 2) == "1.00–-"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.977 KiB"),
        (1024, "1.00 KiB"),
        (12 * 2**20, "12.0 MiB"),
        (3.5 * 2**30, "3.50 GiB"),
        (-(2**20), "-1.00 MiB"),
        (None, "-"),
    ],
)
def test_bytes(count: float | None, text: str) -> None:
    assert format_bytes(count) == text


@given(st.integers(0, 2**62), st.integers(0, 2**62))
def test_bytes_are_short_and_keep_the_order(a: int, b: int) -> None:
    low, high = sorted((a, b))
    texts = format_bytes(low), format_bytes(high)
    assert all(len(text) <= 9 for text in texts)
    assert read_bytes(texts[0]) <= read_bytes(texts[1])


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0.0042, "0.42 %"), (0.0996, "10 %"), (0.031, "3.1 %"), (0.5, "50 %"), (0.0, "0.00 %")],
)
def test_percent(fraction: float, text: str) -> None:
    assert format_percent(fraction) == text


def test_signed_percent() -> None:
    assert format_percent(0.031, signed=True) == "+3.1 %"
    assert format_percent(-0.031, signed=True) == "-3.1 %"


@given(st.floats(0, 1e3), st.floats(0, 1e3))
def test_percents_keep_the_order(a: float, b: float) -> None:
    low, high = sorted((a, b))
    texts = format_percent(low), format_percent(high)
    assert all(len(text) <= 9 for text in texts)
    assert float(texts[0][:-2]) <= float(texts[1][:-2])


@pytest.mark.parametrize(
    ("base", "new", "text"),
    [
        (12.3e-3, 9.318e-3, "12.3 → 9.32 ms"),
        (999.9e-6, 2e-3, "1.00 → 2.00 ms"),
        (1.2, 0.95, "1.20 → 0.950 s"),
        (12.3e-3, 397e-6, "12.3 ms → 397 µs"),
        (None, 2e-3, "- → 2.00 ms"),
        (2e-3, math.inf, "2.00 ms → -"),
        (0.0, 1e-3, "0 s → 1.00 ms"),
        (None, None, ""),
        (math.nan, None, ""),
    ],
)
def test_two_times_share_a_unit_where_they_can(
    base: float | None, new: float | None, text: str
) -> None:
    assert format_change(base, new) == text


@given(positive, positive)
def test_two_times_are_short_and_true(base: float, new: float) -> None:
    text = format_change(base, new, "->", ascii_only=True)
    assert len(text) <= 26
    first, second = text.split(" -> ")
    unit = f" {second.split()[1]}"
    assert read_seconds(first if " " in first else first + unit) == pytest.approx(base, rel=0.06)
    assert read_seconds(second) == pytest.approx(new, rel=0.06)
