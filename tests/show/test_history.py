"""The plot of `torchstone history`: dots stand at their values, changes at their runs."""

from __future__ import annotations

import numpy as np
import pytest

from torchstone.records import SeriesKey, SeriesRun
from torchstone.show.regressions import HEIGHT, plot
from torchstone.stats.series import IMPORTED, Line, Lines

KEY = SeriesKey("asv", "numpy", "bench", "", "time", "seconds", "lower", "m", "")


def drawn(values: list[float]) -> list[str]:
    runs = {i: SeriesRun(f"r{i}", 86_400.0 * i, f"{i:040x}") for i in range(len(values))}
    line = Line(KEY, "i1", list(runs), np.array(values))
    return plot(Lines([line], {IMPORTED: runs}), line, [], 80).splitlines()


@pytest.mark.parametrize(
    ("value", "label"), [(12.1e-9, "12.1 ns"), (0.0, "0 s"), (-2.0, "-2.00 s")]
)
def test_equal_values_stand_beside_their_own_label(value: float, label: str) -> None:
    rows = drawn([value] * 3)
    (row,) = [line for line in rows if "•" in line]
    assert row.partition("┤")[0].strip() == label
    assert row.count("•") == 3
    assert "e-" not in "".join(rows)


def test_the_largest_is_at_the_top_and_the_least_at_the_bottom() -> None:
    rows = drawn([1.0, 2.0, 4.0])
    assert rows[0].split() == ["4.00", "s", "┤", "•"]
    assert rows[HEIGHT - 1].split() == ["1.00", "s", "┤•"]
