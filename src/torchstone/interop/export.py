"""A run as rows of the runner's tables, and what those rows cannot say."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.interop.assemble import some_names
from torchstone.interop.base import Medians
from torchstone.interop.own import believed_medians, own_rows
from torchstone.interop.rows import Row, foreign_rows
from torchstone.records import FOREIGN_DEFINITION, CaseFigures, Outcome, RunView, UsageError

COSTS_REMARK = (
    "Memory is the true peak above interpreter and torch in units of 10^9 bytes, where the runner "
    "writes the resident size of a moment, on the CPU times 100; compilation_latency is put "
    "together from the first call's cost and the medians."
)


def export_rows(case: CaseFigures, medians: Medians | None) -> Sequence[Row]:
    """The rows of a case: ours by the runner's definitions, imported ones as they were."""
    if case.definition != FOREIGN_DEFINITION:
        return own_rows(case, medians)
    rows = foreign_rows(case)
    if not rows:
        raise UsageError(
            f"{case.key.name} was measured by another tool, whose figures this format cannot hold.",
            "Export it in the format that it was imported from.",
        )
    return rows


def export_remarks(view: RunView, medians: Medians | None) -> tuple[str, ...]:
    """What a reader of the exported files must know, a sentence each."""
    ours = [case for case in view.complete if case.definition != FOREIGN_DEFINITION]
    if not ours:
        return ()
    passed = [case for case in ours if case.outcome is Outcome.OK]
    silent = [case.key.model for case in passed if believed_medians(case, medians) is None]
    failed = [case.key.model for case in ours if case.outcome is not Outcome.OK]
    remarks = [COSTS_REMARK] if passed else []
    if silent:
        remarks.append(
            f"{len(silent)} cases have no speedup and no latency, because their samples are not "
            f"at hand or a check found them unfit: {some_names(silent)}."
        )
    if failed:
        remarks.append(
            f"{len(failed)} cases that did not pass have rows of their own, with a speedup of 0 "
            f"and their status: {some_names(failed)}."
        )
    return tuple(remarks)
