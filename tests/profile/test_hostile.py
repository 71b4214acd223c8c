"""Files that want to do harm: cut, endless, deep, compressed to nothing, or just not text."""

from __future__ import annotations

import contextlib
import gzip
import json
import marshal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.profile.support import mark, put, read, refused, traced, x
from torchstone.profile import write_profile
from torchstone.profile.formats import base, chrome
from torchstone.profile.formats import base as registry
from torchstone.profile.formats.own import check_profile
from torchstone.records import UsageError

FORMATS = ("chrome", "folded", "pstats", "speedscope", "torchstone")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The same small profile in each format."""
    found = {}
    for name in FORMATS:
        path = tmp_path_factory.mktemp("formats") / name
        path.write_bytes(_format(name).write(traced()))
        found[name] = path.read_bytes()
    return found


def _format(name: str) -> Any:
    from torchstone.profile.formats import chrome, folded, own, pstats_file, speedscope

    return {
        "chrome": chrome.CHROME,
        "folded": folded.FOLDED,
        "pstats": pstats_file.PSTATS,
        "speedscope": speedscope.SPEEDSCOPE,
        "torchstone": own.OWN,
    }[name]


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_cut_anywhere_is_refused_or_says_so(
    tmp_path: Path, written: dict[str, bytes], name: str
) -> None:
    whole, path = written[name].rstrip(), tmp_path / "cut"
    step = max(1, len(whole) // 150)
    for end in [*range(0, len(whole), step), len(whole) - 1]:
        path.write_bytes(whole[:end])
        if name != "folded":
            with pytest.raises(UsageError):
                registry.read_profile(path, name)
            continue
        with contextlib.suppress(UsageError):  # a shorter number is a number
            profile = registry.read_profile(path, name)
            assert profile.problems or whole[end - 1 : end] == b"\n"


@pytest.mark.parametrize("name", FORMATS)
def test_a_compressed_file_cut_or_damaged_is_refused(
    tmp_path: Path, written: dict[str, bytes], name: str
) -> None:
    packed = gzip.compress(written[name])
    assert "cut off" in refused(put(tmp_path / "c.gz", packed[: len(packed) // 2]), name)
    damaged = packed[:20] + bytes([packed[20] ^ 0xFF]) + packed[21:]
    assert refused(put(tmp_path / "d.gz", damaged), name)
    assert refused(put(tmp_path / "d.gz", damaged))


damage = st.lists(st.tuples(st.floats(0, 0.999), st.binary(max_size=4)), min_size=1, max_size=4)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=25)
@given(damage=damage)
def test_damage_never_does_more_than_refuse(
    tmp_path_factory: pytest.TempPathFactory,
    written: dict[str, bytes],
    name: str,
    damage: list[tuple[float, bytes]],
) -> None:
    raw = written[name]
    for where, what in damage:
        at = int(where * len(raw))
        raw = raw[:at] + what + raw[at + len(what) :]
    path = put(tmp_path_factory.getbasetemp() / f"damaged-{name}", raw)
    with contextlib.suppress(UsageError):  # and no other exception
        check_profile(registry.read_profile(path, name))


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "ph": st.sampled_from(["X", "B", "E", "M", "C", "i", "s", "?"]) | junk,
        "name": st.sampled_from(["a", "b", "thread_name", "[memory]", "memory"]) | junk,
        "cat": st.sampled_from(["cpu_op", "kernel"]) | junk,
        "ts": st.integers(0, 50) | junk,
        "dur": st.integers(-3, 20) | junk,
        "pid": st.integers(0, 1) | junk,
        "tid": st.integers(0, 1) | junk,
        "args": st.dictionaries(st.sampled_from(["name", "heap", "Ev Idx"]), junk) | junk,
    },
)


@settings(max_examples=40)
@given(events=st.lists(fields, max_size=8))
def test_any_events_give_a_sound_profile_or_a_refusal(
    tmp_path_factory: pytest.TempPathFactory, events: list[Any]
) -> None:
    events = [x("sound", 1, 1), *events]
    path = put(tmp_path_factory.getbasetemp() / "events.json", json.dumps(events))
    check_profile(registry.read_profile(path, "chrome"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"traceEvents": ' + "[" * 100_000, "nested too deep"),
        ('{"traceEvents": [{"ph": "X" "name": 1}' + " " * 100, "not JSON"),
        ('{"traceEvents": [{} {}' + " " * 100, "a comma is missing"),
        ('{"traceEvents": [{"ts": ' + "9" * 9000 + "}]}", "too long"),
        ('{"traceEvents": []} x', "more behind the end"),
        ('{"traceEvents": [], x}', "a name is missing"),
        ('{"a": "unended', "cut off"),
        ('{"a": [[["', "cut off"),
        ("nonsense", "neither a JSON list nor an object"),
        ("", "neither a JSON list nor an object"),
        ("[", "cut off"),
        ("{}", "no span"),
        (b'[{"name": "\xff"}]', "not UTF-8"),
        (b'[{"name": "a"}]\xe2', "not UTF-8"),
    ],
)
def test_broken_traces_are_refused(tmp_path: Path, text: str | bytes, said: str) -> None:
    assert said in refused(put(tmp_path / "t.json", text), "chrome")


@pytest.mark.parametrize("name", ["speedscope", "torchstone"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "nested too deep"),
        ('{"a": ' * 50_000, "nested too deep"),
        ("9" * 9000, "a number is too long"),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8"),
        ("{", "not JSON"),
    ],
)
def test_broken_documents_are_refused(
    tmp_path: Path, name: str, text: str | bytes, said: str
) -> None:
    assert said in refused(put(tmp_path / "d.json", text), name)


def test_documents_are_weighed_before_they_are_unfolded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "MAX_CONTAINERS", 1_000)
    path = put(tmp_path / "d.json", "[" + "[]," * 2_000 + "[]]")
    assert "1,000 lists" in refused(path, "speedscope")


def test_one_endless_event_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chrome, "MAX_VALUE", 2**21)
    path = put(tmp_path / "t.json", '[{"name": "' + "x" * 2**23)
    assert "longer than 2 MiB" in refused(path, "chrome")


def test_the_bound_for_an_event_is_the_documented_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chrome, "MAX_VALUE", 2**21)
    for length, taken in ((2**21 - 200, True), (2**21 + 200, False)):
        event = {**x("a", 0, 1), "args": {"long": "y" * (length - len(json.dumps(x("a", 0, 1))))}}
        path = put(tmp_path / "t.json", [event, x("b", 0, 1)])
        if taken:
            assert read(path, "chrome").frames
        else:
            assert "longer than 2 MiB" in refused(path, "chrome")


def test_control_characters_are_escaped_everywhere(tmp_path: Path) -> None:
    name = "\x1b]0;title\x07\u202ename\ud800"
    chrome = read(
        put(
            tmp_path / "t.json",
            [x(name, 1, 1, cat=name), mark("M", "thread_name", 0, args={"name": name})],
        )
    )
    shared = {"frames": [{"name": name, "file": name}]}
    one = {"type": "sampled", "name": name, "unit": "none", "samples": [[0]], "weights": [1]}
    speedscope = read(put(tmp_path / "s.json", {"shared": shared, "profiles": [one]}))
    folded = read(put(tmp_path / "f.folded", "thread (1): \x1b;a\x1b\x07 1\n"))
    for profile in (chrome, speedscope, folded):
        texts = [text for frame in profile.frames for text in (frame.name, frame.file)]
        texts += [thread.name for thread in profile.threads] + list(profile.problems)
        assert all(text.isprintable() for text in texts)
        assert "\\x1b" in profile.frames[0].name
        write_profile(profile, tmp_path / "again.json", "torchstone")
        assert read(tmp_path / "again.json") == profile


def test_a_small_file_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_CHUNK", 2**14)
    monkeypatch.setattr("torchstone.profile.formats.folded.MAX_DOCUMENT_BYTES", 2**17)
    path = put(tmp_path / "bomb.folded.gz", gzip.compress(b"a;b 1\n" * 2**19))
    assert path.stat().st_size < 20_000
    assert "when decompressed" in refused(path, "folded")


WITHIN = """
import sys
from pathlib import Path
from torchstone.records import UsageError
from torchstone.profile.formats import chrome, pstats_file, speedscope
format = {"chrome": chrome.CHROME, "pstats": pstats_file.PSTATS,
          "speedscope": speedscope.SPEEDSCOPE}[sys.argv[1]]
try:
    profile = format.read(Path(sys.argv[2]))
    print(len(profile.spans.frames) if profile.spans else 0, *profile.problems, sep="\\n")
except UsageError as error:
    print(error.message)
status = Path("/proc/self/status").read_text()
print(int(status.split("VmHWM:")[1].split()[0]) // 1024)
"""
"""`ru_maxrss` would hold what the process that started this one had, too."""


def memory_to_read(name: str, path: Path) -> tuple[list[str], int]:
    """What a process of its own said about the file, and the MiB that it needed at most."""
    done = subprocess.run(
        [sys.executable, "-c", WITHIN, name, str(path)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *said, peak = done.stdout.splitlines()
    return said, int(peak)


def blocks(events: int, size: int = 100_000) -> Iterator[str]:
    for first in range(0, events, size):
        yield "".join(
            f'{{"ph":"X","name":"op {i % 50}","cat":"cpu_op","pid":1,"tid":1,"ts":{i},"dur":1}},\n'
            for i in range(first, first + size)
        )


@pytest.mark.slow
def test_ten_million_events_are_cut_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    with open(path, "w", encoding="ascii") as file:
        file.write('{"traceEvents": [\n')
        file.writelines(blocks(10_000_000))
        file.write('{"ph":"M","name":"end"}]}')
    said, peak = memory_to_read("chrome", path)
    assert said[0] == "2000000"
    assert any("only its first 2,000,000 events are here" in line for line in said)
    assert peak < 1_000


@pytest.mark.slow
def test_a_gigabyte_of_nothing_is_refused_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b'{"traceEvents": [')
        for _ in range(2_100):
            file.write(b" " * 2**20)
    assert path.stat().st_size < 20 * 2**20
    said, peak = memory_to_read("chrome", path)
    assert said == ["bomb.json.gz: it is larger than 2048 MiB when decompressed."]
    assert peak < 300


@pytest.mark.slow
def test_a_large_pstats_bomb_is_refused_within_bounds(tmp_path: Path) -> None:
    """60 MB of tuples that hold nothing, and one that declares two thousand million."""
    path = put(tmp_path / "bomb.prof", b"{" + b")\xff" + b")\x00" * 30_000_000)
    said, peak = memory_to_read("pstats", path)
    assert "not what cProfile writes" in said[0]
    assert peak < 500
    path = put(tmp_path / "wide.prof", b"(\xff\xff\xff\x7f" + b"N" * 60_000_000)
    said, peak = memory_to_read("pstats", path)
    assert "declares a size" in said[0]
    assert peak < 300


@pytest.mark.parametrize("total", [0.0, -1.0])
def test_a_caller_that_took_less_than_nothing_is_read(tmp_path: Path, total: float) -> None:
    callee, caller = ("a.py", 3, "f"), ("a.py", 9, "g")
    table = {
        callee: (1, 1, 0.0, total, {caller: (1, 1, -1.0, -2.0)}),
        caller: (1, 1, 1.0, 1.0, {}),
    }
    profile = read(put(tmp_path / "x.prof", marshal.dumps(table)))
    assert "below zero" in profile.problems[0]
