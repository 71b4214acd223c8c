"""Histories for the tests of charts, made from a seed; and eyes for what was drawn."""

from __future__ import annotations

import json
import math
import random
import re
import xml.etree.ElementTree as ET
from typing import Any

from torchstone.show.charts import Point, Series

DAY = 86_400
FIRST = 1_791_000_000
"""2026-10-03, in the morning."""
HOSTILE = "<img src=x onerror=alert(1)>\" onload='x' & ]]> \u202e evil"
NAMESPACE = "{http://www.w3.org/2000/svg}"


def history(
    count: int,
    base: float = 1.4,
    *,
    failed: tuple[int, ...] = (),
    missing: tuple[int, ...] = (),
    step: float = DAY,
    seed: int = 1,
) -> tuple[Point, ...]:
    rng = random.Random(seed)
    made = []
    for i in range(count):
        commit = f"{i * 2654435761 % 16**7:07x}"
        told = {"label": commit, "href": f"/runs/{commit}?case=a&b"}
        value = base * (1 + rng.gauss(0, 0.01))
        at = FIRST + i * step
        if i in failed:
            made.append(Point(at, math.nan, mark="failed", note="crash: killed", **told))
        elif i in missing:
            made.append(Point(at, math.nan, **told))
        else:
            made.append(Point(at, value, value * 0.98, value * 1.02, **told))
    return tuple(made)


def series(name: str, count: int, base: float = 1.4, **more: Any) -> Series:
    return Series(name, history(count, base, **more))


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)


def groups(root: ET.Element, kind: str) -> list[ET.Element]:
    return [
        element
        for element in root.iter(f"{NAMESPACE}g")
        if kind in element.get("class", "").split()
    ]


def paths(element: ET.Element, kind: str) -> list[ET.Element]:
    """The paths with that class, such as `s-blue`."""
    return [
        path for path in element.iter(f"{NAMESPACE}path") if kind in path.get("class", "").split()
    ]


def texts(root: ET.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{NAMESPACE}text")]


def strokes(d: str) -> list[list[tuple[float, float]]]:
    """The corners of each stroke of a path of absolute moves and lines."""
    found = []
    for part in re.split("M", d)[1:]:
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", part)]
        found.append(list(zip(numbers[::2], numbers[1::2], strict=True)))
    return found


def rows(group: ET.Element) -> list[list[Any]]:
    """The data that scripts read."""
    found: list[list[Any]] = json.loads(group.get("data-points", "[]"))
    return found
