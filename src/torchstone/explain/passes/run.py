"""The story of the passes: build, warm up, look in turns, then look deeper."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torchstone.explain.passes import report
from torchstone.explain.passes.blocked import WaitClock, blocked_pass
from torchstone.explain.passes.calls import entry_ns, record_steps
from torchstone.explain.passes.causes import Sources, find_sites
from torchstone.explain.passes.dispatch_reference import (
    DispatchReference,
    Groups,
    ReferenceCall,
    groups_of,
)
from torchstone.explain.passes.floors import breaking_cost, for_step, measure_costs
from torchstone.explain.passes.plain import library_lines, plain_round, watched_pass
from torchstone.explain.passes.report import Costs, Passes, Plan, Round, functions_pass
from torchstone.explain.passes.traced import describe_compiled, prepare_compiler, traced_round
from torchstone.machine.clock import measure_clock
from torchstone.machine.processes import usable_cores
from torchstone.machine.software import describe_environment
from torchstone.measure.arm import Built, Phase, build, thread_counts
from torchstone.measure.evidence import describe_contract
from torchstone.measure.flops import count_flops
from torchstone.measure.loops import wall_clock
from torchstone.measure.warmup import compile_count, warm_up
from torchstone.records import ArmSpec, CodeSite, Flops, UsageError
from torchstone.workloads import Inputs

SAMPLE_NS = 1_000_000
"""Shorter steps are looked at in blocks of about a millisecond: asking the system costs some µs."""
MOST_EVENTS = 60_000
"""Of the steps of one traced stretch: each is read one by one in Python."""
LEAST_SAMPLES = 3
SLOW_STEP_NS = 1_000_000_000
RING_SLOTS = 16
RECORDED_STEPS = 4
"""Steps whose ops are written down one by one: enough to see what stays the same and to have each
op once without a neighbour; some ten times as slow as they are."""


def run_passes(arm: ArmSpec, plan: Plan, phase: Phase) -> Passes:
    """All passes of one arm, in this process."""
    if arm.statement is not None:
        raise UsageError("A statement has no ledger.", "Put it into a function: path.py:fn().")
    prepare_compiler(arm)
    built = build(arm, phase)
    steps = Steps(built, arm.seed)
    phase("first call")
    first = steps.time_one()
    phase("warm-up")
    warm = warm_up(steps.time_one, first, lambda: phase("warm-up"))
    step_ns = max(1, sorted(warm.wall_ns[-10:])[len(warm.wall_ns[-10:]) // 2])
    steps.loops = 1 if step_ns >= SAMPLE_NS else -(-SAMPLE_NS // step_ns)
    compiled = compile_count()
    phase("passes")
    torch_here = hasattr(sys.modules.get("torch"), "Tensor")
    costs, reference_calls = Costs(), tuple[ReferenceCall, ...]()
    if torch_here:
        costs, reference_calls = measure_costs(sys.modules["torch"].is_grad_enabled())
    rounds, groups = _rounds(steps, plan, step_ns, phase, reference_calls)
    costs = for_step(costs, groups)
    late = compile_count() - compiled  # now: Dynamo counts the profile functions of later passes
    seconds = max(1.0, plan.budget_s / 4)
    count = max(LEAST_SAMPLES, int(seconds * 1e9 / (step_ns * steps.loops)))
    blocks = blocked_pass(steps.block, steps.loops, count, phase)
    watched = watched_pass(steps.block, seconds, phase)
    functions = functions_pass(steps.block, steps.loops, count, phase)
    sites, unseen = _sites(arm, steps, phase) if torch_here else ((), ())
    phase("passes")
    compiled_code = describe_compiled(late)  # now: what a break costs is compiled code of our own
    costs, unpriced = _with_breaks(costs, rounds)
    return Passes(
        rounds=rounds,
        costs=costs,
        environment=describe_environment(
            arm_env={},  # hidden variables stay hidden
            target_dir=None,
            threads=thread_counts(),
            allocator=arm.allocator,
            salt=os.urandom(16),
        ),
        contract=describe_contract(arm, steps.prepared, steps.ring[0], None),
        blocks=blocks,
        watched=watched,
        functions=functions,
        libraries=library_lines(steps.block, steps.loops) if torch_here else (),
        compiled=compiled_code,
        sites=sites,
        flops=_count(arm, phase) if plan.count_flops and torch_here else None,
        steady=warm.steady,
        facts=_facts(built),
        notes=(*(() if warm.steady else (f"not steady: {warm.reason}",)), *unpriced, *unseen),
    )


def _sites(
    arm: ArmSpec, steps: Steps, phase: Phase
) -> tuple[tuple[CodeSite, ...], tuple[str, ...]]:
    """Lines of the user's code that findings can be made of; or a note why there are none.
    Compiled code has no lines."""
    if not arm.is_eager:
        return (), ()
    phase("passes")
    try:
        recorded = record_steps(steps.prepared.step, steps.ring, RECORDED_STEPS)
        return find_sites(recorded, Sources(), entry_ns()), ()
    except Exception as error:  # whatever an op may raise that a dispatch mode looks at
        said = (str(error).splitlines() or [type(error).__name__])[0]
        return (), (f"no cause was looked for in the code: {said}",)


def _with_breaks(costs: Costs, rounds: Sequence[Round]) -> tuple[Costs, tuple[str, ...]]:
    """With what a graph break costs, where there are any; or a note why nobody knows."""
    traced = [one.traced for one in rounds if one.traced is not None]
    if not any(one.breaks for one in traced):
        return costs, ()
    generated = any(report.WRAPPER in one.places for one in traced)
    try:
        price = breaking_cost(costs, "inductor" if generated else "aot_eager")
    except Exception as error:  # whatever a compiler may raise under the target's own settings
        return costs, (f"what a graph break costs could not be measured: {error}",)
    return replace(costs, breaking=price), ()


class Steps:
    """The arm's step with inputs from a ring, in blocks."""

    def __init__(self, built: Built, seed: int) -> None:
        assert built.prepared is not None
        self.prepared = built.prepared
        self.ring: list[Inputs] = built.ring(seed, RING_SLOTS)
        self.loops = 1
        self._step: Callable[..., Any] = built.prepared.step
        self._synchronize = built.device.synchronize
        self.device = built.arm.device
        self._place = 0

    def block(self) -> None:
        """The next `loops` steps."""
        step, ring, size = self._step, self.ring, len(self.ring)
        for _ in range(self.loops):
            inputs = ring[self._place]
            self._place = (self._place + 1) % size
            step(*inputs.args, **inputs.kwargs)
        if self._synchronize is not None:
            self._synchronize()

    def time_one(self) -> int:
        """Wall time of one step."""
        inputs = self.ring[self._place]
        self._place = (self._place + 1) % len(self.ring)
        started = wall_clock()
        self._step(*inputs.args, **inputs.kwargs)
        if self._synchronize is not None:
            self._synchronize()
        return wall_clock() - started


def _rounds(
    steps: Steps, plan: Plan, step_ns: int, phase: Phase, reference_calls: Sequence[ReferenceCall]
) -> tuple[tuple[Round, ...], Groups]:
    """Plain and traced stretches in turns, so that a slow minute falls on both; and the calls
    that are like the step's ops. Without them, and so without torch, nothing can be traced."""
    wait = WaitClock()
    between: DispatchReference | None = None
    groups: Groups = {}
    sample_ns = step_ns * steps.loops
    stretch_ns = plan.budget_s * 1e9 / plan.rounds / 2
    count = max(LEAST_SAMPLES, int(stretch_ns / sample_ns))
    traced_count = count
    found: list[Round] = []
    for number in range(plan.rounds):
        phase("passes")
        plain = plain_round(steps.block, steps.loops, count, wait)
        traced = None
        if reference_calls:
            device = steps.device
            traced = traced_round(steps.block, steps.loops, traced_count, wait, device, between)
            if number == 0:  # the first tells how many events there are, and starts the tracer
                events = max(1.0, traced.events * steps.loops)
                traced_count = max(LEAST_SAMPLES, min(count, int(MOST_EVENTS / events)))
                groups = groups_of(reference_calls, traced.ops)
                between = DispatchReference(groups)
                if sample_ns < SLOW_STEP_NS:
                    continue
        found.append(Round(plain, traced))
    wait.close()
    return tuple(found), groups


def _count(arm: ArmSpec, phase: Phase) -> Flops | None:
    """Operations and bytes of one plain step; None where they cannot be counted."""
    phase("counting")
    try:
        return count_flops(arm, phase)
    except (UsageError, RuntimeError, NotImplementedError, TypeError, ValueError):
        return None


def _facts(built: Built) -> dict[str, str]:
    """The interpreter's lock, threads, cores and vector instructions."""
    found = {"gil": gil_state(), "cores": str(usable_cores())}
    clock = measure_clock().peak
    if clock is not None:
        found["clock_hz"] = f"{clock.value:.0f}"
    found["switch_interval_s"] = f"{sys.getswitchinterval():g}"
    torch = sys.modules.get("torch")
    if torch is not None:
        found["threads"] = str(torch.get_num_threads())
        found["interop"] = str(torch.get_num_interop_threads())
        found["isa"] = _isa(torch)
        found["device"] = built.device.name
        found["torch"] = str(torch.__version__)
    return found


def gil_state(module: Any = sys) -> str:
    """`on` or `off`: a free-threaded build may have switched the lock on for an extension."""
    return "on" if getattr(module, "_is_gil_enabled", lambda: True)() else "off"


def _isa(torch: Any) -> str:
    try:
        return str(torch.backends.cpu.get_cpu_capability())
    except (AttributeError, RuntimeError):
        return ""
