"""A profile of the next steps of a running training, on demand: by a file that `torchstone top`
writes, by SIGUSR2, or by a call. It begins and ends between two steps, in the training's thread."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchstone.monitor.clock import StepClock
from torchstone.monitor.journal import PROFILE_REQUEST
from torchstone.profile.probes.base import Probe, ProbeOptions, choose_probe
from torchstone.profile.registry import write_profile
from torchstone.records import in_a_line
from torchstone.records.monitoring import MonitorLevel

USUAL_STEPS = 20
MOST_STEPS = 10_000
WAYS = ("trace", "sample", "count", "memory")
FORMAT = "torchstone"


class ProfileOnDemand:
    """Off until somebody wants it; then `clock.between` is called after each step."""

    def __init__(self, clock: StepClock, folder: Path, rank: int, say: Callable[..., None]) -> None:
        self._clock = clock
        self._folder = folder
        self._rank = rank
        self._say = say
        self._probe: Probe | None = None
        self._wanted = self._left = 0
        self._how = WAYS[0]
        self._first = 0
        self._answered = ""

    def want(self, steps: int = USUAL_STEPS, how: str = WAYS[0]) -> None:
        """From the next step on; while one is taken, another is not begun."""
        if self._wanted or self._probe is not None:
            return
        self._how = how if how in WAYS else WAYS[0]
        self._wanted = min(MOST_STEPS, max(1, steps))
        self._clock.between = self._between

    def look(self) -> None:
        """Whether a file asks for one; each request is answered once."""
        path = self._folder / PROFILE_REQUEST
        try:
            text = path.read_text("utf-8")[:1000]
        except (OSError, UnicodeDecodeError):
            return
        with contextlib.suppress(ValueError, TypeError, AttributeError, KeyError):
            asked: dict[str, Any] = json.loads(text)
            if str(asked["id"]) != self._answered:
                self._answered = str(asked["id"])
                self.want(int(asked.get("steps", USUAL_STEPS)), str(asked.get("how", WAYS[0])))

    def _between(self) -> None:
        try:
            if self._wanted:
                self._begin()
            elif self._probe is not None:
                self._left -= 1
                if self._left <= 0:
                    self.end()
        except Exception as error:
            self._probe = None
            self._clock.between = None
            self._clock.profiled = 0
            text = f"The profile failed: {in_a_line(error)}"
            self._say(self._clock.step, "profile", text, cause="profile")

    def _begin(self) -> None:
        self._left, self._wanted = self._wanted, 0
        self._first = self._clock.step
        probe = choose_probe(self._how, ProbeOptions())
        probe.start()
        self._probe = probe
        self._clock.profiled = 1

    def end(self) -> None:
        """Write what was seen, which may be less than was wanted."""
        self._clock.between = None
        probe, self._probe = self._probe, None
        if probe is None:
            return
        self._clock.profiled = 0
        last = self._clock.step - 1
        label = f"steps {self._first} to {last}, rank {self._rank}"
        profile = replace(probe.stop(), label=label, steps=max(0, last - self._first + 1))
        path = self._folder / f"profile-rank{self._rank}-step{self._first}.profile.json"
        self._folder.mkdir(parents=True, exist_ok=True)
        write_profile(profile, path, FORMAT)
        text = f"Steps {self._first:,} to {last:,} were profiled ({self._how}): {path.name}."
        self._say(self._first, "profile", text, MonitorLevel.NOTE, cause="profile")
