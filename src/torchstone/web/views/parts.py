"""What several pages share: progress, and what a comparison has to say first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from torchstone.records import (
    CaseChange,
    CaseFigures,
    CaseKey,
    GroupChange,
    RunComparison,
    RunHead,
)
from torchstone.records import SuiteSummary as Summary
from torchstone.show.compare_words import cost_threshold_words, threshold_span
from torchstone.show.run_words import count
from torchstone.show.text import sanitise
from torchstone.web.cells import (
    case_place,
    change_cell,
    run_title,
    speedup_cell,
    without_detail,
)
from torchstone.web.context import Context
from torchstone.web.page import (
    Cell,
    Column,
    Notice,
    Place,
    Progress,
    Section,
)
from torchstone.web.query import ALL, Query
from torchstone.web.sources import Source

FAILED = ("wrong_answer", "nondeterministic", "error", "crash", "oom", "timeout")
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
        summary.allocator,
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
        ("allocator", key.allocator),
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
    return source.comparison(base, new, asked.allowed | context.across, chosen)


def variants(asked: Query) -> tuple[str, str] | None:
    """The base's and the new run's, where two are compared."""
    named = asked.base_variant and asked.variant not in ("", ALL)
    return (asked.base_variant, asked.variant) if named else None


def remarks(found: RunComparison | None, context: Context) -> tuple[Section, ...]:
    """Why there is no comparison, or what a reader must know to judge it."""
    before = chosen_words(context)
    if found is None:
        return before
    if found.refused:
        return (*before, _refused(found, context))
    return (*before, *(Notice(sanitise(mark)) for mark in found.marks))


def chosen_words(context: Context) -> tuple[Notice, ...]:
    """What there is to say of which runs are looked at."""
    return (*_passed_over(context), *_ways(context))


def _passed_over(context: Context) -> tuple[Notice, ...]:
    """That newer runs broke off: what is shown is not the newest there is."""
    if not context.passed_over:
        return ()
    head, *others = context.passed_over
    more = f", and {count(len(others), 'run')} before it likewise" if others else ""
    text = f"{run_title(head)} broke off after {head.done} of {count(head.planned, 'case')}{more}"
    place = Place("landing", "", (*context.carried, ("new", head.id)))
    return (Notice(f"{text}; the newest run that got to its end is shown.", "note", to=place),)


def _ways(context: Context) -> tuple[Notice, ...]:
    """What the words for the runs left open, and a choice that chooses nothing yet."""
    said = [Notice(sanitise(note)) for note in context.notes]
    asked = context.query
    if asked.base_variant and variants(asked) is None:
        text = f"The base's variant {sanitise(asked.base_variant)} is paired with no other yet"
        said.append(
            Notice(
                f"{text}: each variant below is compared with itself.",
                "warn",
                "Choose the new run's under Variant.",
            )
        )
    return tuple(said)


def _refused(found: RunComparison, context: Context) -> Notice:
    text = f"These runs are not compared: {sanitise(found.refused)}"
    remedy, asked, names = sanitise(found.remedy).partition("add --across ")
    if not asked:
        return Notice(text, "warn", remedy)
    gone = ("across", "page", "base", "new")
    kept = tuple(item for item in context.query.params if item[0] not in gone)
    runs = (("base", found.base.id), ("new", found.new.id), ("across", names.rstrip(".")))
    return Notice(text, "warn", f"{remedy}allow it.", Place("compare", "", (*kept, *runs)))


def threshold_words(found: RunComparison | None, fits: Callable[[CaseKey], bool]) -> str:
    """What decides whether a figure is better or worse; `fits` says which cases are shown."""
    if found is None or found.refused:
        return ""
    source = f" ({sanitise(found.threshold_source)})" if found.threshold_source else ""
    beyond = threshold_span(case for case in found.cases if fits(case.key))
    return (
        f"▲ better and ▼ worse: the interval of the change excludes 0 and the change exceeds "
        f"{beyond or 'what identical programs show'}{source}; = same: else, all of it lies within "
        f"±{found.margin * 100:g} %; ≥ not worse and ≤ not better: it excludes the other side "
        "beyond that; ? cannot tell: neither. Corrected for the number of cases "
        f"of the suite in both runs (false discovery rate {found.false_discovery_rate * 100:g} %)."
    )


def against_cell(change: GroupChange | None, to: Place | None = None) -> Cell:
    """How the mean of a group moved, with how many of the new run's cases that is over."""
    if change is None:
        return Cell(None, "", to)
    cell = change_cell(change.speedup, change.verdict, to, change.threshold)
    if not cell.text:
        return cell
    counted = change.new.passes.counted if change.new else change.common
    over = f"over {change.new_common.n} of {counted}"
    return cell._replace(detail=f"{cell.detail}, {over}" if cell.detail else over)


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


def base_cell(base: CaseFigures | None, context: Context) -> Cell:
    """A case's speed-up in the base run. Narrow: the interval that counts is the change's."""
    if base is None:
        return Cell()
    return without_detail(speedup_cell(base, case_place(base.key, context.to_base)))
