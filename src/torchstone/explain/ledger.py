"""From the passes to the ledger: rounds put together, shares of the wall time, and the rest.

Has the passes run in a process of its own, so that this one never imports torch.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

from torchstone.conductor import ArmEnded, Settings
from torchstone.conductor.launch import Launcher
from torchstone.conductor.worker import OutOfTime, Spawn, WorkerProcess, patience
from torchstone.explain.lines import Split, blocked_of, deep_lines, hardware_words, split_round
from torchstone.explain.passes.report import (
    IMAGES,
    ONE_TYPE,
    OPTIMIZER_FILE,
    OpTime,
    Passes,
    Place,
    Plain,
    Plan,
    Round,
    Traced,
    Watched,
    allocates,
    fused_ops,
)
from torchstone.machine.folders import own_folder
from torchstone.records import (
    ArmSpec,
    Calibration,
    Ledger,
    LedgerLine,
    LedgerPart,
    OpCost,
    TorchstoneError,
    from_data,
)
from torchstone.records.ledger import BACK_END, FRONT_END, OFF_CPU, PYTHON, REST

# Rounds put together into one: an undisturbed step, plain and traced.
#
# A neighbour only ever adds to what a step computes, and never the same: so of every figure that is
# time on the core the lower quartile of the rounds is taken, of the plain steps and of the traced
# ones alike. Sleeping and collecting are the step's own, and are averaged.


def pooled(rounds: Sequence[Round]) -> Round:
    """The one round that stands for all."""
    traced = [one.traced for one in rounds if one.traced is not None]
    return Round(_plain([one.plain for one in rounds]), _traced(traced) if traced else None)


def quartile(values: Sequence[float]) -> float:
    """The lower quartile, between two values where it falls there."""
    ordered = sorted(values)
    place = (len(ordered) - 1) / 4
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _clocks(rounds: Sequence[Plain] | Sequence[Traced]) -> dict[str, float]:
    """What plain and traced steps have in common."""
    collecting = fmean(one.collecting for one in rounds)
    cpu = quartile([one.cpu - one.collecting for one in rounds]) + collecting
    off, wait = fmean(one.off for one in rounds), quartile([one.wait for one in rounds])
    wall = cpu + off + wait
    return {"wall": wall, "cpu": cpu, "off": off, "wait": wait, "collecting": collecting}


def _plain(rounds: Sequence[Plain]) -> Plain:
    return Plain(
        steps=sum(one.steps for one in rounds),
        **_clocks(rounds),
        process_cpu=quartile([one.process_cpu for one in rounds]),
        faults=fmean(one.faults for one in rounds),
        python_threads=fmean(one.python_threads for one in rounds),
        busy=fmean(one.busy for one in rounds),
    )


def _traced(rounds: Sequence[Traced]) -> Traced:
    names = {name for one in rounds for name in one.places}
    return Traced(
        steps=sum(one.steps for one in rounds),
        **_clocks(rounds),
        events=fmean(one.events for one in rounds),
        places={name: _place(name, rounds) for name in sorted(names)},
        ops=_pooled_ops([one.ops for one in rounds]),
        kernels=_pooled_ops([one.kernels for one in rounds]),
        copies=_pooled_ops([one.copies for one in rounds]),
        breaks=fmean(one.breaks for one in rounds),
        speeds=_pooled_speeds([one.speeds for one in rounds]),
        grad_speeds=_pooled_speeds([one.grad_speeds for one in rounds]),
    )


def _pooled_speeds(tables: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = {name for table in tables for name in table}
    return {name: quartile([table[name] for table in tables if name in table]) for name in names}


def _place(name: str, rounds: Sequence[Traced]) -> Place:
    found = [one.places.get(name, Place(0.0, 0.0, 0.0, {})) for one in rounds]
    entries = {entry for place in found for entry in place.entries}
    return Place(
        fmean(place.events for place in found),
        quartile([place.own for place in found]),
        fmean(place.inside for place in found),
        {entry: fmean(p.entries.get(entry, 0.0) for p in found) for entry in sorted(entries)},
    )


def _pooled_ops(rounds: Sequence[Sequence[OpTime]]) -> tuple[OpTime, ...]:
    tables = [{op.name: op for op in ops} for ops in rounds]
    made = []
    for name in {name for one in tables for name in one}:
        found = [one.get(name, OpTime(name, 0.0, 0.0, 0.0)) for one in tables]
        calls, own = fmean(op.calls for op in found), quartile([op.own for op in found])
        inside, with_grad = fmean(op.inside for op in found), fmean(op.with_grad for op in found)
        made.append(OpTime(name, calls, own, inside, with_grad))
    return tuple(sorted(made, key=lambda op: -op.own))


# Reasons to doubt a ledger, each a sentence.


MOST_REST = 0.05
"""More than a twentieth unexplained, and the ledger does not close."""
MOST_CONTENTION = 0.05
MOST_TRACING = 2.0
"""A step that takes twice its time under the tracer is not the same step."""
MOST_SPREAD = 0.10
MOST_DRIFT = 0.05
"""A core that changes its speed by more between plain and traced steps makes shares rough."""


def _caveats(passes: Passes, lines: Sequence[LedgerLine], drift: float) -> tuple[str, ...]:
    """What a reader must know before believing the shares."""
    found = []
    by_name = {line.name: line for line in lines}
    rest = by_name["rest"].share
    if abs(rest) > MOST_REST:
        what = "is not explained" if rest > 0 else "is explained twice"
        found.append(f"{abs(rest):.0%} of the step {what}: the passes did not see the same step.")
    crowded = by_name.get("contention")
    if crowded is not None and crowded.share > MOST_CONTENTION:
        found.append(
            f"The thread waited for a core {crowded.share:.0%} of the time: other programs run "
            "here. Shares are rough; look again on a quiet machine."
        )
    tracing = _tracing(passes)
    if tracing > MOST_TRACING:
        found.append(f"Tracing made the step {tracing:.1f} times as long; its cost was taken out.")
    if abs(drift - 1) > MOST_DRIFT:
        found.append(
            f"What was traced had to be scaled by {drift:.2f} to fit the plain steps: the core ran "
            "at another speed, or tracing changed more than its known cost."
        )
    unsteady = [line.title for line in lines if line.spread > MOST_SPREAD]
    if unsteady:
        found.append(f"Not the same from round to round: {', '.join(unsteady)}.")
    if not passes.steady:
        found.append("The step did not become steady in warm-up.")
    if passes.compiled is not None and passes.compiled.late:
        found.append(f"It was compiled again {passes.compiled.late} times while it was looked at.")
    return tuple(found)


def _tracing(passes: Passes) -> float:
    ratios = [
        one.traced.cpu / one.plain.cpu for one in passes.rounds if one.traced and one.plain.cpu
    ]
    return median(ratios) if ratios else 1.0


TITLES: dict[str, tuple[int, str]] = {
    "interpreter": (PYTHON, "interpreter"),
    "collector": (PYTHON, "garbage collection"),
    "gil": (PYTHON, "waiting for the interpreter's lock"),
    "loading": (PYTHON, "data loading"),
    "files": (PYTHON, "files"),
    "network": (PYTHON, "network and pipes"),
    "dispatch": (FRONT_END, "dispatch of ops"),
    "autograd": (FRONT_END, "autograd bookkeeping"),
    "guards": (FRONT_END, "Dynamo: guards and entry"),
    "breaks": (FRONT_END, "Dynamo: graph breaks"),
    "wrapper": (FRONT_END, "generated wrapper code"),
    "optimizer": (FRONT_END, "optimizer, ops apart"),
    "kernels": (BACK_END, "kernels"),
    "allocator": (BACK_END, "allocator"),
    "pool": (BACK_END, "thread pool: start and wait"),
    "sleep": (OFF_CPU, "sleeping"),
    "locks": (OFF_CPU, "locks, queues and events"),
    "contention": (OFF_CPU, "waiting for a core"),
}
"""Level and title of every line, in the order in which they are shown."""
MODELLED = ("dispatch", "allocator", "pool", "gil")
LEAST_SHARE = 0.0005
"""A line below a twentieth of a per cent is left out."""
MOST_PARTS = 8
IMAGE_DIMENSIONS = 4
_OPTIMIZER = re.compile(r"/torch/optim/(?!optimizer|lr_scheduler|swa_utils|_functional)(\w+)\.py$")
"""One of torch's own, by the file of a function that a step was seen in; not what they share."""


def make_ledger(arm: ArmSpec, passes: Passes, calibration: Calibration | None = None) -> Ledger:
    """The ledger of one arm. Without a calibration level 5 says that no peak is known."""
    blocked = blocked_of(passes.blocks, passes.watched)
    threads = int(passes.facts.get("threads", "1"))
    usual = pooled(passes.rounds)
    split = split_round(usual, passes.costs, blocked, threads)
    splits = [split_round(one, passes.costs, blocked, threads) for one in passes.rounds]
    wall = split.wall
    ops = _with_names(split.ops)
    lines = _lines(split, splits, _parts(ops, passes, split))
    kernels = next((line for line in lines if line.name == "kernels"), None)
    if kernels is not None:
        lines += deep_lines(arm, passes, ops, kernels.seconds, wall / 1e9, calibration)
    compiled = passes.compiled
    return Ledger(
        arm=arm,
        wall_s=wall / 1e9,
        cpu_s=split.cpu / 1e9,
        lines=tuple(lines),
        steps=sum(one.plain.steps for one in passes.rounds),
        rounds=len(passes.rounds),
        ops=(*ops, *_copies(usual)),
        breaks=compiled.breaks if compiled else (),
        recompiles=compiled.recompiles if compiled else (),
        sites=passes.sites,
        graphs=compiled.graphs.graphs if compiled else 0,
        late_compiles=compiled.late if compiled else 0,
        interpreter=interpreter_words(passes, lines),
        hardware=hardware_words(arm, passes, kernels, calibration),
        tracing=split.tracing,
        checks=_caveats(passes, lines, split.drift),
        notes=passes.notes,
        facts={
            **passes.facts,
            **_figures(passes),
            **_settings(passes),
            "drift": f"{split.drift:.3f}",
            "wall_spread": f"{_spread([one.wall for one in splits]) / wall:.4f}",
        },
        environment=passes.environment,
    )


def _figures(passes: Passes) -> dict[str, str]:
    """What findings need to know of the passes, beside the lines."""
    plain = [one.plain for one in passes.rounds]
    return {
        "faults": f"{median(one.faults for one in plain):.1f}",
        "fault_ns": f"{passes.costs.fault:.0f}",
        "process_cpu_ns": f"{median(one.process_cpu for one in plain):.0f}",
        "event_ns": f"{passes.costs.event:.0f}",
        "binding_ns": f"{passes.costs.binding:.0f}",
        "grad": str(bool(passes.contract and passes.contract.grad_enabled)).lower(),
    }


def _settings(passes: Passes) -> dict[str, str]:
    """What findings must know lest they advise what is done already, or cannot be done."""
    found = {}
    contract = passes.contract
    if contract is not None:
        tensors = [leaf for leaf in contract.inputs if leaf.kind == "torch"]
        types = {leaf.dtype for leaf in tensors} | set(contract.parameter_dtypes)
        one = types == {"float32"} and contract.autocast is None
        found[ONE_TYPE] = str(one).lower()
        layouts = {leaf.memory_format for leaf in tensors if len(leaf.shape) == IMAGE_DIMENSIONS}
        if layouts:
            found[IMAGES] = ", ".join(sorted(layouts))
    seen = (_OPTIMIZER.search(one.file.replace("\\", "/")) for one in passes.functions)
    names = [match[1] for match in seen if match]
    return {**found, OPTIMIZER_FILE: names[0]} if names else found


def _lines(
    split: Split, splits: Sequence[Split], parts: dict[str, tuple[LedgerPart, ...]]
) -> list[LedgerLine]:
    """Every line; the rest is what they leave of the wall time."""
    made = []
    explained = 0.0
    wall = split.wall
    for name, (level, title) in TITLES.items():
        ns = split.lines.get(name, 0.0)
        if ns < LEAST_SHARE * wall:
            continue
        explained += ns
        made.append(
            LedgerLine(
                level=level,
                name=name,
                title=title,
                seconds=ns / 1e9,
                share=ns / wall,
                spread=_spread([one.lines.get(name, 0.0) / one.wall for one in splits]),
                parts=parts.get(name, ()),
                estimated=name in MODELLED,
            )
        )
    rest = wall - explained
    made.append(LedgerLine(REST, "rest", "not explained", rest / 1e9, rest / wall))
    return made


def _spread(values: Sequence[float]) -> float:
    """Half the range of the middle half."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return (ordered[len(ordered) - 1 - quarter] - ordered[quarter]) / 2


def _with_names(ops: Sequence[OpCost]) -> tuple[OpCost, ...]:
    """The slowest first, generated kernels with the ops that they stand for."""
    made = [
        replace(
            op,
            front_s=max(0.0, op.front_s),
            ops=fused_ops(op.name) if op.generated else (),
        )
        for op in ops
    ]
    return tuple(sorted(made, key=lambda op: -(op.kernel_s + op.front_s)))


def _copies(usual: Round) -> tuple[OpCost, ...]:
    """On the device, so beside the lines, which divide the thread's time."""
    found = usual.traced.copies if usual.traced is not None else ()
    return tuple(OpCost(one.name, one.calls, one.own / 1e9, 0.0) for one in found)


def _parts(
    ops: Sequence[OpCost], passes: Passes, split: Split
) -> dict[str, tuple[LedgerPart, ...]]:
    """What the larger lines are made of."""
    blocks: dict[str, list[LedgerPart]] = defaultdict(list)
    for block in passes.blocks:
        part = LedgerPart(block.function, (block.off + block.on) / 1e9, block.calls, block.place)
        blocks[block.kind].append(part)
    found = {name: tuple(parts[:MOST_PARTS]) for name, parts in blocks.items()}
    working = [op for op in ops if not allocates(op.name)]  # the others are the allocator's line
    for line, parts in (
        ("kernels", [LedgerPart(op.name, op.kernel_s, op.calls) for op in working]),
        ("dispatch", [LedgerPart(op.name, op.front_s, op.calls) for op in working]),
    ):
        found[line] = _largest(scaled(parts, split.lines.get(line, 0.0) / 1e9))
    found["interpreter"] = tuple(
        LedgerPart(one.name, one.own / 1e9, one.calls, f"{one.file}:{one.line}")
        for one in passes.functions[:MOST_PARTS]
    )
    return found


def scaled(parts: Sequence[LedgerPart], whole_s: float) -> list[LedgerPart]:
    """Parts that fill their line: pages, the pool and autograd's nodes were taken out of the line
    as a whole, not op by op."""
    total = sum(part.seconds for part in parts)
    return [replace(part, seconds=part.seconds * whole_s / total) for part in parts if total]


def _largest(parts: list[LedgerPart]) -> tuple[LedgerPart, ...]:
    worth = [part for part in parts if part.seconds > 0]
    return tuple(sorted(worth, key=lambda part: -part.seconds)[:MOST_PARTS])


def interpreter_words(passes: Passes, lines: Sequence[LedgerLine]) -> str:
    """Whether the interpreter has a lock, and how long this thread waited for it."""
    if passes.facts.get("gil") == "off":
        return "This interpreter runs free-threaded: there is no lock to wait for."
    found = next((line for line in lines if line.name == "gil"), None)
    how = passes.watched
    if not how.looks:
        sure = f"inferred, because nobody could look: {how.reason}"
    elif found is not None and blocked_of(passes.blocks, how).seen is None:
        sure = f"inferred: too few of {how.looks} looks from outside found it asleep"
    else:
        sure = f"seen in {how.asleep.get('gil', 0)} of {how.looks} looks from outside"
    others = _others(how)
    if found is None:
        return f"This interpreter has a lock; the step did not wait for it ({sure}).{others}"
    return (
        f"This interpreter has a lock, and the step waited for it {found.share:.1%} of its time "
        f"({sure}).{others}"
    )


def _others(how: Watched) -> str:
    """What looks at the process's other Python threads have shown."""
    if not how.others_looks:
        return ""
    return (
        f" Its other Python threads ({how.others}) waited for the lock in "
        f"{how.others_gil / how.others_looks:.0%} of the looks at them."
    )


SLACK_S = 120.0
"""Between two signs of life: passes of some seconds each, on a machine that may be busy."""
_SCRIPT = """from torchstone.explain.child import ExplainingWorker
from torchstone.measure.worker import main
main(ExplainingWorker)
"""
_INIT = '"""The part of this package that is sent to the worker."""\n'


def run_passes_of(arm: ArmSpec, plan: Plan, settings: Settings | None = None) -> Passes:
    """All passes of one arm, within `Settings.total_s` where that is set. A `TorchstoneError` says
    why there are none."""
    settings = settings or Settings()
    until = None if settings.total_s is None else time.monotonic() + settings.total_s
    with own_folder() as folder:
        launcher = Launcher(folder)
        script = _add_child(folder / "payload")
        env = launcher.environment(arm, "cache-explain")
        words = [launcher.interpreter(arm), str(script)]
        worker = WorkerProcess(arm, Spawn(words), env, folder / "scratch", until)
        try:
            command = {"do": "explain", "arm": arm, "plan": plan}
            reply = worker.ask(command, patience(settings, SLACK_S))
        except ArmEnded as ended:
            raise _as_error(arm, ended) from None
        except OutOfTime:
            raise TorchstoneError(
                f"{arm.target} was not explained: that takes more than {settings.total_s:.3g} s.",
                "Give more time.",
            ) from None
        finally:
            worker.kill()
    return from_data(Passes, reply)


def _add_child(payload: Path) -> Path:
    """The passes beside the packages that are sent."""
    home = Path(__file__).resolve().parent
    package = payload / "torchstone" / "explain"
    package.mkdir()
    (package / "__init__.py").write_text(_INIT)
    os.symlink(home / "child.py", package / "child.py")
    os.symlink(home / "passes", package / "passes")
    script = payload / "explain.py"
    script.write_text(_SCRIPT)
    return script


def _as_error(arm: ArmSpec, ended: ArmEnded) -> TorchstoneError:
    """The request was sound and the target did not do its work: exit code 1, as elsewhere."""
    detail = ended.detail
    last = detail.stderr[-1].strip() if detail.stderr else ""
    more = f" ({last})" if last and last not in detail.message else ""
    return TorchstoneError(
        f"{arm.target} under {arm.variant} cannot be explained: {ended.outcome.value} in "
        f"{detail.phase or 'start'}: {detail.message}{more}.",
        detail.remedy or "See whether `torchstone bench` runs it.",
    )
