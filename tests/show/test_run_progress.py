"""A run while it happens: one living line, a lasting one a case, sober in a file."""

from __future__ import annotations

import inspect
import io
import os
import pty
import re
import threading
from pathlib import Path

import pytest

from torchstone.conductor import Events
from torchstone.records import Level, Outcome
from torchstone.show.progress import RunProgress, make_run_progress
from torchstone.show.table import cells

from . import synthetic_run as made
from .synthetic_result import HOSTILE
from .test_progress import Clock, utf8, written

FINISHED = """\
run 1jz3k4m nightly: 10 cases to do
one thread, because this machine has 2 cores (--threads changes it)
ok   1.32× 1.29–1.35  faster         huggingface/AlbertForMaskedLM@small inference fp32 inductor
    inductor takes 24 % less time a call; 12.3 ms to 9.32 ms; 12.1 s of compiling pay off after
    4,100 calls.
wrong answer  huggingface/model_0@small inference fp32 inductor: contract: output.logits: \
expected float32[8,128], got bfloat16
"""


def play(progress: RunProgress, cases: int = 2) -> None:
    view = made.every_outcome()
    progress.run_started(view.run, len(view.run.plan), 0)
    for number, case in enumerate(view.cases[:cases]):
        progress.case_started(number, len(view.run.plan), case.key, 750.0)
        progress.phase("inductor: alone (build, contract, memory)")
        progress.update(0.5, "process 2 of 4", 3.0)
        progress.case_finished(case)


def drawn(stream: io.TextIOWrapper) -> list[str]:
    """What stood on the living line, one state after the other."""
    return [part.split("\x1b[K")[0] for part in written(stream).split("\r")[1:]]


def test_in_a_file_only_lasting_lines_are_written(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w", encoding="utf-8") as stream, make_run_progress(stream) as progress:
        play(progress)
    assert path.read_text(encoding="utf-8") == FINISHED


def test_the_living_line_says_place_case_phase_outcomes_and_time() -> None:
    stream, clock = utf8(), Clock()
    progress = RunProgress(stream, live=True, clock=clock)
    progress._width = lambda: 120  # type: ignore[method-assign]
    play(progress)
    clock.now += 100
    key = made.key("BertForMaskedLM")
    progress.case_started(11, 48, key, 750.0)
    clock.now += 30
    progress.update(0.5, "process 2 of 4", 3.0)
    assert drawn(stream)[-1] == (
        "[12/48] huggingface/BertForMaskedLM@small inference fp32 inductor · process 2 of 4 · "
        "1 ok 1 wrong answer · 12 min left"
    )


def test_time_left_is_that_of_the_run_and_runs_down() -> None:
    stream, clock = utf8(), Clock()
    progress = RunProgress(stream, live=True, clock=clock)
    progress.case_started(0, 2, made.key(), 90.0)
    clock.now += 60
    progress.update(0.1, "x", 1000.0)
    clock.now += 60
    progress.update(0.1, "x", 1000.0)
    first, second, late = drawn(stream)
    assert first.endswith(" · 1 min 30 s left")
    assert second.endswith(" · 30 s left")
    assert "left" not in late
    progress.case_started(1, 2, made.key(), None)
    assert "left" not in drawn(stream)[-1]


def test_a_finished_case_does_not_leave_its_phase_behind() -> None:
    stream = utf8()
    progress = RunProgress(stream, live=True)
    play(progress, 1)
    assert "process" not in drawn(stream)[-1]


@pytest.mark.parametrize("width", [50, 60, 80, 120])
def test_no_line_wraps_and_strangers_are_harmless(width: int) -> None:
    stream, clock = utf8(), Clock()
    progress = RunProgress(stream, live=True, clock=clock)
    progress._width = lambda: width  # type: ignore[method-assign]
    view = made.hostile()
    progress.run_started(view.run, 3, 17)
    for number, case in enumerate(view.cases):
        clock.now += 1
        progress.case_started(number, 20, case.key, 1e5)
        progress.phase(HOSTILE[number % 4])
        clock.now += 1
        progress.update(float("nan"), HOSTILE[1], float("inf"))
        progress.case_finished(case)
    progress.close()
    text = written(stream).replace("\x1b[K", "")
    assert max(cells(line) for line in re.split(r"\r|\n", text)) < width
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\u202e]", text)


def test_failures_of_several_kinds_are_counted_together() -> None:
    stream = utf8()
    progress = RunProgress(stream, live=True)
    progress._width = lambda: 200  # type: ignore[method-assign]
    play(progress, 9)
    assert "1 ok 6 failed 1 not supported 1 not run" in drawn(stream)[-1]


def test_on_a_terminal_lasting_lines_stand_above_the_living_one() -> None:
    primary, secondary = pty.openpty()
    with os.fdopen(secondary, "w", encoding="utf-8") as stream:
        progress = make_run_progress(stream)
        play(progress, 1)
        progress.close()
        text = ""
        while not text.endswith("\r\x1b[K"):  # a terminal hands over in pieces
            text += os.read(primary, 10_000).decode()
    os.close(primary)
    lasting = [line for line in text.split("\r\n") if line.startswith("\r\x1b[Kok  ")]
    assert lasting == [] or len(lasting) == 1
    assert re.search(r"\r\x1b\[Kok   1\.32× 1\.29–1\.35  \S*faster", text)
    assert text.endswith("\r\x1b[K")


def test_colour_only_on_a_terminal_that_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for no_color, painted in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", no_color)
        primary, secondary = pty.openpty()
        with os.fdopen(secondary, "w", encoding="utf-8") as stream:
            make_run_progress(stream).case_finished(made.bad(made.key(), Outcome.CRASH, "died"))
            text = os.read(primary, 10_000).decode()
        os.close(primary)
        assert ("\x1b[1;31mcrash" in text) is painted
        assert "died" in text


def test_a_resumed_run_says_what_is_done() -> None:
    stream = utf8()
    run = made.every_outcome().run
    RunProgress(stream).run_started(run, 7, 3)
    assert "run 1jz3k4m nightly: 7 cases to do of 10, 3 done before\n" in written(stream)


def test_warnings_are_marked_and_ascii_is_ascii() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", newline="")
    case = made.ok(made.key("größe"), checks=("noise",), worst_check=Level.WARN)
    RunProgress(stream).case_finished(case)
    assert "ok   1.32x 1.29-1.35  faster !       huggingface/gr\\xf6\\xdfe@small" in written(stream)


def test_it_draws_at_most_ten_times_a_second_and_starts_no_thread() -> None:
    stream, clock = utf8(), Clock()
    before = threading.active_count()
    progress = RunProgress(stream, live=True, clock=clock)
    progress.case_started(0, 1, made.key(), None)
    for step in range(1000):
        clock.now = step / 1000
        progress.update(step / 1000, f"turn {step}", None)
    assert 8 <= len(drawn(stream)) <= 12
    assert threading.active_count() == before


def test_it_serves_the_conductor() -> None:
    """Every call of the protocol can be made as the conductor makes it: by position."""
    for name in ("phase", "update"):
        wanted = inspect.signature(getattr(Events, name)).parameters
        given = inspect.signature(getattr(RunProgress, name)).parameters
        assert len(wanted) == len(given)


def test_broken_it_is_silent() -> None:
    closed = io.StringIO()
    broken = make_run_progress(closed)
    closed.close()
    play(broken)


def test_where_the_time_went_is_said_to_who_asks() -> None:
    phases = {"import libraries": 0.0, "eager alone": 3.14, "turns": 9.9}
    quiet, loud = utf8(), utf8()
    RunProgress(quiet).case_times(phases)
    RunProgress(loud, verbose=True).case_times(phases)
    assert written(quiet) == ""
    assert written(loud) == "    13.0 s: eager alone 3.1, turns 9.9\n"
