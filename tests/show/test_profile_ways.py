"""Several ways side by side in the terminal: shares, and what each cost."""

from __future__ import annotations

from dataclasses import replace

from tests.show.synthetic_profile import counted, sampled
from torchstone.records import Cost, Counter, Estimate, MemoryUse, Profile
from torchstone.show.profile_text import profile_text, ways_text


def cost(ratio: float, written: int) -> Cost:
    return Cost(
        Estimate("paired blocks", ratio, (ratio - 0.1, ratio + 0.1), 0.95, 8),
        Estimate("paired blocks", 1.0, (0.95, 1.05), 0.95, 8),
        1e-3,
        ratio * 1e-3,
        written,
        3 << 20,
    )


def ways(work: str, first: Cost | None = None, second: Cost | None = None) -> list[Profile]:
    return [
        replace(counted(), how="count", label=f"{work} (count)", cost=first),
        replace(sampled(), how="sample", label=f"{work} (sample)", cost=second),
    ]


def test_each_variant_has_a_table_of_its_own() -> None:
    eager = ways("net eager", cost(1.5, 4096), cost(1.01, 1))
    other = ways("net inductor", cost(2.5, 4096), cost(1.02, 1))
    text = ways_text([*eager, *other])
    assert text.count("side by side") == 2
    assert text.count("what profiling cost") == 2
    first, second = text.split("net inductor, side by side")
    assert first.startswith("net eager, side by side")
    assert "1.50× (1.40–1.60)" in first
    assert "2.50× (2.40–2.60)" in second
    assert "1.50× (1.40–1.60)" not in second


def test_one_way_of_each_of_two_works_is_no_comparison() -> None:
    one, other = ways("a")[0], ways("b")[1]
    assert ways_text([one, other]) == ""


def test_costs_stand_in_one_table() -> None:
    first, second = ways("net", cost(1.5, 4096), cost(1.01, 1 << 20))
    lines = ways_text([first, second]).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("what profiling cost"))
    assert lines[start + 1].split() == ["way", "time", "control", "written", "memory"]
    assert "1.50× (1.40–1.60)" in lines[start + 2]
    assert "4.00 KiB" in lines[start + 2]
    assert "1.01× (0.91–1.11)" in lines[start + 3]
    assert "3.00 MiB" in lines[start + 3]


def test_without_costs_there_is_no_table_of_them() -> None:
    text = ways_text(ways("net"))
    assert "what profiling cost" not in text
    assert "side by side" in text


def test_a_peak_says_what_it_is_of_and_a_count_whose_it_is() -> None:
    profile = replace(
        counted(),
        memory=MemoryUse(peak_bytes=1 << 20, source="what the step itself took"),
        counters=(Counter("received by network", 4096.0, "bytes", "of all processes"),),
    )
    text = profile_text(profile)
    assert "memory: peak 1.00 MiB" in text
    assert "what the step itself took" in text
    assert "4.00 KiB (of all processes)" in text
