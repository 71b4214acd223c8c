"""Causes in the user's own code, each with its line: what a change of that line would bring.

A ledger's sites say which calls a line makes; what those calls cost is taken from the ledger's own
lines, by their share.

What a compiler could fuse, or is kept from: graph breaks, recompiles, copies, small kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchstone.explain.findings.base import finding, predict
from torchstone.explain.passes.report import (
    IMAGES,
    fusable,
    fusable_s,
    fusable_share,
    has_convolutions,
    moves_data,
    op_calls,
)
from torchstone.records import CodeSite, Ledger, Prediction, Remedy, SourceLine
from torchstone.records.format import count, percent
from torchstone.records.ledger import ABSTRACTION, BACK_END, FRONT_END, PYTHON

MOST_GAP_S = 50e-6
"""Python for each op beyond this is not the price of calling it."""
SURE_LOOP = 0.6
"""Of what calls cost around their kernels: a loop over a batch pays it once for each item."""
BY_HAND = "only a change of the code can do it"
WIDE = {
    "given": "an argument of the step is float64",
    "kept": "a parameter or another tensor that is kept is float64",
    "made": "the line makes it so",
}


def sites_of(ledger: Ledger, kind: str) -> list[CodeSite]:
    """The sites of a kind, the most calls and kernel time first."""
    found = [one for one in ledger.sites if one.kind == kind]
    return sorted(found, key=lambda one: -(one.call_share + one.kernel_share))


def front_s(ledger: Ledger, sites: Sequence[CodeSite]) -> float:
    """Their part of Python, dispatch and autograd."""
    wall = ledger.wall_s
    python = min(ledger.share("interpreter") * wall, op_calls(ledger) * MOST_GAP_S)
    around = python + (ledger.share("dispatch") + ledger.share("autograd")) * wall
    return min(1.0, sum(one.call_share for one in sites)) * around * _waiting(ledger)


def kernel_s(ledger: Ledger, sites: Sequence[CodeSite]) -> float:
    """Their part of the kernels, with the memory and threads these take."""
    share = sum(ledger.share(name) for name in ("kernels", "allocator", "pool"))
    part = min(1.0, sum(one.kernel_share for one in sites)) * share * ledger.wall_s
    return part * _waiting(ledger)


def _waiting(ledger: Ledger) -> float:
    """What is computed waits for a core as all else does, and no longer waits when it is gone."""
    return 1 / max(0.1, 1 - ledger.share("contention"))


def places_of(sites: Sequence[CodeSite]) -> tuple[SourceLine, ...]:
    """The lines with their text, each once."""
    found = {(one.file, one.line): SourceLine(one.source, one.file, one.line) for one in sites}
    return tuple(found.values())


def where(site: CodeSite) -> str:
    """`model.py:12`, by the name of the file alone: the whole path is among the places."""
    return f"{site.file.replace(chr(92), '/').rpartition('/')[2]}:{site.line}"


def _ops(site: CodeSite) -> str:
    return ", ".join(site.ops)


@finding("batch-loop", PYTHON, "A Python loop over the batch", least=0.10)
def batch_loop(ledger: Ledger) -> Prediction | None:
    """The same ops from one line, on one slice of a tensor after the other."""
    sites = sites_of(ledger, "batch-loop")
    if not sites:
        return None
    first, turns = sites[0], min(one.repeats for one in sites)
    front, kernels = front_s(ledger, sites), kernel_s(ledger, sites)
    once = 1 - 1 / turns
    return predict(
        ledger,
        f"{where(first)} calls {_ops(first)} in one step, {first.detail}; the loop is "
        f"{percent((front + kernels) / ledger.wall_s)} of the step",
        "call it once on the whole tensor instead of once for each item (most modules take a batch "
        "as it is; else torch.vmap(f)(x) for a body f that takes one item)",
        front + kernels,
        # Kernels of single items are mostly the cost of starting them, or none of it.
        gain=(SURE_LOOP * once * front, once * (front + kernels)),
        why_not=BY_HAND,
        places=places_of(sites),
    )


@finding("small-copies", BACK_END, "Small copies, again and again", least=0.05)
def small_copies(ledger: Ledger) -> Prediction | None:
    """Rows written, cast or joined one by one."""
    sites = sites_of(ledger, "small-copies")
    if not sites:
        return None
    first, front, kernels = sites[0], front_s(ledger, sites), kernel_s(ledger, sites)
    stake = front + kernels
    what, advice = {
        "grow": (
            "grows a tensor with torch.cat, which copies all of it",
            "append to a Python list and call torch.cat once after the loop",
        ),
        "cast": ("casts small tensors", "cast the whole tensor once, before the loop"),
    }.get(
        first.detail,
        (
            "copies small tensors",
            "collect them in a list and call torch.stack once after the loop, or compute all at "
            "once",
        ),
    )
    python = ledger.share("interpreter") * ledger.wall_s
    return predict(
        ledger,
        f"{where(first)} {what} {first.repeats} times in one step ({_ops(first)})",
        advice,
        stake,
        gain=(0.3 * stake, max(stake, front + kernels + python)),
        why_not=BY_HAND,
        places=places_of(sites),
    )


@finding("item-in-loop", FRONT_END, "Single values read in a loop", least=0.05)
def item_in_loop(ledger: Ledger) -> Prediction | None:
    """`.item()`, `float(t)` or `if t > 0` for one element after the other."""
    sites = sites_of(ledger, "item")
    if not sites:
        return None
    first, stake = sites[0], front_s(ledger, sites)
    python = ledger.share("interpreter") * ledger.wall_s
    queue = "" if ledger.arm.device.startswith("cpu") else "; each waits for the device"
    return predict(
        ledger,
        f"{where(first)} reads {first.repeats} single values out of tensors in one step, "
        f"{first.detail} (.item(), float(), int() or a tensor in an if){queue}",
        "work on the whole tensor (sum, where, masks), or call .tolist() once before the loop",
        stake,
        gain=(0.3 * stake, stake + python + kernel_s(ledger, sites)),
        why_not=BY_HAND,
        places=places_of(sites),
    )


@finding("same-value", PYTHON, "The same value computed again", least=0.03)
def same_value(ledger: Ledger) -> Prediction | None:
    """Masks, positions and the like: made in every step of nothing that came with it; or an op
    that gets the same values more than once in a step."""
    sites = sites_of(ledger, "same-value")
    if not sites:
        return None
    first, stake = sites[0], front_s(ledger, sites) + kernel_s(ledger, sites)
    often = "again" if first.detail == "again" else "step"
    what, advice = {
        "step": (
            f"computes the same value in every step ({_ops(first)})",
            "compute it once, in __init__ with register_buffer or before the loop",
        ),
        "again": (
            f"computes from the same values {count(first.repeats, 'time')} in one step",
            "compute it once and keep the result in a variable",
        ),
    }[often]
    return predict(
        ledger,
        f"{where(first)} {what}, {percent(stake / ledger.wall_s)} of the step",
        advice,
        stake,
        gain=(0.4 * stake, 1.4 * stake),
        why_not=BY_HAND,
        places=places_of(sites),
    )


@finding("float64", BACK_END, "Double precision", least=0.10)
def float64(ledger: Ledger) -> Prediction | None:
    """Work on float64, where float32 has half the bytes and twice the lanes."""
    sites = sites_of(ledger, "float64")
    if not sites or ledger.arm.precision == "fp64":
        return None
    first, stake = sites[0], kernel_s(ledger, sites)
    return predict(
        ledger,
        f"{percent(stake / ledger.wall_s)} of the step works on float64, from {where(first)} on: "
        f"{WIDE.get(first.detail, first.detail)}",
        "use float32, if its seven digits do: .float() once outside the step, dtype=torch.float32 "
        "where a tensor is made from NumPy or Python numbers",
        stake,
        gain=(0.1 * stake, 0.85 * stake),
        why_not=BY_HAND,
        places=places_of(sites),
    )


@finding("needless-cast", BACK_END, "Needless casts", least=0.03)
def needless_cast(ledger: Ledger) -> Prediction | None:
    """Casts there and back, and of a tensor that is the same in every step."""
    sites = sites_of(ledger, "cast")
    if not sites or ledger.arm.precision.startswith("amp"):  # where autocast casts as it must
        return None
    first, stake = sites[0], front_s(ledger, sites) + kernel_s(ledger, sites)
    kind, old, new = first.detail.split(" ")
    if kind == "back":
        what = f"casts {old} to {new}, which was {new} before"
        advice = "leave out both casts, or keep the tensor in one type"
    else:
        what = f"casts a tensor that does not change from {old} to {new} in every step"
        advice = f"cast it once, outside the step: keep it as {new}"
    return predict(
        ledger,
        f"{where(first)} {what}; casts like it are {percent(stake / ledger.wall_s)} of the step",
        advice,
        stake,
        # A cast there and back is two, and its type decides what the ops in between take.
        gain=(0.4 * stake, 2.5 * stake),
        why_not=BY_HAND,
        places=places_of(sites),
    )


@finding("strided-input", ABSTRACTION, "Inputs that are not contiguous", least=0.03)
def strided_input(ledger: Ledger) -> Prediction | None:
    """Ops that take longer because of how an argument of the step lies in memory; tried with
    contiguous copies, one op at a time."""
    sites = sites_of(ledger, "strided-input")
    most = (ledger.share("kernels") + ledger.share("allocator")) * ledger.wall_s
    stake = min(most, sum(one.saved_s for one in sites)) * _waiting(ledger)
    if not sites or not stake:
        return None
    first = sites[0]
    return predict(
        ledger,
        f"an argument of the step ({first.detail.replace('×', ' × ')}) is not contiguous, and "
        f"{where(first)} takes longer for it: {percent(stake / ledger.wall_s)} of the step, tried "
        "with a contiguous copy",
        "hand over contiguous tensors: .contiguous() once where the data are made, not in the step",
        stake,
        gain=(0.3 * stake, 1.4 * stake),
        why_not=BY_HAND,
        places=places_of(sites),
    )


CHANNELS_LAST = "channels_last"
LEAST_CALLS = 3
NOT_PREDICTED = (1.0, 1.0)
"""Of a finding whose remedy changes nothing in a steady step: the gain is elsewhere."""


@finding("graph-breaks", FRONT_END, "Graph breaks", least=0.02)
def graph_breaks(ledger: Ledger) -> Prediction | None:
    """Breaks, and what entering compiled code again costs; not the Python that runs there."""
    if not ledger.breaks:
        return None
    again = len(ledger.breaks) / (len(ledger.breaks) + 1)
    share = ledger.share("breaks") + again * ledger.share("guards")
    stake = share * ledger.wall_s
    return predict(
        ledger,
        f"compiled code is left at {count(len(ledger.breaks), 'place')}; leaving and entering it "
        f"takes {percent(share)} of the step, the Python in between apart",
        "move what breaks the graph out of the compiled function",
        stake,
        gain=(0.3 * stake, 1.5 * stake),
        why_not="only a change of the code removes a break",
        places=ledger.breaks,
    )


@finding("recompiles", FRONT_END, "Compiled again and again")
def recompiles(ledger: Ledger) -> Prediction | None:
    """Compilations after the warm-up. What goes is the time between steps in which the compiler
    runs. The ledger is of steady steps and has none of it, so nothing is predicted of them, and
    there is nothing to test."""
    if not ledger.late_compiles or "dynamic" in ledger.arm.modifiers:
        return None
    found = predict(
        ledger,
        f"it was compiled {ledger.late_compiles} times while it should run",
        "compile it once for dynamic shapes",
        ledger.wall_s * ledger.share("guards"),
        gain=(0.0, 0.0),
        why_not=(
            "steady steps stay as long as they are; `torchstone bench --vs "
            f"{ledger.arm.variant}+dynamic` measures it under changing shapes"
        ),
        places=ledger.recompiles,
    )
    return replace(found, time_ratio=NOT_PREDICTED)


@finding("unfused", BACK_END, "Small kernels, one after the other", least=0.20)
def unfused(ledger: Ledger) -> Prediction | None:
    """Pointwise kernels that pass their data through memory one after the other."""
    wall, kernels = ledger.wall_s, fusable_s(ledger)
    # What is merged is never written, so no page is mapped for it either.
    pages = fusable_share(ledger) * ledger.share("allocator") * wall
    calls, stake = sum(op.calls for op in fusable(ledger)), kernels + pages
    if not ledger.arm.is_eager or calls < LEAST_CALLS:
        return None
    most = kernels + sum(ledger.share(n) for n in ("dispatch", "autograd", "allocator")) * wall
    mapped = f", and {percent(pages / wall)} goes into memory for them" * (pages > 0.05 * wall)
    return predict(
        ledger,
        f"{percent(kernels / wall)} of the step is in {calls:.0f} kernels that each read and write "
        f"all their data{mapped}",
        "torch.compile merges them; only the first read and the last write remain",
        stake,
        gain=(0.15 * stake, most),
        remedy=Remedy(variant="inductor"),
    )


@finding("layout-conversions", ABSTRACTION, "Layout conversions and copies", least=0.05)
def layout_conversions(ledger: Ledger) -> Prediction | None:
    """Clones and contiguous copies; a cast changes the values, not how they lie."""
    copies = moves_data(ledger)
    stake = sum(op.kernel_s for op in copies)
    images = has_convolutions(ledger.ops) and ledger.facts.get(IMAGES) != CHANNELS_LAST
    advice = "make the data once in the layout that its readers want, outside the step"
    names = ", ".join(f"{op.name} ×{op.calls:.0f}" for op in copies[:3])
    return predict(
        ledger,
        f"{percent(stake / ledger.wall_s)} of the step only moves data: {names}",
        "keep model and inputs in channels_last" if images else advice,
        stake,
        gain=(0.2 * stake, 2.0 * stake),
        remedy=Remedy(technique=CHANNELS_LAST) if images else None,
        why_not="" if images else "only its author knows which copy is needless",
    )
