"""The Python API: the same as the commands, returning records."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from torchstone.conductor import USUAL, Events, Settings
from torchstone.lab import bench as lab_bench
from torchstone.lab import timing
from torchstone.lab.recording import Recorder
from torchstone.lab.request import BenchRequest, with_effort
from torchstone.lab.result import BenchResult, for_people
from torchstone.lab.session import BUDGET_S as SESSION_BUDGET_S
from torchstone.lab.session import (
    SessionRequest,
    as_objects,
    bench_session,
    import_name,
    is_object,
)
from torchstone.records import Result, Tuning, UsageError
from torchstone.show.notebook import api_progress

Target = Any
"""A string as on the command line, a function or factory of a file, or an object: a module, a
lambda, a local function, `(call, inputs)`, a `Workload`."""


def bench(
    *targets: Target,
    inputs: Any = None,
    vs: str | Sequence[str] = (),
    arms: str | Sequence[str] = (),
    mode: str = "inference",
    precision: str = "fp32",
    device: str = "cpu",
    threads: int | None = None,
    python: str | None = None,
    env: Mapping[str, str] | None = None,
    allocator: str = "",
    effort: str = USUAL,
    total: float | None = None,
    budget: float | None = None,
    within: float | None = None,
    margin: float | None = None,
    seed: int = 0,
    timeout: float = 60.0,
    build_timeout: float = 600.0,
    replicates: int | None = None,
    independent: bool = False,
    together: bool = False,
    until: str = "precise",
    save: bool = False,
    db: str | None = None,
    label: str = "",
    progress: bool | None = None,
) -> BenchResult:
    """Measure one target, or compare several; the first arm is the baseline. Times in seconds.

    Strings and functions of a file are measured in fresh processes, anything else in this one.
    """
    settings = with_effort(
        effort,
        total_s=total,
        budget_s=budget,
        within=within,
        margin=margin,
        seed=seed,
        step_timeout_s=timeout,
        build_timeout_s=build_timeout,
        replicates=replicates,
        independent=independent,
        together=together,
        until=until,
    )
    recorder, pairs = Recorder(db, saves=save), tuple(sorted((env or {}).items()))
    shared = {"mode": mode, "precision": precision, "device": device, "threads": threads}
    common: dict[str, Any] = {**shared, "vs": _words(vs), "label": label, "settings": settings}
    apart: dict[str, Any] = {"arms": _words(arms), "python": python, "allocator": allocator}
    with _events(progress) as events:
        if inputs is None and not any(map(is_object, targets)):
            request = BenchRequest(tuple(map(as_target, targets)), **common, **apart, env=pairs)
            return _told(lab_bench.bench(request, recorder, events), recorder)
        _refuse(**apart, env=pairs, replicates=replicates, together=together, total=total)
        if budget is None and effort == USUAL:
            common["settings"] = replace(settings, budget_s=SESSION_BUDGET_S)
        session = SessionRequest(as_objects(targets, inputs), **common)
        return _told(bench_session(session, recorder, events), recorder)


def _refuse(**options: object) -> None:
    """What another process would be needed for."""
    for name, value in options.items():
        if value:
            raise UsageError(
                f"Objects of a session are measured in this process, so {name} cannot be set.",
                "Write a factory `def make(): ...` in a file, and name it: path.py:make.",
            )


def _events(wanted: bool | None) -> AbstractContextManager[Events | None]:
    return api_progress(wanted) or nullcontext()


def _told(result: Result, recorder: Recorder) -> BenchResult:
    """The result, with a warning for each thing that could not be kept."""
    _warn(recorder)
    return for_people(result, recorder.has_kept)


def _warn(recorder: Recorder) -> None:
    for one in recorder.storage_warnings:
        warnings.warn(f"{one.message} {one.remedy}".rstrip(), stacklevel=4)


def _words(given: str | Sequence[str]) -> tuple[str, ...]:
    """One word or several: a string alone is not its letters."""
    return (given,) if isinstance(given, str) else tuple(given)


def compare(base: Target, new: Target, **options: Any) -> BenchResult:
    """Two targets, the first the baseline: `result.verdict`, `result.speedup`.

    Refuses `vs`: it would make four arms of two targets, and the first comparison another one.
    """
    if options.get("vs"):
        raise UsageError(
            "compare() sets one target against another, each as it is: it takes no vs.",
            "Call bench(base, new, vs=...), or let the two targets compile what they return.",
        )
    return bench(base, new, **options)


def timeit(
    stmt: str | Sequence[str],
    setup: str = "pass",
    *,
    number: int | None = None,
    repeat: int | None = None,
    budget: float = timing.BUDGET_S,
    timeout: float = 60.0,
    replicates: int | None = None,
    threads: int | None = None,
    python: str | None = None,
    allocator: str = "",
    save: bool = False,
    db: str | None = None,
    progress: bool | None = None,
) -> BenchResult:
    """Time a statement as `timeit` would; several statements are compared with the first."""
    statements = (stmt,) if isinstance(stmt, str) else tuple(stmt)
    settings = Settings(
        budget_s=budget,
        loops=number,
        samples=repeat,
        step_timeout_s=timeout,
        replicates=replicates,
    )
    recorder = Recorder(db, saves=save)
    with _events(progress) as events:
        result = timing.time_statements(
            statements,
            setup,
            settings,
            python=python,
            allocator=allocator,
            threads=threads,
            recorder=recorder,
            events=events,
        )
    return _told(result, recorder)


def tune(
    target: Target,
    *,
    mode: str = "inference",
    precision: str = "fp32",
    device: str = "cpu",
    threads: int | None = None,
    python: str | None = None,
    env: Mapping[str, str] | None = None,
    allocator: str = "default",
    goal: str = "speed",
    allow: str = "tolerance",
    budget: float = 600.0,
    metric: str = "",
    only: str | Sequence[str] = (),
    without: str | Sequence[str] = (),
    recipe: str = "",
    margin: float = 0.02,
    seed: int = 0,
    timeout: float = 60.0,
    build_timeout: float = 600.0,
    save: bool = False,
    db: str | None = None,
) -> Tuning:
    """Find what makes a target faster, and prove it; see `torchstone tune --help`.

    `adopted` of what is returned names the techniques, `recipe_path` the file that applies them.
    """
    from torchstone.lab.tune import TuneRequest
    from torchstone.lab.tune import tune as run

    asked = BenchRequest(
        targets=(as_target(target),),
        mode=mode,
        precision=precision,
        device=device,
        threads=threads,
        python=python,
        env=tuple(sorted((env or {}).items())),
        allocator=allocator,
        settings=Settings(
            margin=margin, seed=seed, step_timeout_s=timeout, build_timeout_s=build_timeout
        ),
    )
    request = TuneRequest(
        asked,
        goal=goal,
        allow=allow,
        budget_s=budget,
        metric=metric,
        only=_words(only),
        without=_words(without),
        recipe=recipe,
    )
    recorder = Recorder(db, saves=save)
    found = run(request, recorder)
    _warn(recorder)
    return found


def as_target(target: Target) -> str:
    """The name by which a worker can import a function: `file.py:name`, or `file.py:name()`.

    A function called `make` or `make_something` is a factory; any other is timed itself.
    """
    if isinstance(target, str):
        return target
    place = import_name(target)
    if place is None:
        raise UsageError(
            f"{target!r} cannot be imported by a worker.",
            "Define it at the top level of a file, or pass a string such as path.py:make.",
        )
    name = place.rpartition(":")[2]
    return place if name == "make" or name.startswith("make_") else f"{place}()"
