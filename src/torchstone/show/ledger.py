"""The ledger in the terminal: lines by level with a bar each, findings, doubts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchstone.records import (
    LEVEL_NAMES,
    Difference,
    Ledger,
    LedgerLine,
    LedgerPart,
    OpChange,
    Prediction,
)
from torchstone.records.format import faster_range, format_percent, format_seconds
from torchstone.show.markdown import plain, to_text
from torchstone.show.rows import allocator_title, flow
from torchstone.show.table import Style, cells, clip, pad, sanitise, shorten, wrap

LEAST_WIDTH = 60
BAR = 20
"""Columns of a whole step."""
TITLE, TIME = 33, 10
LEAST_PART = 0.01
"""Of the step: parts below are not named."""
LEAST_DRIFT = 0.0005
MOST_PARTS = 4
MOST_PLACES, MOST_BREAKS = 4, 8


class _Page:
    """How wide the lines of a report may be, and how they are painted."""

    def __init__(self, color: bool, width: int, unicode: bool) -> None:
        self.width, self.style = max(width, LEAST_WIDTH), Style(color, unicode)

    def cut(self, text: str, role: str = "") -> str:
        """One line of whatever text."""
        ellipsis = self.style.glyphs.ellipsis
        return self.style.paint(clip(self.style.safe(text), self.width, ellipsis), role)

    def wrapped(self, text: str, role: str = "", first: str = "", then: str = "") -> list[str]:
        """As many lines as it takes, with these before them."""
        ellipsis = self.style.glyphs.ellipsis
        rows = wrap(self.style.safe(text), self.width - len(then), ellipsis=ellipsis)
        return [self.style.paint((then if i else first) + row, role) for i, row in enumerate(rows)]

    def named(self, title: str, room: int) -> str:
        """A title in its column."""
        return pad(shorten(title, room, self.style.glyphs.ellipsis), room)

    def seconds(self, value: float) -> str:
        """A time."""
        return format_seconds(value, 3, ascii_only=self.style.ascii_only)

    def joined(self, heading: Sequence[str], *sections: Sequence[str]) -> str:
        """The whole report."""
        title = [self.style.paint(row, "title") for row in flow(heading, self.width, self.style)]
        return "\n\n".join("\n".join(lines) for lines in (title, *sections) if lines) + "\n"


def ledger_report(
    ledger: Ledger, *, color: bool = False, width: int = 100, unicode: bool = True
) -> str:
    """The whole report; no line is wider than `width` (60 at least)."""
    page = _Page(color, width, unicode)
    words = _words(told(ledger), ledger.checks, ledger.notes, page)
    return page.joined(heading(ledger), _table(ledger, page), words, _findings(ledger, page))


def heading(ledger: Ledger) -> list[str]:
    """What was looked at, and how long a step takes."""
    arm = ledger.arm
    threads = ledger.facts.get("threads", "")
    parts = [
        f"ledger of {arm.target}",
        arm.variant,
        arm.mode,
        arm.precision,
        arm.device,
        f"{threads} thread{'' if threads == '1' else 's'}" if threads else "",
        allocator_title(arm.allocator),
        f"{format_seconds(ledger.wall_s, 3)} a step",
        f"{ledger.steps} steps in {ledger.rounds} rounds",
    ]
    return [part for part in parts if part]


def _table(ledger: Ledger, page: _Page) -> list[str]:
    lines: list[str] = []
    for level, name in LEVEL_NAMES.items():
        found = ledger.level(level)
        if found and level == -1:
            lines.append(_row(found[0], page, head=True))
        elif found:
            head = f"{level} {name}" if level > 0 else f"  {name}"
            head += " (the kernels once more)" if level >= 4 else ""
            total = _share(sum(line.share for line in found))
            lines.append(page.style.paint(f"{pad(head, TITLE + 2)} {total}", "title"))
            for line in found:
                lines += [_row(line, page), *_parts(line, ledger, page)]
    return lines


def _row(line: LedgerLine, page: _Page, head: bool = False) -> str:
    glyphs = page.style.glyphs
    title = ("  " if head else "    ") + page.named(line.title, TITLE if head else TITLE - 2)
    spread = f"{glyphs.plus_minus}{100 * line.spread:.1f}" if line.spread >= 0.0005 else ""
    time = ("~" if line.estimated else "") + page.seconds(line.seconds)
    text = f"{title} {_share(line.share)} {pad(spread, 5)} {pad(time, 9, right=True)}"
    room = page.width - cells(text) - 2
    bar = glyphs.bars[-1] * round(min(max(line.share, 0.0), 1.0) * min(BAR, room))
    role = "doubt" if head and abs(line.share) > 0.05 else ""
    return page.style.paint(f"{text}  {bar if room > 4 else ''}".rstrip(), role)


def _share(share: float) -> str:
    return pad(f"{100 * share:.1f} %", 8, right=True)


def parts_worth_naming(line: LedgerLine, ledger: Ledger) -> list[LedgerPart]:
    """The largest parts of a line."""
    return [p for p in line.parts if p.seconds >= LEAST_PART * ledger.wall_s][:MOST_PARTS]


def has_amounts(line: LedgerLine) -> bool:
    """Not the interpreter's: by cProfile there are names, and in what order, but no amounts."""
    return line.name != "interpreter"


def _parts(line: LedgerLine, ledger: Ledger, page: _Page) -> list[str]:
    shown = parts_worth_naming(line, ledger)
    if not has_amounts(line):
        said = ", ".join(f"{part.name} ({_short(part.note)})" for part in shown)
        rows = wrap(page.style.safe(f"most in {said}"), page.width - 8, rows=2) if shown else []
        return [page.style.paint(f"        {row}", "dim") for row in rows]
    lines = []
    for part in shown:
        calls = f" ×{part.calls:.0f}" if part.calls >= 1.5 else ""
        note = f"  {_short(part.note)}" if part.note else ""
        share = format_percent(part.seconds / ledger.wall_s)
        lines.append(page.cut(f"        {share:>7} {part.name}{calls}{note}", "dim"))
    return lines


def _short(place: str) -> str:
    """A path of which only the end tells something."""
    return "/".join(place.replace("\\", "/").split("/")[-2:])


def told(ledger: Ledger) -> tuple[str, ...]:
    """Sentences on the interpreter's lock, the hardware and the drift."""
    said = (ledger.interpreter, *ledger.hardware, _drift_words(ledger))
    return tuple(text for text in said if text)


def _words(
    said: Sequence[str], doubts: Sequence[str], notes: Sequence[str], page: _Page
) -> list[str]:
    """What stands below the table: sentences, then doubts, then notes."""
    lines = [row for text in said for row in page.wrapped(text)]
    for mark, role, texts in (("! ", "warn", doubts), ("- ", "dim", notes)):
        lines += [row for text in texts for row in page.wrapped(text, role, mark, "  ")]
    return lines


def _drift_words(ledger: Ledger) -> str:
    """By how much traced times were scaled to those of plain steps; empty where by nothing."""
    try:
        drift = float(ledger.facts.get("drift", "1"))
    except ValueError:
        return ""
    if abs(drift - 1) < LEAST_DRIFT:
        return ""
    return f"Traced times were scaled by {drift:.3f} to those of the plain steps."


def _findings(ledger: Ledger, page: _Page) -> list[str]:
    """Numbered, each with evidence, advice and what it would bring; tests beside them."""
    if not ledger.findings:
        return [page.cut("Nothing stands out: no finding.", "dim")]
    tests = {one.finding: one for one in ledger.verifications}
    lines: list[str] = []
    for number, finding in enumerate(ledger.findings, 1):
        head = f"{number}. {finding.title} (level {finding.level}): {finding.evidence}."
        lines += page.wrapped(head, "title", "", "   ")
        lines += page.wrapped(remedy_words(finding), "", "   ", "   ")
        for place in finding.places[:MOST_PLACES]:
            where = f"{place.file}:{place.line}" if place.line else place.file
            lines.append(page.cut(f"     {_short(where)}  {place.reason}", "dim"))
        test = tests.get(finding.name)
        if test is not None:
            role = "good" if test.held else "bad" if test.held is False else "dim"
            lines += page.wrapped(test.sentence, role, "   ", "   ")
    return lines


def remedy_words(finding: Prediction) -> str:
    """What to do, and what it would bring."""
    said = f"Remedy: {finding.advice}. {predicted_words(finding)}".rstrip()
    return said if finding.remedy.applicable else f"{said} By hand: {finding.why_not}."


def predicted_words(finding: Prediction) -> str:
    """The range; nothing where none is predicted."""
    low, high = finding.time_ratio
    return f"Predicted: {faster_range(low, high)}." if low < high else ""


# Two ledgers side by side in the terminal: lines, ops that changed, breaks with their lines.


def difference_report(
    found: Difference, *, color: bool = False, width: int = 100, unicode: bool = True
) -> str:
    """The whole report."""
    page = _Page(color, width, unicode)
    base, new = found.base, found.new
    # Findings of the new one, which are also those that `--verify` tests.
    title = page.cut(f"What would help under {new.arm.variant}:", "title")
    return page.joined(
        [base.arm.target, f"{base.arm.variant} against {new.arm.variant}", base.arm.mode],
        [row for text in found.sentences for row in page.wrapped(text)],
        _both(base, new, page),
        _changes(found, page),
        _breaks(new, page),
        _said_of_both(found, page),
        [title, *_findings(new, page)],
    )


def _both(base: Ledger, new: Ledger, page: _Page) -> list[str]:
    room = min(TITLE, page.width - 3 * (TIME + 2))
    names = (base.arm.variant, new.arm.variant, "change")
    heads = "".join(pad(shorten(name, TIME), TIME + 2, right=True) for name in names)
    lines = [page.style.paint(pad("", room) + heads, "dim")]

    def add(title: str, before: float, after: float) -> None:
        shown = [page.seconds(value) if value else "-" for value in (before, after)]
        shown.append(("+" if after > before else "") + page.seconds(after - before))
        figures = "".join(pad(text, TIME + 2, right=True) for text in shown)
        role = "good" if after < 0.9 * before else "bad" if after > 1.1 * before else ""
        lines.append(page.named(title, room) + page.style.paint(figures, role))

    for level, title in LEVEL_NAMES.items():
        rows = {line.name: line.title for line in (*base.level(level), *new.level(level))}
        if rows and level != -1:
            lines.append(page.style.paint(f"{level} {title}" if level > 0 else title, "title"))
        for name, text in rows.items():
            old, now = (found.seconds if (found := one.line(name)) else 0.0 for one in (base, new))
            add(f"  {text}", old, now)
    add("a step", base.wall_s, new.wall_s)
    return lines


def _changes(found: Difference, page: _Page) -> list[str]:
    arrow = f" {page.style.glyphs.arrow} "
    lines = [page.cut("Ops that changed:", "title")] if found.changes else []
    for change in found.changes:
        times = (page.seconds(value) for value in (change.before_s, change.after_s))
        amounts = arrow.join(pad(text, 9, right=True) for text in times)
        calls = f"{change.calls_before:4.0f}{arrow}{change.calls_after:4.0f} calls"
        into = arrow + ", ".join(change.into) if change.into else ""
        lines.append(page.cut(f"  {pad(change.kind, 9)} {amounts}  {calls}  {change.name}{into}"))
    return lines


def _breaks(new: Ledger, page: _Page) -> list[str]:
    lines: list[str] = []
    for title, places in (("Graph breaks:", new.breaks), ("Compiled again:", new.recompiles)):
        lines += [page.cut(title, "title")] if places else []
        for place in places[:MOST_BREAKS]:
            lines.append(page.cut(f"  {place.file}:{place.line}  {place.reason}"))
    return lines


def _said_of_both(found: Difference, page: _Page) -> list[str]:
    """What each ledger has to say for itself; once where both say the same."""
    base, new = found.base, found.new

    def of_both(before: Sequence[str], after: Sequence[str]) -> list[str]:
        same = [text for text in before if text in after]
        return [
            *(f"both: {text}" for text in same),
            *(f"{base.arm.variant}: {text}" for text in before if text not in same),
            *(f"{new.arm.variant}: {text}" for text in after if text not in same),
        ]

    checks, notes = of_both(base.checks, new.checks), of_both(base.notes, new.notes)
    return _words(of_both(told(base), told(new)), checks, notes, page)


# The ledger and the difference of two as JSON and as Markdown.
#
# Every key of the JSON is explained in `docs/reference/json.md`.


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
    variants = f"{_safe(base.arm.variant)} against {_safe(new.arm.variant)}"
    sentences = [f"- {_safe(text)}" for text in found.sentences]
    lines = [f"### `{_safe(base.arm.target)}`: {variants}", "", *sentences, ""]
    if found.changes:
        lines += ["| op | | before | after | calls | now in |", "|---|---|---:|---:|---:|---|"]
        lines += [_change_row(change) for change in found.changes]
        lines.append("")
    for title, places in (("Graph breaks", new.breaks), ("Compiled again", new.recompiles)):
        if places:
            said = [f"- {_safe(one.file)}:{one.line} {_safe(one.reason)}" for one in places]
            lines += [f"{title}:", "", *said, ""]
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
            time = ("~" if line.estimated else "") + format_seconds(line.seconds, 3)
            lines.append(f"| {name} | {line.title} | {100 * line.share:.1f} % | {time} |")
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
