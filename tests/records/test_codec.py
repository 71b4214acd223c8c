"""Data that is no record: the message names the place."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import pytest

from torchstone.records import CaseKey, RecordError, from_data, to_data


@dataclass(frozen=True)
class Inner:
    """One field."""

    size: int


@dataclass(frozen=True)
class Outer:
    """Every kind of container."""

    many: tuple[Inner, ...] = ()
    pair: tuple[float, str] = (0.0, "")
    sizes: tuple[int, ...] = ()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"many": [{"size": 1}, {"size": "x"}]}, "Outer.many[1].size: expected int, got 'x'"),
        ({"pair": [1, 2]}, "Outer.pair[1]: expected str, got 2"),
        (
            {"pair": [10**400, ""]},
            "Outer.pair[0]: expected float, got an integer too large for one",
        ),
        (
            {"many": [{"size": 2**128}]},
            "Outer.many[0].size: expected an integer of at most 128 bits",
        ),
        ({"sizes": [1, -(2**128)]}, "Outer.sizes: expected integers of at most 128 bits"),
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


@pytest.mark.parametrize("values", [(0, math.inf), (1, math.nan, 2), (0, -math.inf)])
def test_a_tuple_that_begins_with_an_int_is_looked_at_whole(values: tuple[float, ...]) -> None:
    data = to_data(values)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert {"Infinity", "NaN", "-Infinity"} & {str(value) for value in data}


def test_two_cases_that_differ_in_threads_have_two_names() -> None:
    one = CaseKey("timm", "resnet18", "small", "inference", "fp32", "inductor", threads=1)
    assert one.name != replace(one, threads=2).name
