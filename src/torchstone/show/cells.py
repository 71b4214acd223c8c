"""Figures and names as cells: one place says how a pass rate, a speed-up or a run is written."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from operator import attrgetter
from typing import Any

from torchstone.records import (
    CaseKey,
    CaseMetrics,
    Level,
    Mean,
    Outcome,
    PassRate,
    Ratio,
    RunHead,
    SuiteSummary,
    Verdict,
)
from torchstone.records.format import (
    COARSE,
    FINE,
    as_much,
    fewer_decimals,
    finite,
    format_bytes,
    format_interval,
    format_percent,
    format_ratio,
    format_seconds,
    ratio_decimals,
)
from torchstone.records.metrics import BY_KEY
from torchstone.show.page import Cell, Column, Link, Scalar
from torchstone.show.rows import VERDICT_MARKS, processor_name
from torchstone.show.table import sanitise

KEY = ("suite", "model", "scale", "mode", "precision", "variant", "device", "threads", "allocator")
"""The parts of a case's key, in the order of JSON, CSV and links."""
_PARTS, _SCALE = attrgetter(*KEY), KEY.index("scale")
COMMIT_DIGITS = 8
LONGEST_LABEL = 60
_NOT_SLUG = re.compile(r"[^a-z0-9]+")
_SAID = {"not-worse": "not worse", "not-better": "not better", "unsure": "cannot tell"}
"""What a mark of a change means, where its own word does not say it."""
LEVEL_MARKS = {Level.OK: "pass", Level.NOTE: "quiet", Level.WARN: "doubt", Level.FAIL: "fail"}
CARRIED = (
    *("base", "new", "across", "range", "from", "to", "granularity"),
    *("machine", "branch", "torch"),
)
"""What goes along from page to page, where a reader chose it."""


def speedup_words(
    value: float | None,
    interval: tuple[float, float] | None,
    decimals: int = COARSE,
) -> tuple[str, str]:
    """`1.32×` and `1.29–1.35`; empty where there is none."""
    if value is None or not math.isfinite(value):
        return "", ""
    ends = interval if interval and all(0 < end < math.inf for end in interval) else None
    decimals = fewer_decimals(value, decimals)
    return format_ratio(value, decimals), format_interval(ends, decimals)


def mean_decimals(means: Iterable[Mean]) -> int:
    """Decimals for all of these: one more where an interval is so narrow that it shows."""
    known = [(mean.value, mean.interval) for mean in means if mean.value is not None]
    fine = any(ratio_decimals(value, ends) > fewer_decimals(value, COARSE) for value, ends in known)
    return FINE if fine else COARSE


def pass_words(passes: PassRate) -> tuple[str, str]:
    """`5/6` and `83 %`; never 100 % where one failed, never 0 % where one passed."""
    share = ""
    if passes.counted:
        percent = round(100 * passes.passed / passes.counted)
        if 0 < passes.passed < passes.counted:
            percent = min(99, max(1, percent))
        share = f"{percent} %"
    return f"{passes.passed}/{passes.counted}", share


def of_words(*means: Mean) -> str:
    """`of 5`: how many cases a mean is over; `4 of 5` where some are left out, `of 5 / 4` where two
    means differ."""
    known = [mean for mean in means if mean.value is not None]
    if len(means) == 1 and known and known[0].n < known[0].of:
        return f"{known[0].n} of {known[0].of}"
    counts = dict.fromkeys(str(mean.n) for mean in known)
    return f"of {' / '.join(counts)}" if counts else ""


def compile_words(cold: Mean, warm: Mean) -> str:
    """`12.1 s / 2.30 s`."""
    if cold.value is None:
        return ""
    known = [mean.value for mean in (cold, warm) if mean.value is not None]
    return " / ".join(format_seconds(value / 1e9, 3) for value in known)


def suite_of(key: CaseKey | SuiteSummary) -> str:
    """`huggingface@small`."""
    return f"{key.suite}@{key.scale}" if key.scale else key.suite


def cut(text: str, longest: int = LONGEST_LABEL) -> str:
    """A name that fits; the cell's title holds all of it."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def text_cell(text: str, to: Link | None = None, longest: int = LONGEST_LABEL) -> Cell:
    """A name or a sentence from outside."""
    safe = sanitise(text)
    short = cut(safe, longest)
    return Cell(text, short, to, title="" if short == safe else safe[:2000])


def command_line(words: Sequence[str]) -> str:
    """A command as a shell takes it."""
    return shlex.join(sanitise(word) for word in words)


def number_cell(value: float | int | None, to: Link | None = None) -> Cell:
    """A count."""
    return Cell(value, "" if value is None else f"{value:,}", to)


def seconds_cell(value: float | None, to: Link | None = None) -> Cell:
    """Seconds."""
    known = finite(value)
    return Cell(known, "" if known is None else format_seconds(known, 3), to)


def nanoseconds_cell(value: float | None, to: Link | None = None) -> Cell:
    """Nanoseconds, told in seconds."""
    return seconds_cell(None if value is None else value / 1e9, to)


def bytes_cell(value: float | None, to: Link | None = None) -> Cell:
    """Bytes."""
    known = finite(value)
    return Cell(known, "" if known is None else format_bytes(known), to)


def ratio_cell(value: float | None, to: Link | None = None, mark: str = "") -> Cell:
    """A ratio without an interval."""
    return Cell(finite(value), speedup_words(value, None)[0], to, mark)


MEMORY_RATIOS = ("memory_ratio", "process_memory_ratio")


def memory_cell(value: float | None, to: Link | None = None) -> Cell:
    """A memory ratio (base over new) the way round that people read it: `2.94×`, which on hover is
    2.94× as much memory."""
    if value is None or not value > 0.0 or not math.isfinite(value):
        return Cell(finite(value), "", to)
    used = 1.0 / value
    return Cell(value, speedup_words(used, None)[0], to, title=f"{as_much(used)} memory as base")


def metric_cell(case: CaseMetrics, key: str, to: Link | None = None) -> Cell:
    """A metric of a case, written as its unit wants it."""
    metric = BY_KEY[key]
    value = metric.public(case)
    if key in MEMORY_RATIOS:
        return memory_cell(value, to)
    if metric.unit == "s":
        return seconds_cell(value, to)
    if metric.unit == "bytes":
        return bytes_cell(value, to)
    if metric.unit == "×":
        return ratio_cell(value, to)
    return number_cell(value, to)


def metric_column(key: str, name: str = "", **changes: Any) -> Column:
    """The column of a metric; a page may call it by another name or title."""
    metric = BY_KEY[key]
    made = Column(name or metric.public_name, metric.title, True, metric.unit)
    return replace(made, **changes)


def pass_cell(passes: PassRate, to: Link | None = None, *, live: bool = True) -> Cell:
    """`5/6 83 %`; where a run may still be going on, what is left instead of a percentage that
    would look like failures."""
    counts, share = pass_words(passes)
    said = [f"{n} {name.replace('_', ' ')}" for name, n in passes.outcomes.items() if n]
    mark = "pass" if 0 < passes.counted == passes.passed else ""
    left = passes.outcomes.get(Outcome.NOT_RUN.value, 0)
    detail = f"{left} not run" if left and live else share
    return Cell(passes.rate, counts, to, mark, detail, ", ".join(said))


def mean_cell(mean: Mean, to: Link | None = None, decimals: int | None = None) -> Cell:
    """A geometric mean with its interval."""
    if mean.value is None:
        return Cell(None, "", to)
    decimals = mean_decimals([mean]) if decimals is None else decimals
    value, ends = speedup_words(mean.value, mean.interval, decimals)
    return Cell(finite(mean.value), value, to, "", ends, _over(mean), of_words(mean))


def mean_memory_cell(mean: Mean, to: Link | None = None) -> Cell:
    """A mean of memory ratios, which have no interval."""
    return memory_cell(mean.value, to)._replace(over=of_words(mean))


def mean_bytes_cell(mean: Mean, to: Link | None = None) -> Cell:
    """A mean of bytes."""
    return bytes_cell(mean.value, to)._replace(over=of_words(mean))


def compile_cell(cold: Mean, warm: Mean, to: Link | None = None) -> Cell:
    """`12.1 s / 2.30 s`: cold and warm."""
    value = None if cold.value is None else cold.value / 1e9
    text = compile_words(cold, warm)
    return Cell(finite(value), text, to, "", "", _over(cold), of_words(cold, warm) if text else "")


def _over(mean: Mean) -> str:
    return f"over {mean.n} of {mean.of} passing cases"


def speedup_cell(case: CaseMetrics, to: Link | None = None) -> Cell:
    """A case's speed-up with its interval; a wrong answer has none."""
    if case.outcome is not Outcome.OK:
        return Cell(None, "", to)
    value, ends = speedup_words(case.speedup, case.interval)
    return Cell(finite(case.speedup), value, to, detail=ends)


def without_detail(cell: Cell) -> Cell:
    """The same for a narrow column: what stood after the figure is told on hover."""
    return cell._replace(detail="", title="; ".join(t for t in (cell.detail, cell.title) if t))


def outcome_cell(case: CaseMetrics | None) -> Cell:
    """How a case ended."""
    if case is None:
        return Cell("", "absent", mark="quiet")
    return outcome_word(case.outcome, case.reason)


def outcome_word(outcome: Outcome, reason: str = "") -> Cell:
    """An outcome with its mark."""
    mark = {Outcome.OK: "pass", Outcome.NOT_SUPPORTED: "quiet", Outcome.NOT_RUN: "quiet"}
    safe = sanitise(reason)[:2000]
    return Cell(outcome.value, outcome.words, mark=mark.get(outcome, "fail"), title=safe)


def level_cell(level: Level) -> Cell:
    """How bad something is."""
    return Cell(level.value, level.value, mark=LEVEL_MARKS[level])


def verdict_cell(verdict: Verdict | None, words: str = "") -> Cell:
    """A verdict in its word and its mark."""
    if verdict is None:
        return Cell(None, words)
    return Cell(verdict.value, words or verdict.value, mark=VERDICT_MARKS[verdict])


def change_cell(
    ratio: Ratio | None,
    verdict: Verdict | None,
    to: Link | None = None,
    threshold: float | None = None,
) -> Cell:
    """`+2.1 %` with its interval, marked by the verdict: better or worse, never by size alone.

    What is told on hover has the threshold too: the smallest change that is believed.
    """
    if ratio is None or finite(ratio.value) is None:
        return Cell(None, "", to)
    ends = ""
    if ratio.interval is not None and all(map(math.isfinite, ratio.interval)):
        ends = " to ".join(_signed(end) for end in ratio.interval)
    mark = VERDICT_MARKS[verdict] if verdict else ""
    least = "" if threshold is None else f"noise limit {format_percent(threshold)}"
    told = "; ".join(part for part in (_SAID.get(mark, mark), least) if part)
    return Cell(ratio.value, _signed(ratio.value), to, mark, ends, told)


def threshold_cell(threshold: float | None, to: Link | None = None) -> Cell:
    """The smallest change that is believed."""
    return Cell(finite(threshold), "" if threshold is None else format_percent(threshold), to)


def _signed(ratio: float) -> str:
    percent = (ratio - 1) * 100
    decimals = 0 if abs(percent) >= 100 else 1
    text = f"{percent:+.{decimals}f} %"
    return text.replace("+0.0", "0.0").replace("-0.0 ", "0.0 ")


def when(created: str) -> str:
    """A date to the minute, in UTC; the text as it is where it is no date."""
    try:
        moment = datetime.fromisoformat(created.replace("Z", "+00:00"))
    except ValueError:
        return cut(sanitise(created), 20)
    if moment.tzinfo is not None:
        moment = moment.astimezone(timezone.utc)
    return moment.strftime("%Y-%m-%d %H:%M")


def when_s(seconds: float | None) -> str:
    """UTC seconds to the minute."""
    if seconds is None:
        return ""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):
        return ""


def commit_of(head: RunHead) -> str:
    """The commit's beginning; a star where files differed from it."""
    return sanitise(head.commit)[:COMMIT_DIGITS] + ("*" if head.commit and head.dirty else "")


def run_title(head: RunHead) -> str:
    """`2026-11-15 20:30 · main c0ffee12 · nightly`: enough to know a run in a list."""
    commit = " ".join(part for part in (cut(sanitise(head.branch), 24), commit_of(head)) if part)
    parts = (when(head.created), commit, cut(sanitise(head.label), 32))
    return " · ".join(part for part in parts if part)


def machine_title(machine_id: str, described: str) -> str:
    """`Intel Xeon Platinum 8370C 0f3c55`: enough to know a machine in a list."""
    return cut(sanitise(f"{processor_name(described)} {machine_id[:6]}".strip()), 40)


def run_cell(head: RunHead | None, text: str = "") -> Cell:
    """A run with a link to it."""
    if head is None:
        return Cell(None, text or "")
    shown = text or when(head.created)
    return Cell(head.id, shown, Link("run", head.id), title=f"{run_title(head)} · {head.id}")


def commit_cell(head: RunHead) -> Cell:
    """Branch and commit."""
    shown = " ".join(part for part in (cut(sanitise(head.branch), 20), commit_of(head)) if part)
    note = " (files differ from the commit)" if head.dirty else ""
    return Cell(head.commit, shown, title=sanitise(head.commit) + note if head.commit else "")


def state_cell(head: RunHead) -> Cell:
    """Complete, running or interrupted."""
    mark = {"complete": "pass", "running": "running"}.get(head.state, "doubt")
    return Cell(head.state, head.state, mark=mark, detail=f"{head.done}/{head.planned}")


def case_place(key: CaseKey, carried: tuple[tuple[str, str], ...] = ()) -> Link:
    """A model's page."""
    return Link("case", "", (*key_params(key), *carried))


def key_params(key: CaseKey) -> list[tuple[str, str]]:
    """The parts of a key as an address has them."""
    own = list(zip(KEY, map(str, _PARTS(key)), strict=True))
    own[_SCALE] = ("scale", key.scale or "all")
    return own


def suite_title(suite: str, scale: str) -> str:
    """`huggingface@small`."""
    return sanitise(f"{suite}@{scale}" if scale else suite)


def table_name(text: str, taken: Collection[str] = ()) -> str:
    """A name for the address of a table: letters, digits and dashes, and like no other."""
    made = _NOT_SLUG.sub("-", text.lower()).strip("-")[:60] or "table"
    number = 2
    found = made
    while found in taken:
        found, number = f"{made}-{number}", number + 1
    return found


def flat(value: object) -> Scalar:
    """Something from a mapping of facts, as a cell can hold it."""
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


# Figures of another tool in an imported run: under its names, as it wrote them.

SHOWN = ("speedup", "abs_latency", "compilation_latency", "compression_ratio", "accuracy")
"""The columns of the PyTorch dashboard's runner that have a place in a table; the rest is in the
JSON and in an export."""


def foreign_cell(case: CaseMetrics, column: str) -> str:
    """The last text that stands under a column; a number to four digits.

    Other tables than that of performance measure under other settings, so they give no times.
    """
    tables = ("accuracy", "performance") if column == "accuracy" else ("performance",)
    rows = [one for one in case.foreign if one.table in tables]
    found = [text for one in rows if (text := one.cell(column))]
    if not found:
        return ""
    try:
        value = float(found[-1])
    except ValueError:
        return found[-1]
    return f"{value:.4g}" if math.isfinite(value) else found[-1]


def foreign_columns(cases: Sequence[CaseMetrics]) -> list[str]:
    """Which of the columns have something to say about these cases."""
    return [name for name in SHOWN if any(foreign_cell(case, name) for case in cases)]


def foreign_note(cases: Sequence[CaseMetrics]) -> str:
    """Whose figures they are; empty where there are none."""
    tools = dict.fromkeys(one.definition for case in cases for one in case.foreign)
    columns = foreign_columns(cases)
    if not columns:
        return ""
    return (
        f"{', '.join(columns)}: as {', '.join(tools)} wrote and defines them, without interval or "
        "verdict"
    )


def foreign_data(case: CaseMetrics) -> list[dict[str, Any]]:
    """Every row as plain data: where it was read, and its cells by column."""
    return [
        {
            "format": one.format,
            "definition": one.definition,
            "table": one.table,
            "source": one.source,
            "line": one.line,
            "cells": dict(zip(one.columns, one.cells, strict=False)),
        }
        for one in case.foreign
    ]
