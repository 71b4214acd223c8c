"""Raw samples by turn, and intervals by name."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import accumulate
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.show.chart_cases import HOSTILE, NAMESPACE, groups, parsed, paths, texts
from tests.show.synthetic_result import arm, compiled
from torchstone.records import Measurement
from torchstone.show.charts import (
    IntervalRow,
    SampleTurn,
    Strip,
    interval_chart,
    strip_chart,
    strip_of,
)
from torchstone.show.charts.intervals import MOST_DOTS
from torchstone.show.rows import figures


def drawn_of(measurement: Measurement) -> Strip:
    return strip_of(measurement, figures(measurement, 0.05))


def probed(**probes: tuple[int, ...]) -> Measurement:
    """Two processes of one turn each; four samples between probes that the test chooses."""
    made = arm()
    first, second = made.turns[0], made.turns[8]
    chosen = [
        replace(
            turn,
            index=0,
            replicate=process,
            wall_ns=(100, 102, 104, 130),
            cpu_ns=(100, 102, 104, 130),
            probe_every=2,
            probe_ns=probes[f"p{process}"],
        )
        for process, turn in enumerate((first, second))
    ]
    return replace(made, turns=tuple(chosen), loops=1)


def test_a_sample_is_dirty_where_a_probe_beside_it_ran_slow() -> None:
    strip = drawn_of(probed(p0=(1000, 1010, 1200), p1=(2000, 2000, 2000)))
    assert [(turn.process, turn.index) for turn in strip.turns] == [(0, 0), (1, 0)]
    assert strip.turns[0].samples == pytest.approx((100e-9, 102e-9, 104e-9, 130e-9))
    assert strip.turns[0].dirty == {2, 3}  # the last probe is 20 % above its process's floor
    assert strip.turns[1].dirty == frozenset()  # slower than the other process, but steady
    assert strip.name == "eager"
    assert strip.floor is not None
    assert strip.typical is not None
    assert strip.floor <= strip.typical


def test_without_probes_nothing_is_called_dirty() -> None:
    strip = drawn_of(probed(p0=(), p1=()))
    assert [turn.dirty for turn in strip.turns] == [frozenset(), frozenset()]


def dots(made: str, colour: str) -> int:
    found = paths(parsed(made), f"s-{colour}")
    return sum(len(re.findall(r"h0(?=M|$)", path.get("d", ""))) for path in found)


def crosses(made: str) -> int:
    drawn = [path for name in ("s-blue", "s-main") for path in paths(parsed(made), name)]
    found = [path for path in drawn if path.get("opacity")]
    return sum(path.get("d", "").count("m-2-2") for path in found)


def test_every_sample_is_drawn_once_and_the_dirty_ones_are_marked() -> None:
    strips = [drawn_of(arm()), drawn_of(compiled())]
    made = strip_chart(strips, title="samples")
    above = 0
    for text in texts(parsed(made)):
        if found := re.search(r"(\d+) slower than shown", text):
            above += int(found[1])
    every = sum(len(turn.samples) for strip in strips for turn in strip.turns)
    dirty = sum(len(turn.dirty) for strip in strips for turn in strip.turns)
    assert 0 < dirty < every
    triangles = sum(
        path.get("d", "").count("Z")
        for colour in ("f-blue", "f-main")
        for path in paths(parsed(made), colour)
    )
    assert triangles == above > 0
    legend = 2  # the disc beside each name is a dot, too
    drawn = dots(made, "blue") + dots(made, "main") - legend
    assert drawn + crosses(made) + triangles == every
    assert crosses(made) <= dirty
    assert f"{sum(len(t.dirty) for t in strips[0].turns)} while the core ran slow" in texts(
        parsed(made)
    )


def test_each_turn_tells_its_figures_and_each_process_its_name() -> None:
    turns = (
        SampleTurn(0, 0, (0.010, 0.012)),
        SampleTurn(0, 1, (0.011, 0.013), frozenset({1})),
        SampleTurn(1, 0, (0.010,)),
    )
    root = parsed(strip_chart([Strip("eager", turns)], title="t"))
    told = [
        (area.find(f"{NAMESPACE}title").text or "")  # type: ignore[union-attr]
        for area in root.iter(f"{NAMESPACE}rect")
    ]
    assert told == [
        "eager, process 1, turn 1: 2 samples, 10.0 ms to 12.0 ms",
        "eager, process 1, turn 2: 2 samples, 11.0 ms to 13.0 ms, 1 while the core ran slow",
        "eager, process 2, turn 1: 1 sample, 10.0 ms to 10.0 ms",
    ]
    small = strip_chart([Strip("eager", turns)], title="t", coarse=True)
    assert "eager, process 1, 2 turns: 4 samples, 10.0 ms to 13.0 ms" in small
    assert {"process 1", "process 2"} <= set(texts(root))


def test_very_many_samples_keep_each_turns_ends_and_say_so() -> None:
    turns = tuple(
        SampleTurn(p, t, tuple(0.01 + 1e-6 * ((i * 7919) % 1000) for i in range(1000)))
        for p in range(4)
        for t in range(10)
    )
    made = strip_chart([Strip("eager", turns, 0.01, 0.0105)], title="t")
    assert len(made) < 200_000
    drawn = dots(made, "blue") - 1
    assert MOST_DOTS * 0.9 < drawn <= MOST_DOTS + 2 * len(turns)
    assert "every 8th between, of 40,000" in " ".join(texts(parsed(made)))


@settings(max_examples=40, deadline=None)
@given(
    st.text(),
    st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=6),
)
def test_any_samples_and_names_make_a_sound_chart(name: str, samples: list[float]) -> None:
    turn = SampleTurn(0, 0, tuple(samples), frozenset({0, 99}))
    for embedded in (True, False):
        made = strip_chart([Strip(name, (turn,))], title=name, embedded=embedded)
        root = parsed(made)
        assert ("<style>" in made) == (not embedded)
        assert all("nan" not in path.get("d", "") for path in root.iter(f"{NAMESPACE}path"))


def rows() -> list[IntervalRow]:
    return [
        IntervalRow("quick", 1.3, 1.25, 1.35, "better"),
        IntervalRow("slow", 0.8, 0.78, 0.82, "worse"),
        IntervalRow("alike", 1.001, 0.99, 1.01, "same"),
        IntervalRow("upward", 1.04, 1.0, 1.08, "not-worse"),
        IntervalRow("downward", 0.96, 0.92, 1.0, "not-better"),
        IntervalRow("unclear", 1.1, 0.2, 9.0, "unsure"),
    ]


def test_rows_stand_in_order_with_their_figures() -> None:
    found = texts(parsed(interval_chart(rows(), title="t")))
    names = [text for text in found if text in {row.name for row in rows()}]
    assert names == ["quick", "slow", "alike", "upward", "downward", "unclear"]
    assert "1.30× (1.25–1.35)" in found
    assert {"better", "worse", "the same", "cannot tell"} <= set(found)
    assert {"not worse", "not better"} <= set(found)


def corners_of(path: ElementTree.Element) -> tuple[list[float], list[float]]:
    """Of a polygon, across and down: the first corner by its place, the others by steps."""
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", path.get("d", ""))]
    return list(accumulate(numbers[::2])), list(accumulate(numbers[1::2]))


def test_what_is_better_lies_on_the_right_and_the_signs_differ_in_shape() -> None:
    root = parsed(interval_chart(rows(), title="t"))
    drawn = groups(root, "chart-row")
    (better,) = paths(drawn[0], "f-good")
    (worse,) = paths(drawn[1], "f-bad")
    (one,) = [line for line in root.iter(f"{NAMESPACE}line") if line.get("stroke-dasharray")]
    (right, up), (left, down) = corners_of(better), corners_of(worse)
    assert max(left) < float(one.get("x1", "0")) < min(right)
    assert up[0] < up[1]
    assert down[0] > down[1]
    assert paths(drawn[5], "f-paper")  # hollow
    assert not paths(drawn[2], "f-paper")


def test_an_interval_that_runs_out_of_the_frame_has_arrows() -> None:
    drawn = groups(parsed(interval_chart(rows(), title="t")), "chart-row")
    wide = next(p for p in paths(drawn[5], "s-slate") if "H" in p.get("d", "")).get("d", "")
    kept = next(p for p in paths(drawn[0], "s-good") if "H" in p.get("d", "")).get("d", "")
    assert wide.count("l") == 4
    assert kept.count("l") == 0


def test_an_odd_verdict_is_refused() -> None:
    with pytest.raises(ValueError, match="verdict"):
        interval_chart([IntervalRow("a", 1.0, verdict="great")], title="t")


@settings(max_examples=40, deadline=None)
@given(
    st.text() | st.just(HOSTILE),
    st.floats(),
    st.none() | st.floats(),
    st.none() | st.floats(),
)
def test_any_row_makes_a_sound_chart(
    name: str, value: float, low: float | None, high: float | None
) -> None:
    row = IntervalRow(name, value, low, high)
    for embedded in (True, False):
        made = interval_chart([row], title=name, embedded=embedded)
        for path in parsed(made).iter(f"{NAMESPACE}path"):
            assert not re.search("nan|inf", path.get("d", ""))
        assert ("<style>" in made) == (not embedded)


def test_nothing_to_show_is_said() -> None:
    assert "no rows" in texts(parsed(interval_chart([], title="t")))
    assert math.isfinite(float(parsed(strip_chart([], title="t")).get("height", "nan")))
