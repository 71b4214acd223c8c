"""The three figures of memory against a workload of known needs, each arm in its own process.

Whatever runs, `Chain` holds its weight, its buffer and one input: three units, in training its
gradient as well, which a step begins by giving back. Beyond the three:

- inference, eager: two, the operand and the result of one op at a time;
- inference, compiled: one, the output of the only kernel;
- training, eager: five, the operands of three sines, and of the first of them to go back the cosine
  and its product (of the second two operands, the gradient, the cosine and its product);
- training, compiled: two, what is saved and the output, later the gradient in its place;
- Adam: two units of state, held between steps; at its own peak the gradient and two temporaries.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.support import settings, target
from tests.targets.tensors import UNIT
from torchstone.conductor.launch import CaseContext, Launcher
from torchstone.conductor.solo import solo_pass
from torchstone.conductor.state import ArmState
from torchstone.records import ArmSpec, Memory, Outcome

pytestmark = pytest.mark.slow
MIB = 2**20
SCALARS = 64
"""Bytes of scalars in a training step: the loss, its gradient, Adam's count of steps."""
PAGES = 6 * MIB
"""Two processes of one program differ by this much beyond their tensors."""


def alone(folder: Path, name: str, variant: str, mode: str = "inference") -> ArmState:
    spec = ArmSpec(variant, target("tensors", name), variant=variant, mode=mode, threads=1)
    state = ArmState(spec)
    inside = folder / f"{name}-{variant}-{mode}"
    inside.mkdir()
    solo_pass(CaseContext(Launcher(inside), settings()), state)
    assert state.outcome is Outcome.OK, state.detail
    return state


def memory_of(state: ArmState) -> Memory:
    assert state.solo is not None
    assert state.solo.memory is not None
    return state.solo.memory


@pytest.mark.parametrize(
    ("name", "variant", "mode", "held", "peak"),
    [
        ("make", "eager", "inference", 3, 5),
        ("make", "inductor", "inference", 3, 4),
        ("make", "eager", "training", 4, 8),
        ("make", "inductor", "training", 4, 5),
        ("make_adam", "eager", "training", 6, 10),
        ("make_adam", "inductor", "training", 6, 8),
    ],
)
def test_tensors_are_known_to_the_byte(
    tmp_path: Path, name: str, variant: str, mode: str, held: int, peak: int
) -> None:
    memory = memory_of(alone(tmp_path, name, variant, mode))
    more = 0 if mode == "inference" else SCALARS
    assert memory.tensor_held_bytes is not None
    assert memory.tensor_peak_bytes is not None
    assert held * UNIT <= memory.tensor_held_bytes <= held * UNIT + more
    assert peak * UNIT <= memory.tensor_peak_bytes <= peak * UNIT + more


def test_what_the_compiler_leaves_is_the_same_at_any_size_and_not_the_models(
    tmp_path: Path,
) -> None:
    cost = []
    for name in ("make", "make_large"):
        base = memory_of(alone(tmp_path, name, "eager"))
        new = memory_of(alone(tmp_path, name, "inductor"))
        assert base.tensor_peak_bytes is not None
        assert new.tensor_peak_bytes is not None
        assert base.tensor_peak_bytes / new.tensor_peak_bytes == 5 / 4
        for memory in (base, new):
            assert memory.overhead_bytes is not None
            assert memory.tensor_peak_bytes is not None
            assert memory.peak_bytes is not None
            # The process's peak is its tensors and what it holds beside them, and inputs of ours.
            known = memory.tensor_peak_bytes + memory.overhead_bytes
            assert memory.peak_bytes > known - PAGES
        assert base.overhead_bytes is not None
        assert new.overhead_bytes is not None
        cost.append(new.overhead_bytes - base.overhead_bytes)
    assert cost[0] == pytest.approx(cost[1], abs=PAGES)
    assert cost[0] > 2 * PAGES


def test_eager_training_is_not_charged_with_the_compiler_that_its_optimizer_imports(
    tmp_path: Path,
) -> None:
    inference = memory_of(alone(tmp_path, "make", "eager")).overhead_bytes
    training = memory_of(alone(tmp_path, "make", "eager", "training")).overhead_bytes
    assert training == pytest.approx(inference, abs=PAGES)


@pytest.mark.parametrize(
    ("name", "said"), [("make_dies", "exited with code 3"), ("make_raises", "do not watch me")]
)
def test_an_arm_never_fails_because_it_is_watched(tmp_path: Path, name: str, said: str) -> None:
    state = alone(tmp_path, name, "eager")
    memory = memory_of(state)
    assert memory.tensor_peak_bytes is None
    assert memory.peak_bytes is not None
    assert len(state.notes) == 1
    assert said in state.notes[0]
