"""A run read back from its JSON compares as the run itself; a bad file is a sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.track.made import Plant, keys, view
from torchstone import stats
from torchstone.interop import find_format
from torchstone.records import Outcome, RunView, UsageError
from torchstone.show.run_data import compare_document, run_dumps
from torchstone.track import compare, side_of
from torchstone.track.documents import read_document


def written(made: RunView, path: Path) -> str:
    path.write_text(run_dumps(made, stats.summarise(made.complete)), encoding="ascii")
    return str(path)


def test_a_file_compares_as_the_run_it_was_written_from(tmp_path: Path) -> None:
    crash = {"model04": Plant(arm=0.2), "model09": Plant(outcome=Outcome.CRASH)}
    base, new = view(1), view(2, plants=crash, run_id="run-new")
    partly = replace(new, cases=new.cases[:-2])
    sides = [
        read_document(written(one, tmp_path / f"{n}.json")) for n, one in enumerate((base, partly))
    ]
    there, here = compare(*sides), compare(side_of(base), side_of(partly))
    one, other = compare_document(there), compare_document(here)
    assert one["base"] == other["base"]
    assert one["new"] == other["new"]
    assert one["marks"] == other["marks"]
    close(one["groups"], other["groups"])
    close(one["cases"], other["cases"])


def close(one: Any, other: Any) -> None:
    """Equal but for the rounding of nanoseconds written as seconds."""
    if isinstance(one, dict):
        assert list(one) == list(other)
        for name in one:
            close(one[name], other[name])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            close(*pair)
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-7)
    else:
        assert one == other


def test_other_tools_records_keep_their_definitions(tmp_path: Path) -> None:
    files = find_format("hud-v3").write(view(1))
    path = tmp_path / "hud.json"
    path.write_bytes(next(iter(files.values())))
    side = read_document(str(path))
    assert {case.definition for case in side.cases} == {-1}
    assert "another tool's figures" in compare(side_of(view(1)), side).refused


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.update(schema=2), "schema is 2"),
        (lambda d: d.update(run=[]), "`run` or `cases`"),
        (lambda d: d.update(cases={}), "`run` or `cases`"),
        (lambda d: d["cases"].append(7), "case 3 is not an object"),
        (lambda d: d["cases"].append(d["cases"][0]), "twice"),
        (lambda d: d["cases"][0].update(outcome="fine"), "`outcome` is 'fine'"),
        (lambda d: d["cases"][0].update(speedup="2"), "`speedup` is not a number"),
        (lambda d: d["cases"][0].update(speedup=True), "`speedup` is not a number"),
        (lambda d: d["cases"][0].update(model=["m"]), "`model` is not a text"),
        (lambda d: d["cases"][0].update(model="m" * 9999), "`model` is not a text"),
        (lambda d: d["cases"][0].update(model="\ud800"), "`model` is not a text"),
        (lambda d: d["cases"][0].pop("definition"), "`definition`"),
        (lambda d: d["run"].update(method={"definition": "1"}), "`method.definition`"),
    ],
)
def test_a_file_that_was_tampered_with_is_named(tmp_path: Path, change: Any, said: str) -> None:
    path = tmp_path / "odd.json"
    data = json.loads(Path(written(view(1, keys(3)), path)).read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError, match=r"odd\.json") as caught:
        read_document(str(path))
    assert said in caught.value.message


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", "7", '{"schema": 1, "arms": []}', "[" * 5000, '{"a": NaN}', "\ufeff{}"],
)
def test_what_is_no_run_is_said_to_be_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"other\.json is not"):
        read_document(str(path))


def test_numbers_beyond_reason_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    data = json.loads(Path(written(view(1, keys(3)), path)).read_text())
    data["cases"][0].update(
        speedup=1e300,
        base_s=10**400,
        new_s=-1.0,
        new_peak_bytes=10**30,
        log_error=1e999,
        threads=2.0,
    )
    path.write_text(json.dumps(data))
    case = read_document(str(path)).cases[0]
    assert case.speedup is case.base_ns is case.new_ns is case.new_peak_bytes is None
    assert case.log_error is None
    assert case.key.threads == 2


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["run", "case"]),
    st.sampled_from(
        [
            "id",
            "git",
            "method",
            "threads",
            "level",
            "checks",
            "command",
            "verdict",
            "log_error",
            "interval",
            "compile_cold_s",
        ]
    ),
    _values,
)
def test_no_content_breaks_the_reader(tmp_path: Path, where: str, name: str, value: Any) -> None:
    path = tmp_path / "fuzz.json"
    data = json.loads(Path(written(view(1, keys(2)), path)).read_text())
    (data["run"] if where == "run" else data["cases"][0])[name] = value
    path.write_text(json.dumps(data))
    try:
        side = read_document(str(path))
    except UsageError:
        return
    compare(side, side)
