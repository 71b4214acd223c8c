"""The public JSON of two runs set against each other.

Every key is explained in `docs/reference/json.md`; a test holds the two together.
"""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from torchstone.records import CaseChange, GroupChange, Ratio, RunComparison, RunHead
from torchstone.records.format import count, format_percent
from torchstone.show import compare_terminal as words
from torchstone.show.evidence import compare_advice
from torchstone.show.markdown import DOCUMENT_SCHEMA, code, escape, plain, to_text
from torchstone.show.run_document import BETWEEN, finite, mean_document, neutral, summary_document
from torchstone.show.run_table import LOST, case_speedup, command_text
from torchstone.show.table import clip, fit, markdown_table_Column, sanitise, shorten, table

# The figures of a compared case by name: one list for the CSV and the JSON.
#
# Every name is explained in `docs/reference/json.md`; a test holds the two together.


def change_rows(comparison: RunComparison) -> Iterator[dict[str, Any]]:
    """One entry for every case of either run."""
    for case in comparison.cases:
        yield {**_identity(case), **_change(case), **_sides(case), **_evidence(case)}


def _identity(case: CaseChange) -> dict[str, Any]:
    key = case.key
    return {
        "suite": key.suite,
        "model": key.model,
        "scale": key.scale,
        "mode": key.mode,
        "precision": key.precision,
        "variant": key.variant,
        "device": key.device,
        "threads": key.threads,
        "allocator": key.allocator,
        "kind": case.kind,
    }


def _change(case: CaseChange) -> dict[str, Any]:
    ratio = case.speedup
    low, high = ratio.interval if ratio and ratio.interval else (None, None)
    return {
        "base_speedup": finite(case.base.speedup) if case.base else None,
        "new_speedup": finite(case.new.speedup) if case.new else None,
        "ratio": finite(ratio.value) if ratio else None,
        "ratio_low": finite(low),
        "ratio_high": finite(high),
        "level": ratio.level if ratio else None,
        "threshold": finite(case.threshold),
        "verdict": case.verdict.value if case.verdict else None,
        "alone": case.alone.value if case.alone else None,
        "deciding_budget_s": case.deciding_budget_s,
    }


def _sides(case: CaseChange) -> dict[str, Any]:
    return {
        "moved": case.moved,
        "baseline_time_ratio": finite(case.baseline_time),
        "arm_time_ratio": finite(case.arm_time),
        "compile_cold_ratio": finite(case.compile_cold),
        "compile_warm_ratio": finite(case.compile_warm),
        "arm_peak_ratio": finite(case.memory),
        "costs_changed": list(case.costs_changed),
    }


def _evidence(case: CaseChange) -> dict[str, Any]:
    base, new = case.base, case.new
    return {
        "base_outcome": base.outcome.value if base else None,
        "new_outcome": new.outcome.value if new else None,
        "base_reason": base.reason if base else "",
        "new_reason": new.reason if new else "",
        "base_result_id": base.result_id if base else "",
        "new_result_id": new.result_id if new else "",
        "command": list(new.command if new else base.command if base else ()),
    }


KIND = "run comparison"


def compare_document(comparison: RunComparison) -> dict[str, Any]:
    """The comparison as plain data. What JSON cannot hold (NaN, infinities) becomes null."""
    return {
        "schema": DOCUMENT_SCHEMA,
        "kind": KIND,
        "definition": comparison.definition,
        "base": head_document(comparison.base),
        "new": head_document(comparison.new),
        "refused": plain(comparison.refused),
        "remedy": plain(comparison.remedy),
        "marks": plain(comparison.marks),
        "margin": comparison.margin,
        "false_discovery_rate": comparison.false_discovery_rate,
        "threshold_source": plain(comparison.threshold_source),
        "drift": {
            "value": plain(comparison.drift),
            "spread": plain(comparison.drift_spread),
            "n": comparison.drift_of,
        },
        "groups": [_group(group) for group in comparison.groups],
        "cases": [plain(row) for row in change_rows(comparison)],
    }


def compare_dumps(comparison: RunComparison, indent: int | None = 2) -> str:
    """The document as ASCII text."""
    return to_text(compare_document(comparison), indent)


def head_document(head: RunHead) -> dict[str, Any]:
    """A run without its cases."""
    return {
        "id": plain(head.id),
        "created": plain(head.created),
        "label": plain(head.label),
        "commit": plain(head.commit),
        "branch": plain(head.branch),
        "dirty": head.dirty,
        "machine_id": plain(head.machine_id),
        "machine": plain(head.machine),
        "torch": plain(head.torch),
        "origin": plain(head.origin),
        "tier": plain(head.tier),
        "suites": plain(head.suites),
        "planned": head.planned,
        "done": head.done,
        "outcomes": plain(head.outcomes),
        "state": plain(head.state),
    }


def _group(group: GroupChange) -> dict[str, Any]:
    key = group.key
    return {
        "suite": plain(key.suite),
        "scale": plain(key.scale),
        "mode": plain(key.mode),
        "precision": plain(key.precision),
        "variant": plain(key.variant),
        "device": plain(key.device),
        "threads": key.threads,
        "allocator": plain(key.allocator),
        "common": group.common,
        "paired": group.paired,
        "counts": plain(group.counts),
        "base": None if group.base is None else summary_document(group.base),
        "new": None if group.new is None else summary_document(group.new),
        "base_common": mean_document(group.base_common),
        "new_common": mean_document(group.new_common),
        "speedup": _ratio(group.speedup),
        "threshold": plain(group.threshold),
        "verdict": None if group.verdict is None else group.verdict.value,
        "compile_cold": _cost_compare_document(group, "compile_cold"),
        "compile_warm": _cost_compare_document(group, "compile_warm"),
        "memory": _cost_compare_document(group, "memory"),
        "drift": plain(group.drift),
    }


def _ratio(ratio: Ratio | None) -> dict[str, Any] | None:
    if ratio is None:
        return None
    ends = plain(ratio.interval)
    whole = ends is not None and None not in ends
    interval = ends if whole else None
    return {"value": plain(ratio.value), "interval": interval, "level": ratio.level}


def _cost_compare_document(group: GroupChange, name: str) -> dict[str, Any]:
    """The mean ratio with the threshold that it was held to; without one it is not evaluated."""
    mean, limits = getattr(group, name), group.cost_thresholds.get(name)
    return {
        "value": plain(mean.value),
        "n": mean.n,
        "of": mean.of,
        "case_threshold": plain(limits[0]) if limits else None,
        "threshold": plain(limits[1]) if limits else None,
        "changed": name in group.costs_changed if limits else None,
    }


# A comparison of two runs as CSV, for spreadsheets and data frames.


def compare_csv(comparison: RunComparison) -> str:
    """One row for every case of either run, by RFC 4180; empty cells where nothing is known.

    Write it with `newline=""`: its lines end as the RFC has it.
    """
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    ids = [neutral(comparison.base.id), neutral(comparison.new.id)]
    for number, row in enumerate(change_rows(comparison)):
        if number == 0:
            writer.writerow(["base", "new", *row])
        writer.writerow([*ids, *(_cell(name, value) for name, value in row.items())])
    return stream.getvalue()


def _cell(name: str, value: Any) -> Any:
    """Numbers as they are, texts made harmless."""
    if isinstance(value, list):
        value = shlex.join(value) if name == "command" else BETWEEN.join(value)
    return neutral(value) if isinstance(value, str) else value


# Two runs set against each other as Markdown, fit for a comment on a pull request.


MOST_CHARACTERS = 60_000
"""GitHub takes 65,536 characters in a comment; whoever posts it may want to say something too."""
MOST_FAILURES = MOST_CHARACTERS // 3
NAME_WIDTH = 100
REASON_WIDTH = 400
MOST_NAMES = 30
T = TypeVar("T")


def compare_markdown(comparison: RunComparison, *, everything: bool = False) -> str:
    """One line that says it all, marks, groups; the cases and the rest behind a click.

    Text from outside cannot become markup.
    """
    head = [*_summary(comparison), *_section(_groups(comparison)), *_section(_failing(comparison))]
    tail = [*_section(_others(comparison)), *_section(_closing(comparison))]
    room = MOST_CHARACTERS - sum(len(line) + 1 for line in (*head, *tail))
    cases = _section(_cases(comparison, everything, room))
    return "\n".join([*head, *cases, *tail]) + "\n"


def _summary(comparison: RunComparison) -> list[str]:
    runs = f"{_run(comparison.base)} → {_run(comparison.new)}"
    lines = [f"**{', '.join(words.tally(comparison)) or 'nothing to compare'}** · {runs}"]
    lines += ["", _said(words.coverage(comparison))]
    where = " · ".join(_said(part) for part in words.shared(comparison))
    lines += ["", where] if where else []
    for mark in comparison.marks:
        lines += ["", f"⚠️ {_said(mark)}"]
    return lines


def _run(head: RunHead) -> str:
    commit = f" at {code(head.commit[:10])}" if head.commit else ""
    return f"{code(_short(words.title(head)))}{commit}"


def _groups(comparison: RunComparison) -> list[str]:
    if not comparison.groups:
        return []
    labels = words.labels_of(comparison)
    level = min((g.speedup.level for g in comparison.groups if g.speedup), default=0.95)
    columns: list[markdown_table_Column[GroupChange]] = [
        ("suite", ":--", lambda g: code(_short(labels.group(g.key)))),
        ("in both", ":--", words.coverage_words),
        ("base", "--:", lambda g: words.mean_word(g.base_common)),
        ("new", "--:", lambda g: words.mean_word(g.new_common)),
        ("new / base", "--:", lambda g: words.ratio_words(g.speedup)[0]),
        (format_percent(level), ":--", lambda g: words.ratio_words(g.speedup)[1]),
        ("verdict", ":--", lambda g: _bold(g.verdict.value) if g.verdict else ""),
        ("compile", "--:", lambda g: _cost_compare_markdown(g, "compile_cold")),
        ("memory", "--:", lambda g: _cost_compare_markdown(g, "memory")),
        ("passed", "--:", lambda g: words.passed_words(g, "→")),
        ("over all", "--:", lambda g: words.over_all(g, "→")),
    ]
    return table(columns, comparison.groups)


def _cost_compare_markdown(group: GroupChange, name: str) -> str:
    mean = getattr(group, name)
    text = words.cost_words(mean.value, name in group.costs_changed)
    return f"{text} of {mean.n}" if text else ""


def _cases(comparison: RunComparison, everything: bool, room: int) -> list[str]:
    found = words.changed(comparison, everything=everything)
    paired = len(words.of_kind(comparison, words.PAIRED))
    if not found:
        return []
    called = words.Names.of(comparison)
    level = min((c.speedup.level for c in found if c.speedup), default=0.95)
    columns: list[markdown_table_Column[CaseChange]] = [
        ("case", ":--", lambda c: code(_short(called.case(c)))),
        ("base", "--:", lambda c: case_speedup(c.base)[0] if c.base else ""),
        ("new", "--:", lambda c: case_speedup(c.new)[0] if c.new else ""),
        ("new / base", "--:", lambda c: words.ratio_words(c.speedup)[0]),
        (format_percent(level), ":--", lambda c: words.ratio_words(c.speedup)[1]),
        ("verdict", ":--", lambda c: words.verdict_words(c)[0].replace(LOST, "\\*")),
        ("moved", ":--", lambda c: c.moved),
        ("eager", "--:", lambda c: words.cost_words(c.baseline_time, False)),
        ("compiled", "--:", lambda c: words.cost_words(c.arm_time, False)),
        ("compile", "--:", lambda c: _case_cost(c, "compile_cold")),
        ("memory", "--:", lambda c: _case_cost(c, "memory")),
    ]
    heading, marks, *rows = table(columns, found)
    kept, left_out = fit(rows, room - len(heading) - len(marks) - 400)
    lines = [heading, marks, *kept]
    if any(case.alone is not case.verdict for case in found):
        lines += ["", f"\\* {words.LOST_NOTE}"]
    if left_out:
        lines += ["", f"{count(left_out, 'case')} more did not fit in a comment; --csv has all."]
    said = f"all {count(paired, 'paired case')}"
    said = said if everything else f"{len(found)} of {paired} paired cases changed"
    return _folded(said, lines)


def _case_cost(case: CaseChange, name: str) -> str:
    return words.cost_words(getattr(case, name), name in case.costs_changed)


def _failing(comparison: RunComparison) -> list[str]:
    """What newly fails stands in the open: a green summary must not hide it."""
    called = words.Names.of(comparison)
    lines = []
    for case in words.of_kind(comparison, words.NEWLY_FAILING):
        again = ""
        if case.new is not None and case.new.command:
            again = f" Again: {code(clip(command_text(case.new), REASON_WIDTH))}"
        reason = _said(words.failure_words(case.new))
        lines.append(f"- {code(_short(called.case(case)))} {reason}.{again}")
    if not lines:
        return []
    kept, left_out = fit(lines, MOST_FAILURES)
    more = [f"- and {left_out} more"] if left_out else []
    return [f"**{len(lines)} newly failing**", "", *kept, *more]


def _others(comparison: RunComparison) -> list[str]:
    called = words.Names.of(comparison)
    lines = []
    for kind in (words.NEWLY_PASSING, words.FAILING, words.ONLY_BASE, words.ONLY_NEW):
        found = words.of_kind(comparison, kind)
        if found:
            title = f"{len(found)} {kind}{' in both' if kind == words.FAILING else ''}"
            names = clip(sanitise(words.absent_words(found, called, MOST_NAMES)), 2_000)
            lines.append(f"- **{title}**: {escape(names)}")
    return _folded("cases that are not compared", lines) if lines else []


def _closing(comparison: RunComparison) -> list[str]:
    said = (
        "speed-ups: geometric means over the cases that pass in both runs; over all: of each run "
        "over all its passing cases; compile and memory: new / base, above 1 is worse; moved: the "
        "side whose time left the machine's drift",
        words.threshold_words(comparison),
        compare_advice(comparison),
        words.drift_words(comparison),
        words.cost_threshold_words(comparison.groups),
    )
    return _folded("how to read this", [f"- {_said(text)}" for text in said if text])


def _folded(title: str, lines: Sequence[str]) -> list[str]:
    return [f"<details><summary>{escape(title)}</summary>", "", *lines, "", "</details>"]


def _bold(text: str) -> str:
    return f"**{text}**" if text in ("faster", "slower") else text


def _said(text: str) -> str:
    """Text from outside, escaped and of bounded length."""
    return escape(clip(sanitise(text), REASON_WIDTH))


def _short(name: str) -> str:
    return shorten(sanitise(name), NAME_WIDTH)


def _section(lines: list[str]) -> list[str]:
    return ["", *lines] if lines else []
