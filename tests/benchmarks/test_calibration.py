"""The benchmark of the calibration: like is compared with like, and the aims can be missed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from calibration import ALONE, PLAIN, WHOLE, Turn, aims, our_turn, plain_turn, summed, text_of

from tests.benchmarks.support import run
from torchstone.records import DRAM, Calibration, Peak, from_data


def calibration(dram: float = 20e9, cache: float = 60e9, **more: object) -> Calibration:
    peaks = (
        Peak(cache, level="L3", threads=1, note="triad, x", array_bytes=1 << 22),
        Peak(dram, level=DRAM, threads=1, note="triad, x", array_bytes=1 << 27),
    )
    return Calibration("i", "m", "f", "c", bandwidth=peaks, **more)  # type: ignore[arg-type]


def reached(whole: float, plain: float) -> list:  # type: ignore[type-arg]
    return [
        summed(by, 1, [Turn(best, 0.1, 9)])
        for by, best in ((WHOLE, whole), (ALONE, whole), (PLAIN, plain))
    ]


@pytest.mark.parametrize(
    ("whole", "met"), [(100.0, True), (91.0, True), (109.0, True), (89.0, False), (111.0, False)]
)
def test_the_peak_is_held_against_the_plain_loop(whole: float, met: bool) -> None:
    evaluated = aims(calibration(), reached(whole, 100.0))
    assert [aim.met for aim in evaluated] == [met, True]


def test_memory_above_caches_misses_the_aim() -> None:
    evaluated = aims(calibration(dram=61e9), reached(1.0, 1.0))
    assert [aim.met for aim in evaluated] == [True, False]
    dropped = calibration(notes=("DRAM, 1 threads (triad): dropped; too fast",))
    assert [aim.met for aim in aims(dropped, reached(1.0, 1.0))] == [True, True, False]


def test_turns_are_summed_up() -> None:
    found = summed(PLAIN, 2, [Turn(5.0, 0.1, 10), Turn(9.0, 0.5, 20), Turn(7.0, 0.2, 30)])
    assert (found.best, found.usual, found.spread) == (9.0, 7.0, 0.2)
    assert (found.samples, found.turns) == (60, 3)


def test_both_ways_measure_the_same_thing() -> None:
    """Not the same figure to the percent, which needs more time: the same unit and convention."""
    ours, plain = our_turn(1, 0.2), plain_turn(1, 0.2)
    assert 0.4 < ours.best / plain.best < 2.5
    assert ours.samples > 3
    assert plain.samples > 3


def test_the_tables_say_everything() -> None:
    whole = calibration(clock=Peak(3.2e9, samples=20), nominal_clock_hz=2.4e9, notes=("hm",))
    found = reached(90e9, 100e9)
    text = text_of(whole, found, aims(whole, found), markdown=False)
    for words in ("DRAM triad", "ratio of the two", "1.333", "note: hm", "0.900", "128 MiB"):
        assert words in text


@pytest.mark.slow
def test_the_whole_command(tmp_path: Path) -> None:
    out = tmp_path / "calibration.json"
    done = run("calibration.py", "--quick", "--out", str(out))
    assert done.returncode in (0, 1), done.stderr
    assert "fp32 peak within 10% of a plain loop, 1 thread" in done.stdout
    data = json.loads(out.read_text())
    assert {one["by"] for one in data["reached"]} == {WHOLE, ALONE, PLAIN}
    found = from_data(Calibration, data["calibration"])
    assert found.peak("fp32", 1) is not None
    assert (done.returncode == 0) == all(aim["met"] for aim in data["aims"])
