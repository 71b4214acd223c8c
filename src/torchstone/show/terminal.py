"""The terminal report of a result, and that of `torchstone timeit`."""

from __future__ import annotations

from functools import partial

from torchstone.records import Level, Measurement, Outcome, Result
from torchstone.records.format import count, format_percent
from torchstone.show import evidence
from torchstone.show.evidence import flow_commands, in_database
from torchstone.show.rows import (
    LEVEL,
    UNKNOWN,
    Figure,
    Figures,
    Words,
    blas_threads,
    figures,
    flow,
    machine,
    result_table,
    what,
)
from torchstone.show.table import Cell, Column, Style, cells, pack, pad, shorten

LEAST_WIDTH = 40
STRIP_LEAST = 16
STRIP_MOST = 40


def report(
    result: Result,
    *,
    color: bool = False,
    width: int = 100,
    unicode: bool = True,
    saved: bool = True,
    db: str = "",
    verbose: bool = True,
    more: str = evidence.VERBOSE,
) -> str:
    """The whole report. No line is wider than `width` (40 at least); no escape without `color`.

    `saved` closes it with the commands that show and repeat it; a result without an id has none.
    `db` is the database that was named, for those commands. Not `verbose`: checks that weigh, and
    how many others `more` has.
    """
    width, style = max(width, LEAST_WIDTH), Style(color, unicode)
    heading = [style.paint(line, "title") for line in flow(what(result), width, style)]
    heading += [style.paint(line, "dim") for line in flow(machine(result), width, style)]
    found = evidence.checks if verbose else partial(evidence.brief_checks, more=more)
    sections = [
        heading,
        evidence.note_lines(evidence.answers(result, style), width, style),
        *(_tables(result, width, style) if result.arms else [["  nothing was measured"]]),
        evidence.note_lines([*found(result, style), *evidence.left_out(result)], width, style),
        _closing(result, width, style, saved, db),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _tables(result: Result, width: int, style: Style) -> list[list[str]]:
    table = result_table(result, style)
    names = Column("", tuple(Cell(style.safe(name), "title") for name in table.names))
    main = [
        _column(title, words, table.roles if title == "verdict" else ())
        for title, words in table.main.items()
    ]
    details = [_column(title, words) for title, words in table.details.items()]

    def draw(room: int) -> tuple[str, tuple[Cell, ...]]:
        heading, drawn = table.pictures(room, style) or ("", [])
        return heading, tuple(Cell(one, "strip") for one in drawn)

    blank = tuple(Cell() for _ in table.names)
    pictures = [Column("", blank, least=STRIP_LEAST, most=STRIP_MOST, grow=draw)]
    groups = [main, pictures if any(table.figures) else [], details]
    return pack(names, groups, width, style)


def _column(title: str, words: list[Words], roles: tuple[str, ...] = ()) -> Column:
    """Figures aligned with each other, and what stands beside them, one blank between."""
    if roles:
        return Column(title, tuple(map(Cell, (figure for figure, _ in words), roles)))
    inner = max(cells(figure) for figure, _ in words)
    drawn = (f"{pad(figure, inner, right=True)} {beside}".rstrip() for figure, beside in words)
    return Column(title, tuple(map(Cell, drawn)), right=not any(beside for _, beside in words))


def _closing(result: Result, width: int, style: Style, saved: bool, db: str) -> list[str]:
    lines = flow(evidence.course(result, style), width, style)
    if saved and result.id:
        verbs = ("show",) if result.sweep or result.method.session else ("show", "repro")
        words = (f"torchstone {verb} {result.id}" for verb in verbs)
        parts = [f"id {result.id}", *(in_database(command, db) for command in words)]
        lines += flow_commands(parts, width, style)
    return [style.paint(line, "dim") for line in lines]


# The answer of `torchstone timeit`: the words of `python -m timeit`, then the evidence.

UNITS = {"nsec": 1e-9, "usec": 1e-6, "msec": 1e-3, "sec": 1.0}
PRECISION = 3


def timeit_report(
    result: Result,
    *,
    color: bool = False,
    width: int = 100,
    unicode: bool = True,
    unit: str | None = None,
    precision: int = PRECISION,
    saved: bool = True,
    db: str = "",
    verbose: bool = True,
) -> str:
    """`50 loops, best of 5: 4.12 usec per loop`, then floor, typical, checks and how it went.

    `unit` is one of `UNITS`; without it the largest that the best time fills.
    """
    style = Style(color, unicode)
    lines: list[str] = []
    for measurement in result.arms:
        if len(result.arms) > 1:
            name = shorten(style.safe(measurement.arm.name), width, style.glyphs.ellipsis)
            lines.append(style.paint(name, "title"))
        found = figures(measurement, result.method.alpha)
        lines += _answer(measurement, found, unit, precision, style)
    checks = evidence.checks if verbose else evidence.brief_checks
    notes = [*evidence.problems(result), *checks(result, style)]
    lines += evidence.note_lines(notes, width, style)
    ending = [*_threads(result), *evidence.course(result, style)]
    if saved and result.id:
        ending.append(in_database(f"torchstone show {result.id}", db))
    lines += [style.paint(f"  {line}", "dim") for line in flow_commands(ending, width - 2, style)]
    return "\n".join(lines) + "\n"


def passed_checks(result: Result, width: int) -> str:
    """The checks that a report only counts, a paragraph each."""
    style = Style()
    passed = [check for check in result.checks if check.level is Level.OK]
    texts = [evidence.check_text(check, result, style) for check in passed]
    lines = [line for text in texts for line in evidence.hang("  ok ", text, width, style)]
    return "".join(f"{line}\n" for line in lines)


def _threads(result: Result) -> list[str]:
    """How many threads the libraries of the first statement had, where it loaded any."""
    of = result.arms[0].environment.threads if result.arms and result.arms[0].environment else {}
    torch = [count(of["torch"], "torch thread")] if "torch" in of else []
    return [part for part in (*torch, blas_threads(of)) if part]


def _answer(
    measurement: Measurement, found: Figures | None, unit: str | None, precision: int, style: Style
) -> list[str]:
    if found is None:
        return ["no samples (ok)"] if measurement.outcome is Outcome.OK else []
    best = min(found.samples)
    # The largest unit in which the time is at least one; nanoseconds below that.
    fitting = (name for name, size in reversed(UNITS.items()) if best >= size)
    name = unit or next(fitting, "nsec")
    statement = measurement.arm.statement
    clock = ", CPU time" if statement is not None and statement.clock == "cpu" else ""
    loops = f"{found.calls_per_sample} loop{'' if found.calls_per_sample == 1 else 's'}"
    time = f"{best / UNITS[name]:.{precision}g} {name}"
    first = f"{loops}, best of {len(found.samples)}: {time} per loop{clock}"
    return [
        style.paint(first, "title"),
        _line("floor", found.floor, name, precision, style),
        _line("typical", found.typical, name, precision, style),
    ]


def _line(label: str, figure: Figure, unit: str, precision: int, style: Style) -> str:
    """One digit more than the answer, zeros kept: ends of an interval are read side by side."""

    def shown(seconds: float) -> str:
        return f"{seconds / UNITS[unit]:#.{precision + 1}g}".rstrip(".")

    value = UNKNOWN if figure.value is None else f"{shown(figure.value)} {unit}"
    text = f"  {label:<8} {value}"
    if figure.interval is not None:
        low, high = (shown(end) for end in figure.interval)
        return text + style.paint(f"  ({low} to {high}, {format_percent(LEVEL)})", "dim")
    if len(figure.processes) < 2:
        return text + style.paint("  (one process: no interval)", "dim")
    low, high = (shown(end) for end in (min(figure.processes), max(figure.processes)))
    return text + style.paint(f"  (processes from {low} to {high}: no interval)", "dim")
