"""The Python API: the same as the commands, returning records."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchstone.conductor import Settings
from torchstone.lab import bench as lab_bench
from torchstone.lab import timing
from torchstone.lab.recording import Recorder
from torchstone.lab.request import BenchRequest
from torchstone.records import Result, UsageError

Target = str | Callable[..., Any]


def bench(
    *targets: Target,
    vs: str | Sequence[str] = (),
    arms: str | Sequence[str] = (),
    mode: str = "inference",
    precision: str = "fp32",
    device: str = "cpu",
    threads: int | None = None,
    python: str | None = None,
    env: Mapping[str, str] | None = None,
    allocator: str = "",
    budget: float = 30.0,
    within: float = 0.01,
    margin: float = 0.02,
    seed: int = 0,
    timeout: float = 60.0,
    build_timeout: float = 600.0,
    replicates: int | None = None,
    independent: bool = False,
    together: bool = False,
    save: bool = False,
    db: str | None = None,
) -> Result:
    """Measure one target, or compare several; the first arm is the baseline. Times in seconds.

    A target is a string as on the command line, or a function or factory defined at the top level
    of a file (workers import it: no lambda, no nested function). Nothing is stored without `save`.
    An empty `allocator` is `keep` where the C library is glibc.
    """
    request = BenchRequest(
        targets=tuple(as_target(target) for target in targets),
        vs=_words(vs),
        arms=_words(arms),
        mode=mode,
        precision=precision,
        device=device,
        threads=threads,
        python=python,
        env=tuple(sorted((env or {}).items())),
        allocator=allocator,
        settings=Settings(
            budget_s=budget,
            within=within,
            margin=margin,
            seed=seed,
            step_timeout_s=timeout,
            build_timeout_s=build_timeout,
            replicates=replicates,
            independent=independent,
            together=together,
        ),
    )
    recorder = Recorder(db, saves=save)
    return _told(lab_bench.bench(request, recorder), recorder)


def _told(result: Result, recorder: Recorder) -> Result:
    """The result, with a warning for each thing that could not be kept."""
    for one in recorder.storage_warnings:
        warnings.warn(f"{one.message} {one.remedy}".rstrip(), stacklevel=3)
    return result


def _words(given: str | Sequence[str]) -> tuple[str, ...]:
    """One word or several: a string alone is not its letters."""
    return (given,) if isinstance(given, str) else tuple(given)


def compare(base: Target, new: Target, **options: Any) -> Result:
    """Two targets, the first the baseline; `result.comparisons[0]` has the verdict.

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
    python: str | None = None,
    allocator: str = "",
    save: bool = False,
    db: str | None = None,
) -> Result:
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
    result = timing.time_statements(
        statements, setup, settings, python=python, allocator=allocator, recorder=recorder
    )
    return _told(result, recorder)


def as_target(target: Target) -> str:
    """The name by which a worker can import a function: `file.py:name`, or `file.py:name()`.

    A function called `make` or `make_something` is a factory; any other is timed itself.
    """
    if isinstance(target, str):
        return target
    name = getattr(target, "__qualname__", "")
    try:
        path = inspect.getsourcefile(target)
    except TypeError:
        path = None
    if not path or not name or "<" in name or not os.path.isfile(path):
        raise UsageError(
            f"{name or target!r} cannot be imported by a worker.",
            "Define it at the top level of a file, or pass a string such as path.py:make.",
        )
    factory = name == "make" or name.startswith("make_")
    return f"{os.path.abspath(path)}:{name}{'' if factory else '()'}"
