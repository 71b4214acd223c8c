"""What a monitor saw, for terminals, Markdown and JSON; the same tables stand on the dashboard."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from torchstone.monitor.views import Compared, MonitorView, PhaseChange, RankView, Totals
from torchstone.records import Peak, to_data
from torchstone.records.format import (
    count,
    format_bytes,
    format_percent,
    format_ratio,
    format_seconds,
    format_si,
)
from torchstone.records.monitoring import (
    FALSE_ALARMS,
    PHASE_NAMES,
    PHASES,
    RELATIVE_ERROR,
    MonitorEvent,
    MonitorLevel,
)
from torchstone.show.blocks import Block, Grid, Parts, Report, Sentence
from torchstone.show.page import Cell, Field, Table, field, make_table

NOT_KNOWN = "?"
"""What cannot be seen here; never a zero."""
NEWEST_EVENTS = 30
STATES = {"running": "running", "ended": "pass", "failed": "fail", "lost": "doubt"}
QUANTILES = ((0.5, "median"), (0.9, "90 %"), (0.99, "99 %"))


def state_cell(view: MonitorView) -> Cell:
    """Its mark and its word."""
    return Cell(view.state, view.state, mark=STATES.get(view.state, ""))


def per_second_cell(found: Totals) -> Cell:
    """`812 /s`."""
    value = found.per_second
    return Cell(value, "" if value is None else f"{format_si(value)} /s")


def seconds_cell(value: float | None) -> Cell:
    """Three digits."""
    return Cell(value, "" if value is None else format_seconds(value, 3))


def share_cell(found: Totals, phase: str) -> Cell:
    """A phase as a share of the step; a question mark where it is not known."""
    share = found.share(phase)
    if not found.steps:
        return Cell(None, "")
    return Cell(share, NOT_KNOWN if share is None else format_percent(share))


def phase_field(phase: str, title: str) -> Field[tuple[MonitorView, RankView]]:
    """The share of one phase in the last seconds."""
    return field(phase, title, lambda pair: share_cell(pair[1].recent, phase), True)


RANKS: tuple[Field[tuple[MonitorView, RankView]], ...] = (
    field("monitor", "Monitor", lambda pair: Cell(pair[0].id, rank_name(*pair))),
    field("state", "State", lambda pair: state_cell(pair[0])),
    field("step", "Step", lambda pair: _step_cell(pair[1]), True),
    field("rate", "Rate", lambda pair: per_second_cell(pair[1].recent), True),
    field("median", "Median", lambda pair: _quantile(pair[1].recent, 0.5), True),
    field("p99", "99 %", lambda pair: _quantile(pair[1].recent, 0.99), True),
    phase_field("data", "Data"),
    phase_field("forward", "Forward"),
    phase_field("backward", "Backward"),
    phase_field("collective", "Ranks"),
    phase_field("optimizer", "Optim"),
    phase_field("other", "Other"),
    field("rss", "Memory", lambda pair: _memory_cell(pair[1].recent), True),
    field("loss", "Loss", lambda pair: _loss_cell(pair[1].recent), True),
)


def rank_name(view: MonitorView, rank: RankView) -> str:
    """The id, and the rank where there are several."""
    return f"{view.id} [{rank.rank}]" if len(view.ranks) > 1 else view.id


def _step_cell(rank: RankView) -> Cell:
    steps = rank.last_step if rank.last_step >= 0 else rank.whole.steps
    return Cell(steps, f"{steps:,}" if steps else "")


def _quantile(found: Totals, q: float) -> Cell:
    return seconds_cell(found.times.quantile(q))


def _memory_cell(found: Totals) -> Cell:
    value = found.process.device_bytes or found.process.rss_bytes
    return Cell(value, "" if value is None else format_bytes(value))


def _loss_cell(found: Totals) -> Cell:
    return Cell(found.loss, "" if found.loss is None else f"{found.loss:.4g}")


EVENTS: tuple[Field[tuple[int, MonitorEvent]], ...] = (
    field("time", "Time", lambda pair: Cell(pair[1].time_s, clock_time(pair[1].time_s))),
    field("rank", "Rank", lambda pair: Cell(pair[0], str(pair[0])), True),
    field("step", "Step", lambda pair: Cell(pair[1].step, f"{pair[1].step:,}"), True),
    field("what", "What", lambda pair: event_cell(pair[1])),
    field("text", "Found", lambda pair: Cell(pair[1].text, pair[1].text)),
    field("remedy", "What helps", lambda pair: Cell(pair[1].remedy, pair[1].remedy)),
)


def event_cell(event: MonitorEvent) -> Cell:
    """A warning is marked."""
    return Cell(
        event.what, event.what, mark="doubt" if event.level is MonitorLevel.WARN else "quiet"
    )


def clock_time(time_s: float) -> str:
    """`14:03:22`, UTC as everywhere."""
    return datetime.fromtimestamp(time_s, timezone.utc).strftime("%H:%M:%S")


def ranks_table(views: Sequence[MonitorView], name: str = "monitors") -> Table:
    """A row a rank."""
    pairs = [(view, rank) for view in views for rank in view.ranks]
    empty = "No monitor runs on this machine. Start one: torchstone monitor SCRIPT."
    hidden = set()
    if not any(rank.recent.phases_ns.get("collective") is not None for _, rank in pairs):
        hidden.add("collective")
    return make_table(name, "", RANKS, pairs, empty=empty, without=hidden)


def phases_table(found: Totals) -> Table:
    """Where a step's time goes, over the whole run."""
    rows = [(phase, found) for phase in PHASES]
    hidden = set() if found.device_steps else {"device"}
    return make_table("phases", "Where the time goes", PHASE_FIELDS, rows, without=hidden)


PHASE_FIELDS: tuple[Field[tuple[str, Totals]], ...] = (
    field("phase", "Phase", lambda row: Cell(row[0], PHASE_NAMES[row[0]])),
    field("share", "Share", lambda row: share_cell(row[1], row[0]), True),
    field(
        "seconds",
        "Per step",
        lambda row: _or_not_known(row[1].phase_s(row[0])),
        True,
    ),
    field("device", "On the device", lambda row: seconds_cell(row[1].device_s(row[0])), True),
)


def _or_not_known(value: float | None) -> Cell:
    return Cell(value, NOT_KNOWN if value is None else format_seconds(value, 3))


def facts_of(view: MonitorView) -> list[str]:
    """One line about all of it."""
    whole = [rank.whole for rank in view.ranks]
    # Ranks train together: their steps are the same ones.
    steps = max((one.steps for one in whole), default=0)
    seconds = max((one.seconds for one in whole), default=0.0)
    what = "request" if view.kind == "requests" else "step"
    facts = [count(steps, what), format_seconds(seconds, 3) if seconds else ""]
    if len(view.ranks) > 1:
        facts.append(count(len(view.ranks), "rank"))
    facts += [f"torch {view.torch}" if view.torch else "", view.device]
    return [fact for fact in facts if fact]


def _times(found: Totals) -> str:
    parts = [
        f"{name} {format_seconds(value, 3)}"
        for q, name in QUANTILES
        if (value := found.times.quantile(q)) is not None
    ]
    error = format_percent(RELATIVE_ERROR)
    return f"{', '.join(parts)} (each within {error})" if parts else ""


def _more_of(found: Totals) -> list[str]:
    """Memory, rates and pauses, where they are known."""
    parts = []
    for name, amount in (("samples", found.samples), ("tokens", found.tokens)):
        if amount is not None and found.seconds:
            parts.append(f"{format_si(amount / found.seconds)} {name}/s")
    process = found.process
    if process.rss_bytes is not None:
        peak = f", peak {format_bytes(process.peak_bytes)}" if process.peak_bytes else ""
        parts.append(f"memory {format_bytes(process.rss_bytes)}{peak}")
    if found.wall_ns:
        parts.append(f"garbage collection {format_percent(found.gc_ns / found.wall_ns)}")
        if found.delay_ns is not None:
            parts.append(f"waiting for a core {format_percent(found.delay_ns / found.wall_ns)}")
    if process.gil_delay_ns is not None:
        parts.append(f"waiting for the GIL {format_seconds(process.gil_delay_ns / 1e9, 3)}")
    if found.errors:
        parts.append(count(found.errors, "error"))
    if found.queue is not None and (queued := found.queue.quantile(0.5)) is not None:
        parts.append(f"queued {format_seconds(queued, 3)} (median)")
    if found.batches:
        sizes = sorted(found.batches.items(), key=lambda one: -one[1])[:5]
        parts.append("batches of " + ", ".join(f"{size} ({n:,})" for size, n in sizes))
    return parts


def flops_words(view: MonitorView, found: Totals, peak: Peak | None) -> str:
    """`4.1 GFLOP/s, 3.2 % of the peak`; a sentence where it is not known."""
    achieved = found.flops_per_second
    if achieved is None:
        return f"FLOPs not counted ({view.flops_how})" if view.flops_how else ""
    rate = format_si(achieved, "FLOP/s")
    if peak is None:
        return f"{rate} (peak not known: torchstone doctor --calibrate)"
    return f"{rate}, {format_percent(achieved / peak.value)} of the {peak.dtype} peak"


def view_report(view: MonitorView, peak: Peak | None = None) -> Report:
    """One monitor, whole; `peak` is what its machine can do in the model's dtype."""
    first = view.ranks[0].whole if view.ranks else Totals()
    head: list[Block] = [
        Parts([view.name, view.state, *facts_of(view)], "title"),
        Parts([view.id, view.command], "dim"),
    ]
    if view.reason:
        head.append(Sentence(f"It ended: {view.reason}.", "warn", "! "))
    flops = flops_words(view, first, peak)
    figures: list[Block] = [Parts([_times(first), *_more_of(first), *([flops] if flops else [])])]
    if first.phases_ns:
        figures.append(Grid(phases_table(first)))
        figures.append(Sentence(f"{NOT_KNOWN}: cannot be seen here. " + " ".join(view.unseen)))
    sections: list[Sequence[Block]] = [head, figures]
    if len(view.ranks) > 1:
        sections.append([Grid(ranks_table([view]))])
    if view.slow_rank is not None:
        sections.append([Sentence(view.slow_rank.text, "warn", "! ")])
    sections.append(_events(view))
    dropped = {name: n for rank in view.ranks for name, n in rank.dropped.items()}
    if dropped:
        lost = ", ".join(f"{name} {n:,} lines" for name, n in dropped.items())
        sections.append([Sentence(f"Lost on the way: {lost}.", "warn", "! ")])
    return sections


def _events(view: MonitorView) -> Sequence[Block]:
    newest = view.events[-NEWEST_EVENTS:]
    blocks: list[Block] = []
    if len(view.events) > len(newest):
        blocks.append(Sentence(f"The newest {len(newest)} of {len(view.events)} events:"))
    for rank, event in newest:
        warn = event.level is MonitorLevel.WARN
        who = f"rank {rank}: " if len(view.ranks) > 1 else ""
        text = f"{clock_time(event.time_s)} {who}{event.text}"
        if warn and event.remedy:
            text += f" {event.remedy}"
        blocks.append(Sentence(text, "warn" if warn else "dim", "! " if warn else "  "))
    if not blocks and view.slow_rank is None:
        blocks.append(Sentence("Nothing out of the ordinary was seen."))
    rate = format_percent(FALSE_ALARMS)
    blocks.append(
        Sentence(f"Warnings of drift, leaks and slow ranks are false in at most {rate} of runs.")
    )
    return blocks


def list_report(views: Sequence[MonitorView]) -> Report:
    """A row a monitor."""
    if not views:
        return [[Sentence("No monitor is recorded. Start one: torchstone monitor SCRIPT.")]]
    return [[Grid(ranks_table(views))]]


def top_report(views: Sequence[MonitorView], now_s: float) -> Report:
    """What runs now, and what was found lately."""
    running = [one for one in views if one.state == "running"]
    title = f"torchstone top, {clock_time(now_s)} UTC"
    sections: list[Sequence[Block]] = [
        [Parts([title, count(len(running), "monitor") + " running"], "title")]
    ]
    if not views:
        sections.append([Sentence("No monitor runs on this machine.")])
        sections.append([Sentence("Start one: torchstone monitor SCRIPT.")])
        return sections
    sections.append([Grid(ranks_table(views))])
    slow = [one.slow_rank for one in views if one.slow_rank is not None]
    sections.append([Sentence(one.text, "warn", "! ") for one in slow])
    lately = sorted(
        ((view, rank, event) for view in views for rank, event in view.events),
        key=lambda one: one[2].time_s,
    )[-10:]
    blocks: list[Block] = []
    for view, rank, event in lately:
        warn = event.level is MonitorLevel.WARN
        who = f"{view.name}[{rank}]" if len(view.ranks) > 1 else view.name
        text = f"{clock_time(event.time_s)} {who}: {event.text}"
        blocks.append(Sentence(text, "warn" if warn else "dim", "! " if warn else "  "))
    sections.append(blocks)
    return sections


# Two trainings.


def _difference(one: PhaseChange) -> Cell:
    if one.base_s is None or one.new_s is None:
        return Cell(None, NOT_KNOWN)
    value = one.new_s - one.base_s
    sign = "+" if value > 0 else ""
    mark = {True: "worse", False: "better"}.get(value > 0, "") if one.matters else ""
    return Cell(value, f"{sign}{format_seconds(value, 3)}", mark=mark)


def _or_empty(share: float | None) -> Cell:
    return Cell(share, "" if share is None else format_percent(share))


CHANGES: tuple[Field[PhaseChange], ...] = (
    field("phase", "Phase", lambda one: Cell(one.phase, PHASE_NAMES.get(one.phase, one.phase))),
    field("base", "A, per step", lambda one: _or_not_known(one.base_s), True),
    field("new", "B, per step", lambda one: _or_not_known(one.new_s), True),
    field("difference", "Difference", _difference, True),
    field("share", "Of the change", lambda one: _or_empty(one.share), True),
)


def compare_report(found: Compared) -> Report:
    """What changed from A to B, phase by phase."""
    ratio = format_ratio(found.ratio) if found.ratio is not None else NOT_KNOWN
    head: list[Block] = [
        Parts([f"A {found.base_id}", f"B {found.new_id}"], "title"),
        Sentence(found.verdict, "", ""),
        Sentence(
            f"A step of B takes {ratio} the time of A's (medians over {found.blocks[0]} and "
            f"{found.blocks[1]} seconds).",
        ),
    ]
    table = make_table("changes", "", CHANGES, found.phases)
    notes: list[Block] = [Sentence(text) for text in found.notes]
    return [head, [Grid(table)], notes]


def dumps(what: Any) -> str:
    """The records as they are."""
    return json.dumps(to_data(what), indent=2, allow_nan=False)
