"""Chrome traces: what is in them, and what is wrong with them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.profile.support import (
    US,
    mark,
    own_by_path,
    put,
    read,
    refused,
    spans_of,
    traced,
    x,
)
from torchstone.profile import write_profile
from torchstone.profile.formats import chrome_events
from torchstone.profile.formats.base import Faults
from torchstone.profile.formats.chrome_events import Columns, settle
from torchstone.profile.formats.own import check_profile
from torchstone.records import Frame, MemoryUse, Profile, Thread, UsageError


@pytest.fixture
def trace(tmp_path: Path) -> Any:
    """Reads events as a trace."""

    def make(events: Any, **header: Any) -> Profile:
        return read(put(tmp_path / "t.json", {**header, "traceEvents": events}))

    return make


def test_calls_that_begin_and_end_together_keep_their_order(trace: Any) -> None:
    """A sampler that writes beginnings and ends has little else."""
    names = ("<module>", "train", "step", "matmul")
    opened = [mark("B", name, 0) for name in names]
    closed = [mark("E", name, 1000) for name in reversed(names)]
    assert own_by_path(trace([*opened, *closed])) == pytest.approx({names: 1e-3})
    cut_off = [*opened, mark("B", "tail", 500)]
    assert own_by_path(trace(cut_off)) == pytest.approx({names: 5e-4})
    assert own_by_path(trace([x("outer", 0, 10), x("inner", 0, 10)])) == pytest.approx(
        {("outer", "inner"): 1e-5}
    )


def test_spans_threads_and_self_times(trace: Any) -> None:
    profile = trace(
        [
            x("step", 100.5, 10, cat="user_annotation"),
            x("aten::mm", 102, 3.25, cat="cpu_op"),
            x("other", 101, 4, tid="worker"),
            mark("M", "thread_name", 0, args={"name": "main"}),
        ]
    )
    assert spans_of(profile) == [
        ("main", "step", 0, 10 * US),
        ("main", "aten::mm", 1500, 3250),
        ("worker", "other", 500, 4 * US),
    ]
    assert own_by_path(profile) == pytest.approx(
        {("step",): 6.75e-6, ("step", "aten::mm"): 3.25e-6, ("other",): 4e-6}
    )
    assert profile.tree is not None
    assert profile.tree.calls == (1, 1, 1)
    assert profile.wall_s == pytest.approx(10e-6)
    assert profile.problems == ()
    assert [thread.critical for thread in profile.threads] == [True, False]


@pytest.mark.parametrize(
    ("category", "name", "frame"),
    [
        ("cpu_op", "aten::mm", Frame("aten::mm", kind="op")),
        ("kernel", "gemm<float>", Frame("gemm<float>", kind="kernel")),
        ("user_annotation", "forward", Frame("forward", kind="annotation")),
        ("python_function", "a/b.py(12): run", Frame("run", "a/b.py", 12)),
        ("python_function", "Python GC", Frame("Python GC", kind="gc")),
        (
            "python_function",
            "<built-in method f of T object at 0x7f00a>",
            Frame("<built-in method f of T object>", kind="native"),
        ),
        ("FEE", "run (/a/b.py:12)", Frame("run", "/a/b.py", 12)),
        ("", "(odd): name", Frame("(odd): name")),
    ],
)
def test_kinds_of_frames(trace: Any, category: str, name: str, frame: Frame) -> None:
    assert trace([x(name, 1, 1, cat=category)]).frames == (frame,)


def test_steps_are_one_frame_and_their_thread_is_critical(trace: Any) -> None:
    events = [x(f"ProfilerStep#{i}", 10 * i, 9, tid=2, cat="user_annotation") for i in range(4)]
    profile = trace([*events, x("long", 0, 1000, tid=1)])
    assert profile.steps == 4
    assert [(t.id, t.critical) for t in profile.threads] == [(2, True), (1, False)]
    assert [frame.name for frame in profile.frames] == ["ProfilerStep", "long"]


def test_beginnings_and_ends_are_paired(trace: Any) -> None:
    profile = trace(
        [
            mark("B", "a", 1, args={"filename": "f.py", "line": 3}),
            mark("B", "b", 2),
            mark("B", "c", 2, tid=9),
            mark("E", "b", 5),
            mark("E", "c", 4, tid=9),
            mark("E", "a", 9),
        ]
    )
    assert spans_of(profile) == [
        ("thread 1", "a", 0, 8 * US),
        ("thread 1", "b", 1 * US, 3 * US),
        ("thread 9", "c", 1 * US, 2 * US),
    ]
    assert profile.frames[2] == Frame("a", "f.py", 3) or Frame("a", "f.py", 3) in profile.frames
    assert profile.problems == ()


def test_unpaired_ones_are_said(trace: Any) -> None:
    profile = trace(
        [
            mark("E", "lost", 1),
            mark("B", "open", 2),
            mark("B", "a", 3),
            mark("E", "b", 4),
            mark("B", "x", 9),
            mark("E", "x", 8),
        ]
    )
    said = "\n".join(profile.problems)
    assert "1 event left out: an end without a beginning (such as event 1)." in said
    assert "1 event without an end" in said
    assert "(such as 'open')" in said
    assert "names another event than the one that is open (such as 'a')" in said
    assert "1 event left out: the duration is negative (such as 'x')" in said
    assert spans_of(profile)[0] == ("thread 1", "open", 0, 7 * US)  # to the last time stamp


def test_a_span_that_reaches_out_is_cut_where_it_costs_least(trace: Any) -> None:
    """`late` loses its tail; of `short` only the tail lies under `long`, which goes on beside."""
    profile = trace(
        [
            x("outer", 0, 100),
            x("late", 90, 15),
            x("short", 200, 10),
            x("long", 205, 500),
            x("inside", 210, 5),
        ]
    )
    assert spans_of(profile) == [
        ("thread 1", "outer", 0, 100 * US),
        ("thread 1", "late", 90 * US, 10 * US),
        ("thread 1", "short", 200 * US, 5 * US),
        ("thread 1", "long", 205 * US, 500 * US),
        ("thread 1", "inside", 210 * US, 5 * US),
    ]
    assert profile.problems == (
        "1 event cut: overlapping the span that it begins in (such as 'late' in 'outer').",
        "1 event cut: longer than the span that it begins in (such as 'long' in 'short').",
    )
    assert any("0.01 ms were cut" in note for note in profile.notes)
    assert own_by_path(profile)["long", "inside"] == pytest.approx(5e-6)


def test_a_mark_that_overlaps_the_calls_that_make_it_is_a_note(trace: Any) -> None:
    """As torch writes `record_function`: the mark begins in `enter` and ends in `exit`."""
    events = [
        x("enter", 0, 20, cat="python_function"),
        x("forward", 10, 100, cat="user_annotation"),
        x("aten::mm", 30, 40, cat="cpu_op"),
        x("exit", 100, 16, cat="python_function"),
        x("inside exit", 102, 12, cat="python_function"),
    ]
    profile = trace(events)
    assert profile.problems == ()
    said = "3 spans cut: a mark begins and ends within the calls that make it"
    assert any(note.startswith(said) for note in profile.notes)
    # A call that reaches over the one that it begins in is a fault, whatever else was cut.
    faulty = trace([*events[:-1], x("inside exit", 102, 18, cat="python_function")])
    assert "'inside exit' in 'exit'" in " ".join(faulty.problems)
    assert own_by_path(profile)["forward", "aten::mm"] == pytest.approx(40e-6)


@pytest.mark.parametrize(
    ("outer", "inner"),
    [("user_annotation", "cpu_op"), ("python_function", "cpu_op"),
     ("python_function", "python_function"), ("user_annotation", "user_annotation")],
)  # fmt: skip
def test_whatever_else_overlaps_is_a_fault(trace: Any, outer: str, inner: str) -> None:
    profile = trace([x("outer", 0, 100, cat=outer), x("late", 90, 15, cat=inner)])
    assert profile.problems == (
        "1 event cut: overlapping the span that it begins in (such as 'late' in 'outer').",
    )


def test_an_overlap_of_rounding_is_a_note(trace: Any) -> None:
    profile = trace([x("outer", 0, 10), x("in", 5, 5.9)])
    assert profile.problems == ()
    assert any("as rounding does" in note for note in profile.notes)
    assert spans_of(profile)[1][3] == 5 * US


def test_the_order_in_the_file_does_not_matter(trace: Any) -> None:
    events = [x("c", 3, 1), x("a", 0, 10), x("b", 0, 10, tid=2), x("d", 3, 4), x("e", 0, 10)]
    assert spans_of(trace(events)) == [
        ("thread 1", "a", 0, 10 * US),
        ("thread 1", "e", 0, 10 * US),
        ("thread 1", "d", 3 * US, 4 * US),
        ("thread 1", "c", 3 * US, 1 * US),
        ("thread 2", "b", 0, 10 * US),
    ]


def test_time_stamps_of_zero_are_left_out_where_they_mean_nothing(trace: Any) -> None:
    day = 86_400e6
    profile = trace([x("lost", 0, 0), x("lost", 0, 5), x("real", day, 10), x("b", day + 2, 3)])
    assert [span[1:] for span in spans_of(profile)] == [("real", 0, 10 * US), ("b", 2 * US, 3 * US)]
    assert any("2 events left out: the time stamp is zero" in said for said in profile.problems)
    kept = trace([x("first", 0, 5), x("next", 900_000, 10)])
    assert [span[1] for span in spans_of(kept)] == ["first", "next"]


def test_what_is_no_event_is_counted(trace: Any) -> None:
    profile = trace(
        [
            x("good", 1, 1),
            x("negative", 1, -1),
            x("word", "1", 1),
            x("endless", float("inf"), 1),
            x("no number", float("nan"), 1),
            {"ph": "X", "name": "no time"},
            {"ph": "X", "ts": 1, "dur": 1},
            x("list", 1, 1, tid=[1]),
            x("far", 1e300, 1),
            7,
            None,
        ]
    )
    assert len(spans_of(profile)) == 1
    said = "\n".join(profile.problems)
    assert "5 events left out: time stamp or duration is no number (such as 'word')" in said
    assert "4 events left out: no name or no thread (such as event 7)" in said
    assert "1 event left out: the duration is negative (such as 'negative')" in said


def test_lost_events_are_said(trace: Any) -> None:
    full = trace([x("a", 1, 1)], viztracer_metadata={"version": "1.1.1", "overflow": True})
    assert full.tool == "viztracer"
    assert any("buffer was full" in said for said in full.problems)
    memory = {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 9, "args": {"Ev Idx": 3}}
    whole = [x("a", i, 1, args={"Ev Idx": i}) for i in (0, 1, 2, 4)]
    assert trace([*whole, memory]).problems == ()  # an instant has a number too
    numbered = [x("a", i, 1, args={"Ev Idx": i}) for i in (0, 1, 2, 7, 8)]
    assert any("4 events are missing" in said for said in trace(numbered).problems)
    assert trace(numbered[:3]).problems == ()
    silent = trace([x("a", 1_000_000, 100_000), x("b", 3_000_000, 100_000)])
    (said,) = silent.problems
    assert said.startswith("Nothing was recorded on any thread for 1.9 s of 2.1 s, from 0.1 s on")
    still = trace([x("a", i, 0) for i in range(5)])
    assert any("5 of 5 spans have no duration" in said for said in still.problems)


def test_memory_and_counters(trace: Any) -> None:
    def memory(ts: float, total: int, device: int = 0) -> dict[str, Any]:
        args = {"Total Allocated": total, "Device Type": device, "Bytes": 8}
        return {**mark("i", "[memory]", ts), "args": args}

    profile = trace(
        [
            x("a", 10, 10),
            memory(15, 300),
            memory(12, 100),
            memory(13, 9**9, device=1),
            mark("C", "queue", 12, args={"depth": 5}),
            mark("C", "queue", 11, args={"depth": 3}),
            mark("C", "seed", 11, args={"seed": 7}),
        ]
    )
    assert profile.memory is not None
    assert profile.memory.time_ns == (2 * US, 5 * US)
    assert profile.memory.heap == (100, 300)
    assert (profile.memory.peak_bytes, profile.memory.peak_ns) == (300, 5 * US)
    assert [(c.name, c.value, c.note) for c in profile.counters] == [
        ("queue", 5.0, "the last of 2 values"),
        ("seed", 7.0, ""),
    ]


def test_counters_of_processes_of_one_name_are_told_apart(trace: Any) -> None:
    named = [{**mark("M", "process_name", 0, args={"name": "python"}), "pid": n} for n in (1, 2)]
    counted = [{**mark("C", "queue", 11, args={"depth": n}), "pid": n} for n in (1, 2)]
    profile = trace([x("a", 10, 10), *named, *counted])
    assert [c.name for c in profile.counters] == ["queue (python 1)", "queue (python 2)"]


def test_counters_of_several_processes_stay_apart(trace: Any) -> None:
    profile = trace(
        [
            x("a", 10, 10),
            mark("M", "process_name", 0, args={"name": "worker"}),
            mark("C", "queue", 11, args={"depth": 3}),
            {**mark("C", "queue", 12, args={"depth": 5}), "pid": 2},
            {**mark("C", "queue", 13, args={"depth": 6}), "pid": [2]},
        ]
    )
    assert [(c.name, c.value) for c in profile.counters] == [
        ("queue (worker)", 3.0),
        ("queue (2)", 5.0),
        ("queue (0)", 6.0),
    ]


def test_the_start_is_told_by_the_base_time(trace: Any) -> None:
    base = 1_767_225_600 * 10**9  # 2026-01-01
    profile = trace([x("a", 5e6, 1)], baseTimeNanoseconds=base, schemaVersion=1, host_name="h")
    assert profile.created == "2026-01-01T00:00:05+00:00"
    assert profile.facts == {"schemaVersion": "1"}


@pytest.mark.parametrize("base", [-(10**400), 10**400, -1, True, "now"], ids=lambda b: str(b)[:4])
def test_a_base_time_that_is_none_tells_nothing(trace: Any, tmp_path: Path, base: Any) -> None:
    """The file's own time does instead."""
    profile = trace([x("a", 5, 1)], baseTimeNanoseconds=base)
    written = datetime.fromtimestamp((tmp_path / "t.json").stat().st_mtime, timezone.utc)
    assert profile.created == written.isoformat(timespec="seconds")


def test_pyspy_as_a_trace(tmp_path: Path) -> None:
    """A bare list of beginnings and ends, the thread's name among them."""
    place = {"filename": "app.py", "line": 12}
    events = [
        mark("M", "thread_name", 0, tid=0, args={"filename": "", "name": "71: MainThread"}),
        mark("B", "main", 0, tid=0, cat="py-spy", args=place),
        mark("B", "work", 0, tid=0, cat="py-spy", args=place),
        mark("E", "work", 10_000, tid=0, cat="py-spy", args=place),
        mark("E", "main", 20_000, tid=0, cat="py-spy", args=place),
    ]
    profile = read(put(tmp_path / "spy.json", events))
    assert (profile.tool, profile.how) == ("py-spy", "sample")
    assert profile.threads[0].name == "71: MainThread"
    assert own_by_path(profile) == pytest.approx({("main",): 0.01, ("main", "work"): 0.01})


def test_a_list_may_lack_its_last_bracket(tmp_path: Path) -> None:
    profile = read(put(tmp_path / "t.json", '[{"ph":"X","name":"a","ts":1,"dur":2},'))
    assert len(spans_of(profile)) == 1
    assert any("may be cut off" in said for said in profile.problems)


def test_events_may_come_after_much_else(tmp_path: Path) -> None:
    """Whole source files stand before the events, with brackets and quotes in them."""
    text = 'def f():\\n  return "[{]}\\" \\\\"'.replace('"', '\\"')
    source = f'"{text * 20_000}"'
    data = f'{{"file_info": {{"a": [{source}]}}, "n": 12, "traceEvents": [{{"ph":"X","name":"a",'
    data += '"ts":1,"dur":2}], "viztracer_metadata": {"overflow": false}}'
    profile = read(put(tmp_path / "t.json", data), "chrome")
    assert len(spans_of(profile)) == 1
    assert (profile.tool, profile.problems) == ("viztracer", ())


def test_a_trace_beyond_the_bounds_is_cut_and_says_so(
    trace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chrome_events, "MAX_SPANS", 10)
    events = [x("a", i, 1) for i in range(50)]
    profile = trace(events)
    assert len(spans_of(profile)) == 10
    assert any("only its first 10 events are here" in said for said in profile.problems)
    assert trace(events[:10]).problems == ()


def test_a_trace_without_spans_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path / "t.json", {"traceEvents": [mark("M", "thread_name", 0)]})
    assert "there is no span in it" in refused(path)


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    profile = replace(
        traced(), memory=MemoryUse((5, 90_001), (10, 30), (7, 8), 8, 90_001, source="here")
    )
    write_profile(profile, tmp_path / "t.json", "chrome")
    again = read(tmp_path / "t.json")
    assert spans_of(again) == spans_of(profile)
    assert set(again.frames) == set(profile.frames)
    assert own_by_path(again) == own_by_path(profile)
    assert [(t.name, t.process) for t in again.threads] == [("main thread", 70), ("stream 7", 70)]
    assert again.memory is not None
    assert profile.memory is not None
    assert again.memory.time_ns == profile.memory.time_ns
    assert again.memory.heap == profile.memory.heap
    assert again.problems == ()


def test_a_profile_without_time_is_not_made_up_into_a_trace(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no time axis"):
        write_profile(replace(traced(), spans=None), tmp_path / "t.json", "chrome")


spans = st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 40))


@settings(max_examples=80)
@given(st.lists(spans, min_size=1, max_size=25))
def test_whatever_overlaps_is_cut_until_it_nests(rows: list[tuple[int, int, int]]) -> None:
    columns = Columns()
    for thread, start, duration in rows:
        columns.add(0, thread, start * 10_000, duration * 10_000)
    settled = settle(columns, [Frame("f")], Faults(), 0)
    profile = Profile(
        id="",
        created="",
        how="trace",
        tool="",
        frames=(Frame("f"),),
        threads=tuple(Thread(str(i)) for i in range(3)),
        spans=settled.spans,
    )
    check_profile(profile)
    assert len(settled.spans.frames) == len(rows)
    before = sum(duration for _, _, duration in rows) * 10_000
    assert sum(settled.spans.duration_ns) == before - settled.cut_ns
