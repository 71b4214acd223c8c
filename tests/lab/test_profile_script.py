"""Profiling a program: what is refused, what is kept, and when its cost has no figure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.profile.probing import python_path
from torchstone.lab.profile import ProfileRequest, ProfilingFailed, profile_script
from torchstone.profile.child_script import INTERRUPTED
from torchstone.records import Profile, UsageError

pytestmark = pytest.mark.usefixtures("place")

ONCE = """
import os, sys
again = os.path.exists("done")
open("done", "w").close()
if again:
    {second}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder for programs, and children that find what is declared."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", python_path())


def program(text: str) -> str:
    Path("program.py").write_text(text, encoding="utf-8")
    return "program.py"


class Seen:
    """Events that are remembered; at one of them somebody presses Ctrl-C."""

    def __init__(self, stop_at: int = 0) -> None:
        self.said: list[str] = []
        self.open = False
        self._stop_at = stop_at

    def phase(self, text: str) -> None:
        self.said.append(text)

    def update(self, fraction: float, text: str, seconds_left: float | None) -> None:
        self.said.append(text)
        if len(self.said) == self._stop_at:
            raise KeyboardInterrupt

    @contextmanager
    def progress(self) -> Iterator[Seen]:
        self.open = True
        yield self
        self.open = False


def test_the_time_of_a_run_that_ended_otherwise_is_no_cost() -> None:
    what = program(ONCE.format(second="sys.exit('output exists already')"))
    run = profile_script(ProfileRequest(what, how="count", cost=True))
    (profile,) = run.profiles
    assert run.code == 0
    assert profile.cost is None
    assert "ended with code 1. It does not do the same again." in profile.notes[-1]


def test_a_profile_is_kept_before_a_later_way_fails() -> None:
    kept: list[Profile] = []
    what = program(ONCE.format(second="os._exit(0)"))
    with pytest.raises(ProfilingFailed, match="before its profile could be written"):
        profile_script(ProfileRequest(what, how="all", cost=False), keep=kept.append)
    (profile,) = kept
    assert profile.label == "program.py (count)"
    assert profile.id  # as it would be stored


def test_an_interrupt_while_the_cost_is_measured_leaves_the_profile() -> None:
    kept: list[Profile] = []
    seen = Seen(stop_at=3)
    request = ProfileRequest(program("print(1)"), how="all", cost=True)
    run = profile_script(request, seen.progress, kept.append)
    assert (run.code, run.profiles) == (INTERRUPTED, tuple(kept))
    (profile,) = kept
    assert profile.cost is None
    assert "it was interrupted" in profile.notes[-1]
    assert seen.said == [
        "program.py (count): 12 silent runs show what profiling costs",
        "program.py: run 1 of 12",
        "program.py: run 2 of 12",
    ]


def test_a_program_gets_the_threads_that_were_asked_for() -> None:
    what = program("import os; open('said', 'w').write(os.environ['OMP_NUM_THREADS'])")
    request = ProfileRequest(what, how="count", threads=3)
    (profile,) = profile_script(request).profiles
    assert Path("said").read_text() == "3"
    assert "--threads 3" in " ".join(profile.command)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"mode": "training"}, "--mode is for a target"),
        ({"precision": "bf16"}, "--precision is for a target"),
        ({"device": "cuda", "steps": 3}, "--steps and --device are for a target"),
        ({"variant": "inductor"}, "--variant is for"),
        ({"vs": ("inductor",)}, "--vs is for"),
        ({"timeout_s": 3.0}, "--timeout is for"),
        ({"threads": 0}, "at least 1, not 0"),
    ],
)
def test_what_a_program_cannot_be_asked_for_is_refused(asked: dict[str, object], said: str) -> None:
    what = program("open('ran', 'w').close()")
    with pytest.raises(UsageError, match=said):
        profile_script(ProfileRequest(what, how="count", **asked))  # type: ignore[arg-type]
    assert not Path("ran").exists()
