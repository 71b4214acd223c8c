"""The ledger and the difference of two as JSON and as Markdown.

Every key of the JSON is explained in `docs/reference/json.md`.
"""

from __future__ import annotations

from typing import Any

from torchstone.records import LEVEL_NAMES, Difference, Ledger, OpChange
from torchstone.show.document import plain, to_text
from torchstone.show.ledger import predicted_words, told
from torchstone.show.text import sanitise
from torchstone.show.units import format_seconds


def ledger_document(ledger: Ledger) -> dict[str, Any]:
    """The ledger as plain data."""
    return {"kind": "ledger", **plain(ledger)}


def difference_document(found: Difference) -> dict[str, Any]:
    """Both ledgers and what changed."""
    return {
        "kind": "ledger difference",
        "schema": found.schema,
        "base": ledger_document(found.base),
        "new": ledger_document(found.new),
        "changes": plain(found.changes),
        "sentences": plain(found.sentences),
    }


def ledger_dumps(found: Ledger | Difference) -> str:
    """The document as ASCII text."""
    if isinstance(found, Difference):
        return to_text(difference_document(found))
    return to_text(ledger_document(found))


def difference_markdown(found: Difference) -> str:
    """Why, in sentences; both ledgers, what became of the ops, where compiled code is left."""
    base, new = found.base, found.new
    lines = [
        f"### `{_safe(base.arm.target)}`: {_safe(base.arm.variant)} against "
        f"{_safe(new.arm.variant)}",
        "",
        *(f"- {_safe(text)}" for text in found.sentences),
        "",
    ]
    if found.changes:
        lines += ["| op | | before | after | calls | now in |", "|---|---|---:|---:|---:|---|"]
        lines += [_change_row(change) for change in found.changes]
        lines.append("")
    for title, places in (("Graph breaks", new.breaks), ("Compiled again", new.recompiles)):
        if places:
            lines += [f"{title}:", ""]
            lines += [
                f"- {_safe(place.file)}:{place.line} {_safe(place.reason)}" for place in places
            ]
            lines.append("")
    return "\n".join([*lines, ledger_markdown(base), ledger_markdown(new)])


def _change_row(change: OpChange) -> str:
    before, after = format_seconds(change.before_s, 3), format_seconds(change.after_s, 3)
    calls = f"{change.calls_before:.0f} to {change.calls_after:.0f}"
    into = ", ".join(_safe(name) for name in change.into)
    return f"| {_safe(change.name)} | {change.kind} | {before} | {after} | {calls} | {into} |"


def ledger_markdown(ledger: Ledger) -> str:
    """A table to paste into an issue, the findings, the doubts."""
    arm = ledger.arm
    lines = [
        f"### Ledger of `{_safe(arm.target)}` ({arm.variant}, {arm.mode})",
        "",
        f"{format_seconds(ledger.wall_s, 3)} a step, {ledger.steps} steps.",
        "",
        "| level | line | share | time |",
        "|---|---|---:|---:|",
    ]
    for level, name in LEVEL_NAMES.items():
        for line in ledger.level(level):
            about = "~" if line.estimated else ""
            lines.append(
                f"| {name} | {line.title} | {100 * line.share:.1f} % | "
                f"{about}{format_seconds(line.seconds, 3)} |"
            )
    lines.append("")
    tests = {one.finding: one.sentence for one in ledger.verifications}
    for number, finding in enumerate(ledger.findings, 1):
        said = f"{predicted_words(finding)} {tests.get(finding.name, '')}".strip()
        lines.append(
            f"{number}. **{finding.title}**: {_safe(finding.evidence)}. {_safe(finding.advice)}. "
            f"{_safe(said)}".rstrip()
        )
    if ledger.findings:
        lines.append("")
    lines += [f"- {_safe(text)}" for text in (*told(ledger), *ledger.notes)]
    lines += ["", *(f"> {_safe(text)}" for text in ledger.checks)]
    return "\n".join(lines).rstrip() + "\n"


def _safe(text: str) -> str:
    """Harmless in Markdown: no controls, no tags, no table cells of its own."""
    return sanitise(text).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
