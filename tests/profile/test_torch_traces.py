"""Traces that torch.profiler writes, with Python frames and without."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.profile.support import own_by_path, read, spans_of
from torchstone.profile import trees, write_profile
from torchstone.records import Profile

pytestmark = pytest.mark.slow

PROGRAM = """
import gc, sys, torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch._C._profiler import _ExperimentalConfig
folder, endings = sys.argv[1], {"plain": {}, "stacks": dict(
    with_stack=True, record_shapes=True, profile_memory=True,
    experimental_config=_ExperimentalConfig(record_python_gc_info=True))}
model = torch.nn.Sequential(torch.nn.Linear(64, 100), torch.nn.ReLU(), torch.nn.Linear(100, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def step():
    with record_function("forward"):
        loss = model(torch.randn(64, 64)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
step()
for name, options in endings.items():
    wait = torch.profiler.schedule(wait=0, warmup=0, active=3, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=wait, **options) as profiler:
        for _ in range(3):
            step()
            gc.collect()
            profiler.step()
    profiler.export_chrome_trace(f"{folder}/{name}.json")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces")
    subprocess.run([sys.executable, "-c", PROGRAM, str(path)], check=True, capture_output=True)
    return path


def complete(path: Path) -> list[dict[str, Any]]:
    events = json.loads(path.read_text())["traceEvents"]
    return [e for e in events if e["ph"] == "X" and e["cat"] != "Trace"]


def kinds(profile: Profile) -> set[str]:
    return {frame.kind for frame in profile.frames}


def test_ops_and_annotations(folder: Path) -> None:
    path = folder / "plain.json"
    profile = read(path)
    assert (profile.tool, profile.how, profile.steps) == ("torch.profiler", "trace", 3)
    assert profile.problems == ()
    assert kinds(profile) == {"op", "annotation"}
    events = complete(path)
    assert len(spans_of(profile)) == len(events)
    mm = [e["dur"] for e in events if e["name"] == "aten::addmm"]
    ours = [d for _, name, _, d in spans_of(profile) if name == "aten::addmm"]
    assert sorted(ours) == sorted(round(dur * 1000) for dur in mm)
    (critical,) = (thread for thread in profile.threads if thread.critical)
    assert critical.id == critical.process == events[0]["pid"]


def test_self_times_add_up_to_the_outermost_spans(folder: Path) -> None:
    for name in ("plain", "stacks"):
        profile = read(folder / f"{name}.json")
        assert profile.tree is not None
        total = trees.totals(profile.tree)
        roots = [t for t, parent in zip(total, profile.tree.parents, strict=True) if parent < 0]
        assert sum(profile.tree.own) == pytest.approx(sum(roots))
        assert min(profile.tree.own) >= 0
        assert sum(roots) <= profile.wall_s * len(profile.threads) * (1 + 1e-9)


def test_python_frames(folder: Path) -> None:
    path = folder / "stacks.json"
    profile = read(path)
    assert {"op", "annotation", "python", "native", "gc"} <= kinds(profile)
    modules = [frame for frame in profile.frames if frame.file.endswith("module.py")]
    assert any(frame.name == "_call_impl" and frame.line > 1000 for frame in modules)
    assert not any(" at 0x" in frame.name for frame in profile.frames)
    # An annotation begins inside of the built-in call that opens it, and outlives it. It has to
    # keep what happened in it, whoever gives way.
    assert profile.problems == ()
    assert any("within the calls that make it" in said for said in profile.notes)
    paths = own_by_path(profile)
    assert any("forward" in way and "aten::linear" in way for way in paths)
    taken = {way: own for way, own in paths.items() if "forward" in way}
    durations = [e["dur"] for e in complete(path) if e["name"] == "forward"]
    assert sum(taken.values()) == pytest.approx(sum(durations) / 1e6, rel=0.05)


@pytest.mark.parametrize("format", ["chrome", "speedscope"])
def test_a_real_trace_reads_back(folder: Path, tmp_path: Path, format: str) -> None:
    profile = read(folder / "stacks.json")
    write_profile(profile, tmp_path / "again.json", format)
    again = read(tmp_path / "again.json")
    assert [row[1:] for row in spans_of(again)] == [row[1:] for row in spans_of(profile)]
    assert again.problems == ()
