"""The Python API: the same as the commands, returning records.

What the Python API gives back: the record, with its figures and its report within reach.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any, SupportsIndex, cast, overload

from torchstone.conductor import USUAL, Events, Settings
from torchstone.lab import bench as lab_bench
from torchstone.lab.recording import Recorder
from torchstone.lab.request import BenchRequest, with_effort
from torchstone.lab.session import BUDGET_S as SESSION_BUDGET_S
from torchstone.lab.session import SessionRequest, as_objects, bench_session, import_name, is_object
from torchstone.records import Comparison, Measurement, Result, Tuning, UsageError, Verdict
from torchstone.records.format import format_interval, format_ratio, format_seconds, ratio_decimals
from torchstone.records.plugins import did_you_mean
from torchstone.show.notebook import api_progress
from torchstone.show.rows import Figures, figures, lead_of, speedup_interval
from torchstone.show.terminal import report

DEFAULT_WIDTH = 100
ALL_CHECKS = "report(verbose=True)"


@dataclass(frozen=True)
class Times:
    """Seconds per call of one arm, by the names that every report has; None where not known."""

    floor: float | None
    floor_interval: tuple[float, float] | None
    typical: float | None
    typical_interval: tuple[float, float] | None
    fastest: float
    samples: tuple[float, ...]


class ArmResult(Measurement):
    """One arm: its record, its times, and how it compares with the baseline."""

    @property
    def name(self) -> str:
        """As in the report."""
        return self.arm.name

    @property
    def time(self) -> Times | None:
        """Seconds per call; None without samples."""
        found: Figures | None = figures(self, cast("float", self.__dict__.get("alpha", 0.05)))
        if found is None:
            return None
        return Times(
            found.floor.value,
            found.floor.interval,
            found.typical.value,
            found.typical.interval,
            min(found.samples),
            found.samples,
        )

    @property
    def comparison(self) -> Comparison | None:
        """With the baseline; None of the baseline itself."""
        return cast("Comparison | None", self.__dict__.get("compared"))

    @property
    def speedup(self) -> float | None:
        """Time of the baseline over this arm's; None of the baseline itself."""
        return self.comparison.speedup if self.comparison else None

    @property
    def verdict(self) -> Verdict | None:
        """Against the baseline; None of the baseline itself."""
        return self.comparison.verdict if self.comparison else None

    def __repr__(self) -> str:
        return f"<arm {self.name}: {_arm_words(self)}>"


class Arms(tuple[ArmResult, ...]):
    """The arms in order; by number as in any tuple, or by name: `arms["inductor"]`."""

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> ArmResult: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[ArmResult, ...]: ...
    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        for arm in self:
            if arm.name == key:
                return arm
        names = [arm.name for arm in self]
        raise KeyError(f"no arm {key!r}. {did_you_mean(key, names)}Arms: {', '.join(names)}.")

    def keys(self) -> list[str]:
        """The names, in order."""
        return [arm.name for arm in self]


class BenchResult(Result):
    """A `Result` for people: figures by name, `report()`, a short `repr`, a picture in notebooks.

    `speedup` and `verdict` are those of the one arm that is compared with the baseline; with more
    arms ask each: `result.arms["inductor"].speedup`.
    """

    arms: Arms

    @property
    def comparison(self) -> Comparison:
        """The only one; a `UsageError` where there is none or more."""
        if len(self.comparisons) != 1:
            names = ", ".join(arm.name for arm in self.arms[1:])
            many = f"Ask an arm: result.arms[NAME] of {names}." if names else "Give vs=..."
            raise UsageError(f"There are {len(self.comparisons)} comparisons.", many)
        return self.comparisons[0]

    @property
    def speedup(self) -> float | None:
        """Time of the baseline over the other arm's."""
        return self.comparison.speedup

    @property
    def verdict(self) -> Verdict:
        """Of the other arm against the baseline: `faster`, `slower`, `same`, `cannot tell`, …"""
        return self.comparison.verdict

    def report(self, *, verbose: bool = False, color: bool | None = None, width: int = 0) -> str:
        """What `torchstone bench` prints; `verbose` has every check."""
        if color is None:
            color = bool(getattr(sys.stdout, "isatty", bool)()) and "NO_COLOR" not in os.environ
        width = width or shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
        saved = bool(self.__dict__.get("saved", False))
        return report(self, color=color, width=width, saved=saved, verbose=verbose, more=ALL_CHECKS)

    def to_json(self) -> dict[str, Any]:
        """The document that `--json` writes."""
        from torchstone.show.markdown import document

        return document(self)

    def __str__(self) -> str:
        return self.report(color=False)

    def __repr__(self) -> str:
        lines = [f"  {arm.name}: {_arm_words(arm)}" for arm in self.arms]
        return "\n".join([f"<torchstone result {self.id}", *lines, "  .report() has the rest>"])

    def _repr_html_(self) -> str:
        from torchstone.show.notebook import result_html

        return result_html(self)


def _arm_words(arm: ArmResult) -> str:
    if arm.outcome.value != "ok":
        return f"{arm.outcome.words}: {arm.detail.message}".rstrip(": ")
    return ", ".join(_words_of(arm))


def _words_of(arm: ArmResult) -> Iterator[str]:
    lead = cast("str", arm.__dict__.get("lead", "floor"))
    time = arm.time
    seconds = getattr(time, lead) if time is not None else None
    yield f"{lead} {format_seconds(seconds, 3)}" if seconds is not None else f"{lead} unknown"
    compared = arm.comparison
    if compared is None:
        return
    yield compared.verdict.value
    if compared.speedup is not None:
        ends = speedup_interval(compared)
        decimals = ratio_decimals(compared.speedup, ends)
        yield f"{format_ratio(compared.speedup, decimals)} ({format_interval(ends, decimals)})"


def for_people(result: Result, saved: bool = False) -> BenchResult:
    """The same record, within reach."""
    by_name = {one.new: one for one in result.comparisons}
    lead = lead_of(result)
    arms = []
    for one in result.arms:
        arm = ArmResult(**{f.name: getattr(one, f.name) for f in fields(Measurement)})
        # Not fields: the record stays what it is wherever it is written.
        arm.__dict__.update(
            alpha=result.method.alpha, compared=by_name.get(one.arm.name), lead=lead
        )
        arms.append(arm)
    values = {f.name: getattr(result, f.name) for f in fields(Result)}
    made = BenchResult(**{**values, "arms": Arms(arms)})
    made.__dict__["saved"] = saved
    return made


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
    budget: float = lab_bench.BUDGET_S,
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
        result = lab_bench.time_statements(
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
