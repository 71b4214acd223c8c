"""A process that runs already: looked at by the real py-spy, where there is one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchstone.profile.probes import ProbeOptions
from torchstone.profile.probes import pyspy as attach
from torchstone.profile.probes.pyspy import Stacks, check_process, program, watch
from torchstone.records import Profile, TorchstoneError, UsageError

SPIN = """
import time
def inner():
    return sum(i * i for i in range(5000))
def work():
    print("ready", flush=True)
    while True:
        inner()
work()
"""
needs_pyspy = pytest.mark.skipif(program() is None, reason="py-spy is not installed")


@pytest.fixture
def spinning(tmp_path: Path) -> Iterator[int]:
    script = tmp_path / "spin.py"
    script.write_text(SPIN)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process.pid
        finally:
            process.kill()


@needs_pyspy
def test_a_running_process_is_seen_by_its_functions_and_lines(
    spinning: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Round after round, until Ctrl-C: how long one takes is the machine's business."""
    monkeypatch.setattr(attach, "ROUND_S", 0.5)
    seen: list[Profile] = []

    def show(last: Profile, whole: object) -> None:
        seen.append(last)
        if len(seen) == 2:
            raise KeyboardInterrupt

    found, interrupted = watch(spinning, ProbeOptions(), 300.0, show)
    assert interrupted
    names = {frame.name for frame in found.frames}
    assert {"inner", "work"} <= names
    (inner,) = (frame for frame in found.frames if frame.name == "inner")
    assert inner.line == 3
    assert found.sampling is not None
    assert found.sampling.samples > 0
    assert sum(one.sampling.samples for one in seen if one.sampling) == found.sampling.samples
    assert found.facts == {"pid": str(spinning)}
    os.kill(spinning, 0)  # it runs on


@needs_pyspy
@pytest.mark.slow
def test_a_process_that_ends_meanwhile_leaves_what_was_seen(spinning: int) -> None:
    def end(*_: object) -> None:
        os.kill(spinning, signal.SIGKILL)
        os.waitpid(spinning, 0)

    found, interrupted = watch(spinning, ProbeOptions(), 60.0, end)
    assert not interrupted
    assert found.wall_s < 30


@needs_pyspy
def test_what_is_no_python_is_said() -> None:
    with subprocess.Popen(["sleep", "30"]) as process:
        try:
            time.sleep(0.2)
            with pytest.raises(TorchstoneError, match="cannot be looked at") as caught:
                watch(process.pid, ProbeOptions(), 1.0)
        finally:
            process.kill()
    assert caught.value.remedy == "Is it a Python process?"


def test_a_process_that_is_not_there_and_a_tool_that_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attach, "program", lambda: "py-spy")
    with pytest.raises(UsageError, match="There is no process 4194305"):
        check_process(4194305)  # above what the kernel gives out
    monkeypatch.setattr(attach, "program", lambda: None)
    with pytest.raises(UsageError, match="not installed"):
        check_process(os.getpid())


def test_what_the_system_forbids_is_told_from_what_is_no_python() -> None:
    said = "Error: Failed to get process executable name.\n\nCaused by:\n    Permission denied\n"
    with pytest.raises(UsageError, match="does not permit it") as caught:
        attach._refuse(1, said)
    assert "SYS_PTRACE" in caught.value.remedy
    attach._refuse(1, "py-spy> Sampling process 100 times a second.")  # it only slept


def test_rounds_add_up() -> None:
    whole = Stacks.none()
    for text in ("a (x.py:1);b (x.py:2) 3\n", "a (x.py:1);b (x.py:2) 2\nno count\n"):
        whole.add(attach._parsed(text, 1.0))
    assert whole.wall_s == 2.0
    assert dict(whole.counts) == {"a (x.py:1);b (x.py:2)": 5}
