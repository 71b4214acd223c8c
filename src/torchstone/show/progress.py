"""Progress while measuring, on stderr. It draws only when called: a thread would be noise."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TextIO

from torchstone.show.style import can_unicode
from torchstone.show.text import sanitise, shorten

REDRAW_S = 0.1
"""Ten redraws a second look lively; more would only cost time between turns."""
BAR_WIDTH = 24
_PLAIN_WIDTH = 80


class Progress:
    """One line that rewrites itself on a terminal; elsewhere a plain line for each new phase, with
    the time since the beginning.

    A stream that is closed or full is left alone: no measurement dies of its progress bar.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        enabled: bool = True,
        live: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._enabled = enabled
        self._live = live
        self._clock = clock
        self._unicode = can_unicode(stream)
        self._started = clock()
        self._phase = ""
        self._drawn_at = float("-inf")
        self._dirty = False

    def phase(self, text: str) -> None:
        """A new part of the work begins."""
        if text == self._phase:
            return
        self._phase = text
        if self._live:
            self._draw(self._clean(text))
        else:
            self._write(f"[{self._clock() - self._started:4.0f} s] {self._clean(text)}\n")

    def update(
        self, done_fraction: float, text: str = "", seconds_left: float | None = None
    ) -> None:
        """How far the phase is; drawn at most ten times a second, and never off a terminal."""
        if not self._live or self._clock() - self._drawn_at < REDRAW_S:
            return
        done = min(1.0, max(0.0, done_fraction)) if done_fraction == done_fraction else 0.0
        parts = [self._bar(done), f"{done:4.0%}", left(seconds_left), self._clean(text)]
        self._draw("  ".join(part for part in parts if part))

    def close(self) -> None:
        """Wipe the line, so that the report starts on a clean one."""
        if self._dirty:
            self._write("\r\x1b[K")
            self._dirty = False
        self._enabled = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _clean(self, text: str) -> str:
        return sanitise(text, ascii_only=not self._unicode)

    def _bar(self, done: float) -> str:
        full, rest = ("━", "─") if self._unicode else ("#", "-")
        count = round(done * BAR_WIDTH)
        return full * count + rest * (BAR_WIDTH - count)

    def _draw(self, text: str) -> None:
        ellipsis = "…" if self._unicode else "..."
        self._write("\r" + shorten(text, self._width() - 1, ellipsis) + "\x1b[K")
        self._drawn_at, self._dirty = self._clock(), True

    def _width(self) -> int:
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except (OSError, ValueError):
            columns = 0
        return max(20, columns or _PLAIN_WIDTH)  # some terminals do not know and say 0

    def _write(self, text: str) -> None:
        if not self._enabled:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._enabled = False


def left(seconds: float | None) -> str:
    """`12 s left`, `3 min 05 s left`; nothing when it is not known."""
    if seconds is None or not 0 <= seconds < 360_000:
        return ""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s left"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s left"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min left"


def make_progress(stream: TextIO, enabled: bool = True) -> Progress:
    """Progress that suits the stream: live on a terminal that can rewrite a line."""
    live = enabled and stream.isatty() and os.environ.get("TERM", "") != "dumb"
    return Progress(stream, enabled=enabled, live=live)
