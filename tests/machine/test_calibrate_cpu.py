"""The peaks of this very processor, measured for a moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.machine.calibrate import calibrate, fingerprint, is_stale, make_request
from torchstone.machine.calibrate.request import (
    DTYPES,
    _in_utc,
    cache_rival,
    unsound,
)
from torchstone.machine.processes import usable_cores
from torchstone.machine.software import describe_environment
from torchstone.records import DRAM, Calibration, UsageError, from_data, to_data

torch = pytest.importorskip("torch")

from torchstone.machine.calibrate import kernels, request  # noqa: E402

MOMENT = 0.15


@pytest.fixture(scope="module")
def whole() -> Calibration:
    return calibrate(make_request(seconds=MOMENT))


def test_it_has_every_roof_or_says_why_not(whole: Calibration) -> None:
    notes = "\n".join(whole.notes)
    for dtype in DTYPES:
        for threads in {1, usable_cores()}:
            peak = whole.peak(dtype, threads)
            assert peak is not None or f"{dtype}," in notes
    assert whole.clock is not None or "clock: unknown" in notes
    for level in ("L1", "L2", DRAM):
        dropped = f"{level}, 1 threads" in notes  # as beside a noisy neighbour
        assert whole.bandwidth_of(level, 1) is not None or f"{level}:" in notes or dropped
    assert set(whole.costs) == {"timer", "python-call", "dispatch"}
    assert whole.costs["python-call"].value < whole.costs["dispatch"].value < 1e-3
    assert unsound(whole) == ""


def test_every_peak_carries_its_evidence(whole: Calibration) -> None:
    assert whole.compute
    for peak in (*whole.compute, *whole.bandwidth):
        assert peak.source == "measured"
        assert not peak.sparse
        assert peak.samples >= request.ROUNDS * request.LEAST_SAMPLES // kernels.KEPT
        assert 0 <= peak.spread < 1
        assert peak.threads >= 1
        assert peak.note
    assert all(peak.dtype and not peak.level for peak in whole.compute)
    assert all(peak.level and peak.array_bytes for peak in whole.bandwidth)


def test_memory_is_memory_and_slower_than_caches(whole: Calibration) -> None:
    if not whole.last_level_bytes:
        pytest.skip("the caches are not known here")
    for peak in whole.bandwidth:
        if peak.level == DRAM:
            assert peak.array_bytes >= 4 * whole.last_level_bytes
            cached = cache_rival(peak, whole.bandwidth)
            assert cached is not None
            assert peak.value <= cached.value
        else:
            assert peak.array_bytes < whole.last_level_bytes


def test_it_names_the_machine_as_measurements_do(whole: Calibration) -> None:
    assert whole.machine_id == describe_environment({}, None, {}, "default").machine_id
    assert whole.fingerprint == fingerprint("cpu", whole.device_name)
    assert whole.torch == torch.__version__
    assert whole.took_s > MOMENT
    now = _in_utc(cpu_time(whole))
    assert not is_stale(whole, now, fingerprint())
    assert from_data(Calibration, to_data(whole)) == whole


def cpu_time(calibration: Calibration):  # type: ignore[no-untyped-def]
    from datetime import datetime

    return datetime.fromisoformat(calibration.created)


def test_one_roof_is_measured_alone_and_settings_come_back() -> None:
    torch.set_float32_matmul_precision("high")
    threads = torch.get_num_threads()
    said: list[str] = []
    try:
        found = calibrate(make_request(only=[("fp32", 2)], seconds=0.1), said.append)
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.get_num_threads() == threads
    finally:
        torch.set_float32_matmul_precision("highest")
    assert [(peak.dtype, peak.threads) for peak in found.compute] == [("fp32", 2)]
    assert found.bandwidth == ()
    assert found.costs == {}
    assert "round 1 of 4: 1 peaks" in said
    if usable_cores() < 2:
        assert any("only 1 can run at once" in note for note in found.notes)


def test_without_room_there_is_no_memory_roof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "memory_available", lambda: 1 << 20)
    found = calibrate(make_request(only=[(DRAM, 1), ("L1", 1)], seconds=0.1))
    assert found.bandwidth_of(DRAM, 1) is None
    assert found.bandwidth_of("L1", 1) is not None
    whole = calibrate(make_request(dtypes=["fp32"], threads=[1], seconds=0.1))
    assert whole.bandwidth_of(DRAM, 1) is None
    assert any(note.startswith("DRAM: absent; 3 arrays of") for note in whole.notes)


def test_unknown_caches_give_no_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_caches", lambda: ())
    found = calibrate(make_request(dtypes=["fp32"], threads=[1], seconds=0.1))
    assert found.bandwidth == ()
    assert found.last_level_bytes == 0
    assert any("DRAM: absent; the last-level cache is not known" in note for note in found.notes)


def test_a_dtype_without_a_kernel_is_absent_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("no such kernel\nat some line")

    monkeypatch.setattr(torch, "_int_mm", refuse)
    found = calibrate(make_request(only=[("int8", 1), ("fp32", 1)], seconds=0.1))
    assert found.peak("int8", 1) is None
    assert found.peak("fp32", 1) is not None
    assert "int8, 1 thread: not measured; no such kernel" in found.notes


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match=r"There is no device warp:3 here") as caught:
        calibrate(make_request(device="warp:3"))
    assert caught.value.remedy


def _planted(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[int], float]) -> kernels.Gemm:
    """Products that do nothing and take what they are told to."""
    monkeypatch.setattr(kernels, "product", lambda dtype, length, device: lambda: length)
    calls: list[int] = []

    def timer(call: Callable[[], object]) -> float:
        length = call()
        assert isinstance(length, int)
        calls.append(length)
        return seconds(length)

    job = kernels.Gemm("fp32", 1, timer=timer)
    job.calls = calls  # type: ignore[attr-defined]
    return job


def test_a_multiplication_and_an_addition_are_two_operations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = _planted(monkeypatch, lambda length: 2 * length**3 / 123e9)
    job.sample_for(0.001)
    peak = job.peak()
    assert peak is not None
    assert peak.value == pytest.approx(123e9)


def test_long_products_are_not_sampled_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(length: int) -> float:
        return (
            2 * length**3 / (50e9 + length)
        )  # the longer, the faster: only its length is against it

    job = _planted(monkeypatch, seconds)
    job.sample_for(0.001)
    calls = job.calls  # type: ignore[attr-defined]
    longest = max(calls)
    assert seconds(longest) > kernels.MOST_SAMPLE_S
    assert calls.count(longest) == kernels.TRIALS + 1
    peak = job.peak()
    assert peak is not None
    assert f"{longest} a side" not in peak.note


def test_a_slow_dtype_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    job = _planted(monkeypatch, lambda length: 0.1)  # every product takes 100 ms
    job.sample_for(0.0)
    calls = job.calls  # type: ignore[attr-defined]
    assert set(calls) == {kernels.SIDES[0]}
    assert len(calls) <= 1 + kernels.TRIALS + request.LEAST_SAMPLES
    assert job.peak() is not None


@given(length=st.integers(1, 500), step=st.integers(1, 600))
def test_slices_walk_through_the_whole_array_before_they_come_back(length: int, step: int) -> None:
    parts = kernels.walk(length, step)
    for _ in range(2):
        seen: list[int] = []
        while len(seen) < length:
            seen += range(length)[next(parts)]
        assert seen == list(range(length))


def test_a_triad_writes_every_element_and_counts_three_words() -> None:
    arrays = kernels.touched(4000)
    arrays[0].zero_()
    seconds = 0.5

    def timer(call: Callable[[], object]) -> float:
        call()
        return seconds

    sample = kernels.triad_sample(arrays, 800, timer)
    rates = [sample() for _ in range(5)]
    assert rates == [3 * 800 / seconds] * 5
    assert torch.equal(arrays[0], arrays[1] + 3 * arrays[2])


def test_reading_a_cache_touches_one_array_many_times() -> None:
    from torchstone.machine.calibrate.kernels import Cache

    times: list[float] = []

    def timer(call: Callable[[], object]) -> float:
        out = call()
        assert torch.all(out == 4096.0)  # each row is the sum of the whole array of ones
        times.append(1.0)
        return 1.0

    (job, triad) = kernels.cache_jobs((Cache(1, 32768),), 1, timer)
    job.sample_for(0.0)
    peak = job.peak()
    assert peak is not None
    assert (peak.level, peak.array_bytes) == ("L1", 16384)
    assert peak.value == kernels.PASS_BYTES
    assert triad.name.startswith("L1 triad")


def test_the_payload_of_a_worker_leaves_it_at_home(tmp_path: Path) -> None:
    from torchstone.conductor.launch import make_payload

    machine = make_payload(tmp_path / "payload").parent / "torchstone" / "machine"
    assert (machine / "clock.py").exists()
    assert not (machine / "calibrate").exists()
