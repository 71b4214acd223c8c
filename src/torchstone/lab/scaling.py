"""`torchstone scaling`: a target over several ranks, against one rank and one plain process."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torchstone.conductor.check_outputs import MULTIPLIER, TOLERANCES
from torchstone.conductor.ranks import GroupEnded, RankGroup
from torchstone.lab.bench import new_id
from torchstone.lab.recording import this_machine
from torchstone.lab.secrets import public_words
from torchstone.machine.processes import usable_cores
from torchstone.measure.ranks import union
from torchstone.records import ArmSpec, Measurement, Noise, Outcome, OutcomeDetail, Turn, UsageError
from torchstone.records.format import count
from torchstone.records.scaling import (
    PARALLELISM_KINDS,
    PLAIN,
    Communication,
    Efficiency,
    GradientCheck,
    RankArm,
    Scaling,
)
from torchstone.stats import TYPICAL_ESTIMATOR, ratio
from torchstone.store.limits import now
from torchstone.workloads import check_target

WARM_UP, TRACED, STEPS = 3, 10, 4
"""Steps before the first turn of a process, in a trace, and in a turn."""
LEAST_TURNS = 3
MOST_RANKS = 64
LEAST_TIMEOUT_S = 5.0
STRAGGLER_SHARE = 0.25
"""Of a step: on shared cores, ten steps of equal ranks have shown 15 %."""
OFTEN = 0.8
"""Of the collectives that a straggler arrives at last."""


@dataclass(frozen=True)
class ScalingRequest:
    """As asked."""

    target: str
    ranks: tuple[int, ...] = (1, 2)
    parallel: tuple[str, ...] = ("ddp",)
    weak: bool = False
    threads: int = 1
    budget_s: float = 10.0
    replicates: int = 3
    timeout_s: float = 60.0
    seed: int = 0


@dataclass
class _Arm:
    kind: str
    ranks: int
    spec: ArmSpec
    group: RankGroup | None = None
    turns: list[Turn] = field(default_factory=list)
    by_rank: list[list[int]] = field(default_factory=list)
    built: list[dict[str, Any]] = field(default_factory=list)
    traces: list[list[dict[str, Any]]] = field(default_factory=list)
    """Of each replicate, by rank."""
    ended: GroupEnded | None = None


def scale(request: ScalingRequest, say: Callable[[str], None] = lambda text: None) -> Scaling:
    """Start every arm's group, give turns in random order, in fresh processes each time."""
    _check(request)
    began = time.monotonic()
    arms = [_Arm(kind, ranks, spec) for kind, ranks, spec in _plan(request)]
    chance = random.Random(request.seed)
    for replicate in range(request.replicates):
        try:
            for arm in (one for one in arms if one.ended is None):
                say(f"process {replicate + 1} of {request.replicates}: {arm.spec.name}")
                _guarded(arm, partial(_begin, request=request))
            _take_turns(arms, replicate, request.budget_s / request.replicates, chance, request)
        finally:
            for arm in arms:
                if arm.group is not None:
                    arm.group.close()
                    arm.group = None
    made = [_rank_arm(arm) for arm in arms]
    made = [replace(one, efficiency=_efficiency(one, made, request.weak)) for one in made]
    cores = usable_cores()
    found = Scaling(
        new_id(),
        now(),
        request.target,
        "weak" if request.weak else "strong",
        request.threads,
        cores,
        tuple(made),
        this_machine(),
        torch=next((str(arm.built[0]["torch"]) for arm in arms if arm.built), ""),
        command=public_words(_command(request)),
        elapsed_s=time.monotonic() - began,
    )
    notes = {str(one["note"]): None for arm in arms for one in arm.built if one.get("note")}
    return replace(found, findings=(*findings(found), *notes))


def _command(request: ScalingRequest) -> list[str]:
    words = ["torchstone", "scaling", request.target, "--ranks", ",".join(map(str, request.ranks))]
    words += ["--parallel", ",".join(request.parallel), *(["--weak"] if request.weak else [])]
    words += ["--threads-per-rank", str(request.threads), "--replicates", str(request.replicates)]
    return [*words, "--budget", f"{request.budget_s:g}s", "--timeout", f"{request.timeout_s:g}s"]


def _check(request: ScalingRequest) -> None:
    check_target(request.target)
    unknown = [kind for kind in request.parallel if kind not in PARALLELISM_KINDS]
    if unknown:
        raise UsageError(
            f"{unknown[0]!r} is no kind of parallelism.", f"Use {', '.join(PARALLELISM_KINDS)}."
        )
    if not request.ranks or not all(1 <= ranks <= MOST_RANKS for ranks in request.ranks):
        raise UsageError(f"--ranks takes numbers from 1 to {MOST_RANKS}.", "Write --ranks 1,2.")
    if min(request.threads, request.replicates) < 1:
        raise UsageError("--threads-per-rank and --replicates must be at least 1.")
    if request.timeout_s < LEAST_TIMEOUT_S:
        raise UsageError(f"--timeout must be at least {LEAST_TIMEOUT_S:g}s.")


def _plan(request: ScalingRequest) -> list[tuple[str, int, ArmSpec]]:
    """Plain first; one rank through each wrapper that several ranks are asked of."""
    pairs = [(PLAIN, 1)]
    for kind in dict.fromkeys(request.parallel):
        counts = sorted({1, *request.ranks})
        pairs += [(kind, ranks) for ranks in counts]
    return [
        (
            kind,
            ranks,
            ArmSpec(
                PLAIN if kind == PLAIN else f"{kind}×{ranks}",
                request.target,
                mode="training",
                threads=request.threads,
                seed=request.seed,
            ),
        )
        for kind, ranks in pairs
    ]


def _guarded(arm: _Arm, act: Callable[[_Arm], None]) -> None:
    try:
        act(arm)
    except GroupEnded as ended:
        arm.ended, arm.group = ended, None


def _begin(arm: _Arm, request: ScalingRequest) -> None:
    limit = request.timeout_s
    arm.group = RankGroup(arm.spec, arm.kind, arm.ranks, limit)
    arm.group.connect(limit)
    arm.built = arm.group.build(request.weak)
    arm.group.ask({"do": "turn", "steps": WARM_UP}, limit)
    if arm.kind != PLAIN:
        arm.traces.append(arm.group.ask({"do": "trace", "steps": TRACED}, limit))


def _take_turns(
    arms: Sequence[_Arm], replicate: int, budget_s: float, chance: random.Random, request: Any
) -> None:
    until, index = time.monotonic() + budget_s, 0
    while index < LEAST_TURNS or time.monotonic() < until:
        living = [arm for arm in arms if arm.group is not None]
        chance.shuffle(living)
        for arm in living:
            take = partial(_turn, replicate=replicate, index=index, timeout_s=request.timeout_s)
            _guarded(arm, take)
        index += 1
        if not living:
            return


def _turn(arm: _Arm, replicate: int, index: int, timeout_s: float) -> None:
    assert arm.group is not None
    times = arm.group.ask({"do": "turn", "steps": STEPS}, timeout_s)
    slowest = tuple(max(step) for step in zip(*times, strict=True))
    noise = Noise(sum(slowest), 0)
    arm.turns.append(Turn(replicate, index, slowest[1:], (), (), 0, slowest[0], 0, 0, noise))
    arm.by_rank = arm.by_rank or [[] for _ in times]
    for known, more in zip(arm.by_rank, times, strict=True):
        known += more[1:]


def _rank_arm(arm: _Arm) -> RankArm:
    check = gradient_check(arm.built)
    outcome, detail, failed = Outcome.OK, OutcomeDetail(), None
    if arm.ended is not None:
        outcome, detail, failed = arm.ended.outcome, arm.ended.detail, arm.ended.rank
    elif check is not None and not check.right:
        outcome = Outcome.WRONG_ANSWER
        detail = OutcomeDetail(
            f"gradients are off by {check.error:.2g} of their size (allowed {check.allowed:.1g}); "
            f"the nearest multiple of one rank's is {check.scale:.3f}; worst: {check.parameter}",
            "build",
        )
    return RankArm(
        arm.kind,
        arm.ranks,
        Measurement(arm.spec, outcome, detail, turns=tuple(arm.turns)),
        tuple(statistics.median(times) / 1e9 for times in arm.by_rank if times),
        tuple(int(one["threads"]) for one in arm.built),
        check,
        communication_of_all(arm.traces),
        failed_rank=failed,
    )


def gradient_check(built: Sequence[dict[str, Any]]) -> GradientCheck | None:
    """The worst rank; a pipeline's ranks have different weights."""
    known = [one for one in built if one.get("error") is not None]
    if not known:
        return None
    worst = max(known, key=lambda one: one["error"])
    allowed = MULTIPLIER * worst["own"] + TOLERANCES["fp32"] / 10
    return GradientCheck(worst["error"], allowed, worst["scale"], worst["parameter"])


def communication_of_all(traces: Sequence[Sequence[dict[str, Any]]]) -> Communication | None:
    """Of the first process; a rank is a straggler if it is one in all of them. Other programs slow
    down one rank or the other, never the same one each time."""
    each = [communication(one) for one in traces]
    if not each or each[0] is None:
        return None
    if len({one.straggler for one in each if one is not None}) > 1:
        return replace(each[0], straggler=None, straggler_share=0.0)
    return each[0]


def communication(traces: Sequence[dict[str, Any]]) -> Communication | None:
    """Ranks aligned on each collective: before the last arrival is skew, after it transfer."""
    steps = len(traces[0]["steps"])
    each = [sorted(one["calls"], key=lambda call: call["start_ns"]) for one in traces]
    busy, exposed = [], []
    for calls, trace in zip(each, traces, strict=True):
        spans = union([[call["start_ns"], call["end_ns"]] for call in calls])
        busy.append(_length(spans))
        exposed.append(_length(spans) - _common(spans, trace["computing"]))
    names = [[call["name"] for call in calls] for calls in each]
    aligned = len(traces) > 1 and all(one == names[0] for one in names) and bool(names[0])
    aligned = aligned and not any("send" in name or "recv" in name for name in names[0])
    skew = transfer = straggler = None
    share = 0.0
    if aligned:
        waits, moved, last = [0.0] * len(each), 0.0, []
        for joined in zip(*each, strict=True):
            starts = [call["start_ns"] for call in joined]
            arrival = max(starts)
            last.append(starts.index(arrival))
            for rank, call in enumerate(joined):
                waits[rank] += max(0, min(arrival, call["end_ns"]) - call["start_ns"])
            moved += statistics.mean(max(0, call["end_ns"] - arrival) for call in joined)
        skew, transfer = statistics.mean(waits) / steps / 1e9, moved / steps / 1e9
        slowest = min(range(len(waits)), key=lambda rank: waits[rank])
        others = statistics.mean(w for rank, w in enumerate(waits) if rank != slowest)
        share = (others - waits[slowest]) / sum(traces[slowest]["steps"])
        often = last.count(slowest) >= OFTEN * len(last)
        straggler = slowest if often and share >= STRAGGLER_SHARE else None
    ddp = [one["ddp"] for one in traces if one.get("ddp")]
    return Communication(
        statistics.mean(busy) / steps / 1e9,
        transfer,
        skew,
        statistics.mean(exposed) / steps / 1e9,
        statistics.mean(sum(call["bytes"] for call in calls) for calls in each) / steps,
        statistics.mean(map(len, each)) / steps,
        statistics.mean(sum(one["steps"]) for one in traces) / steps / 1e9,
        straggler,
        share if straggler is not None else 0.0,
        statistics.mean(one[0] for one in ddp) / 1e9 if ddp else None,
        statistics.mean(one[1] for one in ddp) / 1e9 if ddp else None,
    )


def _length(spans: Sequence[Sequence[int]]) -> int:
    return sum(end - start for start, end in spans)


def _common(one: Sequence[Sequence[int]], other: Sequence[Sequence[int]]) -> int:
    both = union([list(span) for span in (*one, *other)])
    return _length(one) + _length(other) - _length(both)


def _efficiency(arm: RankArm, arms: Sequence[RankArm], weak: bool) -> tuple[Efficiency, ...]:
    """Weak: T1 / Tn; strong: T1 / (n Tn)."""
    found = []
    for base in arms:
        one_rank = base.kind == PLAIN or (base.kind == arm.kind and base.ranks == 1)
        if not one_rank or base is arm or not (base.measurement.turns and arm.measurement.turns):
            continue
        times = ratio(base.measurement, arm.measurement, TYPICAL_ESTIMATOR)
        share = 1.0 if weak else 1.0 / arm.ranks
        low, high = times.interval
        interval = (share / high if high else 0.0, share / low if low else float("inf"))
        found.append(Efficiency(base.name, share / times.time_ratio, interval))
    return tuple(found)


FSDP_SUM = (
    "FSDP2 on gloo sums gradients where it should average them (pytorch#162338): {name} has "
    "{scale:.2f} times one rank's. Work-around: "
    "model.set_force_sum_reduction_for_comms(True){seen}."
)


def findings(found: Scaling) -> list[str]:
    """What somebody must know before they read a figure."""
    said = []
    most = max((arm.ranks for arm in found.arms), default=1)
    if most > 1:
        said.append(
            f"{most} ranks of {count(found.threads, 'thread')} share "
            f"{count(found.cores, 'core')} of one machine: not a speed claim."
        )
    right = {
        arm.kind for arm in found.arms if arm.gradients and arm.gradients.right and arm.ranks > 1
    }
    for arm in found.arms:
        check, moved = arm.gradients, arm.communication
        if check is not None and not check.right:
            if arm.kind == "fsdp" and abs(check.scale / arm.ranks - 1) < 0.01:
                seen = ", which is right here" if "fsdp-sum" in right else " (fsdp-sum)"
                said.append(FSDP_SUM.format(name=arm.name, scale=check.scale, seen=seen))
            else:
                said.append(f"{arm.name}: {arm.measurement.detail.message}.")
        if arm.measurement.outcome not in (Outcome.OK, Outcome.WRONG_ANSWER):
            said.append(f"{arm.name}: {arm.measurement.detail.message}.")
        if arm.kind == "fsdp" and arm.ranks > 1 and check is not None and check.right:
            said.append(f"{arm.name}: averages as it should; no sign of pytorch#162338 here.")
        if moved is not None and moved.straggler is not None:
            said.append(
                f"{arm.name}: rank {moved.straggler} holds up the others: they wait "
                f"{moved.straggler_share:.0%} of a step for it."
            )
    return said
