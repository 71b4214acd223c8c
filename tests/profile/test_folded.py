"""Folded stacks, plain and as py-spy and torch write them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.profile.support import own_by_path, put, read, refused, traced
from torchstone.profile import write_profile
from torchstone.records import CallTree, Frame, LineTable, Profile, Sampling, UsageError
from torchstone.show.profile_text import profile_text

PYSPY = """\
<module> (app.py:30);main (app.py:12);work (lib/work.py:7) 40
<module> (app.py:30);main (app.py:12);work (lib/work.py:9) 15
<module> (app.py:30);main (app.py:13) 5
<module> (app.py:30);main (app.py:13);sgemm (libmkl.so.2) 25
"""


OURS = '# torchstone: {"how": "sample", "tool": "x", "unit": "seconds", "scale": 1e9}\n'
SAMPLED = Sampling(600, 0.005, "wall", 2)


def weighing(*weights: float) -> Profile:
    """Two call paths of one frame each."""
    paths = CallTree("samples", (-1, -1), (0, 1), weights, (0, 0))
    return replace(traced(), how="sample", spans=None, tree=paths)


def test_plain_stacks(tmp_path: Path) -> None:
    profile = read(put(tmp_path / "x.folded", "# made by hand\na;b;c 3\n\na;b 2\r\na;b;c 4\n"))
    assert own_by_path(profile) == {("a", "b", "c"): 7, ("a", "b"): 2}
    assert profile.tree is not None
    assert profile.tree.unit == "weight"
    assert profile.problems == ()
    assert profile.lines == ()


def test_pyspy_gives_places_and_lines(tmp_path: Path) -> None:
    profile = read(put(tmp_path / "spy.raw", PYSPY))
    assert Frame("work", "lib/work.py", 7) in profile.frames
    assert Frame("sgemm", "libmkl.so.2", 0, "native") in profile.frames
    assert own_by_path(profile)["<module>", "main", "work"] == 55
    assert profile.lines == (
        LineTable("lib/work.py", (7, 9), (40, 15)),
        LineTable("app.py", (13,), (5,)),
    )


def test_threads_stand_at_the_head_of_a_stack(tmp_path: Path) -> None:
    text = "thread (0x7F00);a 1\nthread (0x7F00);b 1\nthread (12): io;a 2\na 3\nthread (9) 1\n"
    profile = read(put(tmp_path / "x.folded", text))
    assert [(t.name, t.id) for t in profile.threads] == [
        ("thread (0x7F00)", 0x7F00),
        ("io", 12),
        ("all threads", 0),
    ]
    assert own_by_path(profile) == {("a",): 6, ("b",): 1, ("thread (9)",): 1}


def test_a_name_may_begin_as_a_comment_does(tmp_path: Path) -> None:
    text = "# samples: 12\n#\n#made by hand\na 1\n#<Class:Foo>;b 90\n# odd;b 5\n"
    profile = read(put(tmp_path / "x.folded", text))
    assert own_by_path(profile) == {("a",): 1, ("#<Class:Foo>", "b"): 90, ("# odd", "b"): 5}


@pytest.mark.parametrize(
    ("weights", "scale"), [((0.25, 0.5), 100), ((0.4, 3.0), 10), ((2.0, 3.0), 1)]
)
def test_weights_that_are_not_whole_are_scaled(
    tmp_path: Path, weights: tuple[float, float], scale: int
) -> None:
    remarks = write_profile(weighing(*weights), tmp_path / "x.folded", "folded")
    lines = (tmp_path / "x.folded").read_text(encoding="utf-8").splitlines()
    assert [float(line.split()[-1]) for line in lines[1:]] == [one * scale for one in weights]
    assert own_by_path(read(tmp_path / "x.folded")) == pytest.approx(
        {("main",): weights[0], ("forward",): weights[1]}
    )
    said = [f"the numbers are {scale:,} times as large"] if scale > 1 else []
    assert [one for one in said if one not in "\n".join(remarks)] == []
    assert len(remarks) == 1 + len(said)


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    remarks = write_profile(weighing(1e-9, 3.0), tmp_path / "x.folded", "folded")
    assert any("left out: 3.3e-10 of the whole" in said for said in remarks)
    with pytest.raises(UsageError, match="too little"):
        write_profile(weighing(1e-9, 1e-9), tmp_path / "y.folded", "folded")


def test_a_name_may_hold_spaces_and_numbers(tmp_path: Path) -> None:
    profile = read(put(tmp_path / "x.folded", "operator() (int);f 7 12\n"))
    assert own_by_path(profile) == {("operator() (int)", "f 7"): 12}


def test_a_last_line_without_an_end_is_said(tmp_path: Path) -> None:
    assert "may be cut off" in read(put(tmp_path / "x.folded", "a;b 3\na;b 2")).problems[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a;b 3\na;b", "line 2 is not a stack and a number"),
        ("a;b -3\n", "line 1 is not"),
        ("a;b nan\n", "line 1 is not"),
        ("a;b 1e5\n", "line 1 is not"),
        ("a;b ٣\n", "line 1 is not"),
        ("a;b " + "9" * 29 + "\n", "line 1 is not"),
        ("17\n", "line 1 is not"),
        ("\n\n# nothing\n", "no stack in it"),
        (b"a;\xff 3\n", "not text in UTF-8"),
        (b"a;b 3\n\xe2\x82", "not text in UTF-8"),
        ("a;" * 20_000 + "b 1\n", "more than 10,000 frames"),
        ("x" * (2**20 + 5) + " 1\n" + "y" * 2**20, "a line is longer"),
    ],
)
def test_what_is_no_stack_is_refused(tmp_path: Path, text: str | bytes, said: str) -> None:
    assert said in refused(put(tmp_path / "x.folded", text), "folded")


def test_a_trace_folds_to_nanoseconds(tmp_path: Path) -> None:
    remarks = write_profile(traced(), tmp_path / "x.folded", "folded")
    assert any("nanoseconds" in said for said in remarks)
    lines = (tmp_path / "x.folded").read_text(encoding="utf-8").splitlines()
    assert "thread (71): main thread;main (app.py:3);forward;aten::mm 220007" in lines
    again = read(tmp_path / "x.folded")
    assert own_by_path(again) == pytest.approx(
        {
            tuple(name.replace(";", ":") for name in path): own
            for path, own in own_by_path(traced()).items()
        }
    )
    assert [thread.name for thread in again.threads] == ["main thread", "stream 7"]


def test_what_is_not_known_to_be_samples_has_no_interval(tmp_path: Path) -> None:
    """As torch.profiler.export_stacks writes it: microseconds, and nothing says so."""
    profile = read(
        put(tmp_path / "stacks.txt", "app.py(3):_main;app.py(9):_work 666082304\nx 333041152\n")
    )
    assert profile.sampling is None
    assert "95 %" not in profile_text(profile)
    assert "do not say what they count" in profile.notes[0]


@pytest.mark.parametrize(
    ("how", "sampling"), [("sample", SAMPLED), ("count", None), ("trace", None)]
)
def test_ours_read_back_as_what_they_were(
    tmp_path: Path, how: str, sampling: Sampling | None
) -> None:
    tree = CallTree("seconds", (-1, 0), (0, 1), (0.25, 0.5), (0, 0))
    was = replace(
        traced(), how=how, tool="mine", spans=None, tree=tree, steps=7, estimated=how == "count",
        sampling=sampling,
    )  # fmt: skip
    write_profile(was, tmp_path / "x", "folded")
    again = read(tmp_path / "x")  # by its content
    assert own_by_path(again) == pytest.approx(own_by_path(was))
    assert again.tree is not None
    assert again.tree.unit == "seconds"
    assert (again.how, again.tool, again.steps) == (how, "mine", 7)
    assert (again.sampling, again.estimated) == (sampling, how == "count")
    assert ("95 %" in profile_text(again)) == (how == "sample")


def test_lines_of_time_are_seconds(tmp_path: Path) -> None:
    text = OURS + "f (a.py:7) 250000000\nf (a.py:9) 500000000\n"
    (table,) = read(put(tmp_path / "x.folded", text)).lines
    assert table == LineTable("a.py", (7, 9), seconds=(0.25, 0.5))


@pytest.mark.parametrize(
    "said",
    [
        "nothing",
        "[" * 5000,
        '{"how": "guess", "tool": "x", "unit": "seconds"}',
        '{"how": "sample", "tool": "x", "unit": "miles"}',
        '{"how": "sample", "tool": "x", "unit": "seconds", "scale": 0}',
        '{"how": "sample", "tool": "x", "unit": "seconds", "scale": NaN}',
        '{"how": "sample", "tool": "x", "unit": "seconds", "scale": 1' + "0" * 400 + "}",
        '{"how": "sample", "tool": "x", "unit": "seconds", "steps": -1}',
        '{"how": "sample", "tool": "x", "unit": "seconds", "sampling":'
        ' {"samples": 5, "interval_s": Infinity, "clock": "wall"}}',
    ],
)
def test_a_comment_that_says_what_cannot_be_is_none(tmp_path: Path, said: str) -> None:
    profile = read(put(tmp_path / "x.folded", f"# torchstone: {said}\na;b 3\n"))
    assert profile.tree is not None
    assert (profile.tree.unit, profile.sampling) == ("weight", None)
