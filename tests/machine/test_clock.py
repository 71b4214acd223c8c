"""The real clock: what it rests on, and what makes it say nothing."""

from __future__ import annotations

import platform
import time
from pathlib import Path

import pytest

from tests.machine.support import run
from torchstone.machine import clock
from torchstone.machine.clock import (
    LINKS,
    ClockReading,
    hz_from,
    measure_clock,
    nominal_clock_hz,
)

x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code of x86-64")
linux = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="asks /proc")


def reading() -> ClockReading:
    """A reading; on a crowded machine the chains may need another try."""
    for _ in range(5):
        found = measure_clock()
        if found.peak is not None:
            return found
    return found


@x86_64
def test_the_clock_is_measured_and_carries_its_evidence() -> None:
    first, second = reading(), reading()
    assert first.peak is not None
    assert second.peak is not None
    assert clock.SLOWEST_HZ < first.peak.value < clock.FASTEST_HZ
    assert first.peak.value == pytest.approx(second.peak.value, rel=0.25)  # a turbo may move it
    assert first.peak.samples >= clock.ROUNDS
    assert 0 <= first.peak.spread < 1
    assert first.peak.source == "measured"
    assert "a multiplication took" in first.peak.note
    assert first.reason == ""


@x86_64
def test_a_chain_of_known_length_takes_its_cycles() -> None:
    """The clock, turned round: products that need each other's results take 3 to 5 cycles each."""
    found = reading().peak
    assert found is not None
    chains = clock._chains("x86_64")
    assert chains is not None
    with clock._executable(chains) as (_, multiply):
        loops = 2000
        best = min(_seconds(multiply, loops) for _ in range(200))
    cycles = best * found.value / (loops * LINKS)
    assert 2.5 < cycles < 5.5


def _seconds(chain: clock.Chain, loops: int) -> float:
    start = time.perf_counter()
    chain(loops)
    return time.perf_counter() - start


def _planted(add: bytes, multiply: bytes) -> clock._Chains:
    """Chains whose links are other instructions than the clock believes."""
    real = clock._x86_64()
    return clock._Chains(
        real.add.replace(b"\x48\x01\xc8", add),
        real.multiply.replace(b"\x48\x0f\xaf\xc1", multiply),
        real.latencies,
    )


@x86_64
@pytest.mark.parametrize(
    ("add", "multiply"),
    [
        (b"\x48\x01\xc8", b"\x48\x01\xc8\x90"),  # the product takes no longer than a sum
        (b"\x48\x89\xc8", b"\x48\x0f\xaf\xc1"),  # mov rax, rcx: no chain at all, several a cycle
    ],
)
def test_a_wrong_latency_is_noticed(
    add: bytes, multiply: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = _planted(add, multiply)
    assert len(planted.add) == len(clock._x86_64().add)  # so that the jump still lands
    monkeypatch.setattr(clock, "_chains", lambda machine: planted)
    found = measure_clock()
    assert found.peak is None
    assert "the chains disagree" in found.reason


@linux
@x86_64
def test_the_page_is_never_writable_and_executable_and_goes_away() -> None:
    def anonymous() -> list[str]:
        lines = Path("/proc/self/maps").read_text().splitlines()
        return [line for line in lines if len(line.split()) == 5 and "x" in line.split()[1]]

    before = anonymous()
    chains = clock._chains("x86_64")
    assert chains is not None
    with clock._executable(chains) as (add, _):
        add(1)
        inside = [line for line in anonymous() if line not in before]
        assert [line.split()[1] for line in inside] == ["r-xp"]
    assert anonymous() == before
    measure_clock()
    assert anonymous() == before


FORBIDDEN = """
import ctypes
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
if ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0) != 0:
    print("cannot")
else:
    from torchstone.machine.clock import measure_clock
    print(measure_clock())
"""


@linux
@x86_64
def test_a_system_that_forbids_it_gives_a_reason() -> None:
    told = run(FORBIDDEN)
    if told == "cannot":
        pytest.skip("this kernel cannot forbid executable pages")
    assert "peak=None" in told
    assert "does not let us run a page of our own" in told


def test_a_refused_page_gives_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(clock, "_chains", lambda machine: clock._x86_64())
    monkeypatch.setattr(clock.mmap, "mmap", refuse)
    found = measure_clock()
    assert found.peak is None
    assert "Permission denied" in found.reason


def test_an_unknown_processor_gives_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock.platform, "machine", lambda: "riscv64")
    assert measure_clock() == ClockReading(None, "no instruction chain is known for riscv64")


@x86_64
def test_a_coarse_timer_gives_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "_now", lambda: time.perf_counter_ns() // 10**10 * 10**10)
    found = measure_clock()
    assert found.peak is None
    assert "too coarse" in found.reason


def test_the_loop_for_arm_jumps_to_its_first_link() -> None:
    """Not run anywhere yet: at least the jump and the frame around the links are right."""
    chains = clock._aarch64()
    for code, link in ((chains.add, 0x8B020021), (chains.multiply, 0x9B027C21)):
        words = [int.from_bytes(code[i : i + 4], "little") for i in range(0, len(code), 4)]
        assert words.count(link) == LINKS
        jump = next(i for i, word in enumerate(words) if word >> 24 == 0x54)
        offset = (words[jump] >> 5) & 0x7FFFF
        offset -= (1 << 19) * (offset >> 18)
        assert jump + offset == words.index(link)
        assert words[jump - 1] == 0xF1000400
        assert words[-1] == 0xD65F03C0


def test_units_of_clocks() -> None:
    assert hz_from(2445.43, "MHz") == pytest.approx(2.44543e9)
    assert hz_from(2_445_430, "kHz") == pytest.approx(2.44543e9)


@pytest.mark.parametrize("mhz", [2_445_430, 2.445, 0, -1, float("nan"), float("inf")])
def test_what_cannot_be_megahertz_is_refused(mhz: float) -> None:
    with pytest.raises(ValueError, match="is not the clock of anything"):
        hz_from(mhz, "MHz")


@pytest.mark.parametrize("khz", [2445, 2.445e9])
def test_what_cannot_be_kilohertz_is_refused(khz: float) -> None:
    with pytest.raises(ValueError, match="is not the clock of anything"):
        hz_from(khz, "kHz")


def test_the_nominal_clock_is_what_the_system_says(tmp_path: Path) -> None:
    assert nominal_clock_hz(str(tmp_path)) is None
    info = tmp_path / "proc" / "cpuinfo"
    info.parent.mkdir()
    info.write_text("processor\t: 0\ncpu MHz\t\t: 2445.430\ncache size\t: 512 KB\n")
    assert nominal_clock_hz(str(tmp_path)) == pytest.approx(2.44543e9)
    folder = tmp_path / "sys/devices/system/cpu/cpu0/cpufreq"
    folder.mkdir(parents=True)
    (folder / "cpuinfo_max_freq").write_text("3500000\n")
    assert nominal_clock_hz(str(tmp_path)) == pytest.approx(3.5e9)
    (folder / "base_frequency").write_text("2400000\n")
    assert nominal_clock_hz(str(tmp_path)) == pytest.approx(2.4e9)
    (folder / "base_frequency").write_text("2400\n")  # MHz where kHz should stand
    assert nominal_clock_hz(str(tmp_path)) is None
