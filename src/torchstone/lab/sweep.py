"""Sweeps: one request at several settings, measured case by case and kept as one result.

What is swept decides what is compared. Arguments of a factory (`--sweep batch=1,8`) make another
workload, so every combination is a case of its own. Threads and precisions run the same workload:
with one variant they are arms of one case, the first of them the baseline; with several variants
each combination is a case, and the variants are compared within it.
"""

from __future__ import annotations

import itertools
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from torchstone.conductor import Events, LiveEvents, Settings
from torchstone.conductor.launch import open_templates
from torchstone.conductor.run import OUT_OF_TIME
from torchstone.lab.bench import keep, measure, measure_unsaved, new_id
from torchstone.lab.output_files import write_file
from torchstone.lab.peaks import evaluate_again
from torchstone.lab.recording import Recorder
from torchstone.lab.request import (
    BenchRequest,
    check_arm,
    check_settings,
    command_of,
    distinct,
    make_arms,
    vary_shapes,
)
from torchstone.lab.secrets import public_words, signature
from torchstone.machine.memory import usual_allocator
from torchstone.records import (
    COMMAND_SETUP,
    ArmSpec,
    Calibration,
    Result,
    Statement,
    SweepCase,
    UsageError,
)
from torchstone.records.format import count
from torchstone.show.sweep import sweep_svg
from torchstone.store.limits import now
from torchstone.workloads.target import parse_target

MOST_ARMS = 200
"""Of one sweep: hours of measuring, and a table that nobody reads."""
LEAST_CASE_S = 2.0
"""Of `--total`: in less time nothing is measured, so the cases that are left are not begun."""
THREADS, PRECISION = "threads", "precision"
T = TypeVar("T")
Values = tuple[tuple[str, str], ...]


def is_sweep(request: BenchRequest) -> bool:
    """Whether there is more than one point to measure, or a whole command."""
    return bool(request.sweep or request.commands)


def sweep(
    request: BenchRequest, recorder: Recorder | None = None, events: Events | None = None
) -> Result:
    """Check the request, measure every case, put them into one result and save it. Ctrl-C keeps
    the cases that are done."""
    check_settings(request.settings)
    cases = make_cases(request)
    if recorder is not None and recorder.saves:
        recorder.check()
    command = public_words(command_of(request))
    deeper = request.settings.does.looks_deeper and not request.commands
    settings = replace(request.settings, count_flops=deeper)
    if len(cases) == 1:
        return measure(cases[0], settings, recorder, events, command, "bench", request.label)
    found: list[Result] = []
    began, stopped = time.monotonic(), ""
    with open_templates() as templates:
        for number, arms in enumerate(cases, 1):
            told = _Numbered(events, number, len(cases)) if events is not None else None
            share = _share(settings, began, len(cases) - len(found))
            if found and share.total_s is not None and share.total_s < LEAST_CASE_S:
                stopped = OUT_OF_TIME
                break
            made = measure_unsaved(
                arms, share, recorder, told, command, "bench", request.label, templates
            )
            interrupted = made.method.stopped_by == "interrupt"
            if not (interrupted and found and not made.arms[0].turns):
                found.append(made)
            if interrupted:
                stopped = "interrupt" if len(found) < len(cases) else ""
                break
    return keep(merged(found, stopped, saves=recorder is not None and recorder.saves), recorder)


def _share(settings: Settings, began: float, cases: int) -> Settings:
    """With this case's part of the time for everything: as much as each of those after it."""
    if settings.total_s is None:
        return settings
    return replace(settings, total_s=(settings.total_s - (time.monotonic() - began)) / cases)


class _Numbered:
    """Says which case of how many a phase belongs to, and what all of them will take."""

    def __init__(self, events: Events, number: int, cases: int) -> None:
        self._events, self._head = events, f"case {number} of {cases}: "
        self._after, self._began, self._case_s = cases - number, time.monotonic(), 0.0

    def phase(self, text: str) -> None:
        """A new part begins."""
        self._events.phase(f"{self._head}{text}")

    def update(self, fraction: float, text: str, seconds_left: float | None) -> None:
        """Progress within the case."""
        after = 0.0 if seconds_left is None else self._after * self._case_s
        left = None if seconds_left is None else seconds_left + after
        self._events.update(fraction, f"{self._head}{text}", left)

    def expect(self, seconds_left: float, why: str) -> None:
        """The rest of this case, and as much for each of those after it."""
        if isinstance(self._events, LiveEvents):
            self._case_s = time.monotonic() - self._began + seconds_left
            more = f", then {count(self._after, 'more case')}" if self._after else ""
            self._events.expect(seconds_left + self._after * self._case_s, f"{why}{more}")

    def __getattr__(self, name: str) -> object:
        return getattr(self._events, name)


# From the request to cases.


def make_cases(request: BenchRequest) -> list[tuple[ArmSpec, ...]]:
    """The arms of every case, the baseline first."""
    axes = _checked(request)
    inner = [axis for axis in axes if axis[0] in (THREADS, PRECISION)]
    outer = [axis for axis in axes if axis not in inner]
    cases: list[list[ArmSpec]] = []
    for params in _combinations(outer):
        points = [_arms_at(request, params, values) for values in _combinations(inner)]
        alone = all(len(arms) == 1 for arms in points)
        cases += [[arm for arms in points for arm in arms]] if alone else points
    _refuse_many(sum(map(len, cases)))
    named = iter(distinct([arm for arms in cases for arm in arms]))
    return [vary_shapes([next(named) for _ in arms]) for arms in cases]


def _checked(request: BenchRequest) -> list[tuple[str, tuple[str, ...]]]:
    axes = list(request.sweep)
    names = [name for name, _ in axes]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UsageError(f"{min(twice)} is swept twice.", "Put its values into one list.")
    for target in request.targets:
        free = [name for name in names if name not in (THREADS, PRECISION)]
        if free and parse_target(target).kind == "suite":
            raise UsageError(
                f"{target} is a suite's model, which takes no {free[0]}.",
                "Sweep a factory of your own: path.py:make with --sweep batch=1,8.",
            )
    return axes


def _combinations(axes: Sequence[tuple[str, tuple[str, ...]]]) -> Iterator[Values]:
    names = [name for name, _ in axes]
    for values in itertools.product(*(values for _, values in axes)):
        yield tuple(zip(names, values, strict=True))


def _refuse_many(arms: int) -> None:
    if arms > MOST_ARMS:
        raise UsageError(
            f"The sweep has {arms} arms, and {MOST_ARMS} are the most.", "Give fewer values."
        )


def _arms_at(request: BenchRequest, params: Values, values: Values) -> list[ArmSpec]:
    """The arms at one point, named by it."""
    at, here = dict(values), request
    if THREADS in at:
        here = replace(here, threads=_whole(at[THREADS]))
    if PRECISION in at:
        here = replace(here, precision=at[PRECISION])
    arms = _command_arms(here, params) if request.commands else list(make_arms(here))
    point = " ".join(f"{name}={value}" for name, value in (*params, *values))
    several = len(arms) > 1 or not point
    named = []
    for arm in arms:
        name = f"{arm.name} {point}".strip() if several else point
        if arm.statement is not None:  # a command with the values in it says them itself
            same = arm.name in request.commands
            name = name if same else " ".join([arm.name, *(f"{k}={v}" for k, v in values)])
        named.append(replace(arm, name=name, params=params))
    for arm in named:
        check_arm(arm)
    return named


def _whole(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise UsageError(f"{text!r} is no number of threads.", "Write --threads 1,2,4.")
    return int(text)


def _command_arms(request: BenchRequest, params: Values) -> list[ArmSpec]:
    """Whole commands: each is split as a shell would, and started without one. `{name}` stands
    for a value that is swept."""
    if request.targets or request.vs or request.arms:
        raise UsageError(
            "Commands cannot be compared with targets, variants or arms.",
            "Name commands only: --command 'python old.py' --command 'python new.py'.",
        )
    return [_command_arm(text, request, params) for text in request.commands]


def _command_arm(text: str, request: BenchRequest, params: Values) -> ArmSpec:
    shown = text
    for name, value in params:
        shown = shown.replace(f"{{{name}}}", value)
    try:
        words = shlex.split(shown)
    except ValueError as error:
        raise UsageError(f"--command {text!r} cannot be read: {error}.") from None
    if not words:
        raise UsageError("--command is empty.", "Write --command 'python train.py --steps 50'.")
    return ArmSpec(
        name=shown,
        threads=request.threads,
        python=request.python,
        env=request.env,
        allocator=request.allocator or usual_allocator(),
        seed=request.settings.seed,
        statement=Statement(f"run({words!r})", COMMAND_SETUP),
    )


# The picture.


def check_picture(path: str | None, request: BenchRequest) -> None:
    """Refuse a picture of what has none, before anything is measured."""
    if path is not None and not request.sweep:
        raise UsageError("--svg draws a sweep.", "Sweep something: --sweep batch=1,8,32.")


def write_picture(path: str | None, result: Result) -> None:
    """Write it, where one is wanted."""
    if path is not None:
        write_file(path, sweep_svg(result))


# From cases to one result.


def merged(cases: Sequence[Result], stopped: str = "", saves: bool = False) -> Result:
    """All cases as one result; what each was measured with is kept beside it. `stopped`: why the
    others are not there."""
    first, name = cases[0], new_id()
    arms = tuple(arm for case in cases for arm in case.arms)
    ended = stopped or cases[-1].method.stopped_by
    elapsed = sum(case.method.elapsed_s for case in cases)
    made = replace(
        first,
        id=name,
        created=now(),
        arms=arms,
        method=replace(first.method, stopped_by=ended, elapsed_s=elapsed),
        sweep=tuple(SweepCase(len(case.arms), case.method, case.clocks_hz) for case in cases),
        calibration=_peaks(cases),
        clocks_hz=tuple(clock for case in cases for clock in case.clocks_hz),
        signature=signature(name, (arm.arm for arm in arms)) if saves else "",
    )
    return _with_words(made, cases)


def _with_words(result: Result, cases: Sequence[Result]) -> Result:
    """What the cases say, in order; what several say of no arm in particular, once."""
    return replace(
        result,
        comparisons=_once(one for case in cases for one in case.comparisons),
        checks=_once(one for case in cases for one in case.checks),
        remeasurements=_once(one for case in cases for one in case.remeasurements),
    )


def _once(several: Iterable[T]) -> tuple[T, ...]:
    """Records with mappings in them have no hash, so they are compared one by one."""
    found: list[T] = []
    for one in several:
        if one not in found:
            found.append(one)
    return tuple(found)


def _peaks(cases: Sequence[Result]) -> Calibration | None:
    known = [case.calibration for case in cases if case.calibration is not None]
    if not known:
        return None
    compute = dict.fromkeys(peak for one in known for peak in one.compute)
    bandwidth = dict.fromkeys(peak for one in known for peak in one.bandwidth)
    return replace(known[-1], compute=tuple(compute), bandwidth=tuple(bandwidth))


def evaluate_sweep(result: Result) -> Result:
    """A stored sweep evaluated again, case by case."""
    return _with_words(result, [evaluate_again(case) for case in result.cases()])
