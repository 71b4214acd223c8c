"""A tuning as a report: the ladder, every experiment with its reason, the recipe."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from typing import Any

from torchstone.records import Decision, Experiment, Stage, Tuning
from torchstone.records.format import count, format_bytes, format_percent, format_seconds
from torchstone.show.blocks import (
    Commands,
    Entry,
    Grid,
    Listed,
    Parts,
    Report,
    Sentence,
)
from torchstone.show.markdown import plain, to_text
from torchstone.show.page import Cell, Field, Table, ends, field, hidden, make_table
from torchstone.tuning.decide import pareto

MARKS = {
    Decision.ADOPTED: "better",
    Decision.PROMISING: "better",
    Decision.REJECTED: "worse",
    Decision.CANNOT_TELL: "doubt",
    Decision.WRONG_ANSWER: "fail",
    Decision.FAILED: "fail",
    Decision.STOPPED: "worse",
}
ORDER = {decision: place for place, decision in enumerate(Decision)}


def final(tuning: Tuning) -> list[Experiment]:
    """The last word on each technique: that of the selection where it came so far."""
    found: dict[str, Experiment] = {}
    for one in tuning.experiments:
        if one.stage is not Stage.CONFIRM:
            found[one.technique] = one
    return sorted(found.values(), key=lambda one: (ORDER[one.decision], one.time_ratio or math.inf))


def _speedup(one: Experiment) -> Cell:
    if one.speedup is None:
        return Cell(None, "")
    low, high = (1 / one.interval[1], 1 / one.interval[0]) if one.interval else (None, None)
    span = f"{low:.3g}–{high:.3g}" if low is not None and high is not None else ""
    return Cell(one.speedup, f"{one.speedup:.3g}×", detail=span)


def _decision(one: Experiment) -> Cell:
    return Cell(one.decision.value, one.decision.value, mark=MARKS.get(one.decision, "quiet"))


def _text(get: Callable[[Experiment], str]) -> Callable[[Experiment], Cell]:
    return lambda one: Cell(get(one), get(one))


def _share(get: Callable[[Experiment], float | None]) -> Callable[[Experiment], Cell]:
    def cell(one: Experiment) -> Cell:
        value = get(one)
        return Cell(value, "" if value is None else format_percent(value))

    return cell


def _memory(one: Experiment) -> float | None:
    """Of one that was stopped before a sample was taken, it is that of compiling."""
    return one.memory_ratio if one.decision.measured else None


def _calls(one: Experiment) -> Cell:
    calls = one.break_even_calls
    if calls is None or (one.compile_s or 0.0) < 0.01:
        return Cell(calls, "")
    return Cell(calls, f"{calls:,.0f}", detail=format_seconds(one.compile_s or 0.0, 2))


def _reason(one: Experiment) -> str:
    on = f"on top of {', '.join(one.on)}: " if one.on and one.stage is Stage.SELECT else ""
    return "; ".join(filter(None, (on + one.reason if one.reason else "", *one.conditions)))


FIELDS: tuple[Field[Experiment], ...] = (
    field("technique", "Technique", _text(lambda one: one.technique)),
    field("decision", "Decision", _decision),
    field("speedup", "Speed-up", _speedup, number=True, unit="×"),
    *ends("interval", "time ratio", lambda one: one.interval),
    field("memory", "Memory", _share(_memory), number=True),
    field("share", "At stake", _share(lambda one: one.share), number=True, wide=True),
    field("tier", "Answers", _text(lambda one: one.shown_tier or one.tier), wide=True),
    field("break_even", "Break-even calls", _calls, number=True, wide=True),
    field("reason", "Reason", _text(_reason)),
    hidden("stage", "Stage", lambda one: one.stage.value, number=False),
    hidden("result", "Result", lambda one: one.result_id, number=False),
)


def experiments_table(tuning: Tuning) -> Table:
    """Every technique, with what became of it."""
    return make_table("experiments", "Experiments", FIELDS, final(tuning), without=("reason",))


def tune_dumps(tuning: Tuning) -> str:
    """The record, with what is derived from it."""
    return to_text(tune_document(tuning))


def tune_document(tuning: Tuning) -> dict[str, Any]:
    """The record as plain data, its experiments with their speed-ups."""
    document: dict[str, Any] = {"kind": "tuning", **plain(tuning)}
    for one, made in zip(document["experiments"], tuning.experiments, strict=True):
        one["speedup"] = plain(made.speedup)
    document["headline"] = headline(tuning)
    document["pareto"] = [one.technique for one in pareto(tuning.experiments)]
    return document


def headline(tuning: Tuning) -> str:
    """The result in a sentence."""
    confirmed = tuning.confirmation
    measured = count(sum(one.decision.measured for one in final(tuning)), "technique")
    if not tuning.adopted:
        missed = sum(one.decision is Decision.NOT_RUN for one in final(tuning))
        if tuning.state == "out of time" and missed:
            return f"Nothing adopted within the budget: {measured} measured, {missed} not tried."
        if tuning.state in ("complete", "out of time"):
            return f"Leave it as it is: of {measured} measured, none was found to help."
        return f"Nothing adopted yet: {measured} measured."
    names = ", ".join(tuning.adopted)
    if confirmed is None:
        return f"{names}: adopted step by step, and not confirmed yet."
    if confirmed.decision is not Decision.ADOPTED:
        return f"{names}: not confirmed from the recipe file ({_reason(confirmed)})."
    if tuning.goal == "memory" and confirmed.memory_ratio is not None:
        gain = f"needs {confirmed.memory_ratio:.0%} of the tensors' memory"
    else:
        cell = _speedup(confirmed)
        gain = f"{cell.text} as fast ({cell.detail})" if cell.detail else f"{cell.text} as fast"
    return f"{names}: {gain}, confirmed from the recipe file in new processes."


def tune_report(tuning: Tuning, db: str = "") -> Report:
    """What terminal and Markdown show."""
    arm = tuning.arm
    environment = tuning.environment
    torch = environment.torch.get("version", "") if environment else ""
    heading = [
        f"tuning of {arm.target}",
        arm.mode,
        arm.precision,
        arm.device,
        f"goal {tuning.goal}",
        f"answers {tuning.allow}",
        f"torch {torch}" if torch else "",
        tuning.state,
        format_seconds(tuning.elapsed_s, 3),
    ]
    role = "good" if tuning.adopted else "even"
    return [
        [Parts(heading, "title")],
        [Sentence(headline(tuning), role, "")],
        _ladder(tuning),
        [Grid(experiments_table(tuning), "Techniques")],
        _reasons(tuning),
        _front(tuning),
        [Listed("By hand", [Entry(one) for one in tuning.findings])],
        [Sentence(one) for one in (*tuning.rules, *tuning.notes)],
        _next(tuning, db),
    ]


def _ladder(tuning: Tuning) -> list[Any]:
    entries = []
    for number, step in enumerate(tuning.ladder, 1):
        cell = _speedup(step)
        calls = _calls(step)
        even = f"; compiling pays after {calls.text} calls" if calls.text else ""
        memory = f", memory {format_percent(step.memory_ratio)}" if step.memory_ratio else ""
        entries.append(
            Entry(f"{number}. +{step.technique}: {cell.text} ({cell.detail}){memory}{even}")
        )
    confirmed = tuning.confirmation
    if confirmed is not None:
        cell = _speedup(confirmed)
        peak = f", peak of tensors {format_bytes(confirmed.peak_bytes)}" * bool(
            confirmed.peak_bytes
        )
        entries.append(Entry(f"all, from the recipe file: {cell.text} ({cell.detail}){peak}"))
    aside = "each on top of the ones before, measured against them"
    return [Listed("Steps", entries, aside)] if entries else []


def _reasons(tuning: Tuning) -> list[Any]:
    """Why each technique was not adopted; those that cannot apply in a list of their own."""
    told = [one for one in final(tuning) if _reason(one)]
    ran = [one for one in told if one.decision.measured]
    not_run = [one for one in told if not one.decision.measured]
    return [
        Listed("Why", [Entry(f"{one.technique}: {_reason(one)}") for one in ran]),
        Listed("Not run", [Entry(f"{one.technique}: {_reason(one)}") for one in not_run]),
    ]


def _front(tuning: Tuning) -> list[Any]:
    front = [one for one in pareto(tuning.experiments) if one.speedup]
    if len(front) < 2:
        return []
    said = [
        f"{one.technique} {one.speedup or 0:.3g}× at {format_percent(one.memory_ratio)} of memory"
        for one in front
    ]
    return [Sentence(f"No other beats these in both time and memory: {'; '.join(said)}.")]


def _next(tuning: Tuning, db: str) -> list[Any]:
    where = f" --db {db}" if db else ""
    items = []
    if tuning.recipe_path and tuning.adopted:
        arm = tuning.arm
        items.append(("Recipe", tuning.recipe_path))
        words = ["torchstone", "bench", arm.target, "--mode", arm.mode]
        words += ["--allocator", arm.allocator]
        words += ["--threads", str(arm.threads)] if arm.threads else []
        again = shlex.join([*words, "--vs", f"recipe:{tuning.recipe_path}"])
        items.append(("Measure it again", again))
    if tuning.state != "complete":
        items.append(("Go on", f"torchstone tune --resume {tuning.id}{where}"))
    return [Commands(items)] if items else []
