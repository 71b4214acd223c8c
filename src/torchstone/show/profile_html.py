"""Profiles as one HTML file that needs nothing else: no server, no network, no library."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from torchstone.records import (
    Bytecode,
    CallTree,
    FunctionCalls,
    LineTable,
    MemoryUse,
    Profile,
    Spans,
    UsageError,
)
from torchstone.records.format import format_percent
from torchstone.show.bundle import asset, bundle
from torchstone.show.markdown import plain
from torchstone.show.profile_text import (
    call_tree,
    check_spans,
    check_tree,
    cost_words,
    facts_of,
    format_amount,
    shares,
    top_functions,
    unit_of,
    whole_of,
    work_of,
)
from torchstone.show.table import sanitise

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# Long columns as few bytes: what a page with a million spans is made of.
#
# Integers are kept as differences to the smallest one, or to the one before where they grow, in as
# many bytes as the largest needs; the first bytes of all come first, then the second bytes, because
# that compresses best. Floats are kept whole, in the same order of bytes. `data.js` reads it.


MOST_EXACT = 2**53
"""The largest integer that a JavaScript number holds exactly."""
_SMALL = 2**31 - 1
COMPRESS_FROM = 64 * 1024
"""Bytes from which the page's data are compressed; smaller ones stay readable."""
_GZIP_LEVEL = 6
FORMAT = 1


class Columns:
    """Columns gathered into one body of bytes; each `add` answers with its description."""

    def __init__(self) -> None:
        self.body = bytearray()

    def integers(
        self, values: Sequence[int] | NDArray[np.int64], *, growing: bool = False
    ) -> dict[str, Any]:
        """A column of integers; `growing` ones mostly rise, and are kept as steps."""
        import numpy as np

        array = _exact(values)
        small = not array.size or bool(max(abs(int(array.min())), abs(int(array.max()))) <= _SMALL)
        stored = np.diff(array, prepend=np.int64(0)) if growing else array
        low = int(stored.min()) if stored.size else 0
        shifted = (stored - low).astype("<u8")
        width = (int(shifted.max()).bit_length() + 7) // 8 if shifted.size else 0
        place = self._append(shifted.view(np.uint8).reshape(-1, 8)[:, :width])
        kind = "steps" if growing else "integers"
        form = "i4" if small else "f8"
        return _column(place, array.size, kind, form=form, width=width, low=low)

    def numbers(self, values: Sequence[float]) -> dict[str, Any]:
        """A column of floats; what is not finite becomes 0, whole numbers are kept as such."""
        import numpy as np

        array = np.nan_to_num(np.asarray(values, dtype=np.float64), posinf=0.0, neginf=0.0)
        whole = (array == np.trunc(array)) & (np.abs(array) < MOST_EXACT)
        if array.size and bool(np.all(whole)):
            return self.integers(array.astype(np.int64))
        place = self._append(array.astype("<f8").view(np.uint8).reshape(-1, 8))
        return _column(place, array.size, "floats")

    def _append(self, planes: NDArray[np.uint8]) -> int:
        place = len(self.body)
        self.body += planes.T.tobytes()
        return place


def _exact(values: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    import numpy as np

    try:
        array = np.asarray(values, dtype=np.int64)
    except OverflowError:
        array = np.asarray([max(-MOST_EXACT, min(MOST_EXACT, v)) for v in values], dtype=np.int64)
    return np.clip(array, -MOST_EXACT, MOST_EXACT)


def _column(place: int, count: int, kind: str, **more: Any) -> dict[str, Any]:
    return {"column": {"at": place, "count": int(count), "kind": kind, **more}}


def container(head: Any, body: bytes) -> bytes:
    """Head and body in one: the head's length in four bytes, the head as JSON, the body."""
    text = json.dumps(head, allow_nan=False, separators=(",", ":")).encode("ascii")
    return len(text).to_bytes(4, "little") + text + body


def embedded(head: Any, body: bytes) -> str:
    """Head and body as JSON text that can stand inside a script element of type JSON."""
    whole = container(head, body)
    if len(whole) < COMPRESS_FROM:
        data = {"format": FORMAT, "head": head, "body": base64.b64encode(body).decode("ascii")}
    else:
        # No time stamp, so that the same profile gives the same page.
        packed = gzip.compress(whole, _GZIP_LEVEL, mtime=0)
        data = {"format": FORMAT, "gzip": base64.b64encode(packed).decode("ascii")}
    return script_safe(json.dumps(data, allow_nan=False, separators=(",", ":")))


def script_safe(text: str) -> str:
    """JSON text without a sign that could end the script element or open a comment in it."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# Profiles as the data of a page: short things as JSON, long ones as packed columns.
#
# All text is made harmless here: characters without a picture are shown as escapes.


LONGEST_TEXT = 2000
"""Characters of a name or a line of source that are kept: nobody reads on, and pages must open."""
TAB = 4


class _Strings:
    """Each text once, and its number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._known: dict[str, int] = {}

    def add(self, text: str) -> int:
        number = self._known.get(text)
        if number is None:
            number = self._known[text] = len(self.texts)
            self.texts.append(shown(text))
        return number


def shown(text: str) -> str:
    """Text from outside as it may be shown."""
    if len(text) > LONGEST_TEXT:
        text = text[: LONGEST_TEXT - 1] + "…"
    return sanitise(text)


def profile_json(profiles: Sequence[Profile], title: str) -> str:
    """The data for a stand-alone page, safe inside a script element of type JSON."""
    return embedded(*_gathered(profiles, title))


def _gathered(profiles: Sequence[Profile], title: str) -> tuple[dict[str, Any], bytes]:
    strings, columns = _Strings(), Columns()
    packed = [_profile(profile, strings, columns) for profile in profiles]
    head = {"title": shown(title), "profiles": packed, "strings": strings.texts}
    return head, bytes(columns.body)


def _profile(profile: Profile, strings: _Strings, columns: Columns) -> dict[str, Any]:
    frames = profile.frames
    tree = call_tree(profile)
    if profile.tree is not None and profile.spans is not None:
        check_spans(profile.spans, len(frames))
    return {
        **_words(profile),
        "frames": {
            "name": columns.integers([strings.add(frame.name) for frame in frames]),
            "file": columns.integers([strings.add(frame.file) for frame in frames]),
            "line": columns.integers([frame.line for frame in frames]),
            "kind": columns.integers([strings.add(frame.kind) for frame in frames]),
        },
        "threads": [
            {"name": shown(t.name), "id": t.id, "process": t.process, "critical": t.critical}
            for t in profile.threads
        ],
        "tree": None if tree is None else _tree(tree, columns),
        "gathered": profile.tree is None and tree is not None,
        "spans": _spans(profile.spans, columns),
        "functions": _functions(profile.functions, columns),
        "lines": [_lines(table, strings, columns) for table in profile.lines],
        "bytecode": [_bytecode(code, strings, columns) for code in profile.bytecode],
        "memory": None if profile.memory is None else _memory(profile, profile.memory, columns),
    }


def _words(profile: Profile) -> dict[str, Any]:
    """What is short enough to be JSON."""
    return {
        "id": shown(profile.id),
        "label": shown(profile.label),
        "created": shown(profile.created),
        "how": shown(profile.how),
        "tool": shown(profile.tool),
        "origin": shown(profile.origin),
        "machine": shown(profile.machine_id),
        "version": shown(profile.version),
        "command": [shown(part) for part in profile.command],
        "steps": profile.steps,
        "wall_s": plain(profile.wall_s),
        "estimated": profile.estimated,
        "problems": [shown(text) for text in profile.problems],
        "notes": [shown(text) for text in profile.notes],
        "facts": [[shown(str(key)), shown(str(value))] for key, value in profile.facts.items()],
        "counters": [
            {
                "name": shown(counter.name),
                "value": plain(counter.value),
                "unit": shown(counter.unit),
                "note": shown(counter.note),
            }
            for counter in profile.counters
        ],
        "sampling": plain(profile.sampling),
        "cost": plain(profile.cost),
    }


def _tree(tree: CallTree, columns: Columns) -> dict[str, Any]:
    return {
        "unit": shown(tree.unit),
        "parents": columns.integers(tree.parents),
        "frames": columns.integers(tree.frames),
        "own": columns.numbers(tree.own),
        "threads": columns.integers(tree.threads),
        "calls": columns.integers(tree.calls) if tree.calls else None,
    }


def _spans(spans: Spans | None, columns: Columns) -> dict[str, Any] | None:
    if spans is None or not spans.frames:
        return None
    return {
        "frames": columns.integers(spans.frames),
        "threads": columns.integers(spans.threads),
        "start": columns.integers(spans.start_ns, growing=True),
        "duration": columns.integers(spans.duration_ns),
    }


def _functions(functions: Sequence[FunctionCalls], columns: Columns) -> dict[str, Any] | None:
    """Functions, and their callers in a second set of columns: those of function i stand from
    `first[i]` to `first[i + 1]`."""
    if not functions:
        return None
    of = [entry.of for entry in functions]
    callers = [caller for entry in functions for caller in entry.callers]
    first = [0]
    for entry in functions:
        first.append(first[-1] + len(entry.callers))
    packed: dict[str, Any] = {"first": columns.integers(first, growing=True)}
    for name, calls in (("of", of), ("callers", callers)):
        packed[name] = {
            "frame": columns.integers([call.frame for call in calls]),
            "calls": columns.integers([call.calls for call in calls]),
            "primitive": columns.integers([call.primitive for call in calls]),
            "own": columns.numbers([call.own_s for call in calls]),
            "total": columns.numbers([call.total_s for call in calls]),
        }
    return packed


def _lines(table: LineTable, strings: _Strings, columns: Columns) -> dict[str, Any]:
    return {
        "file": shown(table.file),
        "line": columns.integers(table.lines, growing=True),
        "hits": columns.integers(table.hits) if table.hits else None,
        "seconds": columns.numbers(table.seconds) if table.seconds else None,
        "bytes": columns.integers(table.bytes) if table.bytes else None,
        "increment": columns.integers(table.increment) if table.increment else None,
        "text": columns.integers([strings.add(line.expandtabs(TAB)) for line in table.text]),
    }


def _bytecode(code: Bytecode, strings: _Strings, columns: Columns) -> dict[str, Any]:
    steps = code.instructions
    return {
        "frame": code.frame,
        "offset": columns.integers([step.offset for step in steps], growing=True),
        "line": columns.integers([step.line for step in steps]),
        "name": columns.integers([strings.add(step.name) for step in steps]),
        "argument": columns.integers([strings.add(step.argument) for step in steps]),
        "specialised": columns.integers([strings.add(step.specialised) for step in steps]),
        "target": columns.integers([int(step.jump_target) for step in steps]),
    }


def _memory(profile: Profile, memory: MemoryUse, columns: Columns) -> dict[str, Any]:
    if memory.at_peak is not None:
        check_tree(memory.at_peak, len(profile.frames))
    alive = sorted(memory.alive, key=lambda tensor: -tensor.bytes)
    return {
        "time": columns.integers(memory.time_ns, growing=True),
        "resident": columns.integers(memory.resident) if memory.resident else None,
        "heap": columns.integers(memory.heap) if memory.heap else None,
        "peak_bytes": memory.peak_bytes,
        "peak_ns": memory.peak_ns,
        "at_peak": None if memory.at_peak is None else _tree(memory.at_peak, columns),
        "source": shown(memory.source),
        "alive": [
            {
                "what": shown(tensor.what),
                "count": tensor.count,
                "bytes": tensor.bytes,
                "stack": [frame for frame in tensor.stack if 0 <= frame < len(profile.frames)],
            }
            for tensor in alive
        ],
    }


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
