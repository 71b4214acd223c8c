"""`torchstone bisect` for people: the commit it names, how sure that is, and every probe."""

from __future__ import annotations

import json
import math

from torchstone.records import BisectReport, Culprit, ProbedCommit, to_data
from torchstone.records.format import count, format_percent
from torchstone.show.blocks import (
    Commands,
    Entry,
    Grid,
    Listed,
    Parts,
    Report,
    Sentence,
)
from torchstone.show.cells import command_line, text_cell
from torchstone.show.evidence import duration
from torchstone.show.page import Cell, Field, field, make_table

_SHORT = 10
MOST_SKIPPED = 8


def bisect_dumps(report: BisectReport) -> str:
    """The report as it is."""
    return json.dumps(to_data(report), indent=2, allow_nan=False) + "\n"


def bisect_report(report: BisectReport) -> Report:
    """What terminal and Markdown show."""
    ends = f"{report.good.commit[:_SHORT]}..{report.bad.commit[:_SHORT]}"
    where = [report.target, f"{count(report.commits, 'commit')} of {ends}"]
    return [
        [Parts([headline(report)], role="title"), Parts(where)],
        [Listed("Commits", [_named(one) for one in report.culprits])],
        [Sentence(text, role="", lead="") for text in _remarks(report)],
        [_probes(report)],
        [Listed("Not measured", [*map(_left_out, report.skipped[:MOST_SKIPPED])])],
        [Parts([*_course(report)], role="dim"), *_next(report)],
    ]


def headline(report: BisectReport) -> str:
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
        field("change", "Time against GOOD", _change),
        field("subject", "Subject", lambda one: text_cell(one.revision.subject)),
    )
    ordered = sorted(report.probes, key=lambda one: one.number)
    return Grid(make_table("probes", "Probes", fields, ordered), summary="Probes")


def _change(one: ProbedCommit) -> Cell:
    if one.log_ratio is None or one.error is None:
        return Cell()
    return Cell(
        one.log_ratio,
        format_percent(math.expm1(one.log_ratio), signed=True),
        detail=f"± {format_percent(one.error)}",
    )


def _left_out(one: ProbedCommit) -> Entry:
    return Entry(one.reason, one.revision.commit[:_SHORT])


def _course(report: BisectReport) -> list[str]:
    parts = [count(len(report.probes), "probe")]
    if report.skipped:
        parts.append(f"{count(len(report.skipped), 'commit')} could not be measured")
    return [*parts, f"took {duration(report.elapsed_s)}"] if report.elapsed_s else parts


def _next(report: BisectReport) -> list[Commands]:
    if report.answer and not report.interrupted:
        return []
    return [Commands([("Go on", command_line(report.command))], inline=True)]
