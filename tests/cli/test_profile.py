"""`torchstone profile`: targets and programs, files and pages, and Ctrl-C."""

from __future__ import annotations

import json
import os
import pstats
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.profile.probing import names, python_path
from tests.targets.support import eventually, marked, target, torchstone
from torchstone.cli.app import cli
from torchstone.profile import read_profile
from torchstone.records import UsageError

PROGRAM = """
import sys

def work():
    return sum(number * number for number in range(20_000))

if __name__ == "__main__":
    work()
    print("said", sys.argv[1:])
    if "raise" in sys.argv:
        raise ValueError("mine")
    if "exit" in sys.argv:
        sys.exit("last words")
    sys.exit(int(sys.argv[1]) if sys.argv[1:] else 0)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program, and children that find what is declared."""
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DECLARED", python_path())
    return tmp_path


def run(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return torchstone(*words, PYTHONPATH=os.environ["DECLARED"], **more)


def test_a_program_keeps_its_output_arguments_and_exit_code(place: Path) -> None:
    done = run("profile", "--how", "count", "--out", "x.prof", "program.py", "3", "--how", "mine")
    assert done.returncode == 3, done.stderr
    assert "said ['3', '--how', 'mine']" in done.stdout
    assert "profile of program.py (count)" in done.stdout
    stats = pstats.Stats("x.prof").stats  # type: ignore[attr-defined]
    row = next(row for key, row in stats.items() if key[2] == "work")
    assert row[:2] == (1, 1)
    assert not (place / "x.prof.html").exists()
    shown = run("show", "x.prof", "--out", "x.svg")
    assert shown.returncode == 0, shown.stderr
    assert "<genexpr>" in shown.stdout
    assert "</svg>" in (place / "x.svg").read_text(encoding="utf-8")


def test_a_file_is_shown_with_a_page_and_two_with_what_changed(place: Path) -> None:
    for name in ("a.prof", "b.prof"):
        done = run("profile", "--no-save", "--how", "count", "--out", name, "program.py")
        assert done.returncode == 0, done.stderr
    shown = run("show", "a.prof")
    assert shown.returncode == 0, shown.stderr
    assert "The page is a.prof.html" in shown.stdout
    assert (place / "a.prof.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    both = run("show", "a.prof", "b.prof")
    assert both.returncode == 0, both.stderr
    page = (place / "b.prof.diff.html").read_text(encoding="utf-8")
    assert "a.prof" in page
    assert "b.prof" in page
    assert not (place / "b.prof.html").exists()
    alone = run("show", "a.prof", "b.prof", "--json", "-")
    assert len(json.loads(alone.stdout)["profiles"]) == 2
    missing = run("show", "a.prof", "nothing", "--db", str(place / "kept.db"))
    assert missing.returncode == 2
    assert "Traceback" not in missing.stderr


def test_a_programs_error_is_its_own(place: Path) -> None:
    done = run("profile", "program.py", "raise")
    assert done.returncode == 1
    assert 'File "program.py", line 11, in <module>' in done.stderr
    assert "ValueError: mine" in done.stderr
    assert "runpy" not in done.stderr
    assert "torchstone" not in done.stderr
    assert "profile of program.py (sample)" in done.stdout


def test_a_module_with_json_alone(place: Path) -> None:
    done = run("profile", "--how", "count", "--json", "-", "-m", "program", "exit")
    assert done.returncode == 1
    assert "last words" in done.stderr
    said, text = done.stdout.splitlines()
    assert said == "said ['exit']"
    (profile,) = json.loads(text)["profiles"]
    assert profile["how"] == "count"
    assert profile["command"][-3:] == ["-m", "program", "exit"]


def test_nothing_is_kept_where_nothing_shall_be(place: Path) -> None:
    done = run("profile", "--no-save", "--db", "none.db", "--how", "count", "program.py")
    assert done.returncode == 0, done.stderr
    assert "profile of program.py (count)" in done.stdout
    assert "Kept as" not in done.stdout
    assert not (place / "none.db").exists()


def test_a_target_with_its_options_behind_it(place: Path) -> None:
    words = ("--how", "sampler", "--steps", "200", "--no-cost", "--view", "--out", "x.folded")
    done = run("profile", target("profiled"), *words, "--db", "kept.db")
    assert done.returncode == 0, done.stderr
    assert {"heavy", "light"} <= names(read_profile("x.folded").frames)
    page = next(place.glob("torchstone-profile-*.html")).read_text(encoding="utf-8")
    assert "heavy" in page
    listed = run("list", "profiles", "--db", "kept.db", "--json")
    (row,) = json.loads(listed.stdout)["profiles"]
    assert row["how"] == "sample"
    shown = run("show", row["id"], "--db", "kept.db")
    assert shown.returncode == 0, shown.stderr
    assert "heavy" in shown.stdout


def test_a_target_that_dies_is_an_outcome(place: Path) -> None:
    done = run("profile", target("deaths", "segfault"), "--how", "count")
    assert done.returncode == 1
    assert "could not be profiled (count): crash" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_cost_of_a_short_program_is_measured_where_that_is_allowed(place: Path) -> None:
    done = run("profile", "--how", "count", "--cost", "program.py")
    assert done.returncode == 0, done.stderr
    assert "unprofiled against unprofiled" in done.stdout
    assert done.stdout.count("said []") == 1  # the runs that are only timed are silent


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing.py",), "There is no file nothing.py"),
        (("--out", "x.what", "program.py"), "does not end in a way"),
        (("--out", "/no/such/x.prof", "program.py"), "There is no folder /no/such"),
        (("--format", "pstats", "program.py"), "--format says how --out"),
        (("--steps", "3", "program.py"), "--steps is for a target"),
        (("--mode", "training", "-m", "program"), "--mode is for a target"),
        (("--clock", "gil", "--how", "sampler", "program.py"), "cannot be told from inside"),
        (("--how", "guess", "program.py"), "no way to profile called 'guess'"),
    ],
)
@pytest.mark.usefixtures("place")
def test_mistakes_are_told_before_anything_runs(
    words: tuple[str, ...], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=said):
        cli.main(["profile", *words], standalone_mode=False)
    assert capfd.readouterr().out == ""


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from torchstone.cli import main; main()", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # no terminal: the signal goes to this process alone
        env={**os.environ, "PYTHONPATH": os.environ["DECLARED"]},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )


def test_an_interrupted_program_leaves_its_profile(place: Path) -> None:
    (place / "endless.py").write_text(
        "import time\n"
        "def waits():\n"
        "    open('running', 'w').close()\n"
        "    time.sleep(600)\n"
        "waits()\n"
    )
    process = start("profile", "--how", "count", "--out", "x.prof", "endless.py")
    assert eventually((place / "running").exists, 240)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 130, err
    assert "KeyboardInterrupt" in err
    assert "time.sleep" in out
    assert any(key[2] == "waits" for key in pstats.Stats("x.prof").stats)  # type: ignore[attr-defined]


def test_an_interrupt_of_the_silent_runs_leaves_the_profile(place: Path, no_survivors: str) -> None:
    (place / "slow_again.py").write_text(
        "import os, time\n"
        "def first():\n"
        "    open('first', 'w').close()\n"
        "if os.path.exists('first'):\n"
        "    open('again', 'w').close()\n"
        "    time.sleep(600)\n"
        "first()\n"
    )
    words = ("--how", "count", "--cost", "--out", "x.prof", "--db", "kept.db", "slow_again.py")
    process = start("profile", *words)
    assert eventually((place / "again").exists, 240)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 130, err
    assert "silent runs show what profiling costs" in err
    assert "was not measured: it was interrupted" in out
    assert any(key[2] == "first" for key in pstats.Stats("x.prof").stats)  # type: ignore[attr-defined]
    listed = run("list", "profiles", "--db", "kept.db", "--json")
    assert len(json.loads(listed.stdout)["profiles"]) == 1
    assert eventually(lambda: not marked(no_survivors), 120)


def test_an_interrupt_while_a_target_is_profiled(place: Path, no_survivors: str) -> None:
    process = start("profile", target("profiled", "make_slow_step"), "--how", "count")
    assert eventually(lambda: len(marked(no_survivors)) >= 2, 240)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert eventually(lambda: not marked(no_survivors), 120)
