"""What is asked for, made into arms."""

from __future__ import annotations

import pytest

import torchstone
from tests.targets.support import HONEST
from torchstone.lab.request import BenchRequest, make_arms, vary_shapes
from torchstone.records import DYNAMIC_SHAPES, UsageError


@pytest.mark.parametrize(
    ("vs", "arms", "shapes"),
    [
        (("inductor",), (), 1),
        (("inductor", "inductor+dynamic"), (), DYNAMIC_SHAPES),
        (("aot_eager+fullgraph+dynamic",), (), DYNAMIC_SHAPES),
        ((), ("name=mine variant=inductor+dynamic",), DYNAMIC_SHAPES),
    ],
)
def test_one_dynamic_arm_gives_all_arms_the_same_shapes(
    vs: tuple[str, ...], arms: tuple[str, ...], shapes: int
) -> None:
    made = vary_shapes(make_arms(BenchRequest((HONEST,), vs=vs, arms=arms)))
    assert len(made) == 1 + len(vs) + len(arms)
    assert {arm.shapes for arm in made} == {shapes}


def test_one_word_is_not_its_letters_and_a_time_is_a_number() -> None:
    with pytest.raises(UsageError, match="There is no variant 'inducter'"):
        torchstone.bench(HONEST, vs="inducter")
    with pytest.raises(UsageError, match=r"budget must be a number, not '5s'\. Times are in sec"):
        torchstone.bench(HONEST, budget="5s")  # type: ignore[arg-type]
