"""What rules of today say of stored results: the changes, then what still stands against them."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.records import Check, Level, Result
from torchstone.show.evidence import check_text, hang
from torchstone.show.style import Style

WIDTH = 100


def judgement_report(
    judged: Sequence[tuple[Result, Sequence[str]]], *, color: bool = False, unicode: bool = True
) -> str:
    """One paragraph a result that changed or fails, then a sentence that counts them all."""
    style = Style(color, unicode)
    lines: list[str] = []
    for result, changes in judged:
        failed = [check for check in result.checks if check.level is Level.FAIL]
        if changes or failed or len(judged) == 1:
            lines += _paragraph(result, changes, failed, style)
    lines.append(_sentence(judged))
    return "\n".join(lines) + "\n"


def _paragraph(
    result: Result, changes: Sequence[str], failed: Sequence[Check], style: Style
) -> list[str]:
    name = style.safe(result.label or (result.arms[0].arm.target if result.arms else ""))
    lines = [style.paint(f"{style.safe(result.id)}  {name}".rstrip(), "title")]
    for change in changes:
        lines += hang(f"  {style.glyphs.arrow} ", style.safe(change), WIDTH, style)
    for check in failed:
        found = hang(f"  {style.glyphs.cross} ", check_text(check, result, style), WIDTH, style)
        lines += [style.paint(line, "fail") for line in found]
    return lines


def _sentence(judged: Sequence[tuple[Result, Sequence[str]]]) -> str:
    changed = sum(bool(changes) for _, changes in judged)
    failed = sum(any(c.level is Level.FAIL for c in result.checks) for result, _ in judged)
    results = f"{len(judged)} result{'' if len(judged) == 1 else 's'}"
    changes = f"{changed} changed" if changed else "nothing changed"
    doubt = f"{failed} not to be believed" if failed else "none fails a check"
    return f"{results} judged by the rules of today: {changes}, {doubt}."
