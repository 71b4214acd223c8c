"""Points over time whose past is kept: only the newest weeks are read at every look."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar, cast

from torchstone.records import Selection
from torchstone.store.history import stretch_start
from torchstone.web.kept import Kept

DAY_S = 86_400.0
RECENT_S = 28 * DAY_S
"""Runs begin and go on in these; an older one changes only when it is resumed or judged anew."""
Stamp = Callable[[float], object]
"""Another value whenever runs until a moment, or what is shown of them, are no longer the same."""
Point = TypeVar("Point")


class Past:
    """The older parts of histories, under the state of the runs that they are of."""

    def __init__(self) -> None:
        self._known: Kept[object] = Kept(8)

    def points(
        self,
        stamp: Stamp,
        selection: Selection,
        every_s: float,
        read: Callable[[Selection], list[Point]],
    ) -> list[Point]:
        """All points of a selection, the oldest first; `read` gives those of a part of its time."""
        # Between two stretches, of each of which one run is shown; the same for all of a day.
        edge = stretch_start(time.time() - RECENT_S, every_s or DAY_S)
        if selection.since_s is not None and selection.since_s >= edge:
            return read(selection)
        if selection.until_s is not None and selection.until_s < edge:
            return read(selection)
        until = math.nextafter(edge, -math.inf)
        old = replace(selection, until_s=until)
        key = (stamp(until), old, every_s)
        known = cast("list[Point]", self._known.get(key, lambda: read(old)))
        return [*known, *read(replace(selection, since_s=edge))]
