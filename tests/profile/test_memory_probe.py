"""Memory: a planted allocation is found on its line; a peak has its owner."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable

import pytest

from tests.targets import profiled
from tests.targets.profiled import GROWTH, MIB
from torchstone.profile.formats.own import check_profile
from torchstone.profile.probes.base import ProbeOptions
from torchstone.profile.probes.memory import MemoryProbe
from torchstone.records import LineTable, Profile


def watched(options: ProbeOptions, times: int = 1) -> Profile:
    probe = MemoryProbe(options)
    assert not probe.unavailable()
    probe.start()
    for _ in range(times):
        profiled.grows()
    profile = probe.stop()
    check_profile(profile)
    assert sys.gettrace() is None
    return profile


def line_of(text: str) -> int:
    lines, first = inspect.getsourcelines(profiled.grows)
    return first + next(i for i, line in enumerate(lines) if text in line)


def increment(table: LineTable, line: int) -> int:
    return table.increment[table.lines.index(line)]


@pytest.mark.parametrize(
    "options",
    [ProbeOptions(functions=("grows",)), ProbeOptions(files=(profiled.__file__,))],
    ids=["named", "whole file"],
)
def test_a_planted_allocation_is_found_on_its_line(options: ProbeOptions) -> None:
    profile = watched(options, times=3)
    table = next(table for table in profile.lines if table.file == profiled.__file__)
    made, freed = line_of("large = "), line_of("del large")
    assert increment(table, made) == pytest.approx(3 * GROWTH, abs=12 * MIB)
    assert increment(table, freed) == pytest.approx(-3 * GROWTH, abs=12 * MIB)
    others = [line for line in table.lines if line not in (made, freed)]
    assert all(abs(increment(table, line)) < 12 * MIB for line in others)
    assert table.hits[table.lines.index(made)] == 3
    assert table.bytes[table.lines.index(made)] >= GROWTH
    assert "* GROWTH" in table.text[made - 1]


def test_the_timeline_shows_the_peak() -> None:
    profile = watched(ProbeOptions(functions=("grows",)), times=4)
    memory = profile.memory
    assert memory is not None
    assert len(memory.time_ns) == len(memory.resident) >= 2
    assert list(memory.time_ns) == sorted(memory.time_ns)
    assert memory.peak_bytes == max(memory.resident)


def test_a_function_that_never_ran_is_said() -> None:
    profile = watched(ProbeOptions(functions=("grows", "no_such")))
    assert profile.problems == ("Never ran: no_such.",)


def test_a_debugger_in_its_place_is_said() -> None:
    sys.settrace(lambda *_: None)
    try:
        assert "sys.settrace" in MemoryProbe().unavailable()
    finally:
        sys.settrace(None)


@pytest.mark.slow
def test_the_peak_of_tensors_has_its_owner() -> None:
    torch = pytest.importorskip("torch")
    kept = torch.zeros(MIB)

    def owner() -> object:
        large = torch.ones(8 * MIB)  # 32 MiB of float32
        return (large + kept.sum()).sum()

    probe = MemoryProbe(ProbeOptions())
    probe.start()
    owner()
    profile = probe.again(probe.stop(), owner)
    check_profile(profile)
    memory = profile.memory
    assert memory is not None
    assert 64 * MIB <= memory.peak_bytes < 66 * MIB  # `large` and the sum beside it
    largest = memory.alive[0]
    assert largest.bytes == 32 * MIB
    names = [profile.frames[frame].name for frame in largest.stack]
    assert "owner" in names
    assert names[-1].startswith("aten::")
    before = [one for one in memory.alive if "from before the step" in one.what]
    assert any(one.bytes >= 4 * MIB for one in before)
    assert memory.at_peak is not None
    assert sum(memory.at_peak.own) == memory.peak_bytes
    assert max(memory.heap) == memory.peak_bytes
    assert memory.peak_ns in memory.time_ns


@pytest.mark.slow
def test_gradients_that_a_step_gives_back_are_not_alive_at_its_peak() -> None:
    """Torch's profiler is silent about memory from before: the old gradients are gone all the same.

    In float64, which nothing else in this process has.
    """
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(1024, 1024, dtype=torch.float64)  # 8 MiB, and as much of gradients
    given = torch.ones(4, 1024, dtype=torch.float64)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        net(given).sum().backward()
        optimizer.step()

    def kept_gradients() -> None:
        net(given).sum().backward()

    def before(work: Callable[[], None]) -> dict[str, int]:
        probe = MemoryProbe(ProbeOptions())
        probe.start()
        work()
        memory = probe.again(probe.stop(), work).memory
        assert memory is not None
        found = [one for one in memory.alive if one.what.startswith("from before the step")]
        return {one.what.rpartition(": ")[2]: one.bytes for one in found}

    step()
    assert [type(p.grad) for p in net.parameters()] == [torch.Tensor] * 2  # Python knows them
    freed = before(step)
    assert freed["Parameter float64"] >= 8 * MIB
    assert freed["Tensor float64"] < MIB
    assert before(kept_gradients)["Tensor float64"] >= 8 * MIB
