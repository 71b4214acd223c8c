"""A small maker of stand-alone SVG: no scripts, nothing fetched, readable in light and in dark.

Text is escaped and stripped of characters without a picture. Colours are roles, defined once for
both schemes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

from torchstone.show.text import sanitise

FONT = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
_LIGHT = {
    "paper": "#ffffff",
    "ink": "#1b1f24",
    "soft": "#5f6873",
    "grid": "#e4e7eb",
    "main": "#c2410c",
    "blue": "#1d4ed8",
    "green": "#15803d",
    "purple": "#7e22ce",
    "teal": "#0f766e",
}
_DARK = {
    "paper": "#14171c",
    "ink": "#e6e9ee",
    "soft": "#9aa4b1",
    "grid": "#2b313a",
    "main": "#fb923c",
    "blue": "#7aa7ff",
    "green": "#4ade80",
    "purple": "#d8a4ff",
    "teal": "#5eead4",
}
COLOURS = tuple(_LIGHT)


@dataclass
class Svg:
    """Shapes in the order they are drawn. Coordinates are pixels from the upper left."""

    width: int
    height: int
    title: str
    description: str = ""
    _parts: list[str] = field(default_factory=list)

    def line(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        colour: str = "ink",
        thick: float = 1.0,
        dashed: bool = False,
    ) -> None:
        """A straight line."""
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self._parts.append(
            f'<line x1="{_n(start[0])}" y1="{_n(start[1])}" x2="{_n(end[0])}" y2="{_n(end[1])}" '
            f'class="s-{_role(colour)}" stroke-width="{_n(thick)}"{dash}/>'
        )

    def circle(
        self, centre: tuple[float, float], radius: float, colour: str = "ink", hollow: bool = False
    ) -> None:
        """A filled disc, or a ring."""
        kind = f"s-{_role(colour)} f-paper" if hollow else f"f-{_role(colour)}"
        self._parts.append(
            f'<circle cx="{_n(centre[0])}" cy="{_n(centre[1])}" r="{_n(radius)}" class="{kind}" '
            'stroke-width="1.5"/>'
        )

    def text(
        self,
        place: tuple[float, float],
        text: str,
        colour: str = "ink",
        size: float = 12,
        anchor: str = "start",
        bold: bool = False,
        turn: float = 0.0,
    ) -> None:
        """A line of text; `turn` is in degrees, clockwise, about its place."""
        x, y = _n(place[0]), _n(place[1])
        turned = f' transform="rotate({_n(turn)} {x} {y})"' if turn else ""
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x}" y="{y}" class="f-{_role(colour)}" font-size="{_n(size)}" '
            f'text-anchor="{_anchor(anchor)}"{weight}{turned}>{clean(text)}</text>'
        )

    def render(self) -> str:
        """The whole file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" role="img" font-family="{FONT}">'
        )
        said = f"<title>{clean(self.title)}</title>"
        if self.description:
            said += f"<desc>{clean(self.description)}</desc>"
        paper = f'<rect width="{self.width}" height="{self.height}" class="f-paper"/>'
        return "\n".join([head, said, _styles(), paper, *self._parts, "</svg>"]) + "\n"


def clean(text: str) -> str:
    """Text from outside as SVG text."""
    return escape(sanitise(text), quote=True)


def text_width(text: str, size: float) -> float:
    """About how wide a text is drawn: 0.56 of its size a character, as of common sans fonts."""
    return 0.56 * size * len(text)


def spread_labels(wanted: list[float], gap: float, low: float, high: float) -> list[float]:
    """Positions as near to the wanted ones as may be, at least `gap` apart, within the ends.

    Where there is no room for all, they are `gap` apart and run over the high end.
    """
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    placed: dict[int, float] = {}
    last = low - gap
    for index in order:
        last = max(wanted[index], last + gap)
        placed[index] = last
    limit = high
    for index in reversed(order):
        placed[index] = max(min(placed[index], limit), low)
        limit = placed[index] - gap
    last = low - gap
    for index in order:
        last = placed[index] = max(placed[index], last + gap)
    return [placed[index] for index in range(len(wanted))]


def _styles() -> str:
    def rules(colours: dict[str, str]) -> str:
        return "".join(
            f".f-{name}{{fill:{value}}}.s-{name}{{stroke:{value}}}"
            for name, value in colours.items()
        )

    dark = f"@media (prefers-color-scheme: dark){{{rules(_DARK)}}}"
    return f"<style>{rules(_LIGHT)}{dark}</style>"


def _role(colour: str) -> str:
    if colour not in COLOURS:
        raise ValueError(f"there is no colour {colour!r}")
    return colour


def _anchor(anchor: str) -> str:
    if anchor not in ("start", "middle", "end"):
        raise ValueError(f"text is not anchored at {anchor!r}")
    return anchor


def _n(value: float) -> str:
    """A coordinate with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
