"""The solo pass: what can only be learnt while nothing else of ours runs.

First-call cost, true memory peak, contract and evidence of the first call (from the start state),
the size of a sample, and whether fresh inputs cost more than repeated ones.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torchstone.machine import memory as memory_signals
from torchstone.machine.noise import make_probe
from torchstone.machine.software import describe_environment
from torchstone.measure.arm import Built, Phase, Sources, build, thread_counts
from torchstone.measure.channel import SoloReport
from torchstone.measure.evidence import (
    describe_contract,
    true_evidence,
    weights_fingerprint,
    write_evidence,
)
from torchstone.measure.loops import TimeBlock, patched_timers, python_threads, wall_clock
from torchstone.measure.warmup import (
    SLOW_STATEMENT_NS,
    active_profilers,
    describe_graphs,
    look_for_memory,
    warm_up,
    with_heartbeat,
)
from torchstone.records import ArmSpec, Integrity, Memory, WarmUp
from torchstone.workloads.load import seed_everything
from torchstone.workloads.target import parse_target

SINGLE_CALL_NS = 250_000
SAMPLE_NS = 500_000
"""Steps shorter than 0.25 ms are timed in blocks of about 0.5 ms: long against the clock's own cost
(some 50 ns), short enough to fall between two disturbances."""
MOST_LOOPS = 10_000_000
EARLY_NS = 1_000_000
"""A step this long is worth a figure from its first two calls; shorter ones are soon warm."""
ALONE_NS = 10_000_000
"""A step this long in its first calls stands alone in a sample, without being tried again."""
LATEST = 50
"""Calls of warm-up from which a provisional figure is made."""
STATEMENT_LIMIT_NS = 500_000_000
"""Of a statement only the size of a sample is learnt here; every measuring process warms up."""

Seen = Callable[[Sequence[int]], None]


class MemoryWatch:
    """Peak memory of the process above what it held before the model was built."""

    def __init__(self) -> None:
        self.before = 0
        self.possible = False

    def start(self) -> None:
        """Take the baseline; called when imports are done and building begins."""
        memory_signals.trim()
        self.possible = memory_signals.reset_peak()
        self.before = memory_signals.rss_bytes() or 0

    def peak(self) -> int | None:
        """The highest since it was last reset, above the baseline."""
        peak = memory_signals.peak_bytes()
        return None if not self.possible or peak is None else max(0, peak - self.before)

    def read(self, step_peak: int | None, start_peak: int | None) -> Memory:
        """Of the steady step, with what was found of the step alone and before it."""
        peak = self.peak()
        source = "none" if peak is None else "VmHWM"
        return Memory(source, peak, step_peak, self.before, start_peak)


def solo(
    arm: ArmSpec,
    phase: Phase,
    check_seed: int,
    evidence_path: str,
    loops: int | None,
    arm_env: Mapping[str, str],
    salt: bytes,
    seen: Seen,
    deeper: bool = True,
    built: Built | None = None,
) -> tuple[SoloReport, Built]:
    """Build the arm, unless it is `built`, look at its first call, then at its steady state.

    `seen` is told of calls as they are made. Not `deeper`: without looking for remembered answers.
    Returns what was built too, for what is asked of this process when nothing is timed any more.
    """
    watch = MemoryWatch()
    here = os.getcwd()  # before user code may change it
    sources = Sources(arm)

    def watched(name: str) -> None:
        if name == "build":
            watch.start()
        phase(name)

    built = built or build(arm, watched)
    sources.look()
    threads_before = python_threads()
    if built.is_statement:
        report = _solo_statement(built, phase, loops, watch, seen)
    else:
        report = _solo_step(built, phase, check_seed, evidence_path, loops, watch, seen)
        if deeper:
            phase("step")
            step = step_ns(report["warm_up"], report["loops"])
            found = look_for_memory(built, lambda: phase("step"), step)
            report["integrity"] = replace(found, output_types=report["integrity"].output_types)
    environment = describe_environment(
        arm_env=arm_env,
        target_dir=target_dir(arm, here),
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
        step_ns=step_ns(report["warm_up"], report["loops"]),
        environment=replace(environment, imports=sources.digest()),
        integrity=integrity,
        fault_cost_ns=memory_signals.fault_cost_ns(),
        probe_bits=make_probe().exponent_bits,
        sources=sources.look(),
    )
    return SoloReport(**report), built


def step_ns(warm: WarmUp, loops: int) -> int:
    """The fastest step of warm-up."""
    return max(1, min(warm.wall_ns) // loops)


def _solo_step(
    built: Built,
    phase: Phase,
    check_seed: int,
    evidence_path: str,
    loops: int | None,
    watch: MemoryWatch,
    seen: Seen,
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
    calls = []
    for one in ring[:2]:
        started = wall_clock()
        built.call(one)
        calls.append(wall_clock() - started)
        phase("step")
    if min(calls) >= EARLY_NS:
        seen(calls)
    start_peak = watch.peak()  # before the step's own is looked for, which begins again
    step_peak = memory_signals.step_peak(lambda: built.call(ring[0]))
    memory = watch.read(step_peak, start_peak)
    phase("step")
    if loops is None and min(calls) >= ALONE_NS:
        loops = 1
    loops = loops or _choose_loops(lambda n: built.block(ring, n), lambda: phase("step"))
    loops = built.whole_passes(loops)
    phase("warm-up")
    warm = warm_up(built.block(ring, loops), first_call_ns, lambda: phase("warm-up"))
    seen([ns // loops for ns in warm.wall_ns[-LATEST:]])
    return {
        "first_call_ns": first_call_ns,
        "warm_up": warm,
        "loops": loops,
        "contract": contract,
        "memory": memory,
        "graphs": describe_graphs(),
        "integrity": Integrity(output_types=types),
        "changes": tuple(sorted(prepared.changes)),
    }


def _solo_statement(
    built: Built, phase: Phase, loops: int | None, watch: MemoryWatch, seen: Seen
) -> dict[str, Any]:
    phase("first call")
    once = built.block([], 1)
    first_call_ns = once()
    phase("step")
    warm = _slow_statement(once, first_call_ns, loops)
    if warm is None:
        started = wall_clock()
        call_ns = once()  # not the first, whose setup imports what the others find imported
        setup_ns = max(0, wall_clock() - started - call_ns)
        seen([call_ns])
        phase("step")
        sample_ns = max(2 * SAMPLE_NS, setup_ns // 2)
        make, beat = partial(built.block, []), partial(phase, "step")
        loops = loops or _choose_loops(make, beat, sample_ns)
        phase("warm-up")
        warm = warm_up(
            built.block([], loops), first_call_ns, lambda: phase("warm-up"), STATEMENT_LIMIT_NS
        )
    loops = loops or 1
    seen([ns // loops for ns in warm.wall_ns[-LATEST:]])
    return {
        "first_call_ns": first_call_ns,
        "warm_up": warm,
        "loops": loops,
        "memory": watch.read(None, watch.peak()),
        "graphs": None,
        "integrity": Integrity(),
    }


def _slow_statement(once: TimeBlock, first_call_ns: int, loops: int | None) -> WarmUp | None:
    """One more execution of a slow statement is all there is to learn of it here: it stands alone
    in a sample, and every measuring process warms up by itself. None of others, and of those that
    are slow once because they compile."""
    if first_call_ns < SLOW_STATEMENT_NS or (loops or 1) > 1:
        return None
    again = once()
    return WarmUp(first_call_ns, (again,), True) if again >= SLOW_STATEMENT_NS else None


def _choose_loops(
    make: Callable[[int], TimeBlock], beat: Callable[[], None], sample_ns: int = SAMPLE_NS
) -> int:
    """Calls per sample: 1 for steps that can stand alone, else enough to reach `sample_ns`.

    `beat` is called after slow blocks, so that the step's time-out counts for each of them.
    """
    loops = 1
    while loops < MOST_LOOPS:
        block = with_heartbeat(make(loops), beat)
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


def target_dir(arm: ArmSpec, here: str) -> str | None:
    """The folder of the code that was imported; that of a suite's model is where we started."""
    if arm.statement is not None:
        return None
    target = parse_target(arm.target)
    if target.kind == "file":
        return os.path.dirname(os.path.join(here, target.place))
    if target.kind == "suite":
        return here
    file = getattr(sys.modules.get(target.place), "__file__", None)
    return os.path.dirname(os.path.join(here, file)) if file else None
