"""Targets by name, fresh inputs from seeds, and nests."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchstone.measure.evidence import fingerprint, leaf_of, raw_bytes
from torchstone.records import ArmSpec, UsageError
from torchstone.workloads import (
    Inputs,
    Workload,
    check_target,
    draw,
    load_workload,
    map_nest,
    normalise_inputs,
    parse_target,
    walk,
)


@pytest.mark.parametrize(
    ("text", "kind", "place", "name", "direct"),
    [
        ("model.py:make", "file", "model.py", "make", False),
        ("model.py", "file", "model.py", "make", False),
        ("a/b.py:fn()", "file", "a/b.py", "fn", True),
        ("C:x/b.py:fn", "file", "C:x/b.py", "fn", False),
        ("pkg.mod:Class.make", "module", "pkg.mod", "Class.make", False),
    ],
)
def test_the_parts_of_a_target(text: str, kind: str, place: str, name: str, direct: bool) -> None:
    found = parse_target(text)
    assert (found.kind, found.place, found.name, found.direct) == (kind, place, name, direct)


def test_a_path_from_home_is_one_in_quotes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As stored commands have it, quoted, so that no shell spells it out."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model.py").write_text("def make(): return (abs, (-3,))\n")
    assert check_target("~/model.py:make").place == str(tmp_path / "model.py")
    assert check_target("~/model.py").text == f"{tmp_path}/model.py:make"
    assert load_workload(ArmSpec("a", "~/model.py:make"), str).inputs == (-3,)
    with pytest.raises(UsageError, match=f"There is no file {tmp_path}/other.py"):
        check_target("~/other.py:make")
    assert parse_target("~no-such-user\0/x.py").place == "~no-such-user\0/x.py"


@pytest.mark.parametrize("text", ["", ":", "x.py:", "x.py:1a", "nowhere:BERT model", "x.py:a()()"])
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(UsageError):
        parse_target(text)


@given(st.text(max_size=30))
def test_any_text_is_a_target_or_a_usage_error(text: str) -> None:
    try:
        check_target(text)
    except UsageError:
        return


@pytest.mark.parametrize(
    ("source", "name", "found"),
    [
        ("def make(): pass", "make", True),
        ("from os import *", "anything", True),
        ("globals()['x'] = 1", "x", True),
        ("def __getattr__(n): pass", "x", True),
        ("make = lambda: 1", "make", True),
        ("def build(): pass", "make", False),
        ("this is no python", "make", True),
    ],
)
def test_names_are_looked_up_without_importing(
    tmp_path: Path, source: str, name: str, found: bool
) -> None:
    path = tmp_path / "t.py"
    path.write_text(source)
    if found:
        assert check_target(f"{path}:{name}").name == name
    else:
        with pytest.raises(UsageError, match=f"has no '{name}'"):
            check_target(f"{path}:{name}")


def test_a_factory_may_ask_for_the_seed(tmp_path: Path) -> None:
    (tmp_path / "seeded_target.py").write_text("def make(seed): return (abs, (seed,))\n")
    phases: list[str] = []
    made = load_workload(
        ArmSpec("a", f"{tmp_path / 'seeded_target.py'}:make", seed=42), phases.append
    )
    assert made.inputs == (42,)
    assert phases == ["import", "build"]


@pytest.mark.parametrize(
    ("given_inputs", "args", "kwargs"),
    [
        ((1, 2), (1, 2), {}),
        ([1, 2], (1, 2), {}),
        ({"a": 1}, (), {"a": 1}),
        (None, (), {}),
        (3, (3,), {}),
        (Inputs((1,), {"b": 2}), (1,), {"b": 2}),
    ],
)
def test_inputs_in_any_form(given_inputs: Any, args: tuple[Any, ...], kwargs: Any) -> None:
    found = normalise_inputs(given_inputs)
    assert (found.args, dict(found.kwargs)) == (args, kwargs)


def test_equal_seeds_draw_equal_inputs_and_others_differ() -> None:
    workload = Workload(abs, (np.arange(100.0), {"ids": np.array([5, 3, 9, 1])}))
    one, same, other = (draw(workload, seed).args for seed in (1, 1, 2))
    assert np.array_equal(one[0], same[0])
    assert not np.array_equal(one[0], other[0])
    assert sorted(one[0]) == sorted(workload.inputs[0])
    assert sorted(one[1]["ids"]) == [1, 3, 5, 9]


def test_order_that_means_something_is_kept() -> None:
    offsets, mask = np.array([0, 3, 7]), np.array([True, False, True])
    drawn = draw(Workload(abs, (offsets, mask)), 5).args
    assert np.array_equal(drawn[0], offsets)
    assert np.array_equal(drawn[1], mask)
    assert drawn[0] is not offsets


def test_drawing_leaves_the_example_alone() -> None:
    example = np.arange(10.0)[::-1]
    before = example.copy()
    draw(Workload(abs, (example,)), 3).args[0][:] = 0
    assert np.array_equal(example, before)


@dataclass
class Pair:
    left: Any
    right: Any


Named = namedtuple("Named", "x y")


def test_a_nest_is_walked_with_paths() -> None:
    nest = {"a": [1, (2, None)], "b": Named(3, Pair(4, OrderedDict(k=5)))}
    assert list(walk(nest, "output")) == [
        ("output.a[0]", 1),
        ("output.a[1][0]", 2),
        ("output.b.x", 3),
        ("output.b.y.left", 4),
        ("output.b.y.right.k", 5),
    ]
    assert map_nest([1, (2, None), {"k": Named(3, 4)}], lambda v: v * 10) == [
        10,
        (20, None),
        {"k": Named(30, 40)},
    ]


def test_a_long_list_of_numbers_is_one_leaf() -> None:
    values = list(range(1000))
    assert list(walk({"v": values}, "output")) == [("output.v", values)]
    leaf = leaf_of("output.v", values)
    assert (leaf.kind, leaf.dtype, leaf.shape) == ("python", "int64", (1000,))
    assert raw_bytes(values, 1 << 20) == ("i8", np.arange(1000, dtype="<i8").tobytes())
    assert raw_bytes([*values, 0.5], 1 << 20)[0] == "f8"
    assert raw_bytes([*values, 1 << 70], 1 << 20)[0] == "text"
    assert len(list(walk([*values, "x"], "output"))) == 1001
    assert fingerprint([("v", values)]) != fingerprint([("v", values[::-1])])


def columns(array: Any) -> Any:
    return array[:, ::2]


@pytest.mark.parametrize(
    "laid_out",
    [columns, lambda a: a[::3, 4:9], lambda a: a.T, lambda a: a[3:, 1], lambda a: a[:, ::2].T],
    ids=["columns", "block", "transposed", "one column", "columns, transposed"],
)
@pytest.mark.parametrize("make", [torch.tensor, np.array], ids=["torch", "numpy"])
def test_fresh_inputs_lie_in_memory_as_the_given_ones(make: Any, laid_out: Any) -> None:
    example = laid_out(make([[float(row * 16 + i) for i in range(16)] for row in range(12)]))
    drawn = draw(Workload(abs, (example,)), 5).args[0]

    def strides(one: Any) -> tuple[int, ...]:
        return tuple(one.stride() if isinstance(one, torch.Tensor) else one.strides)

    assert strides(drawn) == strides(example)
    assert sorted(drawn.flatten().tolist()) == sorted(example.flatten().tolist())
    assert drawn.flatten().tolist() != example.flatten().tolist()


def test_inputs_whose_elements_share_memory_are_drawn_apart() -> None:
    example = torch.arange(4.0).expand(3, 4)
    drawn = draw(Workload(abs, (example,)), 5).args[0]
    assert drawn.is_contiguous()
    assert sorted(drawn.flatten().tolist()) == sorted(example.flatten().tolist())
