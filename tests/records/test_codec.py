"""Data that is no record: the message names the place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from torchstone.records import RecordError, from_data


@dataclass(frozen=True)
class Inner:
    """One field."""

    size: int


@dataclass(frozen=True)
class Outer:
    """Every kind of container."""

    many: tuple[Inner, ...] = ()
    pair: tuple[float, str] = (0.0, "")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"many": [{"size": 1}, {"size": "x"}]}, "Outer.many[1].size: expected int, got 'x'"),
        ({"pair": [1, 2]}, "Outer.pair[1]: expected str, got 2"),
        (
            {"pair": [10**400, ""]},
            "Outer.pair[0]: expected float, got an integer too large for one",
        ),
        ({"pair": [1]}, "Outer.pair: expected 2 items, got 1"),
        ({"many": {}}, "Outer.many: expected a list, got dict"),
        ({"other": 1}, "Outer: unknown field 'other'"),
        ({"many": [{}]}, "Outer.many[0]: field 'size' is missing"),
    ],
)
def test_the_place_is_named(data: Any, said: str) -> None:
    with pytest.raises(RecordError) as caught:
        from_data(Outer, data)
    assert str(caught.value) == said
