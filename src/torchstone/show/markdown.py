"""The report as a GitHub table, for pull requests and notes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from torchstone.records import Level, Outcome, Result
from torchstone.show.evidence import check_text, course, doubt_text
from torchstone.show.heading import machine, what
from torchstone.show.rows import Row, Rows, rows
from torchstone.show.strip import axis, common_scale, strip
from torchstone.show.style import UNICODE, Style
from torchstone.show.text import sanitise, shorten
from torchstone.show.units import format_percent

STRIP_WIDTH = 24
NAME_WIDTH = 60
_LEVEL_WORDS = {Level.FAIL: "**fail**", Level.WARN: "**warn**", Level.NOTE: "note"}
_TAME = re.compile(r"[\w .,()=+:%'@/-]*\Z")
_SPECIAL = re.compile(
    r"""[]!"#$&*<>?@\\^`{|}~[]|(?<![^\W_])_|_(?![^\W_])|(?<=:)//|(?<=www)\.""", re.IGNORECASE
)
_LINKING = frozenset("@#")
"""GitHub looks for mentions and issue numbers after rendering; a comment parts them."""


def markdown(result: Result) -> str:
    """Heading, table, what went wrong and the checks. Text from outside cannot become markup."""
    table = rows(result)
    lines = [
        f"**{escape(what(result)[0])}**" + "".join(f" · {escape(p)}" for p in what(result)[1:])
    ]
    where = " · ".join(escape(part) for part in machine(result))
    lines += ["", where] if where else []
    lines += ["", *_table(table)] if table.rows else ["", "Nothing was measured."]
    lines += _section(_outcomes(result) + _doubts(result)) + _section(_checks(result))
    ending = [*course(result, Style()), f"id {result.id}" if result.id else ""]
    lines += ["", "<sub>" + " · ".join(escape(part) for part in ending if part) + "</sub>"]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Text that renders as itself: no markup, no HTML, no cell border, no link."""
    return _SPECIAL.sub(lambda found: "".join(map(_entity, found[0])), sanitise(text))


def _entity(char: str) -> str:
    return f"&#{ord(char)};" + ("<!-- -->" if char in _LINKING else "")


def code(text: str) -> str:
    """A name in code type, where GitHub looks for neither mentions nor links."""
    shown = sanitise(text)
    if shown.strip() and _TAME.match(shown):
        return f"`{shown}`"
    return f"<code>{escape(text)}</code>"


def _short(name: str) -> str:
    return shorten(sanitise(name), NAME_WIDTH)


def _table(table: Rows) -> list[str]:
    columns: list[tuple[str, str, Callable[[Row], str]]] = [
        ("arm", ":--", lambda row: code(_short(row.name))),
        (f"{table.lead} per call", "--:", lambda row: f"{row.time} {row.spread}".strip()),
        ("speed-up", "--:", lambda row: row.speedup),
        (format_percent(table.level), ":--", lambda row: row.interval),
        ("verdict", ":--", lambda row: f"**{row.verdict}**" if row.role == "fail" else row.verdict),
        *_pictures(table),
        (table.other, "--:", lambda row: f"{row.other} {row.other_speedup}".strip()),
        ("memory", "--:", lambda row: f"{row.memory} {row.memory_ratio}".strip()),
        ("process", "--:", lambda row: row.process),
        ("compiler", "--:", lambda row: row.compiler),
        ("compile cold / warm", "--:", lambda row: row.compile),
    ]
    kept = [column for column in columns if any(column[2](row) for row in table.rows)]
    return [
        _line([title for title, _, _ in kept]),
        _line([mark for _, mark, _ in kept]),
        *(_line([cell(row) for _, _, cell in kept]) for row in table.rows),
    ]


def _pictures(table: Rows) -> list[tuple[str, str, Callable[[Row], str]]]:
    scale = common_scale([row.figures.samples for row in table.rows if row.figures])
    if scale is None:
        return []

    def draw(row: Row) -> str:
        if row.figures is None:
            return ""
        found = row.figures
        return f"`{strip(found.samples, found.floor.value, scale, STRIP_WIDTH, UNICODE)}`"

    return [(f"`{axis(scale, STRIP_WIDTH, UNICODE, ascii_only=False)}`", ":--", draw)]


def _line(fields: Sequence[str]) -> str:
    return "| " + " | ".join(fields) + " |"


def _section(lines: list[str]) -> list[str]:
    return ["", *lines] if lines else []


def _outcomes(result: Result) -> list[str]:
    lines = []
    for measurement in result.arms:
        if measurement.outcome is Outcome.OK:
            continue
        detail = measurement.detail
        ends = [detail.signal, "" if detail.exit_code is None else f"exit code {detail.exit_code}"]
        facts = ", ".join(part for part in (detail.phase, *ends) if part)
        word = measurement.outcome.value.replace("_", " ")
        line = f"- {code(_short(measurement.arm.name))} **{word}**"
        line += f" ({escape(facts)})" if facts else ""
        line += f": {escape(detail.message).rstrip('.')}." if detail.message else "."
        lines.append(line + (f" {escape(detail.remedy)}" if detail.remedy else ""))
    return lines


def _doubts(result: Result) -> list[str]:
    return [
        f"- {code(_short(comparison.new))} {comparison.verdict.value}: {escape(text)}"
        for comparison in result.comparisons
        if (text := doubt_text(comparison, result))
    ]


def _checks(result: Result) -> list[str]:
    lines = [
        f"- {word} {escape(check_text(check, result, Style()))}"
        for level, word in _LEVEL_WORDS.items()
        for check in result.checks
        if check.level is level
    ]
    passed = sum(check.level is Level.OK for check in result.checks)
    return lines + ([f"- {passed} check{'' if passed == 1 else 's'} ok"] if passed else [])
