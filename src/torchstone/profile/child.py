"""The process in which a target is profiled: builds it, warms it up, and lets probes look at it.

It is spoken to as a measuring worker is, over two pipes. Unlike one it has all of Torchstone at
hand, and nothing that it does is timed for a result.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torchstone.machine.memory import rss_bytes
from torchstone.measure.arm import Built, build
from torchstone.measure.warmup import warm_up
from torchstone.measure.worker import Worker, main
from torchstone.profile.context import Turns, cost_of, take_turns
from torchstone.profile.formats.base import write_profile
from torchstone.profile.probes.base import Marks, Probe, ProbeOptions, Repeats, Step, choose_probe
from torchstone.records import ArmSpec, Cost, Profile, from_data
from torchstone.workloads import parse_target

BLOCK_S = 0.05
"""Of the blocks whose time with and without a probe is compared."""
SETTLE = 0.1
"""Of a block: steps after a profiled one that nobody times, until caches are as they were."""
MOST_COST_S = 60.0
"""A cost that would take longer to measure is not measured."""
LENGTH_S = {"count": 1.0, "sample": 3.0, "trace": 0.3, "memory": 0.0}
"""How long a pass is, unless the number of steps was given."""
MOST_STEPS = {"count": 10_000, "sample": 1_000_000, "trace": 50, "memory": 3}
LEAST_STEPS = 3


@dataclass
class Ready:
    """A target that is built and warm."""

    built: Built
    step: Step
    step_s: float
    restore: Callable[[], None] | None
    notes: tuple[str, ...]


class ProfilingWorker(Worker):
    """`build` once, then `profile` as often as wanted."""

    ready: Ready | None = None

    def handlers(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        """What can be asked of it."""
        return {"build": self._build, "profile": self._profile}

    def _build(self, command: dict[str, Any]) -> Any:
        arm = from_data(ArmSpec, command["arm"])
        built = build(arm, self.phase)
        self.phase("first call")
        step = _endless(built, arm.seed)

        def time_one() -> int:
            return round(run_steps(step, 1) * 1e9)

        first_ns = time_one()
        self.phase("warm-up")
        warm = warm_up(time_one, first_ns, lambda: self.phase("warm-up"))
        prepared = built.prepared
        restore = prepared.keep_start() if prepared and prepared.keep_start else None
        notes = prepared.notes if prepared else ()
        if not warm.steady:
            notes += (f"The step was not steady when it was profiled: {warm.reason}.",)
        step_s = min(warm.wall_ns[-10:]) / 1e9
        self.ready = Ready(built, step, step_s, restore, notes)
        return {"step_s": step_s}

    def _profile(self, command: dict[str, Any]) -> Any:
        assert self.ready is not None
        ready = self.ready
        options = replace(
            from_data(ProbeOptions, command["options"]), eager=ready.built.arm.variant == "eager"
        )
        if not options.files:
            options = replace(options, files=_files(ready.built.arm.target))
        how = command["how"]
        probe = choose_probe(how, options)
        steps = command["steps"] or default_steps(probe.how, ready.step_s)
        turns, why_not = self._cost(how, options) if command["cost"] else (None, "")
        self.phase("profiling")
        if ready.restore is not None:
            ready.restore()
        before = rss_bytes() or 0
        profile = take(probe, ready.step, steps)
        taken = (rss_bytes() or 0) - before
        if isinstance(probe, Repeats):
            self.phase("counting")
            profile = probe.again(profile, ready.step)
        notes = (*ready.notes, *profile.notes, *((why_not,) if why_not else ()))
        profile = replace(profile, notes=notes)
        self.phase("writing")
        write_profile(profile, command["path"], "torchstone")
        return {"probe": probe.name, "cost": _cost(turns, ready, probe, command["path"], taken)}

    def _cost(self, how: str, options: ProbeOptions) -> tuple[Turns | None, str]:
        """Blocks with and without a probe, in turns."""
        assert self.ready is not None
        step, steps = self.ready.step, _block_steps(self.ready.step_s)
        if 4 * 4 * steps * self.ready.step_s > MOST_COST_S:
            return None, "What profiling costs was not measured: the step is too long for that."

        def plain() -> float:
            return run_steps(step, steps)

        def profiled() -> float:
            probe = choose_probe(how, options)
            marked = probe.around(step) if isinstance(probe, Marks) else step
            probe.start()
            try:
                return run_steps(marked, steps)
            finally:
                probe.discard()
                run_steps(step, math.ceil(steps * SETTLE))

        self.phase("cost")
        profiled()  # the first has to load what it needs
        return take_turns(plain, profiled, say=self.phase), ""


def take(probe: Probe, step: Step, steps: int) -> Profile:
    """Profile so many steps."""
    marked = probe.around(step) if isinstance(probe, Marks) else step
    probe.start()
    try:
        wall = run_steps(marked, steps)
    except BaseException:
        probe.discard()
        raise
    profile = probe.stop()
    return replace(profile, steps=steps, wall_s=profile.wall_s or wall)


def run_steps(step: Step, steps: int) -> float:
    """So many steps one after the other; the seconds that they took."""
    started = time.perf_counter()
    for _ in range(steps):
        step()
    return time.perf_counter() - started


def default_steps(how: str, step_s: float) -> int:
    """As many as make a pass of the usual length."""
    wanted = math.ceil(LENGTH_S.get(how, 1.0) / max(step_s, 1e-7))
    return max(LEAST_STEPS, min(wanted, MOST_STEPS.get(how, 10_000)))


def _block_steps(step_s: float) -> int:
    return max(1, math.ceil(BLOCK_S / max(step_s, 1e-7)))


def _endless(built: Built, seed: int) -> Step:
    """A step that takes the next inputs of a ring each time, and waits for its device."""
    turn_of = itertools.cycle(built.ring(seed, 8))
    assert built.prepared is not None
    call, wait = built.prepared.step, built.device.synchronize

    def step() -> object:
        inputs = next(turn_of)
        output = call(*inputs.args, **inputs.kwargs)
        if wait is not None:
            wait()
        return output

    return step


def _files(target: str) -> tuple[str, ...]:
    """The user's own file, whose lines are worth looking at."""
    parsed = parse_target(target)
    return (parsed.place,) if parsed.kind == "file" else ()


def _cost(turns: Turns | None, ready: Ready, probe: Probe, path: str, taken: int) -> Cost | None:
    if turns is None:
        return None
    written = getattr(probe, "written_bytes", 0) or os.stat(path).st_size
    return cost_of(turns, _block_steps(ready.step_s), written, taken)


if __name__ == "__main__":
    main(ProfilingWorker)
