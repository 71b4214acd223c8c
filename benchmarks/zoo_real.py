"""Measurements that are really made: arms that cheat or are honest, in processes of their own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from zoo_entry import REAL, Entry

from torchstone.conductor import Settings
from torchstone.conductor.calibration import run_calibration
from torchstone.lab.bench import measure
from torchstone.lab.recording import Recorder
from torchstone.records import ArmSpec, Result

HERE = Path(__file__).resolve().parent
BUSY = "while True: pass"
MACS = """
def mm(left, right, *, out_val=None, **_):
    return left.shape[0] * left.shape[1] * right.shape[1]
"""

# What each target must be caught by; the first of a group is its baseline.
CHEATS = {
    "remembers_the_last": "fresh-inputs:fail",
    "remembers_by_identity": "fresh-inputs:fail",
    "remembers_by_value": "fresh-inputs:fail",
    "skips_after_five_calls": "wrong_answer",
    "mostly_stale": "wrong_answer",
    "half_the_work": "wrong_answer",
    "patches_the_timer": "timer:fail",
    "works_later": "wrong_answer or nondeterministic or late-work:fail",
    "forgets_to_synchronise": "wrong_answer or nondeterministic or late-work:fail",
    "leaves_a_profiler_on": "profiler:fail",
    "leaves_a_tracer_on": "profiler:fail",
    "leaves_tracemalloc_on": "profiler:fail",
}
SAME_WORK = (
    *("honest", "twice", "better", "allocates_a_little"),
    *("joins_its_thread", "synchronises", "keeps_its_scratch"),
)
OTHER_WORK = ("short", "floats", "words", "ordered", "sleeper")
TORCH_CHEATS = {
    "half_precision": "wrong_answer",
    "half_the_layers": "wrong_answer",
    "lazy": "wrong_answer or plain-output:fail",
    "other_threads": "alike:warn",
    "counts_while_timed": "profiler:fail",
}
ROOFS = ("product", "stream", "many_small_ops")


def real_entries() -> tuple[Entry, ...]:
    """All of them. Nothing runs before it is looked at, and arms of one group run together."""
    return (*_python(), *_alone(), *_torch())


def _entry(name: str, run: Callable[[], Result], wanted: str = "", arm: str = "") -> Entry:
    return Entry(name.replace("_", " "), run, arm or name, (wanted,) * bool(wanted), kind=REAL)


def _python() -> Iterator[Entry]:
    for name in SAME_WORK:
        yield _entry(name, same_work)
    for name, wanted in CHEATS.items():
        yield _entry(name, cheats, wanted)
    for name in OTHER_WORK:
        yield _entry(name, other_work)


def _alone() -> Iterator[Entry]:
    yield _entry("constant", lambda: bench("constant"), "constant-output:warn")
    yield _entry(
        "two processes", lambda: bench("honest", replicates=2), "replicates:warn", "honest"
    )
    yield _entry("a contended run", contended, "noise:warn", "honest")
    yield _entry("never_settles", lambda: bench("never_settles"), "steady:warn")
    yield _entry("maps_its_scratch_anew", scratch, "allocator:warn")
    yield _entry("20 times as fast, looked at twice", twenty_times, arm="honest")


def _torch() -> Iterator[Entry]:
    for name, wanted in TORCH_CHEATS.items():
        yield _entry(name, torch_cheats, wanted)
    yield _entry("a plug-in that counts in MACs", counted_in_macs, "flops:warn", "product")
    yield _entry("training in eager", training, arm="eager")
    yield _entry("training in aot_eager", training, arm="aot_eager")
    for name in ROOFS:
        yield _entry(f"{name} under its peaks", lambda name=name: under_roofs(name), arm=name)


@cache
def same_work() -> Result:
    return bench(*SAME_WORK)


@cache
def cheats() -> Result:
    return bench("honest", *CHEATS)


@cache
def other_work() -> Result:
    return bench(*OTHER_WORK, independent=True)


@cache
def scratch() -> Result:
    return bench("keeps_its_scratch", "maps_its_scratch_anew")


@cache
def twenty_times() -> Result:
    return bench("twenty_times", "honest")


@cache
def torch_cheats() -> Result:
    return bench("two_layers", *TORCH_CHEATS, replicates=2, budget_s=2.0)


@cache
def training() -> Result:
    """With memory kept, as the rule about the allocator asks: the two free at different moments."""
    arms = [
        ArmSpec(variant, target("two_layers"), variant, "training", allocator="keep")
        for variant in ("eager", "aot_eager")
    ]
    return run(arms, None, replicates=2, budget_s=2.0)


def under_roofs(name: str) -> Result:
    """With operations counted and held against peaks that were measured just before."""
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(f"sqlite:///{folder}/zoo.db")
        recorder.save_calibration(calibration())
        arms = [ArmSpec(name, target(name), threads=1)]
        return run(arms, recorder, replicates=2, budget_s=2.0, count_flops=True, turn_ns=60_000_000)


def counted_in_macs() -> Result:
    """With a plug-in installed whose formula for a product gives half of its operations."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "macs.py").write_text(MACS, encoding="utf-8")
        info = Path(folder) / "macs-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: macs\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[torchstone.formulas]\naten.mm = macs:mm\n")
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, before)))
        try:
            return bench("product", replicates=2, count_flops=True)
        finally:
            os.environ.pop("PYTHONPATH")
            os.environ.update({"PYTHONPATH": before} if before is not None else {})


@cache
def calibration() -> Any:
    return run_calibration(threads=[1], dtypes=["fp32"], seconds=5.0)


def contended() -> Result:
    """With as many busy processes as there are cores to run on, and one more."""
    with contextlib.ExitStack() as stack:
        for _ in range(len(os.sched_getaffinity(0)) + 1):
            busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", BUSY]))
            stack.callback(busy.kill)
        return bench("honest")


def bench(*names: str, **more: Any) -> Result:
    """Measure targets of the zoo against the first of them."""
    return run([ArmSpec(name, target(name)) for name in names], None, **more)


def run(arms: list[ArmSpec], recorder: Recorder | None, **more: Any) -> Result:
    quick = {"budget_s": 0.5, "replicates": 3, "turn_ns": 5_000_000}
    print(f"measuring {', '.join(arm.name for arm in arms)}", file=sys.stderr, flush=True)
    return measure(arms, Settings(**{**quick, **more}), recorder, None, (), "bench")


def target(name: str) -> str:
    return f"{HERE / 'zoo_targets.py'}:{name}"
