"""py-spy: the real one where it is installed and may attach, and a stand-in for its refusals."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from tests.profile.probing import frame_named, names, own_share, roots
from tests.targets import profiled
from torchstone.profile.context import profile as torchstone_profile
from torchstone.profile.formats.base import read_profile
from torchstone.profile.formats.own import check_profile
from torchstone.profile.probes.base import ProbeFailed, ProbeOptions, choose_probe
from torchstone.profile.probes.pyspy import Outside, PySpyProbe, as_ours, program
from torchstone.records import Profile, UsageError

STAND_IN = """#!{python}
import signal, sys
words = sys.argv
assert words[1] == "record" and words[words.index("--format") + 1] == "raw"
if {refuses}:
    sys.stderr.write("Error: Permission Denied\\n")
    sys.exit(1)
def write(*_):
    with open(words[words.index("--output") + 1], "w") as file:
        file.write("thread (7): MainThread;main (a.py:3);left (a.py:9) 30\\n")
        file.write("thread (7): MainThread;main (a.py:3);right (a.py:20) 70\\n")
    sys.stdout.write("2.5s behind in sampling\\n")
    sys.exit(0)
signal.signal(signal.SIGINT, write)
sys.stdout.write("py-spy> Sampling process 100 times a second. Press Control-C to exit.\\n")
sys.stdout.flush()
while True:
    signal.pause()
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, refuses: bool = False) -> None:
    program = folder / "py-spy"
    program.write_text(STAND_IN.format(python=sys.executable, refuses=refuses))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_its_stacks_become_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    probe = PySpyProbe(ProbeOptions(clock="gil", rate_hz=50))
    assert not probe.unavailable()
    probe.start()
    profile = probe.stop()
    assert {"main", "left", "right"} <= names(profile.frames)
    assert profile.tool == "py-spy"
    assert profile.sampling is not None
    assert (profile.sampling.samples, profile.sampling.clock) == (100, "gil")
    assert profile.sampling.interval_s == pytest.approx(0.02)
    assert any("fell behind" in problem for problem in profile.problems)


def test_a_refusal_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, refuses=True)
    with pytest.raises(ProbeFailed, match="Permission Denied"):
        PySpyProbe().start()
    taken = torchstone_profile("py-spy")
    with pytest.raises(ProbeFailed, match="Permission Denied"), taken:
        raise AssertionError("nothing is run that cannot be profiled")
    install(tmp_path, monkeypatch)
    with taken:  # and it can be tried again
        pass
    assert taken.profile is not None


def test_it_is_used_for_what_the_sampler_cannot_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(UsageError, match="py-spy: it is not installed"):
        choose_probe("sample", ProbeOptions(clock="gil"))
    install(tmp_path, monkeypatch)
    assert choose_probe("sample", ProbeOptions(clock="gil")).name == "py-spy"
    assert choose_probe("py-spy", ProbeOptions()).name == "py-spy"
    assert choose_probe("sample", ProbeOptions()).name == "sampler"


def test_it_is_found_beside_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`.venv/bin/torchstone` works without the environment being activated."""
    install(tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert program() == str(tmp_path / "py-spy")


def really_spied(clock: str, seconds: float = 1.5) -> Profile:
    """A planted split and a thread that waits, by the real tool."""
    if program() is None:
        pytest.skip("py-spy is not installed")
    enough = threading.Event()
    waiting = threading.Thread(target=enough.wait, name="the waiter", daemon=True)
    waiting.start()
    probe = PySpyProbe(ProbeOptions(clock=clock))
    try:
        probe.start()
    except ProbeFailed as error:
        pytest.skip(error.message)
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            profiled.split()
    finally:
        taken = probe.stop()
        enough.set()
        waiting.join()
    check_profile(taken)
    return taken


@pytest.mark.parametrize("clock", ["wall", "gil"])
def test_the_real_one_sees_a_planted_split(clock: str) -> None:
    taken = really_spied(clock)
    assert taken.sampling is not None
    assert taken.sampling.samples > 50
    # Not the interval: where others use the core, several looks see the same moment of the work.
    assert 0.45 < own_share(taken, "heavy") < 0.9
    heavy = taken.frames[frame_named(taken, "heavy")]
    assert (heavy.file, heavy.line) == (profiled.__file__, profiled.heavy.__code__.co_firstlineno)
    assert roots(taken) == {"really_spied"}  # nothing of pytest, nothing of the probe
    assert frame_named(taken, "heavy") in {code.frame for code in taken.bytecode}
    table = next(table for table in taken.lines if table.file == profiled.__file__)
    hottest = table.lines[max(range(len(table.lines)), key=table.seconds.__getitem__)]
    assert "number" in table.text[hottest - 1]
    threads = {thread.name: thread.critical for thread in taken.threads}
    assert threads["MainThread"]
    if clock == "wall":
        assert threads["the waiter"] is False
        tree = taken.tree
        assert tree is not None
        mine = [
            own
            for own, of in zip(tree.own, tree.threads, strict=True)
            if taken.threads[of].critical
        ]
        assert sum(mine) == pytest.approx(taken.wall_s)


def test_native_functions_are_shown_and_their_time_is_the_python_lines_too() -> None:
    if program() is None:
        pytest.skip("py-spy is not installed")
    probe = PySpyProbe(ProbeOptions(native=True, rate_hz=100))
    try:
        probe.start()
    except ProbeFailed as error:
        pytest.skip(error.message)
    try:
        end = time.monotonic() + 2.0
        while time.monotonic() < end:
            profiled.digest()
    finally:
        taken = probe.stop()
    check_profile(taken)
    assert taken.tree is not None
    digest = frame_named(taken, "digest")
    native = [
        own
        for own, frame in zip(taken.tree.own, taken.tree.frames, strict=True)
        if taken.frames[frame].kind == "native"
    ]
    assert sum(native) > 0.8 * sum(taken.tree.own)
    assert roots(taken) == {
        "test_native_functions_are_shown_and_their_time_is_the_python_lines_too"
    }
    table = next(table for table in taken.lines if table.file == profiled.__file__)
    hottest = table.lines[max(range(len(table.lines)), key=table.seconds.__getitem__)]
    assert "sha256" in table.text[hottest - 1]
    assert digest in {code.frame for code in taken.bytecode}
    assert any("pool of workers" in note for note in taken.notes)


def test_native_functions_are_py_spys_business(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch)
    assert choose_probe("sample", ProbeOptions(native=True)).name == "py-spy"
    with pytest.raises(UsageError, match="native functions cannot be seen"):
        choose_probe("sampler", ProbeOptions(native=True))


def test_native_frames_around_the_work_and_without_symbols(tmp_path: Path) -> None:
    start = "thread (7): MainThread;_start (/usr/bin/python3.11);outer (/w/o.py:3)"
    work = f"{start};run (/w/o.py:9);0x7f65f5a1e02"
    file = tmp_path / "stacks.raw"
    file.write_text(f"{work}a (/lib/libgomp.so.1) 3\n{work}e (/lib/libgomp.so.1) 4\n{start} 2\n")
    read = read_profile(file, "folded")
    seen = as_ours(read, Outside(0, (("/w/o.py", "outer"),), ()))
    tree = seen.paths.tree("samples")
    named = [seen.frames[frame].name for frame in tree.frames]
    assert named == ["run", "(no symbol in libgomp.so.1)"]
    assert tree.own == (0.0, 7.0)
    (table,) = seen.lines(1.0)
    assert (table.file, table.lines, table.hits) == ("/w/o.py", (9,), (7,))
