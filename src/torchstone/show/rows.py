"""A result in words and numbers: its heading, and the table of its arms."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torchstone.records import (
    ArmSpec,
    Comparison,
    Environment,
    GitState,
    Measurement,
    Outcome,
    Result,
    Verdict,
)
from torchstone.records.format import (
    as_much,
    count,
    format_bytes,
    format_interval,
    format_percent,
    format_ratio,
    format_seconds,
    half_width,
    ratio_decimals,
)
from torchstone.show.table import Glyphs, Style, cells, shorten

# The first lines of a report: what was measured, how, and on what machine, in a few words.


_MARKETING = re.compile(r"\((?:R|TM|C)\)|\bCPU\b|@.*$|\bProcessor\b|\b\d+-Core\b", re.IGNORECASE)
MOST_TARGETS = 3
"""Longer lists of targets are counted, not named: the table names the arms."""


def what(result: Result) -> list[str]:
    """The command's kind and its subject, then the settings that all arms share."""
    specs = [measurement.arm for measurement in result.arms]
    targets = _distinct(_subject(spec) for spec in specs)
    subject = ", ".join(targets) if len(targets) <= MOST_TARGETS else f"{len(specs)} arms"
    if result.label and result.label != subject:
        subject = f"{result.label}: {subject}" if subject else result.label
    settings = [
        _shared(spec.mode for spec in specs if spec.statement is None),
        _shared(spec.precision for spec in specs if spec.statement is None),
        _shared(spec.device for spec in specs),
        _shared("CPU time" for spec in specs if spec.statement and spec.statement.clock == "cpu"),
        _threads(result),
        _shared(f"{spec.shapes} input shapes" for spec in specs if spec.shapes > 1),
        _allocator(specs),
        "" if result.origin == "here" else f"from {result.origin}",
        "objects of a session" if result.method.session else "",
    ]
    return [part for part in (f"{result.kind} {subject}".strip(), *settings) if part]


def _subject(spec: ArmSpec) -> str:
    if spec.statement is None:
        return spec.target
    return spec.name if spec.statement.is_command else spec.statement.stmt


def machine(result: Result) -> list[str]:
    """Processor, memory, system, interpreter and torch of the arms; differing ones are listed."""
    found = [m.environment for m in result.arms if m.environment is not None]
    parts = [
        _shared(_processor(environment) for environment in found),
        _shared(format_bytes(e.memory_bytes).replace(".00", "") for e in found if e.memory_bytes),
        _shared(e.os.get("system", "") for e in found),
        _shared(_python(e) for e in found),
        _shared(f"torch {v}" for e in found if (v := e.torch.get("version"))),
        _shared(revision(e.git) for e in found),
    ]
    return [part for part in parts if part]


def flow(parts: Iterable[str], width: int, style: Style) -> list[str]:
    """Parts joined by dots, a new line where the next part would not fit."""
    dot, lines = style.glyphs.dot, [""]
    for part in parts:
        text = shorten(style.safe(part), width, style.glyphs.ellipsis)
        if not lines[-1]:
            lines[-1] = text
        elif cells(lines[-1]) + cells(dot) + cells(text) <= width:
            lines[-1] += dot + text
        else:
            lines.append(text)
    return [line for line in lines if line]


def _distinct(values: Iterable[str]) -> list[str]:
    return [value for value in dict.fromkeys(values) if value]


def _shared(values: Iterable[str]) -> str:
    return " / ".join(_distinct(values)[:MOST_TARGETS])


def _threads(result: Result) -> str:
    known = [(m.arm.threads, m.environment.threads if m.environment else {}) for m in result.arms]
    found = _shared(str(asked or of.get("torch") or "") for asked, of in known)
    if found:
        return f"{found} thread{'' if found == '1' else 's'}"
    return _shared(blas_threads(of) for _, of in known)


def blas_threads(threads: Mapping[str, int]) -> str:
    """`2 OpenBLAS threads`; empty where no such library was loaded."""
    titles = {"openblas": "OpenBLAS", "mkl": "MKL"}
    return ", ".join(
        count(threads[name], f"{title} thread") for name, title in titles.items() if name in threads
    )


def _allocator(specs: list[ArmSpec]) -> str:
    found = _distinct(spec.allocator for spec in specs)
    if len(found) == 1:
        return allocator_title(found[0])
    return f"allocator {' / '.join(found)}" if found else ""


def allocator_title(name: str) -> str:
    """`allocator keeps memory`: one of `records.ALLOCATORS` in words."""
    known = {"keep": "allocator keeps memory", "default": "the system's allocator"}
    return known.get(name) or f"allocator {name}"


def processor_name(model: str) -> str:
    """The processor's name without what only its maker needs."""
    return " ".join(_MARKETING.sub(" ", model).split()).rstrip(" ,")


def _processor(environment: Environment) -> str:
    model = processor_name(environment.cpu.get("model", ""))
    count = environment.cpu.get("affinity") or environment.cpu.get("logical_cores")
    return ", ".join(part for part in (model, f"{count} CPUs" if count else "") if part)


def _python(environment: Environment) -> str:
    version = environment.python.get("version", "")
    free = " without GIL" if environment.python.get("gil") == "off" else ""
    return f"Python {version}{free}" if version else ""


def revision(git: GitState | None) -> str:
    """`git 0123456789`, and whether files differ from it."""
    return f"git {git.commit[:10]}{' (changed)' if git.dirty else ''}" if git else ""


# Per-arm figures for every kind of report: seconds per call, by the one definition in `stats`.


LEVEL = 0.95
"""What the shown intervals hold with, over the whole course of a case: see `figures`."""
FLOOR = "floor"
TYPICAL = "typical"


@dataclass(frozen=True)
class Figure:
    """Seconds per call by one estimator; no value where none is known, no interval where too few
    processes ran or they differ too much."""

    value: float | None
    interval: tuple[float, float] | None
    processes: tuple[float, ...] = ()
    """What each process has by itself."""
    used: int = 0
    """Processes that the value is made from."""


@dataclass(frozen=True)
class Figures:
    """What an arm's samples say in short."""

    floor: Figure
    typical: Figure
    samples: tuple[float, ...]
    processes: int
    turns: int
    calls_per_sample: int

    @property
    def calls(self) -> int:
        """All timed calls."""
        return len(self.samples) * self.calls_per_sample


def seconds_per_call(measurement: Measurement) -> tuple[float, ...]:
    """Every sample in order, in seconds per call."""
    scale = measurement.loops * 1e9
    return tuple(wall / scale for turn in measurement.turns for wall in turn.wall_ns)


def figures(measurement: Measurement, alpha: float) -> Figures | None:
    """The figures of an arm, or None when it has no samples.

    `alpha` is the method's: what the look at which the case stopped could still spend. Intervals
    made at 1 - alpha hold with `LEVEL` whichever look it was; made at `LEVEL` itself they would
    not, because a case stops early where its processes happen to agree.
    """
    samples = seconds_per_call(measurement)
    if not samples:
        return None
    return Figures(
        floor=_figure(measurement, FLOOR, 1.0 - alpha),
        typical=_figure(measurement, TYPICAL, 1.0 - alpha),
        samples=samples,
        processes=len({turn.replicate for turn in measurement.turns}),
        turns=len(measurement.turns),
        calls_per_sample=measurement.loops,
    )


def _figure(measurement: Measurement, estimator: str, level: float) -> Figure:
    from torchstone.stats import call_time  # numpy comes with it: only when a figure is wanted

    found = call_time(measurement, estimator, level)
    return Figure(found.value, found.interval, found.processes, found.used)


def lead_of(result: Result) -> str:
    """The figure that leads, `floor` or `typical`: of the kind that decided the comparisons."""
    decided = {comparison.decided_by for comparison in result.comparisons}
    return TYPICAL if _TYPICAL_TYPE & {*decided, result.method.estimator} else FLOOR


UNKNOWN = "unknown"
"""Stands where a floor would; the rule `floor` says why."""


VERDICT_MARKS = {
    Verdict.FASTER: "better",
    Verdict.SLOWER: "worse",
    Verdict.SAME: "same",
    Verdict.NOT_SLOWER: "not-worse",
    Verdict.NOT_FASTER: "not-better",
    Verdict.CANNOT_TELL: "unsure",
}
ROLES = {
    "better": "good",
    "worse": "bad",
    "same": "even",
    "not-worse": "even",
    "not-better": "even",
    "pass": "good",
    "quiet": "dim",
    "unsure": "doubt",
    "moved": "warn",
}
"""How a terminal paints a cell's mark, where it has another name for it."""
VERDICT_ROLES = {verdict: ROLES[mark] for verdict, mark in VERDICT_MARKS.items()}

LEAST_COMPILE_NS = 100_000_000
"""A first call that costs less above a steady one has compiled nothing worth a column."""
_TYPICAL_TYPE = {TYPICAL, "median", "mean", "pairs"}
"""Estimators of the ordinary call; every other one speaks of the fastest."""
Words = tuple[str, str]
"""A figure and what stands beside it; empty where there is nothing to say."""


@dataclass(frozen=True)
class ArmTable:
    """The table of a result: columns by title, each with the words of every arm."""

    names: tuple[str, ...]
    main: dict[str, list[Words]]
    details: dict[str, list[Words]]
    roles: tuple[str, ...]
    """Of the verdicts."""
    figures: tuple[Figures | None, ...]

    def pictures(self, width: int, style: Style) -> tuple[str, list[str]] | None:
        """A heading and a histogram of every arm's samples; None without samples."""
        scale = common_scale([found.samples for found in self.figures if found])
        if scale is None:
            return None
        drawn = [
            strip(one.samples, one.floor.value, scale, width, style.glyphs) if one else ""
            for one in self.figures
        ]
        return axis(scale, width, style.glyphs, ascii_only=style.ascii_only), drawn


@dataclass(frozen=True)
class _Arm:
    """An arm with its figures, its comparison with the baseline, and the baseline (None: it is)."""

    measured: Measurement
    found: Figures | None
    comparison: Comparison | None
    base: _Arm | None


def result_table(result: Result, style: Style) -> ArmTable:
    """The table of a result; that of a sweep draws charts, and is loaded for one only."""
    if not result.sweep:
        return arm_table(result, style)
    from torchstone.show.sweep import sweep_table

    return sweep_table(result, style)


def arm_table(result: Result, style: Style, lead: str = "") -> ArmTable:
    """One row an arm. The figure that decided the comparisons leads, or the one that is named."""
    arms: list[_Arm] = []
    for measured in result.arms:
        found = figures(measured, result.method.alpha)
        compared = against_first(result, measured.arm.name)
        arms.append(_Arm(measured, found, compared, arms[0] if arms else None))
    lead = lead or lead_of(result)
    level = min((e.level for c in result.comparisons if (e := c.floor or c.typical)), default=LEVEL)
    main = {
        f"{lead} per call": [_time(arm, lead, style) for arm in arms],
        f"speed-up ({format_percent(level)})": [_speedup(arm, style) for arm in arms],
        "verdict": [(_verdict(arm, len(arms))[0], "") for arm in arms],
    }
    details = {
        FLOOR if lead == TYPICAL else TYPICAL: [_other(arm, lead, style) for arm in arms],
        "memory": [_memory(arm, style) for arm in arms],
        "process": [(_process(m), "") for m in result.arms],
        "compiler": [(_compiler(arm), "") for arm in arms],
        "compile cold / warm": [(_compile(m, style), "") for m in result.arms],
    }
    return ArmTable(
        names=tuple(m.arm.name for m in result.arms),
        main=main,
        details=details,
        roles=tuple(_verdict(arm, len(arms))[1] for arm in arms),
        figures=tuple(arm.found for arm in arms),
    )


def against_first(result: Result, name: str) -> Comparison | None:
    """The comparison of this arm with the baseline, the first arm."""
    base = result.arms[0].arm.name
    return next((c for c in result.comparisons if c.base == base and c.new == name), None)


def _time(arm: _Arm, lead: str, style: Style) -> Words:
    if arm.found is None:
        return "", ""
    figure = arm.found.floor if lead == FLOOR else arm.found.typical
    if figure.value is None:
        return UNKNOWN, ""
    share = half_width(figure.value, figure.interval) if figure.interval else None
    spread = ""
    if share is not None:
        # Beyond 100 % the number says no more than that nothing is known.
        shown = format_percent(share) if share <= 1 else ">100 %"
        spread = f"{style.glyphs.plus_minus}{shown}"
    return format_seconds(figure.value, ascii_only=style.ascii_only), spread


def _other(arm: _Arm, lead: str, style: Style) -> Words:
    """The figure that did not decide, with its speed-up: a reader should know where they part."""
    if arm.found is None:
        return "", ""
    figure = arm.found.typical if lead == FLOOR else arm.found.floor
    compared = arm.comparison
    estimate = compared and (compared.typical if lead == FLOOR else compared.floor)
    beside = ""
    if estimate and estimate.time_ratio > 0:
        speedup = 1 / estimate.time_ratio
        decimals = ratio_decimals(speedup, None)
        beside = format_ratio(speedup, decimals, ascii_only=style.ascii_only)
    if figure.value is None:
        return UNKNOWN, ""  # and a ratio of what is not known would only puzzle
    return format_seconds(figure.value, ascii_only=style.ascii_only), beside


def speedup_interval(comparison: Comparison) -> tuple[float, float] | None:
    """The interval of base / new: that of the time ratio, turned over; None without bounds."""
    low, high = comparison.interval or (0.0, math.inf)
    return (1 / high, 1 / low) if 0 < low <= high < math.inf else None


def _speedup(arm: _Arm, style: Style) -> Words:
    speedup = arm.comparison.speedup if arm.comparison else None
    if arm.comparison is None or speedup is None or not math.isfinite(speedup):
        return "", ""
    ends = speedup_interval(arm.comparison)
    decimals = ratio_decimals(speedup, ends)
    return (
        format_ratio(speedup, decimals, ascii_only=style.ascii_only),
        format_interval(ends, decimals, ascii_only=style.ascii_only),
    )


def _verdict(arm: _Arm, arms: int) -> tuple[str, str]:
    """The words and their role."""
    if arm.measured.outcome is not Outcome.OK:
        return arm.measured.outcome.words, "fail"
    if arm.comparison is not None:
        return arm.comparison.verdict.value, VERDICT_ROLES[arm.comparison.verdict]
    return ("baseline", "dim") if arm.base is None and arms > 1 else ("", "")


def _bytes(count: int | None) -> str:
    return "" if count is None else format_bytes(count)


def _process(measured: Measurement) -> str:
    """Of a command it would be that of the process that waits for it."""
    statement, memory = measured.arm.statement, measured.memory
    waits = statement is not None and statement.is_command
    return "" if waits or memory is None else _bytes(memory.peak_bytes)


def _memory(arm: _Arm, style: Style) -> Words:
    """Tensors at a step's peak, and how much that is of the baseline's."""
    memory, base = arm.measured.memory, arm.base.measured.memory if arm.base else None
    now, old = (one.tensor_peak_bytes if one else None for one in (memory, base))
    return _bytes(now), as_much(now / old, ascii_only=style.ascii_only) if now and old else ""


def _compiler(arm: _Arm) -> str:
    """What a compiled arm's process keeps beyond tensors and the baseline's does not."""
    memory, base = arm.measured.memory, arm.base.measured.memory if arm.base else None
    if not _compiled(arm.measured) or base is None or memory is None:
        return ""
    if base.overhead_bytes is None or memory.overhead_bytes is None:
        return ""
    return format_bytes(memory.overhead_bytes - base.overhead_bytes)


def _compiled(measurement: Measurement) -> bool:
    cost = measurement.compile
    cold = cost.cold_ns if cost is not None else None
    return measurement.arm.compiles and cold is not None and cold >= LEAST_COMPILE_NS


def _compile(measurement: Measurement, style: Style) -> str:
    cost = measurement.compile
    if cost is None or not _compiled(measurement):
        return ""
    times = [ns for ns in (cost.cold_ns, cost.warm_ns) if ns is not None]
    return " / ".join(format_seconds(ns / 1e9, 3, ascii_only=style.ascii_only) for ns in times)


# A small histogram of an arm's samples in one row of text, on a scale shared by all arms.


TAIL = 0.98
"""The scale ends at this quantile of the slowest arm: one hiccup must not squash the picture.
Later samples are counted in the last cell."""

LEAST_SPAN = 1.02
"""The scale spans at least 2 %: otherwise the clock's own grain would look like a shape."""


@dataclass(frozen=True)
class Scale:
    """A logarithmic time axis: equal ratios are equal distances."""

    low: float
    high: float

    def cell(self, seconds: float, width: int) -> int:
        """Which of `width` cells a time falls into; what lies outside goes to the ends."""
        if seconds <= self.low:
            return 0
        place = math.log(seconds / self.low) / math.log(self.high / self.low)
        return min(width - 1, int(place * width))


def common_scale(arms: Sequence[Sequence[float]]) -> Scale | None:
    """From the fastest sample of any arm to the tail of the slowest; None without samples."""
    full = [sorted(value for value in samples if value > 0) for samples in arms]
    full = [samples for samples in full if samples]
    if not full:
        return None
    low = min(samples[0] for samples in full)
    high = max(samples[int(TAIL * (len(samples) - 1))] for samples in full)
    return Scale(low, max(high, low * LEAST_SPAN))


def strip(
    samples: Sequence[float], floor: float | None, scale: Scale, width: int, glyphs: Glyphs
) -> str:
    """The histogram in `width` cells. The mark stands just left of the cell of the floor."""
    room = width - 1  # one cell is kept free on the left, so that the fastest floor has a place
    counts = [0] * room
    for value in samples:
        counts[scale.cell(value, room)] += 1
    most, steps = max(counts, default=0), len(glyphs.bars)
    row = [glyphs.empty]
    row += [glyphs.bars[math.ceil(n / most * steps) - 1] if n else glyphs.empty for n in counts]
    if floor is not None and floor > 0:
        row[scale.cell(floor, room)] = glyphs.floor
    return "".join(row)


def axis(scale: Scale, width: int, glyphs: Glyphs, *, ascii_only: bool) -> str:
    """The strip's heading: both ends of the scale with a line between, in `width` cells."""
    low = format_seconds(scale.low, 3, ascii_only=ascii_only)
    high = format_seconds(scale.high, 3, ascii_only=ascii_only)
    line = width - len(low) - len(high) - 2
    if line < 1:
        return low[:width].rstrip()
    return f"{low} {glyphs.rule * line} {high}"
