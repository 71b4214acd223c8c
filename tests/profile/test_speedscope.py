"""speedscope files: sampled and evented, of every unit, as tools write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.profile.support import own_by_path, put, read, refused, spans_of, traced
from torchstone.profile import write_profile
from torchstone.records import CallTree, Frame, Profile, Sampling
from torchstone.show.profile_text import profile_text

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def file(*profiles: dict[str, Any], **more: Any) -> dict[str, Any]:
    frames = [{"name": "main", "file": "a.py", "line": 3}, {"name": "work"}, {"name": "aten::mm"}]
    return {
        "$schema": SCHEMA,
        "shared": {"frames": frames},
        "profiles": list(profiles),
        **more,
    }


def sampled(samples: Any, weights: Any, unit: Any = "none", name: str = "t") -> dict[str, Any]:
    return {
        "type": "sampled",
        "name": name,
        "unit": unit,
        "startValue": 0,
        "endValue": 9,
        "samples": samples,
        "weights": weights,
    }


def evented(*events: tuple[str, Any, Any], unit: str = "milliseconds", **more: Any) -> Any:
    rows = [{"type": kind, "at": at, "frame": frame} for kind, at, frame in events]
    return {"type": "evented", "name": "t", "unit": unit, "startValue": 0, "events": rows, **more}


@pytest.mark.parametrize(
    ("unit", "scale"),
    [("nanoseconds", 1e-9), ("microseconds", 1e-6), ("milliseconds", 1e-3), ("seconds", 1.0)],
)
def test_samples_of_time(tmp_path: Path, unit: str, scale: float) -> None:
    data = file(sampled([[0], [0, 1], [0, 1], [0]], [2, 3, 4, 1], unit), exporter="py-spy@0.4.3")
    profile = read(put(tmp_path / "s.json", data))
    assert own_by_path(profile) == pytest.approx(
        {("main",): 3 * scale, ("main", "work"): 7 * scale}
    )
    assert profile.tree is not None
    assert (profile.tree.unit, profile.how, profile.tool) == ("seconds", "sample", "py-spy")
    assert profile.wall_s == pytest.approx(10 * scale)
    assert profile.sampling is None  # weights are unequal: nobody knows how many looks they are
    assert profile.frames == (
        Frame("main", "a.py", 3),
        Frame("work"),
        Frame("aten::mm", kind="op"),
    )


def test_threads_that_run_side_by_side_take_the_time_of_one(tmp_path: Path) -> None:
    threads = [sampled([[0], [1]], [4, 6 - i], "seconds", f"t{i}") for i in range(4)]
    profile = read(put(tmp_path / "s.json", file(*threads)))
    assert profile.wall_s == 10.0


def test_samples_without_unit_and_bytes(tmp_path: Path) -> None:
    counted = read(put(tmp_path / "s.json", file(sampled([[0], [0, 1], [0]], [1, 1, 1]))))
    assert counted.tree is not None
    assert (counted.tree.unit, counted.wall_s) == ("samples", 0.0)
    assert counted.sampling is not None
    assert counted.sampling.samples == 3
    unknown = read(put(tmp_path / "u.json", file(sampled([[0], [0, 1]], [2, 3]))))
    assert unknown.tree is not None
    assert (unknown.tree.unit, unknown.sampling) == ("weight", None)
    of_memory = read(put(tmp_path / "m.json", file(sampled([[0, 1]], [4096], "bytes"))))
    assert of_memory.tree is not None
    assert (of_memory.tree.unit, of_memory.how) == ("bytes", "memory")
    assert own_by_path(of_memory) == {("main", "work"): 4096.0}


def test_events_become_spans(tmp_path: Path) -> None:
    """As pyinstrument writes them: seconds, one profile."""
    data = file(
        evented(
            ("O", 0, 0), ("O", 0.1, 1), ("C", 0.4, 1), ("O", 0.4, 2), ("C", 0.5, 2), ("C", 1.0, 0),
            unit="seconds", endValue=1.0,
        ),
        exporter="pyinstrument",
    )  # fmt: skip
    profile = read(put(tmp_path / "s.json", data))
    assert spans_of(profile) == [
        ("t", "main", 0, 1_000_000_000),
        ("t", "work", 100_000_000, 300_000_000),
        ("t", "aten::mm", 400_000_000, 100_000_000),
    ]
    assert own_by_path(profile) == pytest.approx(
        {("main",): 0.6, ("main", "work"): 0.3, ("main", "aten::mm"): 0.1}
    )
    assert (profile.how, profile.tool, profile.problems) == ("trace", "pyinstrument", ())
    assert profile.tree is not None
    assert profile.tree.calls == (1, 1, 1)


def test_frames_that_open_and_close_together_keep_their_order(tmp_path: Path) -> None:
    data = file(
        evented(("O", 0, 0), ("O", 0, 1), ("O", 0, 2), ("C", 9, 2), ("C", 9, 1), ("C", 9, 0))
    )
    assert own_by_path(read(put(tmp_path / "s.json", data))) == pytest.approx(
        {("main", "work", "aten::mm"): 9e-3}
    )


def test_threads_share_one_axis(tmp_path: Path) -> None:
    first = evented(("O", 105, 0), ("C", 107, 0), startValue=100)
    second = {**evented(("O", 102, 1), ("C", 103, 1), startValue=101), "name": "u"}
    profile = read(put(tmp_path / "s.json", file(first, second)))
    assert spans_of(profile) == [
        ("t", "main", 5_000_000, 2_000_000),
        ("u", "work", 2_000_000, 1_000_000),
    ]


def test_events_in_bytes_weigh_and_have_no_time(tmp_path: Path) -> None:
    data = file(evented(("O", 0, 0), ("O", 100, 1), ("C", 164, 1), ("C", 200, 0), unit="bytes"))
    profile = read(put(tmp_path / "s.json", data))
    assert profile.spans is None
    assert own_by_path(profile) == {("main",): 136.0, ("main", "work"): 64.0}


def test_samples_and_events_side_by_side(tmp_path: Path) -> None:
    data = file(evented(("O", 0, 0), ("C", 4, 0)), sampled([[0, 1]], [6], "milliseconds", "u"))
    profile = read(put(tmp_path / "s.json", data))
    assert own_by_path(profile) == pytest.approx({("main",): 4e-3, ("main", "work"): 6e-3})
    assert profile.tree is not None
    assert profile.tree.calls == ()  # not counted on every thread


def test_what_can_be_mended_is_said(tmp_path: Path) -> None:
    data = file(
        evented(("C", 1, 1), ("O", 5, 0), ("O", 3, 1), ("C", 9, 1), endValue=20),
        sampled([[0]], [1], "bytes", "other"),
        sampled([[0], [1]], [-1, 2], "seconds"),
    )
    profile = read(put(tmp_path / "s.json", data))
    said = "\n".join(profile.problems)
    assert "1 entry left out: an end without a beginning (such as an end at 1.0)" in said
    assert "1 entry earlier than the one before" in said
    assert "1 entry without an end" in said
    assert "1 entry left out: another unit than that of the first (such as 'other')" in said
    assert "1 entry left out: the weight is negative or no number (such as -1)" in said
    assert ("t", "main", 5_000_000, 15_000_000) in spans_of(profile)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"$schema": SCHEMA}, "no frames or no profiles"),
        (file(), "no frames or no profiles"),
        (file(sampled([[0]], [1, 2])), "1 samples, 2 weights"),
        (file(sampled([[3]], [1])), "no frame 3"),
        (file(sampled([[-1]], [1])), "no frame -1"),
        (file(sampled([[True]], [1])), "no frame True"),
        (file(sampled([[0]], [1], "fortnights")), "the unit 'fortnights'"),
        (file(sampled([[0]], [1], [[]])), "the unit a list"),
        (file(evented(("X", 0, 0))), "neither opens nor closes"),
        (file(evented(("O", "1", 0))), "an event is at '1'"),
        (file(evented(("O", float("nan"), 0))), "an event is at nan"),
        (file(evented(("O", 1e17, 0), ("C", 1e17, 0), unit="seconds")), "a frame is open"),
        (file({"type": "other", "unit": "none"}), "of the type 'other'"),
        (file(sampled([], [])), "nothing in it"),
        ({**file(sampled([[0]], [1])), "shared": {"frames": [{}]}}, "a frame has no name"),
    ],
)
def test_what_is_broken_is_refused(tmp_path: Path, data: Any, said: str) -> None:
    assert said in refused(put(tmp_path / "s.json", data), "speedscope")


def test_spans_read_back(tmp_path: Path) -> None:
    write_profile(traced(), tmp_path / "s.json", "speedscope")
    again = read(tmp_path / "s.json")
    assert spans_of(again) == spans_of(traced())
    assert own_by_path(again) == pytest.approx(own_by_path(traced()))
    assert [(f.name, f.file, f.line) for f in again.frames] == [
        (f.name, f.file, f.line) for f in traced().frames
    ]
    document = json.loads((tmp_path / "s.json").read_text())
    for one in document["profiles"]:  # the format's own rules: balanced, never backwards
        times = [event["at"] for event in one["events"]]
        assert times == sorted(times)
        assert sum(1 if event["type"] == "O" else -1 for event in one["events"]) == 0
        assert one["endValue"] >= times[-1]


def test_call_paths_read_back(tmp_path: Path) -> None:
    source = read(put(tmp_path / "f.folded", "a;b 3\na;c (x.py:4) 5\nthread (7): io;a 2\n"))
    write_profile(source, tmp_path / "s.json", "speedscope")
    again = read(tmp_path / "s.json")
    assert own_by_path(again) == own_by_path(source) == {("a", "b"): 3, ("a", "c"): 5, ("a",): 2}
    assert [thread.name for thread in again.threads] == ["all threads", "io"]
    assert again.tree is not None
    assert again.tree.unit == "weight"


def test_a_list_of_looks_has_intervals(tmp_path: Path) -> None:
    """As py-spy writes it: each look an entry, each of the length of the interval."""
    stacks = [[0], [0, 1], [0, 1], [0, 1]]
    threads = [sampled(stacks, [0.01, 0.01, 0.01 + 1e-17, 0.01], "seconds", n) for n in "ab"]
    profile = read(put(tmp_path / "s.json", file(*threads)))
    assert profile.sampling is not None
    assert (profile.sampling.samples, profile.sampling.clock) == (8, "unknown")
    assert profile.sampling.interval_s == pytest.approx(0.01)
    assert "95 %" in profile_text(profile)


@pytest.mark.parametrize(
    ("stacks", "weights"),
    [
        ([[0], [0, 1], [0, 1]], [0.01, 0.01, 0.02]),  # some look was longer, or is several
        ([[0], [0, 1], [2]], [0.01, 0.01, 0.01]),  # call paths added up, equal by chance
        ([[0]], [3.0]),
        ([[0], [0]], [0, 0]),
    ],
)
def test_weights_that_are_no_looks_have_no_interval(
    tmp_path: Path, stacks: list[list[int]], weights: list[float]
) -> None:
    profile = read(put(tmp_path / "s.json", file(sampled(stacks, weights, "seconds"))))
    assert profile.sampling is None
    assert "95 %" not in profile_text(profile)


@pytest.mark.parametrize(
    ("how", "unit", "sampling"),
    [
        ("count", "seconds", None),
        ("sample", "seconds", Sampling(600, 0.005, "cpu", 2)),
        ("sample", "samples", Sampling(3, 0.0, "wall")),
        ("memory", "bytes", None),
    ],
)
def test_ours_read_back_as_what_they_were(
    tmp_path: Path, how: str, unit: str, sampling: Sampling | None
) -> None:
    was = Profile(
        "p", "2026-11-16T00:00:00Z", how, "mine",
        frames=traced().frames, threads=traced().threads, steps=7, estimated=how == "count",
        tree=CallTree(unit, (-1, 0), (0, 1), (1.0, 2.0), (0, 0)), sampling=sampling,
    )  # fmt: skip
    write_profile(was, tmp_path / "s.json", "speedscope")
    again = read(tmp_path / "s.json")
    assert again.tree is not None
    assert own_by_path(again) == own_by_path(was)
    assert (again.how, again.tool, again.tree.unit, again.steps) == (how, "mine", unit, 7)
    assert (again.sampling, again.estimated) == (sampling, how == "count")


def test_what_somebody_else_says_in_our_name_is_checked(tmp_path: Path) -> None:
    said = {"how": "count", "tool": "x", "unit": "seconds", "steps": -3}
    data = {**file(sampled([[0]], [3.0], "seconds")), "torchstone": said}
    profile = read(put(tmp_path / "s.json", data))
    assert (profile.how, profile.steps) == ("sample", 0)
