"""Pages as HTML: templates compiled once, everything escaped, every address made by `links`."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from torchstone import __version__
from torchstone.explain.roofline import Roofline
from torchstone.records import Profile
from torchstone.records.format import count
from torchstone.show import charts
from torchstone.show.page import MARKS, Cell, Chart, Choice, Link, Page, Picture, Point, Table
from torchstone.show.profile_html import profile_json
from torchstone.show.roofline import roofline_svg
from torchstone.show.table import sanitise
from torchstone.web.query import Links
from torchstone.web.sources import DataAccess

# Charts as SVG markup: from the records of a page to the chart renderer.


UNITS = {"seconds": "s", "count": ""}
"""Units that charts have another name for."""
LINES = 96
"""Charts over time that are kept by what is in them: to compare two takes a tenth of drawing one,
and of a model's two years only the newest night is new."""
STRIPS = 8
"""Pictures of samples that are kept: they have thousands of signs, and samples never change."""


def draw(chart: Chart | Picture, links: Links, alone: bool = False) -> str:
    """The markup; empty where there is nothing to draw. `alone`: a file, with its styles in it."""
    if isinstance(chart, Picture):
        return _picture(chart, alone, links.static)
    return _lines(chart, links, alone)


@lru_cache(maxsize=LINES)
def _lines(chart: Chart, links: Links, alone: bool) -> str:
    if not any(p.value is not None or p.failed for s in chart.series for p in s.points):
        return ""
    return charts.line_chart(
        [
            charts.Series(series.name, tuple(_point(p, links, alone) for p in series.points))
            for series in chart.series
        ],
        title=chart.title if alone else "",
        unit=UNITS.get(chart.unit, chart.unit),
        marks=[(one.time_s, one.text) for one in chart.events],
        embedded=not alone,
        note=chart.note if alone else "",
        zoom=not links.static,
        size=charts.SMALL_SIZE if chart.small and not alone else charts.SIZE,
        told=alone or not links.static,
    )


def single(chart: Chart | Picture) -> list[tuple[str, str]]:
    """The figures of a chart that has one moment, or of counts that never change: a reader needs
    no axes for them. Each with the name of its line."""
    if not isinstance(chart, Chart):
        return []
    moments = {p.time_s for s in chart.series for p in s.points}
    passing = [p.value for s in chart.series for p in s.points if not p.failed]
    values, points = set(passing), sum(len(s.points) for s in chart.series)
    steady = chart.unit == "count" and len(chart.series) == 1 and len(values) == 1
    if len(moments) != 1 and not (steady and None not in values):
        return []
    unit = UNITS.get(chart.unit, chart.unit)
    found = []
    for series in chart.series:
        last = next((p for p in reversed(series.points) if not p.failed), series.points[-1])
        known = None if last.low is None or last.high is None else (last.low, last.high)
        text = "failed" if last.failed else "none"
        if last.value is not None and not last.failed:
            text = charts.format_estimate(last.value, known, unit)
        if len(moments) > 1:
            text += f" in each of {count(len(passing), 'run')}"
            text += f"; {points - len(passing)} failed" if points > len(passing) else ""
        found.append((sanitise(series.name), text))
    return found


def _point(point: Point, links: Links, alone: bool) -> charts.Point:
    return charts.Point(
        x=point.time_s,
        y=math.nan if point.value is None else point.value,
        low=point.low,
        high=point.high,
        label=point.label,
        href="" if alone or links.static else links.url(point.to),
        mark="failed" if point.failed else "partial" if point.partial else "",
        # Of a case, its failure; a file has no room for the run's label beside every figure.
        note=point.note if not links.static or point.failed or point.n is not None else "",
    )


def _picture(picture: Picture, alone: bool, coarse: bool) -> str:
    data = picture.data
    title = picture.title if alone else ""
    if isinstance(data, Roofline):
        return roofline_svg(data, embedded=not alone)
    if not isinstance(data, tuple) or not data:
        return ""
    if all(isinstance(one, charts.Strip) for one in data):
        if not any(strip.turns for strip in data):
            return ""
        return _strips(data, title, alone, coarse)
    if all(isinstance(one, charts.ScatterPoint) for one in data):
        titles = ("time, as a share of the baseline's", "memory")
        return charts.scatter_chart(data, titles=titles, title=title, embedded=not alone)
    return charts.interval_chart(data, title=title, embedded=not alone)


@lru_cache(maxsize=STRIPS)
def _strips(strips: tuple[charts.Strip, ...], title: str, alone: bool, coarse: bool) -> str:
    return charts.strip_chart(strips, title=title, embedded=not alone, coarse=coarse)


NAVIGATION = (
    ("landing", "Overview"),
    ("compare", "Compare"),
    ("failures", "Failures"),
    ("regressions", "Regressions"),
    ("runs", "Runs"),
    ("machines", "Machines"),
    ("profiles", "Profiles"),
    ("imported", "Imported"),
    ("tunings", "Tunings"),
    ("scalings", "Scaling"),
    ("monitors", "Monitors"),
)
WITHIN = {
    "suite": "landing",
    "case": "landing",
    "result": "landing",
    "run": "runs",
    "machine": "machines",
    "profile": "profiles",
    "change": "regressions",
    "series": "imported",
    "tuning": "tunings",
    "scaling": "scalings",
    "monitor": "monitors",
}
"""Where in the navigation a page belongs."""
MARK_WORDS = {
    "better": "better",
    "worse": "worse",
    "same": "the same",
    "not-worse": "not worse",
    "not-better": "not better",
    "doubt": "uncertain",
    "unsure": "cannot tell",
    "fail": "failing",
    "pass": "passing",
    "running": "running",
}
SHORT = 42
"""Characters of a text that stays on one line; longer ones are wrapped in a wide column."""
_SPECIAL = re.compile("[&<>'\"]")
"""What `escape` changes; most cells have none of it."""
_TICKED = re.compile(r"`([^`]+)`")
_SIGNS = {
    mark: f'<span class="sign" aria-hidden="true">{MARKS[mark]}</span>'
    f'<span class="unseen">{words} </span>'
    for mark, words in MARK_WORDS.items()
}


@dataclass(frozen=True)
class SiteInfo:
    """What every page says of where it comes from."""

    database: str
    version: str = __version__
    now: str = ""
    """The state of the database that the page was made from."""
    policy: str = ""
    """Of a page without a server: what it may load."""


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates; text is escaped everywhere, and a name that is not there is an error."""
    made = Environment(
        loader=PackageLoader("torchstone.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(ticked=ticked, digest=digest)
    made.tests.update(section_kind=lambda section, kind: type(section).__name__ == kind)
    made.globals.update(
        marks=MARKS,
        mark_words=MARK_WORDS,
        navigation=NAVIGATION,
        shown_columns=shown_columns,
        column_groups=column_groups,
        sort_value=sort_value,
        further=further,
        options=options,
        single=single,
        Link=Link,
    )
    return made


def html(page: Page, links: Links, site_info: SiteInfo) -> str:
    """The whole page."""
    here = Link(page.name, page.ident, page.params)
    return (
        environment()
        .get_template("page.html")
        .render(
            page=page,
            links=links,
            url=links.url,
            site_info=site_info,
            here=here,
            within=WITHIN.get(page.name, page.name),
            svg=lambda chart: Markup(draw(chart, links)),  # made by us, and escaped there
            body=lambda table: body(table, links),
        )
    )


def shown_columns(table: Table) -> list[tuple[int, Any]]:
    """The columns that people see, with their place in a row."""
    return [(place, column) for place, column in enumerate(table.columns) if column.shown]


def column_groups(table: Table) -> list[tuple[str, int]]:
    """Headings over neighbouring columns and how many each spans; none where no column has one."""
    spans: list[tuple[str, int]] = []
    for _, column in shown_columns(table):
        if spans and column.group and spans[-1][0] == column.group:
            spans[-1] = (column.group, spans[-1][1] + 1)
        else:
            spans.append((column.group, 1))
    return spans if any(name for name, _ in spans) else []


def sort_value(table: Table, key: str, number: bool) -> str:
    """What a click on a heading asks for: numbers largest first, then the other way round."""
    first = f"-{key}" if number else key
    other = key if number else f"-{key}"
    return other if table.sort == first else first


def further(table: Table) -> str:
    """How many rows there are after these, where that is known."""
    if table.total is None:
        return ""
    left = table.total - table.start - len(table.rows)
    return f"{left:,} further row{'' if left == 1 else 's'}"


def options(choice: Choice) -> Markup:
    """Of a droplist. By hand, as the rows of a table: there are hundreds on a page."""
    return Markup(
        "".join(
            f'<option value="{_escaped(value)}"{" selected" if value == choice.value else ""}>'
            f"{_escaped(text)}</option>"
            for value, text in choice.options
        )
    )


def digest(text: str) -> str:
    """Short, and another for another text: whether an open page is still what would be sent."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def ticked(text: str) -> Markup:
    """A sentence of ours, with what stands between backticks as code."""
    return Markup(_TICKED.sub(r"<code>\1</code>", str(escape(text))))


def body(table: Table, links: Links) -> Markup:
    """The rows. By hand, because a template takes four times as long for thousands of cells."""
    columns = [(place, column.number) for place, column in shown_columns(table)]
    lines = []
    for row in table.rows:
        parts = ["<tr>"]
        tag = "th"
        opened: dict[int, str] = {}  # most figures of a row lead to the same page
        for place, number in columns:
            parts.append(_cell(row[place], number, tag, links, opened))
            tag = "td"
        parts.append("</tr>")
        lines.append("".join(parts))
    return Markup("\n".join(lines))


def _cell(cell: Cell, number: bool, tag: str, links: Links, opened: dict[int, str]) -> str:
    name = "num" if number else "txt" if len(cell.text) <= SHORT else "txt long"
    if cell.mark:
        name = f"{name} m-{cell.mark}"
    scope = ' scope="row"' if tag == "th" else ""
    value = f' data-v="{cell.value}"' if number and isinstance(cell.value, (int, float)) else ""
    title = f' title="{_escaped(cell.title)}"' if cell.title else ""
    inner = _escaped(cell.text)
    if not number and "+" in inner:  # `inductor+dynamic` ends a line there, not inside a word
        inner = inner.replace("+", "+<wbr>")
    if cell.to is not None and cell.text:
        start = opened.get(id(cell.to))
        if start is None:
            to = links.url(cell.to)
            start = opened[id(cell.to)] = f'<a href="{_escaped(to)}">' if to else ""
        inner = f"{start}{inner}</a>" if start else inner
    if cell.mark and MARKS[cell.mark]:
        inner = f"{_SIGNS[cell.mark]}{inner}"
    if cell.detail:
        inner += f" <small>{_escaped(cell.detail)}</small>"
    return f'<{tag}{scope} class="{name}"{value}{title}>{inner}</{tag}>'


def _escaped(text: str) -> str:
    return str(escape(text)) if _SPECIAL.search(text) else text


# The views of a profile as a page of the server: the same scripts, and no inline code.


def profile_page(source: DataAccess, ident: str, links: Links) -> str:
    """The page. Its data stand in an element that no browser runs."""
    found = source.profile(ident)
    template = environment().get_template("profile.html")
    return template.render(
        title=_title(found),
        data=Markup(source.made_of(found, _data)),  # made for a script element, and safe in one
        links=links,
        back=links.url(Link("profile", found.id)),
        of=links.url(Link("result", result)) if (result := source.profiled(found.id)) else "",
    )


def _title(profile: Profile) -> str:
    return sanitise(profile.label or profile.id)


def _data(profile: Profile) -> str:
    return profile_json([profile], _title(profile))
