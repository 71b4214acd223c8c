"""Profiling a stretch of code from inside: a context manager that is a decorator as well."""

from __future__ import annotations

import functools
import inspect
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median_high
from typing import Any, TypeVar

from torchstone.profile.formats.base import find_format, known_formats, shown, write_profile
from torchstone.profile.probes.base import CLOCKS, RATE_HZ, Probe, ProbeOptions, choose_probe
from torchstone.profile.probes.count import not_repeated
from torchstone.records import Cost, Estimate, Profile, UsageError

# What profiling costs: profiled against unprofiled work, in turns, beside a control of nothing.
#
# Only pairs within one process could tell a profiler's cost from the machine's moods; whole
# processes differ by more. Where there is nothing but whole processes (a script), the interval says
# so.


ESTIMATOR = "paired blocks"
LEVEL = 0.95
MOST_PAIRS = 12
LEAST_PAIRS = 4
"""A multiple of four is balanced: every order behind every other."""
BUDGET_S = 4.0
"""For all pairs, once there are enough of them."""

Block = Callable[[], float]
"""Does a fixed amount of work; the seconds that it took."""


@dataclass
class Turns:
    """Seconds of neighbouring blocks: unprofiled and profiled, and unprofiled twice."""

    pairs: list[tuple[float, float]] = field(default_factory=list)
    controls: list[tuple[float, float]] = field(default_factory=list)


def take_turns(
    plain: Block,
    profiled: Block,
    budget_s: float = BUDGET_S,
    least: int = LEAST_PAIRS,
    most: int = MOST_PAIRS,
    say: Callable[[str], None] | None = None,
) -> Turns:
    """Interleaved pairs, the order changing each time: what drifts hits both alike."""
    turns = Turns()
    started = time.monotonic()
    for number in range(most):
        if number >= least and time.monotonic() - started > budget_s:
            break
        if say is not None:
            say("cost")
        if number % 2:
            new = profiled()
            turns.pairs.append((plain(), new))
        else:
            base = plain()
            turns.pairs.append((base, profiled()))
        # What a probe leaves behind hits the block after it: in every other turn that is the first
        # of these two, so which of them comes first changes at another pace.
        first, second = plain(), plain()
        turns.controls.append((second, first) if number // 2 % 2 else (first, second))
    return turns


def cost_of(turns: Turns, steps: int = 1, footprint_bytes: int = 0, memory_bytes: int = 0) -> Cost:
    """The record. Seconds are those of one step: the middle one of the blocks."""
    return Cost(
        ratio=_estimate(turns.pairs),
        control=_estimate(turns.controls),
        unprofiled_s=median_high(base for base, _ in turns.pairs) / max(1, steps),
        profiled_s=median_high(new for _, new in turns.pairs) / max(1, steps),
        footprint_bytes=footprint_bytes,
        memory_bytes=max(0, memory_bytes),
    )


def _estimate(pairs: list[tuple[float, float]]) -> Estimate:
    from torchstone.stats import geometric_mean

    found = geometric_mean([new / base for base, new in pairs], LEVEL)
    return Estimate(ESTIMATOR, found.value, (found.lo, found.hi), LEVEL, len(pairs))


# Which format a file of a given name is to have.


def format_of(path: Path, others: tuple[str, ...] = ()) -> str:
    """The format whose ending the name has; the longest ending wins. `others` are endings that
    somebody else knows, to be told of."""
    name = path.name.removesuffix(".gz").lower()
    endings = {  # where two formats have the same, the first by name wins
        ending: one
        for one in sorted(known_formats(), reverse=True)
        for ending in find_format(one).endings
    }
    fitting = [ending for ending in endings if name.endswith(ending)]
    if fitting:
        return endings[max(fitting, key=len)]
    known = ", ".join(sorted({*endings, *others}))
    raise UsageError(
        f"{shown(path)} does not end in a way that says its format.", f"Endings: {known}."
    )


_NO_COST = (
    "What profiling costs was not measured: that takes the same work without it, in turns. "
    "`torchstone profile` does that with a target."
)

F = TypeVar("F", bound=Callable[..., Any])

_ON: list[Profiling] = []
"""Those that are on in this process."""


class Profiling:
    """What `torchstone.profile()` returns. `profile` is the last one taken, None before that."""

    def __init__(self, how: str, options: ProbeOptions, out: str | Path | None, label: str) -> None:
        self._how = how
        self._options = options
        self._out = Path(out) if out is not None else None
        self._format = format_of(self._out) if self._out is not None else ""
        self._label = label
        self._probe: Probe | None = None
        self._turn = threading.Lock()
        """Held from the start until the profile is written, by whatever thread."""
        self.profile: Profile | None = None

    def __enter__(self) -> Profiling:
        if not self._begin():
            raise UsageError(
                "This profiler is on already.", "Make another one for what is inside or beside it."
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def __call__(self, function: F) -> F:
        """Profile each call of a function; `profile` is of the last one.

        A call while another is being profiled (a recursion, a second thread, a task beside it) only
        runs. A coroutine function is profiled until it has been awaited.
        """
        _refuse_generators(function)
        if not self._label:
            self._label = getattr(function, "__qualname__", "")
        if _is_coroutine_function(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                if not self._begin_if_free():
                    return await function(*args, **kwargs)
                try:
                    return await function(*args, **kwargs)
                finally:
                    self._end()

            return awaited  # type: ignore[return-value]

        @functools.wraps(function)
        def profiled(*args: Any, **kwargs: Any) -> Any:
            if not self._begin_if_free():
                return function(*args, **kwargs)
            try:
                return function(*args, **kwargs)
            finally:
                self._end()

        return profiled  # type: ignore[return-value]

    def _begin(self) -> bool:
        """Start the probe; False where this one is on already, in whatever thread."""
        if not self._turn.acquire(blocking=False):
            return False
        _ON.append(self)
        try:
            self._probe = choose_probe(self._how, self._options)
            self._probe.start()
        except BaseException:
            self._off()
            raise
        return True

    def _begin_if_free(self) -> bool:
        """The same for a decorated function, which has to run where another profiler bars ours."""
        try:
            return self._begin()
        except Exception:
            if not _ON:
                raise
            return False

    def _end(self) -> None:
        """Stop the probe, and write what it saw."""
        assert self._probe is not None
        try:
            profile = not_repeated(self._probe.stop())
            self.profile = replace(
                profile, label=self._label or profile.label, notes=(*profile.notes, _NO_COST)
            )
            if self._out is not None:
                write_profile(self.profile, self._out, self._format)
        finally:
            self._off()

    def _off(self) -> None:
        self._probe = None
        _ON.remove(self)
        self._turn.release()


def _refuse_generators(function: Callable[..., Any]) -> None:
    """Its call only makes one, and later it runs in turns with whoever takes from it."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        name = getattr(function, "__qualname__", "It")
        raise UsageError(
            f"{name} is a generator: its call does no work that could be profiled.",
            "Profile the loop that takes from it: `with torchstone.profile() as taken:`.",
        )


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object may be called asynchronously
    )


def profile(
    how: str = "count",
    *,
    out: str | Path | None = None,
    rate: float = RATE_HZ,
    clock: str = "wall",
    native: bool = False,
    functions: Sequence[str] = (),
    label: str = "",
) -> Profiling:
    """Profile a stretch of code: `with torchstone.profile("sample") as taken:`, or as a decorator.

    `how` is `count`, `sample`, `trace` or `memory`. With `native`, samples show native functions
    too, which takes py-spy. `functions` are looked at line by line where
    `how` is `memory`. With `out` the profile is written to that file, in the format that its name
    ends in. The profile is in `taken.profile`.
    """
    check_sampling(rate, clock)
    options = ProbeOptions(rate_hz=rate, clock=clock, native=native, functions=tuple(functions))
    return Profiling(how, options, out, label)


MOST_HZ = 10_000.0


def check_sampling(rate: float, clock: str) -> None:
    """Refuse what no sampler can do."""
    if not 0 < rate <= MOST_HZ:
        remedy = f"Give up to {MOST_HZ:g}; {RATE_HZ:g} is usual."
        raise UsageError(f"{rate:g} samples a second cannot be taken.", remedy)
    if clock not in CLOCKS:
        raise UsageError(f"There is no clock {clock!r}.", f"Choose from {', '.join(CLOCKS)}.")
