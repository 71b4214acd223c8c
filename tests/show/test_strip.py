"""The strip shows the samples' shape, on one scale for all arms, with the floor marked."""

from __future__ import annotations

from torchstone.show.rows import LEAST_SPAN, axis, common_scale, strip
from torchstone.show.table import ASCII, UNICODE


def test_the_tallest_bar_is_where_most_samples_are() -> None:
    samples = [1.0] * 5 + [1.5] * 40 + [2.0] * 5
    scale = common_scale([samples])
    assert scale is not None
    drawn = strip(samples, 1.0, scale, 21, UNICODE)
    assert len(drawn) == 21
    assert drawn[0] == "│"
    assert drawn[1] == "▁"
    assert drawn.index("█") == 1 + scale.cell(1.5, 20)
    assert drawn.count("·") == 21 - 4


def test_equal_ratios_are_equal_distances_on_a_scale_for_all() -> None:
    scale = common_scale([[1.0, 1.0], [4.0, 4.0]])
    assert scale is not None
    fast, slow = (strip([v] * 9, v, scale, 21, UNICODE) for v in (1.0, 4.0))
    assert fast.index("█") == 1
    assert slow.index("█") == 20
    assert scale.cell(2.0, 20) == 10


def test_one_hiccup_does_not_squash_the_picture() -> None:
    samples = [1.0 + i / 1000 for i in range(100)] + [50.0]
    scale = common_scale([samples])
    assert scale is not None
    assert scale.high < 1.2
    assert strip(samples, 1.0, scale, 20, UNICODE)[-1] != "·"


def test_identical_samples_and_none() -> None:
    scale = common_scale([[1.0] * 9])
    assert scale is not None
    assert scale.high == LEAST_SPAN
    assert strip([1.0] * 9, 1.0, scale, 12, ASCII) == "|@" + " " * 10
    assert common_scale([[], []]) is None


def test_axis_names_both_ends_in_its_width() -> None:
    scale = common_scale([[1e-3, 2e-3]])
    assert scale is not None
    drawn = axis(scale, 30, UNICODE, ascii_only=False)
    assert len(drawn) == 30
    assert drawn.startswith("1.00 ms ─")
    assert drawn.endswith("─ 1.02 ms")
    assert axis(scale, 9, UNICODE, ascii_only=False) == "1.00 ms"
