"""Progress while measuring, on stderr. It draws only when called: a thread would be noise.

A case while it is measured: a table that fills on a terminal, a few plain lines elsewhere.

Every figure in it is provisional and says so; the report that follows has the ones that count.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from torchstone.records import (
    CaseKey,
    CaseMetrics,
    Decision,
    Experiment,
    Outcome,
    Run,
    Stage,
    Tuning,
)
from torchstone.records.format import (
    count,
    format_interval,
    format_percent,
    format_ratio,
    format_seconds,
    half_width,
    ratio_decimals,
)
from torchstone.show.blocks import ascii_signs
from torchstone.show.cells import speedup_cell
from torchstone.show.evidence import meaning
from torchstone.show.rows import VERDICT_ROLES
from torchstone.show.run import check_mark, short_names, title
from torchstone.show.table import Style, can_unicode, cells, clip, pad, shorten, unmarked, wrap

if TYPE_CHECKING:
    from torchstone.conductor import ArmNow


REDRAW_S = 0.1
"""Ten redraws per second are lively; more would only cost time between turns."""
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
        live: bool = False,
        color: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # The terminal itself: this is the one who moves the cursor. Its texts are made safe here.
        self._stream: TextIO | None = getattr(stream, "trusted", stream)
        self._live = live
        self._clock = clock
        self._style = Style(color, can_unicode(stream))
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
            self._draw(self._style.safe(text))
        else:
            passed = self._clock() - self._started
            self._write(f"[{passed:4.0f} s] {self._style.safe(text)}\n")

    def update(
        self, done_fraction: float, text: str = "", seconds_left: float | None = None
    ) -> None:
        """How far the phase is; drawn at most ten times a second, and never off a terminal."""
        if not self._live or self._clock() - self._drawn_at < REDRAW_S:
            return
        done = min(1.0, max(0.0, done_fraction)) if done_fraction == done_fraction else 0.0
        parts = [self._bar(done), f"{done:4.0%}", left(seconds_left), self._style.safe(text)]
        self._draw("  ".join(part for part in parts if part))

    def close(self) -> None:
        """Wipe the line, so that the report starts on a clean one."""
        if self._dirty:
            self._write("\r\x1b[K")
            self._dirty = False
        self._stream = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _bar(self, done: float) -> str:
        full, rest = ("━", "─") if self._style.unicode else ("#", "-")
        drawn = round(done * BAR_WIDTH)
        return full * drawn + rest * (BAR_WIDTH - drawn)

    def _draw(self, text: str) -> None:
        shown = shorten(text, self._width() - 1, self._style.glyphs.ellipsis)
        self._write(f"\r{shown}\x1b[K")
        self._drawn_at, self._dirty = self._clock(), True

    def _width(self) -> int:
        columns = 0
        with suppress(OSError, ValueError):
            columns = os.get_terminal_size(self._stream.fileno()).columns if self._stream else 0
        return max(20, columns or _PLAIN_WIDTH)  # some terminals do not know and say 0

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(unmarked(text))
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None


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


def can_rewrite(stream: TextIO) -> bool:
    """Whether lines can be drawn over there."""
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"


# A run while it happens, on stderr: one living line, and one lasting line for each case.


LEAST_NAME = 16
"""The living line gives up what the case is doing before it cuts the case's name below this."""
PIPED_WIDTH = 300
"""A line in a log may be long; a reason of a megabyte may not."""
WORDS_WIDTH = 100
LONG_S = 600.0
_SPEEDUP_WIDTH, _INTERVAL_WIDTH, _VERDICT_WIDTH = 6, 9, 13


class RunProgress(Progress):
    """Draws only when it is called. Off a terminal only the lasting lines are written."""

    def __init__(
        self,
        stream: TextIO,
        *,
        live: bool = False,
        color: bool = False,
        verbose: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(stream, live=live, color=color, clock=clock)
        self._verbose = verbose
        self._outcomes: Counter[Outcome] = Counter()
        self._place = self._doing = ""
        self._key: CaseKey | None = None
        self._case_began = 0.0
        self._run_left: float | None = None

    def run_started(self, run: Run, todo: int, done: int) -> None:
        """The plan stands: say its name, so that it can be resumed whatever happens."""
        said = f"{title(run)}: {count(todo, 'case')} to do"
        if todo != len(run.plan):
            said += f" of {len(run.plan)}"
        self._keep(said + (f", {done} done before" if done else ""))
        for note in filter(str.strip, run.notes):
            self._keep(note)

    def case_started(
        self, index: int, total: int, key: CaseKey, seconds_left: float | None
    ) -> None:
        """A case begins; `index` counts from 0, `seconds_left` is for the rest of the run."""
        self._place = f"[{min(index + 1, total)}/{total}]"
        self._key, self._doing = key, ""
        self._case_began, self._run_left = self._clock(), seconds_left
        self._show()

    def case_finished(self, figures: CaseMetrics) -> None:
        """A case has ended: its line stays."""
        self._outcomes[figures.outcome] += 1
        self._doing = ""
        self._write_lasting(self._finished(figures))
        for line in self._means(figures):
            self._write_lasting(line)
        self._show()

    def case_times(self, phases: Mapping[str, float]) -> None:
        """Where the case's wall time went; only for who wants to know."""
        if self._verbose and phases:
            spent = [f"{name} {seconds:.1f}" for name, seconds in phases.items() if seconds >= 0.05]
            self._keep(f"    {sum(phases.values()):.1f} s: {', '.join(spent)}")

    def note(self, text: str) -> None:
        """Something that a reader must know: its line stays."""
        self._keep(text)
        self._show()

    def phase(self, text: str) -> None:
        """A new part of the case begins."""
        if text != self._doing:
            self._doing = text
            self._show()

    def update(
        self, done_fraction: float, text: str = "", seconds_left: float | None = None
    ) -> None:
        """How far the case is; drawn at most ten times a second."""
        self._doing = text or self._doing
        if self._clock() - self._drawn_at >= REDRAW_S:
            self._show()

    def __enter__(self) -> RunProgress:
        return self

    def _show(self) -> None:
        if self._live and self._key:
            self._draw(self._living(self._width() - 1))

    def _living(self, room: int) -> str:
        """Place, case, what it is doing, outcomes so far, time left, within so many cells."""
        dot = self._style.glyphs.dot
        ends = [part for part in (self._counts(), _roughly(self._time_left())) if part]
        doing = [self._style.safe(self._doing)] if self._doing else []
        spare = room - len(self._place) - 1 - sum(cells(dot + part) for part in ends)
        if spare - sum(cells(dot + part) for part in doing) < LEAST_NAME:
            doing = []
        spare -= sum(cells(dot + part) for part in doing)
        return f"{self._place} " + dot.join([self._name(self._key, spare), *doing, *ends])

    def _counts(self) -> str:
        """`3 ok 1 crash`; failures of several kinds together: each has its lasting line."""
        failed = [outcome for outcome in self._outcomes if outcome.failed]
        kind = failed[0].words if len(failed) == 1 else "failed"
        counts = {
            outcome.words: self._outcomes[outcome] for outcome in Outcome if not outcome.failed
        }
        found = {"ok": counts.pop("ok"), kind: sum(self._outcomes[o] for o in failed), **counts}
        return " ".join(f"{number} {name}" for name, number in found.items() if number)

    def _name(self, key: CaseKey | None, room: int) -> str:
        """The longest name that fits; where none does, the model's, cut."""
        names = [self._style.safe(name) for name in short_names(key)] if key else [""]
        fitting = (name for name in names if cells(name) <= room)
        return next(fitting, shorten(names[-1], max(8, room), self._style.glyphs.ellipsis))

    def _time_left(self) -> float | None:
        """What was left when the case began, less what has passed since; None once it is over."""
        if self._run_left is None:
            return None
        rest = self._run_left - (self._clock() - self._case_began)
        return rest if rest > 0 else None

    def _finished(self, case: CaseMetrics) -> str:
        room = self._width() - 1 if self._live else PIPED_WIDTH
        return self._passed(case, room) if case.outcome is Outcome.OK else self._failed(case, room)

    def _passed(self, case: CaseMetrics, room: int) -> str:
        style = self._style
        cell = speedup_cell(case)
        speedup, ends = (ascii_signs(text, style) for text in (cell.text, cell.detail))
        figures = f"ok  {pad(speedup, _SPEEDUP_WIDTH, right=True)} {pad(ends, _INTERVAL_WIDTH)}"
        verdict = case.verdict.value if case.verdict else "no verdict"
        said = pad(f"{verdict} {check_mark(case, style.glyphs.cross)}".rstrip(), _VERDICT_WIDTH)
        role = VERDICT_ROLES[case.verdict] if case.verdict else "doubt"
        name = self._name(case.key, room - cells(figures) - cells(said) - 4)
        return f"{figures}  {style.paint(said, role)}  {name}"

    def _means(self, case: CaseMetrics) -> list[str]:
        """What that means, under the figures."""
        text = meaning(case, ascii_only=self._style.ascii_only)
        room = (self._width() if self._live else WORDS_WIDTH) - 5
        rows = wrap(self._style.safe(text), room, ellipsis=self._style.glyphs.ellipsis)
        return [f"    {row}" for row in rows if row]

    def _failed(self, case: CaseMetrics, room: int) -> str:
        style, said = self._style, case.outcome.words
        room -= cells(said) + 2
        name = self._name(case.key, room // 2 if case.reason else room)
        text = f"{name}: {style.safe(case.reason)}" if case.reason else name
        role = "dim" if not case.outcome.failed else "fail"
        return f"{style.paint(said, role)}  {clip(text, room, style.glyphs.ellipsis)}"

    def _keep(self, text: str) -> None:
        room = self._width() - 1 if self._live else PIPED_WIDTH
        self._write_lasting(clip(self._style.safe(text), room, self._style.glyphs.ellipsis))

    def _write_lasting(self, line: str) -> None:
        self._write(("\r\x1b[K" if self._dirty else "") + line + "\n")
        self._dirty = False


def _roughly(seconds: float | None) -> str:
    """`12 min left`: seconds say nothing in a long run."""
    if seconds is not None and LONG_S <= seconds < 3570:
        return f"{round(seconds / 60)} min left"
    return left(seconds)


def make_run_progress(stream: TextIO, verbose: bool = False) -> RunProgress:
    """Progress that suits the stream: live and in colour on a terminal that can rewrite a line."""
    live = can_rewrite(stream)
    color = live and not os.environ.get("NO_COLOR")
    return RunProgress(stream, live=live, color=color, verbose=verbose)


# A tuning while it happens: which experiment, the best so far, the time left.


class TuneProgress(RunProgress):
    """One living line, and one lasting line for each experiment."""

    def __init__(self, stream: TextIO, *, live: bool = False, color: bool = False) -> None:
        super().__init__(stream, live=live, color=color)
        self._done = self._planned = 0
        self._best = ""
        self._until = 0.0

    def tuning_started(self, tuning: Tuning, candidates: int) -> None:
        """The plan stands: say its name, so that it can be resumed whatever happens."""
        self._planned = candidates
        self._keep(f"tuning {tuning.id}: {count(candidates, 'technique')} to try")

    def experiment_started(self, stage: str, names: Sequence[str], left: float) -> None:
        """A case begins; `left` is what is left of the budget."""
        self._place, self._until = f"{stage} {', '.join(names)}", self._clock() + left
        self._doing = ""
        self._show()

    def experiment_finished(self, experiment: Experiment) -> None:
        """An experiment has ended: its line stays."""
        screened = experiment.stage is Stage.SCREEN
        self._done += screened
        ratio = f"{experiment.speedup:.3g}x" if experiment.speedup else ""
        if experiment.decision is Decision.ADOPTED:
            self._best = f"best: {' + '.join(experiment.techniques)} {ratio}"
        said = f"{experiment.stage.value:8}{experiment.decision.value:15}{ratio:>7}"
        self._keep(f"{said}  {experiment.technique}  {experiment.reason}".rstrip())

    def __enter__(self) -> TuneProgress:
        return self

    def _show(self) -> None:
        if not self._live:
            return
        parts = [f"[{self._done}/{self._planned}] {self._place}", self._doing, self._best]
        parts.append(_roughly(max(0.0, self._until - self._clock())))
        self._draw(self._style.glyphs.dot.join(self._style.safe(part) for part in parts if part))


def make_tune_progress(stream: TextIO) -> TuneProgress:
    """Progress that suits the stream."""
    live = can_rewrite(stream)
    return TuneProgress(stream, live=live, color=live and not os.environ.get("NO_COLOR"))


PROVISIONAL = "provisional"
SAID_AT = (1, 2, 4, 8, 16)
"""Processes after which a line is written where lines stay: each narrows the interval visibly."""
LEAST_COLUMN, ROWS_KEPT_FREE = 8, 3
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
        widths[0] = max(LEAST_COLUMN, min(widths[0], room - 2 - rest))
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
