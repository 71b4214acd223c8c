"""Progress: one living line on a terminal, sparse lines in a file, never in the way."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

from torchstone.show.progress import Progress, left, make_progress


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def utf8() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")


def written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    raw = stream.buffer
    assert isinstance(raw, io.BytesIO)
    return raw.getvalue().decode()


def test_in_a_file_only_phases_are_written(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w", encoding="utf-8") as stream, make_progress(stream) as progress:
        progress.phase("solo pass")
        progress.update(0.5, "eager", 10)
        progress.phase("solo pass")
        progress.phase("measuring\x1b[2J")
    text = path.read_text(encoding="utf-8")
    assert re.fullmatch(r"\[ +\d s\] solo pass\n\[ +\d s\] measuring\\x1b\[2J\n", text), text


def test_on_a_terminal_one_line_is_rewritten() -> None:
    primary, secondary = pty.openpty()
    with os.fdopen(secondary, "w", encoding="utf-8") as stream:
        progress = make_progress(stream)
        progress.phase("warm-up")
        progress._drawn_at = float("-inf")
        progress.update(0.5, "eager", 75)
        progress.close()
        progress.close()
        text = ""
        while not text.endswith("\r\x1b[K"):  # a terminal hands over in pieces
            text += os.read(primary, 10_000).decode()
    os.close(primary)
    assert "\n" not in text
    assert "\rwarm-up\x1b[K" in text
    assert "━" * 12 + "─" * 12 + "   50%  1 min 15 s left  eager\x1b[K" in text
    assert text.endswith("\r\x1b[K")
    assert text.count("\r\x1b[K") == 1


def test_it_draws_at_most_ten_times_a_second() -> None:
    stream, clock = utf8(), Clock()
    progress = Progress(stream, live=True, clock=clock)
    for step in range(1000):
        clock.now = step / 1000
        progress.update(step / 1000, "x", None)
    assert 8 <= written(stream).count("\r") <= 11


def test_the_line_never_wraps_and_odd_fractions_are_bounded() -> None:
    stream, clock = utf8(), Clock()
    progress = Progress(stream, live=True, clock=clock)
    for fraction in (-1.0, 2.0, float("nan")):
        clock.now += 1
        progress.update(fraction, "name" * 100, float("inf"))
    lines = written(stream).replace("\x1b[K", "").split("\r")[1:]
    assert [line.split()[1] for line in lines] == ["0%", "100%", "0%"]
    assert all(len(line) <= 79 for line in lines)


def test_ascii_terminals_get_ascii() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    progress = Progress(stream, live=True)
    progress.update(0.5, "größe", 3)
    assert "#" * 12 + "-" * 12 in written(stream)


def test_broken_it_is_silent() -> None:
    closed = io.StringIO()
    broken = make_progress(closed)
    closed.close()
    broken.phase("must not raise")


def test_no_thread_is_started() -> None:
    before = threading.active_count()
    progress = Progress(utf8(), live=True)
    progress.update(0.1, "x", 1)
    assert threading.active_count() == before


def test_time_left_reads_well() -> None:
    assert left(None) == left(-1) == left(float("nan")) == ""
    assert left(11.6) == "12 s left"
    assert left(59.7) == "1 min 00 s left"
    assert left(3725) == "1 h 02 min left"


def test_importing_show_is_light() -> None:
    code = (
        "import sys, torchstone.show; "
        "print([m for m in ('torch', 'numpy', 'rich', 'click') if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert found.stdout.strip() == "[]"
