"""Counting: cProfile's figures to the digit, threads, counters, bytecode."""

from __future__ import annotations

import builtins
import pstats
import sys
import threading
from pathlib import Path
from types import FunctionType

import pytest

from tests.profile.probing import names
from torchstone.profile import write_profile
from torchstone.profile.child import take
from torchstone.profile.formats.own import check_profile
from torchstone.profile.probes.count import SHARED, CountProbe
from torchstone.records import Profile


def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def work() -> list[int]:
    return sorted(map(fibonacci, range(12)), key=lambda value: -value)


def counted(function: object = work) -> tuple[Profile, CountProbe]:
    probe = CountProbe()
    assert not probe.unavailable()
    probe.start()
    try:
        function()  # type: ignore[operator]
    finally:
        profile = probe.stop()
    check_profile(profile)
    return profile, probe


def as_pstats(profile: Profile) -> dict[object, object]:
    """The record in the form of `pstats`."""

    def key(frame: int) -> tuple[str, int, str]:
        one = profile.frames[frame]
        return ("~" if one.kind == "native" else one.file, one.line, one.name)

    return {
        key(f.of.frame): (
            f.of.primitive,
            f.of.calls,
            f.of.own_s,
            f.of.total_s,
            {key(c.frame): (c.calls, c.primitive, c.own_s, c.total_s) for c in f.callers},
        )
        for f in profile.functions
    }


def test_figures_are_those_of_pstats_to_the_digit(tmp_path: Path) -> None:
    profile, probe = counted()
    theirs = pstats.Stats(probe._main).stats  # type: ignore[attr-defined]
    assert as_pstats(profile) == theirs
    calls = next(row for key, row in theirs.items() if key[2] == "fibonacci")
    assert calls[1] > calls[0] == 12  # recursion: 12 primitive calls, many in all
    write_profile(profile, tmp_path / "x.prof", "pstats")
    assert pstats.Stats(str(tmp_path / "x.prof")).stats == theirs  # type: ignore[attr-defined]


def test_the_estimated_tree_holds_all_own_time() -> None:
    profile, _ = counted()
    assert profile.estimated
    assert profile.tree is not None
    own = sum(one.of.own_s for one in profile.functions)
    assert sum(profile.tree.own) == pytest.approx(own)


def test_functions_that_only_start_the_work_are_not_in_the_tree() -> None:
    profile = take(CountProbe(), work, 5)
    assert {"run_steps", "work", "fibonacci"} <= names(profile.frames)  # they are in the table
    tree = profile.tree
    assert tree is not None
    roots = {
        profile.frames[frame].name
        for frame, parent in zip(tree.frames, tree.parents, strict=True)
        if parent < 0
    }
    assert "work" in roots
    assert "run_steps" not in {profile.frames[frame].name for frame in tree.frames}
    assert sum(tree.own) == pytest.approx(sum(one.of.own_s for one in profile.functions))


def test_threads_that_it_starts_are_counted() -> None:
    def in_thread() -> None:
        thread = threading.Thread(target=fibonacci, args=(10,), name="side")
        thread.start()
        thread.join()

    profile, _ = counted(in_thread)
    assert "fibonacci" in names(profile.frames)
    assert sys.getprofile() is None
    if SHARED:
        assert any("Several threads" in problem for problem in profile.problems)
    else:
        assert [thread.name for thread in profile.threads] == ["MainThread", "side"]
        assert [thread.critical for thread in profile.threads] == [True, False]
        assert profile.tree is not None
        assert set(profile.tree.threads) == {0, 1}


def test_what_was_read_and_written_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def copies() -> None:
        path.write_bytes(b"x" * 300_000)
        assert len(path.read_bytes()) == 300_000

    profile, _ = counted(copies)
    found = {counter.name: counter for counter in profile.counters}
    for name in ("read by system calls", "written by system calls"):
        value = found[name].value
        assert value is not None
        assert 300_000 <= value < 600_000
    assert found["page faults, minor"].value is not None
    for name in ("cycles", "instructions"):
        value = found[name].value
        assert (value is not None and value > 0) or "not measurable here" in found[name].note


def test_the_hottest_functions_have_their_source_and_bytecode() -> None:
    profile, _ = counted(lambda: fibonacci(15))
    by_name = {profile.frames[code.frame].name: code for code in profile.bytecode}
    instructions = by_name["fibonacci"].instructions
    first = fibonacci.__code__.co_firstlineno
    assert {one.line for one in instructions if one.line} <= {first, first + 1}
    assert any(one.argument == "fibonacci" or "fibonacci" in one.argument for one in instructions)
    if sys.version_info >= (3, 11):
        assert any(one.specialised for one in instructions)  # the loop is hot by now
    table = next(table for table in profile.lines if table.file == __file__)
    assert table.text[first - 1].startswith("def fibonacci")
    assert table.hits[table.lines.index(first)] == next(
        one.of.calls for one in profile.functions if profile.frames[one.of.frame].line == first
    )


def test_time_beside_a_line_is_said_to_be_the_functions() -> None:
    profile, _ = counted()
    assert any("whole functions, at the line where each begins" in note for note in profile.notes)


def test_another_profiler_in_its_place_is_said() -> None:
    sys.setprofile(lambda *_: None)
    try:
        assert "another profiler" in CountProbe().unavailable()
    finally:
        sys.setprofile(None)


def test_functions_that_look_alike_are_added_up() -> None:
    """cProfile keeps the figures of one of them: time would be lost without a word."""
    code = compile("def alike(n): return sum(range(n))", "<made>", "exec").co_consts[0]
    alike = [FunctionType(code.replace(co_consts=(None, i)), {**vars(builtins)}) for i in range(3)]
    profile, probe = counted(lambda: [one(20_000) for one in alike for _ in range(5)])
    row = next(f.of for f in profile.functions if profile.frames[f.of.frame].name == "alike")
    assert (row.calls, row.primitive) == (15, 15)
    theirs = pstats.Stats(probe._main).stats  # type: ignore[attr-defined]
    assert theirs["<made>", 1, "alike"][1] == 5
    assert any(note.startswith("2 functions have the name") for note in profile.notes)
    assert sum(f.of.own_s for f in profile.functions) == pytest.approx(profile.wall_s, rel=0.2)
