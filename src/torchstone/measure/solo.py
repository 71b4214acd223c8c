"""The solo pass: what can only be learnt while nothing else of ours runs.

First-call cost, true memory peak, contract and evidence of the first call (from the start state),
the size of a sample, and whether fresh inputs cost more than repeated ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torchstone.machine import memory as memory_signals
from torchstone.machine.environment import describe_environment
from torchstone.measure.built import (
    Built,
    Phase,
    build,
    thread_counts,
)
from torchstone.measure.clock import patched_timers, python_threads, wall_clock
from torchstone.measure.contract import describe_contract, weights_fingerprint
from torchstone.measure.evidence import true_evidence, write_evidence
from torchstone.measure.graphs import describe_graphs
from torchstone.measure.loops import TimeBlock
from torchstone.measure.profilers import active_profilers
from torchstone.measure.repeats import look_for_memory
from torchstone.measure.reports import SoloReport
from torchstone.measure.warmup import warm_up
from torchstone.records import ArmSpec, Integrity, Memory
from torchstone.workloads.draw import seed_everything
from torchstone.workloads.target import parse_target

SINGLE_CALL_NS = 250_000
SAMPLE_NS = 500_000
"""Steps shorter than 0.25 ms are timed in blocks of about 0.5 ms: long against the clock's own cost
(some 50 ns), short enough to fall between two disturbances."""
MOST_LOOPS = 10_000_000


class MemoryWatch:
    """Peak memory above what the process held before the model was built."""

    def __init__(self) -> None:
        self.before = 0
        self.possible = False

    def start(self) -> None:
        """Take the baseline; called when imports are done and building begins."""
        memory_signals.trim()
        self.possible = memory_signals.reset_peak()
        self.before = memory_signals.rss_bytes() or 0

    def read(self, built: Built, step_peak: int | None) -> Memory:
        """The peak so far."""
        device = built.device
        if device.peak_bytes is not None:
            return Memory("allocator", device.peak_bytes(), step_peak, 0)
        peak = memory_signals.peak_bytes()
        if not self.possible or peak is None:
            return Memory("none", None, step_peak, self.before)
        return Memory("VmHWM", max(0, peak - self.before), step_peak, self.before)


def solo(
    arm: ArmSpec,
    phase: Phase,
    check_seed: int,
    evidence_path: str,
    loops: int | None,
    arm_env: Mapping[str, str],
    salt: bytes,
) -> SoloReport:
    """Build the arm, look at its first call, then at its steady state."""
    watch = MemoryWatch()
    target_dir = _target_dir(arm)  # before user code may change the working directory

    def watched(name: str) -> None:
        if name == "build":
            watch.start()
        phase(name)

    built = build(arm, watched)
    threads_before = python_threads()
    if built.is_statement:
        report = _solo_statement(built, phase, loops, watch)
    else:
        report = _solo_step(built, phase, check_seed, evidence_path, loops, watch)
    environment = describe_environment(
        arm_env=arm_env,
        target_dir=target_dir,
        threads=thread_counts(),
        allocator=arm.allocator,
        salt=salt,
    )
    integrity = replace(
        report["integrity"],
        patched_timers=patched_timers(),
        new_threads=max(0, python_threads() - threads_before),
        profilers=active_profilers(),
    )
    report.update(
        environment=environment,
        integrity=integrity,
        fault_cost_ns=memory_signals.fault_cost_ns(),
    )
    return SoloReport(**report)


def _solo_step(
    built: Built,
    phase: Phase,
    check_seed: int,
    evidence_path: str,
    loops: int | None,
    watch: MemoryWatch,
) -> dict[str, Any]:
    prepared = built.prepared
    assert prepared is not None
    weights = weights_fingerprint(prepared.module)
    inputs = built.inputs(check_seed)
    phase("first call")
    seed_everything(check_seed)
    started = wall_clock()
    output = built.call(inputs)
    first_call_ns = wall_clock() - started + prepared.apply_ns
    phase("contract")
    evidence = true_evidence(prepared, built.call, inputs, check_seed, output)
    contract = describe_contract(built.arm, prepared, inputs, evidence)
    contract = replace(contract, weights_hash=weights)
    types = tuple(sorted({leaf.type_name for leaf in contract.outputs}))
    if evidence_path:
        write_evidence(evidence_path, evidence)
    del output, evidence
    phase("step")
    ring = built.ring(check_seed + 1000, 8)
    for one in ring[:2]:
        built.call(one)
    phase("step")
    step_peak = _step_peak(built, ring)
    memory = watch.read(built, step_peak)
    phase("step")
    loops = built.whole_passes(loops or _choose_loops(lambda n: built.block(ring, n)))
    phase("warm-up")
    warm = warm_up(built.block(ring, loops), first_call_ns, lambda: phase("warm-up"))
    phase("step")
    memory_of_inputs = look_for_memory(built, lambda: phase("step"))
    return {
        "first_call_ns": first_call_ns,
        "warm_up": warm,
        "loops": loops,
        "step_ns": max(1, min(warm.wall_ns) // loops),
        "contract": contract,
        "memory": memory,
        "graphs": describe_graphs(),
        "integrity": replace(memory_of_inputs, output_types=types),
        "changes": tuple(sorted(prepared.changes)),
    }


def _solo_statement(
    built: Built, phase: Phase, loops: int | None, watch: MemoryWatch
) -> dict[str, Any]:
    phase("first call")
    once = built.block([], 1)
    started = wall_clock()
    first_call_ns = once()
    setup_ns = max(0, wall_clock() - started - first_call_ns)
    phase("step")
    loops = loops or _choose_loops(lambda n: built.block([], n), max(2 * SAMPLE_NS, setup_ns // 2))
    phase("warm-up")
    warm = warm_up(built.block([], loops), first_call_ns, lambda: phase("warm-up"))
    return {
        "first_call_ns": first_call_ns,
        "warm_up": warm,
        "loops": loops,
        "step_ns": max(1, min(warm.wall_ns) // loops),
        "memory": watch.read(built, None),
        "graphs": None,
        "integrity": Integrity(),
    }


def _choose_loops(make: Callable[[int], TimeBlock], sample_ns: int = SAMPLE_NS) -> int:
    """Calls per sample: 1 for steps that can stand alone, else enough to reach `sample_ns`."""
    loops = 1
    while loops < MOST_LOOPS:
        block = make(loops)
        best = min(block() for _ in range(3))
        if loops == 1 and best >= SINGLE_CALL_NS and sample_ns == SAMPLE_NS:
            return 1
        if best >= sample_ns:
            return loops
        # Grow by prediction, at most tenfold: early calls may be slow.
        loops = min(
            MOST_LOOPS, max(loops + 1, int(loops * min(10.0, 1.2 * sample_ns / max(best, 1))))
        )
    return MOST_LOOPS


def _step_peak(built: Built, ring: list[Any]) -> int | None:
    device = built.device
    if device.reset_peak is None or device.peak_bytes is None or device.held_bytes is None:
        return memory_signals.step_peak(lambda: built.call(ring[0]))
    device.reset_peak()
    before = device.held_bytes()
    built.call(ring[0])
    return device.peak_bytes() - before


def _target_dir(arm: ArmSpec) -> str | None:
    if arm.statement is not None:
        return None
    target = parse_target(arm.target)
    return os.path.dirname(os.path.abspath(target.place)) if target.kind == "file" else os.getcwd()
