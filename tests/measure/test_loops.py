"""The timed loops: what is called with what, when the clock runs, when devices are waited for."""

from __future__ import annotations

import itertools
import timeit
from typing import Any

import pytest

from torchstone.measure import loops
from torchstone.measure.arm import (
    CPU,
    RING_BYTES,
    RING_SLOTS,
    Built,
    accelerator_device,
    compile_statement,
    find_device,
    inputs_bytes,
)
from torchstone.measure.loops import (
    Samples,
    fill,
    fill_without_gc,
    patched_timers,
    statement_block,
    step_block,
)
from torchstone.measure.warmup import MOST_WINDOWS, warm_up
from torchstone.records import ArmSpec, Statement, UsageError
from torchstone.variants import NotSupported, Prepared
from torchstone.workloads import Inputs, Workload


def ring(size: int, keywords: bool = False) -> list[Inputs]:
    return [Inputs((i,), {"k": i} if keywords else {}) for i in range(size)]


@pytest.mark.parametrize("keywords", [False, True])
@pytest.mark.parametrize(("size", "count"), [(5, 1), (5, 2), (7, 3), (3, 8), (4, 4)])
def test_samples_walk_round_the_whole_ring(size: int, count: int, keywords: bool) -> None:
    seen: list[int] = []
    block = step_block(lambda x, k=None: seen.append(x), ring(size, keywords), count)
    rounds = -(-size // count)
    for _ in range(rounds):
        assert block() >= 0
    assert seen == [i % size for i in range(rounds * count)]
    assert set(seen) == set(range(size))


class Recorder:
    """Stands for `torch.accelerator`: we have none, so we watch what would be asked of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def synchronize(self) -> None:
        self.calls.append("wait")

    def reset_peak_memory_stats(self) -> None:
        self.calls.append("reset")

    def max_memory_allocated(self) -> int:
        return 700

    def memory_allocated(self) -> int:
        return 200


@pytest.mark.parametrize("count", [1, 3])
def test_a_device_is_waited_for_before_and_after_each_sample(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    clock = itertools.count()

    def read() -> int:
        recorder.calls.append("clock")
        return next(clock)

    monkeypatch.setattr(loops, "wall_clock", read)
    device = accelerator_device("fake", recorder)
    block = step_block(lambda x: recorder.calls.append("step"), ring(4), count, device.synchronize)
    block()
    block()
    assert recorder.calls == ["wait", "clock", *["step"] * count, "wait", "clock"] * 2


def test_memory_of_a_device_is_its_allocators() -> None:
    device = accelerator_device("fake", Recorder())
    assert device.peak_bytes is not None
    assert device.held_bytes is not None
    assert device.peak_bytes() - device.held_bytes() == 500
    assert device.reset_peak is not None


def test_the_cpu_has_nothing_to_wait_for_and_others_need_torch() -> None:
    assert find_device("cpu") is CPU
    assert CPU.synchronize is None
    with pytest.raises(NotSupported, match="cuda"):
        find_device("cuda:0")


def built(size: int) -> Built:
    workload = Workload(lambda x: x, lambda seed: (bytearray_like(size, seed),))
    return Built(ArmSpec("a", "t"), CPU, workload, Prepared(workload.call, lambda inputs: inputs))


class bytearray_like:
    """Something with a size, as tensors have."""

    def __init__(self, size: int, seed: int) -> None:
        self.nbytes, self.seed = size, seed


@pytest.mark.parametrize(
    ("size", "asked", "slots"),
    [
        (8, 10, 10),
        (8, 10_000, RING_SLOTS),
        (RING_BYTES // 4, 10, 4),
        (RING_BYTES * 3, 10, 2),
        (8, 1, 2),
    ],
)
def test_the_ring_is_fresh_and_bounded(size: int, asked: int, slots: int) -> None:
    made = built(size).ring(1000, asked)
    assert len(made) == slots
    assert inputs_bytes(made[0]) == size
    assert [inputs.args[0].seed for inputs in made] == list(range(1000, 1000 + slots))


def test_samples_and_probes_alternate() -> None:
    order: list[str] = []
    samples = Samples(5, probe_every=2)
    samples.marked = 1
    block, probe = lambda: order.append("s") or 7, lambda: order.append("p") or 3
    fill(samples, block, probe, lambda: order.append("m"))
    assert order == ["p", "s", "m", "s", "m", "p", "s", "s", "p", "s"]
    assert list(samples.wall) == [7] * 5
    assert list(samples.probe) == [3] * 3


def test_statements_are_timed_without_the_collector() -> None:
    import gc

    seen: list[bool] = []
    samples = Samples(2, 1)
    fill_without_gc(samples, lambda: seen.append(gc.isenabled()) or 1, lambda: 1, lambda: None)
    assert seen == [False, False]
    assert gc.isenabled()


def _collect(number: int, timer: Any) -> list[str]:
    """The order of setup, statement and clock by our block."""
    events: list[str] = []
    import builtins

    builtins.torchstone_events = events  # type: ignore[attr-defined]
    try:
        inner = compile_statement(
            Statement("torchstone_events.append('stmt')", "torchstone_events.append('setup')")
        )

        def clock() -> int:
            events.append("clock")
            return 0

        inner(itertools.repeat(None, number), clock)
    finally:
        del builtins.torchstone_events  # type: ignore[attr-defined]
    return events


def test_a_statement_block_does_what_timeit_does() -> None:
    events: list[str] = []

    def clock() -> float:
        events.append("clock")
        return 0.0

    timeit.Timer(
        "e.append('stmt')", "e.append('setup')", timer=clock, globals={"e": events}
    ).timeit(3)
    assert _collect(3, clock) == events == ["setup", "clock", *["stmt"] * 3, "clock"]


def test_a_statement_block_takes_the_clock_it_is_told() -> None:
    inner = compile_statement(Statement("x += 1", "x = 0"))
    assert statement_block(inner, 10, "wall")() >= 0
    assert statement_block(inner, 10, "cpu")() >= 0


@pytest.mark.parametrize("code", ["1 +", "return 1", "yield", "break", "import", "  x = 1"])
def test_code_that_does_not_compile_is_a_usage_error(code: str) -> None:
    with pytest.raises(UsageError, match="statement"):
        compile_statement(Statement(code))
    with pytest.raises(UsageError, match="setup"):
        compile_statement(Statement("pass", code))


def test_text_over_several_lines_is_not_changed() -> None:
    inner = compile_statement(Statement("assert text == 'a\\n\\n    b'", "text = '''a\n\n    b'''"))
    # As with timeit, text inside a line that is indented is part of the code; blank lines stay.
    with pytest.raises(AssertionError):
        inner(itertools.repeat(None, 1), lambda: 0)


def test_warm_up_ends_when_two_windows_agree() -> None:
    found = warm_up(lambda: 1000, 5000, lambda: None)
    assert found.steady
    assert found.first_call_ns == 5000
    assert set(found.wall_ns) == {1000}


def test_warm_up_that_never_settles_says_so() -> None:
    calls = 0

    def slower() -> int:
        nonlocal calls
        calls += 1
        return 1000 + calls * 100

    found = warm_up(slower, 5000, lambda: None, limit_ns=50_000_000)
    assert not found.steady
    assert "floors differ by" in found.reason
    assert len(found.wall_ns) >= 20
    assert MOST_WINDOWS >= 2


def test_a_patched_clock_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    assert patched_timers() == ()
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 0)
    assert patched_timers() == ("perf_counter_ns",)
