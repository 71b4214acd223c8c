"""Every record, and every message of a worker, through JSON and back."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from torchstone.records import RecordError, from_data, to_data

MODULES = (
    *(f"torchstone.records.{name}" for name in ("measurement", "result", "run", "tracking")),
    *(f"torchstone.records.{name}" for name in ("profile", "ledger", "monitoring", "tuning")),
    "torchstone.measure.channel",
)
# Of series in memory, with arrays: they never become JSON.
NO_JSON = {
    *("ChangeGroup", "ChangeReport", "ImportedHistory", "ImportedRun", "LevelChange"),
    "MissingData",
}
SCALARS: Mapping[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(-(2**127), 2**127),
    float: st.floats(),
    str: st.text(max_size=5),
}
few = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking a result takes minutes
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def records() -> Iterator[type[Any]]:
    for name in MODULES:
        for _, found in inspect.getmembers(importlib.import_module(name), inspect.isclass):
            if found.__name__ in NO_JSON:
                continue
            if dataclasses.is_dataclass(found) and found.__module__ == name:
                yield found


RECORDS = list(records())


@cache
def values(kind: Any) -> st.SearchStrategy[Any]:
    """Of a type that a record's field may have."""
    args = typing.get_args(kind)
    if kind in SCALARS:
        return SCALARS[kind]
    if type(None) in args:
        return st.none() | values(next(arg for arg in args if arg is not type(None)))
    if typing.get_origin(kind) is tuple:
        if args[1:] == (Ellipsis,):
            return st.lists(values(args[0]), max_size=2).map(tuple)
        return st.tuples(*map(values, args))
    if args:
        return st.dictionaries(SCALARS[args[0]], values(args[1]), max_size=2)
    if issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{f.name: values(hints[f.name]) for f in dataclasses.fields(kind)})


def test_all_are_looked_at() -> None:
    assert {"Result", "Run", "Profile", "Ledger", "RunComparison", "SoloReport"} <= {
        record.__name__ for record in RECORDS
    }


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
@few
@given(data=st.data())
def test_a_record_comes_back_from_json_as_it_was(record: type[Any], data: st.DataObject) -> None:
    made = data.draw(values(record))
    text = json.dumps(to_data(made), allow_nan=False)
    assert repr(from_data(record, json.loads(text))) == repr(made)  # NaN is not equal to itself


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
@few
@given(data=st.data())
def test_whatever_else_stands_in_a_field_is_a_record_or_refused(
    record: type[Any], data: st.DataObject
) -> None:
    good = to_data(data.draw(values(record)))
    name = data.draw(st.sampled_from([*good, "unknown"]))
    changed = {**good, name: data.draw(anything)}
    try:
        back = from_data(record, changed)
    except RecordError:
        return
    assert isinstance(back, record)
    assert name != "unknown"
