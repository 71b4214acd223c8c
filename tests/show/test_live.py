"""The table that fills while a case is measured: in place on a terminal, few lines in a pipe."""

from __future__ import annotations

import io
import re
from dataclasses import replace

from tests.show.test_progress import Clock, utf8, written
from torchstone.conductor import ArmNow, Events, LiveEvents
from torchstone.show.notebook import NotebookProgress
from torchstone.show.progress import LiveProgress

FIRST = (ArmNow("eager", 0.105), ArmNow("inductor"))
SECOND = (ArmNow("eager", 0.105), ArmNow("inductor", 0.07, speedup=1.5))
TURNS = (
    ArmNow("eager", 0.1, (0.098, 0.102), processes=2),
    ArmNow("inductor", 0.05, (0.049, 0.051), 2.0, (1.9, 2.1), processes=2),
)


def screen(text: str) -> list[str]:
    """What a terminal shows after that: enough of one for what is written here."""
    lines, row = [""], 0
    for part in re.findall(r"\x1b\[\d*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text.replace("\x1b[0m", "")):
        if part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1])
        elif part == "\x1b[J":
            lines = lines[: row + 1]
        elif not part.startswith("\x1b") and part != "\r":
            lines[row] = part
    return lines


def live(clock: Clock) -> tuple[LiveProgress, io.TextIOWrapper]:
    stream = utf8()
    return LiveProgress(stream, live=True, clock=clock), stream


def test_it_hears_what_a_conductor_has_to_tell() -> None:
    assert isinstance(LiveProgress(utf8()), LiveEvents)
    seen: Events = LiveProgress(utf8())
    seen.phase("a part")


def test_the_table_fills_in_place() -> None:
    clock = Clock()
    progress, stream = live(clock)
    progress.phase("importing libraries (step 1 of 5)")
    for arms in (FIRST, SECOND, TURNS):
        clock.now += 1
        progress.provisional(arms)
    shown = screen(written(stream))
    assert len(shown) == 3
    assert re.fullmatch(r"  eager +100 ms  ±2\.0 %", shown[0])
    assert re.fullmatch(r"  inductor +50\.0 ms  ±2\.0 %  2\.00×  1\.90–2\.10", shown[1])
    assert "provisional, 2 processes" in shown[2]
    assert "importing libraries (step 1 of 5)" in shown[2]


def test_a_first_figure_is_marked_as_one() -> None:
    clock = Clock()
    progress, stream = live(clock)
    clock.now = 1.0
    progress.provisional(FIRST)
    shown = screen(written(stream))
    assert shown[0] == "  eager     105 ms"
    assert shown[1].endswith("provisional, first calls")


def test_time_left_runs_down_and_admits_when_it_was_wrong() -> None:
    clock = Clock()
    progress, stream = live(clock)
    progress.phase("compiling")
    progress.expect(30.0, "measuring 30 s")
    for now, said in ((1.0, "29 s left"), (25.0, "5 s left"), (40.0, "a little longer")):
        clock.now = now
        progress.tick()
        assert said in screen(written(stream))[-1]
    clock.now = 41.0
    progress.update(0.5, "process 1 of 3", 12.0)
    assert "12 s left  measuring: process 1 of 3" in screen(written(stream))[-1]


def test_nothing_is_left_on_the_screen_but_notes() -> None:
    clock = Clock()
    progress, stream = live(clock)
    progress.phase("one")
    clock.now = 1.0
    progress.provisional(TURNS)
    progress.note("99 threads on 2 cores")
    clock.now = 2.0
    progress.provisional(TURNS)
    progress.close()
    text = written(stream)
    assert "99 threads on 2 cores\n" in text
    assert text.endswith("\x1b[J")
    assert text.count("99 threads") == 1


def test_a_pipe_gets_a_few_plain_lines() -> None:
    clock, stream = Clock(), utf8()
    progress = LiveProgress(stream, clock=clock)
    progress.phase("eager: building (step 2 of 5)")
    progress.doing("eager: warming up")
    progress.provisional(FIRST)
    progress.expect(42.0, "compiling 25 s, measuring 17 s")
    progress.expect(30.0, "measuring 30 s")
    progress.provisional(SECOND)
    for _ in range(50):
        progress.tick()
        progress.update(0.5, "process 2", 5.0)
        progress.provisional(TURNS)
    text = written(stream)
    assert "\x1b" not in text
    assert text.splitlines() == [
        "[   0 s] eager: building (step 2 of 5)",
        "[   0 s] provisional: eager 105 ms (first calls)",
        "[   0 s] about 40 s to go: compiling 25 s, measuring 17 s",
        "[   0 s] provisional: eager 105 ms, inductor 70.0 ms 1.50× (first calls)",
        "[   0 s] provisional: eager 100 ms ±2.0 %, inductor 50.0 ms ±2.0 % 2.00× 1.90–2.10 "
        "(2 processes)",
    ]


def test_hostile_and_long_names_stay_on_their_line() -> None:
    clock = Clock()
    progress, stream = live(clock)
    clock.now = 1.0
    progress.provisional((ArmNow("a\x1b[2J\n" * 40, 0.1), ArmNow("b", outcome="crash")))
    shown = screen(written(stream))
    assert len(shown) == 3
    assert all(len(line) <= 79 for line in shown)
    assert "crash" in shown[1]


def test_a_notebook_shows_what_a_terminal_shows() -> None:
    shown: list[str] = []

    class Handle:
        def update(self, html: str) -> None:
            shown.append(html)

    def display(html: str, display_id: bool) -> Handle:
        assert display_id
        return Handle()

    with NotebookProgress(display, str) as progress:
        assert isinstance(progress, LiveEvents)
        progress.note("4 threads on 2 cores")
        progress.provisional((ArmNow("<a>", 0.1),))
        progress.phase("<a>: first call")
        assert "4 threads on 2 cores\n  &lt;a&gt;" in shown[-1]
        assert "provisional, first calls" in shown[-1]
        progress.provisional([replace(arm, unit="stretch") for arm in TURNS])
        progress.phase("measuring: stretch 3 of 4")
        assert re.search(r"inductor +50\.0 ms  ±2\.0 %  2\.00×  1\.90–2\.10", shown[-1])
        assert "provisional, 2 stretches" in shown[-1]
    assert shown[-1] == ""
