"""What watches a process is seen while it is on, and not before or after."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.structure.places import SRC
from torchstone.conductor.state import ArmState
from torchstone.records import ArmSpec, Integrity

PYTHON = """
import sys, tracemalloc
from torchstone.measure.warmup import active_profilers as seen
print(seen())
sys.setprofile(lambda *_: None); print(seen()); sys.setprofile(None)
sys.settrace(lambda *_: None); print(seen()); sys.settrace(None)
tracemalloc.start(); print(seen()); tracemalloc.stop()
if hasattr(sys, "monitoring"):
    tool = sys.monitoring
    tool.use_tool_id(tool.PROFILER_ID, "mine"); print(seen())
    tool.set_events(tool.PROFILER_ID, tool.events.CALL); print(seen())
    tool.free_tool_id(tool.PROFILER_ID)
print(seen())
"""

TORCH = """
import torch
from torch.utils.flop_counter import FlopCounterMode
from torchstone.measure.warmup import active_profilers as seen
print(seen())
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]): print(seen())
with FlopCounterMode(display=False): print(seen())
with torch.autograd.set_detect_anomaly(True): print(seen())
torch.set_default_device("cpu")
print(seen())
"""


def lines(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={"PYTHONPATH": str(SRC), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout.splitlines()


def test_tools_of_python_are_seen_while_they_are_on() -> None:
    tools = ["()", "('sys.monitoring tool mine',)"] if hasattr(sys, "monitoring") else []
    assert lines(PYTHON) == [
        "()",
        "('sys.setprofile',)",
        "('sys.settrace',)",
        "('tracemalloc',)",
        *tools,
        "()",
    ]


@pytest.mark.slow
def test_tools_of_torch_are_seen_while_they_are_on() -> None:
    assert lines(TORCH) == [
        "()",
        "('torch.profiler',)",
        "('dispatch mode FlopCounterMode',)",
        "('torch.autograd anomaly mode',)",
        "()",
    ]


def test_what_any_turn_saw_stays_in_the_record() -> None:
    state = ArmState(ArmSpec("a"))
    for seen in (("torch.profiler",), (), ("sys.settrace", "torch.profiler")):
        state.note_integrity(Integrity(profilers=seen))
    assert state.integrity is not None
    assert state.integrity.profilers == ("sys.settrace", "torch.profiler")
