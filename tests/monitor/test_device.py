"""Marks on an accelerator. There is none here: its events are played, by a clock of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import torchstone
from torchstone.monitor import clock as times
from torchstone.monitor.clock import DeviceTimes
from torchstone.monitor.journal import open_record
from torchstone.monitor.views import view_of
from torchstone.show.blocks import render
from torchstone.show.monitor import view_report

torch = pytest.importorskip("torch")
MS = 1_000_000


class Device:
    """Each event is a millisecond after the one before; it has reached those up to `done`."""

    def __init__(self) -> None:
        self.made = self.asked = 0
        self.done = 10**9

    def event(self) -> Any:
        self.made += 1
        return Event(self)


class Event:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.at = 0

    def record(self) -> None:
        self.device.asked += 1
        self.at = self.device.asked

    def query(self) -> bool:
        return self.at <= self.device.done

    def elapsed_time(self, other: Event) -> float:
        assert self.query()
        assert other.query(), "read before the device was there: that would wait"
        return float(other.at - self.at)


def step(found: DeviceTimes) -> None:
    found.begin()
    for phase in ("forward", "backward", "optimizer"):
        found.mark(phase)
    found.end()


def test_only_what_the_device_has_finished_is_read_and_events_are_used_again() -> None:
    device = Device()
    found = DeviceTimes(device.event)
    device.done = 6
    step(found)
    step(found)
    assert found.look() == (1, {"forward": MS, "backward": MS, "optimizer": MS})
    assert found.look() == (0, {})
    device.done = 10**9
    assert found.look()[0] == 1
    for _ in range(100):
        step(found)
        found.look()
    assert device.made == 8


def test_a_device_that_hangs_costs_a_bounded_number_of_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(times, "MOST_WAITING_EVENTS", 10)
    device = Device()
    device.done = 0
    found = DeviceTimes(device.event)
    for _ in range(100):
        step(found)
        found.look()
    assert found.dropped == 90
    assert device.made <= 4 * 12


def test_a_training_on_a_device_shows_its_times_by_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device()
    played = DeviceTimes(device.event)
    monkeypatch.setattr("torchstone.monitor.session.device_times", lambda torch: played)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with torchstone.monitor(model=model, optimizer=optimizer, folder=tmp_path) as m:
        for batch in m.steps(torch.ones(2, 4) for _ in range(30)):
            model(batch).sum().backward()
            optimizer.step()
    view = view_of(open_record(tmp_path))
    whole = view.ranks[0].whole
    assert whole.device_steps == 30
    for phase in ("forward", "backward", "optimizer"):
        assert whole.device_s(phase) == pytest.approx(1e-3)
    assert "on the device" in render(view_report(view)).lower()
