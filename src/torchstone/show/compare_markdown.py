"""Two runs set against each other as Markdown, fit for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from torchstone.records import CaseChange, GroupChange, RunComparison, RunHead
from torchstone.show import compare_words as words
from torchstone.show.budget import compare_advice
from torchstone.show.markdown import code, escape
from torchstone.show.markdown_table import Column, fit, table
from torchstone.show.run_words import LOST, case_speedup, command_text, count
from torchstone.show.text import clip, sanitise, shorten
from torchstone.show.units import format_percent

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
    columns: list[Column[GroupChange]] = [
        ("suite", ":--", lambda g: code(_short(labels.group(g.key)))),
        ("in both", ":--", words.coverage_words),
        ("base", "--:", lambda g: words.mean_word(g.base_common)),
        ("new", "--:", lambda g: words.mean_word(g.new_common)),
        ("new / base", "--:", lambda g: words.ratio_words(g.speedup)[0]),
        (format_percent(level), ":--", lambda g: words.ratio_words(g.speedup)[1]),
        ("verdict", ":--", lambda g: _bold(g.verdict.value) if g.verdict else ""),
        ("compile", "--:", lambda g: _cost(g, "compile_cold")),
        ("memory", "--:", lambda g: _cost(g, "memory")),
        ("passed", "--:", lambda g: words.passed_words(g, "→")),
        ("over all", "--:", lambda g: words.over_all(g, "→")),
    ]
    return table(columns, comparison.groups)


def _cost(group: GroupChange, name: str) -> str:
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
    columns: list[Column[CaseChange]] = [
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
