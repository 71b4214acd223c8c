"""Dates on an axis: round days and hours, in UTC, in as few letters as it takes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from functools import lru_cache

_HOUR, _DAY = 3600, 86_400
_WEEK = 7 * _DAY
_STEPS = (60, 300, 900, _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, _WEEK, 2 * _WEEK)
_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600)
_MONTH_S = 30.44 * _DAY
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONDAY = 4 * _DAY  # the first Monday after the epoch, a Thursday
FIRST_DATE = 1e8
"""Smaller numbers are not dates of runs (they would lie before 1973) but numbers."""
LAST_DATE = 2.5e11  # the year 9892; what `datetime` can hold


def is_date(seconds: float) -> bool:
    """Whether a place on the axis is a time."""
    return FIRST_DATE <= seconds <= LAST_DATE


@lru_cache(maxsize=4096)  # the charts of a page have the same moments
def format_date(seconds: float) -> str:
    """`2026-11-16 05:54 UTC`; a plain number as it is."""
    return f"{_at(seconds):%Y-%m-%d %H:%M} UTC" if is_date(seconds) else f"{seconds:g}"


def date_marks(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """At most `most` round moments within the ends, each with its words."""
    wide, most = high - low, max(1, most)
    for step in _STEPS:
        if wide / step <= most:
            return _even(low, high, step)
    for months in _MONTHS:
        if wide / (_MONTH_S * months) <= most:
            return _monthly(low, high, months)
    return []


def _even(low: float, high: float, step: int) -> list[tuple[float, str]]:
    """Hours by the clock, days by name; hours without a midnight among them say their day once."""
    base = _MONDAY if step >= _WEEK else 0
    first = -(-(low - base) // step) * step + base
    moments = [first + number * step for number in range(int((high - first) // step) + 1)]
    if not any(moment % _DAY == 0 for moment in moments):
        return [(at, f"{_day(at)}, {_hour(at)}" if at == first else _hour(at)) for at in moments]
    return [(at, _hour(at) if at % _DAY else _day(at)) for at in moments]


def _day(seconds: float) -> str:
    at = _at(seconds)
    return f"{_NAMES[at.month - 1]} {at.day}"


def _hour(seconds: float) -> str:
    return f"{_at(seconds):%H:%M}"


def _monthly(low: float, high: float, months: int) -> list[tuple[float, str]]:
    return [
        (moment.timestamp(), str(moment.year) if moment.month == 1 else _NAMES[moment.month - 1])
        for moment in _firsts(low, high)
        if (moment.year * 12 + moment.month - 1) % months == 0
    ]


def _firsts(low: float, high: float) -> Iterator[datetime]:
    """The first day of each month within the ends."""
    moment = _at(low).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    while moment.timestamp() <= high:
        if moment.timestamp() >= low:
            yield moment
        year, month = divmod(moment.year * 12 + moment.month, 12)
        if year > 9999:
            return
        moment = moment.replace(year=year, month=month + 1)


def _at(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=seconds)
