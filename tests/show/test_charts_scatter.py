"""Names of points: each where no other stands, those of the front first."""

from __future__ import annotations

import re

from torchstone.show.charts import ScatterPoint, scatter_chart


def drawn(*points: ScatterPoint) -> tuple[list[tuple[str, float]], str]:
    """The names that are drawn, with the line each stands on; and the whole chart."""
    text = scatter_chart(points, titles=("time", "memory"), title="")
    names = {one.name for one in points}
    found = re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>([^<]+)</text>', text)
    return [(name, float(y)) for y, name in found if name in names], text


def test_names_of_points_in_one_place_stand_on_lines_of_their_own() -> None:
    names, _ = drawn(*(ScatterPoint(f"technique {n}", 1.0, 1.0) for n in range(3)))
    assert len(names) == 3
    assert len({y for _, y in names}) == 3


def test_where_there_is_no_room_the_front_has_its_name_and_the_others_a_tooltip() -> None:
    crowd = [ScatterPoint(f"technique {n}", 1.0, 1.0) for n in range(9)]
    names, text = drawn(*crowd, ScatterPoint("recipe", 0.99, 0.99, front=True))
    assert names[0][0] == "recipe"
    assert len(names) < 10
    assert all(f"{one.name} ·" in text for one in crowd)
