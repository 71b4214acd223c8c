"""Changes of level as a report, a table of a page, JSON, or the text of an issue.

`torchstone history`: series as plots of a terminal, and as a table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any

from torchstone.records import (
    OURS,
    ChangeGroup,
    ChangeReport,
    FalseAlarms,
    LevelChange,
    MissingData,
    SeriesRun,
    group_changes,
)
from torchstone.records.format import count, finite, format_percent, percent
from torchstone.records.metrics import BY_KEY
from torchstone.show.blocks import (
    Block,
    Commands,
    Entry,
    Grid,
    Listed,
    Parts,
    Report,
    Sentence,
    to_markdown,
    to_terminal,
)
from torchstone.show.cells import text_cell, when_s
from torchstone.show.charts.frame import format_value
from torchstone.show.page import Cell, Field, Link, field, hidden, make_table
from torchstone.show.table import Style, sanitise

if TYPE_CHECKING:
    from torchstone.stats.series import Line, Lines


OPEN_STATES = ("open", "confirmed", "acknowledged", "muted", "closed")
TITLES = {
    "open": "Open",
    "confirmed": "Confirmed by measuring again",
    "acknowledged": "Acknowledged",
    "muted": "Muted",
    "closed": "Closed",
    "better": "Improvements",
}
MOST_ROWS = 20
"""Of each state in a terminal; the rest is counted, and in the JSON."""
MOST_IN_ISSUE = 40
NAME_WIDTH = 60
MEANING = (
    "change: new level over old, with its 95 % interval; first bad: the first run of the new level "
    "(.. : the commits since the last good one); a change needs three values on either side; five "
    "and more series of a machine that changed at one run are one row (--all: one by one)"
)
_UNITS = {"seconds": "s", "count": ""}


def value_text(value: float, unit: str) -> str:
    """A level in words."""
    return format_value(value, _UNITS.get(unit, unit)) if math.isfinite(value) else str(value)


def metric_title(key: str) -> str:
    """A metric's title; another tool's word as it is."""
    return BY_KEY[key].title if key in BY_KEY else sanitise(key)


def commit_text(run: SeriesRun) -> str:
    """The commit's beginning, or what else names the run."""
    return sanitise(run.commit)[:8] or sanitise(run.id)[:12]


def range_text(change: LevelChange | ChangeGroup) -> str:
    """The first bad commit, and the last good one before it."""
    return f"{commit_text(change.last_good)}..{commit_text(change.first_bad)}"


def change_words(change: LevelChange) -> str:
    """`+12 % (+10 % to +14 %)`."""
    if not math.isfinite(change.ratio):
        return "from 0"
    low, high = (format_percent(end - 1.0, signed=True) for end in change.interval)
    return f"{format_percent(change.ratio - 1.0, signed=True)} ({low} to {high})"


def false_alarm_words(rate: FalseAlarms, series: int) -> str:
    """The rate on this database's own noise, with how it was found."""
    if rate.rate is None:
        return (
            "False alarms: not calibrated, because no series is long enough (30 values); in "
            "simulations at most 2 % of series without a change were flagged."
        )
    low, high = (percent(end) for end in rate.interval)
    raised = f", with thresholds raised {rate.factor:g}-fold for it" if rate.factor > 1.0 else ""
    return (
        f"False alarms: {percent(rate.rate)} of series without a change ({low} to {high}); about "
        f"{rate.expected:.0f} of {series:,} by chance. Calibrated on this database: what is left "
        f"of its series after their changes was shuffled in blocks of 10, and {rate.flagged} of "
        f"{rate.tested} were flagged{raised}."
    )


def cause_words(one: LevelChange) -> str:
    """`compiled got slower`: which side's time is another since then."""
    if one.moved in ("", "both"):
        return "both sides" if one.moved else ""
    faster = one.moved == "eager" and one.key.metric == "speedup"  # a worse one is a faster eager
    return f"{one.moved} got {'slower' if one.worse != faster else 'faster'}"


def change_fields(link: bool = False) -> tuple[Field[LevelChange], ...]:
    """The columns of a change, the same in a terminal, Markdown, CSV and on a page."""

    def to(one: LevelChange) -> Link | None:
        return Link("change", one.id) if link else None

    def case(one: LevelChange) -> Cell:
        return text_cell(sanitise(one.key.title), to(one), NAME_WIDTH)

    return (
        field("name", "Series", case),
        field("metric", "Metric", lambda c: Cell(c.key.metric, metric_title(c.key.metric))),
        field(
            "change",
            "Change",
            lambda c: Cell(
                finite(c.ratio),
                change_words(c),
                mark="worse" if c.worse else "better",
            ),
            True,
            "×",
        ),
        field("first_bad", "First bad", lambda c: Cell(c.first_bad.commit, range_text(c))),
        field("id", "Id", lambda c: Cell(c.id, c.id, to(c))),
        field(
            "since", "Since", lambda c: Cell(c.first_bad.at, when_s(c.first_bad.at)[:10]), wide=True
        ),
        field("moved", "Cause", lambda c: Cell(c.moved, cause_words(c)), wide=True),
        field(
            "machine",
            "Machine",
            lambda c: Cell(c.machine, "changed too" if c.machine else "", title=c.machine),
        ),
        hidden("suite", "Suite", lambda c: c.key.suite, False),
        hidden("tool", "Tool", lambda c: c.key.tool, False),
        hidden("machine_id", "Machine's id", lambda c: c.key.machine, False),
        hidden("environment", "Branch or environment", lambda c: c.key.environment, False),
        hidden("low", "Change, low end", lambda c: c.interval[0]),
        hidden("high", "Change, high end", lambda c: c.interval[1]),
        hidden("before", "Level before", lambda c: c.before, unit="as the metric"),
        hidden("after", "Level after", lambda c: c.after, unit="as the metric"),
        hidden("last_good", "Last good", lambda c: c.last_good.commit, False),
        hidden("state", "State", lambda c: c.state, False),
        hidden("reason", "Reason", lambda c: c.reason, False),
    )


def headline(report: ChangeReport) -> str:
    """How many there are, in one line."""
    worse = sum(one.worse for one in report.changes)
    counts = [
        f"{number} {state}" for state in OPEN_STATES if (number := len(report.of_state(state)))
    ]
    told = f"{count(worse, 'regression')}" + (f" ({', '.join(counts)})" if counts else "")
    better = len(report.of_state("better"))
    return f"{told}, {count(better, 'improvement')}" if better else told


def regressions_report(report: ChangeReport, *, everything: bool = False) -> Report:
    """What terminal and Markdown show."""
    looked = f"{count(report.series, 'series', 'series')}, {report.values:,} values"
    top: list[Block] = [
        Parts([headline(report), looked, *([report.asked] if report.asked else [])], "title"),
        Sentence(false_alarm_words(report.false_alarms, report.series), role=""),
        Sentence(f"Changes of less than {percent(report.least)} are not told."),
    ]
    if report.short:
        short = count(report.short, "series has", "series have")
        top.append(Sentence(f"{short} fewer than 10 values, and cannot be looked at yet."))
    sections: list[Sequence[Block]] = [top]
    if report.missing:
        entries = [Entry(missing_words(one), one.name, failed=True) for one in report.missing]
        sections.append([Listed("Missing data", entries[:MOST_ROWS], aside=_rest(entries))])
    for state in (*OPEN_STATES, "better"):
        changes = report.of_state(state)
        shared = "something else of the machine changed at the same time"
        for title, several in (
            (TITLES[state], [one for one in changes if not one.machine]),
            (f"{TITLES[state]}, but {shared}", [one for one in changes if one.machine]),
        ):
            groups, alone = ((), several) if everything else group_changes(several)
            if groups:
                sections.append(_together(state, title, groups))
            if alone:
                title += ", one by one" if groups else ""
                sections.append(_section(state, title, alone, everything))
    if report.changes:
        sections.append([Sentence(MEANING), Commands(_next(report))])
    return sections


def missing_words(one: MissingData) -> str:
    """What is missing since when."""
    return f"{one.what}: {one.detail}; last seen {when_s(one.since.at)} ({commit_text(one.since)})"


def _rest(entries: Sequence[Entry]) -> str:
    more = len(entries) - MOST_ROWS
    return f"and {more} more" if more > 0 else ""


def _section(
    state: str, title: str, changes: Sequence[LevelChange], everything: bool
) -> list[Block]:
    shown = changes if everything else changes[:MOST_ROWS]
    more = len(changes) - len(shown)
    told = f"{title}: {len(changes)}" + (f"; the largest {len(shown)}" if more else "")
    without = ("machine",) if any(one.moved for one in shown) else ("machine", "moved")
    table = make_table(state, title, change_fields(), shown, without=without)
    fold = state in ("closed", "better")
    blocks: list[Block] = [] if fold else [Parts([told], "title", where="markdown")]
    blocks.append(Grid(table, summary=told, fold=fold))
    remarks: dict[str, list[str]] = {}
    for change in shown:
        for text in _remarks(change):
            remarks.setdefault(text, []).append(change.id)
    role = "dim" if fold else ""
    blocks += [Sentence(f"{_some(ids)}: {text}", role) for text, ids in remarks.items()]
    return blocks


def _together(state: str, title: str, groups: Sequence[ChangeGroup]) -> list[Block]:
    """One row for all series of a machine that changed at the same run."""
    shown = groups[:MOST_ROWS]
    number = sum(len(group.changes) for group in groups)
    told = f"{title}: {number:,} at {count(len(groups), 'commit')}"
    told += f"; the largest {len(shown)}" if len(shown) < len(groups) else ""
    table = make_table(f"{state}-groups", told, _group_fields(), shown)
    fold = state in ("closed", "better")
    blocks: list[Block] = [] if fold else [Parts([told], "title", where="markdown")]
    blocks.append(Grid(table, summary=told, fold=fold))
    remarks = {text: group for group in shown for text in _remarks(group.changes[0])}
    role = "dim" if fold else ""
    return [*blocks, *(Sentence(f"{g.changes[0].id}: {t}", role) for t, g in remarks.items())]


def _group_fields() -> tuple[Field[ChangeGroup], ...]:
    def name(group: ChangeGroup) -> Cell:
        families = dict.fromkeys(one.key.name.rsplit(".", 1)[0] for one in group.changes)
        first, more = sanitise(next(iter(families))), len(families) - 1
        return text_cell(f"{first} and {more} more" if more else first, None, NAME_WIDTH)

    return (
        field("name", "Series of", name),
        field("count", "Series", lambda g: Cell(len(g.changes), f"{len(g.changes):,}"), True),
        field("change", "Change", lambda g: Cell(None, middle_change(g)), True),
        field("first_bad", "First bad", lambda g: Cell(g.first_bad.commit, range_text(g))),
        field("since", "Since", lambda g: Cell(g.first_bad.at, when_s(g.first_bad.at)[:10])),
        field("machine", "Machine", lambda g: text_cell(sanitise(g.changes[0].key.machine))),
        field("id", "Largest", lambda g: Cell(g.changes[0].id, g.changes[0].id)),
    )


def middle_change(group: ChangeGroup) -> str:
    """`+8 % in the middle`; of ratios that are none, nothing."""
    known = [one.ratio for one in group.changes if math.isfinite(one.ratio)]
    return f"{format_percent(median(known) - 1.0, signed=True)} in the middle" if known else ""


def _some(ids: Sequence[str]) -> str:
    return ", ".join(ids[:3]) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")


def _remarks(change: LevelChange) -> list[str]:
    found = []
    if change.machine:
        found.append(f"may not be the code: {change.machine}")
    if change.ledger:
        found.append(change.ledger)
    if change.reason:
        until = f" (until {change.until})" if change.until else ""
        found.append(f"{change.state}{until}: {change.reason}")
    return found


def _next(report: ChangeReport) -> list[tuple[str, str]]:
    wanted = [*report.of_state("open"), *report.of_state("confirmed"), *report.changes]
    one = min(wanted, key=lambda c: bool(c.machine))  # the first that may be the code's doing
    found = [(f"torchstone history {one.key.name!r}", "see it over time")]
    if one.key.tool == OURS:
        found.append((f"torchstone regressions --confirm {one.id}", "measure both commits again"))
    mute = f'torchstone regressions --mute {one.id} --until 30d --reason "..."'
    return [*found, (mute, "say nothing of it until then")]


# JSON, and an issue.


def change_data(change: LevelChange) -> dict[str, Any]:
    """A change as plain data."""
    data = asdict(change)
    for name in ("last_good", "first_bad", "earliest", "latest"):
        data[name] = getattr(change, name)._asdict()
    for name in ("ratio", "before", "after", "strength"):
        data[name] = finite(data[name])
    data["interval"] = [finite(end) for end in change.interval]
    data["series"] = data.pop("key")
    return data


def regressions_document(report: ChangeReport) -> dict[str, Any]:
    """All of it as plain data."""
    return {
        "schema": 1,
        "asked": report.asked,
        "series": report.series,
        "values": report.values,
        "too_short": report.short,
        "least": report.least,
        "false_alarms": asdict(report.false_alarms),
        "missing": [{**asdict(one), "since": one.since._asdict()} for one in report.missing],
        "groups": [
            {
                "state": state,
                "machine": group.changes[0].key.machine,
                "environment": group.changes[0].key.environment,
                "last_good": group.last_good._asdict(),
                "first_bad": group.first_bad._asdict(),
                "changes": [one.id for one in group.changes],
            }
            for state in (*OPEN_STATES, "better")
            for group in group_changes(report.of_state(state))[0]
        ],
        "changes": [change_data(one) for one in report.changes],
    }


def issue_text(report: ChangeReport) -> str:
    """The text of an issue: title in the first line, then what to look at, a box each."""
    wanted = [*report.of_state("confirmed"), *report.of_state("open")]
    code = [one for one in wanted if not one.machine]
    lines = [f"Performance: {count(len(code), 'regression')} to look at", ""]
    groups, alone = group_changes(code)
    for group in groups[:MOST_IN_ISSUE]:
        lines.append(
            f"- [ ] {len(group.changes):,} series at once: {middle_change(group)}; first bad "
            f"`{range_text(group)}`, {when_s(group.first_bad.at)[:10]} "
            f"(the largest: `{group.changes[0].id}`)"
        )
    for one in alone[:MOST_IN_ISSUE]:
        level = f"{value_text(one.before, one.key.unit)} → {value_text(one.after, one.key.unit)}"
        state = " **confirmed**" if one.state == "confirmed" else ""
        name = sanitise(one.key.title).replace("`", "'")
        moved = f"; {one.moved} moved" if one.moved else ""
        lines.append(
            f"- [ ] `{name}` {metric_title(one.key.metric)}: {change_words(one)}, {level}{moved}; "
            f"first bad `{range_text(one)}`, {when_s(one.first_bad.at)[:10]}{state} (`{one.id}`)"
        )
    more = len(alone[MOST_IN_ISSUE:]) + sum(len(g.changes) for g in groups[MOST_IN_ISSUE:])
    if more:
        lines.append(f"- and {more} more: `torchstone regressions --json`")
    shared = [one for one in wanted if one.machine]
    if shared:
        lines += ["", f"Not counted, because the machine changed too: {len(shared)}."]
    lines += [f"Missing: {missing_words(one)} ({sanitise(one.name)})" for one in report.missing]
    lines += ["", false_alarm_words(report.false_alarms, report.series)]
    lines += ["", "Each can be measured again: `torchstone regressions --confirm ID`."]
    return "\n".join(lines) + "\n"


MOST_PLOTS = 4
"""Series that are drawn; of more, a table alone."""
HEIGHT = 12
LABEL = 10
BARS = "▁▂▃▄▅▆▇█"
SPARK = 24
LAST = 10
"""Values that the table of one series shows."""
_DOT, _CHANGE = ("•", "┊"), ("*", "|")


def history_report(
    lines: Lines,
    changes: dict[str, list[LevelChange]],
    *,
    color: bool = False,
    width: int = 100,
    unicode: bool = True,
) -> str:
    """For a terminal: a plot each of a few series, else a table of them all."""
    style = Style(color, unicode)
    if len(lines.lines) > MOST_PLOTS:
        return to_terminal(_table(lines, changes, unicode), width, style)
    texts = []
    for line in lines.lines:
        own = changes.get(line.ident, [])
        top = to_terminal([[Parts(_about(lines, line), "title")]], width, style)
        rest = to_terminal(_below(lines, line, own), width, style)
        texts.append(top + plot(lines, line, own, width, unicode) + "\n" + rest)
    return "\n".join(texts)


def history_markdown(lines: Lines, changes: dict[str, list[LevelChange]]) -> str:
    """A table, and of a few series their newest values."""
    if len(lines.lines) > MOST_PLOTS:
        return to_markdown(_table(lines, changes, True))
    sections = []
    for line in lines.lines:
        sections += [
            [Parts(_about(lines, line), "title")],
            *_below(lines, line, changes.get(line.ident, [])),
        ]
    return to_markdown(sections)


def _about(lines: Lines, line: Line) -> list[str]:
    key = line.key
    where = (f"{key.tool} {key.suite}".strip(), key.machine, key.environment)
    return [
        f"{sanitise(key.title)}: {metric_title(key.metric)}",
        *(sanitise(part) for part in where if part),
        count(line.values.size, "value"),
    ]


def plot(
    lines: Lines, line: Line, changes: Sequence[LevelChange], width: int, unicode: bool = True
) -> str:
    """The values in the order of runs, changes as dotted lines."""
    room = max(20, width - LABEL - 3)
    values = line.values
    low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = min(low, 0.0), max(high, 0.0)
    spread = high - low or 1.0
    columns = min(room, values.size)
    grid = [[" "] * columns for _ in range(HEIGHT)]
    dot, bar = _DOT[0] if unicode else _CHANGE[0], _DOT[1] if unicode else _CHANGE[1]
    begun = {change.first_bad for change in changes}
    for place in range(values.size):
        if lines.run(line, place) in begun:
            for row in grid:
                row[place * columns // values.size] = bar
    for place, value in enumerate(values.tolist()):
        row = HEIGHT - 1 - round((value - low) / spread * (HEIGHT - 1))
        grid[row][place * columns // values.size] = dot
    made = []
    for number, row in enumerate(grid):
        level = low + spread * (HEIGHT - 1 - number) / (HEIGHT - 1)
        label = value_text(level, line.key.unit) if number % 3 == 0 or number == HEIGHT - 1 else ""
        label = label if unicode else label.replace("µ", "u").replace("×", "x")
        made.append(f"{label:>{LABEL}} {'┤' if unicode else '|'}{''.join(row)}".rstrip())
    ends = [when_s(lines.run(line, place).at)[:10] for place in (0, -1)]
    gap = max(1, columns - len(ends[0]) - len(ends[1]))
    return "\n".join([*made, " " * (LABEL + 2) + ends[0] + " " * gap + ends[1]]) + "\n"


def _below(lines: Lines, line: Line, changes: Sequence[LevelChange]) -> Report:
    told = [
        Parts(
            [
                f"{_direction(line, one)} since {when_s(one.first_bad.at)[:10]}: "
                f"{change_words(one)}",
                f"first bad {range_text(one)}",
                *([f"{one.moved} moved"] if one.moved else []),
                *(["may be the machine: " + one.machine] if one.machine else []),
            ],
            "",
        )
        for one in changes
    ]
    places = list(range(line.values.size))[-LAST:][::-1]
    fields: tuple[Field[int], ...] = (
        field("commit", "Commit", lambda i: Cell("", commit_text(lines.run(line, i)))),
        field("made", "Made", lambda i: Cell("", when_s(lines.run(line, i).at))),
        field(
            "value",
            metric_title(line.key.metric),
            lambda i: Cell(float(line.values[i]), value_text(float(line.values[i]), line.key.unit)),
            True,
        ),
    )
    table = make_table("history", "", fields, places)
    return [told, [Grid(table, summary=f"the newest {len(places)} of {line.values.size}")]]


def _direction(line: Line, change: LevelChange) -> str:
    slower = "slower" if line.key.unit == "seconds" else "worse"
    return slower if change.worse else "better"


def spark(line: Line, unicode: bool = True) -> str:
    """The values as small bars."""
    step = max(1, -(-line.values.size // SPARK))
    values = [float(line.values[at : at + step].mean()) for at in range(0, line.values.size, step)]
    low, high = min(values), max(values)
    levels = BARS if unicode else "_.-=+*#@"
    # Of numbers near the largest there is no mean, or no scale.
    if not all(map(math.isfinite, (*values, high - low))) or high == low:
        return levels[0] * len(values)
    return "".join(levels[round((v - low) / (high - low) * (len(levels) - 1))] for v in values)


def _table(lines: Lines, changes: dict[str, list[LevelChange]], unicode: bool) -> Report:
    def newest(line: Line) -> Cell:
        value = float(line.values[-1])
        return Cell(value, value_text(value, line.key.unit))

    def changed(line: Line) -> Cell:
        own = changes.get(line.ident, [])
        worse = sum(one.worse for one in own)
        words = ", ".join(
            f"{n} {w}" for n, w in ((worse, "worse"), (len(own) - worse, "better")) if n
        )
        return Cell(len(own), words)

    fields: tuple[Field[Line], ...] = (
        field("name", "Series", lambda one: Cell("", sanitise(one.key.title)[:60])),
        field("metric", "Metric", lambda one: Cell("", metric_title(one.key.metric))),
        field(
            "where",
            "Where",
            lambda one: Cell("", sanitise(f"{one.key.machine} {one.key.environment}")[:30]),
            wide=True,
        ),
        field("values", "Values", lambda one: Cell(one.values.size, str(one.values.size)), True),
        field("shape", "Over time", lambda one: Cell("", spark(one, unicode))),
        field("newest", "Newest", newest, True),
        field("changes", "Changes", changed),
    )
    table = make_table("series", "", fields, lines.lines)
    return [[Parts([count(len(lines.lines), "series", "series")], "title")], [Grid(table)]]


def history_document(lines: Lines, changes: dict[str, list[LevelChange]]) -> dict[str, Any]:
    """All series with their values and changes as plain data."""
    from dataclasses import asdict

    return {
        "schema": 1,
        "series": [
            {
                **asdict(line.key),
                "id": line.ident,
                "points": [
                    {**lines.run(line, place)._asdict(), "value": value}
                    for place, value in enumerate(line.values.tolist())
                ],
                "changes": [change_data(one) for one in changes.get(line.ident, [])],
            }
            for line in lines.lines
        ],
    }
