"""A profile as a picture: a flame graph that stands alone, without a script."""

from __future__ import annotations

import os.path
import zlib
from dataclasses import dataclass, field

from torchstone.records import CallTree, Frame, Profile, UsageError
from torchstone.records.format import format_percent
from torchstone.show.profile_text import call_tree, cost_words, format_amount, repeated_names
from torchstone.show.svg import FONT, clean
from torchstone.show.table import clip

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
