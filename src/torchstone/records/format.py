"""Numbers for people: seconds, ratios, bytes and percentages in a few characters."""

from __future__ import annotations

import math

MISSING = "-"
"""Shown where there is no number, or one that is not finite."""

_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_LEAST_TIME = 1e-12
_MOST_TIME = 1e6
_LEAST_RATIO = 1e-3
_MOST_RATIO = 1e5
_MOST_PERCENT = 1e5
COARSE, FINE = 2, 3
"""Decimals of a ratio near 1."""
_NEAR = (0.05, 20.0)
"""Two times whose ratio lies within this read well in one unit."""


def _significant(value: float, digits: int) -> float:
    """`value` rounded to so many significant digits."""
    return float(f"{value:.{digits - 1}e}")


def _exponent(value: float) -> int:
    """The decimal exponent, free of the rounding of log10 (`1000.0` is 3)."""
    return int(f"{value:e}".partition("e")[2])


def _digits(value: float, digits: int) -> str:
    """A positive number in fixed notation with so many significant digits, zeros kept."""
    return f"{value:.{max(0, digits - 1 - _exponent(value))}f}"


def finite(value: float | None) -> float | None:
    """The number, or None where there is none that a file can hold."""
    return value if value is not None and math.isfinite(value) else None


def _usable(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def time_unit(seconds: float, digits: int = 4) -> tuple[float, str]:
    """The scale and name of the unit in which this time reads best."""
    rounded = _significant(abs(seconds), digits)
    for scale, name in _TIME_UNITS:
        if rounded >= scale:
            return scale, name
    return _TIME_UNITS[-1]


def format_seconds(seconds: float | None, digits: int = 4, *, ascii_only: bool = False) -> str:
    """`1.234 ms`: the unit that fits, so many significant digits, at most 11 characters.

    The rounding comes before the choice of unit, so that `999.99 µs` reads `1.000 ms`.
    """
    if seconds is None or not _usable(seconds):
        return MISSING
    if seconds == 0:
        return "0 s"
    sign, size = ("-" if seconds < 0 else ""), _significant(abs(seconds), digits)
    if not _LEAST_TIME <= size < _MOST_TIME:
        return f"{sign}{size:.1e} s"
    scale, unit = time_unit(size, digits)
    shown = _significant(size / scale, digits)
    return f"{sign}{_digits(shown, digits)} {'us' if ascii_only and unit == 'µs' else unit}"


def format_change(
    base: float | None, new: float | None, arrow: str = "→", *, ascii_only: bool = False
) -> str:
    """`12.3 → 9.34 ms`: two times in the unit of the first; each with its own where they are far
    apart or one is missing."""
    if base is None or new is None or not (_usable(base) and _usable(new)):
        known = any(value is not None and _usable(value) for value in (base, new))
        pair = (format_seconds(value, 3, ascii_only=ascii_only) for value in (base, new))
        return f" {arrow} ".join(pair) if known else ""
    near = base > 0 and _NEAR[0] <= new / base <= _NEAR[1] and _LEAST_TIME <= base < _MOST_TIME
    if not near:
        pair = (format_seconds(value, 3, ascii_only=ascii_only) for value in (base, new))
        return f" {arrow} ".join(pair)
    scale, unit = time_unit(base, 3)
    shown = (_digits(_significant(value / scale, 3), 3) for value in (base, new))
    return f" {arrow} ".join(shown) + f" {'us' if ascii_only and unit == 'µs' else unit}"


def ratio_decimals(value: float, interval: tuple[float, float] | None) -> int:
    """Decimals worth showing: one digit of the interval's half-width, between two and three.

    Large ratios get fewer, so that about four significant digits are never exceeded.
    """
    wanted = COARSE
    if interval is not None and all(math.isfinite(end) for end in interval):
        half = abs(interval[1] - interval[0]) / 2
        wanted = FINE if half < 10**-2 else COARSE
    return fewer_decimals(value, wanted)


def fewer_decimals(value: float, wanted: int) -> int:
    """So many decimals for a ratio near 1, fewer for a large one."""
    return max(0, wanted - (max(0, _exponent(value)) if value and _usable(value) else 0))


def format_ratio(
    ratio: float | None, decimals: int | None = None, *, ascii_only: bool = False
) -> str:
    """`1.52×`; without `decimals`, three significant digits."""
    return _ratio(ratio, decimals) + ("" if not _usable(ratio) else "x" if ascii_only else "×")


def format_interval(
    interval: tuple[float, float] | None, decimals: int, *, ascii_only: bool = False
) -> str:
    """`1.50–1.54`."""
    if interval is None:
        return ""
    return ("-" if ascii_only else "–").join(_ratio(end, decimals) for end in interval)


def _ratio(ratio: float | None, decimals: int | None) -> str:
    if ratio is None or not _usable(ratio):
        return MISSING
    if ratio == 0:
        return "0"
    sign, size = ("-" if ratio < 0 else ""), abs(ratio)
    rounded = _significant(size, 3)
    if not _LEAST_RATIO <= rounded < _MOST_RATIO:
        return f"{sign}{rounded:.1e}"
    if decimals is not None and size >= 10**-decimals:
        return f"{sign}{size:.{decimals}f}"
    return sign + _digits(rounded, 3)


def format_bytes(count: float | None) -> str:
    """`12.3 MiB`: binary units, three significant digits, at most 9 characters or so."""
    if count is None or not _usable(count):
        return MISSING
    sign, size, unit = ("-" if count < 0 else ""), abs(float(count)), 0
    while round(size, 0 if unit else None) >= 1000 and unit < len(_BYTE_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    if unit == 0:
        return f"{sign}{size:.0f} B"
    if size >= _MOST_RATIO:
        return f"{sign}{size:.1e} {_BYTE_UNITS[unit]}"
    return f"{sign}{_digits(max(size, 1e-3), 3)} {_BYTE_UNITS[unit]}"


def format_si(value: float, unit: str = "") -> str:
    """`93.3 GFLOP/s`: three significant digits or so, under the decimal prefix that fits."""
    scaled, prefix = _prefixed(value)
    size = abs(scaled)
    decimals = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    shown = f"{scaled:.1e}" if 0 < size < 0.01 else f"{scaled:.{decimals}f}"
    return f"{shown} {prefix}{unit}".rstrip()


def format_tick(value: float, unit: str = "") -> str:
    """`10 G`, `0.1`: a round value in as few characters as it takes."""
    scaled, prefix = _prefixed(value)
    return f"{scaled:g} {prefix}{unit}".rstrip()


def _prefixed(value: float) -> tuple[float, str]:
    for scale, prefix in _PREFIXES:
        if abs(value) >= scale * 0.9995:
            return value / scale, prefix
    return value, ""


def format_count(value: float) -> str:
    """`16,236`, `12.5`: a count, or a mean of counts."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.1f}"


def as_much(ratio: float, *, ascii_only: bool = False) -> str:
    """`2.94× as much`: of something of which more is not better, new over base."""
    return f"{format_ratio(ratio, ascii_only=ascii_only)} as much"


def format_percent(fraction: float | None, *, signed: bool = False) -> str:
    """`0.42 %`, `3.1 %`, `12 %`: two digits or so; `signed` puts a plus before gains."""
    if fraction is None or not _usable(fraction):
        return MISSING
    percent = fraction * 100
    size = _significant(abs(percent), 2) if percent else 0.0
    sign = "-" if percent < 0 else "+" if signed and percent > 0 else ""
    if size >= _MOST_PERCENT:
        return f"{sign}{size:.1e} %"
    decimals = 0 if size >= 10 else 1 if size >= 1 else 2
    return f"{sign}{abs(percent):.{decimals}f} %"


def half_width(value: float, interval: tuple[float, float]) -> float | None:
    """The longer arm of an interval as a share of its value; None without one."""
    if not (value and all(math.isfinite(end) for end in (value, *interval))):
        return None
    return max(abs(interval[1] - value), abs(value - interval[0])) / abs(value)


def percent(share: float) -> str:
    """`31 %`, `3.1 %`, `0.31 %`: in the middle of a sentence, so nothing for zero but `0 %`."""
    size = abs(share) * 100
    # The bounds are where rounding would give one digit more.
    decimals = 0 if size >= 9.95 or size == 0 else 1 if size >= 0.995 else 2
    return f"{share * 100:.{decimals}f} %"


def count(amount: int, one: str, many: str = "") -> str:
    """`1 process`, `3 processes`, `1,200 cases`."""
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"


def times(speedup: float) -> str:
    """`1.4×`, `11×`; near 1 with two decimals, because there they matter."""
    if not _usable(speedup) or speedup <= 0:
        return MISSING
    digits = 3 if 0.1 <= speedup < 1.5 else 2
    shown = _digits(_significant(speedup, digits), digits)
    return f"{shown[:4] if '.' in shown else shown}×"


def faster_range(low: float, high: float) -> str:
    """`1.1× to 11× faster`, from the lowest and highest time after ÷ before."""
    return f"{times(1 / high)} to {times(1 / low)} faster"
