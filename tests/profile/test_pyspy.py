"""py-spy, which is not installed here: a stand-in that speaks as its `record` does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.profile.probing import names, probes  # noqa: F401
from torchstone.profile.probes.base import ProbeOptions
from torchstone.profile.probes.pyspy import PySpyFailed, PySpyProbe
from torchstone.profile.probes.registry import choose_probe

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
    sys.stderr.write("2.5s behind in sampling\\n")
    sys.exit(0)
signal.signal(signal.SIGINT, write)
sys.stderr.write("py-spy> Sampling process 100 times a second. Press Control-C to exit.\\n")
sys.stderr.flush()
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
    with pytest.raises(PySpyFailed, match="Permission Denied"):
        PySpyProbe().start()


@pytest.mark.usefixtures("probes")
def test_it_is_preferred_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert choose_probe("sample", ProbeOptions()).name == "sampler"
    install(tmp_path, monkeypatch)
    assert choose_probe("sample", ProbeOptions()).name == "py-spy"
    assert choose_probe("sample", ProbeOptions(clock="cpu")).name == "sampler"
