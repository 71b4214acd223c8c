"""The terminal report of a run."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.records import CaseFigures, Outcome, RunView, SuiteSummary, Verdict
from torchstone.show import run_evidence as evidence
from torchstone.show.commands import flow_commands, in_database
from torchstone.show.heading import flow
from torchstone.show.run_table import case_table, suite_table
from torchstone.show.run_words import Tally, circumstances, resume_command, subject
from torchstone.show.style import Style
from torchstone.show.terminal import LEAST_WIDTH
from torchstone.show.text import wrap


def run_report(
    view: RunView,
    summaries: Sequence[SuiteSummary],
    *,
    color: bool = False,
    width: int = 100,
    unicode: bool = True,
    commands: bool = False,
    db: str = "",
) -> str:
    """Heading, suites, cases, failures, what did not run; no line wider than `width` (or 40).

    `commands` adds the command that repeats each case; failures always have theirs.
    `db` is the database that was named, for the commands that are printed.
    """
    width, style = max(width, LEAST_WIDTH), Style(color, unicode)
    cases = case_table(view, width, style)
    sections = [
        _heading(view, db, width, style),
        suite_table(view, summaries, width, style) + _legend(summaries, width, style),
        cases + evidence.checks(view, width, style),
        evidence.failed(view, db, width, style),
        evidence.not_supported(view, width, style),
        evidence.not_run(view, db, width, style),
        evidence.commands(view, db, width, style) if commands else [],
        _closing(view, commands, db, width, style),
        _next(view, db, width, style),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _heading(view: RunView, db: str, width: int, style: Style) -> list[str]:
    first, *rest = flow(subject(view), width, style)
    lines = [style.paint(first, "title"), *rest]
    lines += [style.paint(line, "dim") for line in flow(circumstances(view.run), width, style)]
    for note in filter(str.strip, view.run.notes):
        lines += wrap(style.safe(note), width, ellipsis=style.glyphs.ellipsis)
    lines += flow(Tally.of(view).parts, width, style)
    command = resume_command(view, db)
    said = [f"{style.glyphs.arrow} {command}"] if command else []
    return lines + flow_commands(said, width, style)


def _legend(summaries: Sequence[SuiteSummary], width: int, style: Style) -> list[str]:
    """What the columns mean, and that every mean says over how many cases it is."""
    if not summaries:
        return []
    text = "passed: of all planned cases but those not supported"
    if any(summary.speedup.value is not None for summary in summaries):
        text += (
            "; of 5: a mean over five passing cases (geometric for ratios); memory above 1: the "
            "arm's tensors need less than the baseline's"
        )
    rows = wrap(text, width - 2, ellipsis=style.glyphs.ellipsis)
    return [style.paint(f"  {row}", "dim") for row in rows]


def _next(view: RunView, db: str, width: int, style: Style) -> list[str]:
    """What to do now: see it in a browser, and have the slowest case explained."""
    if not view.run.id:
        return []
    commands = [("All of it in a browser", "torchstone serve --open")]
    slowest = slowest_case(view)
    if slowest is not None:
        key = slowest.key
        flags = f" --mode {key.mode}" if key.mode != "inference" else ""
        flags += f" --threads {key.threads}" if key.threads else ""
        target = next(case.target for case in view.run.plan if case.key == key)
        slower = slowest.verdict is Verdict.SLOWER
        why = f"Why {key.model} is slower" if slower else f"Where the time of {key.model} goes"
        commands.append((why, f"torchstone explain {target} --vs {key.variant}{flags}"))
    lines = []
    for why, command in commands:
        lines += wrap(f"{style.safe(why)}:", width, ellipsis=style.glyphs.ellipsis)
        shown = flow_commands([in_database(style.safe(command), db)], width - 2, style)
        lines += [f"  {line}" for line in shown]
    return lines


def slowest_case(view: RunView) -> CaseFigures | None:
    """The case with the least speed-up."""
    known = [case for case in view.cases if case.outcome is Outcome.OK and case.speedup]
    return min(known, key=lambda case: case.speedup or 0.0, default=None)


def _closing(view: RunView, commands: bool, db: str, width: int, style: Style) -> list[str]:
    if not view.run.id:
        return []
    show = in_database(f"torchstone show {view.run.id}", db)
    parts = [f"id {view.run.id}", show, f"{show} --csv"]
    if not commands and any(c.command and c.outcome is Outcome.OK for c in view.cases):
        parts.append(f"{show} --commands")
    return [style.paint(line, "dim") for line in flow_commands(parts, width, style)]
