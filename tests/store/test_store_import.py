"""Documents from elsewhere: marked as such, bounded, and refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_cases import make_result

from torchstone.records import UsageError, to_data
from torchstone.store import limits, open_store

Data = dict[str, Any]


def _document() -> Data:
    found: Data = json.loads(json.dumps(to_data(make_result("aa11"))))
    return found


def test_an_imported_result_carries_its_origin(db: Path) -> None:
    with open_store(str(db)) as store:
        made = store.import_document(_document(), "shared/run.json")
        assert made.origin == "shared/run.json"
        assert store.load("aa11") == made
        assert store.list()[0].origin == "shared/run.json"
        with pytest.raises(UsageError, match="already stored"):
            store.import_document(_document(), "again.json")


def test_a_document_cannot_claim_to_be_from_here(db: Path) -> None:
    assert _document()["origin"] == "here"
    with open_store(str(db)) as store:
        assert store.import_document(_document(), "x.json").origin == "x.json"
        for origin in ("", "here", "a\x1b[2J"):
            with pytest.raises(UsageError, match="cannot be an origin"):
                store.import_document(_document(), origin)


def _nest(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _first_turn(data: Data) -> Data:
    turn: Data = data["arms"][0]["turns"][0]
    return turn


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: d.update(schema=2), "newer Torchstone"),
        (lambda d: d["arms"][1].update(schema=9), "newer Torchstone"),
        (lambda d: d.pop("method"), "'method' is missing"),
        (lambda d: d.update(surprise=1), "unknown field 'surprise'"),
        (lambda d: d.update(arms={}), "expected a list"),
        (lambda d: d.update(arms=[], comparisons=[]), "0 arms"),
        (lambda d: d.update(arms=[d["arms"][0]] * 2), "same name"),
        (lambda d: d["comparisons"][0].update(new="ghost"), "'ghost', which is not an arm"),
        (lambda d: d["arms"][0].update(loops=0), "0 loops"),
        (lambda d: d["arms"][0].update(outcome="great"), "not a Outcome"),
        (lambda d: d.update(label="\x1b[2Jgone"), "not printable"),
        (lambda d: d.update(label="x" * 501), "too long"),
        (lambda d: d.update(id="last"), "cannot be the id"),
        (lambda d: d.update(id="a b"), "cannot be the id"),
        (lambda d: d.update(command=_nest(100_000)), "nested deeper"),
        (lambda d: d["method"].update(seed=2**64), "more than 64 bits"),
        (lambda d: d.update(label=b"bytes"), "not a type that JSON has"),
        (lambda d: d.update({7: 1}), "field"),
        (lambda d: _first_turn(d).update(wall_ns=[1, 2.5]), "list of integers"),
        (lambda d: _first_turn(d).update(wall_ns=[1, True]), "list of integers"),
    ],
)
def test_a_bad_document_is_refused_with_a_reason(
    db: Path, spoil: Callable[[Data], object], message: str
) -> None:
    data = _document()
    spoil(data)
    with open_store(str(db)) as store:
        with pytest.raises(UsageError, match=message) as caught:
            store.import_document(data, "x.json")
        assert caught.value.remedy
        assert store.list() == []


def test_what_is_not_an_object_is_refused(db: Path) -> None:
    with open_store(str(db)) as store, pytest.raises(UsageError, match="not a JSON object"):
        store.import_document([], "x.json")  # type: ignore[arg-type]


def test_sizes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_VALUES", 100)
    monkeypatch.setattr(limits, "MAX_TEXT", 100)
    limits.check_bounds({"a": list(range(98))})
    with pytest.raises(UsageError, match="more than 100 values"):
        limits.check_bounds({"a": list(range(101))})
    with pytest.raises(UsageError, match="more than 100 values"):
        limits.check_bounds([[] for _ in range(101)])
    with pytest.raises(UsageError, match="characters of text"):
        limits.check_bounds({"k" * 60: "v" * 60})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_any_spoiled_field_is_taken_or_refused_never_a_crash(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    document = _document()
    owner = data.draw(
        st.sampled_from([document, document["method"], document["arms"][0], _first_turn(document)])
    )
    owner[data.draw(st.sampled_from(sorted(owner)))] = data.draw(JSON)
    db = tmp_path_factory.getbasetemp() / "spoiled.db"
    with open_store(str(db)) as store:
        try:
            made = store.import_document(document, "x.json")
        except UsageError:
            return
        # NaN is not equal to itself, so the text is compared.
        assert json.dumps(to_data(store.load(made.id))) == json.dumps(to_data(made))
