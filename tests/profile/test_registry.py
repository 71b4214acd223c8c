"""A file is known by its content; formats come through the door that plug-ins come through."""

from __future__ import annotations

import cProfile
import gzip
from pathlib import Path

import pytest

from tests.profile.support import put, read, refused, spans_of, traced, x
from torchstone.profile import FORMATS, find_format, write_profile
from torchstone.records import UsageError


def test_the_formats_that_ship_are_known_by_their_names() -> None:
    known = FORMATS.by_name()
    assert sorted(known) == ["chrome", "folded", "pstats", "speedscope", "torchstone"]
    for name in known:
        assert find_format(name).name == name


@pytest.mark.parametrize("format", ["chrome", "folded", "pstats", "speedscope", "torchstone"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_what_is_written_is_known_by_its_content(tmp_path: Path, format: str, ending: str) -> None:
    path = tmp_path / f"no-telling-name{ending}"
    write_profile(traced(), path, format)
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == bool(ending)
    profile = read(path)
    assert profile.tree is not None
    assert profile.origin == ("here" if format == "torchstone" else format)


def test_a_real_pstats_file_is_known_under_any_name(tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    with cProfile.Profile() as profiler:
        sorted("some text")
    profiler.dump_stats(path)
    assert read(path).tool == "cProfile"


def test_a_name_decides_where_the_content_does_not(tmp_path: Path) -> None:
    assert "not what cProfile writes" in refused(put(tmp_path / "empty.prof", b""))
    assert "not a profile of a kind that is known" in refused(put(tmp_path / "empty", b""))
    assert "not a profile of a kind that is known" in refused(put(tmp_path / "x.png", b"\x89PNG"))


def test_a_wrong_format_is_refused_and_an_unknown_one_is_answered(tmp_path: Path) -> None:
    path = put(tmp_path / "t.json", [x("a", 0, 1)])
    assert "not a speedscope file" in refused(path, "speedscope")
    assert "not what cProfile writes" in refused(path, "pstats")
    with pytest.raises(UsageError) as error:
        read(path, "speedscop")
    assert "Did you mean speedscope?" in error.value.remedy


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in refused(tmp_path / "missing")
    assert "not a regular file" in refused(tmp_path)
    assert "cannot be read" in refused(tmp_path / "a\0b")
    with pytest.raises(UsageError, match="cannot be written"):
        write_profile(traced(), tmp_path / "none" / "x.json", "chrome")


def test_compressed_and_plain_say_the_same(tmp_path: Path) -> None:
    events = [x("a", 5, 10), x("b", 6, 2)]
    plain = put(tmp_path / "t.json", events)
    packed = put(tmp_path / "t.json.gz", gzip.compress(plain.read_bytes()))
    assert spans_of(read(plain)) == spans_of(read(packed)) != []
    assert read(plain).id == read(packed).id


def test_writing_says_what_is_left_out(tmp_path: Path) -> None:
    assert write_profile(traced(), tmp_path / "own.json", "torchstone") == ()
    (said,) = write_profile(traced(), tmp_path / "s.json", "speedscope")
    assert "left out" in said
