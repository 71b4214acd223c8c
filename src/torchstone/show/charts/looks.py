"""How series are told apart: by colour, by shape and by dash, never by colour alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from torchstone.show.svg import number

COLOURS = ("blue", "main", "teal", "pink", "gold", "purple", "green", "slate")
"""The first four stay apart in the common kinds of colour blindness (at least 12 in CIE Lab, as
simulated with the matrices of Machado et al. 2009); the others have their shapes and dashes."""
_DASHES = ("", "7 4", "2 4", "9 3 2 3")

Maker = Callable[[float, float, float], str]


def _circle(x: float, y: float, r: float) -> str:
    return f"M{number(x - r)} {number(y)}{_turns(r)}"


@cache
def _turns(r: float) -> str:
    size = number(r)
    turn = f"a{size} {size} 0 1 0"
    return f"{turn} {number(2 * r)} 0{turn} {number(-2 * r)} 0Z"


def _square(x: float, y: float, r: float) -> str:
    side = number(1.76 * r)
    corner = f"M{number(x - 0.88 * r)} {number(y - 0.88 * r)}"
    return f"{corner}h{side}v{side}h-{side}Z"


def _polygon(*corners: tuple[float, float]) -> Maker:
    """From the first corner on by steps, which are the same wherever it stands."""
    (right, down), *others = corners

    @cache
    def steps(r: float) -> str:
        made, last = "", corners[0]
        for corner in others:
            made += f"l{number((corner[0] - last[0]) * r)} {number((corner[1] - last[1]) * r)}"
            last = corner
        return f"{made}Z"

    return lambda x, y, r: f"M{number(x + right * r)} {number(y + down * r)}{steps(r)}"


_UP = _polygon((0, -1.2), (1.15, 0.85), (-1.15, 0.85))
_DOWN = _polygon((0, 1.2), (1.15, -0.85), (-1.15, -0.85))
_DIAMOND = _polygon((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0))
_HOUSE = _polygon((0, -1.2), (1.1, -0.3), (0.75, 1.05), (-0.75, 1.05), (-1.1, -0.3))
_BAR = _polygon((-0.55, -1.3), (0.55, -1.3), (0.55, 1.3), (-0.55, 1.3))
_HOURGLASS = _polygon((-1, -1.1), (1, -1.1), (0.3, 0), (1, 1.1), (-1, 1.1), (-0.3, 0))
_SHAPES: tuple[Maker, ...] = (_circle, _square, _UP, _DIAMOND, _DOWN, _HOUSE, _BAR, _HOURGLASS)


@dataclass(frozen=True)
class Look:
    """A colour's role, a shape, a dash."""

    colour: str
    shape: Maker
    dash: str


def look(role: int) -> Look:
    """Of a small number; 64 of them differ in colour or shape, and neighbours in all three."""
    turn = role // len(COLOURS)
    return Look(
        COLOURS[role % len(COLOURS)],
        _SHAPES[(role + turn) % len(_SHAPES)],
        _DASHES[(role + turn) % len(_DASHES)],
    )


def cross(x: float, y: float, r: float) -> str:
    """Two strokes."""
    side, back = number(2 * r), number(-2 * r)
    first = f"M{number(x - r)} {number(y - r)}l{side} {side}"
    return f"{first}m{back} 0l{side} {back}"


circle, up, down, diamond = _circle, _UP, _DOWN, _DIAMOND
