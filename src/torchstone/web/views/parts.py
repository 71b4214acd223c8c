"""What several pages share: progress, and what a comparison has to say first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from torchstone.records import (
    FOREIGN_DEFINITION,
    ArmSpec,
    CaseChange,
    CaseKey,
    CaseMetrics,
    GroupChange,
    GroupPoint,
    Mean,
    Measurement,
    Outcome,
    PassRate,
    Result,
    RunComparison,
    RunHead,
    SuiteSummary,
)
from torchstone.records.format import count
from torchstone.show.cells import (
    KEY,
    case_place,
    change_cell,
    command_line,
    commit_of,
    cut,
    key_params,
    machine_title,
    run_title,
    speedup_cell,
    suite_title,
    text_cell,
    without_detail,
)
from torchstone.show.comparison import cost_threshold_words, threshold_span
from torchstone.show.page import (
    Cell,
    Chart,
    Event,
    Field,
    Item,
    Link,
    Notice,
    Point,
    Progress,
    Section,
    Series,
    ends,
    field,
    hidden,
)
from torchstone.show.run import Labels
from torchstone.show.table import sanitise
from torchstone.web.context import LABELS, Context
from torchstone.web.query import ALL, Query, outside
from torchstone.web.sources import MOST_POINTS, DataAccess

FAILED = tuple(outcome.value for outcome in Outcome if outcome.failed)
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


def group_key(summary: SuiteSummary) -> CaseKey:
    """What the cases of a summary have in common."""
    return CaseKey(model="", **{name: getattr(summary, name) for name in KEY if name != "model"})


def suite_place(key: CaseKey, carried: tuple[tuple[str, str], ...] = ()) -> Link:
    """The models behind a group's figures."""
    own = [item for item in key_params(key) if item[0] != "model"]
    return Link("suite", "", (*own, *carried))


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
        to=Link("run", head.id),
    )


def running(source: DataAccess, heads: Sequence[RunHead]) -> tuple[Progress, ...]:
    """The runs that are being measured now, for the top of a page."""
    live = source.running()
    known = {head.id: head for head in heads}
    found = [known[one] if one in known else _found(source, one) for one in sorted(live)]
    return tuple(progress_of(head) for head in found if head is not None and head.planned)


def _found(source: DataAccess, run_id: str) -> RunHead | None:
    from torchstone.records import UsageError
    from torchstone.web.query import NotFound

    try:
        head = source.head(run_id)
    except (UsageError, NotFound):
        return None  # it has shown its sign, and its plan is not stored yet
    return head


def comparison(source: DataAccess, context: Context) -> RunComparison | None:
    """The two chosen runs against each other; None where there is only one."""
    base, new, asked = context.base, context.new, context.query
    if base is None or new is None:
        return None
    chosen = variants(asked)
    if base.id == new.id and chosen is None:
        return None
    return source.comparison(base, new, asked.allowed | context.across, chosen)


def outside_actions(
    source: DataAccess, head: RunHead | None, base: RunHead | None = None
) -> tuple[tuple[str, Link], ...]:
    """Links to a run's commits, its pull request and its CI job, where they are known."""
    if head is None:
        return ()
    links = source.links(head)
    words = "Commits since the base" if base and base.commit != head.commit else "Commit"
    found = [
        (words, source.commit_link(head, base)),
        ("Pull request", outside(links.get("pull_request", ""))),
        ("CI job", outside(links.get("job", ""))),
    ]
    return tuple((name, to) for name, to in found if to is not None)


def variants(asked: Query) -> tuple[str, str] | None:
    """The base's and the new run's, where two are compared."""
    named = asked.base_variant and asked.variant not in ("", ALL)
    return (asked.base_variant, asked.variant) if named else None


def remarks(found: RunComparison | None, context: Context) -> tuple[Section, ...]:
    """Why there is no comparison, or what a reader must know to evaluate it."""
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
    """That newer runs were interrupted: what is shown is not the newest there is."""
    if not context.passed_over:
        return ()
    head, *others = context.passed_over
    more = f", and {count(len(others), 'run')} before it likewise" if others else ""
    done = f"{head.done} of {count(head.planned, 'case')}"
    text = f"{run_title(head)} was interrupted after {done}{more}"
    place = Link("landing", "", (*context.carried, ("new", head.id)))
    return (Notice(f"{text}; the last complete run is shown.", "note", to=place),)


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
    return Notice(text, "warn", f"{remedy}allow it.", Link("compare", "", (*kept, *runs)))


def threshold_words(found: RunComparison | None, fits: Callable[[CaseKey], bool]) -> str:
    """What decides whether a figure is better or worse; `fits` says which cases are shown."""
    if found is None or found.refused:
        return ""
    source = f" ({sanitise(found.threshold_source)})" if found.threshold_source else ""
    beyond = threshold_span(case for case in found.cases if fits(case.key))
    return (
        f"▲ better, ▼ worse: the interval excludes 0 and the change exceeds the noise limit of "
        f"{beyond or 'what identical programs show'}{source}; = same: else, all of it within "
        f"±{found.margin * 100:g} %; ≥ not worse, ≤ not better: one side excluded; ? cannot tell. "
        f"Corrected over the suite's cases (false discovery rate "
        f"{found.false_discovery_rate * 100:g} %)."
    )


# Levels: what is bad as it is, whatever it was before. Marked where no change is.


HUNGRY = 0.95
"""Eager's tensors over the arm's at the peak: below it the arm needs more memory than noise in
rounding of blocks explains. The PyTorch dashboard marks the same ratio."""


def hungry(ratio: float | None) -> bool:
    """Whether the arm needs more memory than eager."""
    return ratio is not None and ratio < HUNGRY


def pass_level(cell: Cell, passes: PassRate) -> Cell:
    """A pass rate, marked where a case fails."""
    failed = sum(passes.outcomes.get(name, 0) for name in FAILED)
    return cell._replace(mark="fail") if failed else cell


def speedup_level(cell: Cell, mean: Mean) -> Cell:
    """A mean speed-up, marked where its whole interval lies below 1."""
    slow = mean.interval is not None and mean.interval[1] < 1
    return cell._replace(mark="worse") if slow and not cell.mark else cell


def memory_level(cell: Cell, ratio: float | None) -> Cell:
    """A memory ratio, marked where the arm needs more than eager; a change's own mark stays."""
    if cell.mark or not hungry(ratio) or ratio is None:
        return cell
    return cell._replace(mark="worse", title=f"{1 / ratio:.2g}× as much as eager")


def against_cell(change: GroupChange | None, to: Link | None = None) -> Cell:
    """How the mean of a group moved, with how many of the new run's cases that is over."""
    if change is None:
        return Cell(None, "", to)
    cell = change_cell(change.speedup, change.verdict, to, change.threshold)
    if not cell.text:
        return cell
    counted = change.new.passes.counted if change.new else change.common
    over = f"over {change.new_common.n} of {counted}"
    if change.new_common.n < counted:  # a mean of few must not look like a mean of all
        return cell._replace(detail=f"{cell.detail}, {over}" if cell.detail else over)
    return cell._replace(title="; ".join(part for part in (over, cell.title) if part))


def cost_words(found: RunComparison | None) -> str:
    """What decides whether a compile time or a peak is called better or worse."""
    if found is None or found.refused:
        return ""
    words = cost_threshold_words(found.groups, "▲ or ▼")
    return f" {words[0].upper()}{words[1:]}."


def cost_mark(name: str, change: CaseChange | GroupChange | None) -> str:
    """How a cost moved, where it moved beyond its threshold; less is better."""
    if change is None or name not in change.costs_changed:
        return ""
    found = getattr(change, name)
    value = found.value if isinstance(found, Mean) else found
    return "" if value is None else "worse" if value > 1 else "better"


QUOTIENT = (
    "A speed-up is over pairs of processes, each weighted by its precision; it may differ a little "
    "from eager's time divided by compiled's."
)


def changes_by_group(found: RunComparison | None) -> dict[CaseKey, GroupChange]:
    """The groups of a comparison by what their cases share."""
    return {change.key: change for change in found.groups} if found else {}


def moved_cell(change: CaseChange | None) -> Cell:
    """Which side's time explains a case's change, in words; paler where none does."""
    if change is None or not change.moved:
        return Cell("", "")
    times = {"arm": ("compiled", change.arm_time), "baseline": ("eager", change.baseline_time)}
    text = {"both": "both sides"}.get(change.moved, sanitise(change.moved))
    if change.moved in times:
        side, ratio = times[change.moved]
        got = "moved" if ratio is None else "got slower" if ratio > 1 else "got faster"
        text = f"{side} {got}"
    return Cell(change.moved, text, mark="quiet" if change.moved in UNMOVED else "")


def base_cell(base: CaseMetrics | None, context: Context) -> Cell:
    """A case's speed-up in the base run. Narrow: the interval that counts is the change's."""
    if base is None:
        return Cell()
    return without_detail(speedup_cell(base, case_place(base.key, context.to_base)))


# A case's key on a page: the droplists that choose by it, its parts as columns and as cells.


SETTINGS = ("scale", "mode", "precision", "variant", "device", "threads", "allocator")
"""Parts of a key that cases of one model differ in; each is a droplist."""
RUNS_OF = ("machine", "branch")
"""What chooses among runs; likewise."""
Change = Callable[[Item], "CaseChange | GroupChange | None"]


def key_fields(
    names: Sequence[str], key: Callable[[Item], CaseKey | SuiteSummary]
) -> tuple[Field[Item], ...]:
    """Parts of the key for programs: they are in the JSON and the CSV alone."""

    def part(name: str) -> Field[Item]:
        return hidden(name, LABELS[name], lambda r: getattr(key(r), name), name == "threads")

    return tuple(part(name) for name in names)


def named_fields(
    key: Callable[[Item], CaseKey], labels: Labels, to: Callable[[Item], Link]
) -> tuple[Field[Item], ...]:
    """How people are told which case a row is about; the model leads to its page."""

    def model(item: Item) -> Cell:
        suite = suite_title(key(item).suite, key(item).scale)
        return text_cell(key(item).model, to(item))._replace(detail=suite)

    def suite(item: Item) -> str:
        return suite_title(key(item).suite, key(item).scale)

    return (
        field("model", "Model", model),
        hidden("suite", "Suite", suite, number=False),
        field("settings", "Variant", lambda r: text_cell(labels.settings(key(r)))),
    )


def change_fields(change: Change[Item]) -> tuple[Field[Item], ...]:
    """Both ends of a change, and its verdict."""

    def interval(item: Item) -> tuple[float, float] | None:
        found = change(item)
        return found.speedup.interval if found and found.speedup else None

    def verdict(item: Item) -> str | None:
        found = change(item)
        return found.verdict.value if found and found.verdict else None

    return (*ends("change", "Change", interval), hidden("verdict", "Verdict", verdict, False))


def cost_fields(change: Change[Item]) -> tuple[Field[Item], ...]:
    """Whether compile time and memory are better or worse; empty within their threshold."""
    return (
        hidden(
            "compile_verdict",
            "Compile, cold: better or worse",
            lambda item: cost_mark("compile_cold", change(item)),
            False,
        ),
        hidden(
            "memory_verdict",
            "Memory: better or worse",
            lambda item: cost_mark("memory", change(item)),
            False,
        ),
    )


def interval_of(case: CaseMetrics | None) -> tuple[float, float] | None:
    """Of a case's speed-up, where it has one to show."""
    return case.interval if case and case.outcome is Outcome.OK else None


# Looks at the steps of an arm, by `explain` and `profile`: at which arms, and the commands.


_PLAIN = ArmSpec("")
_OF_ARMS = ("mode", "precision", "device", "threads")
_OF_PROCESSES = ("python",)


def arms_looked_at(result: Result, variant: str = "") -> tuple[Measurement, ...]:
    """All arms of a result, or the baseline and those under one variant."""
    base, rest = result.arms[:1], result.arms[1:]
    return (*base, *(one for one in rest if not variant or one.arm.variant == variant))


def machine_of(measured: Measurement) -> str:
    """On which machine it was measured; empty where that is not known."""
    return measured.environment.machine_id if measured.environment else ""


def explain_commands(arms: Iterable[Measurement]) -> str:
    """A line for every arm that `torchstone explain` can look at.

    With `--vs` it looks at the step in eager as well, so that a baseline needs no line of its own.
    """
    wanted = [one.arm for one in arms if one.arm.target]
    covered = [_plain(arm) for arm in wanted if arm.variant != _PLAIN.variant]
    lines = []
    for arm in wanted:
        compared = arm.variant != _PLAIN.variant
        if not compared and _plain(arm) in covered:
            continue
        words = ["torchstone", "explain", arm.target, *_settings(arm, (*_OF_ARMS, *_OF_PROCESSES))]
        for name, value in arm.env:
            words += ["--env", f"{name}={value}"]
        lines.append(command_line([*words, "--vs", arm.variant] if compared else words))
    return "\n".join(dict.fromkeys(lines))


def profile_commands(arms: Iterable[Measurement]) -> str:
    """A line for every arm that `torchstone profile` can profile: in this interpreter, with these
    variables."""
    wanted = [one.arm for one in arms if one.arm.target]
    lines = [
        command_line(["torchstone", "profile", arm.target, *_settings(arm, ("variant", *_OF_ARMS))])
        for arm in wanted
        if not arm.env and arm.python is None
    ]
    return "\n".join(dict.fromkeys(lines))


def shapes_words(arms: Iterable[ArmSpec]) -> str:
    """A sentence where samples went through several shapes, as a look at a step never does."""
    shapes = max((arm.shapes for arm in arms), default=1)
    return f"Of one shape; the samples went through {shapes} in turn." if shapes > 1 else ""


def _plain(arm: ArmSpec) -> ArmSpec:
    return replace(arm, name="", variant=_PLAIN.variant)


def _settings(arm: ArmSpec, names: Sequence[str]) -> list[str]:
    """What differs from the default; the allocator always: its default is the machine's."""
    words: list[str] = []
    for name in names:
        value = getattr(arm, name)
        if value != getattr(_PLAIN, name):
            words += [f"--{name}", str(value)]
    return [*words, "--allocator", arm.allocator]


# Suites over time: a line a group, each point with its denominator, and no line of two kinds.


MOST_SERIES = 12
"""Lines of one chart: more cannot be told apart."""
BARS = "Bars: 95 % confidence intervals."
HOLLOW = "Hollow: the run ended before this suite did, so the figure is over fewer cases."


@dataclass(frozen=True)
class Lines:
    """What is said of a point in its line's name: the run's machine and branch, and the definition
    of its figures, where there are several.

    Times of two machines, versions of two branches and figures of two definitions are never joined
    by one line.
    """

    machines: bool
    branches: bool
    definitions: tuple[int, ...]

    @classmethod
    def of(cls, points: Iterable[tuple[RunHead, int | None]]) -> Lines:
        """In what these differ: runs, and the definition of figures; None where there are none."""
        known = {(run.machine_id, run.branch, definition) for run, definition in points}
        machines, branches = ({one[place] for one in known} for place in (0, 1))
        definitions = {one[2] for one in known if one[2] is not None}
        return cls(len(machines) > 1, len(branches) > 1, tuple(sorted(definitions)))

    def words(self, run: RunHead, definition: int | None) -> str:
        """`Xeon Platinum 8370C m-0123 main`; empty where all points are of one line."""
        machine = machine_title(run.machine_id, run.machine) or "an unknown machine"
        branch = cut(sanitise(run.branch), 24) or "no branch"
        parts = (machine if self.machines else "", branch if self.branches else "")
        return " ".join(part for part in (*parts, self._definition(definition)) if part)

    def _definition(self, definition: int | None) -> str:
        """Nothing for the newest, and for what has no figures."""
        if definition is None or definition == self.definitions[-1]:
            return ""
        foreign = definition == FOREIGN_DEFINITION
        return "of another tool" if foreign else f"by definition {definition}"


def newest_lines(lines: Mapping[str, Sequence[Point]], most: int = MOST_SERIES) -> list[str]:
    """The names of those that are drawn, in their order: where there are more, those with the
    newest points."""
    if len(lines) <= most:
        return list(lines)
    newest = sorted(lines, key=lambda name: -lines[name][-1].time_s)[:most]
    return [name for name in lines if name in set(newest)]


def left_out(many: int) -> str:
    """A sentence where there are more lines than a chart has."""
    if many <= 0:
        return ""
    lines = "1 more line is" if many == 1 else f"{many} more lines are"
    return f"{lines} left out; choose a variant, a machine or a branch."


def newest_only(points: Sequence[GroupPoint]) -> str:
    """A sentence where there may be more points than were asked for."""
    if len(points) < MOST_POINTS:
        return ""
    return f" Only the newest {MOST_POINTS:,} figures are drawn; choose one run a day or a week."


Figure = Callable[[SuiteSummary], Mean]


@dataclass(frozen=True)
class _Placed:
    """A suite in a run, with what all its charts say of it."""

    summary: SuiteSummary
    line: str
    blank: Point
    """Without a value."""


def trend_charts(
    points: Sequence[GroupPoint], carried: tuple[tuple[str, str], ...], prefix: str = ""
) -> tuple[Chart, ...]:
    """A suite over time, a line a group. `prefix`: of the charts' names, where there are several
    suites on a page."""
    from torchstone.web.views.regressions import level_events

    points = [one for one in points if one.run.created_s is not None]
    placed = _placed(points, carried)
    marks = run_events([one.run for one in points])

    def trend(name: str, title: str, unit: str, better: str, figure: Figure) -> Chart:
        made = _trend(f"{prefix}{name}", title, unit, placed, figure, BARS * (name == "speedup"))
        lines: dict[str, list[tuple[RunHead, float | None]]] = {}
        for point, one in zip(points, placed, strict=True):
            lines.setdefault(one.line, []).append((point.run, figure(one.summary).value))
        metric = LEVELS_OF.get(name)
        moved = [level_events(line, metric) for line in lines.values()] if metric else []
        events = (*marks, *(one for found in moved for one in found))
        return replace(made, events=events, better=better)

    return (
        trend("speedup", "Speed-up, geomean", "ratio", "higher", _speedup),
        trend("pass_rate", "Pass rate", "share", "higher", _passes),
        trend("compile_time", "Compile time, cold", "seconds", "lower", _cold),
        trend("memory_ratio", "Memory, × eager", "ratio", "lower", _memory),
        trend("time", "Step time, compiled", "seconds", "lower", _step),
        trend("memory", "Peak memory, compiled", "bytes", "lower", _peak),
    )


LEVELS_OF = {"speedup": "speedup", "time": "new_ns", "memory": "new_tensor_bytes"}
"""Trends that mark changes of level, and the metric whose."""


def run_note(run: RunHead) -> str:
    """What a point's date and commit do not say of its run."""
    return " ".join(part for part in (cut(sanitise(run.branch), 24), sanitise(run.label)) if part)


def run_events(runs: Iterable[RunHead]) -> tuple[Event, ...]:
    """Where another torch or another machine comes in."""
    found: dict[str, Event] = {}
    torches: dict[str, str] = {}
    ordered = sorted(runs, key=lambda run: run.created_s or 0.0)
    for run in ordered:
        at, known = run.created_s or 0.0, torches.get(run.machine_id)
        if known is not None and run.torch and run.torch != known:
            found.setdefault(run.torch, Event(at, f"torch {sanitise(run.torch)}"))
        if known is None and torches:
            machine = machine_title(run.machine_id, run.machine)
            found.setdefault(run.machine_id, Event(at, f"machine {machine}"))
        torches[run.machine_id] = run.torch or known or ""
    return tuple(found.values())


def _placed(points: Sequence[GroupPoint], carried: tuple[tuple[str, str], ...]) -> list[_Placed]:
    labels = Labels.of(point.summary for point in points)
    rest = tuple(item for item in carried if item[0] not in ("new", "base"))
    known = {point.run.id: point.run for point in points}
    lines = Lines.of((point.run, _definition(point.summary)) for point in points)
    said = {run.id: (commit_of(run) or run.id[:8], run_note(run)) for run in known.values()}
    named = cache(lambda key: sanitise(labels.within_suite(key)))
    where = cache(lambda run_id, definition: lines.words(known[run_id], definition))
    made = []
    for point in points:
        label, note = said[point.run.id]
        key = group_key(point.summary)
        to = suite_place(key, (*rest, ("new", point.run.id)))
        passes = point.summary.passes
        blank = Point(
            point.run.created_s or 0.0,
            None,
            label=label,
            note=note,
            to=to,
            of=passes.counted,
            partial=passes.outcomes.get(Outcome.NOT_RUN.value, 0) > 0,
        )
        line = f"{named(key)} {where(point.run.id, _definition(point.summary))}".rstrip()
        made.append(_Placed(point.summary, line, blank))
    return made


def _definition(summary: SuiteSummary) -> int | None:
    """By which its figures are defined, where a case passed and there are any."""
    return summary.figures_definition if summary.passes.passed else None


def _trend(
    name: str, title: str, unit: str, placed: Sequence[_Placed], figure: Figure, note: str = ""
) -> Chart:
    lines: dict[str, list[Point]] = {}
    for one in placed:
        found = figure(one.summary)
        low, high = found.interval or (None, None)
        counts = f"over {found.n} of {count(one.blank.of or 0, 'case')}"
        point = one.blank._replace(
            value=found.value, low=low, high=high, n=found.n, note=f"{counts} · {one.blank.note}"
        )
        lines.setdefault(one.line, []).append(point)
    known = {
        label: made
        for label, made in lines.items()
        if any(point.value is not None for point in made)
    }
    drawn = tuple(Series(label, tuple(known[label])) for label in newest_lines(known))
    stubs = any(p.partial and p.value is not None for one in drawn for p in one.points)
    notes = (note, HOLLOW if stubs else "", left_out(len(known) - len(drawn)))
    return Chart(name, title, unit, drawn, " ".join(part for part in notes if part))


def _speedup(summary: SuiteSummary) -> Mean:
    return summary.speedup


def _passes(summary: SuiteSummary) -> Mean:
    passes = summary.passes
    return Mean(passes.rate, passes.passed, passes.counted)


def _cold(summary: SuiteSummary) -> Mean:
    mean = summary.compile_cold_ns
    return replace(mean, value=None if mean.value is None else mean.value / 1e9)


def _memory(summary: SuiteSummary) -> Mean:
    """As tables write it: compiled over eager."""
    mean = summary.memory_ratio
    return replace(mean, value=1 / mean.value if mean.value else None)


def _step(summary: SuiteSummary) -> Mean:
    mean = summary.new_ns
    return replace(mean, value=None if mean.value is None else mean.value / 1e9)


def _peak(summary: SuiteSummary) -> Mean:
    return summary.new_tensor_bytes
