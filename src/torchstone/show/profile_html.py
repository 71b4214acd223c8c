"""Profiles as one HTML file that needs nothing else: no server, no network, no library."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape

from torchstone.records import Profile, UsageError
from torchstone.show.bundle import asset, bundle
from torchstone.show.profile_data import profile_json, shown
from torchstone.show.profile_figures import (
    cost_words,
    facts_of,
    format_amount,
    shares,
    work_of,
)
from torchstone.show.profile_tree import call_tree, top_functions, unit_of, whole_of
from torchstone.show.units import format_percent

FOLDER = "profile"
TOP = 30
"""Functions told where no script runs."""


def profile_html(profiles: Sequence[Profile], title: str = "") -> str:
    """The file's text. Two or more profiles can be compared in it."""
    if not profiles:
        raise UsageError("There is no profile to show.", "Give at least one.")
    title = title or _title(profiles) or "Profile"
    script, style = bundle(FOLDER, "app", "start"), asset(FOLDER, "style.css")
    parts = {
        "policy": _policy(script, style),
        "title": _text(title),
        "style": style,
        "plain": "\n".join(_plain(profile) for profile in profiles),
        "data": profile_json(profiles, title),
        "script": script,
    }
    page = asset(FOLDER, "page.html")
    # Cut at the marks, so that what is put in is never searched for marks itself.
    pieces = page.split("@@")
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def _title(profiles: Sequence[Profile]) -> str:
    """What they are of: without the way, where there are several ways of the same."""
    if len(profiles) == 1:
        return profiles[0].label
    return " · ".join(dict.fromkeys(work_of(one) for one in profiles))


def _policy(script: str, style: str) -> str:
    """Nothing may be fetched, and only our own script and style may run."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _text(text: str) -> str:
    return escape(shown(text), quote=True)


def _plain(profile: Profile) -> str:
    """What is said where no script runs."""
    lines = [f"<h2>{_text(profile.label or profile.id)}</h2>", "<dl>"]
    for name, value in facts_of(profile):
        lines.append(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>")
    lines.append("</dl>")
    for heading, texts in (("Problems", profile.problems), ("Notes", profile.notes)):
        if texts:
            items = "".join(f"<li>{_text(text)}</li>" for text in texts)
            lines.append(f"<h3>{heading}</h3><ul>{items}</ul>")
    if profile.cost is not None:
        lines.append(f"<p>{_text(cost_words(profile.cost))}</p>")
    return "\n".join([*lines, *_top_table(profile)])


def _top_table(profile: Profile) -> list[str]:
    tree = call_tree(profile)
    rows, unit = top_functions(profile, tree, TOP), unit_of(profile, tree)
    if not rows:
        return []
    whole = whole_of(profile, tree)
    heads = ("function", "own", "share", "total", "share", "calls", "where")
    lines = ["<table><thead><tr>", *(f"<th>{head}</th>" for head in heads), "</tr></thead><tbody>"]
    for row in rows:
        own, total = shares(profile, row, whole)
        place = f"{row.frame.file}:{row.frame.line}" if row.frame.line else row.frame.file
        cells = (
            row.frame.name,
            format_amount(row.own, unit),
            format_percent(own),
            format_amount(row.total, unit),
            format_percent(total),
            "" if row.calls is None else f"{row.calls:,}",
            place,
        )
        lines.append("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in cells) + "</tr>")
    return [*lines, "</tbody></table>"]
