"""Tracing with the real torch.profiler."""

from __future__ import annotations

import pytest

from tests.profile.probing import names
from torchstone.profile.child import take
from torchstone.profile.formats.own import check_profile
from torchstone.profile.probes.base import ProbeOptions
from torchstone.profile.probes.count import CountProbe
from torchstone.profile.probes.trace import STEP, TraceProbe

pytestmark = pytest.mark.slow


def test_steps_with_their_ops_functions_and_nothing_around() -> None:
    torch = pytest.importorskip("torch")
    weight = torch.randn(64, 64, requires_grad=True)

    def in_the_step() -> None:
        (torch.randn(16, 64) @ weight).relu().sum().backward()

    in_the_step()
    probe = TraceProbe(ProbeOptions())
    assert not probe.unavailable()
    profile = take(probe, in_the_step, 4)
    check_profile(profile)
    assert profile.steps == 4
    assert profile.problems == ()
    assert not [note for note in profile.notes if "cut" in note]
    assert {"aten::mm", "in_the_step", STEP} <= names(profile.frames)
    assert not {"pytest_runtest_call", "marked", "take"} & names(
        tuple(profile.frames[frame] for frame in profile.tree.frames)  # type: ignore[union-attr]
    )
    assert profile.spans is not None
    marks = [
        duration
        for frame, duration in zip(profile.spans.frames, profile.spans.duration_ns, strict=True)
        if profile.frames[frame].name == STEP
    ]
    assert len(marks) == 4
    assert 0.5 < sum(marks) / (profile.wall_s * 1e9) <= 1.0
    assert probe.written_bytes > 1000


def test_counting_sees_the_ops_of_a_step() -> None:
    torch = pytest.importorskip("torch")
    left = torch.randn(8, 8)

    def step() -> object:
        return (left @ left).relu() + left @ left

    probe = CountProbe(ProbeOptions())
    profile = probe.again(take(probe, step, 3), step)
    found = {counter.name: counter.value for counter in profile.counters}
    assert (found["op aten.mm"], found["op aten.relu"], found["op aten.add"]) == (2, 1, 1)
    assert found["ops of a step"] == 4
    assert found["tensor allocations of a step"] == 4
    assert found["tensor bytes of a step"] == 4 * 8 * 8 * 4
