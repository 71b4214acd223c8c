"""A measuring process: started, warmed up, then one turn after another."""

from __future__ import annotations

import os
import resource
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from torchstone.machine.memory import rss_bytes
from torchstone.machine.noise import make_probe
from torchstone.measure.arm import Built, Phase, Sources, build, inputs_bytes, thread_counts
from torchstone.measure.bootstrap import SETTLED, VARIABLE
from torchstone.measure.channel import StartReport, TurnReport
from torchstone.measure.evidence import checked_call, encode_evidence, true_evidence
from torchstone.measure.loops import (
    Mark,
    Samples,
    TimeBlock,
    cpu_clock,
    fill,
    fill_without_gc,
    patched_timers,
    python_threads,
    timed_call,
    wall_clock,
)
from torchstone.measure.warmup import (
    SLOW_WINDOW_NS,
    active_profilers,
    compile_count,
    debug_settings,
    warm_up,
    with_heartbeat,
)
from torchstone.records import ArmSpec, Integrity, Noise, Turn
from torchstone.workloads import Inputs
from torchstone.workloads.load import seed_everything

_secretly = secrets.randbelow
"""Not from a generator that user code can seed."""
PROBE_SHARE = 0.10
"""Probes take at most this share of a turn (the method)."""
PROBE_NS = 100_000
WHOLE_SAMPLES = 3


class Turns:
    """One process of one arm."""

    def __init__(
        self,
        arm: ArmSpec,
        phase: Phase,
        loops: int,
        probe_bits: int | None,
        caches: Mapping[str, str],
        built: Built | None = None,
    ) -> None:
        self.caches = caches
        os.environ.update(caches)  # another arm in this process may have set its own
        self.sources = Sources(arm)
        started = wall_clock()
        self.arm = arm
        self.loops = loops
        self.built: Built = built or build(arm, phase)
        self.start_ns = wall_clock() - started
        self.sources.look()
        self.probe = make_probe(exponent_bits=probe_bits)
        self.restore: Callable[[], None] | None = None
        self.threads: int | None = None
        self.first_call_ns: int | None = None
        self.compiled = 0
        self.cpu_before = 0
        self.evidence = b""

    def warm_up(self, phase: Phase, seed: int, limit_s: float) -> StartReport:
        """The first call, if it is not made yet, then warm-up until steady or `limit_s` is over."""
        built = self.built
        os.environ.update(self.caches)
        first = self.first_call_ns
        if first is None:
            first = self.first_call(phase)
        ring = [] if built.is_statement else built.ring(seed, 16)
        phase("warm-up")
        block = built.block(ring, self.loops)
        began = wall_clock()
        warm = warm_up(
            block, first, lambda: phase("warm-up"), int(limit_s * 1e9), built.is_statement
        )
        whole_ns = (wall_clock() - began) // len(warm.wall_ns)
        sample_ns = sorted(warm.wall_ns[-10:])[len(warm.wall_ns[-10:]) // 2]
        if self.arm.shapes > 1:
            sample_ns = int(sample_ns * _growth(built, ring[0], seed))
        if built.is_statement:
            if whole_ns < SLOW_WINDOW_NS:
                whole_ns = _whole_sample_ns(with_heartbeat(block, lambda: phase("warm-up")))
            sample_ns = max(sample_ns, whole_ns)
        return StartReport(self.start_ns, warm, _layout(), sample_ns, self.sources.look())

    def first_call(self, phase: Phase) -> int:
        """Compile, and whatever else only the first call does."""
        built = self.built
        if built.prepared is not None and built.prepared.keep_start is not None:
            self.restore = built.prepared.keep_start()
        phase("first call")
        ring = [] if built.is_statement else built.ring(self.arm.seed, 1)
        applied = built.prepared.apply_ns if built.prepared else 0
        self.first_call_ns = built.block(ring, 1)() + applied
        return self.first_call_ns

    def turn(
        self,
        mark: Mark,
        samples: int,
        sample_ns: int,
        seed: int,
        check_seed: int,
        check_shape: int,
        keep: bool,
    ) -> TurnReport:
        """One turn: a first sample apart, `samples` kept ones, then a call that may be checked."""
        built = self.built
        self._begin_turn()
        slots = (samples + 1) * self.loops
        ring = [] if built.is_statement else built.ring(seed, slots, timed=True)
        checked = None if built.is_statement else built.inputs(check_seed, check_shape)
        block = built.block(ring, self.loops)
        buffers = Samples(samples, _probe_every(sample_ns))
        buffers.marked = _secretly(samples)  # no code knows it before
        run = fill_without_gc if built.is_statement else fill
        mark()
        cpu, wall = cpu_clock(), wall_clock()
        first = block()
        before = resource.getrusage(resource.RUSAGE_SELF)
        run(buffers, block, self.probe, mark)
        after = resource.getrusage(resource.RUSAGE_SELF)
        wall, cpu = wall_clock() - wall, cpu_clock() - cpu
        mark()
        self._final_call(checked, check_seed, keep)
        return self._report(buffers, first, (before, after), (wall, cpu), wall)

    def _probe_again(self) -> int:
        """The second reading of two: the first finds caches that a long call has filled."""
        self.probe()
        return self.probe()

    def _begin_turn(self) -> None:
        """Count from here: another arm in this process may have compiled or started threads."""
        self.cpu_before = cpu_clock()
        self.compiled = compile_count()
        if self.threads is None:
            self.threads = python_threads()

    def _report(
        self,
        taken: Samples,
        first_ns: int,
        usage: tuple[resource.struct_rusage, resource.struct_rusage],
        whole: tuple[int, int],
        marked_ns: int,
    ) -> TurnReport:
        before, after = usage
        turn = Turn(
            replicate=0,
            index=0,
            wall_ns=tuple(taken.wall),
            cpu_ns=tuple(taken.cpu),
            probe_ns=tuple(taken.probe),
            probe_every=taken.probe_every,
            first_ns=first_ns,
            minor_faults=after.ru_minflt - before.ru_minflt,
            major_faults=after.ru_majflt - before.ru_majflt,
            noise=Noise(*whole),
            resident_bytes=rss_bytes(),
        )
        integrity = Integrity(
            patched_timers(),
            max(0, python_threads() - (self.threads or 0)),
            profilers=active_profilers(),
            debug_settings=debug_settings(),
            threads_seen=tuple(filter(None, [thread_counts().get("torch")])),
        )
        cpu_ns = cpu_clock() - self.cpu_before
        compiles = compile_count() - self.compiled
        return TurnReport(turn, compiles, integrity, marked_ns, cpu_ns, taken.marked)

    def one_call(self, mark: Mark, seed: int, restore: bool, keep: bool) -> TurnReport:
        """A turn of one call with inputs of its own, whose output is the one that may be checked.

        `restore`: in training from the start state, as it must be where the output is checked.
        """
        built = self.built
        assert built.prepared is not None
        self._begin_turn()
        inputs = built.inputs(seed)
        if restore and self.restore is not None:
            self.restore()
        seed_everything(seed)
        taken = Samples(1, 1)
        mark()
        marked = wall_clock()
        taken.probe[0] = self._probe_again()
        before = resource.getrusage(resource.RUSAGE_SELF)
        cpu = cpu_clock()
        wall, output = timed_call(built.prepared.step, inputs, built.device.synchronize)
        cpu = cpu_clock() - cpu
        after = resource.getrusage(resource.RUSAGE_SELF)
        marked = wall_clock() - marked
        mark()
        # Read at once: a thread that fills it in later comes too late.
        if keep:
            found = true_evidence(built.prepared, built.call, inputs, seed, output)
            self.evidence = encode_evidence(found)
        taken.wall[0], taken.cpu[0], taken.probe[1] = wall, cpu, self._probe_again()
        return self._report(taken, 0, (before, after), (wall, cpu), marked)

    def _final_call(self, inputs: Any, seed: int, keep: bool) -> None:
        """The same call once more, its output kept; in training from the start state.

        The output is read at once: a thread that fills it in later comes too late. The state goes
        back after every turn, not only where the output is kept: a faster arm takes more steps in
        a turn and would train further away, to weights (denormal, saturated) that have times of
        their own; and an arm must not be able to tell a turn that is checked from one that is not.
        """
        if inputs is None:
            return
        if self.restore is not None:
            self.restore()
        prepared = self.built.prepared
        assert prepared is not None
        output = checked_call(prepared, self.built.call, inputs, seed)
        self.evidence = encode_evidence(output) if keep else b""

    def write_evidence(self, path: str) -> None:
        """Hand over the output of the last turn's checked call."""
        with open(path, "wb") as file:
            file.write(self.evidence)
        self.evidence = b""


def _growth(built: Built, base: Inputs, seed: int) -> float:
    """How much longer samples are expected to take than in warm-up, by the size of their inputs."""
    timed = [inputs_bytes(built.inputs(seed, shape)) for shape in built.timed_shapes]
    return max(1.0, sum(timed) / len(timed) / max(1, inputs_bytes(base)))


def _whole_sample_ns(block: TimeBlock) -> int:
    """Wall time of a sample with its setup, which the block itself does not count."""
    started = wall_clock()
    for _ in range(WHOLE_SAMPLES):
        block()
    return (wall_clock() - started) // WHOLE_SAMPLES


def _probe_every(sample_ns: int) -> int:
    """Samples between probes, so that probes stay within their share."""
    return max(1, round(PROBE_NS / PROBE_SHARE / max(sample_ns, 1)))


def _layout() -> str:
    """`shared` where this process lies in memory like the other arms' of its replicate."""
    return "shared" if os.environ.get(VARIABLE, "").startswith(SETTLED) else "random"
