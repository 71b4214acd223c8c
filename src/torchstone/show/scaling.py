"""`torchstone scaling` for people: an arm a row, and what must be known before one reads them."""

from __future__ import annotations

from torchstone.records.format import count, format_bytes, format_percent, format_seconds
from torchstone.records.scaling import PLAIN, Communication, RankArm, Scaling
from torchstone.show.blocks import Commands, Entry, Grid, Listed, Parts, Report, Sentence
from torchstone.show.cells import command_line, seconds_cell, text_cell
from torchstone.show.evidence import duration
from torchstone.show.markdown import plain, to_text
from torchstone.show.page import Cell, Field, field, make_table


def scaling_dumps(found: Scaling) -> str:
    """The record, with each arm's name."""
    document = {"kind": "scaling", **plain(found)}
    for one, arm in zip(document["arms"], found.arms, strict=True):
        one["name"] = arm.name
        one["overlap"] = plain(arm.communication.overlap) if arm.communication else None
    return to_text(document)


def scaling_report(found: Scaling) -> Report:
    """What terminal and Markdown show."""
    fixed = "of a rank" if found.scaling == "weak" else "of all ranks together"
    where = [f"{found.scaling} scaling: the batch {fixed} is fixed", f"torch {found.torch}"]
    threads = f"{count(found.threads, 'thread')} a rank on {count(found.cores, 'core')}"
    moved = [arm for arm in found.arms if arm.communication is not None and arm.ranks > 1]
    return [
        [Parts([found.target], role="title"), Parts([*where, threads])],
        [Sentence(text, role="warn", lead="! ") for text in found.findings],
        [Grid(make_table("arms", "Arms", ARMS, found.arms))],
        [
            Listed(
                "A step's communication", [Entry(communication_of(arm), arm.name) for arm in moved]
            )
        ],
        [
            Parts(["a step is forward, backward and update of the slowest rank"], role="dim"),
            Commands([("Again", command_line(found.command))], inline=True),
            Parts([f"took {duration(round(found.elapsed_s))}"], role="dim"),
        ],
    ]


def _outcome(arm: RankArm) -> Cell:
    outcome = arm.measurement.outcome
    return Cell(outcome.value, outcome.words, mark="fail" if outcome.failed else "")


def _step(arm: RankArm) -> Cell:
    return seconds_cell(max(arm.rank_s, default=None))


def _ranks(arm: RankArm) -> Cell:
    each = " ".join(format_seconds(seconds, 3) for seconds in arm.rank_s)
    return Cell(each, each if arm.ranks > 1 else "")


def _efficiency(arm: RankArm, plainly: bool) -> Cell:
    for one in arm.efficiency:
        if (one.against == PLAIN) == plainly:
            low, high = one.interval
            span = f"{low:.0%}–{high:.0%}" if high < float("inf") else "no interval"
            return Cell(one.value, f"{one.value:.0%}", detail=span)
    return Cell()


def _gradients(arm: RankArm) -> Cell:
    check = arm.gradients
    if check is None:
        return Cell()
    if check.right:
        return Cell(check.error, f"{check.error:.1g}", mark="pass")
    return Cell(check.error, f"{check.scale:.2f}× one rank's", mark="fail")


def _share(arm: RankArm) -> Cell:
    moved, step = arm.communication, max(arm.rank_s, default=0.0)
    if moved is None or arm.ranks == 1 or not moved.step_s or not step:
        return Cell()
    return Cell(moved.busy_s / moved.step_s, format_percent(moved.busy_s / moved.step_s))


ARMS: tuple[Field[RankArm], ...] = (
    field("arm", "Arm", lambda arm: text_cell(arm.name)),
    field("outcome", "Outcome", _outcome),
    field("step", "Step", _step, number=True, unit="s"),
    field("ranks", "By rank", _ranks, wide=True),
    field("efficiency", "Efficiency, one rank", lambda arm: _efficiency(arm, False), number=True),
    field("efficiency_plain", "one process", lambda arm: _efficiency(arm, True), number=True),
    field("communication", "Communication", _share, number=True),
    field("gradients", "Gradients off by", _gradients, number=True),
)


def communication_of(arm: RankArm) -> str:
    """In words; only of an arm that has it."""
    moved: Communication | None = arm.communication
    assert moved is not None
    calls = "call" if moved.calls == 1 else "calls"
    said = [f"{format_seconds(moved.busy_s, 3)} in {moved.calls:.3g} {calls}"]
    said.append(f"{format_bytes(moved.bytes)} a rank")
    if moved.transfer_s is not None and moved.skew_s is not None:
        transfer, skew = format_seconds(moved.transfer_s, 3), format_seconds(moved.skew_s, 3)
        said.append(f"transfer {transfer}, waiting for the last rank {skew}")
    if moved.overlap is not None:
        said.append(f"{moved.overlap:.0%} behind computation")
    if moved.ddp_busy_s is not None and moved.ddp_overlap_s is not None:
        overlap = format_seconds(moved.ddp_overlap_s, 3)
        said.append(f"by DDP's own log {format_seconds(moved.ddp_busy_s, 3)}, {overlap} overlapped")
    return "; ".join(said)
