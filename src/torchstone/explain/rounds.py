"""Rounds put together into one: an undisturbed step, plain and traced.

A neighbour only ever adds to what a step computes, and never the same: so of every figure that is
time on the core the lower quartile of the rounds is taken, of the plain steps and of the traced
ones alike. Sleeping and collecting are the step's own, and are averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from torchstone.explain.passes.report import OpTime, Place, Plain, Round, Traced


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


def _plain(rounds: Sequence[Plain]) -> Plain:
    first = rounds[0]
    collecting = fmean(one.collecting for one in rounds)
    cpu = quartile([one.cpu - one.collecting for one in rounds]) + collecting
    off, wait = fmean(one.off for one in rounds), quartile([one.wait for one in rounds])
    return replace(
        first,
        steps=sum(one.steps for one in rounds),
        wall=cpu + off + wait,
        cpu=cpu,
        off=off,
        wait=wait,
        collecting=collecting,
        process_cpu=quartile([one.process_cpu for one in rounds]),
        faults=fmean(one.faults for one in rounds),
        python_threads=fmean(one.python_threads for one in rounds),
        busy=fmean(one.busy for one in rounds),
        dropped=sum(one.dropped for one in rounds),
    )


def _traced(rounds: Sequence[Traced]) -> Traced:
    collecting = fmean(one.collecting for one in rounds)
    off = fmean(one.off for one in rounds)
    cpu = quartile([one.cpu - one.collecting for one in rounds]) + collecting
    wait = quartile([one.wait for one in rounds])
    names = {name for one in rounds for name in one.places}
    return Traced(
        steps=sum(one.steps for one in rounds),
        wall=cpu + off + wait,
        cpu=cpu,
        off=off,
        wait=wait,
        collecting=collecting,
        events=fmean(one.events for one in rounds),
        places={name: _place(name, rounds) for name in sorted(names)},
        ops=_ops(rounds, lambda one: one.ops),
        kernels=_ops(rounds, lambda one: one.kernels),
        copies=_ops(rounds, lambda one: one.copies),
        breaks=fmean(one.breaks for one in rounds),
        speeds=_figures([one.speeds for one in rounds]),
        grad_speeds=_figures([one.grad_speeds for one in rounds]),
    )


def _figures(tables: Sequence[Mapping[str, float]]) -> dict[str, float]:
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


def _ops(
    rounds: Sequence[Traced], table: Callable[[Traced], Sequence[OpTime]]
) -> tuple[OpTime, ...]:
    tables = [{op.name: op for op in table(one)} for one in rounds]
    names = {name for one in tables for name in one}
    made = []
    for name in names:
        found = [one.get(name, OpTime(name, 0.0, 0.0, 0.0)) for one in tables]
        made.append(
            OpTime(
                name,
                fmean(op.calls for op in found),
                quartile([op.own for op in found]),
                fmean(op.inside for op in found),
                fmean(op.with_grad for op in found),
            )
        )
    return tuple(sorted(made, key=lambda op: -op.own))
