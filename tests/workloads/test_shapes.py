"""Inputs of several shapes: the batch varied, or a workload's own shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from torchstone.records import NotSupported, UsageError
from torchstone.workloads import Inputs, Workload, describe_shapes, draw, draw_at, walk


def batches(workload: Workload, count: int) -> list[set[int]]:
    """First dimensions of every array, shape by shape."""
    found = []
    for shape in range(count + 1):
        made = draw_at(workload, 7, shape)
        arrays = [leaf for _, leaf in walk((made.args, made.kwargs), "") if np.ndim(leaf)]
        found.append({len(leaf) for leaf in arrays})
    return found


@pytest.mark.parametrize(
    ("batch", "sizes"), [(8, [8, 9, 10, 11, 12]), (2, [2, 3, 4, 5, 6]), (1, [2, 3, 4, 5, 6])]
)
def test_the_batch_is_varied_and_never_one(batch: int, sizes: list[int]) -> None:
    workload = Workload(
        abs, {"x": np.arange(batch * 3.0).reshape(batch, 3), "y": [np.arange(batch), 5]}
    )
    assert batches(workload, 4) == [{size} for size in sizes]
    words = "batch " + ", ".join(str(size) for size in sizes[1:])
    assert describe_shapes(workload, 7, 4) == words


def test_rows_are_the_drawn_ones_and_then_the_first_ones_again() -> None:
    workload = Workload(abs, (np.arange(600.0).reshape(2, 300), 4, np.float64(2)))
    base = draw(workload, 3).args[0]
    longer, number, scalar = draw_at(workload, 3, 3).args
    assert np.array_equal(longer, base[[0, 1, 0, 1, 0]])
    assert (number, scalar) == (4, 2)
    again = draw_at(workload, 3, 3).args[0]
    assert np.array_equal(longer, again)
    assert not np.array_equal(longer, draw_at(workload, 4, 3).args[0])


def test_a_function_of_the_seed_is_varied_as_well() -> None:
    def inputs(seed: int) -> Any:
        return np.full((3, 2), seed)

    assert draw_at(Workload(abs, inputs), 5, 2).args[0].tolist() == [[5, 5]] * 5


def test_a_tensor_keeps_its_layout_and_its_gradient() -> None:
    torch = pytest.importorskip("torch")
    image = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    weight = torch.randn(2, 5, requires_grad=True)
    image_at, weight_at = draw_at(Workload(abs, (image, weight)), 0, 1).args
    assert image_at.shape == (3, 3, 4, 4)
    assert image_at.is_contiguous(memory_format=torch.channels_last)
    assert weight_at.shape == (3, 5)
    assert weight_at.is_leaf
    assert weight_at.requires_grad


@dataclass
class Box:
    x: Any


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ((1, "text", [1, 2]), "no tensor or array"),
        ((np.float64(3),), "no tensor or array"),
        ((np.zeros((4, 2)), np.zeros((1, 2))), "first dimensions of 1, 4"),
        ((np.zeros((0, 2)),), "empty batch"),
    ],
)
def test_what_cannot_be_varied_says_why_and_what_to_do(inputs: Any, reason: str) -> None:
    workload = Workload(abs, inputs)
    for ask in (lambda: draw_at(workload, 0, 0), lambda: describe_shapes(workload, 0, 4)):
        with pytest.raises(NotSupported, match="give the Workload an at_shape") as caught:
            ask()
        assert reason in str(caught.value)


def test_a_container_that_cannot_be_changed_is_found_before_anything_is_timed() -> None:
    workload = Workload(abs, (Box(np.zeros((4, 2))),))
    with pytest.raises(NotSupported, match="no tuple, list or dict"):
        describe_shapes(workload, 0, 4)


def test_a_workload_may_bring_its_own_shapes() -> None:
    asked: list[tuple[int, int]] = []

    def at_shape(seed: int, shape: int) -> Any:
        asked.append((seed, shape))
        return {"ids": np.zeros((2, 16 + 8 * shape))}

    workload = Workload(abs, {"ids": np.zeros((2, 16))}, at_shape=at_shape)
    assert draw_at(workload, 3, 0).kwargs["ids"].shape == (2, 16)
    assert asked == []
    made = draw_at(workload, 3, 2)
    assert isinstance(made, Inputs)
    assert made.kwargs["ids"].shape == (2, 32)
    assert asked == [(3, 2)]
    assert describe_shapes(workload, 3, 4) == "4 of the workload's own"


@pytest.mark.parametrize(("sizes", "pair"), [([4, 4, 5], "0 and 1"), ([4, 5, 5], "1 and 2")])
def test_own_shapes_must_differ(sizes: list[int], pair: str) -> None:
    workload = Workload(abs, (np.zeros(4),), at_shape=lambda seed, shape: (np.zeros(sizes[shape]),))
    with pytest.raises(UsageError, match=f"same shapes for {pair}"):
        describe_shapes(workload, 0, 2)
