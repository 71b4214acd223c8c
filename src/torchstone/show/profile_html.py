"""Profiles as one HTML file that needs nothing else: no server, no network, no library.

A profile as a picture: a flame graph that stands alone, without a script.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os.path
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from torchstone.records import CallTree, Frame, FunctionCalls, MemoryUse, Profile, Spans, UsageError
from torchstone.records.format import format_percent
from torchstone.show import profile_text as words
from torchstone.show.bundle import asset, bundle
from torchstone.show.markdown import plain
from torchstone.show.profile_text import call_tree, cost_words, format_amount, repeated_names
from torchstone.show.svg import FONT, clean
from torchstone.show.table import clip, sanitise

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
LONGEST_TEXT = 2000
"""Characters of a name or a line of source that are kept: nobody reads on, and pages must open."""
TAB = 4
Packed = dict[str, Any]


def shown(text: str) -> str:
    """Text from outside as it may be shown: characters without a picture as escapes."""
    if len(text) > LONGEST_TEXT:
        text = text[: LONGEST_TEXT - 1] + "…"
    return sanitise(text)


def harmless(value: Any) -> Any:
    """A record as plain data whose texts may all be shown."""
    value = plain(value)
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, dict):
        return {shown(key): harmless(item) for key, item in value.items()}
    return [harmless(item) for item in value] if isinstance(value, list) else value


class Columns:
    """Columns gathered into one body of bytes, and each of their texts once. A column is added by
    its kind, and answered with its description."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.strings: list[str] = []
        self._known: dict[str, int] = {}

    def integers(self, values: Iterable[int], *, growing: bool = False) -> Packed:
        """A column of integers; `growing` ones mostly rise, and are kept as steps."""
        import numpy as np

        array = _exact(values if isinstance(values, (Sequence, np.ndarray)) else list(values))
        small = not array.size or bool(max(abs(int(array.min())), abs(int(array.max()))) <= _SMALL)
        stored = np.diff(array, prepend=np.int64(0)) if growing else array
        low = int(stored.min()) if stored.size else 0
        shifted = (stored - low).astype("<u8")
        width = (int(shifted.max()).bit_length() + 7) // 8 if shifted.size else 0
        form = {"form": "i4" if small else "f8", "width": width, "low": low}
        planes = shifted.view(np.uint8).reshape(-1, 8)[:, :width]
        return self._column(planes, array.size, "steps" if growing else "integers", **form)

    def counted(self, values: Sequence[int]) -> Packed | None:
        """A column of integers that not every profile has."""
        return self.integers(values) if values else None

    def numbers(self, values: Iterable[float]) -> Packed:
        """A column of floats; what is not finite becomes 0, whole numbers are kept as such."""
        import numpy as np

        array = np.nan_to_num(np.array(list(values), dtype=np.float64), posinf=0.0, neginf=0.0)
        whole = (array == np.trunc(array)) & (np.abs(array) < MOST_EXACT)
        if array.size and bool(np.all(whole)):
            return self.integers(array.astype(np.int64))
        planes = array.astype("<f8").view(np.uint8).reshape(-1, 8)
        return self._column(planes, array.size, "floats")

    def texts(self, values: Iterable[str]) -> Packed:
        """A column of texts, as the numbers that they have in `strings`."""
        return self.integers([self._number(text) for text in values])

    def _number(self, text: str) -> int:
        number = self._known.get(text)
        if number is None:
            number = self._known[text] = len(self.strings)
            self.strings.append(shown(text))
        return number

    def _column(self, planes: NDArray[np.uint8], count: int, kind: str, **more: Any) -> Packed:
        place = len(self.body)
        self.body += planes.T.tobytes()
        return {"column": {"at": place, "count": int(count), "kind": kind, **more}}


def _exact(values: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    import numpy as np

    try:
        array = np.asarray(values, dtype=np.int64)
    except OverflowError:
        array = np.asarray([max(-MOST_EXACT, min(MOST_EXACT, v)) for v in values], dtype=np.int64)
    return np.clip(array, -MOST_EXACT, MOST_EXACT)


def profile_json(profiles: Sequence[Profile], title: str) -> str:
    """The data for a stand-alone page, safe inside a script element of type JSON."""
    columns = Columns()
    packed = [_profile(profile, columns) for profile in profiles]
    head = {"title": shown(title), "profiles": packed, "strings": columns.strings}
    text = _dumps(head).encode("ascii")
    if len(text) + len(columns.body) < COMPRESS_FROM:
        data: Packed = {"format": FORMAT, "head": head, "body": _base64(columns.body)}
    else:
        # Head and body in one: the head's length in four bytes, the head as JSON, the body. No time
        # stamp, so that the same profile gives the same page.
        whole = len(text).to_bytes(4, "little") + text + columns.body
        data = {"format": FORMAT, "gzip": _base64(gzip.compress(whole, _GZIP_LEVEL, mtime=0))}
    # Without a sign that could end the script element or open a comment in it.
    return _dumps(data).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _dumps(data: Packed) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def _base64(data: bytes | bytearray) -> str:
    return base64.b64encode(data).decode("ascii")


# Profiles as the data of a page: short things as JSON, long ones as packed columns.


SHORT = (
    *("id", "label", "created", "how", "tool", "origin", "version", "command", "steps", "wall_s"),
    *("estimated", "problems", "notes", "counters", "sampling", "cost", "threads"),
)
"""Fields of a profile that are short enough to be JSON."""


def _profile(profile: Profile, columns: Columns) -> Packed:
    frames = profile.frames
    tree = words.call_tree(profile)
    if profile.tree is not None and profile.spans is not None:
        words.check_spans(profile.spans, len(frames))
    return {
        **{name: harmless(getattr(profile, name)) for name in SHORT},
        "machine": shown(profile.machine_id),
        "facts": [[shown(str(key)), shown(str(value))] for key, value in profile.facts.items()],
        "frames": {
            "name": columns.texts(frame.name for frame in frames),
            "file": columns.texts(frame.file for frame in frames),
            "line": columns.integers(frame.line for frame in frames),
            "kind": columns.texts(frame.kind for frame in frames),
        },
        "tree": None if tree is None else _tree(tree, columns),
        "gathered": profile.tree is None and tree is not None,
        "spans": _spans(profile.spans, columns),
        "functions": _functions(profile.functions, columns),
        "lines": [
            {
                "file": shown(table.file),
                "line": columns.integers(table.lines, growing=True),
                "hits": columns.counted(table.hits),
                "seconds": columns.numbers(table.seconds) if table.seconds else None,
                "bytes": columns.counted(table.bytes),
                "increment": columns.counted(table.increment),
                "text": columns.texts(line.expandtabs(TAB) for line in table.text),
            }
            for table in profile.lines
        ],
        "bytecode": [
            {
                "frame": code.frame,
                "offset": columns.integers((s.offset for s in code.instructions), growing=True),
                "line": columns.integers(step.line for step in code.instructions),
                "name": columns.texts(step.name for step in code.instructions),
                "argument": columns.texts(step.argument for step in code.instructions),
                "specialised": columns.texts(step.specialised for step in code.instructions),
                "target": columns.integers(int(step.jump_target) for step in code.instructions),
            }
            for code in profile.bytecode
        ],
        "memory": None if profile.memory is None else _memory(profile, profile.memory, columns),
    }


def _tree(tree: CallTree, columns: Columns) -> Packed:
    return {
        "unit": shown(tree.unit),
        "parents": columns.integers(tree.parents),
        "frames": columns.integers(tree.frames),
        "own": columns.numbers(tree.own),
        "threads": columns.integers(tree.threads),
        "calls": columns.counted(tree.calls),
    }


def _spans(spans: Spans | None, columns: Columns) -> Packed | None:
    if spans is None or not spans.frames:
        return None
    return {
        "frames": columns.integers(spans.frames),
        "threads": columns.integers(spans.threads),
        "start": columns.integers(spans.start_ns, growing=True),
        "duration": columns.integers(spans.duration_ns),
    }


def _functions(functions: Sequence[FunctionCalls], columns: Columns) -> Packed | None:
    """Functions, and their callers in a second set of columns: those of function i stand from
    `first[i]` to `first[i + 1]`."""
    if not functions:
        return None
    first = accumulate((len(entry.callers) for entry in functions), initial=0)
    packed: Packed = {"first": columns.integers(first, growing=True)}
    callers = [caller for entry in functions for caller in entry.callers]
    for name, calls in (("of", [entry.of for entry in functions]), ("callers", callers)):
        packed[name] = {
            "frame": columns.integers(call.frame for call in calls),
            "calls": columns.integers(call.calls for call in calls),
            "primitive": columns.integers(call.primitive for call in calls),
            "own": columns.numbers(call.own_s for call in calls),
            "total": columns.numbers(call.total_s for call in calls),
        }
    return packed


def _memory(profile: Profile, memory: MemoryUse, columns: Columns) -> Packed:
    frames = len(profile.frames)
    if memory.at_peak is not None:
        words.check_tree(memory.at_peak, frames)
    alive = sorted(memory.alive, key=lambda tensor: -tensor.bytes)
    return {
        "time": columns.integers(memory.time_ns, growing=True),
        "resident": columns.counted(memory.resident),
        "heap": columns.counted(memory.heap),
        "peak_bytes": memory.peak_bytes,
        "peak_ns": memory.peak_ns,
        "at_peak": None if memory.at_peak is None else _tree(memory.at_peak, columns),
        "source": shown(memory.source),
        "alive": [
            {**harmless(tensor), "stack": [one for one in tensor.stack if 0 <= one < frames]}
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
    return " · ".join(dict.fromkeys(words.work_of(one) for one in profiles))


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
    return f"'sha256-{_base64(hashlib.sha256(text.encode('utf-8')).digest())}'"


def _text(text: str) -> str:
    return escape(shown(text), quote=True)


def _plain(profile: Profile) -> str:
    """What is said where no script runs."""
    lines = [f"<h2>{_text(profile.label or profile.id)}</h2>", "<dl>"]
    for name, value in words.facts_of(profile):
        lines.append(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>")
    lines.append("</dl>")
    for heading, texts in (("Problems", profile.problems), ("Notes", profile.notes)):
        if texts:
            items = "".join(f"<li>{_text(text)}</li>" for text in texts)
            lines.append(f"<h3>{heading}</h3><ul>{items}</ul>")
    if profile.cost is not None:
        lines.append(f"<p>{_text(words.cost_words(profile.cost))}</p>")
    return "\n".join([*lines, *_top_table(profile)])


def _top_table(profile: Profile) -> list[str]:
    tree = words.call_tree(profile)
    rows, unit = words.top_functions(profile, tree, TOP), words.unit_of(profile, tree)
    if not rows:
        return []
    whole = words.whole_of(profile, tree)
    heads = ("function", "own", "share", "total", "share", "calls", "where")
    lines = ["<table><thead><tr>", *(f"<th>{head}</th>" for head in heads), "</tr></thead><tbody>"]
    for row in rows:
        own, total = words.shares(profile, row, whole)
        place = f"{row.frame.file}:{row.frame.line}" if row.frame.line else row.frame.file
        cells = (
            row.frame.name,
            words.format_amount(row.own, unit),
            format_percent(own),
            words.format_amount(row.total, unit),
            format_percent(total),
            "" if row.calls is None else f"{row.calls:,}",
            place,
        )
        lines.append("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in cells) + "</tr>")
    return [*lines, "</tbody></table>"]


WIDTH = 1200
MARGIN = 12
ROW = 18
HEAD = 58
FOOT = 26
NARROWEST = 0.4
"""Pixels; narrower boxes are left out, as what they stand for still shows in their caller."""
MOST_ROWS = 200
_LETTER = 6.7
"""Pixels a letter of the text takes, about."""
_LONGEST_TIP = 400
_HUES = 12


@dataclass
class _Box:
    """A call path: what it took in all, and what it called, by thread and frame."""

    frame: Frame
    total: float = 0.0
    own: float = 0.0
    inner: dict[tuple[int, int], _Box] = field(default_factory=dict)
    placed: bool = False
    """Its name alone does not tell which function it is."""


def profile_svg(profile: Profile) -> str:
    """The file's text. Alike call paths are one box; callers stand beneath what they call."""
    tree = call_tree(profile)
    if tree is None or not sum(tree.own) > 0:
        raise UsageError(
            "This profile has no call paths to draw.",
            "Take one with --how sample or --how trace.",
        )
    root = _gathered(profile, tree, repeated_names(profile))
    drawn, rows = _placed(root)
    height = HEAD + rows * ROW + FOOT
    label = profile.label or profile.id
    words = " · ".join(
        part for part in (profile.how, profile.tool, format_amount(root.total, tree.unit)) if part
    )
    note = cost_words(profile.cost) if profile.cost is not None else ""
    if profile.estimated:
        note = "call paths are estimated" + (f"; {note}" if note else "")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" role="img" font-family="{FONT}" font-size="12">',
        f"<title>{clean(clip(label, _LONGEST_TIP))}</title>",
        _styles(),
        f'<rect width="{WIDTH}" height="{height}" class="paper"/>',
        f'<text x="{MARGIN}" y="26" class="ink" font-size="16" font-weight="600">'
        f"{clean(clip(label, 110))}</text>",
        f'<text x="{MARGIN}" y="45" class="soft">{clean(clip(words, 150))}</text>',
        *(_drawn(box, x, row, wide, rows, root, tree.unit) for box, x, row, wide in drawn),
        f'<text x="{MARGIN}" y="{height - 9}" class="soft">{clean(clip(note, 170))}</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _gathered(profile: Profile, tree: CallTree, repeated: frozenset[str]) -> _Box:
    """Boxes by call path; where there are several threads, each has its own."""
    root = _Box(Frame("all", kind="root"))
    several = len(set(tree.threads)) > 1
    boxes: list[_Box] = []
    for parent, frame, own, thread in zip(
        tree.parents, tree.frames, tree.own, tree.threads, strict=True
    ):
        above = boxes[parent] if parent >= 0 else root
        if parent < 0 and several:
            above = above.inner.setdefault((thread, -1), _Box(_thread(profile, thread)))
        box = above.inner.setdefault((0, frame), _Box(profile.frames[frame]))
        box.placed = profile.frames[frame].name in repeated
        box.own += max(0.0, own)
        boxes.append(box)
    _sum(root)
    return root


def _thread(profile: Profile, number: int) -> Frame:
    known = profile.threads[number].name if number < len(profile.threads) else ""
    return Frame(known or f"thread {number}", kind="thread")


def _sum(root: _Box) -> None:
    """Totals from the leaves up; a stack of our own, because call paths are deep."""
    order = [root]
    for box in order:
        order.extend(box.inner.values())
    for box in reversed(order):
        box.total = box.own + sum(inner.total for inner in box.inner.values())


def _placed(root: _Box) -> tuple[list[tuple[_Box, float, int, float]], int]:
    """Boxes with their left edge, row and width, and how many rows there are."""
    scale = (WIDTH - 2 * MARGIN) / root.total
    drawn: list[tuple[_Box, float, int, float]] = []
    waiting = [(root, float(MARGIN), 0)]
    while waiting:
        box, x, row = waiting.pop()
        drawn.append((box, x, row, box.total * scale))
        if row + 1 >= MOST_ROWS:
            continue
        for inner in sorted(box.inner.values(), key=lambda one: -one.total):
            if inner.total * scale < NARROWEST:
                break
            waiting.append((inner, x, row + 1))
            x += inner.total * scale
    return drawn, max(row for _, _, row, _ in drawn) + 1


def _drawn(box: _Box, x: float, row: int, wide: float, rows: int, root: _Box, unit: str) -> str:
    y = HEAD + (rows - 1 - row) * ROW
    frame = box.frame
    place = f" ({frame.file}:{frame.line})" if frame.line else ""
    share = f"{format_amount(box.total, unit)}, {format_percent(box.total / root.total)}"
    own = f"{format_amount(box.own, unit)} by itself"
    tip = clean(f"{clip(frame.name + place, _LONGEST_TIP)}: {share}; {own}")
    room = int((wide - 6) / _LETTER)
    text = ""
    if room >= 3:
        where = f" ({os.path.basename(frame.file)}:{frame.line})"
        label = clean(clip(frame.name + (where if box.placed and frame.line else ""), room))
        text = f'<text x="{x + 4:.1f}" y="{y + 13}" class="ink">{label}</text>'
    size = f'width="{max(NARROWEST, wide - 0.6):.1f}" height="{ROW - 1}"'
    return (
        f'<g><title>{tip}</title><rect x="{x:.1f}" y="{y}" {size} class="{_colour(frame)}"/>'
        f"{text}</g>"
    )


def _colour(frame: Frame) -> str:
    if frame.kind in ("thread", "root"):
        return "head"
    home = frame.file.rpartition("/")[0] or frame.kind
    return f"c{zlib.crc32(home.encode('utf-8', 'replace')) % _HUES}"


def _styles() -> str:
    def rules(light: str, chroma: str, paper: str, ink: str, soft: str, head: str) -> str:
        fills = "".join(
            f".c{n}{{fill:hsl({(n * 150 + 24) % 360} {chroma} {light})}}" for n in range(_HUES)
        )
        roles = {"paper": paper, "ink": ink, "soft": soft, "head": head}
        return "".join(f".{name}{{fill:{value}}}" for name, value in roles.items()) + fills

    light = rules("82%", "72%", "#ffffff", "#1b1f24", "#5f6873", "#e9ecf0")
    dark = rules("34%", "46%", "#14171c", "#f2f4f7", "#9aa4b1", "#2a313b")
    return f"<style>{light}@media (prefers-color-scheme: dark){{{dark}}}</style>"
