"""A case while it is measured: a table that fills on a terminal, a few plain lines elsewhere.

Every figure in it is provisional and says so; the report that follows has the ones that count.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from torchstone.records.format import (
    count,
    format_interval,
    format_percent,
    format_ratio,
    format_seconds,
    half_width,
    ratio_decimals,
)
from torchstone.show.progress import REDRAW_S, Progress, can_rewrite, left
from torchstone.show.table import cells, pad, shorten

if TYPE_CHECKING:
    from torchstone.conductor import ArmNow

PROVISIONAL = "provisional"
SAID_AT = (1, 2, 4, 8, 16)
"""Processes after which a line is written where lines stay: each narrows the interval visibly."""
LEAST_NAME, ROWS_KEPT_FREE = 8, 3
WORTH_SAYING_S = 5.0
"""A shorter wait needs no estimate."""


class LiveProgress(Progress):
    """`Progress` with the arms' provisional figures above its line, redrawn in place.

    Where lines stay, one is written for the first figure of each arm and after a few processes.
    """

    _rows: Sequence[ArmNow] = ()
    _ends_at: float | None = None
    _said: frozenset[tuple[str, int]] = frozenset()
    _height = 0
    _doing = ""

    def phase(self, text: str) -> None:
        """A new part of the work begins."""
        self._doing = text
        if not self._live:
            super().phase(text)
        elif text != self._phase:
            self._phase = text
            self._draw(self._status())

    def doing(self, text: str) -> None:
        """What goes on within the part: only where it can be drawn over."""
        self._doing = text
        self.tick()

    def note(self, text: str) -> None:
        """Stays, above whatever is drawn."""
        if self._live:
            self._wipe()
            self._write(f"{self._style.safe(text)}\n")
            self._draw(self._status())
        else:
            self._line(text)

    def expect(self, seconds_left: float, why: str) -> None:
        """How long it will probably still take; written once where lines stay."""
        now = self._clock()
        if not self._live and self._ends_at is None and seconds_left >= WORTH_SAYING_S:
            self._line(f"about {_about(seconds_left)} to go: {why}")
        self._ends_at = now + seconds_left
        self.tick()

    def provisional(self, arms: Sequence[ArmNow]) -> None:
        """Every arm as it is known by now."""
        self._rows = arms
        if self._live:
            self.tick()
            return
        known = {(arm.name, arm.processes) for arm in arms if arm.seconds is not None}
        new = {key for key in known - self._said if key[1] in (0, *SAID_AT)}
        # Of processes a line is written when all arms have finished theirs.
        least = min((arm.processes for arm in arms if not arm.outcome), default=0)
        new = {key for key in new if key[1] <= least}
        if new:
            self._said = self._said | new
            self._line(f"{PROVISIONAL}: {self._sentence()}")

    def update(
        self, done_fraction: float, text: str = "", seconds_left: float | None = None
    ) -> None:
        """How far the phase is; drawn at most ten times a second, and never off a terminal."""
        if self._ends_at is None:
            super().update(done_fraction, text, seconds_left)
            return
        if seconds_left is not None:
            self._ends_at = self._clock() + seconds_left
        self._doing = f"measuring: {text}" if text else self._doing
        self.tick()

    def tick(self) -> None:
        """Draw again what is known, with the time that is left now."""
        if self._live and self._clock() - self._drawn_at >= REDRAW_S:
            self._draw(self._status())

    def close(self) -> None:
        """Wipe everything, so that the report starts on a clean line."""
        if self._dirty and self._height:
            self._wipe()
        super().close()

    def _line(self, text: str) -> None:
        passed = self._clock() - self._started
        self._write(f"[{passed:4.0f} s] {self._style.safe(text)}\n")

    def _sentence(self) -> str:
        parts = []
        for arm in self._rows:
            words = [arm.name, *(part for part in self._figures(arm) if part)]
            if len(words) > 1:
                parts.append(" ".join(words))
        return f"{', '.join(parts)} ({self._basis()})"

    def _figures(self, arm: ArmNow) -> tuple[str, str, str, str]:
        """Time, its spread, speed-up, its interval."""
        plain = self._style.ascii_only
        if arm.outcome or arm.seconds is None:
            return arm.outcome, "", "", ""
        share = half_width(arm.seconds, arm.spread) if arm.spread else None
        spread = ""
        if share is not None:
            shown = format_percent(share) if share <= 1 else ">100 %"
            spread = f"{self._style.glyphs.plus_minus}{shown}"
        speedup = ends = ""
        if arm.speedup is not None:
            decimals = ratio_decimals(arm.speedup, arm.interval)
            speedup = format_ratio(arm.speedup, decimals, ascii_only=plain)
            if arm.interval is not None:
                ends = format_interval(arm.interval, decimals, ascii_only=plain)
        return format_seconds(arm.seconds, 3, ascii_only=plain), spread, speedup, ends

    def _basis(self) -> str:
        """What the figures rest on."""
        known = [arm for arm in self._rows if arm.seconds]
        least = min((arm.processes for arm in known), default=0)
        if not least:
            return "first calls"
        unit = known[0].unit
        return count(least, unit, f"{unit}es")

    def _table(self, room: int) -> list[str]:
        shown = [arm for arm in self._rows if arm.seconds is not None or arm.outcome]
        if not shown:
            return []
        style = self._style
        drawn = [[style.safe(arm.name), *self._figures(arm)] for arm in shown]
        widths = [max(cells(row[i]) for row in drawn) for i in range(5)]
        rest = sum(width + 2 for width in widths[1:])
        widths[0] = max(LEAST_NAME, min(widths[0], room - 2 - rest))
        lines = []
        for row in drawn:
            name = shorten(row[0], widths[0], style.glyphs.ellipsis)
            others = (pad(row[i], widths[i], right=i in (1, 3)) for i in range(1, 5))
            lines.append("  ".join(["", pad(name, widths[0]), *others]).rstrip())
        most = max(1, self._terminal_height() - ROWS_KEPT_FREE)
        return lines[:most]

    def _status(self) -> str:
        parts = [self._style.safe(self._doing)]
        if self._ends_at is not None:
            now = self._clock()
            remaining = max(0.0, self._ends_at - now)
            passed = now - self._started
            done = passed / (passed + remaining) if passed + remaining > 0 else 0.0
            over = remaining == 0.0
            parts.insert(0, "a little longer than expected" if over else left(remaining))
            parts.insert(0, self._bar(min(0.99, done)))
        if any(arm.seconds is not None for arm in self._rows):
            parts.append(f"{PROVISIONAL}, {self._basis()}")
        return "  ".join(part for part in parts if part)

    def _draw(self, text: str) -> None:
        table = self._table(self._width() - 1)
        if not table and not self._height:
            super()._draw(text)
            return
        room, style = self._width() - 1, self._style
        status = shorten(text, room, style.glyphs.ellipsis)
        lines = [*(shorten(line, room, style.glyphs.ellipsis) for line in table), status]
        body = "\x1b[K\n".join([*lines[:-1], style.paint(lines[-1], "dim")])
        self._write(f"{self._home()}{body}\x1b[K\x1b[J")
        self._height, self._dirty = len(lines) - 1, True
        self._drawn_at = self._clock()

    def _home(self) -> str:
        """To the first column of the first line drawn."""
        return "\r" + (f"\x1b[{self._height}A" if self._height else "")

    def _wipe(self) -> None:
        if self._dirty:
            self._write(f"{self._home()}\x1b[J")
        self._height, self._dirty = 0, False

    def _terminal_height(self) -> int:
        lines = 0
        with suppress(OSError, ValueError):
            lines = os.get_terminal_size(self._stream.fileno()).lines if self._stream else 0
        return lines or 24


def _about(seconds: float) -> str:
    """`50 s`, `3 min`: an estimate has no more digits."""
    if seconds < 90:
        return f"{max(5, round(seconds / 5) * 5)} s"
    return f"{round(seconds / 60)} min"


def make_progress(stream: TextIO) -> LiveProgress:
    """Progress that suits the stream: live on a terminal that can rewrite lines."""
    live = can_rewrite(stream)
    return LiveProgress(stream, live=live, color=live and not os.environ.get("NO_COLOR"))
