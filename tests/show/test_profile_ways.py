"""Several ways side by side in the terminal: shares, and what each cost."""

from __future__ import annotations

from dataclasses import replace

from tests.show.synthetic_profile import counted, sampled
from torchstone.records import Cost, Estimate
from torchstone.show.profile_ways import ways_text


def cost(ratio: float, written: int) -> Cost:
    return Cost(
        Estimate("paired blocks", ratio, (ratio - 0.1, ratio + 0.1), 0.95, 8),
        Estimate("paired blocks", 1.0, (0.95, 1.05), 0.95, 8),
        1e-3,
        ratio * 1e-3,
        written,
        3 << 20,
    )


def test_costs_stand_in_one_table() -> None:
    first = replace(counted(), how="count", cost=cost(1.5, 4096))
    second = replace(sampled(), how="sample", cost=cost(1.01, 1 << 20))
    lines = ways_text([first, second]).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("what profiling cost"))
    assert lines[start + 1].split() == ["way", "time", "control", "written", "memory"]
    assert "1.50× (1.40–1.60)" in lines[start + 2]
    assert "4.00 KiB" in lines[start + 2]
    assert "1.01× (0.91–1.11)" in lines[start + 3]
    assert "3.00 MiB" in lines[start + 3]


def test_without_costs_there_is_no_table_of_them() -> None:
    text = ways_text([replace(counted(), cost=None), replace(sampled(), cost=None)])
    assert "what profiling cost" not in text
    assert "side by side" in text
