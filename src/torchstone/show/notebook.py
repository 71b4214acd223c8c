"""A result in a notebook: its table, a strip of samples for each arm, and what to know, as HTML.

Everything is escaped; there is no script and nothing is fetched.
"""

from __future__ import annotations

import base64
import io
import sys
from collections.abc import Callable
from html import escape
from typing import Any

from torchstone.records import Result
from torchstone.show import evidence
from torchstone.show.charts.intervals import strip_chart, strip_of
from torchstone.show.progress import LiveProgress, make_progress
from torchstone.show.rows import arm_table, what
from torchstone.show.table import Style

COLOURS = {"good": "#1a7f37", "bad": "#cf222e", "fail": "#cf222e", "doubt": "#9a6700"}
_CELL = "text-align:right;padding:2px 10px;white-space:nowrap"
_LEFT = "text-align:left;padding:2px 10px"
MOST_NOTES = 6
"""Lines under the table; `report()` has all of them."""


def result_html(result: Result) -> str:
    """One block of HTML, to be shown by Jupyter."""
    if not result.arms:
        return "<p>Nothing was measured.</p>"
    heading = escape(" · ".join(what(result)))
    parts = [f"<div><p><b>{heading}</b></p>", _table(result), _strips(result), _notes(result)]
    closing = escape(" · ".join(evidence.course(result, Style())))
    return "".join([*parts, f"<p><small>{closing}</small></p></div>"])


def _table(result: Result) -> str:
    table = arm_table(result, Style())
    columns = {
        title: words
        for title, words in {**table.main, **table.details}.items()
        if any(figure for figure, _ in words)
    }
    heads = "".join(f'<th style="{_CELL}">{escape(title)}</th>' for title in columns)
    rows = []
    for place, name in enumerate(table.names):
        cells = []
        for title, words in columns.items():
            figure, beside = words[place]
            colour = COLOURS.get(table.roles[place], "") if title == "verdict" else ""
            style = f"{_CELL};color:{colour};font-weight:bold" if colour else _CELL
            text = escape(figure) + (f" <small>{escape(beside)}</small>" if beside else "")
            cells.append(f'<td style="{style}">{text}</td>')
        rows.append(f'<tr><th style="{_LEFT}">{escape(name)}</th>{"".join(cells)}</tr>')
    return f"<table><thead><tr><th></th>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _strips(result: Result) -> str:
    found = arm_table(result, Style()).figures
    strips = [
        strip_of(arm, figures, role)
        for role, (arm, figures) in enumerate(zip(result.arms, found, strict=True))
        if figures is not None
    ]
    if not strips:
        return ""
    drawn = strip_chart(strips, title="Samples", embedded=False)
    # As an image: the style of a picture must not reach the page around it.
    data = base64.b64encode(drawn.encode()).decode()
    return f'<img alt="samples of each arm" src="data:image/svg+xml;base64,{data}">'


def _notes(result: Result) -> str:
    more = "print(result.report(verbose=True))"
    notes = [*evidence.problems(result), *evidence.brief_checks(result, Style(), more)]
    lines = []
    for note in notes[:MOST_NOTES]:
        name = f"<b>{escape(note.name)}</b> " if note.name else ""
        remedy = f" → {escape(note.remedy)}" if note.remedy else ""
        lines.append(f"<li>{name}{escape(f'{note.head}{note.text}')}{remedy}</li>")
    left_out = len(notes) - len(lines)
    lines += [f"<li>and {left_out} more: <code>{more}</code></li>"] if left_out > 0 else []
    return f"<ul>{''.join(lines)}</ul>" if lines else ""


# Progress where an API call is waited for: a line on a terminal, one display in a notebook.

REDRAW_S = 0.25
NOTEBOOK_WIDTH = 100


class NotebookProgress(LiveProgress):
    """What a terminal shows, in one display below the cell that is empty at the end."""

    def __init__(self, display: Callable[..., Any], html: Callable[[str], Any]) -> None:
        super().__init__(io.StringIO(), live=True)
        self._style, self._html = Style(), html
        self._notes: list[str] = []
        self._handle = display(html(""), display_id=True)

    def note(self, text: str) -> None:
        """Stays above the rest until the end."""
        self._notes.append(text)
        self._draw(self._status())

    def tick(self) -> None:
        """Draw again what is known; a browser is told less often than a terminal."""
        if self._clock() - self._drawn_at >= REDRAW_S:
            self._draw(self._status())

    def close(self) -> None:
        """Leave nothing behind."""
        self._show("")

    def _draw(self, text: str) -> None:
        self._drawn_at = self._clock()
        lines = "\n".join([*self._notes, *self._table(NOTEBOOK_WIDTH), text])
        self._show(f"<pre>{escape(lines)}</pre>")

    def _show(self, html: str) -> None:
        if self._handle is not None:
            self._handle.update(self._html(html))


def api_progress(wanted: bool | None) -> LiveProgress | None:
    """What suits where the call was made; None: nobody is looking, or it was not wanted."""
    if wanted is False:
        return None
    shell = _shell()
    if shell is not None and hasattr(shell, "kernel"):
        display = sys.modules["IPython"].display
        return NotebookProgress(display.display, display.HTML)
    if wanted or sys.stderr.isatty():
        return make_progress(sys.stderr)
    return None


def _shell() -> Any:
    """The IPython that this runs in, if any; it is never imported for this."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None
