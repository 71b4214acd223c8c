"""Sampling from inside: shares within their intervals, clocks, threads, signals."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from tests.profile.probing import frame_named, names, on_critical_thread, own_share, roots
from tests.targets import profiled
from torchstone.profile.formats.own import check_profile
from torchstone.profile.probes import sample
from torchstone.profile.probes.base import ProbeOptions
from torchstone.profile.probes.sample import SampleProbe, _Signals
from torchstone.records import Profile
from torchstone.stats.drift import share_interval

SURE = 0.9999
"""Of intervals in tests: they must not fail by chance."""
RATE = 500.0


def sampled(
    function: Callable[[], object], clock: str = "wall", least: int = 150, limit_s: float = 120
) -> Profile:
    """Repeated until enough was seen to tell."""
    probe = SampleProbe(ProbeOptions(rate_hz=RATE, clock=clock))
    assert not probe.unavailable()
    probe.start()
    end = time.monotonic() + limit_s
    try:
        while probe._tally.effective < least and time.monotonic() < end:
            function()
    finally:
        profile = probe.stop()
    check_profile(profile)
    return profile


def interval(profile: Profile, name: str) -> tuple[float, float]:
    assert profile.sampling is not None
    n = profile.sampling.samples
    return share_interval(own_share(profile, name) * n, n, SURE)


@pytest.mark.parametrize("clock", ["wall", "cpu"])
def test_a_planted_split_lies_in_its_interval(clock: str) -> None:
    profile = sampled(profiled.split, clock)
    low, high = interval(profile, "heavy")
    assert low < 0.7 < high
    low, high = interval(profile, "light")
    assert low < 0.3 < high
    assert high < 0.6  # and it can tell them apart
    assert profile.sampling is not None
    assert profile.sampling.clock == clock


DATA = bytes(range(256)) * 40


def gives_the_gil_away() -> None:
    zlib.compress(DATA, 9)


def keeps_the_gil() -> None:
    profiled.heavy(1)


def test_python_between_calls_that_give_the_gil_away_is_seen() -> None:
    """A thread that samples would hardly see it: its turn comes when the GIL is free."""
    truth = {"heavy": 0.0, "gives_the_gil_away": 0.0}

    def mixed() -> None:
        for _ in range(20):
            started = time.perf_counter()
            gives_the_gil_away()
            between = time.perf_counter()
            keeps_the_gil()
            truth["gives_the_gil_away"] += between - started
            truth["heavy"] += time.perf_counter() - between

    profile = sampled(mixed)
    share = truth["heavy"] / sum(truth.values())
    assert 0.1 < share < 0.9
    low, high = interval(profile, "heavy")
    assert low < share < high


def test_the_line_that_takes_the_time_is_named() -> None:
    profile = sampled(profiled.split, least=60)
    table = next(table for table in profile.lines if table.file == profiled.__file__)
    hottest = table.lines[max(range(len(table.lines)), key=table.seconds.__getitem__)]
    assert "number" in table.text[hottest - 1]
    whole = sum(own for *_, own in on_critical_thread(profile))
    assert sum(table.seconds) == pytest.approx(whole, rel=0.05)


def test_what_runs_outside_of_it_is_not_in_its_stacks() -> None:
    profile = sampled(profiled.split, least=30)
    assert roots(profile) == {"sampled"}  # the function that started it, and nothing of pytest


def sleeps() -> None:
    time.sleep(0.02)


def test_cpu_time_leaves_waiting_out_and_wall_time_does_not() -> None:
    """A look by the wall's clock would find it asleep and give the sleep what it had computed."""

    def both() -> None:
        sleeps()
        profiled.heavy(40)

    assert own_share(sampled(both, "wall", least=60), "sleeps") > 0.1
    cpu = sampled(both, "cpu", least=100)
    # Looks take CPU time too, and so may set off a look or two in the sleep.
    asleep = own_share(cpu, "sleeps") if "sleeps" in names(cpu.frames) else 0.0
    assert asleep < 0.25


def test_other_threads_are_seen_under_their_names() -> None:
    enough = threading.Event()

    def busy() -> None:
        while not enough.is_set():
            profiled.light(1)

    thread = threading.Thread(target=busy, name="side", daemon=True)
    thread.start()
    try:
        profile = sampled(lambda: time.sleep(0.01), least=60)
    finally:
        enough.set()
        thread.join()
    by_name = {one.name: (place, one) for place, one in enumerate(profile.threads)}
    assert {"MainThread", "side"} <= set(by_name)
    assert by_name["MainThread"][1].critical
    assert not by_name["side"][1].critical
    assert profile.tree is not None
    light = frame_named(profile, "light")
    where = {
        t for f, t in zip(profile.tree.frames, profile.tree.threads, strict=True) if f == light
    }
    assert where == {by_name["side"][0]}
    # Threads that are seen at once are one sample: else intervals would be too narrow.
    stacks = next(one.value for one in profile.counters if one.name == "stacks seen")
    assert profile.sampling is not None
    assert stacks is not None
    assert 0 < profile.sampling.samples <= stacks / 2 + 1


def test_looks_that_interrupt_a_look_do_not_show_the_sampler() -> None:
    probe = SampleProbe(ProbeOptions(rate_hz=10_000))
    probe.start()
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        profiled.split()
    profile = probe.stop()
    assert "heavy" in names(profile.frames)
    assert not {"_handle", "look", "arm", "delay"} & names(profile.frames)


def test_without_signals_a_thread_looks_and_says_what_it_cannot_see() -> None:
    found: list[Profile] = []
    thread = threading.Thread(target=lambda: found.append(sampled(profiled.split, least=20)))
    thread.start()
    thread.join()
    assert any("needs the GIL" in note for note in found[0].notes)
    assert "heavy" in names(found[0].frames)


def test_a_handler_of_the_program_is_left_alone() -> None:
    mine = lambda *_: None  # noqa: E731
    before = signal.signal(signal.SIGPROF, mine)
    try:
        assert _Signals.make(SampleProbe()) is None
        profile = sampled(profiled.split, least=5)
        assert signal.getsignal(signal.SIGPROF) is mine
    finally:
        signal.signal(signal.SIGPROF, before)
    assert any("needs the GIL" in note for note in profile.notes)


def test_a_program_that_takes_the_signal_is_told() -> None:
    before = signal.getsignal(signal.SIGPROF)
    probe = SampleProbe(ProbeOptions(rate_hz=RATE))
    probe.start()
    try:
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
        profiled.split()
        profile = probe.stop()
    finally:
        signal.signal(signal.SIGPROF, before)
    assert any("SIGPROF" in problem for problem in profile.problems)


def test_the_signal_is_given_back() -> None:
    before = signal.getsignal(signal.SIGPROF)
    sampled(profiled.split, least=2)
    assert signal.getsignal(signal.SIGPROF) is before
    time.sleep(0.01)  # a signal that still came would end this process


def test_who_holds_the_gil_is_not_guessed() -> None:
    assert "py-spy" in SampleProbe(ProbeOptions(clock="gil")).unavailable()


def test_a_collector_that_calls_python_back_stops_no_look() -> None:
    """The interpreter holds a lock while it lists frames, and a collection there ran Python."""
    script = Path(profiled.__file__).with_name("collecting_callback.py")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=240, check=True
    )
    assert int(done.stdout) > 20


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="no collection begins there any more")
@pytest.mark.parametrize("collecting", [True, False])
def test_nothing_is_collected_while_frames_are_listed(
    monkeypatch: pytest.MonkeyPatch, collecting: bool
) -> None:
    seen: list[bool] = []

    def listed() -> dict[int, FrameType]:
        seen.append(gc.isenabled())
        return {}

    monkeypatch.setattr(sample.sys, "_current_frames", listed)
    before = gc.isenabled()
    (gc.enable if collecting else gc.disable)()
    try:
        assert sample._all_frames() == {}
        assert gc.isenabled() is collecting
    finally:
        (gc.enable if before else gc.disable)()
    assert seen == [False]


def test_a_look_within_a_look_is_none() -> None:
    probe = SampleProbe(ProbeOptions(clock="cpu"))
    looks: list[object] = []
    ticker = _Signals(probe)

    def look(frame: object, without: int = 0) -> None:
        looks.append(frame)
        ticker._handle(signal.SIGPROF, None)  # something that a look set off is interrupted

    try:
        probe.look = look  # type: ignore[method-assign]
        ticker._handle(signal.SIGPROF, None)
        assert len(looks) == 1
        ticker._handle(signal.SIGPROF, None)
        assert len(looks) == 2  # the next one is a look of its own
    finally:
        ticker._timer.close()
        assert ticker._computing is not None
        ticker._computing.close()
