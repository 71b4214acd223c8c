"""Accelerators, with stand-ins: there is none here, so we watch what would be asked of one."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from torchstone.machine.calibrate.accelerator import CLOCK_SM, NvmlUnknown, SmClocks, sm_clocks
from torchstone.machine.calibrate.request import make_request
from torchstone.records import DRAM, UsageError

torch = pytest.importorskip("torch")

from torchstone.machine.calibrate import accelerator  # noqa: E402
from torchstone.machine.calibrate.accelerator import (  # noqa: E402
    Tools,
    choose_timer,
    copy_job,
    event_timer_of,
    find_tools,
    measure_with,
    seconds_from_ms,
    wall_timer_of,
)

MIB = 1 << 20


class Queue:
    """A device that works later: a call only queues, waiting does the work."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []
        self.log: list[str] = []

    def add(self, work: Callable[[], object]) -> None:
        self.log.append("call")
        self.waiting.append(work)

    def synchronize(self) -> None:
        self.log.append("wait")
        while self.waiting:
            self.waiting.pop(0)()


class Event:
    """An event of the host's own clock, in milliseconds as torch's are."""

    unit = 1e3

    def record(self) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        return (end.at - self.at) * self.unit


class WrongEvent(Event):
    """Answers in microseconds."""

    unit = 1e6


def tools(**changes: Any) -> Tools:
    """The processor, dressed as an accelerator."""
    known: dict[str, Any] = {
        "name": "Stand-in 9000",
        "place": "cpu",
        "synchronize": lambda: None,
        "make_event": Event,
        "cache_bytes": 1 * MIB,
        "free_bytes": 1 << 40,
        "clocks": lambda: SmClocks(1.7e9, 1.98e9),
    }
    return Tools(**{**known, **changes})


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "LEAST_COPY", 4 * MIB)
    monkeypatch.setattr(accelerator, "_CHECK_SIDE", 256)


def quiet(_: str) -> None:
    pass


def test_roofs_are_measured_and_nothing_is_made_up() -> None:
    request = make_request("cuda", None, ["fp32", "tf32"], 0.1, None)
    found = measure_with(tools(), request, quiet)
    assert found.device_name == "Stand-in 9000"
    assert [(peak.dtype, peak.threads) for peak in found.compute] == [("fp32", 0)]  # no TF32 here
    (copy,) = found.bandwidth
    assert (copy.level, copy.array_bytes, copy.threads) == (DRAM, 4 * MIB, 0)
    assert copy.value > 0
    assert found.clock is not None
    assert found.clock.value == 1.7e9
    assert found.nominal_clock_hz == 1.98e9
    assert found.costs == {}


def test_tf32_is_asked_for_only_while_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[str]] = {"fp32": set(), "tf32": set()}
    real = accelerator.Gemm._take

    def watched(self: Any, side: Any) -> None:
        seen[self.dtype].add(torch.get_float32_matmul_precision())
        real(self, side)

    monkeypatch.setattr(accelerator.Gemm, "_take", watched)
    request = make_request("cuda", None, ["fp32", "tf32"], 0.05, None)
    found = measure_with(tools(has_tf32=True), request, quiet)
    assert {peak.dtype for peak in found.compute} == {"fp32", "tf32"}
    assert seen == {"fp32": {"highest"}, "tf32": {"high"}}
    assert torch.get_float32_matmul_precision() == "highest"


def test_one_roof_alone() -> None:
    found = measure_with(tools(), make_request("cuda", None, None, 0.05, [(DRAM, 0)]), quiet)
    assert found.compute == ()
    assert [peak.level for peak in found.bandwidth] == [DRAM]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cache_bytes": 0}, "cache is not known"),
        ({"free_bytes": 15 * MIB}, "more than half of its memory"),
    ],
)
def test_memory_is_absent_where_it_cannot_be_certain(changes: dict[str, int], words: str) -> None:
    jobs, notes = copy_job(tools(**changes), wall_timer_of(lambda: None))
    assert jobs == []
    assert words in notes[0]


def test_a_copy_is_of_four_caches_at_least() -> None:
    ((job,), _) = copy_job(tools(cache_bytes=50 * MIB), wall_timer_of(lambda: None))
    assert job._template.array_bytes == 200 * MIB  # type: ignore[attr-defined]
    assert job.name == "DRAM copy"


def test_the_clock_on_the_wall_waits_for_the_work() -> None:
    queue = Queue()
    timer = wall_timer_of(queue.synchronize)
    queue.add(lambda: time.sleep(1.5))  # left over from before: not ours to time
    queue.log.clear()
    seconds = timer(lambda: queue.add(lambda: time.sleep(0.01)))
    assert queue.log == ["wait", "call", "wait"]
    assert 0.01 <= seconds < 1.5
    assert queue.waiting == []


def test_events_are_read_after_waiting_and_in_milliseconds() -> None:
    queue = Queue()

    class Queued(Event):
        def record(self) -> None:
            queue.add(super().record)

    timer = event_timer_of(Queued, queue.synchronize)
    seconds = timer(lambda: queue.add(lambda: time.sleep(0.02)))
    assert queue.log[-1] == "wait"
    assert 0.02 <= seconds < 10.0  # 20 in another unit
    assert seconds_from_ms(20.0) == 0.02


def test_events_in_a_wrong_unit_are_not_believed() -> None:
    _, notes = choose_timer(tools())
    assert notes == []
    _, notes = choose_timer(tools(make_event=WrongEvent))
    assert "events said" in notes[0]

    def broken() -> Event:
        raise RuntimeError("no events on this backend")

    _, notes = choose_timer(tools(make_event=broken))
    assert "events do not work; no events on this backend" in notes[0]
    _, notes = choose_timer(tools(make_event=None))
    assert "has no events" in notes[0]


class Nvml:
    """The driver's library: answers in MHz, as it truly does, unless told otherwise."""

    def __init__(self, current: int = 1700, highest: int = 1980, failing: str = "") -> None:
        self.current, self.highest, self.failing = current, highest, failing
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name == self.failing:
                return 3
            if name.endswith("ByUUID"):
                assert arguments[0] == b"GPU-1234"
                arguments[1]._obj.value = 77
            if name.endswith("ClockInfo"):
                assert arguments[0].value == 77
                assert arguments[1] == CLOCK_SM
                arguments[2]._obj.value = self.highest if "Max" in name else self.current
            return 0

        return call


def test_the_driver_answers_in_megahertz() -> None:
    nvml = Nvml()
    assert sm_clocks("GPU-1234", nvml) == SmClocks(1.7e9, 1.98e9)
    assert nvml.calls[0] == "nvmlInit_v2"
    assert nvml.calls[-1] == "nvmlShutdown"


@pytest.mark.parametrize(
    ("nvml", "words"),
    [
        (Nvml(current=1_700_000), "1.7e\\+06 MHz is not the clock"),  # kHz taken for MHz
        (Nvml(highest=2), "2 MHz is not the clock"),  # GHz taken for MHz
        (Nvml(current=0), "0 MHz"),
        (Nvml(failing="nvmlInit_v2"), "nvmlInit_v2 failed with code 3"),
        (Nvml(failing="nvmlDeviceGetHandleByUUID"), "failed with code 3"),
        (Nvml(failing="nvmlDeviceGetMaxClockInfo"), "failed with code 3"),
        (SimpleNamespace(), "no nvmlInit_v2"),
    ],
)
def test_what_cannot_be_a_clock_is_unknown(nvml: Any, words: str) -> None:
    with pytest.raises(NvmlUnknown, match=words):
        sm_clocks("GPU-1234", nvml)


def test_without_a_driver_the_clock_is_unknown_and_says_why() -> None:
    with pytest.raises(NvmlUnknown, match="UUID"):
        sm_clocks("", Nvml())
    with pytest.raises(NvmlUnknown, match="is not on this machine"):
        sm_clocks("GPU-1234")

    def unknown() -> SmClocks:
        raise NvmlUnknown("no such library")

    request = make_request("cuda", None, ["fp32"], 0.05, [("fp32", 0)])
    found = measure_with(tools(clocks=unknown), request, quiet)
    assert found.clock is None
    assert found.nominal_clock_hz is None
    assert "clock: unknown; no such library" in found.notes


def library(kind: str = "cuda", count: int = 1, **more: Any) -> Any:
    """What `find_tools` sees of torch."""
    chosen: list[int] = []
    return SimpleNamespace(
        chosen=chosen,
        accelerator=SimpleNamespace(
            is_available=lambda: count > 0,
            current_accelerator=lambda: SimpleNamespace(type=kind),
            device_count=lambda: count,
            set_device_index=chosen.append,
            synchronize=lambda: None,
        ),
        version=SimpleNamespace(cuda="12.9"),
        Event=lambda place, enable_timing: (place, enable_timing),
        **more,
    )


def test_a_device_is_described_by_what_torch_tells() -> None:
    cuda = SimpleNamespace(
        get_device_properties=lambda i: SimpleNamespace(uuid="1234", L2_cache_size=50 * MIB),
        get_device_name=lambda i: f"Device {i}",
        mem_get_info=lambda i: (70 << 30, 80 << 30),
    )
    torch_like = library(count=2, cuda=cuda)
    found = find_tools("cuda:1", torch_like)
    assert torch_like.chosen == [1]
    assert (found.name, found.place) == ("Device 1", "cuda:1")
    assert (found.cache_bytes, found.free_bytes) == (50 * MIB, 70 << 30)
    assert found.has_tf32
    assert found.make_event is not None
    assert found.make_event() == ("cuda:1", True)
    assert found.clocks is not None


def test_what_a_device_does_not_tell_stays_unknown() -> None:
    found = find_tools("mps", library("mps"))
    assert (found.name, found.cache_bytes, found.free_bytes) == ("mps", 0, 0)
    assert found.clocks is None


@pytest.mark.parametrize(
    ("device", "torch_like", "words"),
    [
        ("cuda", SimpleNamespace(), "finds no accelerator"),
        ("cuda", library(count=0), "finds no accelerator"),
        ("cuda", library("xpu"), "has xpu"),
        ("cuda:3", library(count=2), "torch counts 2"),
    ],
)
def test_a_device_that_is_not_there_is_refused(device: str, torch_like: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        find_tools(device, torch_like)
    assert caught.value.remedy
