"""Two trainings side by side: what changed, phase by phase, and when that cannot be told."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from torchstone.monitor.journal import Journal, MonitorRecord, open_record
from torchstone.monitor.serving import histogram
from torchstone.monitor.views import compare, view_of
from torchstone.records import UsageError
from torchstone.records.monitoring import KindSums, MonitorHeader, Process, StepChunk
from torchstone.show.blocks import render
from torchstone.show.monitor import compare_report, view_report


def training(folder: Path, seconds: int, seed: int = 0, **more_ms: float) -> MonitorRecord:
    """A record of steps of 10 ms, `more_ms` of a phase on top."""
    drawn = random.Random(seed)
    phases_ms = {"data": 1.0, "forward": 4.0, "backward": 3.0, "optimizer": 1.5, "other": 0.5}
    header = MonitorHeader(folder.name, folder.name, "training", 0, 1, 1, 1000.0)
    chunks = []
    for second in range(seconds):
        phases: dict[str, int | None] = {"transfer": None, "collective": None}
        for name, value in phases_ms.items():
            amount = value * drawn.lognormvariate(0.0, 0.02) + more_ms.get(name, 0.0)
            phases[name] = round(100 * amount * 1e6)
        wall = sum(value for value in phases.values() if value is not None)
        kinds = {"train": KindSums(100, wall, phases, histogram([wall / 100 / 1e9] * 100))}
        first = second * 100
        chunks.append(
            StepChunk(1001.0 + second, 1.0, first, first + 99, kinds, 0, 800, None, 0.5, Process())
        )
    journal = Journal(folder, header)
    journal.write(chunks)
    journal.close()
    return open_record(folder)


def test_the_phase_that_grew_is_named(tmp_path: Path) -> None:
    base = training(tmp_path / "a", 40)
    new = training(tmp_path / "b", 40, seed=1, data=2.0)
    found = compare(base, new)
    assert found.verdict == "B is 20 % slower than A; most of it in waiting for data."
    changes = {one.phase: one for one in found.phases}
    assert changes["data"].share == pytest.approx(1.0, abs=0.1)
    assert changes["transfer"].base_s is None
    text = render(compare_report(found))
    assert "waiting for data" in text
    assert "?" in text


def test_the_same_training_takes_the_same_time(tmp_path: Path) -> None:
    found = compare(training(tmp_path / "a", 60), training(tmp_path / "b", 60, seed=7))
    assert found.verdict == "B takes the same time as A."


def test_few_seconds_cannot_tell(tmp_path: Path) -> None:
    found = compare(training(tmp_path / "a", 5), training(tmp_path / "b", 40, forward=5.0))
    assert found.verdict.startswith("Cannot tell")
    with pytest.raises(UsageError, match="no second of training"):
        compare(training(tmp_path / "c", 1), training(tmp_path / "d", 40))


def test_a_report_says_what_is_not_known(tmp_path: Path) -> None:
    text = render(view_report(view_of(training(tmp_path / "a", 10))))
    assert "a · lost · 1,000 steps" in text
    line = next(line for line in text.splitlines() if "transfer to the device" in line)
    assert line.split()[-2:] == ["?", "?"]
    assert "Nothing out of the ordinary was seen." in text
