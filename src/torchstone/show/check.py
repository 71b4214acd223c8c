"""`torchstone check` for people: a terminal, a comment on a pull request, annotations, JSON.

Everything is made from the report alone, so that a comment can be written where the code of a pull
request must not run, from a JSON file that nobody has to trust.

`torchstone bisect` for people: the commit it names, how sure that is, and every probe.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torchstone.records import (
    CHECK_SCHEMA,
    BisectReport,
    CheckedTarget,
    CheckReport,
    Culprit,
    ProbedCommit,
    RecordError,
    Revision,
    Shift,
    Status,
    UsageError,
    from_data,
    to_data,
)
from torchstone.records.format import count, format_percent
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
)
from torchstone.show.cells import command_line, seconds_cell, text_cell
from torchstone.show.evidence import budget_advice, duration
from torchstone.show.page import Cell, Field, field, make_table
from torchstone.show.table import sanitise

MARKER = "<!-- torchstone check -->"
"""How a comment of ours is found again, and replaced in place of another one."""
MOST_ROWS = 10
"""Of a comment; the rest is folded."""
MOST_BYTES = 1 << 20
MOST_TARGETS = 1000
MOST_LETTERS = 2000
_MARKS = {
    Status.SLOWER: "worse",
    Status.WRONG_ANSWER: "fail",
    Status.FAILS: "fail",
    Status.NOT_COMPARED: "fail",
    Status.CANNOT_TELL: "doubt",
    Status.NOT_SLOWER: "not-worse",
    Status.FASTER: "better",
    Status.SAME_CODE: "quiet",
    Status.ADDED: "quiet",
}
ANSWERS = {
    0: "not slower",
    1: "slower, wrong or failing",
    2: "a mistake in the request",
    3: "cannot tell at this margin",
    4: "could not run",
    130: "interrupted",
}
_SHORT = 10


def check_markdown(report: CheckReport, code: int) -> str:
    """For one comment that is renewed: at most ten rows, the rest folded."""
    return f"{MARKER}\n{to_markdown(check_report(report, code, MOST_ROWS))}"


def not_run_markdown(why: str) -> str:
    """The same where there is no report."""
    return f"{MARKER}\n{to_markdown([[Parts(['Could not run.'], 'title'), Sentence(why, '')]])}"


def check_report(report: CheckReport, code: int, most: int | None = None) -> Report:
    """The answer and its targets; those after `most` are folded."""
    most = len(report.targets) if most is None else most
    first, rest = report.targets[:most], report.targets[most:]
    tables: list[Block] = [_grid(first)] if first else []
    if rest:
        tables.append(replace(_grid(rest), fold=True, summary=f"{count(len(rest), 'more target')}"))
    return [
        [
            Parts([headline(report, code)], role="title"),
            Parts([f"{_side(report.base)} → {_side(report.new)}"]),
        ],
        tables,
        [Listed("Why", [*_reasons(report)])],
        [Sentence(text, role="", lead="") for text in remarks(report)],
        [
            Parts([*_course(report)], role="dim"),
            Commands([("Again", command_line(report.command))], inline=True),
        ],
    ]


def headline(report: CheckReport, code: int) -> str:
    """The answer in one sentence."""
    found = Counter(one.status for one in report.targets)
    all_of = count(len(report.targets), "target")
    margin = format_percent(report.margin)
    if report.interrupted:
        return f"Interrupted after {count(len(report.targets), 'target')}: no answer."
    if found[Status.SLOWER]:
        worst = max(
            (one for one in report.targets if one.status is Status.SLOWER),
            key=lambda one: one.time_ratio or 0.0,
        )
        size = format_percent((worst.time_ratio or 1.0) - 1.0, signed=True)
        most = f"{worst.target} {size}" if found[Status.SLOWER] == 1 else f"up to {size}"
        return f"Slower: {found[Status.SLOWER]} of {all_of} ({most})."
    bad = found[Status.WRONG_ANSWER] + found[Status.FAILS]
    if bad:
        kind = "a wrong answer" if found[Status.WRONG_ANSWER] else "a failure"
        return f"Broken: {bad} of {all_of} now give {kind}."
    if code == 1 and report.suite_shift is not None and report.on_unknown != "fail":
        size = format_percent(report.suite_shift.ratio - 1.0, signed=True)
        return f"Slower: all {report.suite_shift.n} targets together, by {size}."
    if found[Status.NOT_COMPARED] or not any(one.time_ratio for one in report.targets):
        return f"Could not compare {found[Status.NOT_COMPARED] or len(report.targets)} of {all_of}."
    if found[Status.CANNOT_TELL]:
        return f"Cannot tell at a margin of {margin}: {found[Status.CANNOT_TELL]} of {all_of}."
    if found[Status.SAME_CODE] == len(report.targets):
        return f"Not slower: what {all_of} import is the same in both revisions."
    return f"Not slower: {all_of}, at a margin of {margin}."


def _side(revision: Revision) -> str:
    name = "" if revision.name.startswith(revision.commit[:_SHORT]) else revision.name
    commit = "" if revision.dirty else revision.commit[:_SHORT]
    words = " ".join(part for part in (name, commit) if part)
    return f"{words} ({revision.subject})" if revision.subject else words


def _grid(rows: Sequence[CheckedTarget]) -> Grid:
    fields: tuple[Field[CheckedTarget], ...] = (
        field("target", "Target", lambda one: text_cell(one.target)),
        field("base", "Base", lambda one: seconds_cell(one.base_s), number=True),
        field("new", "New", lambda one: seconds_cell(one.new_s), number=True),
        field("change", "Change", _change),
        field("answer", "Answer", _answer),
    )
    return Grid(make_table("targets", "Targets", fields, rows))


def _change(one: CheckedTarget) -> Cell:
    if one.time_ratio is None:
        return Cell()
    return Cell(one.time_ratio, _percents(one.time_ratio, one.interval))


def _answer(one: CheckedTarget) -> Cell:
    return Cell(one.status.value, one.status.value, mark=_MARKS[one.status])


def _reasons(report: CheckReport) -> list[Entry]:
    """Of what is not clear from the figures."""
    entries = []
    for one in report.targets:
        parts = [one.reason, _second(one)]
        if one.status is Status.CANNOT_TELL:
            parts.append(budget_advice(one.deciding_budget_s, report.margin, "--budget "))
        text = " ".join(part for part in parts if part)
        if text:
            entries.append(Entry(text, one.target, failed=one.status.bad))
    return entries


def _second(one: CheckedTarget) -> str:
    if one.first_ratio is None or one.status is not Status.SLOWER:
        return ""
    first = format_percent(one.first_ratio - 1.0, signed=True)
    return f"Measured twice, in new processes: {first} at first; the figure is of both."


def remarks(report: CheckReport) -> list[str]:
    """What the controls and the suite as a whole did, and what was left out."""
    lines = []
    suite, controls = report.suite_shift, report.control_shift
    if suite is not None:
        moved = "moved together" if suite.real else "did not move together"
        lines.append(f"All {suite.n} targets {moved}: {_shift(suite)}.")
    same = sum(one.status is Status.SAME_CODE for one in report.targets)
    if controls is not None:
        what = count(len(report.controls), "kernel of ours", "kernels of ours")
        what += f" and {count(same, 'target')} of the same code" if same else ""
        if controls.real:
            lines.append(
                f"The controls ({what}) moved by {_shift(controls)}: that is the machine or its "
                "surroundings, not the change. Nothing is claimed that this could explain."
            )
        else:
            lines.append(f"The controls ({what}) did not move: {_shift(controls)}.")
    return [*lines, *report.notes]


def _shift(shift: Shift) -> str:
    return _percents(shift.ratio, shift.interval)


def _percents(ratio: float, interval: tuple[float, float] | None) -> str:
    """`+10 % (+8 % to +12 %)`."""
    size = format_percent(ratio - 1.0, signed=True)
    if interval is None:
        return size
    low, high = (format_percent(end - 1.0, signed=True) for end in interval)
    return f"{size} ({low} to {high})"


def _course(report: CheckReport) -> list[str]:
    took = duration(report.elapsed_s) if report.elapsed_s else ""
    return [part for part in (report.machine, f"took {took}" if took else "") if part]


# JSON, and back from where it need not be trusted.


def check_dumps(report: CheckReport, code: int) -> str:
    """The report, its exit code and what that means."""
    document = {**to_data(report), "exit_code": code, "answer": ANSWERS.get(code, "")}
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def check_loads(text: str) -> CheckReport:
    """The report in a file of `check --json`, with every part of it bounded."""
    if len(text) > MOST_BYTES:
        raise UsageError(f"The report is larger than {MOST_BYTES // 1024} KiB.")
    try:
        data = json.loads(text, parse_constant=_no_constant)
        data = {k: v for k, v in data.items() if k not in ("exit_code", "answer")}
        report = from_data(CheckReport, data)
        _refuse_long(data)
    except (ValueError, AttributeError, RecursionError) as error:
        why = f" ({error})" if isinstance(error, RecordError) else ""
        raise UsageError(f"This is not a report of `torchstone check --json`{why}.") from None
    if report.schema != CHECK_SCHEMA or len(report.targets) > MOST_TARGETS:
        raise UsageError("The report is of another version, or has too many targets.")
    return report


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _refuse_long(data: Any) -> None:
    if isinstance(data, str) and len(data) > MOST_LETTERS:
        raise ValueError("a text in it is too long")
    for value in (
        data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    ):
        _refuse_long(value)


# In a GitHub workflow.


def annotation_lines(report: CheckReport) -> list[str]:
    """Workflow commands that mark a target's line: errors where it is slower, wrong or failing."""
    lines = []
    for one in report.targets:
        level = "error" if one.status.bad else "warning"
        if not one.status.bad and one.status not in (Status.CANNOT_TELL, Status.NOT_COMPARED):
            continue
        size = "" if one.time_ratio is None else f" {_change(one).text}"
        text = f"{one.target}: {one.status.value}{size}. {one.reason}".strip()
        place = [f"file={_property(one.file)}"] if one.file else []
        place += [f"line={one.line}"] if one.file and one.line else []
        lines.append(annotation(level, text, place))
    return lines


def annotation(level: str, text: str, place: Sequence[str] = ()) -> str:
    """One workflow command."""
    properties = ",".join([*place, "title=torchstone check"])
    return f"::{level} {properties}::{_data(text)}"


def _data(text: str) -> str:
    """A message of one line, whatever is in it: a second one could be a command of its own."""
    return sanitise(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


MOST_SKIPPED = 8


def bisect_dumps(report: BisectReport) -> str:
    """The report as it is."""
    return json.dumps(to_data(report), indent=2, allow_nan=False) + "\n"


def bisect_report(report: BisectReport) -> Report:
    """What terminal and Markdown show."""
    ends = f"{report.good.commit[:_SHORT]}..{report.bad.commit[:_SHORT]}"
    where = [report.target, f"{count(report.commits, 'commit')} of {ends}"]
    return [
        [Parts([bisect_headline(report)], role="title"), Parts(where)],
        [Listed("Commits", [_named(one) for one in report.culprits])],
        [Sentence(text, role="", lead="") for text in _remarks(report)],
        [_probes(report)],
        [Listed("Not measured", [*map(_left_out, report.skipped[:MOST_SKIPPED])])],
        [Parts([*_bisect_course(report)], role="dim"), *_next(report)],
    ]


def bisect_headline(report: BisectReport) -> str:
    """The answer in one sentence."""
    if report.answer == "none":
        return f"The ends do not differ ({report.none:.0%} sure): there is no commit to find."
    names = " and ".join(one.revision.commit[:_SHORT] for one in report.culprits)
    if report.answer == "one":
        one = report.culprits[0]
        return f"{names} made it {_effect(one)} ({_chance(one.posterior)} sure)."
    if report.answer == "two":
        least = min(one.posterior for one in report.culprits)
        return f"Two commits changed it: {names} (each at least {_chance(least)} sure)."
    if report.answer == "range":
        held = math.fsum(one.posterior for one in report.culprits)
        ends = [report.culprits[i].revision.commit[:_SHORT] for i in (0, -1)]
        several = f"{len(report.culprits)} commits, {ends[0]} to {ends[1]}"
        return f"It is one of {several} ({_chance(held)} sure)."
    return "Interrupted: no answer yet." if report.interrupted else "Not certain enough."


def _chance(share: float) -> str:
    """Never 100 %: nothing that is measured is."""
    return f"{min(share, 0.999):.1%}" if share > 0.99 else f"{share:.0%}"


def _effect(one: Culprit) -> str:
    size = format_percent(abs(math.expm1(one.log_effect)))
    return f"{size} slower" if one.log_effect > 0 else f"{size} faster"


def _named(one: Culprit) -> Entry:
    merge = ""
    if one.merge:
        sha = one.revision.commit[:_SHORT]
        merge = f" It is a merge: `torchstone bisect {sha}^1 {sha}^2 ...` searches its branch."
    text = f"{_chance(one.posterior)} · {_effect(one)} · {one.revision.subject}{merge}"
    return Entry(text, one.revision.commit)


def _remarks(report: BisectReport) -> list[str]:
    lines = []
    if report.answer in ("one", "range") and report.two > 0.02:
        lines.append(f"A second commit that changed it is {report.two:.0%} likely.")
    if report.answer != "none" and report.none > 0.02 and report.probes:
        lines.append(f"That the ends do not differ is {report.none:.0%} likely.")
    if report.resumed:
        lines.append(f"{count(report.resumed, 'probe')} of an earlier search counted.")
    return lines


def _probes(report: BisectReport) -> Grid:
    fields: tuple[Field[ProbedCommit], ...] = (
        field(
            "commit", "Commit", lambda one: Cell(one.revision.commit, one.revision.commit[:_SHORT])
        ),
        field("number", "Number", lambda one: Cell(one.number, str(one.number)), number=True),
        field("change", "Time against GOOD", _probe_change),
        field("subject", "Subject", lambda one: text_cell(one.revision.subject)),
    )
    ordered = sorted(report.probes, key=lambda one: one.number)
    return Grid(make_table("probes", "Probes", fields, ordered), summary="Probes")


def _probe_change(one: ProbedCommit) -> Cell:
    if one.log_ratio is None or one.error is None:
        return Cell()
    return Cell(
        one.log_ratio,
        format_percent(math.expm1(one.log_ratio), signed=True),
        detail=f"± {format_percent(one.error)}",
    )


def _left_out(one: ProbedCommit) -> Entry:
    return Entry(one.reason, one.revision.commit[:_SHORT])


def _bisect_course(report: BisectReport) -> list[str]:
    parts = [count(len(report.probes), "probe")]
    if report.skipped:
        parts.append(f"{count(len(report.skipped), 'commit')} could not be measured")
    return [*parts, f"took {duration(report.elapsed_s)}"] if report.elapsed_s else parts


def _next(report: BisectReport) -> list[Commands]:
    if report.answer and not report.interrupted:
        return []
    return [Commands([("Go on", command_line(report.command))], inline=True)]
