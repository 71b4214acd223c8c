"""A step's time-out is for one step: whoever waits hears of every long one."""

from __future__ import annotations

import pytest

from tests.measure.slow import CLOCK, STEP_NS
from torchstone.measure import loops, solo, turns, warmup
from torchstone.records import ArmSpec, Statement

STEP = ArmSpec("step", "tests.measure.slow:make")
STATEMENT = ArmSpec(
    "statement", "", statement=Statement("CLOCK.step()", "from tests.measure.slow import CLOCK")
)
SETUP = ArmSpec(
    "setup", "", statement=Statement("pass", "from tests.measure.slow import CLOCK; CLOCK.step()")
)
ARMS = pytest.mark.parametrize("arm", [STEP, STATEMENT, SETUP], ids=lambda arm: arm.name)


class Listener:
    """Hears of phases, and knows how long the longest silence was in those of steps."""

    def __init__(self) -> None:
        self.phase = "start"
        self.heard = CLOCK.now
        self.silence: dict[str, int] = {}

    def __call__(self, phase: str) -> None:
        """As the conductor hears it: silence counts for the phase that was told before it."""
        longest = self.silence.get(self.phase, 0)
        self.silence[self.phase] = max(longest, CLOCK.now - self.heard)
        self.phase, self.heard = phase, CLOCK.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (loops, solo, turns, warmup):
        monkeypatch.setattr(module, "wall_clock", CLOCK.read)
    monkeypatch.setattr(solo, "MOST_LOOPS", 1000)  # a statement takes no time by this clock


@ARMS
@pytest.mark.slow
def test_alone_no_two_long_steps_pass_in_silence(arm: ArmSpec) -> None:
    listener = Listener()
    solo.solo(arm, listener, 7, "", None, {}, b"salt", lambda calls: None)
    listener("end")
    assert listener.silence["step"] == STEP_NS
    # A slow statement is looked at once more and warms up where it is measured.
    assert listener.silence.get("warm-up") == (None if arm is STATEMENT else STEP_NS)


@ARMS
def test_in_warm_up_no_two_long_steps_pass_in_silence(arm: ArmSpec) -> None:
    listener = Listener()
    process = turns.Turns(arm, listener, 1, 32, {})
    report = process.warm_up(listener, 7, 10.0)
    listener("end")
    assert listener.silence["warm-up"] == STEP_NS
    assert report.sample_ns == STEP_NS
