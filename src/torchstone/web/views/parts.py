"""What several pages share: trends, progress, and what a comparison has to say first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from torchstone.records import (
    CaseChange,
    CaseKey,
    GroupChange,
    GroupPoint,
    Mean,
    RunComparison,
    RunHead,
)
from torchstone.records import SuiteSummary as Summary
from torchstone.show.compare_words import cost_threshold_words
from torchstone.show.run_words import Labels, count
from torchstone.show.text import sanitise
from torchstone.web.cells import commit_of, run_title
from torchstone.web.context import Context
from torchstone.web.page import (
    Cell,
    Chart,
    Column,
    Notice,
    Place,
    Point,
    Progress,
    Section,
    Series,
)
from torchstone.web.query import ALL, Query
from torchstone.web.sources import MOST_POINTS, Source

MOST_SERIES = 12
"""Lines of one chart: more cannot be told apart."""
FAILED = ("wrong_answer", "nondeterministic", "error", "crash", "oom", "timeout")
BARS = "Bars are 95 % intervals."
ALONE = ("only in base", "only in new")
"""Kinds of change of cases that one run alone has."""
UNMOVED = ("neither", "cannot tell")
PARTS = ("ok", *FAILED, "not_supported", "not_run")


def nothing_stored() -> tuple[Section, ...]:
    """What a page says before the first run."""
    return (
        Notice(
            "No run is stored yet.",
            remedy="Make the first one with `torchstone run`; it appears here while it runs.",
        ),
    )


def group_key(summary: Summary) -> CaseKey:
    """What the cases of a summary have in common."""
    return CaseKey(
        summary.suite,
        "",
        summary.scale,
        summary.mode,
        summary.precision,
        summary.variant,
        summary.device,
        summary.threads,
    )


def suite_place(key: CaseKey, carried: tuple[tuple[str, str], ...] = ()) -> Place:
    """The models behind a group's figures."""
    own = (
        ("suite", key.suite),
        ("scale", key.scale or "all"),
        ("mode", key.mode),
        ("precision", key.precision),
        ("variant", key.variant),
        ("device", key.device),
        ("threads", str(key.threads)),
    )
    return Place("suite", "", (*own, *carried))


def progress_of(head: RunHead) -> Progress:
    """How far a run is, with how its cases ended."""
    parts = [(name, head.outcomes.get(name, 0)) for name in PARTS]
    left = max(0, head.planned - head.done)
    text = f"{head.done} of {count(head.planned, 'case')} done"
    if head.state == "interrupted":
        text += f"; interrupted with {left} to go"
    known = tuple((name, n) for name, n in parts if n)
    return Progress(
        head.id,
        head.state,
        head.done,
        head.planned,
        (*known, ("to go", left)) if left else known,
        f"{run_title(head)}: {text}",
        to=Place("run", head.id),
    )


def running(source: Source, heads: Sequence[RunHead]) -> tuple[Progress, ...]:
    """The runs that are being measured now, for the top of a page."""
    live = source.running()
    known = {head.id: head for head in heads}
    found = [known[one] if one in known else _found(source, one) for one in sorted(live)]
    return tuple(progress_of(head) for head in found if head is not None and head.planned)


def _found(source: Source, run_id: str) -> RunHead | None:
    from torchstone.records import UsageError
    from torchstone.web.query import NotFound

    try:
        head = source.head(run_id)
    except (UsageError, NotFound):
        return None  # it has shown its sign, and its plan is not stored yet
    return head


def comparison(source: Source, context: Context) -> RunComparison | None:
    """The two chosen runs against each other; None where there is only one."""
    base, new, asked = context.base, context.new, context.query
    if base is None or new is None:
        return None
    chosen = variants(asked)
    if base.id == new.id and chosen is None:
        return None
    return source.comparison(base, new, asked.allowed, chosen)


def variants(asked: Query) -> tuple[str, str] | None:
    """The base's and the new run's, where two are compared."""
    named = asked.base_variant and asked.variant not in ("", ALL)
    return (asked.base_variant, asked.variant) if named else None


def remarks(found: RunComparison | None, context: Context) -> tuple[Section, ...]:
    """Why there is no comparison, or what a reader must know to judge it."""
    if found is None:
        return ()
    if found.refused:
        text = f"These runs are not compared: {sanitise(found.refused)}"
        remedy, asked, names = sanitise(found.remedy).partition("add --across ")
        if not asked:
            return (Notice(text, "warn", remedy),)
        rest = tuple(item for item in context.query.params if item[0] not in ("across", "page"))
        runs = (("base", found.base.id), ("new", found.new.id), ("across", names.rstrip(".")))
        kept = tuple(item for item in rest if item[0] not in ("base", "new"))
        return (Notice(text, "warn", f"{remedy}allow it.", Place("compare", "", (*kept, *runs))),)
    return tuple(Notice(sanitise(mark)) for mark in found.marks)


def threshold_words(found: RunComparison | None) -> str:
    """What decides whether a figure is called better or worse."""
    if found is None or found.refused:
        return ""
    source = f" ({sanitise(found.threshold_source)})" if found.threshold_source else ""
    return (
        f"▲ better and ▼ worse: the interval of the change excludes 0 and the change exceeds what "
        f"identical programs show{source}; = same: all of it lies within "
        f"±{found.margin * 100:g} %; ? cannot tell. Corrected for the number of cases "
        f"(false discovery rate {found.false_discovery_rate * 100:g} %)."
    )


def cost_words(found: RunComparison | None) -> str:
    """What decides whether a compile time or a peak is called better or worse."""
    if found is None or found.refused:
        return ""
    words = cost_threshold_words(found.groups, "▲ or ▼")
    return f" {words[0].upper()}{words[1:]}."


def cost_mark(name: str, value: float | None, change: CaseChange | GroupChange | None) -> str:
    """How a cost moved, where it moved beyond its threshold; less is better."""
    if value is None or change is None or name not in change.costs_changed:
        return ""
    return "worse" if value > 1 else "better"


def changes_by_group(found: RunComparison | None) -> dict[CaseKey, GroupChange]:
    """The groups of a comparison by what their cases share."""
    return {change.key: change for change in found.groups} if found else {}


def moved_cell(change: CaseChange | None) -> Cell:
    """Which side's time explains a case's change; paler where none does."""
    moved = sanitise(change.moved) if change else ""
    return Cell(change.moved if change else "", moved, mark="quiet" if moved in UNMOVED else "")


def without(columns: Sequence[Column], keys: Collection[str]) -> tuple[Column, ...]:
    """The columns with those of these keys left to the JSON and the CSV."""
    return tuple(
        replace(column, shown=column.shown and column.key not in keys) for column in columns
    )


def newest_only(points: Sequence[GroupPoint]) -> str:
    """A sentence where there may be more points than were asked for."""
    if len(points) < MOST_POINTS:
        return ""
    return f" Only the newest {MOST_POINTS:,} figures are drawn; choose one run a day or a week."


Figure = Callable[[Summary], "Mean | None"]


@dataclass(frozen=True)
class _Placed:
    """A suite in a run, with what all its charts say of it."""

    summary: Summary
    line: str
    blank: Point
    """Without a value."""


def trend_charts(
    points: Sequence[GroupPoint], carried: tuple[tuple[str, str], ...]
) -> tuple[Chart, ...]:
    """Pass rate, speed-up, compile time and memory of one suite over time, a line a group."""
    placed = _placed(points, carried)
    return (
        _trend("speedup", "Geometric mean speed-up", "ratio", placed, _speedup, BARS),
        _trend("pass_rate", "Pass rate", "share", placed, _passes),
        _trend("compile_time", "Compile time, cold", "seconds", placed, _cold),
        _trend("memory_ratio", "Memory ratio", "ratio", placed, _memory),
    )


def _placed(points: Sequence[GroupPoint], carried: tuple[tuple[str, str], ...]) -> list[_Placed]:
    labels = Labels.of(point.summary for point in points)
    rest = tuple(item for item in carried if item[0] not in ("new", "base"))
    known = {point.run.id: point.run for point in points}
    said = {run.id: (commit_of(run) or run.id[:8], run_title(run)) for run in known.values()}
    made = []
    for point in points:
        if point.run.created_s is None:
            continue
        label, note = said[point.run.id]
        to = suite_place(group_key(point.summary), (*rest, ("new", point.run.id)))
        blank = Point(point.run.created_s, None, label=label, note=note, to=to)
        made.append(_Placed(point.summary, sanitise(labels.settings(point.summary)), blank))
    return made


def _trend(
    name: str, title: str, unit: str, placed: Sequence[_Placed], figure: Figure, note: str = ""
) -> Chart:
    lines: dict[str, list[Point]] = {}
    for one in placed:
        found = figure(one.summary)
        low, high = (found.interval if found else None) or (None, None)
        value = found.value if found else None
        lines.setdefault(one.line, []).append(one.blank._replace(value=value, low=low, high=high))
    known = [Series(label, tuple(made)) for label, made in lines.items()]
    drawn = tuple(one for one in known if any(p.value is not None for p in one.points))
    left = len(drawn) - MOST_SERIES
    said = f"{left} more lines are left out; choose a variant." if left > 0 else ""
    return Chart(name, title, unit, drawn[:MOST_SERIES], f"{note} {said}".strip())


def _speedup(summary: Summary) -> Mean | None:
    return summary.speedup


def _passes(summary: Summary) -> Mean | None:
    passes = summary.passes
    return Mean(passes.rate, passes.counted, passes.planned)


def _cold(summary: Summary) -> Mean | None:
    mean = summary.compile_cold_ns
    return replace(mean, value=None if mean.value is None else mean.value / 1e9)


def _memory(summary: Summary) -> Mean | None:
    return summary.memory_ratio
