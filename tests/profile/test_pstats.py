"""pstats files of real programs against `pstats.Stats`, to the digit."""

from __future__ import annotations

import cProfile
import json
import marshal
import profile as slow_profiler
import pstats
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.profile.support import own_by_path, put, read, refused, traced
from torchstone.profile import trees, write_profile
from torchstone.profile.formats import pstats_file
from torchstone.profile.formats.base import clean
from torchstone.records import Profile

Key = tuple[str, int, str]
SUITE = """
import pytest
def square(x): return x * x
@pytest.mark.parametrize("x", [1, 2, 3])
def test_square(x): assert square(x) == x ** 2
"""


def key_of(profile: Profile, frame: int) -> Key:
    one = profile.frames[frame]
    built_in = one.kind == "native" and not one.file
    return ("~" if built_in else one.file, one.line, one.name)


def assert_same_as_pstats(path: Path) -> Profile:
    """Every figure of every function and caller, and the total."""
    profile = read(path)
    stats: Any = pstats.Stats(str(path))
    assert len(profile.functions) == len(stats.stats) > 0
    for one, (key, (primitive, calls, own, total, callers)) in zip(
        profile.functions, stats.stats.items(), strict=True
    ):
        assert key_of(profile, one.of.frame) == tuple(
            part if isinstance(part, int) else clean(part) for part in key
        )
        assert (one.of.calls, one.of.primitive) == (calls, primitive)
        assert (one.of.own_s, one.of.total_s) == (own, total)  # equal, not close
        assert [
            (key_of(profile, c.frame), (c.calls, c.primitive, c.own_s, c.total_s))
            for c in one.callers
        ] == list(callers.items())
    assert sum(one.of.calls for one in profile.functions) == stats.total_calls
    assert sum(one.of.primitive for one in profile.functions) == stats.prim_calls
    assert profile.wall_s == stats.total_tt
    return profile


def work() -> None:
    def fib(n: int) -> int:
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def ping(n: int) -> int:
        return pong(n - 1) if n else 0

    def pong(n: int) -> int:
        return ping(n - 1) if n else 0

    fib(12)
    ping(9)
    for size in range(40):
        json.loads(json.dumps({"x": [size] * size}))


@pytest.fixture
def counted(tmp_path: Path) -> Path:
    path = tmp_path / "work.prof"
    profiler = cProfile.Profile()
    profiler.runcall(work)
    profiler.dump_stats(path)
    return path


def test_real_code_reads_to_the_digit(counted: Path) -> None:
    profile = assert_same_as_pstats(counted)
    assert (profile.how, profile.tool, profile.estimated) == ("count", "cProfile", True)
    assert any("estimated" in note for note in profile.notes)
    fib = next(one for one in profile.functions if profile.frames[one.of.frame].name == "fib")
    assert fib.of.calls == 465
    assert fib.of.primitive == 1


def test_the_tree_holds_every_functions_own_time(counted: Path) -> None:
    profile = read(counted)
    assert profile.tree is not None
    by_frame: dict[int, float] = {}
    for frame, own in zip(profile.tree.frames, profile.tree.own, strict=True):
        by_frame[frame] = by_frame.get(frame, 0.0) + own
    for one in profile.functions:
        assert by_frame[one.of.frame] == pytest.approx(one.of.own_s, rel=1e-6, abs=1e-12)
    names = set(own_by_path(profile))
    assert ("work", "loads", "decode") in {path[:3] for path in names}
    assert not any(path.count("fib") > 1 for path in names)  # recursion is folded


def test_a_program_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "pip.prof"
    done = subprocess.run(
        [sys.executable, "-m", "cProfile", "-o", str(path), "-m", "pip", "--version"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    profile = assert_same_as_pstats(path)
    assert len(profile.functions) > 500
    assert profile.tree is not None
    totals = trees.totals(profile.tree)
    root = max(range(len(totals)), key=totals.__getitem__)
    assert profile.frames[profile.tree.frames[root]].name == "<built-in method builtins.exec>"
    assert totals[root] == pytest.approx(profile.wall_s, rel=0.15)  # small paths hang elsewhere


@pytest.mark.slow
def test_a_run_of_pytest(tmp_path: Path) -> None:
    path, suite = tmp_path / "pytest.prof", put(tmp_path / "test_it.py", SUITE)
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(suite)]
    done = subprocess.run(
        [sys.executable, "-m", "cProfile", "-o", str(path), *words],
        capture_output=True,
        check=False,
        text=True,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr
    profile = assert_same_as_pstats(path)
    assert len(profile.functions) > 2000
    ran = [one for one in profile.functions if profile.frames[one.of.frame].file == str(suite)]
    calls = {profile.frames[one.of.frame].name: one.of.calls for one in ran}
    assert (calls["test_square"], calls["square"]) == (3, 3)


@pytest.mark.slow
def test_a_training_loop(tmp_path: Path) -> None:
    path = tmp_path / "train.prof"
    program = """
import sys, cProfile, torch
model = torch.nn.Sequential(torch.nn.Linear(64, 100), torch.nn.ReLU(), torch.nn.Linear(100, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def step():
    optimizer.zero_grad()
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
with cProfile.Profile() as profiler:
    for _ in range(5):
        step()
profiler.dump_stats(sys.argv[1])
"""
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    profile = assert_same_as_pstats(path)
    step = next(one for one in profile.functions if profile.frames[one.of.frame].name == "step")
    assert step.of.calls == 5


def test_the_older_profiler_counts_calls_by_caller_alone(tmp_path: Path) -> None:
    path = tmp_path / "old.prof"

    def inner() -> None:
        sorted(range(500))

    def outer() -> None:
        inner()
        inner()

    profiler = slow_profiler.Profile()
    profiler.runcall(outer)
    profiler.dump_stats(path)
    profile = read(path)
    stats: Any = pstats.Stats(str(path))
    assert len(profile.functions) == len(stats.stats)
    (of_inner,) = (f for f in profile.functions if profile.frames[f.of.frame].name == "inner")
    assert [caller.calls for caller in of_inner.callers] == [2]
    assert any("shared out by calls" in note for note in profile.notes)
    assert any(path[-2:] == ("outer", "inner") for path in own_by_path(profile))


def test_a_file_that_was_read_is_written_as_it_was(counted: Path, tmp_path: Path) -> None:
    write_profile(read(counted), tmp_path / "again.prof", "pstats")
    ours: Any = pstats.Stats(str(tmp_path / "again.prof"))
    theirs: Any = pstats.Stats(str(counted))
    assert ours.stats == theirs.stats


def test_a_trace_becomes_a_table_that_pstats_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_profile(traced(), tmp_path / "t.prof", "pstats")
    stats: Any = pstats.Stats(str(tmp_path / "t.prof"))
    primitive, calls, own, total, callers = stats.stats["", 0, "aten::mm"]
    assert (primitive, calls) == (2, 2)
    assert own == pytest.approx(220.007e-6)
    assert total == pytest.approx(250.007e-6)
    assert list(callers) == [("", 0, "forward")]
    stats.sort_stats("cumulative").print_stats()
    stats.print_callers()
    assert "aten::mm" in capsys.readouterr().out


def figures(**changes: Any) -> dict[Key, Any]:
    row = {"primitive": 1, "calls": 1, "own": 0.5, "total": 0.5, "callers": {}, **changes}
    return {("f.py", 1, "f"): tuple(row.values())}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "no function"),
        (figures(own=float("nan")), "seconds"),
        (figures(total=float("inf")), "seconds"),
        (figures(calls=-1), "-1 times"),
        (figures(calls=1.5), "1.5 times"),
        (figures(calls=2**70), "times"),
        (figures(callers=None), "no figures"),
        (figures(callers={("f.py", 1, "f"): (1, 2)}), "no figures for a caller"),
        ({("f.py", 1, "f"): (1, 1)}, "no figures"),
    ],
)
def test_figures_that_are_none_are_refused(tmp_path: Path, table: Any, said: str) -> None:
    assert said in refused(put(tmp_path / "x.prof", marshal.dumps(table)))


def test_a_time_below_zero_is_kept_and_said(tmp_path: Path) -> None:
    profile = read(put(tmp_path / "x.prof", marshal.dumps(figures(own=-0.25))))
    assert profile.functions[0].of.own_s == -0.25
    assert profile.problems == ("1 function with a time below zero (such as 'f').",)


def test_callers_shared_by_all_functions_do_not_multiply_without_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bomb: one table of callers, referred to by every function."""
    monkeypatch.setattr(pstats_file, "MAX_CALLERS", 10_000)
    callers = {("f.py", line, "g"): (1, 1, 0.0, 0.0) for line in range(200)}
    table = {("f.py", line, "f"): (1, 1, 0.0, 0.0, callers) for line in range(200)}
    raw = marshal.dumps(table)
    assert len(raw) < 20_000  # it is small as a file: the table is in it once
    assert "more than 10,000 callers" in refused(put(tmp_path / "bomb.prof", raw))


def test_names_are_made_printable(tmp_path: Path) -> None:
    table = {("\x1b[31m\udcff.py", 1, "a\nb\x00"): (1, 1, 0.5, 0.5, {})}
    (frame, _) = read(put(tmp_path / "x.prof", marshal.dumps(table))).frames
    assert frame.name == "a\\nb\\x00"
    assert frame.file == "\\x1b[31m\\udcff.py"
